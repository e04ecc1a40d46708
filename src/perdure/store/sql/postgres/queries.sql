-- Statements that PostgreSQL words differently, under the same names and parameters as for SQLite.
--
-- Time: deadlines are made and read by the server's clock, (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
-- because the clocks of many machines agree on nothing. The parameter `now`, the boot clock of a caller, is bound but
-- has no weight: it stands as `0 * :now::bigint`. `at` is for people and comes from the caller, as everywhere.
--
-- Isolation: READ COMMITTED. What SQLite's single write lock gives for nothing is done here by row locks, and the
-- statement says so.
--
-- Conditions: the commit travels with the last statements of a unit, so nobody looks at a count before it. A statement
-- that must change a row therefore fails when it does not: a NULL where none may be, a division by no rows.
--
-- Order: text that is sorted or unique has the collation "C", so that both dialects sort alike.

-- name: append_entry(stream, seq, kind, at, body, chain, fence)
-- Append one journal entry, only while the writer holds the fence; a takeover waits for our commit. Returns the last order's number.
INSERT INTO journal (stream, seq, kind, at, body, chain)
VALUES ((SELECT stream FROM leases WHERE stream = :stream AND fence = :fence FOR SHARE), :seq, :kind, :at, :body, :chain)
RETURNING (SELECT ordered FROM leases WHERE stream = :stream);

-- name: journal_of(stream, after)
-- Read a stream in order: to resume, show or verify it.
SELECT seq, kind, at, body, chain, digest FROM journal WHERE stream = :stream AND seq > :after ORDER BY seq;

-- name: journal_page(stream, first, count)
-- Read part of a stream, so that verify and rebuild need little memory for a stream of any length.
SELECT seq, kind, at, body, chain, digest FROM journal
WHERE stream = :stream AND seq >= :first ORDER BY seq LIMIT :count;

-- name: last_compaction(stream)
-- The newest compaction entry of a stream: verify, rebuild and replay start from it.
SELECT seq, kind, at, body, chain, digest FROM journal
WHERE kind = 50 AND stream = :stream ORDER BY seq DESC LIMIT 1;

-- name: drop_journal_entries(stream, first, last)
-- Delete entries that were archived and compacted.
DELETE FROM journal WHERE stream = :stream AND seq >= :first AND seq <= :last;

-- name: entry_counts(stream)
-- How far a run got: the number of its entries of each kind.
SELECT kind, count(*) FROM journal WHERE stream = :stream GROUP BY kind;

-- name: journal_entry(stream, seq)
-- One entry by its place.
SELECT seq, kind, at, body, chain, digest FROM journal WHERE stream = :stream AND seq = :seq;

-- name: chain_at(stream, seq)
-- Check that an entry whose commit was never acknowledged is there, and is ours.
SELECT chain FROM journal WHERE stream = :stream AND seq = :seq;

-- name: head_of(stream)
-- The last entry of a stream's chain.
SELECT seq, chain FROM journal WHERE stream = :stream ORDER BY seq DESC LIMIT 1;

-- name: orphan_entries()
-- Entries of streams that do not exist: only tampering makes them.
SELECT DISTINCT stream FROM journal WHERE NOT EXISTS (SELECT 1 FROM streams WHERE streams.id = journal.stream);

-- name: add_stream(kind, name, at)
-- Create the next stream. The row of the last number stays locked until the commit, so there are no gaps.
WITH next AS (UPDATE stream_count SET last = last + 1 RETURNING last)
INSERT INTO streams (id, kind, name, at) SELECT last, :kind::text, :name::text, :at::bigint FROM next RETURNING id;

-- name: stream_heads()
-- The length of each stream: anything appended later is new to a reader that starts here.
SELECT id, (SELECT max(seq) FROM journal WHERE stream = streams.id) FROM streams ORDER BY id;

-- name: store_bytes()
-- Bytes of the tables with their indexes; only the server knows how much of it is free.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint, 0::bigint FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r';

-- name: check_file()
-- Pages are the server's responsibility (checksums, amcheck): a client has nothing to check.
SELECT 'ok';

-- name: foreign_code()
-- Code in the schema that Perdure did not make: the server runs it for whoever reads or writes there.
SELECT 'trigger ' || tgname || ' on ' || relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
UNION ALL SELECT 'rule ' || rulename || ' on ' || tablename FROM pg_rules WHERE schemaname = current_schema()
UNION ALL SELECT 'policy ' || policyname || ' on ' || tablename FROM pg_policies WHERE schemaname = current_schema()
UNION ALL SELECT 'view ' || viewname FROM pg_views WHERE schemaname = current_schema() ORDER BY 1;

-- name: clock_now()
-- The store's own clock, in milliseconds since 1970.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: put_object(id, size, data)
-- Store a large value once. The conflict locks an existing row, so that it is not collected before this commit.
-- The id is a hash of the content, so other bytes under it are damaged (or compressed by another release) and are
-- replaced.
INSERT INTO objects (id, size, data) VALUES (:id, :size, :data)
ON CONFLICT (id) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE objects.data <> excluded.data OR objects.size <> excluded.size;

-- name: get_objects(ids)
-- Read many large values; ids are concatenated, 32 bytes each.
SELECT id, size, data FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: lock_objects(ids)
-- Lock objects for collection: a writer that wants to refer to one waits for the decision.
SELECT id FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place)
FOR UPDATE SKIP LOCKED;

-- name: stored_sizes(ids)
-- Bytes on disk of some objects; ids are concatenated, 32 bytes each.
SELECT id, length(data) FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: hold_objects(ids)
-- Which objects exist. They stay until this transaction ends: the collector waits.
SELECT id FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place) ORDER BY id FOR KEY SHARE;

-- name: add_upload_objects(upload, ids)
-- Protect the objects of an upload from collection; ids are concatenated, 32 bytes each.
INSERT INTO upload_objects (upload, object)
SELECT :upload::bigint, substring(:ids::bytea FROM place FOR 32)
FROM generate_series(1, length(:ids::bytea), 32) AS place
ON CONFLICT (upload, object) DO NOTHING;

-- name: lock_upload(upload)
-- Check that an upload exists, and keep it until the commit: then everything that it wrote exists too.
SELECT at FROM uploads WHERE id = :upload FOR UPDATE;

-- name: drop_old_uploads(before, boot, now)
-- Delete uploads without recent progress whose process is dead.
DELETE FROM uploads WHERE at < :before AND NOT EXISTS (
    SELECT 1 FROM holders WHERE holders.id = uploads.holder AND :boot::text IS NOT NULL
      AND deadline >= (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint);

-- name: upload_objects_among(ids)
-- Which of some objects an upload needs.
SELECT object FROM upload_objects WHERE object IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: live_upload_objects(before, boot, now)
-- Objects that must not be collected although no entry refers to them yet.
SELECT object FROM upload_objects JOIN uploads ON uploads.id = upload_objects.upload
WHERE uploads.at >= :before OR EXISTS (SELECT 1 FROM holders WHERE holders.id = uploads.holder AND deadline >=
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL);

-- name: count_dead_holders(boot, now)
-- The number of holders that `drop_dead_holders` would remove.
SELECT count(*) FROM holders
WHERE deadline < (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: drop_dead_holders(boot, now)
-- Delete holders of crashed processes. Another boot id is another machine and proves nothing: only the deadline counts.
DELETE FROM holders
WHERE deadline < (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: renew_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- The heartbeat. It restores the row after a long silence, so that new leases name an existing holder.
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
VALUES (:holder, :boot, :namespace, :pid, :started, :host, :at,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint + :ttl::bigint)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: ensure_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- Before a lease names this holder: its row exists and has time left. A process opens many runs at once, so the
-- row is only locked against deletion, and renewed when a heartbeat was missed.
WITH here AS (
    SELECT 1 FROM holders WHERE id = :holder
      AND deadline > (extract(epoch FROM clock_timestamp()) * 1000)::bigint + :ttl::bigint / 2 FOR KEY SHARE)
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
SELECT :holder, :boot, :namespace, :pid, :started, :host, :at,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint + :ttl::bigint
WHERE NOT EXISTS (SELECT 1 FROM here)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: holders_at_work(now)
-- Processes that hold runs, for doctor: the runs of a dead one can be resumed.
SELECT holders.id, boot, namespace, pid, started, host, holders.at,
       deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint), count(*)
FROM holders JOIN leases ON leases.holder = holders.id JOIN streams ON streams.id = leases.stream
WHERE streams.kind = 'run' GROUP BY holders.id ORDER BY holders.at, holders.id;

-- name: hold_lease(stream)
-- Read the fence; no compaction and no takeover until this transaction ends.
SELECT fence FROM leases WHERE stream = :stream FOR SHARE;

-- name: lock_forks(stream)
-- No fork of this run begins until this transaction ends: forking holds the lease.
SELECT fence FROM leases WHERE stream = :stream FOR UPDATE;

-- name: read_lease(stream, now)
-- The holder of a stream, and the milliseconds that it has left.
SELECT leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid, holders.started, holders.host,
       holders.at, holders.deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM leases LEFT JOIN holders ON holders.id = leases.holder WHERE leases.stream = :stream;

-- name: holder_time_left(holder, now)
-- Checked again under the lease's lock: a holder that renewed meanwhile is alive.
SELECT deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM holders WHERE id = :holder;

-- name: take_lease(stream, fence, holder)
-- Takeover: raise the fence, unless another process was faster.
WITH taken AS (
    UPDATE leases SET fence = fence + 1, holder = :holder WHERE stream = :stream AND fence = :fence RETURNING 1)
SELECT 1 / count(*) FROM taken;

-- name: check_lease(stream, fence)
-- Check before an effect that the lease still holds after its deadline has passed. Waits for a takeover in progress.
SELECT 1 FROM leases WHERE stream = :stream AND fence = :fence FOR SHARE;

-- name: runs_with_prefix(beginning, count)
-- The newest runs whose id starts with a text, for shell completion.
SELECT id, agent, status FROM runs WHERE left(id, length(:beginning::text)) = :beginning::text AND status <> 'erased' ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: runs_in_status(agent, status, at, before, count)
-- The newest runs of an agent in a status, from a place in their order on.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at
FROM runs WHERE agent = :agent AND status = :status AND (changed_at, stream) < (:at::bigint, :before::bigint)
ORDER BY changed_at DESC, stream DESC LIMIT :count::bigint;

-- name: set_run_state(owner, namespace, key, value, at)
-- Projection of a SET write.
INSERT INTO run_state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, 1, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = run_state.version + 1, at = excluded.at;

-- name: lock_namespace(owner, namespace)
-- Serialize changes of a namespace until this transaction ends; later statements see the changes before it.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended(:namespace::text, :owner::bigint))) AS locked;

-- name: raise_state_horizon(owner, namespace, revision, at)
-- Projection of StreamCompacted: changes before this revision and time are gone.
INSERT INTO state_horizons (owner, namespace, revision, at) VALUES (:owner, :namespace, :revision, :at)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = greatest(state_horizons.revision, excluded.revision),
    at = greatest(state_horizons.at, excluded.at);

-- name: older_checkpoints(owner, name, skip, count)
-- Versions beyond the newest ones with their entries, for `keep_last`.
SELECT c.version, e.kind, e.body FROM checkpoints AS c JOIN journal AS e ON e.stream = c.stream AND e.seq = c.seq
WHERE c.owner = :owner AND c.name = :name AND c.dropped = 0 ORDER BY c.version DESC LIMIT :count OFFSET :skip;

-- name: artifacts_of(owner)
-- All artifacts of an agent with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.stream = it.stream AND journal.seq = it.seq
WHERE owner = :owner AND dropped = 0 ORDER BY name, version;

-- name: artifact_versions(owner, name)
-- All versions of a name with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.stream = it.stream AND journal.seq = it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version;

-- name: newest_artifact(owner, name)
-- The newest version of a name.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.stream = it.stream AND journal.seq = it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version DESC LIMIT 1;

-- name: get_artifact(owner, name, version)
-- One version of a name.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN journal ON journal.stream = it.stream AND journal.seq = it.seq
WHERE owner = :owner AND name = :name AND version = :version AND dropped = 0;

-- name: add_event(owner, run, kind, stream, seq, place, at)
-- Projection of Happened. The arrival is the transaction's number, so writers never wait for each other.
INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at)
SELECT :owner::bigint, base + pg_current_xact_id()::text::bigint, :stream::bigint, :seq::bigint, :place::bigint,
       :run::bigint, :kind::text, :at::bigint
FROM arrivals;

-- name: add_run_event(kind, stream, seq, place, at)
-- Projection of an EVENT write of a run.
INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at)
SELECT agents.stream, base + pg_current_xact_id()::text::bigint, :stream::bigint, :seq::bigint, :place::bigint,
       :stream::bigint, :kind::text, :at::bigint
FROM runs JOIN agents ON agents.name = runs.agent CROSS JOIN arrivals WHERE runs.stream = :stream::bigint;

-- name: settled_arrivals()
-- The arrival below which no event can appear any more: all older transactions have ended.
SELECT base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM arrivals;

-- name: moved_arrivals()
-- Whether there are events of transactions that this server has not reached: the store moved here from another one.
SELECT 1 FROM arrivals WHERE base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM events WHERE owner = agents.stream) AS latest);

-- name: raise_arrivals()
-- Continue arrivals after the newest event. A second caller finds the condition false.
UPDATE arrivals SET base = 1 + (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM events WHERE owner = agents.stream) AS latest)
WHERE base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM events WHERE owner = agents.stream) AS latest);

-- name: renumber_events()
-- The end of rebuild: number events by time, because the journal does not record arrivals. Later events come after these.
WITH numbered AS (
    UPDATE events SET arrival = ranked.number FROM (
        SELECT owner, stream, seq, place, row_number() OVER (PARTITION BY owner ORDER BY at, stream, seq, place) AS number
        FROM events) AS ranked
    WHERE events.owner = ranked.owner AND events.stream = ranked.stream AND events.seq = ranked.seq
      AND events.place = ranked.place RETURNING 1)
UPDATE arrivals SET base = base + (SELECT count(*) FROM numbered);

-- name: journal_among(which)
-- Many entries at once; `which` is a JSON list of [stream, seq].
SELECT stream, seq, kind, body FROM journal
WHERE (stream, seq) IN (SELECT (it ->> 0)::bigint, (it ->> 1)::bigint FROM jsonb_array_elements(:which::jsonb) AS it);

-- name: agent_events_of_kind(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one kind.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND kind = :kind AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, events.stream, seq, place LIMIT :count;

-- name: run_events(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one run, optionally of one kind. The sum keeps the planner from using the wrong index.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE run = :run AND run > 0 AND owner + 0 = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, events.stream, seq, place LIMIT :count;

-- name: agent_events_of_kind_newest_first(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one kind, newest first.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE owner = :owner AND kind = :kind AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, events.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: run_events_newest_first(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A page of events of one run, newest first. The sum keeps the planner from using the wrong index.
SELECT arrival, events.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM events LEFT JOIN runs ON runs.stream = events.run
WHERE run = :run AND run > 0 AND owner + 0 = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, events.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, events.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, events.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: note_lost_snapshots()
-- Before rebuild renumbers events: remember which replays had snapshots.
INSERT INTO replay_snapshots (owner, key, arrival, stream, seq, place, value)
SELECT DISTINCT owner, key, -1, 0, 0, 0, '\x00'::bytea FROM replay_snapshots WHERE arrival >= 0 ON CONFLICT DO NOTHING;

-- name: get_holder(holder, now)
-- The process that claimed a step, and the milliseconds that it counts as alive.
SELECT boot, namespace, pid, started, host, at, deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM holders WHERE id = :holder;

-- name: add_answer(stream, about, verdict, value, by, at)
-- Projection of Answered. The first answer wins: a second violates the primary key. Notifies a waiting run.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || :stream::text) IS NULL AS unheard
    FROM questions WHERE stream = :stream::bigint AND about = :about AND open = 1)
INSERT INTO answers (stream, about, verdict, value, by, at)
SELECT :stream::bigint, :about::bigint, :verdict::text, :value::bytea, :by::text, :at::bigint
FROM (SELECT count(unheard) FROM told) AS heard;

-- name: usage_of(agent, run)
-- Model usage; '' means every agent, every run.
SELECT agent, id, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM usage JOIN runs ON runs.stream = usage.stream
WHERE (:agent::text = '' OR agent = :agent) AND (:run::text = '' OR id = :run) ORDER BY usage.stream, step, model, provider, day;

-- name: spent_by(stream)
-- For a budget: what a run and its child runs have spent on each model.
WITH RECURSIVE family (stream) AS (
    SELECT :stream::bigint UNION SELECT runs.stream FROM family JOIN runs ON runs.parent = family.stream AND runs.parent <> 0)
SELECT model, sum(cost)::bigint, sum(unpriced)::bigint FROM family JOIN usage ON usage.stream = family.stream GROUP BY model;

-- name: savings_of(agent, run)
-- What resuming has saved; '' means every agent, every run.
SELECT agent, id, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent::text = '' OR agent = :agent) AND (:run::text = '' OR id = :run) ORDER BY savings.stream, model, provider, day;

-- name: spent_by_day(agent, since)
-- What model calls have cost on each day; '' means every agent.
SELECT day, sum(cost)::bigint, sum(calls)::bigint FROM usage JOIN runs ON runs.stream = usage.stream
WHERE (:agent::text = '' OR agent = :agent) AND day >= :since GROUP BY day ORDER BY day;

-- name: saved_by_day(agent, since)
-- What resuming has saved on each day; '' means every agent.
SELECT day, sum(cost)::bigint, sum(steps)::bigint FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent::text = '' OR agent = :agent) AND day >= :since GROUP BY day ORDER BY day;

-- name: lock_lease(stream, fence)
-- Before an order: check that the run still has this holder, keep it until the commit, and read the last order's number.
SELECT ordered FROM leases WHERE stream = :stream AND fence = :fence AND holder IS NOT NULL FOR NO KEY UPDATE;

-- name: notify_holder(stream, number)
-- The holder sees the order in the answer to its next entry; listeners are notified.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || :stream::text) IS NULL AS run,
           pg_notify('perdure', current_schema() || ' 0') IS NULL AS everybody)
UPDATE leases SET ordered = :number FROM (SELECT count(run), count(everybody) FROM told) AS heard
WHERE stream = :stream::bigint;

-- name: standing_orders(streams)
-- The last order of each run that its holder, or the next one, has still to obey. `streams` is a JSON list.
SELECT orders.stream, orders.number, what, reason, by
FROM leases JOIN orders ON orders.stream = leases.stream AND orders.number = leases.ordered AND orders.fence = leases.fence
WHERE leases.stream IN (SELECT value::bigint FROM json_array_elements_text(:streams::json));

-- name: descendant_runs(stream)
-- Child runs of a run, at any depth; queued ones that have not begun come last.
WITH RECURSIVE parts (stream) AS (
    SELECT :stream::bigint
    UNION SELECT runs.stream FROM runs JOIN parts ON runs.parent = parts.stream)
SELECT agent, id, stream FROM runs WHERE stream IN (SELECT stream FROM parts) AND stream <> :stream
UNION ALL
SELECT agents.name, tasks.run, 4611686018427387904 FROM tasks JOIN agents ON agents.stream = tasks.owner
WHERE tasks.stream = 0 AND tasks.parent IN (SELECT stream FROM parts)
ORDER BY 3, 2;

-- name: put_signal(owner, run, name, number, value, by, at)
-- Projection of SignalSent. Notifies a waiting run.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || runs.stream::text) IS NULL AS unheard
    FROM runs JOIN agents ON agents.name = runs.agent
    WHERE agents.stream = :owner::bigint AND runs.id = :run::text AND runs.status = 'waiting')
INSERT INTO signals (owner, run, name, number, value, by, at)
SELECT :owner::bigint, :run::text, :name::text, :number::bigint, :value::bytea, :by::text, :at::bigint
FROM (SELECT count(unheard) FROM told) AS heard;

-- name: lock_journal()
-- No other writer while the views are rebuilt.
LOCK TABLE journal IN SHARE ROW EXCLUSIVE MODE;

-- name: queue_task(owner, agent, run, task, queue, priority, key, ready_at, requeued_seq, input, digest, parent, at)
-- Projection of TaskQueued. If the run began before, its row tells its progress, in either order of projection.
-- Only the first task of a queue notifies: while others are ready, workers look by themselves.
WITH made AS (
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT :owner::bigint, :run::text, coalesce(runs.stream, 0), :task::text, :queue::text, :priority::bigint, :key::text,
    CASE coalesce(runs.status, '') WHEN '' THEN 'queued' WHEN 'interrupted' THEN 'queued' WHEN 'paused' THEN 'paused'
        WHEN 'failed' THEN CASE WHEN :requeued_seq::bigint >= runs.outcome THEN 'queued' ELSE 'dead' END ELSE 'running' END,
    CASE coalesce(runs.status, '') WHEN '' THEN :ready_at::bigint WHEN 'interrupted' THEN 0
        WHEN 'failed' THEN CASE WHEN :requeued_seq::bigint >= runs.outcome THEN 0 ELSE 4611686018427387904 END ELSE 4611686018427387904 END,
    0, CASE runs.status WHEN 'failed' THEN runs.outcome ELSE 0 END, :requeued_seq::bigint, :input::bytea, :digest::bytea, :parent::bigint, :at::bigint
FROM (SELECT 1) AS one LEFT JOIN runs ON runs.agent = :agent::text AND runs.id = :run::text
WHERE coalesce(runs.status, '') NOT IN ('finished', 'cancelled', 'erased')
ON CONFLICT (owner, run) DO UPDATE SET task = excluded.task, queue = excluded.queue, priority = excluded.priority,
    key = excluded.key, input = excluded.input, digest = excluded.digest, parent = excluded.parent, at = excluded.at,
    requeued_seq = greatest(tasks.requeued_seq, excluded.requeued_seq)
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM made WHERE ready_at = 0 AND NOT EXISTS (
    SELECT 1 FROM tasks WHERE tasks.owner = made.owner AND tasks.queue = :queue::text AND tasks.task = :task::text
      AND tasks.ready_at = 0);

-- name: ensure_task(stream)
-- Insert the task's row before a worker's entry is projected: the entry that queued it may come later.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT agents.stream, runs.id, runs.stream, '', '', 0, '', 'running', 4611686018427387904, 0, 0, 0, '\x'::bytea, '\x'::bytea, 0, 0
FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream
ON CONFLICT (owner, run) DO NOTHING;

-- name: set_task_state(stream, state, ready_at, attempts, failed_seq)
-- Projection of what starts, interrupts, parks or fails a run. `attempts` < 0 keeps the count; requeuing outlives an older failure.
WITH moved AS (
UPDATE tasks SET stream = :stream::bigint,
    state = CASE WHEN :state::text = 'dead' AND requeued_seq >= :failed_seq::bigint THEN 'queued' ELSE :state::text END,
    ready_at = CASE WHEN :state::text = 'dead' AND requeued_seq >= :failed_seq::bigint THEN 0 ELSE :ready_at::bigint END,
    attempts = CASE WHEN :state::text = 'dead' AND requeued_seq >= :failed_seq::bigint THEN 0 WHEN :attempts::bigint < 0 THEN attempts ELSE :attempts::bigint END,
    failed_seq = :failed_seq::bigint
WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream::bigint)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream::bigint)
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM moved WHERE ready_at = 0;

-- name: requeue_task(owner, agent, run, after)
-- Projection of TaskAgain: queue a task that died at or before that entry.
WITH requeued_seq AS (
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
SELECT :owner::bigint, :run::text, 0, '', '', 0, '', 'queued', 0, 0, 0, :after::bigint, '\x'::bytea, '\x'::bytea, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent::text AND runs.id = :run::text AND runs.status IN ('finished', 'cancelled', 'erased'))
ON CONFLICT (owner, run) DO UPDATE SET requeued_seq = greatest(tasks.requeued_seq, excluded.requeued_seq),
    ready_at = CASE WHEN tasks.state = 'dead' AND tasks.failed_seq <= excluded.requeued_seq THEN 0 ELSE tasks.ready_at END,
    attempts = CASE WHEN tasks.state = 'dead' AND tasks.failed_seq <= excluded.requeued_seq THEN 0 ELSE tasks.attempts END,
    state = CASE WHEN tasks.state = 'dead' AND tasks.failed_seq <= excluded.requeued_seq THEN 'queued' ELSE tasks.state END
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM requeued_seq WHERE ready_at = 0;

-- name: lock_task(stream)
-- Serialize parking and waking of a run.
SELECT 1 FROM tasks WHERE stream = :stream AND stream > 0 FOR UPDATE;

-- name: lock_awaited(owner, agent, run)
-- Lock the run that a parked run waits for: it neither begins nor ends meanwhile.
SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE agent = :agent AND id = :run FOR SHARE) AS begun),
       (SELECT count(*) FROM (SELECT 1 FROM tasks WHERE owner = :owner AND run = :run FOR SHARE) AS queued);

-- name: wake_task(what)
-- Projection of an answer or a signal: runs that wait for it may continue.
WITH woken AS (
UPDATE tasks SET ready_at = 0
WHERE state = 'parked' AND stream > 0 AND stream IN (SELECT stream FROM task_waits WHERE what = :what)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_by_run(stream)
-- Projection of the end of a run: runs that wait for it may continue.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE state = 'parked' AND stream > 0 AND stream IN (
    SELECT task_waits.stream FROM runs JOIN agents ON agents.name = runs.agent
    JOIN task_waits ON task_waits.what = 'run ' || agents.stream || ' ' || runs.id WHERE runs.stream = :stream)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_answered(stream, of, about)
-- Projection of TaskParked: the answer arrived before the run was parked.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM answers WHERE answers.stream = :of AND answers.about = :about)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_sent(stream, owner, run, name, number)
-- Projection of TaskParked: the signal arrived before the run was parked.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM signals WHERE signals.owner = :owner AND signals.run = :run AND name = :name AND number = :number)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_ended(stream, agent, run)
-- Projection of TaskParked: the other run ended before the run was parked.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent AND runs.id = :run AND status IN ('finished', 'failed', 'cancelled', 'erased'))
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: next_tasks(owner, queue, now, names, per_key, count)
-- The first task that may start: by priority, then by age. `names` is a JSON list of the worker's tasks. Tasks that
-- other workers are taking are skipped, so that nobody waits.
SELECT run, stream, task, attempts, input, digest, parent, priority, at FROM tasks AS chosen
WHERE (owner, run) IN (
    SELECT owner, run FROM (SELECT owner, run FROM tasks WHERE owner = :owner::bigint AND queue = :queue::text AND ready_at = 0
        AND task IN (SELECT jsonb_array_elements_text(:names::jsonb))
        AND (:per_key::bigint = 0 OR key = '' OR (SELECT count(*) FROM tasks AS other WHERE other.owner = tasks.owner
            AND other.queue = tasks.queue AND other.key = tasks.key AND other.state = 'running') < :per_key::bigint)
        ORDER BY priority DESC, at, run LIMIT :count::bigint) AS ready
    UNION ALL
    SELECT owner, run FROM (SELECT owner, run FROM tasks WHERE owner = :owner::bigint AND queue = :queue::text AND ready_at > 0
        AND ready_at <= :now::bigint AND task IN (SELECT jsonb_array_elements_text(:names::jsonb))
        AND (:per_key::bigint = 0 OR key = '' OR (SELECT count(*) FROM tasks AS other WHERE other.owner = tasks.owner
            AND other.queue = tasks.queue AND other.key = tasks.key AND other.state = 'running') < :per_key::bigint)
        ORDER BY ready_at, run LIMIT :count::bigint) AS timed)
  AND ready_at <= :now::bigint
ORDER BY priority DESC, at, run LIMIT 1 FOR UPDATE SKIP LOCKED;

-- name: lock_held_task(owner, run)
-- A running task whose worker is gone, for the takeover.
SELECT run, stream, task, attempts, input, digest, parent, priority, at FROM tasks
WHERE owner = :owner AND run = :run AND state = 'running' FOR UPDATE SKIP LOCKED;

-- name: held_tasks(owner, now)
-- Running tasks and their holders: a dead worker has left its runs.
SELECT tasks.run, tasks.task, tasks.queue, leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid,
       holders.started, holders.host, holders.at, holders.deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM tasks JOIN leases ON leases.stream = tasks.stream LEFT JOIN holders ON holders.id = leases.holder
WHERE tasks.owner = :owner AND tasks.state = 'running' AND tasks.stream > 0;

-- name: stalled_tasks(owner, now)
-- For doctor: dead tasks, and ready tasks that no worker takes; since when, and one example.
SELECT queue, state, count(*), min(greatest(at, ready_at)), min(run) FROM tasks
WHERE owner = :owner AND (state = 'dead' OR (state = 'queued' AND ready_at <= :now))
GROUP BY queue, state ORDER BY queue, state;

-- name: put_thread_checkpoint(owner, thread, ns, id, generation, parent, run, stream, seq, at)
-- Projection of ThreadPut. The newest wins and a dropped one stays dropped, whichever stream is projected first.
INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, :generation::bigint, :parent::text, :run::text, :stream::bigint,
    :seq::bigint, :at::bigint, 0
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation > :generation)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET generation = excluded.generation, parent = excluded.parent, run = excluded.run,
    stream = excluded.stream, seq = excluded.seq, at = excluded.at
WHERE excluded.generation >= thread_checkpoints.dropped AND (excluded.generation, excluded.at, excluded.stream, excluded.seq)
    > (thread_checkpoints.generation, thread_checkpoints.at, thread_checkpoints.stream, thread_checkpoints.seq);

-- name: put_thread_write(owner, thread, ns, id, stream, seq, generation)
-- Projection of ThreadWrote: the entry that has the writes.
INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, generation)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, :stream::bigint, :seq::bigint, :generation::bigint
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation > :generation)
    AND NOT EXISTS (SELECT 1 FROM thread_checkpoints
        WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND dropped > :generation)
ON CONFLICT (owner, thread, ns, id, stream, seq) DO NOTHING;

-- name: raise_thread_generation(owner, thread, generation, deleted_generation, deleted_up_to)
-- Projection of ThreadDropped.
INSERT INTO thread_generations (owner, thread, generation, deleted_generation, deleted_up_to) VALUES (:owner, :thread, :generation, :deleted_generation, :deleted_up_to)
ON CONFLICT (owner, thread) DO UPDATE SET generation = greatest(thread_generations.generation, excluded.generation),
    deleted_generation = greatest(thread_generations.deleted_generation, excluded.deleted_generation), deleted_up_to = greatest(thread_generations.deleted_up_to, excluded.deleted_up_to);

-- name: drop_thread_checkpoint(owner, thread, ns, id, generation)
-- Projection of ThreadDropped: the empty row stays, because its checkpoint may be projected later.
INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, 0, '', '', 0, 0, 0, :generation::bigint
WHERE NOT EXISTS (SELECT 1 FROM thread_generations WHERE owner = :owner AND thread = :thread AND deleted_generation >= :generation)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET
    parent = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN '' ELSE thread_checkpoints.parent END,
    run = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN '' ELSE thread_checkpoints.run END,
    stream = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.stream END,
    seq = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.seq END,
    at = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.at END,
    generation = CASE WHEN thread_checkpoints.generation < excluded.dropped THEN 0 ELSE thread_checkpoints.generation END,
    dropped = greatest(thread_checkpoints.dropped, excluded.dropped);

-- name: check_thread(owner, thread, generation)
-- Nothing of the thread was dropped since it was read.
SELECT 1 / (CASE WHEN coalesce((SELECT generation FROM thread_generations WHERE owner = :owner AND thread = :thread), 0) = :generation THEN 1 ELSE 0 END);

-- name: check_thread_head(owner, thread, ns, parent)
-- A checkpoint must extend the newest one, so that no thread forks unnoticed.
SELECT 1 / (CASE WHEN coalesce((SELECT max(id) FROM thread_checkpoints
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND stream > 0), '') = :parent THEN 1 ELSE 0 END);

-- name: newest_thread_checkpoint(owner, thread, ns)
-- The newest checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.stream = p.stream AND e.seq = p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.stream > 0 ORDER BY p.id DESC LIMIT 1;

-- name: get_thread_checkpoint(owner, thread, ns, id)
-- One checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_checkpoints AS p JOIN journal AS e ON e.stream = p.stream AND e.seq = p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = :id AND p.stream > 0;

-- name: thread_ancestors(owner, thread, ns, id, count)
-- A checkpoint and its ancestors, nearest first.
WITH RECURSIVE line (id, parent, stream, seq, at, depth) AS (
    SELECT id, parent, stream, seq, at, 1 FROM thread_checkpoints
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream > 0
    UNION ALL
    SELECT p.id, p.parent, p.stream, p.seq, p.at, line.depth + 1 FROM line JOIN thread_checkpoints AS p
        ON p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = line.parent AND p.stream > 0
    WHERE line.depth < :count::bigint)
SELECT line.id, line.at, e.kind, e.body FROM line JOIN journal AS e ON e.stream = line.stream AND e.seq = line.seq ORDER BY line.depth;

-- name: thread_writes_between(owner, thread, ns, first, last)
-- Pending writes of checkpoints in a range, in order of arrival.
SELECT w.id, e.kind, e.body FROM thread_writes AS w JOIN journal AS e ON e.stream = w.stream AND e.seq = w.seq
WHERE w.owner = :owner AND w.thread = :thread AND w.ns = :ns AND w.id >= :first AND w.id <= :last
ORDER BY w.id, e.at, w.stream, w.seq;

-- name: thread_checkpoints_page(owner, thread, ns, any_ns, before, count)
-- Checkpoints of a thread without their values, newest first.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_checkpoints
WHERE owner = :owner AND thread = :thread AND (:any_ns::bigint = 1 OR ns = :ns) AND (:before::text = '' OR id < :before) AND stream > 0
ORDER BY id DESC, ns LIMIT :count;

-- name: all_thread_checkpoints_page(owner, before, count)
-- Checkpoints of all threads without their values, newest first.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_checkpoints
WHERE owner = :owner AND (:before::text = '' OR id < :before) AND stream > 0
ORDER BY id DESC, thread, ns LIMIT :count;

-- name: drop_document_words(owner, kind, space, key)
-- Nothing to do: a foreign key deletes the words with the documents.

-- name: drop_documents(owner, kind, space, key)
-- Delete documents whose value changed or is gone; a foreign key deletes their words.
DELETE FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key;

-- name: put_document_words(owner, kind, space, key, part, words)
-- Index the words of a document; words are separated by spaces. Positions are kept, so that they can be counted.
INSERT INTO document_words (document, words) SELECT id, coalesce((
    SELECT string_agg('''' || word || ''':' || places, ' ') FROM (
        SELECT word, string_agg(least(place, 16383)::text, ',') AS places
        FROM unnest(string_to_array(:words::text, ' ')) WITH ORDINALITY AS cut (word, place)
        WHERE word <> '' GROUP BY word) AS counted), '')::tsvector
FROM documents
WHERE owner = :owner::bigint AND kind = :kind::text AND space = :space::text AND key = :key::text AND part = :part::text;

-- name: documents_now()
-- A cursor for `documents_since`: it will see everything that is written, or being written, from now on.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: documents_since(owner, kind, embedder, since)
-- Documents written since a cursor, for the vectors in memory; 0 means all.
SELECT id, space, key, part, version, vector FROM documents
WHERE owner = :owner AND kind = :kind AND embedder = :embedder AND arrival >= :since AND length(vector) > 0 ORDER BY id;

-- name: documents_with_words(owner, kind, first, last, tree, words, count)
-- Documents with some of these words, best first by BM25: rare words weigh more. Words are separated by spaces.
SELECT space, key, version, sum(rarity * often * 2.2 / (often + 0.3 + 0.9 * size / mean))::float8 AS score FROM (
    SELECT space, key, version, document, often, size,
        ln(1 + (total.number - count(*) OVER word + 0.5) / (count(*) OVER word + 0.5)) AS rarity,
        avg(size) OVER () AS mean
    FROM (
        SELECT documents.space, documents.key, version, document, lexeme,
            cardinality(positions)::float8 AS often, length(words)::float8 AS size
        FROM document_words JOIN documents ON documents.id = document, unnest(words) AS cut
        WHERE words @@ ('''' || replace(:words::text, ' ', ''' | ''') || '''')::tsquery
          AND lexeme = ANY (string_to_array(:words::text, ' '))
          AND documents.owner = :owner::bigint AND documents.kind = :kind::text) AS hits
    CROSS JOIN (SELECT count(*)::float8 AS number FROM documents
        WHERE owner = :owner::bigint AND kind = :kind::text) AS total
    WINDOW word AS (PARTITION BY lexeme)) AS weighed
WHERE space >= :first::text AND space < :last::text
  AND (:tree::text = '' OR space = :first::text OR substr(space, 1, length(:tree::text)) = :tree::text)
GROUP BY space, key, version, document ORDER BY score DESC, space, key LIMIT :count::bigint;

-- name: documents_page(after, count)
-- Some documents, for copies; and whether each is in the word index.
SELECT id, owner, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE document = documents.id) FROM documents WHERE id > :after ORDER BY id LIMIT :count;

-- name: agent_state_under(owner, first, last, tree, now, count, skipped)
-- The latest values of a namespace and of those below it, whose names start with `tree`, newest first.
SELECT namespace, key, value, version, at, expires, created, lasts FROM agent_state
WHERE owner = :owner AND namespace >= :first AND namespace < :last
  AND (:tree::text = '' OR namespace = :first OR substr(namespace, 1, length(:tree::text)) = :tree::text)
  AND substr(namespace, 1, 8) <> 'perdure:' AND length(value) > 0 AND (expires = 0 OR expires > :now)
ORDER BY at DESC, namespace, key LIMIT :count OFFSET :skipped;

-- name: agent_state_among(owner, which, now)
-- Many keys at once; `which` is a JSON list of [namespace, key].
SELECT namespace, key, value, version, at, expires, created, lasts FROM agent_state
WHERE owner = :owner AND (namespace, key) IN (SELECT it ->> 0, it ->> 1 FROM jsonb_array_elements(:which::jsonb) AS it)
  AND length(value) > 0 AND (expires = 0 OR expires > :now);

-- name: erase_entry(stream, seq, digest)
-- Erase the body of an entry. Its digest stays, so that the chain still verifies.
UPDATE journal SET body = NULL, digest = :digest WHERE stream = :stream AND seq = :seq AND body IS NOT NULL;

-- name: entries_of_kind(kind, since, until)
-- The entries of a kind in a span of time. Reads the whole journal.
SELECT stream, seq, body FROM journal
WHERE kind = :kind AND at >= :since AND at <= :until AND body IS NOT NULL ORDER BY stream, seq;

-- name: erase_run(stream, agent, id, parent, started_at, at)
-- Projection of RunErased. On rebuild the run has no row yet, because its first entry was erased.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error)
VALUES (:stream, :agent, :id, 'erased', '', :parent, :started_at, :at, 0, 0, '')
ON CONFLICT (stream) DO UPDATE SET status = 'erased', input_digest = excluded.input_digest,
    changed_at = excluded.changed_at, resumes = 0, outcome = 0, error = '';

-- name: memories_on_subject(owner, person, kind, about, now, count)
-- Valid memories on the subject of a new one: they may repeat or contradict it.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta FROM (
    SELECT * FROM memories
    WHERE owner = :owner AND about = :about AND about <> '' AND person = :person AND kind = :kind AND ended = 0
      AND (expires = 0 OR expires > :now) ORDER BY valid_from DESC LIMIT :count) AS near
ORDER BY recorded DESC, id DESC;

-- name: memories_with_same_words(owner, person, kind, about, sketch, now, count)
-- Valid memories with the words of a new one, on its subject or on none.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta
FROM memories
WHERE owner = :owner AND sketch = :sketch AND about = :about AND person = :person AND kind = :kind AND ended = 0
  AND (expires = 0 OR expires > :now) ORDER BY recorded DESC, id DESC LIMIT :count;

-- name: links_of(owner, ids)
-- Where some memories stand among those that superseded each other; ids are a JSON list.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories WHERE owner = :owner AND id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: memories_by_id(owner, ids)
-- Some memories, valid or not; ids are a JSON list.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: memories_repeated(owner, ids)
-- The memories that these ids repeat.
SELECT other, id FROM memory_relations WHERE owner = :owner AND what = 'again' AND other IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: memory_relations_of(owner, ids)
-- Relations from and to some memories.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb))
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND other IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb))
ORDER BY at, stream, seq, id, what, other;

-- name: memory_relations_but_repeats(owner, ids)
-- Relations from and to some memories without repeats: these can be many. An array makes the planner use the indexes.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_relations
WHERE owner = :owner AND other = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
ORDER BY at, stream, seq, id, what, other;

-- name: memories_page(owner, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, at, before, count)
-- The newest memories that pass a filter, from a place in their order on. `past` is 1 when `moment` is not now. Future facts count only when asked for.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner
  AND (:kind::text = '' OR m.kind = :kind::text) AND (:person::text = '' OR m.person = :person::text)
  AND (:source::text = '' OR m.source = :source::text) AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))))
  AND (m.recorded, m.id) < (:at::bigint, :before::text)
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_about(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, at, before, count)
-- The newest memories on a subject that pass a filter, from a place in their order on.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.about = :about::text AND m.about <> ''
  AND (:kind::text = '' OR m.kind = :kind::text) AND (:person::text = '' OR m.person = :person::text)
  AND (:source::text = '' OR m.source = :source::text) AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))))
  AND (m.recorded, m.id) < (:at::bigint, :before::text)
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: count_memory_use(owner, id, uses, last)
-- Count a use of a memory.
INSERT INTO memory_uses (owner, id, uses, last) VALUES (:owner, :id, :uses, :last)
ON CONFLICT (owner, id) DO UPDATE SET uses = memory_uses.uses + excluded.uses, last = greatest(memory_uses.last, excluded.last);

-- name: put_chunk(owner, memory, part, thread, place, length, asks, day, told, terms)
-- Insert the search chunk of a memory, or one of several; its words are a generated column.
INSERT INTO chunks (owner, memory, part, thread, place, length, asks, day, told, terms)
VALUES (:owner, :memory, :part, :thread, :place, :length, :asks, :day, :told, :terms)
ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_missing_chunk(owner, memory, part, thread, place, length, asks, day, told, terms)
-- Insert the chunk of a memory that was stored without one, unless the memory is being forgotten.
INSERT INTO chunks (owner, memory, part, thread, place, length, asks, day, told, terms)
SELECT owner, id, :part::bigint, :thread::text, :place::bigint, :length::bigint, :asks::bigint, :day::bigint, :told::bytea,
    :terms::text
FROM memories WHERE owner = :owner::bigint AND id = :memory::text FOR SHARE ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_chunk_words()
-- Nothing to do: the words are a generated column of the chunk.

-- name: put_chunk_vector(owner, memory, part, embedder, vector)
-- Store a chunk's vector, unless the chunk is gone.
INSERT INTO chunk_vectors (chunk, owner, embedder, vector) SELECT id, owner, :embedder::text, :vector::real[] FROM chunks
WHERE owner = :owner::bigint AND memory = :memory::text AND part = :part::bigint FOR SHARE
ON CONFLICT (chunk, embedder) DO NOTHING;

-- name: drop_chunk_words(owner, memory)
-- Nothing to do: the words are a column of the chunk.

-- name: drop_chunk_vectors(owner, memory)
-- Nothing to do: a foreign key deletes the vectors with the chunks.

-- name: drop_chunks(owner, memory)
-- Delete the chunks of an erased memory, with their words and vectors.
DELETE FROM chunks WHERE owner = :owner AND memory = :memory;

-- name: last_chunk_number()
-- A number that grows with every chunk.
SELECT coalesce((SELECT id FROM chunks ORDER BY id DESC LIMIT 1), 0);

-- name: chunk_totals(owner)
-- The number of chunks of an agent, and their total length.
SELECT count(*), coalesce(sum(length), 0)::bigint FROM chunks WHERE owner = :owner;

-- name: term_counts(owner)
-- How many chunks have each term.
SELECT substr(word, length(:owner::bigint::text) + 3), ndoc::bigint
FROM ts_stat('SELECT words FROM chunks WHERE owner = ' || :owner::bigint);

-- name: matching_chunks(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- Chunks whose memories pass a filter. Filters on one user or subject use their index.
SELECT p.id FROM (
    SELECT * FROM memories WHERE owner = :owner::bigint AND :person::text = '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND person = :person::text AND person <> '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND about = :about::text AND about <> '') AS m
JOIN chunks AS p ON p.owner = m.owner AND p.memory = m.id
WHERE (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint))))) LIMIT :count::bigint;

-- name: chunks_among(ids)
-- Some chunks; ids are a JSON list.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms FROM chunks AS p WHERE p.id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: chunks_in_ranges(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Chunks at some positions that pass a filter; `ranges` is a JSON list of [thread, first, last].
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN chunks AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
    AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint
JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))));

-- name: chunks_in_ranges_compared(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, embedder, vector)
-- Chunks at some positions that pass a filter, with similarity where the store compares vectors.
WITH there AS MATERIALIZED (
    SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
    FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN chunks AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
        AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint
    JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
    WHERE (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
      AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
      AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
      AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
      AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
        AND (m.expires = 0 OR m.expires > :moment::bigint)
        AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
        AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint))))))
SELECT there.*, near.near FROM there LEFT JOIN (
    SELECT chunk, near FROM nearness(:embedder::text, :vector::real[], ARRAY(SELECT id FROM there))) AS near
ON near.chunk = there.id;

-- name: all_chunks_in_ranges(owner, ranges)
-- Chunks at some positions, valid or not; `ranges` is a JSON list of [thread, first, last].
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN chunks AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
    AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint;

-- name: all_chunks_in_ranges_compared(owner, ranges, embedder, vector)
-- Chunks at some positions, valid or not, with similarity where the store compares vectors.
WITH there AS MATERIALIZED (
    SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
    FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN chunks AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
        AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint)
SELECT there.*, near.near FROM there LEFT JOIN (
    SELECT chunk, near FROM nearness(:embedder::text, :vector::real[], ARRAY(SELECT id FROM there))) AS near
ON near.chunk = there.id;

-- name: memories_matching(owner, ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Those of some memories that pass a filter; ids are a JSON list.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))));

-- name: chunks_with_words(words, count)
-- Chunks with some of these words, best first; words are a JSON list of [word, weight]. The planner expects ten per array.
WITH asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it)
SELECT p.id FROM asked JOIN chunks AS p ON p.words @@ asked.word
GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count::bigint;

-- name: positions_with_words(words, count)
-- Positions of chunks with some of these words, best first; words are a JSON list of [word, weight].
WITH asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it)
SELECT p.id, p.thread, p.place FROM chunks AS p WHERE p.id = ANY (ARRAY(
    SELECT had.id FROM asked JOIN chunks AS had ON had.words @@ asked.word
    GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count::bigint));

-- name: positions_of_days(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, first, last, count)
-- Positions of chunks of a range of days that pass a filter, oldest first.
SELECT p.id, p.thread, p.place FROM chunks AS p JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.owner = :owner::bigint AND p.day BETWEEN :first::bigint AND :last::bigint AND (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))))
ORDER BY p.day, p.id LIMIT :count::bigint;

-- name: owners_of_chunks(ids)
-- Whose some chunks are, before a remote client reads them; ids are a JSON list.
SELECT DISTINCT owner FROM chunks WHERE id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: positions_of_chunks(ids)
-- Positions of some chunks; ids are a JSON list.
SELECT id, thread, place FROM chunks WHERE id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: positions_matching(ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Positions of some chunks that pass a filter; ids are a JSON list.
SELECT p.id, p.thread, p.place FROM chunks AS p JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb))) AND (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))));

-- name: vectors_now()
-- A cursor for `vectors_since`: it will see everything that is written, or being written, from now on.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: vectors_since(owner, embedder, since)
-- Vectors written since a cursor; 0 means all.
SELECT chunk, vector FROM chunk_vectors
WHERE owner = :owner AND embedder = :embedder AND arrival >= :since ORDER BY number;

-- name: vectors_among(embedder, ids)
-- Vectors of some chunks; ids are a JSON list.
SELECT chunk, vector FROM chunk_vectors
WHERE embedder = :embedder::text AND chunk = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: vectors_of_memories(owner, memories)
-- Which vectors some memories have, and of which model; memories is a JSON list of ids.
SELECT v.chunk, v.embedder FROM chunks AS p JOIN chunk_vectors AS v ON v.chunk = p.id
WHERE p.owner = :owner::bigint AND p.memory = ANY (ARRAY(SELECT jsonb_array_elements_text(:memories::jsonb)));

-- name: vector_schema()
-- Where pgvector is installed; empty where the store does not compare vectors itself.
SELECT vector_schema() WHERE vector_schema() IS NOT NULL;

-- name: nearest_chunks(owner, embedder, vector, count)
-- Positions of the nearest chunks by index, where the store compares vectors.
SELECT p.id, p.thread, p.place FROM near_chunks(:owner::bigint, :embedder::text, :vector::real[], :count::bigint) AS near
JOIN chunks AS p ON p.id = near.chunk;

-- name: nearest_by_scan(owner, embedder, vector, count)
-- The nearest chunks, each of them compared, where the store compares vectors; nearest first.
SELECT chunk FROM nearest_by_scan(:owner::bigint, :embedder::text, :vector::real[], :count::bigint);

-- name: candidate_chunks(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, few, most, words, of_words, embedder, vector, of_meaning)
-- Positions of chunks that pass a filter, by words and by vector; all of them without a position if few, no number if too many.
WITH chosen AS MATERIALIZED (
    SELECT m.owner, m.id FROM (
    SELECT * FROM memories WHERE owner = :owner::bigint AND :person::text = '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND person = :person::text AND person <> '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND about = :about::text AND about <> '') AS m
    WHERE (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))))
    LIMIT :most::bigint + 1),
room AS MATERIALIZED (SELECT count(*) > :most::bigint AS wide FROM chosen),
passing AS MATERIALIZED (
    SELECT p.id FROM chosen JOIN chunks AS p ON p.owner = chosen.owner AND p.memory = chosen.id WHERE NOT (SELECT wide FROM room)),
counted AS MATERIALIZED (SELECT count(*) > :few::bigint AS many FROM passing),
asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it
    WHERE (SELECT many FROM counted)),
had AS MATERIALIZED (SELECT p.id, sum(asked.worth) AS worth FROM asked JOIN chunks AS p ON p.words @@ asked.word GROUP BY 1),
hits AS (
    SELECT had.id FROM had JOIN passing ON passing.id = had.id ORDER BY had.worth DESC, had.id DESC LIMIT :of_words::bigint),
nearest AS (
    SELECT chunk FROM nearness(
        :embedder::text, :vector::real[], ARRAY(SELECT id FROM passing WHERE (SELECT many FROM counted)))
    ORDER BY near DESC LIMIT :of_meaning::bigint)
SELECT p.id, p.thread, p.place FROM chunks AS p WHERE p.id = ANY (ARRAY(SELECT id FROM hits UNION SELECT chunk FROM nearest))
UNION ALL
SELECT id, NULL, 0 FROM passing WHERE NOT (SELECT many FROM counted)
UNION ALL
SELECT NULL, NULL, 0 FROM room WHERE wide;

-- name: prefer_indexes()
-- The chunks are cached: make the following statements use an index where they can.
SELECT set_config('random_page_cost', '1.1', true);

-- name: vector_similarity(embedder, vector, ids)
-- Similarity of some chunks, where the store compares vectors; ids are a JSON list.
SELECT chunk, near FROM nearness(:embedder::text, :vector::real[],
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: index_vectors(embedder, dims)
-- Create the index for a model's vectors, where the store has one.
SELECT index_vectors(:embedder::text, :dims::bigint);

-- name: departure_of(name)
-- The departure of an agent, if it left: checked by whatever creates or takes one of its streams.
SELECT journal.kind, journal.at, journal.body FROM agents JOIN journal ON journal.stream = agents.stream AND journal.seq = agents.gone
WHERE agents.name = :name AND agents.gone > 0;

-- name: lock_agent(name)
-- Before an agent leaves: writers for it in other streams have finished, or wait.
SELECT gone FROM agents WHERE name = :name FOR UPDATE;

-- name: hold_agent(stream)
-- Before writing for an agent in another agent's stream: it cannot leave meanwhile.
SELECT name FROM agents WHERE stream = :stream FOR KEY SHARE;

-- name: lock_streams()
-- No stream is created until this transaction ends.
SELECT last FROM stream_count FOR UPDATE;

-- name: append_erased(stream, seq, kind, at, chain, digest)
-- Append an entry that was erased in the store it comes from.
INSERT INTO journal (stream, seq, kind, at, body, chain, digest) VALUES (:stream, :seq, :kind, :at, NULL, :chain, :digest);

-- name: documents_of(owner, after, count)
-- The searchable texts of an agent, to move them.
SELECT id, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE document = documents.id) FROM documents
WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: renumber_events_of(owner)
-- Number the events of an arrived agent by time. Later events come after these.
WITH numbered AS (
    UPDATE events SET arrival = ranked.number FROM (
        SELECT stream, seq, place, row_number() OVER (ORDER BY at, stream, seq, place) AS number
        FROM events WHERE owner = :owner) AS ranked
    WHERE events.owner = :owner AND events.stream = ranked.stream AND events.seq = ranked.seq
      AND events.place = ranked.place RETURNING 1)
UPDATE arrivals SET base = base + (SELECT count(*) FROM numbered);

-- name: drop_document_words_of(owner)
-- Nothing to do: a foreign key deletes the words with the documents.

-- name: drop_chunk_words_of(owner)
-- Nothing to do: the words are a column of the chunk.

-- name: drop_chunk_vectors_of(owner)
-- Nothing to do: a foreign key deletes the vectors with the chunks.

-- name: drop_chunks_of(owner)
-- Delete the chunks of an agent that comes back with its own; words and vectors go with them.
DELETE FROM chunks WHERE owner = :owner;
