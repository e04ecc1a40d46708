-- View: the events of the agents in the order of their arrival, and the entry of the journal that has each; place is its
-- place in the entry. Arrival is a matter of this store: rebuilding numbers anew, by time. One arrival is never given
-- twice, even when the last ones are taken away: it is not less than the time.
CREATE TABLE happenings (
    owner   INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    run     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (owner, arrival, stream, seq, place)
) STRICT, WITHOUT ROWID;

-- The events of one kind.
CREATE INDEX happenings_of_kind ON happenings (owner, kind, arrival, stream, seq, place);

-- The events of one run; most have none.
CREATE INDEX happenings_of_run ON happenings (run, arrival, stream, seq, place) WHERE run > 0;

-- Where a time is in the order.
CREATE INDEX happenings_by_time ON happenings (owner, at, arrival, stream, seq, place);

-- What replays came to up to an event, so that the next one begins there. No view: rebuilding drops it.
CREATE TABLE replays (
    owner   INTEGER NOT NULL,
    key     BLOB NOT NULL,
    arrival INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    value   BLOB NOT NULL,
    PRIMARY KEY (owner, key, arrival, stream, seq, place)
) STRICT;

-- Runs have noted events before there was this view of them: whoever opens the store makes its views anew.
INSERT INTO meta (key, value) SELECT 'stale', x'01' WHERE EXISTS (SELECT 1 FROM events);
