-- oldest: 10

-- Of a fork: the stream of the run that it has its beginning from, and the last entry that they share.
ALTER TABLE runs ADD COLUMN origin BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cut BIGINT NOT NULL DEFAULT 0;

-- The forks of a run; most have none.
CREATE INDEX runs_by_origin ON runs (origin) WHERE origin > 0;
