-- name: drop_seals(stream, before)
-- Delete signed heads inside the compacted range. The archive keeps them.
DELETE FROM seals WHERE stream = :stream AND seq < :before;

-- name: all_streams()
-- Read by verify and rebuild.
SELECT id, kind, name, at FROM streams ORDER BY id;

-- name: streams_page(after, count)
-- Some streams, for verify and rebuild.
SELECT id, kind, name, at FROM streams WHERE id > :after ORDER BY id LIMIT :count;

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

-- name: last_location()
-- The host and file where the store was last used.
SELECT host, file FROM store_locations ORDER BY id DESC LIMIT 1;

-- name: add_location(host, file, at)
-- Record that the store is used here now.
INSERT INTO store_locations (host, file, at) VALUES (:host, :file, :at);

-- name: get_object(id)
-- Read a large value.
SELECT size, data FROM objects WHERE id = :id;

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

-- name: drop_object(id)
-- Delete an object that nothing refers to.
DELETE FROM objects WHERE id = :id;

-- name: renew_upload(upload, at, holder)
-- Begin or continue an upload. The caller checks first that it exists: objects of a lost upload may be collected.
INSERT INTO uploads (id, at, holder) VALUES (:upload, :at, :holder) ON CONFLICT (id) DO UPDATE SET at = excluded.at;

-- name: drop_upload(upload)
-- End an upload: a journal entry refers to its objects now.
DELETE FROM uploads WHERE id = :upload;

-- name: drop_upload_objects(upload)
-- End the protection of an upload's objects: a journal entry refers to them now.
DELETE FROM upload_objects WHERE upload = :upload;

-- name: drop_orphan_upload_objects()
-- Delete the objects list of uploads that no longer exist.
DELETE FROM upload_objects WHERE NOT EXISTS (SELECT 1 FROM uploads WHERE uploads.id = upload_objects.upload);

-- name: release_all(holder)
-- Release every lease of a process that closes the store.
UPDATE leases SET holder = NULL WHERE holder = :holder;

-- name: drop_holder(holder)
-- Delete the holder of a process that closes the store.
DELETE FROM holders WHERE id = :holder;

-- name: add_lease(stream, holder)
-- A new stream belongs to its creator.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, 1, :holder);

-- name: add_fork_lease(stream, fence)
-- A fork has no holder until it is opened. Its fences continue those of its origin.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, :fence, NULL);

-- name: all_leases()
-- Read for a copy of the store.
SELECT stream, fence, ordered FROM leases ORDER BY stream;

-- name: release_lease(stream, fence)
-- End of a run, in the transaction of its last entry.
UPDATE leases SET holder = NULL WHERE stream = :stream AND fence = :fence;

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

-- name: run_in(stream)
-- The run that a stream holds.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE stream = :stream;

-- name: children_of(stream)
-- The runs that a run opened inside itself, oldest first.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE parent = :stream AND parent <> 0 ORDER BY stream;

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

-- name: artifact_names(owner)
-- Names to suggest after a typo.
SELECT DISTINCT name FROM artifacts WHERE owner = :owner AND dropped = 0 ORDER BY name;

-- name: all_artifacts()
-- Read by rebuild.
SELECT owner, name, version, stream, seq, at, dropped FROM artifacts ORDER BY owner, name, version;

-- name: drop_meta(key)
-- Delete a fact that no longer holds.
DELETE FROM meta WHERE key = :key;

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

-- name: agent_events_newest_first(owner, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of an agent's events, newest first.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
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
-- Projection of RunCancelledEntry: nothing waits for an answer any more.
UPDATE questions SET open = 0 WHERE stream = :stream AND open = 1;

-- name: open_questions(stream)
-- What a run waits for.
SELECT seq, about, kind, text, at FROM questions WHERE stream = :stream AND open = 1 ORDER BY seq;

-- name: question_inbox(agent, stream, seq, count)
-- Questions that a person can answer, and nobody has; of one agent, or of all if `agent` is empty. Page by page.
SELECT runs.agent, runs.id, questions.stream, questions.seq, questions.about, questions.kind, questions.text, questions.at
FROM questions JOIN runs ON runs.stream = questions.stream
WHERE questions.open = 1 AND questions.kind IN ('ask', 'approve', 'in_doubt')
  AND (questions.stream, questions.seq) > (:stream, :seq) AND (:agent = '' OR runs.agent = :agent)
  AND runs.status NOT IN ('finished', 'cancelled', 'erased')
  AND NOT EXISTS (
      SELECT 1 FROM answers WHERE answers.stream = questions.stream AND answers.about = questions.about)
ORDER BY questions.stream, questions.seq LIMIT :count;

-- name: awaiting_runs()
-- Runs that wait for the end of another run: moving an agent reports the ones it leaves behind.
SELECT runs.agent, runs.id, questions.stream, questions.seq FROM questions JOIN runs ON runs.stream = questions.stream
WHERE questions.open = 1 AND questions.kind = 'run' AND runs.status NOT IN ('finished', 'cancelled', 'erased')
ORDER BY runs.agent, runs.id, questions.seq;

-- name: all_questions()
-- Read by rebuild.
SELECT stream, seq, about, kind, text, at, open FROM questions ORDER BY stream, seq;

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

-- name: all_savings()
-- Read by rebuild.
SELECT stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost FROM savings
ORDER BY stream, model, provider, day;

-- name: put_order(stream, number, fence, what, reason, by, at)
-- Projection of OrderGiven.
INSERT INTO orders (stream, number, fence, what, reason, by, at)
VALUES (:stream, :number, :fence, :what, :reason, :by, :at);

-- name: last_order_under(stream, fence)
-- The last order to the holder of this fence.
SELECT number, what, reason, by FROM orders WHERE stream = :stream AND fence = :fence ORDER BY number DESC LIMIT 1;

-- name: all_orders()
-- Read by rebuild.
SELECT stream, number, fence, what, reason, by, at FROM orders ORDER BY stream, number;

-- name: last_signal(owner, run, name)
-- The highest number of a signal name.
SELECT number FROM signals WHERE owner = :owner AND run = :run AND name = :name ORDER BY number DESC LIMIT 1;

-- name: get_signal(owner, run, name, number)
-- The signal that is next for the run.
SELECT value, by FROM signals WHERE owner = :owner AND run = :run AND name = :name AND number = :number;

-- name: all_signals()
-- Read by rebuild.
SELECT owner, run, name, number, value, by, at FROM signals ORDER BY owner, run, name, number;

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

-- name: drop_task(stream)
-- Projection of RunFinishedEntry.
DELETE FROM tasks WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream);

-- name: drop_task_waits(stream)
-- Projection of RunResumed, and of TaskParked before it adds its waits.
DELETE FROM task_waits WHERE stream = :stream;

-- name: add_task_wait(what, stream)
-- Projection of TaskParked.
INSERT INTO task_waits (what, stream) VALUES (:what, :stream) ON CONFLICT DO NOTHING;

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

-- name: drop_thread_writes(owner, thread, ns, id, generation)
-- Projection of ThreadDropped.
DELETE FROM thread_writes
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND generation < :generation;

-- name: thread_generation(owner, thread)
-- How often something of a thread was dropped, and the newest id dropped with the whole thread.
SELECT generation, deleted_up_to FROM thread_generations WHERE owner = :owner AND thread = :thread;

-- name: thread_min_generation(owner, thread, ns, id)
-- The lowest generation in which a checkpoint can exist: older ones were dropped.
SELECT deleted_generation FROM thread_generations WHERE owner = :owner AND thread = :thread
UNION ALL
SELECT dropped FROM thread_checkpoints WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id;

-- name: was_thread_checkpoint(owner, thread, ns, id)
-- Whether a checkpoint existed and was dropped.
SELECT dropped FROM thread_checkpoints
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream = 0;

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

-- name: put_document(owner, kind, space, key, part, version, text, embedder, vector)
-- Insert or replace a searchable text.
INSERT INTO documents (owner, kind, space, key, part, version, text, embedder, vector)
VALUES (:owner, :kind, :space, :key, :part, :version, :text, :embedder, :vector);

-- name: documents_to_reembed(owner, kind, embedder, space, key, count)
-- Values after a key whose texts were embedded by another model, or not at all.
SELECT DISTINCT space, key, version FROM documents
WHERE owner = :owner AND kind = :kind AND embedder <> :embedder AND (space, key) > (:space, :key)
ORDER BY space, key LIMIT :count;

-- name: nonempty_namespaces(owner, now)
-- The namespaces of an agent that have keys.
SELECT namespace FROM state_namespaces WHERE owner = :owner AND EXISTS (
    SELECT 1 FROM agent_state WHERE agent_state.owner = state_namespaces.owner AND agent_state.namespace = state_namespaces.namespace
    AND length(value) > 0 AND (expires = 0 OR expires > :now)) ORDER BY namespace;

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

-- name: links_valid_from(owner, kind, about, person, valid_from)
-- Where memories on a subject that became valid at a time stand among those that superseded each other.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories
WHERE owner = :owner AND about = :about AND about <> '' AND valid_from = :valid_from AND person = :person AND kind = :kind;

-- name: memories_repeated_by(owner, source)
-- Memories that a source has repeated.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND what = 'again' AND source = :source ORDER BY at, stream, seq;

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

-- name: chunks_page(after, count)
-- Some of all chunks, for copies.
SELECT id, owner, memory, part, thread, place, length, asks, day, told, terms FROM chunks WHERE id > :after ORDER BY id LIMIT :count;

-- name: vectors_page(after, count)
-- Some of all vectors, for copies.
SELECT number, chunk, owner, embedder, vector FROM chunk_vectors WHERE number > :after ORDER BY number LIMIT :count;

-- name: set_departure(stream, seq)
-- Projection of AgentLeft, and of AgentArrived, which clears it.
UPDATE agents SET gone = :seq WHERE stream = :stream;

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

-- name: drop_documents_of(owner)
-- Delete the documents of an agent that comes back with its own.
DELETE FROM documents WHERE owner = :owner;

-- name: drop_uses_of(owner)
-- Delete the use counts of an agent that comes back with its own.
DELETE FROM memory_uses WHERE owner = :owner;
