-- oldest: 8

-- View: events that were sent to runs, in the order in which each run takes those of a name.
CREATE TABLE signals (
    owner  BIGINT NOT NULL,
    run    TEXT COLLATE "C" NOT NULL,
    name   TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    value  BYTEA NOT NULL,
    by     TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (owner, run, name, number)
);
