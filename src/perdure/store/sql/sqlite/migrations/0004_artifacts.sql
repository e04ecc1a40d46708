-- View: the artifacts of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
CREATE TABLE artifacts (
    owner   INTEGER NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT, WITHOUT ROWID;

-- Artifacts on their way into the store, and whose they are. Not a view: it says what must not be collected, although no
-- entry has it yet.
CREATE TABLE uploads (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    holder INTEGER NOT NULL
) STRICT;

-- The objects that they have come to so far.
CREATE TABLE pending (
    upload INTEGER NOT NULL,
    object BLOB NOT NULL,
    PRIMARY KEY (upload, object)
) STRICT, WITHOUT ROWID;
