-- oldest: 9

-- View: from when on the past of a namespace is whole; what came before was folded.
CREATE TABLE floors (
    owner     BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    revision  BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (owner, namespace)
);

-- What was folded of a stream, to be found without reading the stream. No other entry is in it.
CREATE INDEX events_folded ON events (stream, seq) WHERE kind = 50;
