-- View: what the agents know; owner is the stream of the agent, stream and seq are the entry of the journal that has it. The
-- text is packed, tags are a list in JSON. A memory counts until it ended (superseded or withdrawn, as recorded), and is held
-- true until it was replaced (by the time of what took its place).
CREATE TABLE memories (
    owner      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    about      TEXT NOT NULL,
    person     TEXT NOT NULL,
    source     TEXT NOT NULL,
    writer     TEXT NOT NULL,
    run        TEXT NOT NULL,
    step       TEXT NOT NULL,
    tags       TEXT NOT NULL,
    trust      REAL NOT NULL,
    importance REAL NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to   INTEGER NOT NULL,
    recorded   INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    thread     TEXT NOT NULL,
    place      INTEGER NOT NULL,
    sketch     BLOB NOT NULL,
    text       BLOB NOT NULL,
    meta       BLOB NOT NULL,
    ended      INTEGER NOT NULL,
    replaced   INTEGER NOT NULL,
    times      INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT;

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
    owner  INTEGER NOT NULL,
    id     TEXT NOT NULL,
    what   TEXT NOT NULL,
    other  TEXT NOT NULL,
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    valid  INTEGER NOT NULL,
    source TEXT NOT NULL,
    trust  REAL NOT NULL,
    PRIMARY KEY (owner, id, what, other, stream, seq)
) STRICT, WITHOUT ROWID;

-- What an entry says.
CREATE INDEX memory_marks_at ON memory_marks (stream, seq);

-- The other way round.
CREATE INDEX memory_marks_of ON memory_marks (owner, other, what);

-- When memories were last of use, and how often. Not a view: who loses it loses nothing but an order.
CREATE TABLE memory_uses (
    owner INTEGER NOT NULL,
    id    TEXT NOT NULL,
    uses  INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;
