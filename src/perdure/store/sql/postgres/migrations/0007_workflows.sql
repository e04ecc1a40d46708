-- oldest: 6

-- View: every version of the agents' workflows, with its steps as they began; owner is the stream of the agent.
CREATE TABLE workflows (
    owner    BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    revision BIGINT NOT NULL,
    steps    BYTEA NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (owner, name, version)
);

-- View: how far the steps of workflows are; of those that have moved since their version was made.
CREATE TABLE workflow_steps (
    owner    BIGINT NOT NULL,
    name     TEXT COLLATE "C" NOT NULL,
    version  BIGINT NOT NULL,
    step     TEXT COLLATE "C" NOT NULL,
    revision BIGINT NOT NULL,
    status   TEXT NOT NULL,
    standing BYTEA NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (owner, name, version, step)
);
