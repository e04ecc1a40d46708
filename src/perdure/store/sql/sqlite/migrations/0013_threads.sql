-- View: threads of which something was dropped: how often, when last the whole of it (those with a lower life are gone), and
-- the newest id that went then.
CREATE TABLE thread_lives (
    owner  INTEGER NOT NULL,
    thread TEXT NOT NULL,
    life   INTEGER NOT NULL,
    whole  INTEGER NOT NULL,
    floor  TEXT NOT NULL,
    PRIMARY KEY (owner, thread)
) STRICT, WITHOUT ROWID;

-- View: the checkpoints of threads, and the entry of the journal that has each. One that was dropped stays, empty, until its
-- thread is deleted: dropped is the life that took it.
CREATE TABLE thread_points (
    owner   INTEGER NOT NULL,
    thread  TEXT NOT NULL,
    ns      TEXT NOT NULL,
    id      TEXT NOT NULL,
    life    INTEGER NOT NULL,
    parent  TEXT NOT NULL,
    run     TEXT NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id)
) STRICT, WITHOUT ROWID;

-- The checkpoints of a run, as a framework calls it; most have none.
CREATE INDEX thread_points_of_run ON thread_points (owner, run) WHERE run <> '';

-- View: the writes that go on from each checkpoint, whether that is there yet or not: one row for each time that a task has
-- written, and the entry of the journal that has them.
CREATE TABLE thread_writes (
    owner  INTEGER NOT NULL,
    thread TEXT NOT NULL,
    ns     TEXT NOT NULL,
    id     TEXT NOT NULL,
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    life   INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id, stream, seq)
) STRICT, WITHOUT ROWID;
