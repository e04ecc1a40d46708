-- oldest: 2

-- View: how often a namespace of an agent's state has changed; a change has that number as its revision.
CREATE TABLE spaces (
    owner     BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    revision  BIGINT NOT NULL,
    PRIMARY KEY (owner, namespace)
);

-- View: latest values of the agents' state; owner is the stream of the agent. A key that was deleted stays, without a
-- value, so that its versions go on.
CREATE TABLE entries (
    owner     BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    value     BYTEA NOT NULL,
    version   BIGINT NOT NULL,
    revision  BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    expires   BIGINT NOT NULL,
    PRIMARY KEY (owner, namespace, key)
);

-- View: every change of a key, and the entry of the journal that has its value.
CREATE TABLE history (
    owner     BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL,
    revision  BIGINT NOT NULL,
    version   BIGINT NOT NULL,
    stream    BIGINT NOT NULL,
    seq       BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (owner, namespace, key, revision)
);

-- View: the checkpoints of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
CREATE TABLE checkpoints (
    owner   BIGINT NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    stream  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    PRIMARY KEY (owner, name, version)
);
