-- View: how often a namespace of an agent's state has changed; a change has that number as its revision.
CREATE TABLE spaces (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- View: latest values of the agents' state; owner is the stream of the agent. A key that was deleted stays, without a
-- value, so that its versions go on.
CREATE TABLE entries (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    version   INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key)
) STRICT;

-- View: every change of a key, and the entry of the journal that has its value.
CREATE TABLE history (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key, revision)
) STRICT, WITHOUT ROWID;

-- View: the checkpoints of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
CREATE TABLE checkpoints (
    owner   INTEGER NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT, WITHOUT ROWID;
