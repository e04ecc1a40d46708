-- oldest: 15

-- View: what the agents know; owner is the stream of the agent, stream and seq are the entry of the journal that has it. The
-- text is packed, tags are a list in JSON. A memory counts until it ended (superseded or withdrawn, as recorded), and is held
-- true until it was replaced (by the time of what took its place).
CREATE TABLE memories (
    owner      BIGINT NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    stream     BIGINT NOT NULL,
    seq        BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    about      TEXT COLLATE "C" NOT NULL,
    person     TEXT COLLATE "C" NOT NULL,
    source     TEXT COLLATE "C" NOT NULL,
    writer     TEXT NOT NULL,
    run        TEXT NOT NULL,
    step       TEXT NOT NULL,
    tags       TEXT NOT NULL,
    trust      DOUBLE PRECISION NOT NULL,
    importance DOUBLE PRECISION NOT NULL,
    valid_from BIGINT NOT NULL,
    valid_to   BIGINT NOT NULL,
    recorded   BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    thread     TEXT COLLATE "C" NOT NULL,
    place      BIGINT NOT NULL,
    sketch     BYTEA NOT NULL,
    text       BYTEA NOT NULL,
    meta       BYTEA NOT NULL,
    ended      BIGINT NOT NULL,
    replaced   BIGINT NOT NULL,
    times      BIGINT NOT NULL,
    PRIMARY KEY (owner, id)
);

-- What an entry of the journal has.
CREATE INDEX memories_at ON memories (stream, seq);

-- What is known about something; most of what was said in passing is about nothing.
CREATE INDEX memories_about ON memories (owner, about, valid_from) WHERE about <> '';

-- What says the same.
CREATE INDEX memories_alike ON memories (owner, sketch);

-- What was said together, in its order.
CREATE INDEX memories_together ON memories (owner, thread, place);

-- What was recorded last.
CREATE INDEX memories_by_time ON memories (owner, recorded, id);

-- Memories whose time will run out.
CREATE INDEX memories_expiring ON memories (owner, expires) WHERE expires > 0;

-- View: what entries of the journal say of memories, whether these are there or not: `superseded` by another, seen `again` under
-- another id, `withdrawn`, `derived` from another, `contradicts` another; and when, by its own time, that holds.
CREATE TABLE memory_marks (
    owner  BIGINT NOT NULL,
    id     TEXT COLLATE "C" NOT NULL,
    what   TEXT COLLATE "C" NOT NULL,
    other  TEXT COLLATE "C" NOT NULL,
    stream BIGINT NOT NULL,
    seq    BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    valid  BIGINT NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    trust  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner, id, what, other, stream, seq)
);

-- What an entry says.
CREATE INDEX memory_marks_at ON memory_marks (stream, seq);

-- The other way round.
CREATE INDEX memory_marks_of ON memory_marks (owner, other, what);

-- When memories were last of use, and how often. Not a view: who loses it loses nothing but an order.
CREATE TABLE memory_uses (
    owner BIGINT NOT NULL,
    id    TEXT COLLATE "C" NOT NULL,
    uses  BIGINT NOT NULL,
    last  BIGINT NOT NULL,
    PRIMARY KEY (owner, id)
);
