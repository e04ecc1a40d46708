-- oldest: 6

-- View: the events of the agents in the order of their arrival, and the entry of the journal that has each; place is its
-- place in the entry. Arrival is the number of the transaction: when all older transactions have ended, nothing can come
-- below it any more. It is a matter of this store: rebuilding numbers anew, by time.
CREATE TABLE happenings (
    owner   BIGINT NOT NULL,
    arrival BIGINT NOT NULL,
    stream  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    place   BIGINT NOT NULL,
    run     BIGINT NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (owner, arrival, stream, seq, place)
);

-- The events of one kind.
CREATE INDEX happenings_of_kind ON happenings (owner, kind, arrival, stream, seq, place);

-- The events of one run; most have none.
CREATE INDEX happenings_of_run ON happenings (run, arrival, stream, seq, place) WHERE run > 0;

-- Where a time is in the order.
CREATE INDEX happenings_by_time ON happenings (owner, at, arrival, stream, seq, place);

-- What replays came to up to an event, so that the next one begins there. No view: rebuilding drops it.
CREATE TABLE replays (
    owner   BIGINT NOT NULL,
    key     BYTEA NOT NULL,
    arrival BIGINT NOT NULL,
    stream  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    place   BIGINT NOT NULL,
    value   BYTEA NOT NULL,
    PRIMARY KEY (owner, key, arrival, stream, seq, place)
);

-- What is added to the number of a transaction, so that arrivals grow when a store has moved to a server that counts from
-- the beginning again.
CREATE TABLE arrivals (
    one  BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    base BIGINT NOT NULL
);

INSERT INTO arrivals (base) VALUES (0);

-- Runs have noted events before there was this view of them: whoever opens the store makes its views anew.
INSERT INTO meta (key, value) SELECT 'stale', '\x01'::bytea WHERE EXISTS (SELECT 1 FROM events);
