-- View: events that were sent to runs, in the order in which each run takes those of a name.
CREATE TABLE signals (
    owner  INTEGER NOT NULL,
    run    TEXT NOT NULL,
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    value  BLOB NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, run, name, number)
) STRICT, WITHOUT ROWID;
