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

-- name: stream_heads()
-- The length of each stream: anything appended later is new to a reader that starts here.
SELECT id, (SELECT max(journal.id) & 4294967295 FROM journal
            WHERE journal.id > (streams.id << 32) AND journal.id < ((streams.id + 1) << 32))
FROM streams ORDER BY id;

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

-- name: put_object(id, size, data)
-- Store a large value once. The id is a hash of the content, so other bytes under it are damaged (or compressed
-- by another release) and are replaced. Identical bytes are not written.
INSERT INTO objects (id, size, data) VALUES (:id, :size, :data)
ON CONFLICT (id) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE objects.data <> excluded.data OR objects.size <> excluded.size;

-- name: get_objects(ids)
-- Read many large values; ids are concatenated, 32 bytes each.
WITH RECURSIVE places (place) AS (
    SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
SELECT id, size, data FROM objects WHERE id IN (SELECT substr(:ids, place, 32) FROM places);

-- name: lock_objects(ids)
-- Lock objects for collection: the write lock of the transaction already keeps new references out.
SELECT id FROM objects WHERE id IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

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

-- name: drop_old_uploads(before, boot, now)
-- Delete uploads without recent progress whose process is dead. Of clients of a server (`key ...`), only the deadline
-- counts: the server marks their boot id.
DELETE FROM uploads WHERE at < :before AND NOT EXISTS (
    SELECT 1 FROM holders WHERE holders.id = uploads.holder
      AND (boot = :boot OR boot LIKE 'key %') AND deadline >= :now);

-- name: upload_objects_among(ids)
-- Which of some objects an upload needs.
SELECT object FROM upload_objects WHERE object IN (
    WITH RECURSIVE places (place) AS (
        SELECT 1 UNION ALL SELECT place + 32 FROM places WHERE place + 32 <= length(:ids))
    SELECT substr(:ids, place, 32) FROM places);

-- name: live_upload_objects(before, boot, now)
-- Objects that must not be collected although no entry refers to them yet.
SELECT object FROM upload_objects JOIN uploads ON uploads.id = upload_objects.upload
WHERE uploads.at >= :before OR EXISTS (SELECT 1 FROM holders WHERE holders.id = uploads.holder
    AND (boot = :boot OR boot LIKE 'key %') AND deadline >= :now);

-- name: count_dead_holders(boot, now)
-- The number of holders that `drop_dead_holders` would remove.
SELECT count(*) FROM holders
WHERE ((boot <> :boot AND boot NOT LIKE 'key %') OR deadline < :now)
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: drop_dead_holders(boot, now)
-- Delete holders of crashed processes. One with a lease stays: a takeover looks at it.
DELETE FROM holders
WHERE ((boot <> :boot AND boot NOT LIKE 'key %') OR deadline < :now)
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

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

-- name: holders_at_work(now)
-- Processes that hold runs, for doctor: the runs of a dead one can be resumed.
SELECT holders.id, boot, namespace, pid, started, host, holders.at, deadline - :now, count(*)
FROM holders JOIN leases ON leases.holder = holders.id JOIN streams ON streams.id = leases.stream
WHERE streams.kind = 'run' GROUP BY holders.id ORDER BY holders.at, holders.id;

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

-- name: take_lease(stream, fence, holder)
-- Takeover: raise the fence, unless another process was faster.
UPDATE leases SET fence = fence + 1, holder = :holder WHERE stream = :stream AND fence = :fence;

-- name: check_lease(stream, fence)
-- Check before an effect that the lease still holds after its deadline has passed.
SELECT 1 FROM leases WHERE stream = :stream AND fence = :fence;

-- name: runs_with_prefix(beginning, count)
-- The newest runs whose id starts with a text, for shell completion.
SELECT id, agent, status FROM runs WHERE substr(id, 1, length(:beginning)) = :beginning AND status <> 'erased' ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: runs_in_status(agent, status, at, before, count)
-- The newest runs of an agent in a status, from a place in their order on.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE agent = :agent AND status = :status AND (changed_at, stream) < (:at, :before)
ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: set_run_state(owner, namespace, key, value, at)
-- Projection of a SET write.
INSERT INTO run_state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, 1, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = version + 1, at = excluded.at;

-- name: lock_namespace(owner, namespace)
-- Serialize changes of a namespace: the transaction already has the write lock.

-- name: raise_state_horizon(owner, namespace, revision, at)
-- Projection of StreamCompacted: changes before this revision and time are gone.
INSERT INTO state_horizons (owner, namespace, revision, at) VALUES (:owner, :namespace, :revision, :at)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = max(state_horizons.revision, excluded.revision),
    at = max(state_horizons.at, excluded.at);

-- name: older_checkpoints(owner, name, skip, count)
-- Versions beyond the newest ones with their entries, for `keep_last`.
SELECT c.version, e.kind, e.body FROM checkpoints AS c JOIN journal AS e ON e.id = (c.stream << 32) | c.seq
WHERE c.owner = :owner AND c.name = :name AND c.dropped = 0 ORDER BY c.version DESC LIMIT :count OFFSET :skip;

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

-- name: note_lost_snapshots()
-- Before rebuild renumbers events: remember which replays had snapshots.
INSERT INTO replay_snapshots (owner, key, arrival, stream, seq, place, value)
SELECT DISTINCT owner, key, -1, 0, 0, 0, x'00' FROM replay_snapshots WHERE arrival >= 0 ON CONFLICT DO NOTHING;

-- name: get_holder(holder, now)
-- The process that claimed a step, and the milliseconds that it counts as alive.
SELECT boot, namespace, pid, started, host, at, deadline - :now
FROM holders WHERE id = :holder;

-- name: add_answer(stream, about, verdict, value, by, at)
-- Projection of Answered. The first answer wins: a second violates the primary key.
INSERT INTO answers (stream, about, verdict, value, by, at)
VALUES (:stream, :about, :verdict, :value, :by, :at);

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

-- name: savings_of(agent, run)
-- What resuming has saved; '' means every agent, every run.
SELECT agent, id, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent = '' OR agent = :agent) AND (:run = '' OR id = :run) ORDER BY savings.stream, model, provider, day;

-- name: spent_by_day(agent, since)
-- What model calls have cost on each day; '' means every agent.
SELECT day, sum(cost), sum(calls) FROM usage JOIN runs ON runs.stream = usage.stream
WHERE (:agent = '' OR agent = :agent) AND day >= :since GROUP BY day ORDER BY day;

-- name: saved_by_day(agent, since)
-- What resuming has saved on each day; '' means every agent.
SELECT day, sum(cost), sum(steps) FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent = '' OR agent = :agent) AND day >= :since GROUP BY day ORDER BY day;

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

-- name: put_signal(owner, run, name, number, value, by, at)
-- Projection of SignalSent.
INSERT INTO signals (owner, run, name, number, value, by, at)
VALUES (:owner, :run, :name, :number, :value, :by, :at);

-- name: lock_journal()
-- No other writer while the views are rebuilt: the transaction already has the write lock.

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

-- name: stalled_tasks(owner, now)
-- For doctor: dead tasks, and ready tasks that no worker takes; since when, and one example.
SELECT queue, state, count(*), min(max(at, ready_at)), min(run) FROM tasks
WHERE owner = :owner AND (state = 'dead' OR (state = 'queued' AND ready_at <= :now))
GROUP BY queue, state ORDER BY queue, state;

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

-- name: check_thread(owner, thread, generation)
-- Nothing of the thread was dropped since it was read.
SELECT 1 WHERE coalesce((SELECT generation FROM thread_generations WHERE owner = :owner AND thread = :thread), 0) = :generation;

-- name: check_thread_head(owner, thread, ns, parent)
-- A checkpoint must extend the newest one, so that no thread forks unnoticed.
SELECT 1 WHERE coalesce((SELECT max(id) FROM thread_checkpoints
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND stream > 0), '') = :parent;

-- name: newest_thread_checkpoint(owner, thread, ns)
-- The newest checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.id = (p.stream << 32) | p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.stream > 0 ORDER BY p.id DESC LIMIT 1;

-- name: get_thread_checkpoint(owner, thread, ns, id)
-- One checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.id = (p.stream << 32) | p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = :id AND p.stream > 0;

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

-- name: drop_document_words(owner, kind, space, key)
-- Delete the index terms of documents, before `drop_documents`.
DELETE FROM document_words WHERE rowid IN (
    SELECT id FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key);

-- name: drop_documents(owner, kind, space, key)
-- Delete documents whose value changed or is gone, after `drop_document_words`.
DELETE FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key;

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

-- name: memories_page(owner, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, at, before, count)
-- The newest memories that pass a filter, from a place in their order on. `past` is 1 when `moment` is not now. Future facts count only when asked for.
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
  AND (m.recorded, m.id) < (:at, :before)
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_about(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, at, before, count)
-- The newest memories on a subject that pass a filter, from a place in their order on.
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
  AND (m.recorded, m.id) < (:at, :before)
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: count_memory_use(owner, id, uses, last)
-- Count a use of a memory.
INSERT INTO memory_uses (owner, id, uses, last) VALUES (:owner, :id, :uses, :last)
ON CONFLICT (owner, id) DO UPDATE SET uses = memory_uses.uses + excluded.uses, last = max(memory_uses.last, excluded.last);

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

-- name: owners_of_chunks(ids)
-- Whose some chunks are, before a remote client reads them; ids are a JSON list.
SELECT DISTINCT owner FROM chunks WHERE id IN (SELECT value FROM json_each(:ids));

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

-- name: index_vectors(embedder, dims)
-- Create the index for a model's vectors, where the store has one.
SELECT 0 WHERE length(:embedder) = 0 AND :dims = 0;

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

-- name: drop_document_words_of(owner)
-- Delete the index terms of an agent's documents, before `drop_documents_of`.
DELETE FROM document_words WHERE rowid IN (SELECT id FROM documents WHERE owner = :owner);

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
