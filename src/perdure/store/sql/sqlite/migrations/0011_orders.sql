-- View: what runs that were open were told, in the order in which each was told.
CREATE TABLE orders (
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    what   TEXT NOT NULL,
    reason TEXT NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;

-- The number of the last order to the holder: whoever appends an entry is told of it by the same statement.
ALTER TABLE leases ADD COLUMN ordered INTEGER NOT NULL DEFAULT 0;
