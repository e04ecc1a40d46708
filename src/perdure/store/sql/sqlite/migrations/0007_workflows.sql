-- View: every version of the agents' workflows, with its steps as they began; owner is the stream of the agent.
CREATE TABLE workflows (
    owner    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    steps    BLOB NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT;

-- View: how far the steps of workflows are; of those that have moved since their version was made.
CREATE TABLE workflow_steps (
    owner    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    step     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    status   TEXT NOT NULL,
    standing BLOB NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version, step)
) STRICT;
