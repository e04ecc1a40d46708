-- name: append_entry(stream, seq, kind, at, body, chain, fence)
-- Append one journal entry, only while the writer holds the stream's current fence; `tell` reports a pending order.
INSERT INTO journal (id, kind, at, body, chain)
SELECT (:stream << 32) | :seq, :kind, :at, :body, :chain
WHERE EXISTS (SELECT 1 FROM leases WHERE stream = :stream AND fence = :fence AND (ordered = 0 OR tell(ordered)));

-- name: journal_of(stream, after)
-- Read a stream in order: to resume, show or verify it.
SELECT id & 4294967295, kind, at, body, chain, digest FROM journal
WHERE id > ((:stream << 32) | :after) AND id < ((:stream + 1) << 32) ORDER BY id;

-- name: journal_page(stream, first, count)
-- Read part of a stream, so that verify and rebuild need little memory for a stream of any length.
SELECT id & 4294967295, kind, at, body, chain, digest FROM journal
WHERE id >= ((:stream << 32) | :first) AND id < ((:stream + 1) << 32) ORDER BY id LIMIT :count;

-- name: last_compaction(stream)
-- The newest compaction entry of a stream: verify, rebuild and replay start from it.
SELECT id & 4294967295, kind, at, body, chain, digest FROM journal
WHERE kind = 50 AND id > (:stream << 32) AND id < ((:stream + 1) << 32) ORDER BY id DESC LIMIT 1;

-- name: drop_journal_entries(stream, first, last)
-- Delete entries that were archived and compacted.
DELETE FROM journal WHERE id >= ((:stream << 32) | :first) AND id <= ((:stream << 32) | :last);

-- name: drop_seals(stream, before)
-- Delete signed heads inside the compacted range. The archive keeps them.
DELETE FROM seals WHERE stream = :stream AND seq < :before;

-- name: entry_counts(stream)
-- How far a run got: the number of its entries of each kind.
SELECT kind, count(*) FROM journal WHERE id > (:stream << 32) AND id < ((:stream + 1) << 32) GROUP BY kind;

-- name: journal_entry(stream, seq)
-- One entry by its place.
SELECT id & 4294967295, kind, at, body, chain, digest FROM journal WHERE id = (:stream << 32) | :seq;

-- name: chain_at(stream, seq)
-- Check that an entry whose commit was never acknowledged is there, and is ours.
SELECT chain FROM journal WHERE id = (:stream << 32) | :seq;

-- name: head_of(stream)
-- The last entry of a stream's chain.
SELECT id & 4294967295, chain FROM journal
WHERE id > (:stream << 32) AND id < ((:stream + 1) << 32) ORDER BY id DESC LIMIT 1;

-- name: orphan_entries()
-- Entries of streams that do not exist: only tampering makes them.
SELECT DISTINCT id >> 32 FROM journal WHERE (id >> 32) NOT IN (SELECT id FROM streams);

-- name: add_stream(kind, name, at)
-- Create the next stream. max() under the write lock leaves no gaps in the numbers.
INSERT INTO streams (id, kind, name, at)
SELECT coalesce(max(id), 0) + 1, :kind, :name, :at FROM streams RETURNING id;

-- name: all_streams()
-- Read by verify and rebuild.
SELECT id, kind, name, at FROM streams ORDER BY id;

-- name: streams_page(after, count)
-- Some streams, for verify and rebuild.
SELECT id, kind, name, at FROM streams WHERE id > :after ORDER BY id LIMIT :count;

-- name: stream_heads()
-- The length of each stream: anything appended later is new to a reader that starts here.
SELECT id, (SELECT max(journal.id) & 4294967295 FROM journal
            WHERE journal.id > (streams.id << 32) AND journal.id < ((streams.id + 1) << 32))
FROM streams ORDER BY id;

-- name: count_streams()
-- Signed with every seal, so that verify misses a stream that was removed later.
SELECT coalesce(max(id), 0) FROM streams;

-- name: add_seal(stream, seq, chain, streams, public_key, signature)
-- Store a signed head. A repeated commit seals once.
INSERT INTO seals (stream, seq, chain, streams, public_key, signature)
VALUES (:stream, :seq, :chain, :streams, :public_key, :signature) ON CONFLICT (stream, seq) DO NOTHING;

-- name: all_seals()
-- Read by verify.
SELECT stream, seq, chain, streams, public_key, signature FROM seals ORDER BY stream, seq;

-- name: seals_of(stream)
-- The signed heads of a stream.
SELECT stream, seq, chain, streams, public_key, signature FROM seals WHERE stream = :stream ORDER BY seq;

-- name: orphan_seals()
-- Signed heads of streams that do not exist: the streams were removed.
SELECT DISTINCT stream FROM seals WHERE stream NOT IN (SELECT id FROM streams);

-- name: signed_stream_count()
-- The smallest number of streams that the signatures vouch for.
SELECT coalesce(max(streams), 0) FROM seals;

-- name: get_meta(key)
-- Read a fact about the store.
SELECT value FROM meta WHERE key = :key;

-- name: put_meta(key, value)
-- Set a fact once, when the store is created.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: meta_with_prefix(prefix)
-- Facts about the store whose keys share a prefix.
SELECT key, value FROM meta WHERE substr(key, 1, length(:prefix)) = :prefix ORDER BY key;

-- name: store_bytes()
-- Bytes of the store on disk without its log, and how many of them are free pages.
SELECT page_count * page_size, freelist_count * page_size
FROM pragma_page_count, pragma_page_size, pragma_freelist_count;

-- name: check_file()
-- Check pages, indexes and column types. The searches come first: FTS5 refreshes its cache only on a search,
-- and integrity_check would take the changes of another process for damage.
SELECT integrity_check FROM (SELECT count(*) FROM document_words WHERE document_words MATCH 'a')
CROSS JOIN (SELECT count(*) FROM chunk_words WHERE chunk_words MATCH 'a') CROSS JOIN pragma_integrity_check LIMIT 20;

-- name: foreign_code()
-- Triggers and views, which Perdure never makes. `open_store` refuses them.
SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('trigger', 'view') ORDER BY 1;

-- name: clock_now()
-- The store's own clock, in milliseconds since 1970.
SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER);

-- name: last_location()
-- The host and file where the store was last used.
SELECT host, file FROM store_locations ORDER BY id DESC LIMIT 1;

-- name: add_location(host, file, at)
-- Record that the store is used here now.
INSERT INTO store_locations (host, file, at) VALUES (:host, :file, :at);

-- name: put_object(id, size, data)
-- Store a large value once. The id is a hash of the content, so other bytes under it are damaged (or compressed
-- by another release) and are replaced. Identical bytes are not written.
INSERT INTO objects (id, size, data) VALUES (:id, :size, :data)
ON CONFLICT (id) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE objects.data <> excluded.data OR objects.size <> excluded.size;

-- name: get_object(id)
-- Read a large value.
SELECT size, data FROM objects WHERE id = :id;

-- name: get_objects(ids)
-- Read many large values; ids are concatenated, 32 bytes each.
WITH RECURSIVE places (place) AS (
    SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
SELECT id, size, data FROM objects WHERE id IN (SELECT substr(:ids, place, 32) FROM places);

-- name: all_objects()
-- Sizes of all large values.
SELECT id, size, length(data) FROM objects;

-- name: count_objects()
-- Sizes the collector's memory.
SELECT count(*) FROM objects;

-- name: objects_page(after, count)
-- Some objects with their sizes, for the collector.
SELECT id, length(data) FROM objects WHERE id > :after ORDER BY id LIMIT :count;

-- name: object_ids(after, count)
-- Some object ids, for verify.
SELECT id FROM objects WHERE id > :after ORDER BY id LIMIT :count;

-- name: has_object(id)
-- Check that a large value exists, without reading it.
SELECT 1 FROM objects WHERE id = :id;

-- name: lock_objects(ids)
-- Lock objects for collection: the write lock of the transaction already keeps new references out.
SELECT id FROM objects WHERE id IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

-- name: drop_object(id)
-- Delete an object that nothing refers to.
DELETE FROM objects WHERE id = :id;

-- name: stored_sizes(ids)
-- Bytes on disk of some objects; ids are concatenated, 32 bytes each.
SELECT id, length(data) FROM objects WHERE id IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

-- name: hold_objects(ids)
-- Which objects exist. They stay until this transaction ends.
SELECT id FROM objects WHERE id IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

-- name: renew_upload(upload, at, holder)
-- Begin or continue an upload. The caller checks first that it exists: objects of a lost upload may be collected.
INSERT INTO uploads (id, at, holder) VALUES (:upload, :at, :holder) ON CONFLICT (id) DO UPDATE SET at = excluded.at;

-- name: add_upload_objects(upload, ids)
-- Protect the objects of an upload from collection; ids are concatenated, 32 bytes each.
INSERT INTO upload_objects (upload, object)
WITH RECURSIVE places (place) AS (
    SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
SELECT :upload, substr(:ids, place, 32) FROM places WHERE TRUE
ON CONFLICT (upload, object) DO NOTHING;

-- name: lock_upload(upload)
-- Check that an upload exists, and keep it until the commit: then everything that it wrote exists too.
SELECT at FROM uploads WHERE id = :upload;

-- name: drop_upload(upload)
-- End an upload: a journal entry refers to its objects now.
DELETE FROM uploads WHERE id = :upload;

-- name: drop_upload_objects(upload)
-- End the protection of an upload's objects: a journal entry refers to them now.
DELETE FROM upload_objects WHERE upload = :upload;

-- name: drop_old_uploads(before, boot, now)
-- Delete uploads without recent progress whose process is dead.
DELETE FROM uploads WHERE at < :before AND NOT EXISTS (
    SELECT 1 FROM holders WHERE holders.id = uploads.holder AND boot = :boot AND deadline >= :now);

-- name: drop_orphan_upload_objects()
-- Delete the objects list of uploads that no longer exist.
DELETE FROM upload_objects WHERE NOT EXISTS (SELECT 1 FROM uploads WHERE uploads.id = upload_objects.upload);

-- name: upload_objects_among(ids)
-- Which of some objects an upload needs.
SELECT object FROM upload_objects WHERE object IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

-- name: live_upload_objects(before, boot, now)
-- Objects that must not be collected although no entry refers to them yet.
SELECT object FROM upload_objects JOIN uploads ON uploads.id = upload_objects.upload
WHERE uploads.at >= :before OR EXISTS (SELECT 1 FROM holders WHERE holders.id = uploads.holder AND boot = :boot AND deadline >= :now);

-- name: count_dead_holders(boot, now)
-- The number of holders that `drop_dead_holders` would remove.
SELECT count(*) FROM holders
WHERE (boot <> :boot OR deadline < :now) AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: drop_dead_holders(boot, now)
-- Delete holders of crashed processes. One with a lease stays: a takeover looks at it.
DELETE FROM holders
WHERE (boot <> :boot OR deadline < :now) AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: renew_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- The heartbeat. It restores the row after a long silence, so that new leases name an existing holder.
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
VALUES (:holder, :boot, :namespace, :pid, :started, :host, :at, :now + :ttl)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: ensure_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- Before a lease names this holder: its row exists and has time left. SQLite simply renews it.
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
VALUES (:holder, :boot, :namespace, :pid, :started, :host, :at, :now + :ttl)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: release_all(holder)
-- Release every lease of a process that closes the store.
UPDATE leases SET holder = NULL WHERE holder = :holder;

-- name: drop_holder(holder)
-- Delete the holder of a process that closes the store.
DELETE FROM holders WHERE id = :holder;

-- name: holders_at_work(now)
-- Processes that hold runs, for doctor: the runs of a dead one can be resumed.
SELECT holders.id, boot, namespace, pid, started, host, holders.at, deadline - :now, count(*)
FROM holders JOIN leases ON leases.holder = holders.id JOIN streams ON streams.id = leases.stream
WHERE streams.kind = 'run' GROUP BY holders.id ORDER BY holders.at, holders.id;

-- name: add_lease(stream, holder)
-- A new stream belongs to its creator.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, 1, :holder);

-- name: add_fork_lease(stream, fence)
-- A fork has no holder until it is opened. Its fences continue those of its origin.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, :fence, NULL);

-- name: hold_lease(stream)
-- Read the fence; no compaction and no takeover until this transaction ends.
SELECT fence FROM leases WHERE stream = :stream;

-- name: lock_forks(stream)
-- No fork of this run begins until this transaction ends: forking holds the lease.
SELECT fence FROM leases WHERE stream = :stream;

-- name: read_lease(stream, now)
-- The holder of a stream, and the milliseconds that it has left.
SELECT leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid, holders.started, holders.host,
       holders.at, holders.deadline - :now
FROM leases LEFT JOIN holders ON holders.id = leases.holder WHERE leases.stream = :stream;

-- name: holder_time_left(holder, now)
-- Checked again under the lease's lock: a holder that renewed meanwhile is alive.
SELECT deadline - :now FROM holders WHERE id = :holder;

-- name: all_leases()
-- Read for a copy of the store.
SELECT stream, fence, ordered FROM leases ORDER BY stream;

-- name: take_lease(stream, fence, holder)
-- Takeover: raise the fence, unless another process was faster.
UPDATE leases SET fence = fence + 1, holder = :holder WHERE stream = :stream AND fence = :fence;

-- name: release_lease(stream, fence)
-- End of a run, in the transaction of its last entry.
UPDATE leases SET holder = NULL WHERE stream = :stream AND fence = :fence;

-- name: check_lease(stream, fence)
-- Check before an effect that the lease still holds after its deadline has passed.
SELECT 1 FROM leases WHERE stream = :stream AND fence = :fence;

-- name: add_agent(name, stream, public_key, at)
-- Projection of AgentCreated.
INSERT INTO agents (name, stream, public_key, at) VALUES (:name, :stream, :public_key, :at);

-- name: get_agent(name)
-- The identity behind a name.
SELECT stream, public_key FROM agents WHERE name = :name;

-- name: all_agents()
-- Read by doctor and rebuild.
SELECT name, stream, public_key, at, gone FROM agents ORDER BY name;

-- name: add_run(stream, agent, id, input_digest, parent, at)
-- Projection of RunStarted.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error)
VALUES (:stream, :agent, :id, 'running', :input_digest, :parent, :at, :at, 0, 0, '');

-- name: add_fork(stream, agent, id, status, input_digest, forked_from, forked_at, error, at)
-- Projection of Forked.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error,
                  forked_from, forked_at)
VALUES (:stream, :agent, :id, :status, :input_digest, 0, :at, :at, 0, 0, :error, :forked_from, :forked_at);

-- name: fork_point_of(stream)
-- The last entry that a fork shares with its origin.
SELECT forked_at FROM runs WHERE stream = :stream AND forked_from > 0;

-- name: forks_of(forked_from)
-- The forks of a run: a run with forks cannot be compacted.
SELECT stream, agent, id, forked_at FROM runs WHERE forked_from = :forked_from AND forked_from > 0 ORDER BY stream;

-- name: resume_run(stream, at)
-- Projection of RunResumed. A cancelled run reopens only for its cleanup.
UPDATE runs SET changed_at = :at, resumes = resumes + 1, outcome = 0, error = '', status = CASE
    WHEN status = 'cancelling' THEN status
    WHEN EXISTS (SELECT 1 FROM questions WHERE questions.stream = :stream AND open = 1) THEN 'waiting' ELSE 'running' END
WHERE stream = :stream;

-- name: mark_run_running(stream, at)
-- Projection of QuestionClosed: the run is running again, unless it waits for something else.
UPDATE runs SET changed_at = :at, outcome = 0, error = '', status = CASE
    WHEN EXISTS (SELECT 1 FROM questions WHERE questions.stream = :stream AND open = 1) THEN 'waiting' ELSE 'running' END
WHERE stream = :stream;

-- name: set_resumes(stream, resumes)
-- Projection of StreamCompacted: restores the resume count, which the remaining entries do not tell.
UPDATE runs SET resumes = :resumes WHERE stream = :stream;

-- name: finished_runs(agent, before)
-- Runs of an agent that finished before a time and can be compacted: neither forks nor their origins.
SELECT stream FROM runs WHERE agent = :agent AND status = 'finished' AND changed_at < :before AND forked_from = 0
  AND NOT EXISTS (SELECT 1 FROM runs AS fork WHERE fork.forked_from = runs.stream AND fork.forked_from > 0) ORDER BY stream;

-- name: set_run_status(stream, status, at, outcome, error)
-- Projection of an entry that ends, interrupts or pauses a run.
UPDATE runs SET status = :status, changed_at = :at, outcome = :outcome, error = :error WHERE stream = :stream;

-- name: get_run(agent, id)
-- A run by its name.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE agent = :agent AND id = :id;

-- name: find_runs(id)
-- Runs by id alone, for the command line.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE id = :id AND status <> 'erased' ORDER BY agent;

-- name: runs_with_prefix(beginning, count)
-- The newest runs whose id starts with a text, for shell completion.
SELECT id, agent, status FROM runs WHERE substr(id, 1, length(:beginning)) = :beginning AND status <> 'erased' ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: run_in(stream)
-- The run that a stream holds.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE stream = :stream;

-- name: children_of(stream)
-- The runs that a run opened inside itself, oldest first.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE parent = :stream AND parent <> 0 ORDER BY stream;

-- name: runs_in_status(agent, status, count)
-- The newest runs of an agent in a status.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE agent = :agent AND status = :status ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: agents_with_runs()
-- The agents that have runs, each found by one step in an index.
WITH RECURSIVE named (agent) AS (
    SELECT min(agent) FROM runs
    UNION ALL
    SELECT (SELECT min(runs.agent) FROM runs WHERE runs.agent > named.agent) FROM named WHERE named.agent IS NOT NULL)
SELECT agent FROM named WHERE agent IS NOT NULL;

-- name: run_counts()
-- How many runs of each agent are in each status.
SELECT agent, status, count(*) FROM runs GROUP BY agent, status;

-- name: all_runs()
-- All runs, newest first.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs ORDER BY changed_at DESC, stream DESC;

-- name: set_run_state(owner, namespace, key, value, at)
-- Projection of a SET write.
INSERT INTO run_state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, 1, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = version + 1, at = excluded.at;

-- name: restore_run_state(owner, namespace, key, value, version, at)
-- Projection of StreamCompacted: the run's state at its end.
INSERT INTO run_state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, :version, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = excluded.version, at = excluded.at;

-- name: delete_run_state(owner, namespace, key)
-- Projection of a DELETE write.
DELETE FROM run_state WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: run_state_of(owner)
-- The latest state of a run, as other processes see it.
SELECT namespace, key, value, version, at FROM run_state WHERE owner = :owner ORDER BY namespace, key;

-- name: all_run_state()
-- Read by rebuild.
SELECT owner, namespace, key, value, version, at FROM run_state ORDER BY owner, namespace, key;

-- name: lock_namespace(owner, namespace)
-- Serialize changes of a namespace: the transaction already has the write lock.

-- name: set_agent_state(owner, namespace, key, value, version, revision, at, expires, created, lasts)
-- Projection of a StateChange. The newest revision wins, whichever stream is projected first.
INSERT INTO agent_state (owner, namespace, key, value, version, revision, at, expires, created, lasts)
VALUES (:owner, :namespace, :key, :value, :version, :revision, :at, :expires, :created, :lasts)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = excluded.version,
    revision = excluded.revision, at = excluded.at, expires = excluded.expires, created = excluded.created,
    lasts = excluded.lasts
WHERE excluded.revision > agent_state.revision;

-- name: add_state_history(owner, namespace, key, revision, version, stream, seq, at)
-- Projection of a StateChange: the entry that has its value.
INSERT INTO state_history (owner, namespace, key, revision, version, stream, seq, at)
VALUES (:owner, :namespace, :key, :revision, :version, :stream, :seq, :at);

-- name: set_namespace_revision(owner, namespace, revision)
-- Projection of the last StateChange of an entry in a namespace.
INSERT INTO state_namespaces (owner, namespace, revision) VALUES (:owner, :namespace, :revision)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = excluded.revision WHERE excluded.revision > state_namespaces.revision;

-- name: raise_state_horizon(owner, namespace, revision, at)
-- Projection of StreamCompacted: changes before this revision and time are gone.
INSERT INTO state_horizons (owner, namespace, revision, at) VALUES (:owner, :namespace, :revision, :at)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = max(state_horizons.revision, excluded.revision),
    at = max(state_horizons.at, excluded.at);

-- name: state_horizon_of(owner, namespace)
-- The revision and time from which the history of a namespace is complete.
SELECT revision, at FROM state_horizons WHERE owner = :owner AND namespace = :namespace;

-- name: get_namespace_revision(owner, namespace)
-- How often a namespace has changed.
SELECT revision FROM state_namespaces WHERE owner = :owner AND namespace = :namespace;

-- name: namespaces_of(owner)
-- The namespaces of an agent.
SELECT namespace, revision FROM state_namespaces WHERE owner = :owner ORDER BY namespace;

-- name: namespace_sizes(owner, now)
-- Namespaces of an agent that have keys: the number of keys, and the last change.
SELECT state_namespaces.namespace, state_namespaces.revision, count(*), max(agent_state.at)
FROM state_namespaces JOIN agent_state ON agent_state.owner = state_namespaces.owner AND agent_state.namespace = state_namespaces.namespace
WHERE state_namespaces.owner = :owner AND length(value) > 0 AND (expires = 0 OR expires > :now)
GROUP BY state_namespaces.namespace, state_namespaces.revision ORDER BY state_namespaces.namespace;

-- name: get_state_value(owner, namespace, key)
-- One value and nothing else: programs do this most.
SELECT value, version, expires FROM agent_state WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: get_agent_state(owner, namespace, key)
-- The latest value of a key, empty when deleted; and whether the key is searchable.
SELECT value, version, revision, at, expires, created, lasts, EXISTS (
    SELECT 1 FROM documents WHERE documents.owner = agent_state.owner AND kind = 'state' AND space = namespace
    AND documents.key = agent_state.key) FROM agent_state
WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: agent_state_of(owner, namespace, now)
-- The latest values of a namespace, without deleted or expired keys.
SELECT key, value, version, at FROM agent_state
WHERE owner = :owner AND namespace = :namespace AND length(value) > 0 AND (expires = 0 OR expires > :now) ORDER BY key;

-- name: expired_state(owner, now, count)
-- Expired keys, for the sweeper.
SELECT namespace, key FROM agent_state
WHERE owner = :owner AND expires > 0 AND expires <= :now AND length(value) > 0 ORDER BY expires, namespace, key LIMIT :count;

-- name: count_expired_state(owner, now)
-- How many keys have expired, and their bytes.
SELECT count(*), coalesce(sum(length(value)), 0) FROM agent_state
WHERE owner = :owner AND expires > 0 AND expires <= :now AND length(value) > 0;

-- name: agent_state_page(owner, namespace, now, first, beyond, count)
-- Some keys of a namespace in order: it may have a million.
SELECT key, value, version, at FROM agent_state
WHERE owner = :owner AND namespace = :namespace AND key >= :first AND (:beyond = 0 OR key > :first)
  AND length(value) > 0 AND (expires = 0 OR expires > :now)
ORDER BY key LIMIT :count;

-- name: state_history_of(owner, namespace, key)
-- Every change of a key, oldest first.
SELECT revision, version, stream, seq, at FROM state_history
WHERE owner = :owner AND namespace = :namespace AND key = :key ORDER BY revision;

-- name: next_state_change(owner, namespace, key, revision)
-- The change that replaced another.
SELECT revision, at FROM state_history
WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision > :revision ORDER BY revision LIMIT 1;

-- name: drop_state_history(owner, namespace, key, revision)
-- Delete a change whose entry was compacted.
DELETE FROM state_history WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision = :revision;

-- name: agent_state_at(owner, namespace, revision, at)
-- The last change of each key up to a revision and a time.
SELECT key, revision, stream, seq FROM state_history AS it
WHERE owner = :owner AND namespace = :namespace AND revision = (
    SELECT max(revision) FROM state_history
    WHERE owner = it.owner AND namespace = it.namespace AND key = it.key AND revision <= :revision AND at <= :at)
ORDER BY key;

-- name: state_key_at(owner, namespace, key, revision, at)
-- The last change of one key up to a revision and a time.
SELECT revision, stream, seq FROM state_history
WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision <= :revision AND at <= :at
ORDER BY revision DESC LIMIT 1;

-- name: all_state_namespaces()
-- Read by rebuild.
SELECT owner, namespace, revision FROM state_namespaces ORDER BY owner, namespace;

-- name: all_state_horizons()
-- Read by rebuild.
SELECT owner, namespace, revision, at FROM state_horizons ORDER BY owner, namespace;

-- name: all_agent_state()
-- Read by rebuild.
SELECT owner, namespace, key, value, version, revision, at, expires, created, lasts FROM agent_state
ORDER BY owner, namespace, key;

-- name: all_state_history()
-- Read by rebuild.
SELECT owner, namespace, key, revision, version, stream, seq, at FROM state_history
ORDER BY owner, namespace, key, revision;

-- name: put_checkpoint(owner, name, version, stream, seq, at)
-- Projection of CheckpointMade. Its deletion may have been projected before.
INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, 0)
ON CONFLICT (owner, name, version) DO UPDATE SET stream = excluded.stream, seq = excluded.seq, at = excluded.at;

-- name: drop_checkpoint(owner, name, version)
-- Projection of CheckpointDropped.
INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped) VALUES (:owner, :name, :version, 0, 0, 0, 1)
ON CONFLICT (owner, name, version) DO UPDATE SET dropped = 1;

-- name: detach_checkpoint(owner, name, version)
-- The entry of a deleted checkpoint was compacted; the deletion is still in the journal.
UPDATE checkpoints SET stream = 0, seq = 0, at = 0 WHERE owner = :owner AND name = :name AND version = :version;

-- name: remove_checkpoint(owner, name, version)
-- Nothing in the journal mentions this checkpoint any more.
DELETE FROM checkpoints WHERE owner = :owner AND name = :name AND version = :version;

-- name: checkpoint_base(owner, name, base, relied, rules, now)
-- Before a new version: the last number, whether its base version exists, and the agent's retention rules.
SELECT (SELECT coalesce(max(version), 0) FROM checkpoints WHERE owner = :owner AND name = :name),
    EXISTS (SELECT 1 FROM checkpoints WHERE owner = :owner AND name = :base AND version = :relied AND dropped = 0),
    rule.key, rule.value
FROM (SELECT 1) AS always LEFT JOIN agent_state AS rule ON rule.owner = :owner AND rule.namespace = :rules
    AND length(rule.value) > 0 AND (rule.expires = 0 OR rule.expires > :now);

-- name: last_checkpoint(owner, name)
-- The highest number of a name, for compaction: numbers are never reused.
SELECT version FROM checkpoints WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: newest_checkpoint(owner, name)
-- The newest version of a name.
SELECT version, stream, seq, at FROM checkpoints
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version DESC LIMIT 1;

-- name: get_checkpoint(owner, name, version)
-- One version of a name.
SELECT stream, seq, at, dropped FROM checkpoints WHERE owner = :owner AND name = :name AND version = :version;

-- name: checkpoint_versions(owner, name)
-- The versions of a name that can be deleted.
SELECT version FROM checkpoints WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version;

-- name: older_checkpoints(owner, name, skip, count)
-- Versions beyond the newest ones with their entries, for `keep_last`.
SELECT c.version, e.kind, e.body FROM checkpoints AS c JOIN journal AS e ON e.id = (c.stream << 32) | c.seq
WHERE c.owner = :owner AND c.name = :name AND c.dropped = 0 ORDER BY c.version DESC LIMIT :count OFFSET :skip;

-- name: checkpoints_of(owner)
-- All checkpoints of an agent, oldest first.
SELECT name, version, stream, seq, at FROM checkpoints WHERE owner = :owner AND dropped = 0 ORDER BY at, stream, seq;

-- name: all_checkpoints()
-- Read by rebuild.
SELECT owner, name, version, stream, seq, at, dropped FROM checkpoints ORDER BY owner, name, version;

-- name: put_artifact(owner, name, version, stream, seq, at)
-- Projection of ArtifactSaved. Its deletion may have been projected before.
INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, 0)
ON CONFLICT (owner, name, version) DO UPDATE SET stream = excluded.stream, seq = excluded.seq, at = excluded.at;

-- name: drop_artifact(owner, name, version)
-- Projection of ArtifactDropped.
INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped) VALUES (:owner, :name, :version, 0, 0, 0, 1)
ON CONFLICT (owner, name, version) DO UPDATE SET dropped = 1;

-- name: artifact_entry(owner, name, version)
-- The entry that saved an artifact, and whether the artifact was deleted.
SELECT stream, seq, at, dropped FROM artifacts WHERE owner = :owner AND name = :name AND version = :version;

-- name: detach_artifact(owner, name, version)
-- The entry of a deleted artifact was compacted; the deletion is still in the journal.
UPDATE artifacts SET stream = 0, seq = 0, at = 0 WHERE owner = :owner AND name = :name AND version = :version;

-- name: remove_artifact(owner, name, version)
-- Nothing in the journal mentions this artifact any more.
DELETE FROM artifacts WHERE owner = :owner AND name = :name AND version = :version;

-- name: last_artifact(owner, name)
-- The highest number of a name.
SELECT version FROM artifacts WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: artifacts_of(owner)
-- All artifacts of an agent with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.id = (it.stream << 32) | it.seq
WHERE owner = :owner AND dropped = 0 ORDER BY name, version;

-- name: artifact_versions(owner, name)
-- All versions of a name with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.id = (it.stream << 32) | it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version;

-- name: newest_artifact(owner, name)
-- The newest version of a name.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.id = (it.stream << 32) | it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version DESC LIMIT 1;

-- name: get_artifact(owner, name, version)
-- One version of a name.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.id = (it.stream << 32) | it.seq
WHERE owner = :owner AND name = :name AND version = :version AND dropped = 0;

-- name: artifact_names(owner)
-- Names to suggest after a typo.
SELECT DISTINCT name FROM artifacts WHERE owner = :owner AND dropped = 0 ORDER BY name;

-- name: all_artifacts()
-- Read by rebuild.
SELECT owner, name, version, stream, seq, at, dropped FROM artifacts ORDER BY owner, name, version;

-- name: add_event(owner, run, kind, stream, seq, place, at)
-- Projection of Happened. Arrivals grow with commits, which SQLite serializes.
INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at)
VALUES (:owner, max(coalesce((SELECT max(arrival) FROM events WHERE owner = :owner), 0) + 1, :at),
        :stream, :seq, :place, :run, :kind, :at);

-- name: add_run_event(kind, stream, seq, place, at)
-- Projection of an EVENT write of a run.
INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at)
SELECT agents.stream,
       max(coalesce((SELECT max(arrival) FROM events WHERE owner = agents.stream), 0) + 1, :at),
       :stream, :seq, :place, :stream, :kind, :at
FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream;

-- name: settled_arrivals()
-- The arrival below which no event can appear any more.
SELECT 4611686018427387904;

-- name: moved_arrivals()
-- Whether arrivals restarted after a move to another server: a file takes its numbers along.
SELECT 1 WHERE 0;

-- name: raise_arrivals()
-- Continue arrivals after those of the old server: a file has nothing to do.
SELECT 1;

-- name: drop_meta(key)
-- Delete a fact that no longer holds.
DELETE FROM meta WHERE key = :key;

-- name: renumber_events()
-- The end of rebuild: number events by time, because the journal does not record arrivals.
UPDATE events SET arrival = ranked.number FROM (
    SELECT owner, stream, seq, place, row_number() OVER (PARTITION BY owner ORDER BY at, stream, seq, place) AS number
    FROM events) AS ranked
WHERE events.owner = ranked.owner AND events.stream = ranked.stream AND events.seq = ranked.seq
  AND events.place = ranked.place;

-- name: journal_among(which)
-- Many entries at once; `which` is a JSON list of [stream, seq].
SELECT id >> 32, id & 4294967295, kind, body FROM journal
WHERE id IN (SELECT (json_extract(value, '$[0]') << 32) | json_extract(value, '$[1]') FROM json_each(:which));

-- name: prune_replay_snapshots(owner, key, keep)
-- Keep only the newest snapshots.
DELETE FROM replay_snapshots WHERE owner = :owner AND key = :key AND (arrival, stream, seq, place) NOT IN (
    SELECT arrival, stream, seq, place FROM replay_snapshots WHERE owner = :owner AND key = :key
    ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT :keep);

-- name: agent_events(owner, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of an agent's events, in order.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, events.stream, seq, place LIMIT :count;

-- name: agent_events_of_kind(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one kind. Without the index hint SQLite takes the primary key.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events INDEXED BY events_of_kind LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND kind = :kind
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, events.stream, seq, place LIMIT :count;

-- name: run_events(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one run, optionally of one kind. Without the index hint SQLite takes the primary key.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events INDEXED BY events_of_run LEFT JOIN runs ON runs.stream = events.run
WHERE run = :run AND run > 0 AND owner = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, events.stream, seq, place LIMIT :count;

-- name: agent_events_newest_first(owner, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of an agent's events, newest first.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, events.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: agent_events_of_kind_newest_first(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one kind, newest first. Without the index hint SQLite takes the primary key.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events INDEXED BY events_of_kind LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND kind = :kind
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, events.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: run_events_newest_first(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one run, newest first. Without the index hint SQLite takes the primary key.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events INDEXED BY events_of_run LEFT JOIN runs ON runs.stream = events.run
WHERE run = :run AND run > 0 AND owner = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, events.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: last_event_before(owner, arrival)
-- The newest event below an arrival: followers of new events start there.
SELECT arrival, stream, seq, place FROM events WHERE owner = :owner AND arrival < :arrival
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: first_event_since(owner, at)
-- The first event at or after a time.
SELECT arrival, stream, seq, place FROM events WHERE owner = :owner AND at >= :at
ORDER BY at, arrival, stream, seq, place LIMIT 1;

-- name: has_event(owner, arrival, stream, seq, place)
-- Whether an event is still at a known position; its time.
SELECT at FROM events
WHERE owner = :owner AND arrival = :arrival AND stream = :stream AND seq = :seq AND place = :place;

-- name: find_event(owner, at, stream, seq, place)
-- The current position of an event that was renumbered.
SELECT arrival FROM events
WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq AND place = :place;

-- name: newest_event_of_kind(owner, kind)
-- The entry of the newest event of a kind, which compaction keeps.
SELECT stream, seq FROM events WHERE owner = :owner AND kind = :kind
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: arrivals_of(owner, at, stream, seq)
-- The arrivals of an entry's events.
SELECT arrival FROM events WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq;

-- name: events_beside(run)
-- The entries of other streams that have events of a run.
SELECT DISTINCT owner, at, stream, seq FROM events WHERE run = :run AND run > 0 AND stream <> :run ORDER BY stream, seq;

-- name: drop_events_of_entry(owner, at, stream, seq)
-- Delete the events of a compacted entry.
DELETE FROM events WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq;

-- name: next_event_after(owner, at, stream, seq, place)
-- The first event after a position, whose own event may be gone; and its time.
SELECT arrival, stream, seq, place, at FROM events
WHERE owner = :owner AND (at, stream, seq, place) > (:at, :stream, :seq, :place)
ORDER BY arrival, stream, seq, place LIMIT 1;

-- name: events_out_of_order(owner, arrival, stream, seq, place, at)
-- Whether ordering by time, as rebuild does, would change what precedes this event.
SELECT 1 FROM events WHERE owner = :owner
  AND ((arrival, stream, seq, place) <= (:arrival, :stream, :seq, :place))
   <> ((at, stream, seq, place) <= (:at, :stream, :seq, :place)) LIMIT 1;

-- name: event_kinds(owner)
-- The event kinds of an agent, one index lookup each: suggestions after a typo.
WITH RECURSIVE kinds (kind) AS (
    SELECT (SELECT min(kind) FROM events WHERE owner = :owner)
    UNION ALL
    SELECT (SELECT min(events.kind) FROM events WHERE owner = :owner AND events.kind > kinds.kind)
    FROM kinds WHERE kinds.kind IS NOT NULL)
SELECT kind FROM kinds WHERE kind IS NOT NULL LIMIT 1000;

-- name: all_events()
-- Read by rebuild; without arrivals, which are not in the journal.
SELECT owner, stream, seq, place, run, kind, at FROM events ORDER BY stream, seq, place;

-- name: copy_events()
-- Read for a copy of the store.
SELECT owner, arrival, stream, seq, place, run, kind, at FROM events ORDER BY owner, arrival, stream, seq, place;

-- name: last_replay_snapshot(owner, key, arrival, stream, seq, place)
-- The newest snapshot of a replay up to a position.
SELECT arrival, stream, seq, place, value FROM replay_snapshots
WHERE owner = :owner AND key = :key AND (arrival, stream, seq, place) <= (:arrival, :stream, :seq, :place)
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: replay_snapshots_of(owner)
-- All snapshots of an agent, newest first within each replay.
SELECT key, arrival, stream, seq, place, value FROM replay_snapshots WHERE owner = :owner
ORDER BY key, arrival DESC, stream DESC, seq DESC, place DESC;

-- name: put_replay_snapshot(owner, key, arrival, stream, seq, place, value)
-- Store a snapshot. A faster process has stored the same one.
INSERT INTO replay_snapshots (owner, key, arrival, stream, seq, place, value)
VALUES (:owner, :key, :arrival, :stream, :seq, :place, :value) ON CONFLICT DO NOTHING;

-- name: all_replay_snapshots()
-- What snapshots refer to, for the collector.
SELECT value FROM replay_snapshots;

-- name: drop_replay_snapshots(owner, prefix)
-- Delete the snapshots of a name.
DELETE FROM replay_snapshots WHERE owner = :owner AND substr(key, 1, 8) = :prefix;

-- name: note_lost_snapshots()
-- Before rebuild renumbers events: remember which replays had snapshots.
INSERT INTO replay_snapshots (owner, key, arrival, stream, seq, place, value)
SELECT DISTINCT owner, key, -1, 0, 0, 0, x'00' FROM replay_snapshots WHERE arrival >= 0 ON CONFLICT DO NOTHING;

-- name: clear_replay_snapshots()
-- Snapshots depend on arrivals, which rebuild renumbers.
DELETE FROM replay_snapshots WHERE arrival >= 0;

-- name: clear_events()
-- Rebuild empties the view first.
DELETE FROM events;

-- name: put_workflow(owner, name, version, revision, steps, at)
-- Projection of WorkflowMade.
INSERT INTO workflows (owner, name, version, revision, steps, at)
VALUES (:owner, :name, :version, :revision, :steps, :at);

-- name: set_workflow_step(owner, name, version, step, revision, status, standing, at)
-- Projection of WorkflowMoved. The newest revision wins, whichever stream is projected first.
INSERT INTO workflow_steps (owner, name, version, step, revision, status, standing, at)
VALUES (:owner, :name, :version, :step, :revision, :status, :standing, :at)
ON CONFLICT (owner, name, version, step) DO UPDATE SET revision = excluded.revision, status = excluded.status,
    standing = excluded.standing, at = excluded.at
WHERE excluded.revision > workflow_steps.revision;

-- name: newest_workflow(owner, name)
-- The newest version of a name.
SELECT version, revision, steps, at FROM workflows
WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: newest_workflow_steps(owner, name)
-- The progress of each step in the newest version.
SELECT step, revision, standing, at FROM workflow_steps
WHERE owner = :owner AND name = :name
  AND version = (SELECT max(version) FROM workflows WHERE owner = :owner AND name = :name);

-- name: get_workflow(owner, name, version)
-- One version of a name.
SELECT version, revision, steps, at FROM workflows WHERE owner = :owner AND name = :name AND version = :version;

-- name: workflow_steps_of(owner, name, version)
-- The progress of each step in one version.
SELECT step, revision, standing, at FROM workflow_steps
WHERE owner = :owner AND name = :name AND version = :version;

-- name: workflows_of(owner)
-- All versions of all workflows of an agent, by name.
SELECT name, version FROM workflows WHERE owner = :owner ORDER BY name, version;

-- name: get_holder(holder, now)
-- The process that claimed a step, and the milliseconds that it counts as alive.
SELECT boot, namespace, pid, started, host, at, deadline - :now
FROM holders WHERE id = :holder;

-- name: all_workflows()
-- Read by rebuild.
SELECT owner, name, version, revision, steps, at FROM workflows ORDER BY owner, name, version;

-- name: all_workflow_steps()
-- Read by rebuild.
SELECT owner, name, version, step, revision, status, standing, at FROM workflow_steps
ORDER BY owner, name, version, step;

-- name: add_question(stream, seq, about, kind, text, at)
-- Projection of QuestionAsked.
INSERT INTO questions (stream, seq, about, kind, text, at, open)
VALUES (:stream, :seq, :about, :kind, :text, :at, 1);

-- name: drop_questions(stream, last)
-- Delete questions whose entries were compacted; the run is finished.
DELETE FROM questions WHERE stream = :stream AND seq <= :last;

-- name: close_question(stream, seq)
-- Projection of QuestionClosed.
UPDATE questions SET open = 0 WHERE stream = :stream AND seq = :seq;

-- name: close_questions(stream)
-- Projection of RunCancelled: nothing waits for an answer any more.
UPDATE questions SET open = 0 WHERE stream = :stream AND open = 1;

-- name: open_questions(stream)
-- What a run waits for.
SELECT seq, about, kind, text, at FROM questions WHERE stream = :stream AND open = 1 ORDER BY seq;

-- name: awaiting_runs()
-- Runs that wait for the end of another run: moving an agent reports the ones it leaves behind.
SELECT runs.agent, runs.id, questions.stream, questions.seq FROM questions JOIN runs ON runs.stream = questions.stream
WHERE questions.open = 1 AND questions.kind = 'run' AND runs.status NOT IN ('finished', 'cancelled', 'erased')
ORDER BY runs.agent, runs.id, questions.seq;

-- name: all_questions()
-- Read by rebuild.
SELECT stream, seq, about, kind, text, at, open FROM questions ORDER BY stream, seq;

-- name: add_answer(stream, about, verdict, value, by, at)
-- Projection of Answered. The first answer wins: a second violates the primary key.
INSERT INTO answers (stream, about, verdict, value, by, at)
VALUES (:stream, :about, :verdict, :value, :by, :at);

-- name: answers_of(stream)
-- The answers to a run, with the times of their entries.
SELECT about, at FROM answers WHERE stream = :stream ORDER BY about;

-- name: signals_of(owner, run)
-- The signals to a run, with the times of their entries.
SELECT name, number, at FROM signals WHERE owner = :owner AND run = :run ORDER BY name, number;

-- name: get_answer(stream, about)
-- The answer to a question.
SELECT verdict, value, by, at FROM answers WHERE stream = :stream AND about = :about;

-- name: all_answers()
-- Read by rebuild.
SELECT stream, about, verdict, value, by, at FROM answers ORDER BY stream, about;

-- name: add_usage(stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Projection of Usage in an entry.
INSERT INTO usage (stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, cost)
VALUES (:stream, :step, :model, :provider, :day, :calls, :unpriced, :input_tokens, :output_tokens,
    :cached_input_tokens, :cache_write_tokens, :cost)
ON CONFLICT (stream, step, model, provider, day) DO UPDATE SET
    calls = usage.calls + excluded.calls,
    unpriced = usage.unpriced + excluded.unpriced,
    input_tokens = usage.input_tokens + excluded.input_tokens,
    output_tokens = usage.output_tokens + excluded.output_tokens,
    cached_input_tokens = usage.cached_input_tokens + excluded.cached_input_tokens,
    cache_write_tokens = usage.cache_write_tokens + excluded.cache_write_tokens,
    cost = usage.cost + excluded.cost;

-- name: drop_usage(stream)
-- Projection of StreamCompacted, which carries the totals.
DELETE FROM usage WHERE stream = :stream;

-- name: usage_of(agent, run)
-- Model usage; '' means every agent, every run.
SELECT agent, id, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM usage JOIN runs ON runs.stream = usage.stream
WHERE (:agent = '' OR agent = :agent) AND (:run = '' OR id = :run) ORDER BY usage.stream, step, model, provider, day;

-- name: spent_by(stream)
-- For a budget: what a run and its child runs have spent on each model.
WITH RECURSIVE family (stream) AS (
    SELECT :stream UNION SELECT runs.stream FROM family JOIN runs ON runs.parent = family.stream AND runs.parent <> 0)
SELECT model, sum(cost), sum(unpriced) FROM family JOIN usage ON usage.stream = family.stream GROUP BY model;

-- name: all_usage()
-- Read by rebuild.
SELECT stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost FROM usage
ORDER BY stream, step, model, provider, day;

-- name: add_savings(stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Projection of Replayed.
INSERT INTO savings (stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, cost)
VALUES (:stream, :model, :provider, :day, :steps, :took_us, :calls, :unpriced, :input_tokens, :output_tokens,
    :cached_input_tokens, :cache_write_tokens, :cost)
ON CONFLICT (stream, model, provider, day) DO UPDATE SET
    steps = savings.steps + excluded.steps,
    took_us = savings.took_us + excluded.took_us,
    calls = savings.calls + excluded.calls,
    unpriced = savings.unpriced + excluded.unpriced,
    input_tokens = savings.input_tokens + excluded.input_tokens,
    output_tokens = savings.output_tokens + excluded.output_tokens,
    cached_input_tokens = savings.cached_input_tokens + excluded.cached_input_tokens,
    cache_write_tokens = savings.cache_write_tokens + excluded.cache_write_tokens,
    cost = savings.cost + excluded.cost;

-- name: drop_savings(stream)
-- Projection of StreamCompacted, which carries the totals.
DELETE FROM savings WHERE stream = :stream;

-- name: savings_of(agent, run)
-- What resuming has saved; '' means every agent, every run.
SELECT agent, id, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent = '' OR agent = :agent) AND (:run = '' OR id = :run) ORDER BY savings.stream, model, provider, day;

-- name: all_savings()
-- Read by rebuild.
SELECT stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost FROM savings
ORDER BY stream, model, provider, day;

-- name: put_order(stream, number, fence, what, reason, by, at)
-- Projection of OrderGiven.
INSERT INTO orders (stream, number, fence, what, reason, by, at)
VALUES (:stream, :number, :fence, :what, :reason, :by, :at);

-- name: lock_lease(stream, fence)
-- Before an order: check that the run still has this holder, and read the last order's number.
SELECT ordered FROM leases WHERE stream = :stream AND fence = :fence AND holder IS NOT NULL;

-- name: notify_holder(stream, number)
-- The holder sees the order in the answer to its next entry.
UPDATE leases SET ordered = :number WHERE stream = :stream;

-- name: standing_orders(streams)
-- The last order of each run that its holder, or the next one, has still to obey. `streams` is a JSON list.
SELECT orders.stream, orders.number, what, reason, by
FROM leases JOIN orders ON orders.stream = leases.stream AND orders.number = leases.ordered AND orders.fence = leases.fence
WHERE leases.stream IN (SELECT value FROM json_each(:streams));

-- name: last_order_under(stream, fence)
-- The last order to the holder of this fence.
SELECT number, what, reason, by FROM orders WHERE stream = :stream AND fence = :fence ORDER BY number DESC LIMIT 1;

-- name: descendant_runs(stream)
-- Child runs of a run, at any depth; queued ones that have not begun come last.
WITH RECURSIVE parts (stream) AS (
    SELECT :stream
    UNION SELECT runs.stream FROM runs JOIN parts ON runs.parent = parts.stream)
SELECT agent, id, stream FROM runs WHERE stream IN (SELECT stream FROM parts) AND stream <> :stream
UNION ALL
SELECT agents.name, tasks.run, 4611686018427387904 FROM tasks JOIN agents ON agents.stream = tasks.owner
WHERE tasks.stream = 0 AND tasks.parent IN (SELECT stream FROM parts)
ORDER BY 3, 2;

-- name: all_orders()
-- Read by rebuild.
SELECT stream, number, fence, what, reason, by, at FROM orders ORDER BY stream, number;

-- name: put_signal(owner, run, name, number, value, by, at)
-- Projection of SignalSent.
INSERT INTO signals (owner, run, name, number, value, by, at)
VALUES (:owner, :run, :name, :number, :value, :by, :at);

-- name: last_signal(owner, run, name)
-- The highest number of a signal name.
SELECT number FROM signals WHERE owner = :owner AND run = :run AND name = :name ORDER BY number DESC LIMIT 1;

-- name: get_signal(owner, run, name, number)
-- The signal that is next for the run.
SELECT value, by FROM signals WHERE owner = :owner AND run = :run AND name = :name AND number = :number;

-- name: all_signals()
-- Read by rebuild.
SELECT owner, run, name, number, value, by, at FROM signals ORDER BY owner, run, name, number;

-- name: lock_journal()
-- No other writer while the views are rebuilt: the transaction already has the write lock.

-- name: clear_agents()
-- Rebuild empties the view first.
DELETE FROM agents;

-- name: clear_runs()
-- Rebuild empties the view first.
DELETE FROM runs;

-- name: clear_run_state()
-- Rebuild empties the view first.
DELETE FROM run_state;

-- name: clear_questions()
-- Rebuild empties the view first.
DELETE FROM questions;

-- name: clear_answers()
-- Rebuild empties the view first.
DELETE FROM answers;

-- name: clear_state_namespaces()
-- Rebuild empties the view first.
DELETE FROM state_namespaces;

-- name: clear_state_horizons()
-- Rebuild empties the view first.
DELETE FROM state_horizons;

-- name: clear_agent_state()
-- Rebuild empties the view first.
DELETE FROM agent_state;

-- name: clear_state_history()
-- Rebuild empties the view first.
DELETE FROM state_history;

-- name: clear_checkpoints()
-- Rebuild empties the view first.
DELETE FROM checkpoints;

-- name: clear_artifacts()
-- Rebuild empties the view first.
DELETE FROM artifacts;

-- name: clear_usage()
-- Rebuild empties the view first.
DELETE FROM usage;

-- name: clear_savings()
-- Rebuild empties the view first.
DELETE FROM savings;

-- name: clear_workflows()
-- Rebuild empties the view first.
DELETE FROM workflows;

-- name: clear_workflow_steps()
-- Rebuild empties the view first.
DELETE FROM workflow_steps;

-- name: clear_orders()
-- Rebuild empties the view first.
DELETE FROM orders;

-- name: clear_signals()
-- Rebuild empties the view first.
DELETE FROM signals;

-- name: queue_task(owner, agent, run, task, queue, priority, key, ready_at, requeued_seq, input, digest, parent, at)
-- Projection of TaskQueued. If the run began before, its row tells its progress, in either order of projection.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT :owner, :run, coalesce(runs.stream, 0), :task, :queue, :priority, :key,
    CASE coalesce(runs.status, '') WHEN '' THEN 'queued' WHEN 'interrupted' THEN 'queued' WHEN 'paused' THEN 'paused'
        WHEN 'failed' THEN CASE WHEN :requeued_seq >= runs.outcome THEN 'queued' ELSE 'dead' END ELSE 'running' END,
    CASE coalesce(runs.status, '') WHEN '' THEN :ready_at WHEN 'interrupted' THEN 0
        WHEN 'failed' THEN CASE WHEN :requeued_seq >= runs.outcome THEN 0 ELSE 4611686018427387904 END ELSE 4611686018427387904 END,
    0, CASE runs.status WHEN 'failed' THEN runs.outcome ELSE 0 END, :requeued_seq, :input, :digest, :parent, :at
FROM (SELECT 1) LEFT JOIN runs ON runs.agent = :agent AND runs.id = :run
WHERE coalesce(runs.status, '') NOT IN ('finished', 'cancelled', 'erased')
ON CONFLICT (owner, run) DO UPDATE SET task = excluded.task, queue = excluded.queue, priority = excluded.priority,
    key = excluded.key, input = excluded.input, digest = excluded.digest, parent = excluded.parent, at = excluded.at,
    requeued_seq = max(requeued_seq, excluded.requeued_seq);

-- name: ensure_task(stream)
-- Insert the task's row before a worker's entry is projected: the entry that queued it may come later.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT agents.stream, runs.id, :stream, '', '', 0, '', 'running', 4611686018427387904, 0, 0, 0, x'', x'', 0, 0
FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream
ON CONFLICT (owner, run) DO NOTHING;

-- name: set_task_state(stream, state, ready_at, attempts, failed_seq)
-- Projection of what starts, interrupts, parks or fails a run. `attempts` < 0 keeps the count; requeuing outlives an older failure.
UPDATE tasks SET stream = :stream,
    state = CASE WHEN :state = 'dead' AND requeued_seq >= :failed_seq THEN 'queued' ELSE :state END,
    ready_at = CASE WHEN :state = 'dead' AND requeued_seq >= :failed_seq THEN 0 ELSE :ready_at END,
    attempts = CASE WHEN :state = 'dead' AND requeued_seq >= :failed_seq THEN 0 WHEN :attempts < 0 THEN attempts ELSE :attempts END,
    failed_seq = :failed_seq
WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream);

-- name: requeue_task(owner, agent, run, after)
-- Projection of TaskAgain: queue a task that died at or before that entry.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT :owner, :run, 0, '', '', 0, '', 'queued', 0, 0, 0, :after, x'', x'', 0, 0
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent AND runs.id = :run AND runs.status IN ('finished', 'cancelled', 'erased'))
ON CONFLICT (owner, run) DO UPDATE SET requeued_seq = max(requeued_seq, excluded.requeued_seq),
    ready_at = CASE WHEN state = 'dead' AND failed_seq <= excluded.requeued_seq THEN 0 ELSE ready_at END,
    attempts = CASE WHEN state = 'dead' AND failed_seq <= excluded.requeued_seq THEN 0 ELSE attempts END,
    state = CASE WHEN state = 'dead' AND failed_seq <= excluded.requeued_seq THEN 'queued' ELSE state END;

-- name: drop_task(stream)
-- Projection of RunFinished.
DELETE FROM tasks WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream);

-- name: drop_task_waits(stream)
-- Projection of RunResumed, and of TaskParked before it adds its waits.
DELETE FROM task_waits WHERE stream = :stream;

-- name: add_task_wait(what, stream)
-- Projection of TaskParked.
INSERT INTO task_waits (what, stream) VALUES (:what, :stream) ON CONFLICT DO NOTHING;

-- name: lock_task(stream)
-- Before parking or waking a run: the transaction already has the write lock.

-- name: lock_awaited(owner, agent, run)
-- Lock the run that a parked run waits for: the transaction already has the write lock.

-- name: wake_task(what)
-- Projection of an answer or a signal: runs that wait for it may continue.
UPDATE tasks SET ready_at = 0
WHERE state = 'parked' AND stream > 0 AND stream IN (SELECT stream FROM task_waits WHERE what = :what);

-- name: wake_by_run(stream)
-- Projection of the end of a run: runs that wait for it may continue.
UPDATE tasks SET ready_at = 0 WHERE state = 'parked' AND stream > 0 AND stream IN (
    SELECT task_waits.stream FROM runs JOIN agents ON agents.name = runs.agent
    JOIN task_waits ON task_waits.what = 'run ' || agents.stream || ' ' || runs.id WHERE runs.stream = :stream);

-- name: wake_if_answered(stream, of, about)
-- Projection of TaskParked: the answer arrived before the run was parked.
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM answers WHERE answers.stream = :of AND answers.about = :about);

-- name: wake_if_sent(stream, owner, run, name, number)
-- Projection of TaskParked: the signal arrived before the run was parked.
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM signals WHERE signals.owner = :owner AND signals.run = :run AND name = :name AND number = :number);

-- name: wake_if_ended(stream, agent, run)
-- Projection of TaskParked: the other run ended before the run was parked.
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent AND runs.id = :run AND status IN ('finished', 'failed', 'cancelled', 'erased'));

-- name: get_task(owner, run)
-- A queued run that has not finished.
SELECT stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at
FROM tasks WHERE owner = :owner AND run = :run;

-- name: queue_names(owner)
-- The queues of an agent with ready tasks, one index lookup each.
WITH RECURSIVE names (queue) AS (
    SELECT (SELECT min(queue) FROM tasks WHERE owner = :owner AND ready_at = 0)
    UNION ALL
    SELECT (SELECT min(tasks.queue) FROM tasks WHERE owner = :owner AND ready_at = 0 AND tasks.queue > names.queue)
    FROM names WHERE names.queue IS NOT NULL)
SELECT queue FROM names WHERE queue IS NOT NULL LIMIT 1000;

-- name: due_queues(owner, now)
-- The queues with tasks that have come due.
SELECT DISTINCT queue FROM tasks WHERE owner = :owner AND ready_at > 0 AND ready_at <= :now LIMIT 1000;

-- name: next_due(owner)
-- When the next task comes due.
SELECT ready_at FROM tasks WHERE owner = :owner AND ready_at > 0 ORDER BY ready_at LIMIT 1;

-- name: next_tasks(owner, queue, now, names, per_key, count)
-- The first task that may start: by priority, then by age. `names` is a JSON list of the worker's tasks.
SELECT run, stream, task, attempts, input, digest, parent, priority, at FROM (
    SELECT * FROM (SELECT * FROM tasks INDEXED BY tasks_ready WHERE owner = :owner AND queue = :queue AND ready_at = 0
        AND task IN (SELECT value FROM json_each(:names))
        AND (:per_key = 0 OR key = '' OR (SELECT count(*) FROM tasks AS other WHERE other.owner = :owner
            AND other.queue = :queue AND other.key = tasks.key AND other.state = 'running') < :per_key)
        ORDER BY priority DESC, at, run LIMIT :count)
    UNION ALL
    SELECT * FROM (SELECT * FROM tasks INDEXED BY tasks_timed WHERE owner = :owner AND queue = :queue AND ready_at > 0
        AND ready_at <= :now AND task IN (SELECT value FROM json_each(:names))
        AND (:per_key = 0 OR key = '' OR (SELECT count(*) FROM tasks AS other WHERE other.owner = :owner
            AND other.queue = :queue AND other.key = tasks.key AND other.state = 'running') < :per_key)
        ORDER BY ready_at, run LIMIT :count))
ORDER BY priority DESC, at, run LIMIT 1;

-- name: lock_held_task(owner, run)
-- A running task whose worker is gone, for the takeover.
SELECT run, stream, task, attempts, input, digest, parent, priority, at FROM tasks
WHERE owner = :owner AND run = :run AND state = 'running';

-- name: held_tasks(owner, now)
-- Running tasks and their holders: a dead worker has left its runs.
SELECT tasks.run, tasks.task, tasks.queue, leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid,
       holders.started, holders.host, holders.at, holders.deadline - :now
FROM tasks INDEXED BY tasks_running JOIN leases ON leases.stream = tasks.stream
LEFT JOIN holders ON holders.id = leases.holder
WHERE tasks.owner = :owner AND tasks.state = 'running' AND tasks.stream > 0;

-- name: count_running(owner, queue)
-- The number of running tasks of a queue.
SELECT count(*) FROM tasks WHERE owner = :owner AND queue = :queue AND state = 'running';

-- name: get_rate_limit(owner, queue)
-- When the next task of a rate-limited queue may start.
SELECT next FROM rate_limits WHERE owner = :owner AND queue = :queue;

-- name: set_rate_limit(owner, queue, next)
-- A task of a rate-limited queue has started.
INSERT INTO rate_limits (owner, queue, next) VALUES (:owner, :queue, :next)
ON CONFLICT (owner, queue) DO UPDATE SET next = excluded.next;

-- name: count_tasks(owner)
-- Tasks by queue, task and state, with the oldest of each.
SELECT queue, task, state, count(*), min(at), min(ready_at) FROM tasks WHERE owner = :owner
GROUP BY queue, task, state ORDER BY queue, task, state;

-- name: stalled_tasks(owner, now)
-- For doctor: dead tasks, and ready tasks that no worker takes; since when, and one example.
SELECT queue, state, count(*), min(max(at, ready_at)), min(run) FROM tasks
WHERE owner = :owner AND (state = 'dead' OR (state = 'queued' AND ready_at <= :now))
GROUP BY queue, state ORDER BY queue, state;

-- name: queued_tasks()
-- Queued runs that have not begun: `perdure runs` lists them too.
SELECT tasks.owner, agents.name, tasks.run, tasks.parent, tasks.at FROM tasks JOIN agents ON agents.stream = tasks.owner
WHERE tasks.stream = 0 ORDER BY tasks.at DESC, tasks.run;

-- name: all_tasks()
-- Read by rebuild.
SELECT owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at
FROM tasks ORDER BY owner, run;

-- name: all_task_waits()
-- Read by rebuild.
SELECT what, stream FROM task_waits ORDER BY what, stream;

-- name: clear_tasks()
-- Rebuild empties the view first.
DELETE FROM tasks;

-- name: clear_task_waits()
-- Rebuild empties the view first.
DELETE FROM task_waits;

-- name: put_thread_checkpoint(owner, thread, ns, id, generation, parent, run, stream, seq, at)
-- Projection of ThreadPut. The newest wins and a dropped one stays dropped, whichever stream is projected first.
INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
SELECT :owner, :thread, :ns, :id, :generation, :parent, :run, :stream, :seq, :at, 0
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation > :generation)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET generation = excluded.generation, parent = excluded.parent, run = excluded.run,
    stream = excluded.stream, seq = excluded.seq, at = excluded.at
WHERE excluded.generation >= thread_checkpoints.dropped AND (excluded.generation, excluded.at, excluded.stream, excluded.seq)
    > (thread_checkpoints.generation, thread_checkpoints.at, thread_checkpoints.stream, thread_checkpoints.seq);

-- name: put_thread_write(owner, thread, ns, id, stream, seq, generation)
-- Projection of ThreadWrote: the entry that has the writes.
INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, generation)
SELECT :owner, :thread, :ns, :id, :stream, :seq, :generation
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation > :generation)
    AND NOT EXISTS (SELECT 1 FROM thread_checkpoints
        WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND dropped > :generation)
ON CONFLICT (owner, thread, ns, id, stream, seq) DO NOTHING;

-- name: raise_thread_generation(owner, thread, generation, deleted_generation, deleted_up_to)
-- Projection of ThreadDropped.
INSERT INTO thread_generations (owner, thread, generation, deleted_generation, deleted_up_to) VALUES (:owner, :thread, :generation, :deleted_generation, :deleted_up_to)
ON CONFLICT (owner, thread) DO UPDATE SET generation = max(thread_generations.generation, excluded.generation),
    deleted_generation = max(thread_generations.deleted_generation, excluded.deleted_generation), deleted_up_to = max(thread_generations.deleted_up_to, excluded.deleted_up_to);

-- name: drop_thread_checkpoints(owner, thread, generation)
-- Projection of ThreadDropped for a whole thread. Later checkpoints have a higher generation.
DELETE FROM thread_checkpoints WHERE owner = :owner AND thread = :thread
    AND generation < :generation AND dropped <= :generation;

-- name: settle_thread_checkpoints(owner, thread, generation)
-- Projection of ThreadDropped for a whole thread: earlier single drops no longer matter.
UPDATE thread_checkpoints SET dropped = 0
WHERE owner = :owner AND thread = :thread AND dropped > 0 AND dropped <= :generation;

-- name: drop_all_thread_writes(owner, thread, generation)
-- Projection of ThreadDropped for a whole thread.
DELETE FROM thread_writes WHERE owner = :owner AND thread = :thread AND generation < :generation;

-- name: drop_thread_checkpoint(owner, thread, ns, id, generation)
-- Projection of ThreadDropped: the empty row stays, because its checkpoint may be projected later.
INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
SELECT :owner, :thread, :ns, :id, 0, '', '', 0, 0, 0, :generation
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation >= :generation)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET
    parent = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN '' ELSE thread_checkpoints.parent END,
    run = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN '' ELSE thread_checkpoints.run END,
    stream = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.stream END,
    seq = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.seq END,
    at = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.at END,
    generation = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.generation END,
    dropped = max(thread_checkpoints.dropped, excluded.dropped);

-- name: drop_thread_writes(owner, thread, ns, id, generation)
-- Projection of ThreadDropped.
DELETE FROM thread_writes
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND generation < :generation;

-- name: check_thread(owner, thread, generation)
-- Nothing of the thread was dropped since it was read.
SELECT 1 WHERE coalesce((SELECT generation FROM thread_generations WHERE owner = :owner AND thread = :thread), 0) = :generation;

-- name: check_thread_head(owner, thread, ns, parent)
-- A checkpoint must extend the newest one, so that no thread forks unnoticed.
SELECT 1 WHERE coalesce((SELECT max(id) FROM thread_checkpoints
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND stream > 0), '') = :parent;

-- name: thread_generation(owner, thread)
-- How often something of a thread was dropped, and the newest id dropped with the whole thread.
SELECT generation, deleted_up_to FROM thread_generations WHERE owner = :owner AND thread = :thread;

-- name: newest_thread_checkpoint(owner, thread, ns)
-- The newest checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.id = (p.stream << 32) | p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.stream > 0 ORDER BY p.id DESC LIMIT 1;

-- name: get_thread_checkpoint(owner, thread, ns, id)
-- One checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.id = (p.stream << 32) | p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = :id AND p.stream > 0;

-- name: thread_min_generation(owner, thread, ns, id)
-- The lowest generation in which a checkpoint can exist: older ones were dropped.
SELECT deleted_generation FROM thread_generations WHERE owner = :owner AND thread = :thread
UNION ALL
SELECT dropped FROM thread_checkpoints WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id;

-- name: was_thread_checkpoint(owner, thread, ns, id)
-- Whether a checkpoint existed and was dropped.
SELECT dropped FROM thread_checkpoints
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream = 0;

-- name: thread_ancestors(owner, thread, ns, id, count)
-- A checkpoint and its ancestors, nearest first.
WITH RECURSIVE line (id, parent, stream, seq, at, depth) AS (
    SELECT id, parent, stream, seq, at, 1 FROM thread_checkpoints
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream > 0
    UNION ALL
    SELECT p.id, p.parent, p.stream, p.seq, p.at, line.depth + 1 FROM line JOIN thread_checkpoints AS p
        ON p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = line.parent AND p.stream > 0
    WHERE line.depth < :count)
SELECT line.id, line.at, e.kind, e.body FROM line JOIN journal AS e ON e.id = (line.stream << 32) | line.seq ORDER BY line.depth;

-- name: thread_writes_between(owner, thread, ns, first, last)
-- Pending writes of checkpoints in a range, in order of arrival.
SELECT w.id, e.kind, e.body FROM thread_writes AS w JOIN journal AS e ON e.id = (w.stream << 32) | w.seq
WHERE w.owner = :owner AND w.thread = :thread AND w.ns = :ns AND w.id >= :first AND w.id <= :last
ORDER BY w.id, e.at, w.stream, w.seq;

-- name: thread_checkpoints_page(owner, thread, ns, any_ns, before, count)
-- Checkpoints of a thread without their values, newest first.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_checkpoints
WHERE owner = :owner AND thread = :thread AND (:any_ns = 1 OR ns = :ns) AND (:before = '' OR id < :before) AND stream > 0
ORDER BY id DESC, ns LIMIT :count;

-- name: all_thread_checkpoints_page(owner, before, count)
-- Checkpoints of all threads without their values, newest first.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_checkpoints
WHERE owner = :owner AND (:before = '' OR id < :before) AND stream > 0
ORDER BY id DESC, thread, ns LIMIT :count;

-- name: thread_checkpoints_of_run(owner, run)
-- Checkpoints written under a framework's run id.
SELECT thread, ns, id FROM thread_checkpoints WHERE owner = :owner AND run = :run AND stream > 0 ORDER BY thread, ns, id;

-- name: writes_of_thread(owner, thread)
-- The entries of all writes of a thread, to copy it.
SELECT ns, id, stream, seq FROM thread_writes WHERE owner = :owner AND thread = :thread ORDER BY ns, id, stream, seq;

-- name: threads_of(owner, after, count)
-- The threads of an agent without their values.
SELECT thread, count(*), min(at), max(at), max(CASE WHEN ns = '' THEN id ELSE '' END) FROM thread_checkpoints
WHERE owner = :owner AND thread > :after AND stream > 0 GROUP BY thread ORDER BY thread LIMIT :count;

-- name: all_thread_generations()
-- Read by rebuild and the collector.
SELECT owner, thread, generation, deleted_generation, deleted_up_to FROM thread_generations ORDER BY owner, thread;

-- name: all_thread_checkpoints()
-- Read by rebuild.
SELECT owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped FROM thread_checkpoints
ORDER BY owner, thread, ns, id;

-- name: dropped_thread_checkpoints()
-- Read by the collector.
SELECT owner, thread, ns, id, dropped FROM thread_checkpoints WHERE dropped > 0;

-- name: all_thread_writes()
-- Read by rebuild.
SELECT owner, thread, ns, id, stream, seq, generation FROM thread_writes ORDER BY owner, thread, ns, id, stream, seq;

-- name: clear_thread_generations()
-- Rebuild empties the view first.
DELETE FROM thread_generations;

-- name: clear_thread_checkpoints()
-- Rebuild empties the view first.
DELETE FROM thread_checkpoints;

-- name: clear_thread_writes()
-- Rebuild empties the view first.
DELETE FROM thread_writes;

-- name: drop_document_words(owner, kind, space, key)
-- Delete the index terms of documents, before `drop_documents`.
DELETE FROM document_words WHERE rowid IN (
    SELECT id FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key);

-- name: drop_documents(owner, kind, space, key)
-- Delete documents whose value changed or is gone, after `drop_document_words`.
DELETE FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key;

-- name: put_document(owner, kind, space, key, part, version, text, embedder, vector)
-- Insert or replace a searchable text.
INSERT INTO documents (owner, kind, space, key, part, version, text, embedder, vector)
VALUES (:owner, :kind, :space, :key, :part, :version, :text, :embedder, :vector);

-- name: put_document_words(owner, kind, space, key, part, words)
-- Index the words of a document; words are separated by spaces.
INSERT INTO document_words (rowid, words) SELECT id, :words FROM documents
WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key AND part = :part;

-- name: documents_now()
-- A cursor for `documents_since`: it will see everything written from now on.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'documents'), 0) + 1;

-- name: documents_since(owner, kind, embedder, since)
-- Documents written since a cursor, for the vectors in memory; 0 means all.
SELECT id, space, key, part, version, vector FROM documents
WHERE owner = :owner AND kind = :kind AND embedder = :embedder AND id >= :since AND length(vector) > 0 ORDER BY id;

-- name: documents_to_reembed(owner, kind, embedder, space, key, count)
-- Values after a key whose texts were embedded by another model, or not at all.
SELECT DISTINCT space, key, version FROM documents
WHERE owner = :owner AND kind = :kind AND embedder <> :embedder AND (space, key) > (:space, :key)
ORDER BY space, key LIMIT :count;

-- name: documents_with_words(owner, kind, first, last, tree, words, count)
-- Documents with some of these words, best first: rare words weigh more. The cross join forces index lookups.
SELECT documents.space, documents.key, documents.version, -document_words.rank
FROM document_words CROSS JOIN documents ON documents.id = document_words.rowid
WHERE document_words MATCH '"' || replace(:words, ' ', '" OR "') || '"' AND documents.owner = :owner
  AND documents.kind = :kind AND documents.space >= :first AND documents.space < :last
  AND (:tree = '' OR documents.space = :first OR substr(documents.space, 1, length(:tree)) = :tree)
ORDER BY document_words.rank, documents.space, documents.key LIMIT :count;

-- name: documents_page(after, count)
-- Some documents, for copies; and whether each is in the word index.
SELECT id, owner, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE rowid = documents.id) FROM documents WHERE id > :after ORDER BY id LIMIT :count;

-- name: nonempty_namespaces(owner, now)
-- The namespaces of an agent that have keys.
SELECT namespace FROM state_namespaces WHERE owner = :owner AND EXISTS (
    SELECT 1 FROM agent_state WHERE agent_state.owner = state_namespaces.owner AND agent_state.namespace = state_namespaces.namespace
    AND length(value) > 0 AND (expires = 0 OR expires > :now)) ORDER BY namespace;

-- name: agent_state_under(owner, first, last, tree, now, count, skipped)
-- The latest values of a namespace and of those below it, whose names start with `tree`, newest first.
SELECT agent_state.namespace, agent_state.key, value, version, at, expires, created, lasts FROM (
    SELECT namespace, key FROM agent_state
    WHERE owner = :owner AND namespace >= :first AND namespace < :last
      AND (:tree = '' OR namespace = :first OR substr(namespace, 1, length(:tree)) = :tree)
      AND substr(namespace, 1, 8) <> 'perdure:' AND length(value) > 0 AND (expires = 0 OR expires > :now)
    ORDER BY at DESC, namespace, key LIMIT :count OFFSET :skipped) AS chosen
JOIN agent_state ON agent_state.owner = :owner AND agent_state.namespace = chosen.namespace AND agent_state.key = chosen.key
ORDER BY at DESC, agent_state.namespace, agent_state.key;

-- name: agent_state_among(owner, which, now)
-- Many keys at once; `which` is a JSON list of [namespace, key].
SELECT namespace, agent_state.key, agent_state.value, version, at, expires, created, lasts
FROM json_each(:which) AS it CROSS JOIN agent_state ON owner = :owner
    AND namespace = json_extract(it.value, '$[0]') AND agent_state.key = json_extract(it.value, '$[1]')
WHERE length(agent_state.value) > 0 AND (expires = 0 OR expires > :now);

-- name: put_memory(owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance, valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta)
-- Projection of MemoryKept. `settle_memory` applies what other entries say about it.
INSERT INTO memories (owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance,
    valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times)
VALUES (:owner, :id, :stream, :seq, :kind, :about, :person, :source, :writer, :run, :step, :tags, :trust, :importance,
    :valid_from, :valid_to, :recorded, :expires, :thread, :place, :sketch, :text, :meta, 0, 0, 1);

-- name: add_memory_relation(owner, id, what, other, stream, seq, at, valid, source, trust)
-- Projection of what an entry says about a memory, which may itself be projected later.
INSERT INTO memory_relations (owner, id, what, other, stream, seq, at, valid, source, trust)
VALUES (:owner, :id, :what, :other, :stream, :seq, :at, :valid, :source, :trust)
ON CONFLICT (owner, id, what, other, stream, seq) DO NOTHING;

-- name: settle_memory(owner, id)
-- Apply a memory's relations to its row, in whatever order they were projected. A new one mostly has none.
UPDATE memories SET
    ended = coalesce((SELECT min(at) FROM memory_relations AS k WHERE k.owner = :owner AND k.id = :id
        AND (k.what = 'withdrawn' OR (k.what = 'superseded' AND NOT EXISTS (SELECT 1 FROM memory_relations AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn')))), 0),
    replaced = coalesce((SELECT min(CASE k.what WHEN 'withdrawn' THEN 1 ELSE k.valid END) FROM memory_relations AS k
        WHERE k.owner = :owner AND k.id = :id
        AND (k.what = 'withdrawn' OR (k.what = 'superseded' AND NOT EXISTS (SELECT 1 FROM memory_relations AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn')))), 0),
    times = 1 + (SELECT count(*) FROM memory_relations AS k WHERE k.owner = :owner AND k.id = :id AND k.what = 'again'
        AND NOT EXISTS (SELECT 1 FROM memory_relations AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn'))
WHERE owner = :owner AND id = :id AND (ended <> 0 OR replaced <> 0 OR times <> 1
    OR EXISTS (SELECT 1 FROM memory_relations AS k WHERE k.owner = :owner AND k.id = :id));

-- name: count_memory(owner, id, again)
-- Projection of MemorySeen: count one repeat, unless withdrawn. `settle_memory` counts for memories projected later.
UPDATE memories SET times = times + 1
WHERE owner = :owner AND id = :id AND NOT EXISTS (SELECT 1 FROM memory_relations AS w
    WHERE w.owner = :owner AND w.id = :again AND w.what = 'withdrawn');

-- name: drop_memory_at(stream, seq)
-- Projection of MemoryForgotten: delete the memory of an erased entry.
DELETE FROM memories WHERE stream = :stream AND seq = :seq;

-- name: drop_memory_relations_at(stream, seq)
-- Projection of MemoryForgotten: delete what an erased entry said about other memories.
DELETE FROM memory_relations WHERE stream = :stream AND seq = :seq;

-- name: drop_memory_uses(owner, id)
-- Delete the use count of a forgotten memory.
DELETE FROM memory_uses WHERE owner = :owner AND id = :id;

-- name: erase_entry(stream, seq, digest)
-- Erase the body of an entry. Its digest stays, so that the chain still verifies.
UPDATE journal SET body = NULL, digest = :digest WHERE id = (:stream << 32) | :seq AND body IS NOT NULL;

-- name: entries_of_kind(kind, since, until)
-- The entries of a kind in a span of time. Reads the whole journal.
SELECT id >> 32, id & 4294967295, body FROM journal
WHERE kind = :kind AND at >= :since AND at <= :until AND body IS NOT NULL ORDER BY id;

-- name: erase_run(stream, agent, id, parent, started_at, at)
-- Projection of RunErased. On rebuild the run has no row yet, because its first entry was erased.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error)
VALUES (:stream, :agent, :id, 'erased', x'', :parent, :started_at, :at, 0, 0, '')
ON CONFLICT (stream) DO UPDATE SET status = 'erased', input_digest = excluded.input_digest,
    changed_at = excluded.changed_at, resumes = 0, outcome = 0, error = '';

-- name: drop_run_state(owner)
-- Projection of RunErased: the state of the run.
DELETE FROM run_state WHERE owner = :owner;

-- name: drop_answer(stream, about)
-- The entry of an answer was erased with the run that asked.
DELETE FROM answers WHERE stream = :stream AND about = :about;

-- name: drop_signal(owner, run, name, number)
-- The entry of a signal was erased with the run that received it.
DELETE FROM signals WHERE owner = :owner AND run = :run AND name = :name AND number = :number;

-- name: state_history_in(owner, namespace)
-- Every change of a namespace, with the entry that has its value.
SELECT key, revision, version, stream, seq, at FROM state_history
WHERE owner = :owner AND namespace = :namespace ORDER BY key, revision;

-- name: move_state_history(owner, namespace, key, revision, seq)
-- Another entry of the same stream carries a change from now on.
UPDATE state_history SET seq = :seq
WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision = :revision;

-- name: move_checkpoint(owner, name, version, stream, before, seq)
-- Another entry of the same stream carries a checkpoint from now on.
UPDATE checkpoints SET seq = :seq
WHERE owner = :owner AND name = :name AND version = :version AND stream = :stream AND seq = :before;

-- name: move_artifact(owner, name, version, stream, before, seq)
-- Another entry of the same stream carries an artifact from now on.
UPDATE artifacts SET seq = :seq
WHERE owner = :owner AND name = :name AND version = :version AND stream = :stream AND seq = :before;

-- name: move_event(owner, at, stream, before, place, seq, to_place)
-- Another entry of the same stream carries an event from now on.
UPDATE events SET seq = :seq, place = :to_place
WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :before AND place = :place;

-- name: move_thread_checkpoint(owner, thread, ns, id, stream, before, seq)
-- Another entry of the same stream carries a checkpoint of a thread from now on.
UPDATE thread_checkpoints SET seq = :seq
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream = :stream AND seq = :before;

-- name: move_thread_writes(owner, thread, ns, id, stream, before, seq)
-- Another entry of the same stream carries the writes of a task from now on.
UPDATE thread_writes SET seq = :seq
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream = :stream AND seq = :before;

-- name: last_thread_position(owner, thread)
-- The position of the last message in a thread.
SELECT coalesce(max(place), 0) FROM memories WHERE owner = :owner AND thread = :thread;

-- name: memories_on_subject(owner, person, kind, about, now, count)
-- Valid memories on the subject of a new one: they may repeat or contradict it.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta FROM (
    SELECT * FROM memories INDEXED BY memories_counting
    WHERE owner = :owner AND about = :about AND about <> '' AND person = :person AND kind = :kind AND ended = 0
      AND (expires = 0 OR expires > :now) ORDER BY valid_from DESC LIMIT :count) AS near
ORDER BY recorded DESC, id DESC;

-- name: memories_with_same_words(owner, person, kind, about, sketch, now, count)
-- Valid memories with the words of a new one, on its subject or on none.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta
FROM memories INDEXED BY memories_alike
WHERE owner = :owner AND sketch = :sketch AND about = :about AND person = :person AND kind = :kind AND ended = 0
  AND (expires = 0 OR expires > :now) ORDER BY recorded DESC, id DESC LIMIT :count;

-- name: links_of(owner, ids)
-- Where some memories stand among those that superseded each other; ids are a JSON list.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: links_valid_from(owner, kind, about, person, valid_from)
-- Where memories on a subject that became valid at a time stand among those that superseded each other.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories
WHERE owner = :owner AND about = :about AND about <> '' AND valid_from = :valid_from AND person = :person AND kind = :kind;

-- name: memories_by_id(owner, ids)
-- Some memories, valid or not; ids are a JSON list.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.id IN (SELECT value FROM json_each(:ids));

-- name: memories_repeated(owner, ids)
-- The memories that these ids repeat.
SELECT other, id FROM memory_relations WHERE owner = :owner AND what = 'again' AND other IN (SELECT value FROM json_each(:ids));

-- name: memory_relations_of(owner, ids)
-- Relations from and to some memories.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids))
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations INDEXED BY memory_relations_of
WHERE owner = :owner AND other IN (SELECT value FROM json_each(:ids))
ORDER BY at, stream, seq, id, what, other;

-- name: memory_relations_but_repeats(owner, ids)
-- Relations from and to some memories without repeats: these can be many, and are counted already.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND id IN (SELECT value FROM json_each(:ids)) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations INDEXED BY memory_relations_of
WHERE owner = :owner AND other IN (SELECT value FROM json_each(:ids)) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
ORDER BY at, stream, seq, id, what, other;

-- name: memories_repeated_by(owner, source)
-- Memories that a source has repeated.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND what = 'again' AND source = :source ORDER BY at, stream, seq;

-- name: memories_page(owner, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- The newest memories that pass a filter. `past` is 1 when `moment` is not now. Future facts count only when asked for.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner
  AND (:kind = '' OR m.kind = :kind) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))))
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_about(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- The newest memories on a subject that pass a filter.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.about = :about AND m.about <> ''
  AND (:kind = '' OR m.kind = :kind) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))))
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_in_thread(owner, thread, first, last)
-- Neighbouring memories of a thread, in order.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.thread = :thread AND m.place >= :first AND m.place <= :last ORDER BY m.place, m.id;

-- name: count_memories(owner)
-- How many memories there are, and how many are valid.
SELECT count(*), coalesce(sum(CASE WHEN ended = 0 THEN 1 ELSE 0 END), 0) FROM memories WHERE owner = :owner;

-- name: count_memory_use(owner, id, uses, last)
-- Count a use of a memory.
INSERT INTO memory_uses (owner, id, uses, last) VALUES (:owner, :id, :uses, :last)
ON CONFLICT (owner, id) DO UPDATE SET uses = memory_uses.uses + excluded.uses, last = max(memory_uses.last, excluded.last);

-- name: all_memories()
-- Read by rebuild.
SELECT owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance, valid_from,
    valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times
FROM memories ORDER BY owner, id;

-- name: all_memory_relations()
-- Read by rebuild.
SELECT owner, id, what, other, stream, seq, at, valid, source, trust FROM memory_relations
ORDER BY owner, id, what, other, stream, seq;

-- name: all_memory_uses()
-- Read for copies.
SELECT owner, id, uses, last FROM memory_uses ORDER BY owner, id;

-- name: clear_memories()
-- Rebuild empties the view first.
DELETE FROM memories;

-- name: clear_memory_relations()
-- Rebuild empties the view first.
DELETE FROM memory_relations;

-- name: put_chunk(owner, memory, part, thread, place, length, asks, day, told, terms)
-- Insert the search chunk of a memory, or one of several; `put_chunk_words` follows.
INSERT INTO chunks (owner, memory, part, thread, place, length, asks, day, told, terms)
VALUES (:owner, :memory, :part, :thread, :place, :length, :asks, :day, :told, :terms)
ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_missing_chunk(owner, memory, part, thread, place, length, asks, day, told, terms)
-- Insert the chunk of a memory that was stored without one, unless the memory is being forgotten.
INSERT INTO chunks (owner, memory, part, thread, place, length, asks, day, told, terms)
SELECT owner, id, :part, :thread, :place, :length, :asks, :day, :told, :terms FROM memories WHERE owner = :owner AND id = :memory
ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_chunk_words()
-- Index the words of the chunk that was just inserted; nothing if it existed already.
INSERT INTO chunk_words (rowid, words)
SELECT id, 'k' || owner || 'x' || replace(terms, ' ', ' k' || owner || 'x') FROM chunks
WHERE changes() = 1 AND id = last_insert_rowid() AND terms <> '';

-- name: put_chunk_vector(owner, memory, part, embedder, vector)
-- Store a chunk's vector, unless the chunk is gone.
INSERT INTO chunk_vectors (chunk, owner, embedder, vector) SELECT id, owner, :embedder, :vector FROM chunks
WHERE owner = :owner AND memory = :memory AND part = :part ON CONFLICT (chunk, embedder) DO NOTHING;

-- name: drop_chunk_words(owner, memory)
-- Before `drop_chunks`: FTS5 keeps no copy of the words, so it is told which ones to delete.
INSERT INTO chunk_words (chunk_words, rowid, words)
SELECT 'delete', id, 'k' || owner || 'x' || replace(terms, ' ', ' k' || owner || 'x') FROM chunks
WHERE owner = :owner AND memory = :memory AND terms <> '';

-- name: drop_chunk_vectors(owner, memory)
-- Delete the vectors of chunks, before `drop_chunks`.
DELETE FROM chunk_vectors WHERE chunk IN (SELECT id FROM chunks WHERE owner = :owner AND memory = :memory);

-- name: drop_chunks(owner, memory)
-- Delete the chunks of an erased memory, after `drop_chunk_words` and `drop_chunk_vectors`.
DELETE FROM chunks WHERE owner = :owner AND memory = :memory;

-- name: last_chunk_number()
-- A number that grows with every chunk.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0);

-- name: chunk_totals(owner)
-- The number of chunks of an agent, and their total length.
SELECT count(*), coalesce(sum(length), 0) FROM chunks WHERE owner = :owner;

-- name: term_counts(owner)
-- How many chunks have each term.
SELECT substr(term, length(:owner) + 3), doc FROM chunk_terms WHERE term >= 'k' || :owner || 'x' AND term < 'k' || :owner || 'y';

-- name: matching_chunks(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- Chunks whose memories pass a filter. Filters on one user or subject use their index.
SELECT p.id FROM (
    SELECT owner, id, kind, about, person, source, run, tags, trust, valid_from, valid_to, recorded, expires, ended, replaced FROM memories WHERE owner = :owner AND :person = '' AND :about = ''
    UNION ALL
    SELECT owner, id, kind, about, person, source, run, tags, trust, valid_from, valid_to, recorded, expires, ended, replaced FROM memories WHERE owner = :owner AND person = :person AND person <> '' AND :about = ''
    UNION ALL
    SELECT owner, id, kind, about, person, source, run, tags, trust, valid_from, valid_to, recorded, expires, ended, replaced FROM memories WHERE owner = :owner AND about = :about AND about <> '') AS m
CROSS JOIN chunks AS p ON p.owner = m.owner AND p.memory = m.id
WHERE (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment))))) LIMIT :count;

-- name: chunks_among(ids)
-- Some chunks; ids are a JSON list.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms FROM chunks AS p WHERE p.id IN (SELECT value FROM json_each(:ids));

-- name: chunks_in_ranges(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Chunks at some positions that pass a filter; `ranges` is a JSON list of [thread, first, last].
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM json_each(:ranges) AS it CROSS JOIN chunks AS p ON p.owner = :owner AND p.thread = json_extract(it.value, '$[0]')
    AND p.place BETWEEN json_extract(it.value, '$[1]') AND json_extract(it.value, '$[2]')
CROSS JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))));

-- name: chunks_in_ranges_compared(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, embedder, vector)
-- Chunks at some positions that pass a filter, with similarity where the store compares vectors.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms, NULL
FROM json_each(:ranges) AS it CROSS JOIN chunks AS p ON p.owner = :owner AND p.thread = json_extract(it.value, '$[0]')
    AND p.place BETWEEN json_extract(it.value, '$[1]') AND json_extract(it.value, '$[2]')
CROSS JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))))
  AND (:embedder = '' OR length(:vector) > 0);

-- name: all_chunks_in_ranges(owner, ranges)
-- Chunks at some positions, valid or not; `ranges` is a JSON list of [thread, first, last].
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM json_each(:ranges) AS it CROSS JOIN chunks AS p ON p.owner = :owner AND p.thread = json_extract(it.value, '$[0]')
    AND p.place BETWEEN json_extract(it.value, '$[1]') AND json_extract(it.value, '$[2]');

-- name: all_chunks_in_ranges_compared(owner, ranges, embedder, vector)
-- Chunks at some positions, valid or not, with similarity where the store compares vectors.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms, NULL
FROM json_each(:ranges) AS it CROSS JOIN chunks AS p ON p.owner = :owner AND p.thread = json_extract(it.value, '$[0]')
    AND p.place BETWEEN json_extract(it.value, '$[1]') AND json_extract(it.value, '$[2]')
WHERE :embedder = '' OR length(:vector) > 0;

-- name: memories_matching(owner, ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Those of some memories that pass a filter; ids are a JSON list.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.id IN (SELECT value FROM json_each(:ids)) AND (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))));

-- name: chunks_with_words(words, count)
-- Chunks with some of these words, best first; words are a JSON list of [word, weight].
WITH asked AS MATERIALIZED (
    SELECT '"' || json_extract(value, '$[0]') || '"' AS word, json_extract(value, '$[1]') AS worth FROM json_each(:words))
SELECT chunk_words.rowid FROM asked CROSS JOIN chunk_words ON chunk_words MATCH asked.word
GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count;

-- name: positions_with_words(words, count)
-- Positions of chunks with some of these words, best first; words are a JSON list of [word, weight].
WITH asked AS MATERIALIZED (
    SELECT '"' || json_extract(value, '$[0]') || '"' AS word, json_extract(value, '$[1]') AS worth FROM json_each(:words))
SELECT p.id, p.thread, p.place FROM (
    SELECT chunk_words.rowid AS id FROM asked CROSS JOIN chunk_words ON chunk_words MATCH asked.word
    GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count) AS best CROSS JOIN chunks AS p ON p.id = best.id;

-- name: positions_of_days(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, first, last, count)
-- Positions of chunks of a range of days that pass a filter, oldest first.
SELECT p.id, p.thread, p.place FROM chunks AS p CROSS JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.owner = :owner AND p.day BETWEEN :first AND :last AND (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))))
ORDER BY p.day, p.id LIMIT :count;

-- name: positions_of_chunks(ids)
-- Positions of some chunks; ids are a JSON list.
SELECT id, thread, place FROM chunks WHERE id IN (SELECT value FROM json_each(:ids));

-- name: positions_matching(ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Positions of some chunks that pass a filter; ids are a JSON list.
SELECT p.id, p.thread, p.place FROM json_each(:ids) AS it CROSS JOIN chunks AS p ON p.id = it.value
CROSS JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))));

-- name: vectors_now()
-- A cursor for `vectors_since`: it will see everything that is written, or being written, from now on.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunk_vectors'), 0) + 1;

-- name: vectors_since(owner, embedder, since)
-- Vectors written since a cursor; 0 means all.
SELECT chunk, vector FROM chunk_vectors
WHERE owner = :owner AND embedder = :embedder AND number >= :since ORDER BY number;

-- name: vectors_among(embedder, ids)
-- Vectors of some chunks; ids are a JSON list.
SELECT chunk, vector FROM chunk_vectors WHERE embedder = :embedder AND chunk IN (SELECT value FROM json_each(:ids));

-- name: vectors_of_memories(owner, memories)
-- Which vectors some memories have, and of which model; memories is a JSON list of ids.
SELECT v.chunk, v.embedder FROM chunks AS p JOIN chunk_vectors AS v ON v.chunk = p.id
WHERE p.owner = :owner AND p.memory IN (SELECT value FROM json_each(:memories));

-- name: vector_schema()
-- Where pgvector is installed; empty where the store does not compare vectors itself.
SELECT '' WHERE 0;

-- name: nearest_chunks(owner, embedder, vector, count)
-- Positions of the nearest chunks by index, where the store compares vectors.
SELECT chunk, '', 0 FROM chunk_vectors WHERE owner = :owner AND embedder = :embedder AND vector = :vector LIMIT :count;

-- name: nearest_by_scan(owner, embedder, vector, count)
-- The nearest chunks, each of them compared, where the store compares vectors; nearest first.
SELECT chunk FROM chunk_vectors WHERE owner = :owner AND embedder = :embedder AND vector = :vector LIMIT :count;

-- name: candidate_chunks(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, few, most, words, of_words, embedder, vector, of_meaning)
-- Positions of chunks that pass a filter, by words and by vector; all of them without a position if few, no number if too many.
SELECT p.id, p.thread, p.place FROM chunks AS p JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.owner = :owner AND p.id IN (SELECT chunk FROM chunk_vectors WHERE embedder = :embedder AND vector = :vector)
  AND (:kind = '' OR m.kind = :kind) AND (:about = '' OR m.about = :about) AND (:person = '' OR m.person = :person)
  AND (:source = '' OR m.source = :source) AND (:run = '' OR m.run = :run) AND m.trust >= :min_trust
  AND m.valid_from >= :since AND m.valid_from < :until AND (:tags = '[]' OR NOT EXISTS (SELECT 1 FROM json_each(:tags) AS wanted
    WHERE NOT EXISTS (SELECT 1 FROM json_each(m.tags) AS had WHERE had.value = wanted.value)))
  AND (:all = 1 OR (m.recorded <= :known AND (m.ended = 0 OR m.ended > :known OR m.replaced > :moment)
    AND (m.expires = 0 OR m.expires > :moment)
    AND (m.valid_to = 0 OR m.valid_to > :moment OR (:past = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment OR (:past = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since > :moment)))))
  AND :words <> '' LIMIT min(:of_words + :of_meaning + :few, :most);

-- name: prefer_indexes()
-- The chunks are cached: make the following statements use an index where they can.
SELECT 1;

-- name: vector_similarity(embedder, vector, ids)
-- Similarity of some chunks, where the store compares vectors; ids are a JSON list.
SELECT chunk, 1.0 FROM chunk_vectors WHERE embedder = :embedder AND vector = :vector AND chunk IN (SELECT value FROM json_each(:ids));

-- name: chunks_without_vector(owner, embedder, after, count)
-- Chunks that a model has not embedded.
SELECT p.id, p.memory, p.part FROM chunks AS p WHERE p.owner = :owner AND p.id > :after AND NOT EXISTS (
    SELECT 1 FROM chunk_vectors AS v WHERE v.chunk = p.id AND v.embedder = :embedder) ORDER BY p.id LIMIT :count;

-- name: embedding_progress(owner, embedder)
-- The number of chunks, and how many of them a model has embedded.
SELECT (SELECT count(*) FROM chunks WHERE owner = :owner),
    (SELECT count(*) FROM chunk_vectors WHERE owner = :owner AND embedder = :embedder);

-- name: vectors_by_model(owner)
-- The number of vectors of each model.
SELECT embedder, count(*) FROM chunk_vectors WHERE owner = :owner GROUP BY embedder ORDER BY embedder;

-- name: memories_without_chunks(owner, after, count)
-- Memories that were stored without chunks, by an older program or another store.
SELECT id FROM memories AS m WHERE owner = :owner AND id > :after AND NOT EXISTS (
    SELECT 1 FROM chunks AS p WHERE p.owner = m.owner AND p.memory = m.id) ORDER BY id LIMIT :count;

-- name: drop_other_vectors(owner, embedder, count)
-- Delete vectors of other models, once one has embedded everything.
DELETE FROM chunk_vectors WHERE number IN (
    SELECT number FROM chunk_vectors WHERE owner = :owner AND embedder <> :embedder LIMIT :count) RETURNING number;

-- name: index_vectors(embedder, dims)
-- Create the index for a model's vectors, where the store has one.
SELECT 0 WHERE length(:embedder) = 0 AND :dims = 0;

-- name: chunks_page(after, count)
-- Some of all chunks, for copies.
SELECT id, owner, memory, part, thread, place, length, asks, day, told, terms FROM chunks WHERE id > :after ORDER BY id LIMIT :count;

-- name: vectors_page(after, count)
-- Some of all vectors, for copies.
SELECT number, chunk, owner, embedder, vector FROM chunk_vectors WHERE number > :after ORDER BY number LIMIT :count;

-- name: set_departure(stream, seq)
-- Projection of AgentLeft, and of AgentArrived, which clears it.
UPDATE agents SET gone = :seq WHERE stream = :stream;

-- name: departure_of(name)
-- The departure of an agent, if it left: checked by whatever creates or takes one of its streams.
SELECT journal.kind, journal.at, journal.body FROM agents JOIN journal ON journal.id = (agents.stream << 32) | agents.gone
WHERE agents.name = :name AND agents.gone > 0;

-- name: lock_agent(name)
-- Before an agent leaves: writers for it in other streams have finished, or wait.
SELECT gone FROM agents WHERE name = :name;

-- name: hold_agent(stream)
-- Before writing for an agent in another agent's stream: it cannot leave meanwhile.
SELECT name FROM agents WHERE stream = :stream;

-- name: lock_streams()
-- No stream is created until this transaction ends: it already has the write lock.
SELECT 1;

-- name: run_streams(agent)
-- The streams of an agent's runs.
SELECT stream FROM runs WHERE agent = :agent ORDER BY stream;

-- name: revoke_lease(stream)
-- Fence off the holder of a stream: it can no longer write.
UPDATE leases SET fence = fence + 1, holder = NULL WHERE stream = :stream;

-- name: revoke_run_leases(agent)
-- Fence off the holders of all runs of an agent.
UPDATE leases SET fence = fence + 1, holder = NULL WHERE stream IN (SELECT stream FROM runs WHERE agent = :agent);

-- name: lease_at(stream)
-- The lease that moves with a stream: its fence keeps earlier holders out.
SELECT fence, ordered FROM leases WHERE stream = :stream;

-- name: restore_lease(stream, fence, ordered)
-- The lease of a stream that has arrived.
INSERT INTO leases (stream, fence, holder, ordered) VALUES (:stream, :fence, NULL, :ordered);

-- name: append_erased(stream, seq, kind, at, chain, digest)
-- Append an entry that was erased in the store it comes from.
INSERT INTO journal (id, kind, at, body, chain, digest) VALUES ((:stream << 32) | :seq, :kind, :at, NULL, :chain, :digest);

-- name: documents_of(owner, after, count)
-- The searchable texts of an agent, to move them.
SELECT id, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE rowid = documents.id) FROM documents
WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: renumber_events_of(owner)
-- Number the events of an arrived agent by time.
UPDATE events SET arrival = ranked.number FROM (
    SELECT stream, seq, place, row_number() OVER (ORDER BY at, stream, seq, place) AS number
    FROM events WHERE owner = :owner) AS ranked
WHERE events.owner = :owner AND events.stream = ranked.stream AND events.seq = ranked.seq
  AND events.place = ranked.place;

-- name: chunks_of(owner, after, count)
-- The chunks of an agent's memories, to move them.
SELECT id, memory, part, thread, place, length, asks, day, told, terms FROM chunks
WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: vectors_of(owner, after, count)
-- The vectors of an agent's chunks, to move them.
SELECT v.number, p.memory, p.part, v.embedder, v.vector FROM chunk_vectors AS v JOIN chunks AS p ON p.id = v.chunk
WHERE v.owner = :owner AND v.number > :after ORDER BY v.number LIMIT :count;

-- name: uses_of(owner, after, count)
-- The use counts of an agent's memories, to move them.
SELECT id, uses, last FROM memory_uses WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: set_lease(stream, fence, ordered)
-- The lease of a stream that came back with more entries.
UPDATE leases SET fence = :fence, holder = NULL, ordered = :ordered WHERE stream = :stream;

-- name: drop_document_words_of(owner)
-- Delete the index terms of an agent's documents, before `drop_documents_of`.
DELETE FROM document_words WHERE rowid IN (SELECT id FROM documents WHERE owner = :owner);

-- name: drop_documents_of(owner)
-- Delete the documents of an agent that comes back with its own.
DELETE FROM documents WHERE owner = :owner;

-- name: drop_chunk_words_of(owner)
-- Delete the index terms of an agent's chunks, before `drop_chunks_of`.
INSERT INTO chunk_words (chunk_words, rowid, words)
SELECT 'delete', id, 'k' || owner || 'x' || replace(terms, ' ', ' k' || owner || 'x') FROM chunks
WHERE owner = :owner AND terms <> '';

-- name: drop_chunk_vectors_of(owner)
-- Delete the vectors of an agent's chunks, before `drop_chunks_of`.
DELETE FROM chunk_vectors WHERE owner = :owner;

-- name: drop_chunks_of(owner)
-- Delete the chunks of an agent that comes back with its own.
DELETE FROM chunks WHERE owner = :owner;

-- name: drop_uses_of(owner)
-- Delete the use counts of an agent that comes back with its own.
DELETE FROM memory_uses WHERE owner = :owner;
