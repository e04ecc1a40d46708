-- oldest: 13

-- View: threads of which something was dropped: how often, when last the whole of it (those with a lower life are gone), and
-- the newest id that went then.
CREATE TABLE thread_lives (
    owner  BIGINT NOT NULL,
    thread TEXT COLLATE "C" NOT NULL,
    life   BIGINT NOT NULL,
    whole  BIGINT NOT NULL,
    floor  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, thread)
);

-- View: the checkpoints of threads, and the entry of the journal that has each. One that was dropped stays, empty, until its
-- thread is deleted: dropped is the life that took it.
CREATE TABLE thread_points (
    owner   BIGINT NOT NULL,
    thread  TEXT COLLATE "C" NOT NULL,
    ns      TEXT COLLATE "C" NOT NULL,
    id      TEXT COLLATE "C" NOT NULL,
    life    BIGINT NOT NULL,
    parent  TEXT COLLATE "C" NOT NULL,
    run     TEXT COLLATE "C" NOT NULL,
    stream  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    PRIMARY KEY (owner, thread, ns, id)
);

-- The checkpoints of a run, as a framework calls it; most have none.
CREATE INDEX thread_points_of_run ON thread_points (owner, run) WHERE run <> '';

-- View: the writes that go on from each checkpoint, whether that is there yet or not: one row for each time that a task has
-- written, and the entry of the journal that has them.
CREATE TABLE thread_writes (
    owner  BIGINT NOT NULL,
    thread TEXT COLLATE "C" NOT NULL,
    ns     TEXT COLLATE "C" NOT NULL,
    id     TEXT COLLATE "C" NOT NULL,
    stream BIGINT NOT NULL,
    seq    BIGINT NOT NULL,
    life   BIGINT NOT NULL,
    PRIMARY KEY (owner, thread, ns, id, stream, seq)
);
