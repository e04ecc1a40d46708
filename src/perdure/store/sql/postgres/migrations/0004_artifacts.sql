-- oldest: 4

-- View: the artifacts of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
CREATE TABLE artifacts (
    owner   BIGINT NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    stream  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    PRIMARY KEY (owner, name, version)
);

-- Artifacts on their way into the store, and whose they are. Not a view: it says what must not be collected, although no
-- entry has it yet.
CREATE TABLE uploads (
    id     BIGINT PRIMARY KEY,
    at     BIGINT NOT NULL,
    holder BIGINT NOT NULL
);

-- The objects that they have come to so far.
CREATE TABLE pending (
    upload BIGINT NOT NULL,
    object BYTEA NOT NULL,
    PRIMARY KEY (upload, object)
);
