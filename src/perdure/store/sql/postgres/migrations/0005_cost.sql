-- oldest: 5

-- View: what calls of models have come to, for each run, step, model and day (since 1970, UTC); cost is in billionths of a
-- dollar, without that of the calls that are unpriced.
CREATE TABLE usage (
    stream              BIGINT NOT NULL,
    step                TEXT COLLATE "C" NOT NULL,
    model               TEXT COLLATE "C" NOT NULL,
    provider            TEXT COLLATE "C" NOT NULL,
    day                 BIGINT NOT NULL,
    calls               BIGINT NOT NULL,
    unpriced            BIGINT NOT NULL,
    input_tokens        BIGINT NOT NULL,
    output_tokens       BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cache_write_tokens  BIGINT NOT NULL,
    cost                BIGINT NOT NULL,
    PRIMARY KEY (stream, step, model, provider, day)
);

-- View: what resuming has saved: finished steps and effects that a restart from zero would have run again.
CREATE TABLE savings (
    stream              BIGINT NOT NULL,
    model               TEXT COLLATE "C" NOT NULL,
    provider            TEXT COLLATE "C" NOT NULL,
    day                 BIGINT NOT NULL,
    steps               BIGINT NOT NULL,
    took_us             BIGINT NOT NULL,
    calls               BIGINT NOT NULL,
    unpriced            BIGINT NOT NULL,
    input_tokens        BIGINT NOT NULL,
    output_tokens       BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cache_write_tokens  BIGINT NOT NULL,
    cost                BIGINT NOT NULL,
    PRIMARY KEY (stream, model, provider, day)
);

-- The children of a run, for its budget; a run without a parent is not in it.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> 0;
