-- oldest: 11

-- View: what runs that were open were told, in the order in which each was told.
CREATE TABLE orders (
    stream BIGINT NOT NULL,
    number BIGINT NOT NULL,
    fence  BIGINT NOT NULL,
    what   TEXT NOT NULL,
    reason TEXT NOT NULL,
    by     TEXT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (stream, number)
);

-- The number of the last order to the holder: whoever appends an entry is told of it by the same statement.
ALTER TABLE leases ADD COLUMN ordered BIGINT NOT NULL DEFAULT 0;
