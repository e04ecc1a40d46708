-- View: what calls of models have come to, for each run, step, model and day (since 1970, UTC); cost is in billionths of a
-- dollar, without that of the calls that are unpriced.
CREATE TABLE usage (
    stream              INTEGER NOT NULL,
    step                TEXT NOT NULL,
    model               TEXT NOT NULL,
    provider            TEXT NOT NULL,
    day                 INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    unpriced            INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens  INTEGER NOT NULL,
    cost                INTEGER NOT NULL,
    PRIMARY KEY (stream, step, model, provider, day)
) STRICT, WITHOUT ROWID;

-- View: what resuming has saved: finished steps and effects that a restart from zero would have run again.
CREATE TABLE savings (
    stream              INTEGER NOT NULL,
    model               TEXT NOT NULL,
    provider            TEXT NOT NULL,
    day                 INTEGER NOT NULL,
    steps               INTEGER NOT NULL,
    took_us             INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    unpriced            INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens  INTEGER NOT NULL,
    cost                INTEGER NOT NULL,
    PRIMARY KEY (stream, model, provider, day)
) STRICT, WITHOUT ROWID;

-- The children of a run, for its budget; a run without a parent is not in it.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> 0;
