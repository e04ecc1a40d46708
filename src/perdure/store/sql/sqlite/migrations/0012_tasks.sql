-- View: runs that were handed to workers, until they have finished; owner is the stream of the agent, stream that of the run
-- once it has begun. ready_at is when a worker may take it: 0 is now, 4611686018427387904 is not by itself.
CREATE TABLE tasks (
    owner    INTEGER NOT NULL,
    run      TEXT NOT NULL,
    stream   INTEGER NOT NULL,
    task     TEXT NOT NULL,
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    ready_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    died     INTEGER NOT NULL,
    again    INTEGER NOT NULL,
    input    BLOB NOT NULL,
    digest   BLOB NOT NULL,
    parent   INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (owner, run)
) STRICT;

-- What a worker takes next.
CREATE INDEX tasks_ready ON tasks (owner, queue, priority DESC, at, run) WHERE ready_at = 0;

-- What comes by itself, in the order in which it does; what does not is at the far end.
CREATE INDEX tasks_timed ON tasks (owner, ready_at) WHERE ready_at > 0;

-- What is at work: for limits, and to find what dead workers have left.
CREATE INDEX tasks_running ON tasks (owner, queue, key) WHERE state = 'running';

-- The task of a run.
CREATE INDEX tasks_of_stream ON tasks (stream) WHERE stream > 0;

-- View: what parked runs wait for, by what it is; stream is that of the run.
CREATE TABLE task_waits (
    what   TEXT NOT NULL,
    stream INTEGER NOT NULL,
    PRIMARY KEY (what, stream)
) STRICT, WITHOUT ROWID;

-- What one run waits for.
CREATE INDEX task_waits_of ON task_waits (stream);

-- When the next run of a queue with a rate may begin. Not a view: it is only of use for a moment.
CREATE TABLE paces (
    owner INTEGER NOT NULL,
    queue TEXT NOT NULL,
    next  INTEGER NOT NULL,
    PRIMARY KEY (owner, queue)
) STRICT, WITHOUT ROWID;
