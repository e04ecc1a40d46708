-- Statements of a server for many rows at once, under the names and parameters that they have for one: each parameter is
-- an array here, with a value for each row. What they do to a row is what they do to one, in the order of the arrays.
--
-- What one answers comes with its number in the arrays before it, from 1.

-- name: get_agent_state(owner, namespace, key)
-- What a transaction of many keys builds on. The keys are looked up one by one: they are few beside those that are there.
SELECT wanted.number, found.* FROM unnest(:owner::bigint[], :namespace::text[], :key::text[])
    WITH ORDINALITY AS wanted (owner, namespace, key, number),
LATERAL (SELECT value, version, revision, at, expires, created, lasts, EXISTS (
    SELECT 1 FROM documents WHERE documents.owner = agent_state.owner AND kind = 'state' AND space = namespace
    AND documents.key = agent_state.key) FROM agent_state
WHERE owner = wanted.owner AND namespace = wanted.namespace AND key = wanted.key OFFSET 0) AS found;

-- name: set_agent_state(owner, namespace, key, value, version, revision, at, expires, created, lasts)
-- Projections of StateChanges. No two are of the same key: a statement cannot change a row twice.
INSERT INTO agent_state (owner, namespace, key, value, version, revision, at, expires, created, lasts)
SELECT * FROM unnest(:owner::bigint[], :namespace::text[], :key::text[], :value::bytea[], :version::bigint[],
    :revision::bigint[], :at::bigint[], :expires::bigint[], :created::bigint[], :lasts::bigint[])
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = excluded.version,
    revision = excluded.revision, at = excluded.at, expires = excluded.expires, created = excluded.created,
    lasts = excluded.lasts
WHERE excluded.revision > agent_state.revision;

-- name: add_state_history(owner, namespace, key, revision, version, stream, seq, at)
-- Projections of StateChanges: where their values are.
INSERT INTO state_history (owner, namespace, key, revision, version, stream, seq, at)
SELECT * FROM unnest(:owner::bigint[], :namespace::text[], :key::text[], :revision::bigint[], :version::bigint[],
    :stream::bigint[], :seq::bigint[], :at::bigint[]);

-- name: append_entry(stream, seq, kind, at, body, chain, fence)
-- Append one entry to each of many streams, where the writer holds the fence. Entries of a locked lease and entries that
-- exist are left out: whoever misses one appends it alone, so that no stream waits for another. Answers with the stream.
INSERT INTO journal (stream, seq, kind, at, body, chain)
SELECT held.stream, seq, kind, at, body, chain
FROM unnest(:stream::bigint[], :seq::bigint[], :kind::bigint[], :at::bigint[], :body::bytea[], :chain::bytea[],
    :fence::bigint[]) AS given (stream, seq, kind, at, body, chain, fence),
LATERAL (SELECT stream FROM leases WHERE leases.stream = given.stream AND leases.fence = given.fence
    FOR SHARE SKIP LOCKED) AS held
ON CONFLICT DO NOTHING
RETURNING stream, (SELECT ordered FROM leases WHERE leases.stream = journal.stream);
