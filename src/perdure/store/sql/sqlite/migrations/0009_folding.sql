-- View: from when on the past of a namespace is whole; what came before was folded.
CREATE TABLE floors (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- What was folded of a stream, to be found without reading the stream. No other entry is in it.
CREATE INDEX events_folded ON events (id) WHERE kind = 50;
