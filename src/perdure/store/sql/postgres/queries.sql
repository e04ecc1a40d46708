-- The same statements as for SQLite, under the same names and parameters.
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

-- name: append_event(stream, seq, kind, at, body, chain, fence)
-- One entry of the journal, only while the writer's fence is the stream's; a takeover waits until we have committed.
-- Answered with the number of the last order.
INSERT INTO events (stream, seq, kind, at, body, chain)
VALUES ((SELECT stream FROM leases WHERE stream = :stream AND fence = :fence FOR SHARE), :seq, :kind, :at, :body, :chain)
RETURNING (SELECT ordered FROM leases WHERE stream = :stream);

-- name: events_of(stream, after)
-- A stream in order, to resume from it, to show it, to verify it.
SELECT seq, kind, at, body, chain, digest FROM events WHERE stream = :stream AND seq > :after ORDER BY seq;

-- name: events_page(stream, first, count)
-- A piece of a stream, for verify and rebuild, which read streams of any length in little memory.
SELECT seq, kind, at, body, chain, digest FROM events
WHERE stream = :stream AND seq >= :first ORDER BY seq LIMIT :count;

-- name: last_folded(stream)
-- The entry that says what was folded of a stream, if anything was: from it verify, rebuild and replay start.
SELECT seq, kind, at, body, chain, digest FROM events
WHERE kind = 50 AND stream = :stream ORDER BY seq DESC LIMIT 1;

-- name: drop_events(stream, first, last)
-- Entries that were archived and folded.
DELETE FROM events WHERE stream = :stream AND seq >= :first AND seq <= :last;

-- name: drop_seals(stream, before)
-- Signed heads in the middle of what was folded: nobody can compare them any more. They are in the archive.
DELETE FROM seals WHERE stream = :stream AND seq < :before;

-- name: progress_of(stream)
-- How far a run got: how many entries of each kind it has.
SELECT kind, count(*) FROM events WHERE stream = :stream GROUP BY kind;

-- name: event_at(stream, seq)
-- One entry, for the result of a run without replay.
SELECT seq, kind, at, body, chain, digest FROM events WHERE stream = :stream AND seq = :seq;

-- name: chain_at(stream, seq)
-- Whether an entry whose commit was never answered is there, and is ours.
SELECT chain FROM events WHERE stream = :stream AND seq = :seq;

-- name: head_of(stream)
-- Where the chain of a stream ends.
SELECT seq, chain FROM events WHERE stream = :stream ORDER BY seq DESC LIMIT 1;

-- name: orphan_events()
-- Entries of streams that are not there: only tampering makes them.
SELECT DISTINCT stream FROM events WHERE NOT EXISTS (SELECT 1 FROM streams WHERE streams.id = events.stream);

-- name: add_stream(kind, name, at)
-- The next stream; numbers have no gaps because the row of the last number stays locked until this transaction ends.
WITH next AS (UPDATE stream_count SET last = last + 1 RETURNING last)
INSERT INTO streams (id, kind, name, at) SELECT last, :kind::text, :name::text, :at::bigint FROM next RETURNING id;

-- name: all_streams()
-- For verify and rebuild.
SELECT id, kind, name, at FROM streams ORDER BY id;

-- name: streams_page(after, count)
-- The same in pieces.
SELECT id, kind, name, at FROM streams WHERE id > :after ORDER BY id LIMIT :count;

-- name: stream_heads()
-- How long each stream is: what is appended later is new to who has read up to here.
SELECT id, (SELECT max(seq) FROM events WHERE stream = streams.id) FROM streams ORDER BY id;

-- name: count_streams()
-- Signed with every seal, so that a stream removed later is missed.
SELECT coalesce(max(id), 0) FROM streams;

-- name: add_seal(stream, seq, chain, streams, public_key, signature)
-- A signed head. One that is sealed twice, because a commit was repeated, is sealed once.
INSERT INTO seals (stream, seq, chain, streams, public_key, signature)
VALUES (:stream, :seq, :chain, :streams, :public_key, :signature) ON CONFLICT (stream, seq) DO NOTHING;

-- name: all_seals()
-- For verify.
SELECT stream, seq, chain, streams, public_key, signature FROM seals ORDER BY stream, seq;

-- name: seals_of(stream)
-- The signed heads of a stream.
SELECT stream, seq, chain, streams, public_key, signature FROM seals WHERE stream = :stream ORDER BY seq;

-- name: orphan_seals()
-- Signed heads of streams that are not there: the streams were removed.
SELECT DISTINCT stream FROM seals WHERE stream NOT IN (SELECT id FROM streams);

-- name: most_streams()
-- How many streams there have been at the least, going by what was signed.
SELECT coalesce(max(streams), 0) FROM seals;

-- name: get_meta(key)
-- A fact about the store.
SELECT value FROM meta WHERE key = :key;

-- name: put_meta(key, value)
-- Set once, when the store is created.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: facts_like(prefix)
-- Facts about the store whose keys begin alike.
SELECT key, value FROM meta WHERE substr(key, 1, length(:prefix)) = :prefix ORDER BY key;

-- name: store_bytes()
-- What the tables of the store take on disk, with their indexes; how much of it is empty only the server knows.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint, 0::bigint FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r';

-- name: check_file()
-- The pages of the database are the server's affair (checksums, amcheck): a client has nothing to look at.
SELECT 'ok';

-- name: planted()
-- Code in the schema that is not ours: the server runs it for whoever reads or writes there.
SELECT 'trigger ' || tgname || ' on ' || relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = current_schema()::regnamespace AND NOT tgisinternal
UNION ALL SELECT 'rule ' || rulename || ' on ' || tablename FROM pg_rules WHERE schemaname = current_schema()
UNION ALL SELECT 'policy ' || policyname || ' on ' || tablename FROM pg_policies WHERE schemaname = current_schema()
UNION ALL SELECT 'view ' || viewname FROM pg_views WHERE schemaname = current_schema() ORDER BY 1;

-- name: clock_now()
-- The time by the store's own clock, in milliseconds since 1970.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- name: last_home()
-- Where the store was last used.
SELECT host, file FROM homes ORDER BY id DESC LIMIT 1;

-- name: add_home(host, file, at)
-- The store is used here now.
INSERT INTO homes (host, file, at) VALUES (:host, :file, :at);

-- name: put_object(id, size, data)
-- A large value, kept once. Locks the row of an old one, so that it is not collected before this commit refers to it:
-- also where the condition does not hold. What its id stands for is known: other bytes there are damaged (or compressed
-- by another release, and as good), and are replaced, so that who writes it again can read it.
INSERT INTO objects (id, size, data) VALUES (:id, :size, :data)
ON CONFLICT (id) DO UPDATE SET size = excluded.size, data = excluded.data
WHERE objects.data <> excluded.data OR objects.size <> excluded.size;

-- name: get_object(id)
-- A large value.
SELECT size, data FROM objects WHERE id = :id;

-- name: get_objects(ids)
-- Many large values at once; their ids, 32 bytes each, one behind the other.
SELECT id, size, data FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: all_objects()
-- What the large values take.
SELECT id, size, length(data) FROM objects;

-- name: count_objects()
-- How large the collector's memory must be.
SELECT count(*) FROM objects;

-- name: objects_page(after, count)
-- The objects in pieces, with what each takes, for the collector.
SELECT id, length(data) FROM objects WHERE id > :after ORDER BY id LIMIT :count;

-- name: object_ids(after, count)
-- The objects in pieces, for verify.
SELECT id FROM objects WHERE id > :after ORDER BY id LIMIT :count;

-- name: has_object(id)
-- Whether a large value is there, without reading it.
SELECT 1 FROM objects WHERE id = :id;

-- name: lock_objects(ids)
-- The objects of these ids that nobody is about to refer to; whoever wants to waits until we have decided.
SELECT id FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place)
FOR UPDATE SKIP LOCKED;

-- name: drop_object(id)
-- Nobody refers to it any more.
DELETE FROM objects WHERE id = :id;

-- name: stored_sizes(ids)
-- What objects take on disk; their ids, 32 bytes each, one behind the other.
SELECT id, length(data) FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: hold_objects(ids)
-- Which of them are there, and stay there until this transaction ends: whoever collects waits.
SELECT id FROM objects WHERE id IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place) ORDER BY id FOR KEY SHARE;

-- name: keep_upload(upload, at, holder)
-- An upload begins, or goes on: only after a look that it is there, because what a lost one had written may be gone.
INSERT INTO uploads (id, at, holder) VALUES (:upload, :at, :holder) ON CONFLICT (id) DO UPDATE SET at = excluded.at;

-- name: add_pending(upload, ids)
-- What an upload needs from now on; ids as above.
INSERT INTO pending (upload, object)
SELECT :upload::bigint, substring(:ids::bytea FROM place FOR 32)
FROM generate_series(1, length(:ids::bytea), 32) AS place
ON CONFLICT (upload, object) DO NOTHING;

-- name: lock_upload(upload)
-- Whether an upload is still there, so that all that it has written is; nobody takes it away meanwhile.
SELECT at FROM uploads WHERE id = :upload FOR UPDATE;

-- name: drop_upload(upload)
-- An entry refers to what it has written.
DELETE FROM uploads WHERE id = :upload;

-- name: drop_pending(upload)
-- An entry refers to them.
DELETE FROM pending WHERE upload = :upload;

-- name: drop_old_uploads(before, boot, now)
-- Nobody has gone on with them for so long, and the process is gone.
DELETE FROM uploads WHERE at < :before AND NOT EXISTS (
    SELECT 1 FROM holders WHERE holders.id = uploads.holder AND :boot::text IS NOT NULL
      AND deadline >= (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint);

-- name: drop_stray_pending()
-- What is left of uploads that are gone.
DELETE FROM pending WHERE NOT EXISTS (SELECT 1 FROM uploads WHERE uploads.id = pending.upload);

-- name: pending_among(ids)
-- Which of these objects an upload needs by now.
SELECT object FROM pending WHERE object IN (
    SELECT substring(:ids::bytea FROM place FOR 32) FROM generate_series(1, length(:ids::bytea), 32) AS place);

-- name: all_pending(before, boot, now)
-- What must not be collected, although no entry refers to it yet.
SELECT object FROM pending JOIN uploads ON uploads.id = pending.upload
WHERE uploads.at >= :before OR EXISTS (SELECT 1 FROM holders WHERE holders.id = uploads.holder AND deadline >=
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL);

-- name: count_dead_holders(boot, now)
-- How many the next statement would remove.
SELECT count(*) FROM holders
WHERE deadline < (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: drop_dead_holders(boot, now)
-- What crashed processes left behind; here another boot id is another machine, and proves nothing: only time does.
DELETE FROM holders
WHERE deadline < (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint AND :boot::text IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.holder = holders.id);

-- name: renew_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- The heartbeat. Puts the row back when a long silence was taken for death: without it, new leases would name nobody.
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
VALUES (:holder, :boot, :namespace, :pid, :started, :host, :at,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint + :ttl::bigint)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: keep_holder(holder, boot, namespace, pid, started, host, at, now, ttl)
-- Before a lease names this holder: its row is there, with time left. All runs of a process open side by side: its row is
-- only kept from being dropped, which many may do at once, and renewed when the heart has missed a beat.
WITH here AS (
    SELECT 1 FROM holders WHERE id = :holder
      AND deadline > (extract(epoch FROM clock_timestamp()) * 1000)::bigint + :ttl::bigint / 2 FOR KEY SHARE)
INSERT INTO holders (id, boot, namespace, pid, started, host, at, deadline)
SELECT :holder, :boot, :namespace, :pid, :started, :host, :at,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint + :ttl::bigint
WHERE NOT EXISTS (SELECT 1 FROM here)
ON CONFLICT (id) DO UPDATE SET deadline = excluded.deadline;

-- name: release_all(holder)
-- The process closes the store: whatever it had open can be taken at once.
UPDATE leases SET holder = NULL WHERE holder = :holder;

-- name: drop_holder(holder)
-- And it holds nothing any more.
DELETE FROM holders WHERE id = :holder;

-- name: holders_at_work(now)
-- Processes that hold runs, for doctor: a dead one has left runs that can be resumed.
SELECT holders.id, boot, namespace, pid, started, host, holders.at,
       deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint), count(*)
FROM holders JOIN leases ON leases.holder = holders.id JOIN streams ON streams.id = leases.stream
WHERE streams.kind = 'run' GROUP BY holders.id ORDER BY holders.at, holders.id;

-- name: add_lease(stream, holder)
-- A new stream belongs to its maker.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, 1, :holder);

-- name: add_fork_lease(stream, fence)
-- A fork belongs to nobody until it is opened; its fences go on where those of its origin are.
INSERT INTO leases (stream, fence, holder) VALUES (:stream, :fence, NULL);

-- name: hold_lease(stream)
-- The fence of a stream, that nobody folds or takes over until this transaction ends.
SELECT fence FROM leases WHERE stream = :stream FOR SHARE;

-- name: lock_forks(stream)
-- Nobody forks a run until this transaction ends: who does holds its lease.
SELECT fence FROM leases WHERE stream = :stream FOR UPDATE;

-- name: read_lease(stream, now)
-- Who holds a stream, and for how many milliseconds more.
SELECT leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid, holders.started, holders.host,
       holders.at, holders.deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM leases LEFT JOIN holders ON holders.id = leases.holder WHERE leases.stream = :stream;

-- name: time_left(holder, now)
-- Once more, when the lease is locked: somebody who has renewed since then is not taken for dead.
SELECT deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM holders WHERE id = :holder;

-- name: all_leases()
-- For a copy of the store.
SELECT stream, fence, ordered FROM leases ORDER BY stream;

-- name: take_lease(stream, fence, holder)
-- Takeover: the next fence, unless somebody else was quicker.
WITH taken AS (
    UPDATE leases SET fence = fence + 1, holder = :holder WHERE stream = :stream AND fence = :fence RETURNING 1)
SELECT 1 / count(*) FROM taken;

-- name: release_lease(stream, fence)
-- The end of a run, in the same transaction as its last entry.
UPDATE leases SET holder = NULL WHERE stream = :stream AND fence = :fence;

-- name: check_lease(stream, fence)
-- Is this still ours? Looked at before an effect when the deadline has passed. Waits for a takeover that has begun.
SELECT 1 FROM leases WHERE stream = :stream AND fence = :fence FOR SHARE;

-- name: add_agent(name, stream, public_key, at)
-- Fold of AgentCreated.
INSERT INTO agents (name, stream, public_key, at) VALUES (:name, :stream, :public_key, :at);

-- name: get_agent(name)
-- The identity behind a name.
SELECT stream, public_key FROM agents WHERE name = :name;

-- name: all_agents()
-- For doctor and rebuild.
SELECT name, stream, public_key, at, gone FROM agents ORDER BY name;

-- name: add_run(stream, agent, id, input_digest, parent, at)
-- Fold of RunStarted.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error)
VALUES (:stream, :agent, :id, 'running', :input_digest, :parent, :at, :at, 0, 0, '');

-- name: add_fork(stream, agent, id, status, input_digest, origin, cut, error, at)
-- Fold of Forked.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error,
                  origin, cut)
VALUES (:stream, :agent, :id, :status, :input_digest, 0, :at, :at, 0, 0, :error, :origin, :cut);

-- name: cut_of(stream)
-- Of a fork: the last entry that it shares.
SELECT cut FROM runs WHERE stream = :stream AND origin > 0;

-- name: forks_of(origin)
-- The runs that have their beginning from a run: it cannot be folded.
SELECT stream, agent, id, cut FROM runs WHERE origin = :origin AND origin > 0 ORDER BY stream;

-- name: resume_run(stream, at)
-- Fold of RunResumed. One that is cancelled, and cleans up, is opened for that only.
UPDATE runs SET changed_at = :at, resumes = resumes + 1, outcome = 0, error = '', status = CASE
    WHEN status = 'cancelling' THEN status
    WHEN EXISTS (SELECT 1 FROM questions WHERE questions.stream = :stream AND open = 1) THEN 'waiting' ELSE 'running' END
WHERE stream = :stream;

-- name: go_on_with_run(stream, at)
-- Fold of QuestionClosed: at work again, unless it waits for something else.
UPDATE runs SET changed_at = :at, outcome = 0, error = '', status = CASE
    WHEN EXISTS (SELECT 1 FROM questions WHERE questions.stream = :stream AND open = 1) THEN 'waiting' ELSE 'running' END
WHERE stream = :stream;

-- name: set_resumes(stream, resumes)
-- Fold of Folded: how often a run was resumed, which its entries do not tell any more.
UPDATE runs SET resumes = :resumes WHERE stream = :stream;

-- name: finished_runs(agent, before)
-- Runs of an agent that ended well before a time: what can be folded. Neither forks nor what they share.
SELECT stream FROM runs WHERE agent = :agent AND status = 'finished' AND changed_at < :before AND origin = 0
  AND NOT EXISTS (SELECT 1 FROM runs AS fork WHERE fork.origin = runs.stream AND fork.origin > 0) ORDER BY stream;

-- name: set_run_status(stream, status, at, outcome, error)
-- Fold of what ends, interrupts or holds a run.
UPDATE runs SET status = :status, changed_at = :at, outcome = :outcome, error = :error WHERE stream = :stream;

-- name: get_run(agent, id)
-- A run by its name.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, origin, cut
FROM runs WHERE agent = :agent AND id = :id;

-- name: find_runs(id)
-- A run by its id alone, for the command line.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, origin, cut
FROM runs WHERE id = :id ORDER BY agent;

-- name: runs_like(beginning, count)
-- The newest runs whose id begins like this, for a shell that completes it.
SELECT id, agent, status FROM runs WHERE left(id, length(:beginning::text)) = :beginning::text ORDER BY changed_at DESC, stream DESC LIMIT :count;

-- name: children_of(stream)
-- The runs that a run has opened inside itself, oldest first.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, origin, cut
FROM runs WHERE parent = :stream AND parent <> 0 ORDER BY stream;

-- name: all_runs()
-- Newest first.
SELECT stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, origin, cut
FROM runs ORDER BY changed_at DESC, stream DESC;

-- name: put_state(owner, namespace, key, value, at)
-- Fold of a SET write.
INSERT INTO state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, 1, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = state.version + 1, at = excluded.at;

-- name: carry_state(owner, namespace, key, value, version, at)
-- Fold of Folded: the state of a run as it was at its end.
INSERT INTO state (owner, namespace, key, value, version, at) VALUES (:owner, :namespace, :key, :value, :version, :at)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = excluded.version, at = excluded.at;

-- name: drop_state(owner, namespace, key)
-- Fold of a DELETE write.
DELETE FROM state WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: state_of(owner)
-- Latest values, as other processes see them.
SELECT namespace, key, value, version, at FROM state WHERE owner = :owner ORDER BY namespace, key;

-- name: all_state()
-- For rebuild.
SELECT owner, namespace, key, value, version, at FROM state ORDER BY owner, namespace, key;

-- name: lock_space(owner, namespace)
-- One change of a namespace at a time, until this transaction ends; what is asked behind it sees the changes before.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended(:namespace::text, :owner::bigint))) AS locked;

-- name: set_entry(owner, namespace, key, value, version, revision, at, expires, created, lasts)
-- Fold of a StateChange; the newest wins in whatever order the streams are folded.
INSERT INTO entries (owner, namespace, key, value, version, revision, at, expires, created, lasts)
VALUES (:owner, :namespace, :key, :value, :version, :revision, :at, :expires, :created, :lasts)
ON CONFLICT (owner, namespace, key) DO UPDATE SET value = excluded.value, version = excluded.version,
    revision = excluded.revision, at = excluded.at, expires = excluded.expires, created = excluded.created,
    lasts = excluded.lasts
WHERE excluded.revision > entries.revision;

-- name: add_history(owner, namespace, key, revision, version, stream, seq, at)
-- Fold of a StateChange: where its value is.
INSERT INTO history (owner, namespace, key, revision, version, stream, seq, at)
VALUES (:owner, :namespace, :key, :revision, :version, :stream, :seq, :at);

-- name: set_space(owner, namespace, revision)
-- Fold of the last StateChange of an entry in a namespace.
INSERT INTO spaces (owner, namespace, revision) VALUES (:owner, :namespace, :revision)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = excluded.revision WHERE excluded.revision > spaces.revision;

-- name: raise_floor(owner, namespace, revision, at)
-- Fold of Folded: before this revision and this time, changes of the namespace are missing.
INSERT INTO floors (owner, namespace, revision, at) VALUES (:owner, :namespace, :revision, :at)
ON CONFLICT (owner, namespace) DO UPDATE SET revision = greatest(floors.revision, excluded.revision),
    at = greatest(floors.at, excluded.at);

-- name: floor_of(owner, namespace)
-- From when on the past of a namespace is whole.
SELECT revision, at FROM floors WHERE owner = :owner AND namespace = :namespace;

-- name: get_space(owner, namespace)
-- How often a namespace has changed.
SELECT revision FROM spaces WHERE owner = :owner AND namespace = :namespace;

-- name: spaces_of(owner)
-- The namespaces of an agent.
SELECT namespace, revision FROM spaces WHERE owner = :owner ORDER BY namespace;

-- name: spaces_in_use(owner, now)
-- The namespaces of an agent that have keys: how many, and when one was last changed.
SELECT spaces.namespace, spaces.revision, count(*), max(entries.at)
FROM spaces JOIN entries ON entries.owner = spaces.owner AND entries.namespace = spaces.namespace
WHERE spaces.owner = :owner AND length(value) > 0 AND (expires = 0 OR expires > :now)
GROUP BY spaces.namespace, spaces.revision ORDER BY spaces.namespace;

-- name: get_value(owner, namespace, key)
-- What a reader wants of one key, and nothing else: it is what programs do most.
SELECT value, version, expires FROM entries WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: get_entry(owner, namespace, key)
-- The latest value of one key, empty when it was deleted; and whether it can be searched for.
SELECT value, version, revision, at, expires, created, lasts, EXISTS (
    SELECT 1 FROM documents WHERE documents.owner = entries.owner AND kind = 'state' AND space = namespace
    AND documents.key = entries.key) FROM entries
WHERE owner = :owner AND namespace = :namespace AND key = :key;

-- name: entries_of(owner, namespace, now)
-- The latest values of a namespace, without what is deleted or out of date.
SELECT key, value, version, at FROM entries
WHERE owner = :owner AND namespace = :namespace AND length(value) > 0 AND (expires = 0 OR expires > :now) ORDER BY key;

-- name: expired_entries(owner, now, count)
-- Keys whose time has run out, for the sweeper.
SELECT namespace, key FROM entries
WHERE owner = :owner AND expires > 0 AND expires <= :now AND length(value) > 0 ORDER BY expires, namespace, key LIMIT :count;

-- name: count_expired(owner, now)
-- How many they are, and what they take.
SELECT count(*), coalesce(sum(length(value)), 0) FROM entries
WHERE owner = :owner AND expires > 0 AND expires <= :now AND length(value) > 0;

-- name: entries_page(owner, namespace, now, first, beyond, count)
-- The latest values of a few keys, from the first on or beyond it: a namespace may have a million.
SELECT key, value, version, at FROM entries
WHERE owner = :owner AND namespace = :namespace AND key >= :first AND (:beyond = 0 OR key > :first)
  AND length(value) > 0 AND (expires = 0 OR expires > :now)
ORDER BY key LIMIT :count;

-- name: history_of(owner, namespace, key)
-- Every change of a key, oldest first.
SELECT revision, version, stream, seq, at FROM history
WHERE owner = :owner AND namespace = :namespace AND key = :key ORDER BY revision;

-- name: history_after(owner, namespace, key, revision)
-- The change that took the place of another.
SELECT revision, at FROM history
WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision > :revision ORDER BY revision LIMIT 1;

-- name: drop_history(owner, namespace, key, revision)
-- The entry that has this change was folded.
DELETE FROM history WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision = :revision;

-- name: entries_at(owner, namespace, revision, at)
-- The last change of each key up to a revision and a time.
SELECT key, revision, stream, seq FROM history AS it
WHERE owner = :owner AND namespace = :namespace AND revision = (
    SELECT max(revision) FROM history
    WHERE owner = it.owner AND namespace = it.namespace AND key = it.key AND revision <= :revision AND at <= :at)
ORDER BY key;

-- name: entry_at(owner, namespace, key, revision, at)
-- The last change of one key up to a revision and a time.
SELECT revision, stream, seq FROM history
WHERE owner = :owner AND namespace = :namespace AND key = :key AND revision <= :revision AND at <= :at
ORDER BY revision DESC LIMIT 1;

-- name: all_spaces()
-- For rebuild.
SELECT owner, namespace, revision FROM spaces ORDER BY owner, namespace;

-- name: all_floors()
-- For rebuild.
SELECT owner, namespace, revision, at FROM floors ORDER BY owner, namespace;

-- name: all_entries()
-- For rebuild.
SELECT owner, namespace, key, value, version, revision, at, expires, created, lasts FROM entries
ORDER BY owner, namespace, key;

-- name: all_history()
-- For rebuild.
SELECT owner, namespace, key, revision, version, stream, seq, at FROM history
ORDER BY owner, namespace, key, revision;

-- name: put_checkpoint(owner, name, version, stream, seq, at)
-- Fold of CheckpointMade; that it was deleted may have been folded before.
INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, 0)
ON CONFLICT (owner, name, version) DO UPDATE SET stream = excluded.stream, seq = excluded.seq, at = excluded.at;

-- name: drop_checkpoint(owner, name, version)
-- Fold of CheckpointDropped.
INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped) VALUES (:owner, :name, :version, 0, 0, 0, 1)
ON CONFLICT (owner, name, version) DO UPDATE SET dropped = 1;

-- name: unplace_checkpoint(owner, name, version)
-- The entry that made a deleted one was folded; that it was deleted is still in the journal.
UPDATE checkpoints SET stream = 0, seq = 0, at = 0 WHERE owner = :owner AND name = :name AND version = :version;

-- name: remove_checkpoint(owner, name, version)
-- Nothing in the journal speaks of it any more.
DELETE FROM checkpoints WHERE owner = :owner AND name = :name AND version = :version;

-- name: checkpoint_before(owner, name, relied, rules, now)
-- For a new version: the last number, whether the version that it relies on is there, and with it the agent's rules.
SELECT (SELECT coalesce(max(version), 0) FROM checkpoints WHERE owner = :owner AND name = :name),
    EXISTS (SELECT 1 FROM checkpoints WHERE owner = :owner AND name = :name AND version = :relied AND dropped = 0),
    rule.key, rule.value
FROM (SELECT 1) AS always LEFT JOIN entries AS rule ON rule.owner = :owner AND rule.namespace = :rules
    AND length(rule.value) > 0 AND (rule.expires = 0 OR rule.expires > :now);

-- name: last_checkpoint(owner, name)
-- The highest number of a name, for who folds: it is not given again.
SELECT version FROM checkpoints WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: newest_checkpoint(owner, name)
-- What a name stands for.
SELECT version, stream, seq, at FROM checkpoints
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version DESC LIMIT 1;

-- name: get_checkpoint(owner, name, version)
-- One of them.
SELECT stream, seq, at, dropped FROM checkpoints WHERE owner = :owner AND name = :name AND version = :version;

-- name: versions_of(owner, name)
-- What can be deleted of a name.
SELECT version FROM checkpoints WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version;

-- name: older_checkpoints(owner, name, skip, count)
-- Those behind the newest so many, with the entries that made them, for `keep_last`.
SELECT c.version, e.kind, e.body FROM checkpoints AS c JOIN events AS e ON e.stream = c.stream AND e.seq = c.seq
WHERE c.owner = :owner AND c.name = :name AND c.dropped = 0 ORDER BY c.version DESC LIMIT :count OFFSET :skip;

-- name: checkpoints_of(owner)
-- All of an agent, oldest first.
SELECT name, version, stream, seq, at FROM checkpoints WHERE owner = :owner AND dropped = 0 ORDER BY at, stream, seq;

-- name: all_checkpoints()
-- For rebuild.
SELECT owner, name, version, stream, seq, at, dropped FROM checkpoints ORDER BY owner, name, version;

-- name: put_artifact(owner, name, version, stream, seq, at)
-- Fold of ArtifactSaved; that it was deleted may have been folded before.
INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, 0)
ON CONFLICT (owner, name, version) DO UPDATE SET stream = excluded.stream, seq = excluded.seq, at = excluded.at;

-- name: drop_artifact(owner, name, version)
-- Fold of ArtifactDropped.
INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped) VALUES (:owner, :name, :version, 0, 0, 0, 1)
ON CONFLICT (owner, name, version) DO UPDATE SET dropped = 1;

-- name: artifact_place(owner, name, version)
-- The entry that made one, and whether it was deleted.
SELECT stream, seq, at, dropped FROM artifacts WHERE owner = :owner AND name = :name AND version = :version;

-- name: unplace_artifact(owner, name, version)
-- The entry that made a deleted one was folded; that it was deleted is still in the journal.
UPDATE artifacts SET stream = 0, seq = 0, at = 0 WHERE owner = :owner AND name = :name AND version = :version;

-- name: remove_artifact(owner, name, version)
-- Nothing in the journal speaks of it any more.
DELETE FROM artifacts WHERE owner = :owner AND name = :name AND version = :version;

-- name: last_artifact(owner, name)
-- The number before the next one.
SELECT version FROM artifacts WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: artifacts_of(owner)
-- All of an agent, with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN events ON events.stream = it.stream AND events.seq = it.seq
WHERE owner = :owner AND dropped = 0 ORDER BY name, version;

-- name: versions_of_artifact(owner, name)
-- All of a name, with their entries.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN events ON events.stream = it.stream AND events.seq = it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version;

-- name: newest_artifact(owner, name)
-- What a name stands for.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN events ON events.stream = it.stream AND events.seq = it.seq
WHERE owner = :owner AND name = :name AND dropped = 0 ORDER BY version DESC LIMIT 1;

-- name: get_artifact(owner, name, version)
-- One of them.
SELECT name, version, it.at, kind, body FROM artifacts AS it JOIN events ON events.stream = it.stream AND events.seq = it.seq
WHERE owner = :owner AND name = :name AND version = :version AND dropped = 0;

-- name: artifact_names(owner)
-- For who has mistyped one.
SELECT DISTINCT name FROM artifacts WHERE owner = :owner AND dropped = 0 ORDER BY name;

-- name: all_artifacts()
-- For rebuild.
SELECT owner, name, version, stream, seq, at, dropped FROM artifacts ORDER BY owner, name, version;

-- name: add_happening(owner, run, kind, stream, seq, place, at)
-- Fold of Happened. Arrival is the number of this transaction: nobody waits for anybody.
INSERT INTO happenings (owner, arrival, stream, seq, place, run, kind, at)
SELECT :owner::bigint, base + pg_current_xact_id()::text::bigint, :stream::bigint, :seq::bigint, :place::bigint,
       :run::bigint, :kind::text, :at::bigint
FROM arrivals;

-- name: add_run_happening(kind, stream, seq, place, at)
-- Fold of an EVENT write of a run.
INSERT INTO happenings (owner, arrival, stream, seq, place, run, kind, at)
SELECT agents.stream, base + pg_current_xact_id()::text::bigint, :stream::bigint, :seq::bigint, :place::bigint,
       :stream::bigint, :kind::text, :at::bigint
FROM runs JOIN agents ON agents.name = runs.agent CROSS JOIN arrivals WHERE runs.stream = :stream::bigint;

-- name: settled_arrivals()
-- Below which arrival nothing can come any more: all transactions before it have ended.
SELECT base + pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM arrivals;

-- name: moved_arrivals()
-- Whether there are events of transactions that this server has not had yet: the store was moved here from another one.
SELECT 1 FROM arrivals WHERE base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM happenings WHERE owner = agents.stream) AS latest);

-- name: raise_arrivals()
-- Then they are counted on from the newest event. Whoever comes second finds the condition false.
UPDATE arrivals SET base = 1 + (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM happenings WHERE owner = agents.stream) AS latest)
WHERE base + pg_snapshot_xmax(pg_current_snapshot())::text::bigint <= (
    SELECT max(newest) FROM agents CROSS JOIN LATERAL (
        SELECT max(arrival) AS newest FROM happenings WHERE owner = agents.stream) AS latest);

-- name: drop_meta(key)
-- It is not so any more.
DELETE FROM meta WHERE key = :key;

-- name: number_happenings()
-- The end of rebuild: by time, as nobody knows any more how they arrived. Later ones come behind all of these.
WITH numbered AS (
    UPDATE happenings SET arrival = ranked.number FROM (
        SELECT owner, stream, seq, place, row_number() OVER (PARTITION BY owner ORDER BY at, stream, seq, place) AS number
        FROM happenings) AS ranked
    WHERE happenings.owner = ranked.owner AND happenings.stream = ranked.stream AND happenings.seq = ranked.seq
      AND happenings.place = ranked.place RETURNING 1)
UPDATE arrivals SET base = base + (SELECT count(*) FROM numbered);

-- name: events_among(which)
-- Many entries at once; which is a JSON list of [stream, seq].
SELECT stream, seq, kind, body FROM events
WHERE (stream, seq) IN (SELECT (it ->> 0)::bigint, (it ->> 1)::bigint FROM jsonb_array_elements(:which::jsonb) AS it);

-- name: thin_replays(owner, key, keep)
-- Only the newest are of use.
DELETE FROM replays WHERE owner = :owner AND key = :key AND (arrival, stream, seq, place) NOT IN (
    SELECT arrival, stream, seq, place FROM replays WHERE owner = :owner AND key = :key
    ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT :keep);

-- name: happenings_of(owner, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A piece of an agent's events, in order.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE owner = :owner AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, happenings.stream, seq, place LIMIT :count;

-- name: happenings_of_kind(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- The same of one kind.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE owner = :owner AND kind = :kind AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, happenings.stream, seq, place LIMIT :count;

-- name: happenings_of_run(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- The same of one run, and of one kind if it is named. Of a sum no index is used: that of the run is the right one.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE run = :run AND run > 0 AND owner + 0 = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival, happenings.stream, seq, place LIMIT :count;

-- name: happenings_of_last(owner, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- A piece of an agent's events, the newest first.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE owner = :owner AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, happenings.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: happenings_of_kind_last(owner, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- The same of one kind.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE owner = :owner AND kind = :kind AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, happenings.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: happenings_of_run_last(owner, run, kind, arrival, stream, seq, place, arrival_to, stream_to, seq_to, place_to, count)
-- The same of one run, and of one kind if it is named. Of a sum no index is used: that of the run is the right one.
SELECT arrival, happenings.stream, seq, place, coalesce(runs.id, ''), kind, at
FROM happenings LEFT JOIN runs ON runs.stream = happenings.run
WHERE run = :run AND run > 0 AND owner + 0 = :owner AND (kind = :kind OR :kind = '')
  AND (arrival, happenings.stream, seq, place) > (:arrival, :stream, :seq, :place)
  AND (arrival, happenings.stream, seq, place) <= (:arrival_to, :stream_to, :seq_to, :place_to)
ORDER BY arrival DESC, happenings.stream DESC, seq DESC, place DESC LIMIT :count;

-- name: last_happening(owner, arrival)
-- The newest event below an arrival: where somebody begins who wants what comes from now on.
SELECT arrival, stream, seq, place FROM happenings WHERE owner = :owner AND arrival < :arrival
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: happening_from(owner, at)
-- Where a time is in the order: its first event.
SELECT arrival, stream, seq, place FROM happenings WHERE owner = :owner AND at >= :at
ORDER BY at, arrival, stream, seq, place LIMIT 1;

-- name: has_happening(owner, arrival, stream, seq, place)
-- Whether an event has still the place that somebody knows; its time.
SELECT at FROM happenings
WHERE owner = :owner AND arrival = :arrival AND stream = :stream AND seq = :seq AND place = :place;

-- name: find_happening(owner, at, stream, seq, place)
-- Where it is now, when it has been numbered anew.
SELECT arrival FROM happenings
WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq AND place = :place;

-- name: newest_happening(owner, kind)
-- The entry of the newest event of a kind, which is not folded.
SELECT stream, seq FROM happenings WHERE owner = :owner AND kind = :kind
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: arrivals_of(owner, at, stream, seq)
-- When the events of an entry have arrived.
SELECT arrival FROM happenings WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq;

-- name: drop_happenings(owner, at, stream, seq)
-- The entry that has them was folded.
DELETE FROM happenings WHERE owner = :owner AND at = :at AND stream = :stream AND seq = :seq;

-- name: happening_behind(owner, at, stream, seq, place)
-- The first event that is later than another one, which may be gone; and its time.
SELECT arrival, stream, seq, place, at FROM happenings
WHERE owner = :owner AND (at, stream, seq, place) > (:at, :stream, :seq, :place)
ORDER BY arrival, stream, seq, place LIMIT 1;

-- name: happenings_astray(owner, arrival, stream, seq, place, at)
-- Whether by time, as rebuild numbers them, other events are before this one than by arrival.
SELECT 1 FROM happenings WHERE owner = :owner
  AND ((arrival, stream, seq, place) <= (:arrival, :stream, :seq, :place))
   <> ((at, stream, seq, place) <= (:at, :stream, :seq, :place)) LIMIT 1;

-- name: kinds_of(owner)
-- What kinds of events an agent has, each with one look: for who has mistyped one.
WITH RECURSIVE kinds (kind) AS (
    SELECT (SELECT min(kind) FROM happenings WHERE owner = :owner)
    UNION ALL
    SELECT (SELECT min(happenings.kind) FROM happenings WHERE owner = :owner AND happenings.kind > kinds.kind)
    FROM kinds WHERE kinds.kind IS NOT NULL)
SELECT kind FROM kinds WHERE kind IS NOT NULL LIMIT 1000;

-- name: all_happenings()
-- For rebuild; without arrivals, which are not in the journal.
SELECT owner, stream, seq, place, run, kind, at FROM happenings ORDER BY stream, seq, place;

-- name: copy_happenings()
-- For a copy of the store.
SELECT owner, arrival, stream, seq, place, run, kind, at FROM happenings ORDER BY owner, arrival, stream, seq, place;

-- name: last_replay(owner, key, arrival, stream, seq, place)
-- The last kept result of a replay up to a place.
SELECT arrival, stream, seq, place, value FROM replays
WHERE owner = :owner AND key = :key AND (arrival, stream, seq, place) <= (:arrival, :stream, :seq, :place)
ORDER BY arrival DESC, stream DESC, seq DESC, place DESC LIMIT 1;

-- name: replays_of(owner)
-- All that an agent has kept, of each replay the newest first.
SELECT key, arrival, stream, seq, place, value FROM replays WHERE owner = :owner
ORDER BY key, arrival DESC, stream DESC, seq DESC, place DESC;

-- name: put_replay(owner, key, arrival, stream, seq, place, value)
-- Keep one; who was quicker has kept the same.
INSERT INTO replays (owner, key, arrival, stream, seq, place, value)
VALUES (:owner, :key, :arrival, :stream, :seq, :place, :value) ON CONFLICT DO NOTHING;

-- name: all_replays()
-- What they refer to, for collecting.
SELECT value FROM replays;

-- name: drop_replays(owner, prefix)
-- Forget those of a name.
DELETE FROM replays WHERE owner = :owner AND substr(key, 1, 8) = :prefix;

-- name: mark_replays()
-- What is kept is bound to numbers that rebuild gives anew: only that there are such replays is not forgotten.
INSERT INTO replays (owner, key, arrival, stream, seq, place, value)
SELECT DISTINCT owner, key, -1, 0, 0, 0, '\x00'::bytea FROM replays WHERE arrival >= 0 ON CONFLICT DO NOTHING;

-- name: clear_replays()
-- Then they begin anew.
DELETE FROM replays WHERE arrival >= 0;

-- name: clear_happenings()
-- Rebuild starts from nothing.
DELETE FROM happenings;

-- name: put_workflow(owner, name, version, revision, steps, at)
-- Fold of WorkflowMade.
INSERT INTO workflows (owner, name, version, revision, steps, at)
VALUES (:owner, :name, :version, :revision, :steps, :at);

-- name: set_workflow_step(owner, name, version, step, revision, status, standing, at)
-- Fold of WorkflowMoved; the newest wins in whatever order the streams are folded.
INSERT INTO workflow_steps (owner, name, version, step, revision, status, standing, at)
VALUES (:owner, :name, :version, :step, :revision, :status, :standing, :at)
ON CONFLICT (owner, name, version, step) DO UPDATE SET revision = excluded.revision, status = excluded.status,
    standing = excluded.standing, at = excluded.at
WHERE excluded.revision > workflow_steps.revision;

-- name: newest_workflow(owner, name)
-- What a name stands for.
SELECT version, revision, steps, at FROM workflows
WHERE owner = :owner AND name = :name ORDER BY version DESC LIMIT 1;

-- name: newest_standings(owner, name)
-- How far the steps of its newest version are.
SELECT step, revision, standing, at FROM workflow_steps
WHERE owner = :owner AND name = :name
  AND version = (SELECT max(version) FROM workflows WHERE owner = :owner AND name = :name);

-- name: get_workflow(owner, name, version)
-- One version.
SELECT version, revision, steps, at FROM workflows WHERE owner = :owner AND name = :name AND version = :version;

-- name: standings_of(owner, name, version)
-- How far its steps are, or were when the next version was made.
SELECT step, revision, standing, at FROM workflow_steps
WHERE owner = :owner AND name = :name AND version = :version;

-- name: workflows_of(owner)
-- All versions of all workflows of an agent, in the order of their names.
SELECT name, version FROM workflows WHERE owner = :owner ORDER BY name, version;

-- name: get_holder(holder, now)
-- Who has claimed a step, and for how many milliseconds more it counts as alive.
SELECT boot, namespace, pid, started, host, at, deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM holders WHERE id = :holder;

-- name: all_workflows()
-- For rebuild.
SELECT owner, name, version, revision, steps, at FROM workflows ORDER BY owner, name, version;

-- name: all_workflow_steps()
-- For rebuild.
SELECT owner, name, version, step, revision, status, standing, at FROM workflow_steps
ORDER BY owner, name, version, step;

-- name: add_question(stream, seq, about, kind, text, at)
-- Fold of QuestionAsked.
INSERT INTO questions (stream, seq, about, kind, text, at, open)
VALUES (:stream, :seq, :about, :kind, :text, :at, 1);

-- name: drop_questions(stream, last)
-- The entries that asked them were folded; the run is finished.
DELETE FROM questions WHERE stream = :stream AND seq <= :last;

-- name: close_question(stream, seq)
-- Fold of QuestionClosed.
UPDATE questions SET open = 0 WHERE stream = :stream AND seq = :seq;

-- name: close_questions(stream)
-- Fold of RunCancelled: nobody waits for an answer any more.
UPDATE questions SET open = 0 WHERE stream = :stream AND open = 1;

-- name: open_questions(stream)
-- What a run waits for.
SELECT seq, about, kind, text, at FROM questions WHERE stream = :stream AND open = 1 ORDER BY seq;

-- name: awaiting_runs()
-- Runs that wait for the end of another one: who moves an agent is told whom it leaves behind.
SELECT runs.agent, runs.id, questions.stream, questions.seq FROM questions JOIN runs ON runs.stream = questions.stream
WHERE questions.open = 1 AND questions.kind = 'run' AND runs.status NOT IN ('finished', 'cancelled')
ORDER BY runs.agent, runs.id, questions.seq;

-- name: all_questions()
-- For rebuild.
SELECT stream, seq, about, kind, text, at, open FROM questions ORDER BY stream, seq;

-- name: add_answer(stream, about, verdict, value, by, at)
-- Fold of Answered; the first one wins, so a second is a constraint error. A run that waits for it is told.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || :stream::text) IS NULL AS unheard
    FROM questions WHERE stream = :stream::bigint AND about = :about AND open = 1)
INSERT INTO answers (stream, about, verdict, value, by, at)
SELECT :stream::bigint, :about::bigint, :verdict::text, :value::bytea, :by::text, :at::bigint
FROM (SELECT count(unheard) FROM told) AS heard;

-- name: get_answer(stream, about)
-- What was answered.
SELECT verdict, value, by, at FROM answers WHERE stream = :stream AND about = :about;

-- name: all_answers()
-- For rebuild.
SELECT stream, about, verdict, value, by, at FROM answers ORDER BY stream, about;

-- name: add_usage(stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Fold of Usage in an entry.
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
-- Fold of Folded, which says it as a whole.
DELETE FROM usage WHERE stream = :stream;

-- name: usage_of(agent, run)
-- What calls of models came to; '' is every agent, every run.
SELECT agent, id, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM usage JOIN runs ON runs.stream = usage.stream
WHERE (:agent::text = '' OR agent = :agent) AND (:run::text = '' OR id = :run) ORDER BY usage.stream, step, model, provider, day;

-- name: spent_by(stream)
-- For a budget: what a run and the runs inside it have spent on each model.
WITH RECURSIVE family (stream) AS (
    SELECT :stream::bigint UNION SELECT runs.stream FROM family JOIN runs ON runs.parent = family.stream AND runs.parent <> 0)
SELECT model, sum(cost)::bigint, sum(unpriced)::bigint FROM family JOIN usage ON usage.stream = family.stream GROUP BY model;

-- name: all_usage()
-- For rebuild.
SELECT stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost FROM usage
ORDER BY stream, step, model, provider, day;

-- name: add_savings(stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Fold of Replayed.
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
-- Fold of Folded, which says it as a whole.
DELETE FROM savings WHERE stream = :stream;

-- name: savings_of(agent, run)
-- What resuming has saved; '' is every agent, every run.
SELECT agent, id, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost
FROM savings JOIN runs ON runs.stream = savings.stream
WHERE (:agent::text = '' OR agent = :agent) AND (:run::text = '' OR id = :run) ORDER BY savings.stream, model, provider, day;

-- name: all_savings()
-- For rebuild.
SELECT stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost FROM savings
ORDER BY stream, model, provider, day;

-- name: put_order(stream, number, fence, what, reason, by, at)
-- Fold of OrderGiven.
INSERT INTO orders (stream, number, fence, what, reason, by, at)
VALUES (:stream, :number, :fence, :what, :reason, :by, :at);

-- name: lock_lease(stream, fence)
-- Before an order: who is told still holds the run, and nobody takes it meanwhile. The number of the last order.
SELECT ordered FROM leases WHERE stream = :stream AND fence = :fence AND holder IS NOT NULL FOR NO KEY UPDATE;

-- name: ring_order(stream, number)
-- The holder finds it in the answer to its next entry; those who wait or look are told.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || :stream::text) IS NULL AS run,
           pg_notify('perdure', current_schema() || ' 0') IS NULL AS everybody)
UPDATE leases SET ordered = :number FROM (SELECT count(run), count(everybody) FROM told) AS heard
WHERE stream = :stream::bigint;

-- name: standing_orders(streams)
-- The last order of each of these runs that its holder, or the one who takes it over, has still to obey. A JSON list.
SELECT orders.stream, orders.number, what, reason, by
FROM leases JOIN orders ON orders.stream = leases.stream AND orders.number = leases.ordered AND orders.fence = leases.fence
WHERE leases.stream IN (SELECT value::bigint FROM json_array_elements_text(:streams::json));

-- name: orders_under(stream, fence)
-- The last order to the holder that has, or had, this fence.
SELECT number, what, reason, by FROM orders WHERE stream = :stream AND fence = :fence ORDER BY number DESC LIMIT 1;

-- name: parts_of(stream)
-- The runs that are part of a run, and those that are part of them; what is queued, and has not begun, at the end.
WITH RECURSIVE parts (stream) AS (
    SELECT :stream::bigint
    UNION SELECT runs.stream FROM runs JOIN parts ON runs.parent = parts.stream)
SELECT agent, id, stream FROM runs WHERE stream IN (SELECT stream FROM parts) AND stream <> :stream
UNION ALL
SELECT agents.name, tasks.run, 4611686018427387904 FROM tasks JOIN agents ON agents.stream = tasks.owner
WHERE tasks.stream = 0 AND tasks.parent IN (SELECT stream FROM parts)
ORDER BY 3, 2;

-- name: all_orders()
-- For rebuild.
SELECT stream, number, fence, what, reason, by, at FROM orders ORDER BY stream, number;

-- name: put_signal(owner, run, name, number, value, by, at)
-- Fold of SignalSent. A run that waits is told.
WITH told AS (
    SELECT pg_notify('perdure', current_schema() || ' ' || runs.stream::text) IS NULL AS unheard
    FROM runs JOIN agents ON agents.name = runs.agent
    WHERE agents.stream = :owner::bigint AND runs.id = :run::text AND runs.status = 'waiting')
INSERT INTO signals (owner, run, name, number, value, by, at)
SELECT :owner::bigint, :run::text, :name::text, :number::bigint, :value::bytea, :by::text, :at::bigint
FROM (SELECT count(unheard) FROM told) AS heard;

-- name: last_signal(owner, run, name)
-- The number of the newest one.
SELECT number FROM signals WHERE owner = :owner AND run = :run AND name = :name ORDER BY number DESC LIMIT 1;

-- name: get_signal(owner, run, name, number)
-- The one whose turn it is.
SELECT value, by FROM signals WHERE owner = :owner AND run = :run AND name = :name AND number = :number;

-- name: all_signals()
-- For rebuild.
SELECT owner, run, name, number, value, by, at FROM signals ORDER BY owner, run, name, number;

-- name: lock_journal()
-- Nobody else writes while the views are made anew.
LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE;

-- name: clear_agents()
-- Rebuild starts from nothing.
DELETE FROM agents;

-- name: clear_runs()
-- Rebuild starts from nothing.
DELETE FROM runs;

-- name: clear_state()
-- Rebuild starts from nothing.
DELETE FROM state;

-- name: clear_questions()
-- Rebuild starts from nothing.
DELETE FROM questions;

-- name: clear_answers()
-- Rebuild starts from nothing.
DELETE FROM answers;

-- name: clear_spaces()
-- Rebuild starts from nothing.
DELETE FROM spaces;

-- name: clear_floors()
-- Rebuild starts from nothing.
DELETE FROM floors;

-- name: clear_entries()
-- Rebuild starts from nothing.
DELETE FROM entries;

-- name: clear_history()
-- Rebuild starts from nothing.
DELETE FROM history;

-- name: clear_checkpoints()
-- Rebuild starts from nothing.
DELETE FROM checkpoints;

-- name: clear_artifacts()
-- Rebuild starts from nothing.
DELETE FROM artifacts;

-- name: clear_usage()
-- Rebuild starts from nothing.
DELETE FROM usage;

-- name: clear_savings()
-- Rebuild starts from nothing.
DELETE FROM savings;

-- name: clear_workflows()
-- Rebuild starts from nothing.
DELETE FROM workflows;

-- name: clear_workflow_steps()
-- Rebuild starts from nothing.
DELETE FROM workflow_steps;

-- name: clear_orders()
-- Rebuild starts from nothing.
DELETE FROM orders;

-- name: clear_signals()
-- Rebuild starts from nothing.
DELETE FROM signals;

-- name: queue_task(owner, agent, run, task, queue, priority, key, ready_at, again, input, digest, parent, at)
-- Fold of TaskQueued. Of a run that was begun before, its row says how far it is, whichever of both is folded first.
-- Workers are told of the first of a queue: as long as others are ready they look for themselves.
WITH made AS (
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, died, again, input, digest, parent, at)
SELECT :owner::bigint, :run::text, coalesce(runs.stream, 0), :task::text, :queue::text, :priority::bigint, :key::text,
    CASE coalesce(runs.status, '') WHEN '' THEN 'queued' WHEN 'interrupted' THEN 'queued' WHEN 'paused' THEN 'paused'
        WHEN 'failed' THEN CASE WHEN :again::bigint >= runs.outcome THEN 'queued' ELSE 'dead' END ELSE 'running' END,
    CASE coalesce(runs.status, '') WHEN '' THEN :ready_at::bigint WHEN 'interrupted' THEN 0
        WHEN 'failed' THEN CASE WHEN :again::bigint >= runs.outcome THEN 0 ELSE 4611686018427387904 END ELSE 4611686018427387904 END,
    0, CASE runs.status WHEN 'failed' THEN runs.outcome ELSE 0 END, :again::bigint, :input::bytea, :digest::bytea, :parent::bigint, :at::bigint
FROM (SELECT 1) AS one LEFT JOIN runs ON runs.agent = :agent::text AND runs.id = :run::text
WHERE coalesce(runs.status, '') NOT IN ('finished', 'cancelled')
ON CONFLICT (owner, run) DO UPDATE SET task = excluded.task, queue = excluded.queue, priority = excluded.priority,
    key = excluded.key, input = excluded.input, digest = excluded.digest, parent = excluded.parent, at = excluded.at,
    again = greatest(tasks.again, excluded.again)
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM made WHERE ready_at = 0 AND NOT EXISTS (
    SELECT 1 FROM tasks WHERE tasks.owner = made.owner AND tasks.queue = :queue::text AND tasks.task = :task::text
      AND tasks.ready_at = 0);

-- name: note_task(stream)
-- Before what only a worker writes: the row of its task, when the entry that has queued it is folded later.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, died, again, input, digest, parent, at)
SELECT agents.stream, runs.id, runs.stream, '', '', 0, '', 'running', 4611686018427387904, 0, 0, 0, '\x'::bytea, '\x'::bytea, 0, 0
FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream
ON CONFLICT (owner, run) DO NOTHING;

-- name: move_task(stream, state, ready_at, attempts, died)
-- Fold of what begins, interrupts, parks or fails a run; attempts below 0 leaves their number as it is. One that has failed
-- before it was queued again is not dead. Most runs are no tasks.
WITH moved AS (
UPDATE tasks SET stream = :stream::bigint,
    state = CASE WHEN :state::text = 'dead' AND again >= :died::bigint THEN 'queued' ELSE :state::text END,
    ready_at = CASE WHEN :state::text = 'dead' AND again >= :died::bigint THEN 0 ELSE :ready_at::bigint END,
    attempts = CASE WHEN :state::text = 'dead' AND again >= :died::bigint THEN 0 WHEN :attempts::bigint < 0 THEN attempts ELSE :attempts::bigint END,
    died = :died::bigint
WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream::bigint)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream::bigint)
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM moved WHERE ready_at = 0;

-- name: again_task(owner, agent, run, after)
-- Fold of TaskAgain: one that is dead by the entry of that number, or an older one, is queued again.
WITH again AS (
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, died, again, input, digest, parent, at)
SELECT :owner::bigint, :run::text, 0, '', '', 0, '', 'queued', 0, 0, 0, :after::bigint, '\x'::bytea, '\x'::bytea, 0, 0
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent::text AND runs.id = :run::text AND runs.status IN ('finished', 'cancelled'))
ON CONFLICT (owner, run) DO UPDATE SET again = greatest(tasks.again, excluded.again),
    ready_at = CASE WHEN tasks.state = 'dead' AND tasks.died <= excluded.again THEN 0 ELSE tasks.ready_at END,
    attempts = CASE WHEN tasks.state = 'dead' AND tasks.died <= excluded.again THEN 0 ELSE tasks.attempts END,
    state = CASE WHEN tasks.state = 'dead' AND tasks.died <= excluded.again THEN 'queued' ELSE tasks.state END
RETURNING owner, ready_at)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM again WHERE ready_at = 0;

-- name: drop_task(stream)
-- Fold of RunFinished.
DELETE FROM tasks WHERE run = (SELECT id FROM runs WHERE runs.stream = :stream)
  AND owner = (SELECT agents.stream FROM runs JOIN agents ON agents.name = runs.agent WHERE runs.stream = :stream);

-- name: drop_task_waits(stream)
-- Fold of RunResumed, and of TaskParked, which says anew what it waits for.
DELETE FROM task_waits WHERE stream = :stream;

-- name: add_task_wait(what, stream)
-- Fold of TaskParked.
INSERT INTO task_waits (what, stream) VALUES (:what, :stream) ON CONFLICT DO NOTHING;

-- name: lock_task(stream)
-- Before somebody looks whether a parked run is to be woken: who parks it and who wakes it come one after the other.
SELECT 1 FROM tasks WHERE stream = :stream AND stream > 0 FOR UPDATE;

-- name: lock_awaited(owner, agent, run)
-- The same for the run that a parked one waits for: it neither begins nor ends meanwhile.
SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE agent = :agent AND id = :run FOR SHARE) AS begun),
       (SELECT count(*) FROM (SELECT 1 FROM tasks WHERE owner = :owner AND run = :run FOR SHARE) AS queued);

-- name: wake_task(what)
-- Fold of an answer or an event: a run that waits for it may go on.
WITH woken AS (
UPDATE tasks SET ready_at = 0
WHERE state = 'parked' AND stream > 0 AND stream IN (SELECT stream FROM task_waits WHERE what = :what)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_by_run(stream)
-- Fold of the end of a run: those that wait for it may go on.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE state = 'parked' AND stream > 0 AND stream IN (
    SELECT task_waits.stream FROM runs JOIN agents ON agents.name = runs.agent
    JOIN task_waits ON task_waits.what = 'run ' || agents.stream || ' ' || runs.id WHERE runs.stream = :stream)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_answered(stream, of, about)
-- Fold of TaskParked: the answer was quicker.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM answers WHERE answers.stream = :of AND answers.about = :about)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_sent(stream, owner, run, name, number)
-- Fold of TaskParked: the event was quicker.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM signals WHERE signals.owner = :owner AND signals.run = :run AND name = :name AND number = :number)
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: wake_if_ended(stream, agent, run)
-- Fold of TaskParked: the other run was quicker.
WITH woken AS (
UPDATE tasks SET ready_at = 0 WHERE stream = :stream AND stream > 0 AND state = 'parked'
  AND EXISTS (SELECT 1 FROM runs WHERE runs.agent = :agent AND runs.id = :run AND status IN ('finished', 'failed', 'cancelled'))
RETURNING owner)
SELECT pg_notify('perdure', current_schema() || ' ' || owner::text) FROM woken;

-- name: get_task(owner, run)
-- What was queued under an id, if it has not finished.
SELECT stream, task, queue, priority, key, state, ready_at, attempts, died, again, input, digest, parent, at
FROM tasks WHERE owner = :owner AND run = :run;

-- name: queue_names(owner)
-- The queues of an agent that have something in them, each with one look.
WITH RECURSIVE names (queue) AS (
    SELECT (SELECT min(queue) FROM tasks WHERE owner = :owner AND ready_at = 0)
    UNION ALL
    SELECT (SELECT min(tasks.queue) FROM tasks WHERE owner = :owner AND ready_at = 0 AND tasks.queue > names.queue)
    FROM names WHERE names.queue IS NOT NULL)
SELECT queue FROM names WHERE queue IS NOT NULL LIMIT 1000;

-- name: due_queues(owner, now)
-- The queues whose runs have come due by time.
SELECT DISTINCT queue FROM tasks WHERE owner = :owner AND ready_at > 0 AND ready_at <= :now LIMIT 1000;

-- name: next_due(owner)
-- When the next one comes due.
SELECT ready_at FROM tasks WHERE owner = :owner AND ready_at > 0 ORDER BY ready_at LIMIT 1;

-- name: next_tasks(owner, queue, now, names, per_key, count)
-- The first that may begin: by priority, then by age. names is a JSON list of the tasks that the worker has. Those that other
-- workers are just taking are left out, so that nobody waits for anybody.
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
-- A run whose worker is gone, for whoever takes it over.
SELECT run, stream, task, attempts, input, digest, parent, priority, at FROM tasks
WHERE owner = :owner AND run = :run AND state = 'running' FOR UPDATE SKIP LOCKED;

-- name: held_tasks(owner, now)
-- What is at work, and by whom: a worker that is gone has left its runs.
SELECT tasks.run, tasks.task, tasks.queue, leases.fence, leases.holder, holders.boot, holders.namespace, holders.pid,
       holders.started, holders.host, holders.at, holders.deadline - ((extract(epoch FROM clock_timestamp()) * 1000)::bigint + 0 * :now::bigint)
FROM tasks JOIN leases ON leases.stream = tasks.stream LEFT JOIN holders ON holders.id = leases.holder
WHERE tasks.owner = :owner AND tasks.state = 'running' AND tasks.stream > 0;

-- name: count_running(owner, queue)
-- How many of a queue are at work.
SELECT count(*) FROM tasks WHERE owner = :owner AND queue = :queue AND state = 'running';

-- name: get_pace(owner, queue)
-- When the next of a queue with a rate may begin.
SELECT next FROM paces WHERE owner = :owner AND queue = :queue;

-- name: set_pace(owner, queue, next)
-- One has begun.
INSERT INTO paces (owner, queue, next) VALUES (:owner, :queue, :next)
ON CONFLICT (owner, queue) DO UPDATE SET next = excluded.next;

-- name: count_tasks(owner)
-- What waits, runs, is parked and is dead, by queue and task; and since when the oldest of them is queued.
SELECT queue, task, state, count(*), min(at), min(ready_at) FROM tasks WHERE owner = :owner
GROUP BY queue, task, state ORDER BY queue, task, state;

-- name: left_tasks(owner, now)
-- For the doctor: runs that are dead, and runs that a worker may take; since when, and one of them.
SELECT queue, state, count(*), min(greatest(at, ready_at)), min(run) FROM tasks
WHERE owner = :owner AND (state = 'dead' OR (state = 'queued' AND ready_at <= :now))
GROUP BY queue, state ORDER BY queue, state;

-- name: queued_tasks()
-- Runs that are queued, and have not begun: the list of runs shows them too.
SELECT tasks.owner, agents.name, tasks.run, tasks.parent, tasks.at FROM tasks JOIN agents ON agents.stream = tasks.owner
WHERE tasks.stream = 0 ORDER BY tasks.at DESC, tasks.run;

-- name: all_tasks()
-- For rebuild.
SELECT owner, run, stream, task, queue, priority, key, state, ready_at, attempts, died, again, input, digest, parent, at
FROM tasks ORDER BY owner, run;

-- name: all_task_waits()
-- For rebuild.
SELECT what, stream FROM task_waits ORDER BY what, stream;

-- name: clear_tasks()
-- Rebuild starts from nothing.
DELETE FROM tasks;

-- name: clear_task_waits()
-- Rebuild starts from nothing.
DELETE FROM task_waits;

-- name: put_thread_point(owner, thread, ns, id, life, parent, run, stream, seq, at)
-- Fold of ThreadPut; the newest wins, and what was dropped stays dropped, in whatever order the streams are folded.
INSERT INTO thread_points (owner, thread, ns, id, life, parent, run, stream, seq, at, dropped)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, :life::bigint, :parent::text, :run::text, :stream::bigint,
    :seq::bigint, :at::bigint, 0
WHERE NOT EXISTS (SELECT 1 FROM thread_lives WHERE owner = :owner AND thread = :thread AND whole > :life)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET life = excluded.life, parent = excluded.parent, run = excluded.run,
    stream = excluded.stream, seq = excluded.seq, at = excluded.at
WHERE excluded.life >= thread_points.dropped AND (excluded.life, excluded.at, excluded.stream, excluded.seq)
    > (thread_points.life, thread_points.at, thread_points.stream, thread_points.seq);

-- name: put_thread_write(owner, thread, ns, id, stream, seq, life)
-- Fold of ThreadWrote: where it is.
INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, life)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, :stream::bigint, :seq::bigint, :life::bigint
WHERE NOT EXISTS (SELECT 1 FROM thread_lives WHERE owner = :owner AND thread = :thread AND whole > :life)
    AND NOT EXISTS (SELECT 1 FROM thread_points
        WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND dropped > :life)
ON CONFLICT (owner, thread, ns, id, stream, seq) DO NOTHING;

-- name: raise_thread_life(owner, thread, life, whole, floor)
-- Fold of ThreadDropped.
INSERT INTO thread_lives (owner, thread, life, whole, floor) VALUES (:owner, :thread, :life, :whole, :floor)
ON CONFLICT (owner, thread) DO UPDATE SET life = greatest(thread_lives.life, excluded.life),
    whole = greatest(thread_lives.whole, excluded.whole), floor = greatest(thread_lives.floor, excluded.floor);

-- name: drop_thread_points(owner, thread, life)
-- Fold of ThreadDropped, of a whole thread: what was put since has a higher life.
DELETE FROM thread_points WHERE owner = :owner AND thread = :thread
    AND life < :life AND dropped <= :life;

-- name: settle_thread_points(owner, thread, life)
-- Fold of ThreadDropped, of a whole thread: what was dropped before that is over, in whatever order they are folded.
UPDATE thread_points SET dropped = 0
WHERE owner = :owner AND thread = :thread AND dropped > 0 AND dropped <= :life;

-- name: drop_all_thread_writes(owner, thread, life)
-- Fold of ThreadDropped, of a whole thread.
DELETE FROM thread_writes WHERE owner = :owner AND thread = :thread AND life < :life;

-- name: drop_thread_point(owner, thread, ns, id, life)
-- Fold of ThreadDropped: the row stays, empty, because its checkpoint may be folded later.
INSERT INTO thread_points (owner, thread, ns, id, life, parent, run, stream, seq, at, dropped)
SELECT :owner::bigint, :thread::text, :ns::text, :id::text, 0, '', '', 0, 0, 0, :life::bigint
WHERE NOT EXISTS (SELECT 1 FROM thread_lives WHERE owner = :owner AND thread = :thread AND whole >= :life)
ON CONFLICT (owner, thread, ns, id) DO UPDATE SET
    parent = CASE WHEN thread_points.life < excluded.dropped THEN '' ELSE thread_points.parent END,
    run = CASE WHEN thread_points.life < excluded.dropped THEN '' ELSE thread_points.run END,
    stream = CASE WHEN thread_points.life < excluded.dropped THEN 0 ELSE thread_points.stream END,
    seq = CASE WHEN thread_points.life < excluded.dropped THEN 0 ELSE thread_points.seq END,
    at = CASE WHEN thread_points.life < excluded.dropped THEN 0 ELSE thread_points.at END,
    life = CASE WHEN thread_points.life < excluded.dropped THEN 0 ELSE thread_points.life END,
    dropped = greatest(thread_points.dropped, excluded.dropped);

-- name: drop_thread_writes(owner, thread, ns, id, life)
-- Fold of ThreadDropped.
DELETE FROM thread_writes
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND life < :life;

-- name: check_thread(owner, thread, life)
-- Nothing of a thread was dropped since somebody has looked: what that one relies on is there.
SELECT 1 / (CASE WHEN coalesce((SELECT life FROM thread_lives WHERE owner = :owner AND thread = :thread), 0) = :life THEN 1 ELSE 0 END);

-- name: check_thread_head(owner, thread, ns, parent)
-- A checkpoint goes on from the newest one, so that nobody forks a thread without knowing.
SELECT 1 / (CASE WHEN coalesce((SELECT max(id) FROM thread_points
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND stream > 0), '') = :parent THEN 1 ELSE 0 END);

-- name: thread_life(owner, thread)
-- How often something of a thread was dropped, and the newest id that went with all of it.
SELECT life, floor FROM thread_lives WHERE owner = :owner AND thread = :thread;

-- name: newest_thread_point(owner, thread, ns)
-- Where a thread is.
SELECT p.id, p.at, e.kind, e.body FROM thread_points AS p JOIN events AS e ON e.stream = p.stream AND e.seq = p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.stream > 0 ORDER BY p.id DESC LIMIT 1;

-- name: get_thread_point(owner, thread, ns, id)
-- One checkpoint of a thread.
SELECT p.id, p.at, e.kind, e.body FROM thread_points AS p JOIN events AS e ON e.stream = p.stream AND e.seq = p.seq
WHERE p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = :id AND p.stream > 0;

-- name: thread_fate(owner, thread, ns, id)
-- From which life on a checkpoint may be there: what was put before was dropped with it, or with its thread.
SELECT whole FROM thread_lives WHERE owner = :owner AND thread = :thread
UNION ALL
SELECT dropped FROM thread_points WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id;

-- name: was_thread_point(owner, thread, ns, id)
-- Whether there was such a checkpoint, that was dropped.
SELECT dropped FROM thread_points
WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream = 0;

-- name: thread_line(owner, thread, ns, id, count)
-- A checkpoint and those that it goes back to, nearest first.
WITH RECURSIVE line (id, parent, stream, seq, at, depth) AS (
    SELECT id, parent, stream, seq, at, 1 FROM thread_points
    WHERE owner = :owner AND thread = :thread AND ns = :ns AND id = :id AND stream > 0
    UNION ALL
    SELECT p.id, p.parent, p.stream, p.seq, p.at, line.depth + 1 FROM line JOIN thread_points AS p
        ON p.owner = :owner AND p.thread = :thread AND p.ns = :ns AND p.id = line.parent AND p.stream > 0
    WHERE line.depth < :count::bigint)
SELECT line.id, line.at, e.kind, e.body FROM line JOIN events AS e ON e.stream = line.stream AND e.seq = line.seq ORDER BY line.depth;

-- name: thread_writes_between(owner, thread, ns, first, last)
-- The writes that go on from checkpoints of a range, in the order in which they came.
SELECT w.id, e.kind, e.body FROM thread_writes AS w JOIN events AS e ON e.stream = w.stream AND e.seq = w.seq
WHERE w.owner = :owner AND w.thread = :thread AND w.ns = :ns AND w.id >= :first AND w.id <= :last
ORDER BY w.id, e.at, w.stream, w.seq;

-- name: thread_points_page(owner, thread, ns, any_ns, before, count)
-- Checkpoints of a thread without their states, newest first.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_points
WHERE owner = :owner AND thread = :thread AND (:any_ns::bigint = 1 OR ns = :ns) AND (:before::text = '' OR id < :before) AND stream > 0
ORDER BY id DESC, ns LIMIT :count;

-- name: all_points_page(owner, before, count)
-- The same of all threads.
SELECT thread, ns, id, parent, run, stream, seq, at FROM thread_points
WHERE owner = :owner AND (:before::text = '' OR id < :before) AND stream > 0
ORDER BY id DESC, thread, ns LIMIT :count;

-- name: points_of_run(owner, run)
-- What a run, as a framework calls it, has put.
SELECT thread, ns, id FROM thread_points WHERE owner = :owner AND run = :run AND stream > 0 ORDER BY thread, ns, id;

-- name: writes_of_thread(owner, thread)
-- Where all writes of a thread are, for a copy of it.
SELECT ns, id, stream, seq FROM thread_writes WHERE owner = :owner AND thread = :thread ORDER BY ns, id, stream, seq;

-- name: threads_of(owner, after, count)
-- The threads of an agent, without their states.
SELECT thread, count(*), min(at), max(at), max(CASE WHEN ns = '' THEN id ELSE '' END) FROM thread_points
WHERE owner = :owner AND thread > :after AND stream > 0 GROUP BY thread ORDER BY thread LIMIT :count;

-- name: all_thread_lives()
-- For rebuild, and for who collects.
SELECT owner, thread, life, whole, floor FROM thread_lives ORDER BY owner, thread;

-- name: all_thread_points()
-- For rebuild.
SELECT owner, thread, ns, id, life, parent, run, stream, seq, at, dropped FROM thread_points
ORDER BY owner, thread, ns, id;

-- name: dropped_thread_points()
-- For who collects.
SELECT owner, thread, ns, id, dropped FROM thread_points WHERE dropped > 0;

-- name: all_thread_writes()
-- For rebuild.
SELECT owner, thread, ns, id, stream, seq, life FROM thread_writes ORDER BY owner, thread, ns, id, stream, seq;

-- name: clear_thread_lives()
-- Rebuild starts from nothing.
DELETE FROM thread_lives;

-- name: clear_thread_points()
-- Rebuild starts from nothing.
DELETE FROM thread_points;

-- name: clear_thread_writes()
-- Rebuild starts from nothing.
DELETE FROM thread_writes;

-- name: drop_document_words(owner, kind, space, key)
-- Nothing to do: a foreign key takes the words with the documents.

-- name: drop_documents(owner, kind, space, key)
-- What they belong to has changed, or is gone; their words go with them.
DELETE FROM documents WHERE owner = :owner AND kind = :kind AND space = :space AND key = :key;

-- name: put_document(owner, kind, space, key, part, version, text, embedder, vector)
-- A text that can be searched.
INSERT INTO documents (owner, kind, space, key, part, version, text, embedder, vector)
VALUES (:owner, :kind, :space, :key, :part, :version, :text, :embedder, :vector);

-- name: put_words(owner, kind, space, key, part, words)
-- The words of one; spaces are between them. Each is kept with the places where it stands, so that they can be counted.
INSERT INTO document_words (document, words) SELECT id, coalesce((
    SELECT string_agg('''' || word || ''':' || places, ' ') FROM (
        SELECT word, string_agg(least(place, 16383)::text, ',') AS places
        FROM unnest(string_to_array(:words::text, ' ')) WITH ORDINALITY AS cut (word, place)
        WHERE word <> '' GROUP BY word) AS counted), '')::tsvector
FROM documents
WHERE owner = :owner::bigint AND kind = :kind::text AND space = :space::text AND key = :key::text AND part = :part::text;

-- name: documents_now()
-- What is written from now on, or is being written, is seen by `documents_since` with this number.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: documents_since(owner, kind, embedder, since)
-- What has come since then, for the table of vectors in memory; 0 is all.
SELECT id, space, key, part, version, vector FROM documents
WHERE owner = :owner AND kind = :kind AND embedder = :embedder AND arrival >= :since AND length(vector) > 0 ORDER BY id;

-- name: documents_by_others(owner, kind, embedder, space, key, count)
-- What has texts that another model has read, or none, behind a key.
SELECT DISTINCT space, key, version FROM documents
WHERE owner = :owner AND kind = :kind AND embedder <> :embedder AND (space, key) > (:space, :key)
ORDER BY space, key LIMIT :count;

-- name: documents_with_words(owner, kind, first, last, tree, words, count)
-- Those that have some of these words, the best first, by BM25: words that few have count for more. Spaces are between them.
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
-- Some of all that there are, for copies; and whether each is found by its words.
SELECT id, owner, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE document = documents.id) FROM documents WHERE id > :after ORDER BY id LIMIT :count;

-- name: live_spaces(owner, now)
-- The namespaces of an agent in which there is something.
SELECT namespace FROM spaces WHERE owner = :owner AND EXISTS (
    SELECT 1 FROM entries WHERE entries.owner = spaces.owner AND entries.namespace = spaces.namespace
    AND length(value) > 0 AND (expires = 0 OR expires > :now)) ORDER BY namespace;

-- name: entries_under(owner, first, last, tree, now, count, skipped)
-- The latest values of a namespace and of those below it, whose names begin with tree; the newest first.
SELECT namespace, key, value, version, at, expires, created, lasts FROM entries
WHERE owner = :owner AND namespace >= :first AND namespace < :last
  AND (:tree::text = '' OR namespace = :first OR substr(namespace, 1, length(:tree::text)) = :tree::text)
  AND substr(namespace, 1, 8) <> 'perdure:' AND length(value) > 0 AND (expires = 0 OR expires > :now)
ORDER BY at DESC, namespace, key LIMIT :count OFFSET :skipped;

-- name: entries_among(owner, which, now)
-- Many keys at once; which is a JSON list of [namespace, key].
SELECT namespace, key, value, version, at, expires, created, lasts FROM entries
WHERE owner = :owner AND (namespace, key) IN (SELECT it ->> 0, it ->> 1 FROM jsonb_array_elements(:which::jsonb) AS it)
  AND length(value) > 0 AND (expires = 0 OR expires > :now);

-- name: put_memory(owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance, valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta)
-- Fold of MemoryKept. What is said of it elsewhere is looked up by `settle_memory`.
INSERT INTO memories (owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance,
    valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times)
VALUES (:owner, :id, :stream, :seq, :kind, :about, :person, :source, :writer, :run, :step, :tags, :trust, :importance,
    :valid_from, :valid_to, :recorded, :expires, :thread, :place, :sketch, :text, :meta, 0, 0, 1);

-- name: mark_memory(owner, id, what, other, stream, seq, at, valid, source, trust)
-- Fold of what an entry says of a memory, which may be folded later than the entry.
INSERT INTO memory_marks (owner, id, what, other, stream, seq, at, valid, source, trust)
VALUES (:owner, :id, :what, :other, :stream, :seq, :at, :valid, :source, :trust)
ON CONFLICT (owner, id, what, other, stream, seq) DO NOTHING;

-- name: settle_memory(owner, id)
-- What the marks of a memory come to, in whatever order they and it are folded.
UPDATE memories SET
    ended = coalesce((SELECT min(at) FROM memory_marks AS k WHERE k.owner = :owner AND k.id = :id
        AND (k.what = 'withdrawn' OR (k.what = 'superseded' AND NOT EXISTS (SELECT 1 FROM memory_marks AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn')))), 0),
    replaced = coalesce((SELECT min(CASE k.what WHEN 'withdrawn' THEN 1 ELSE k.valid END) FROM memory_marks AS k
        WHERE k.owner = :owner AND k.id = :id
        AND (k.what = 'withdrawn' OR (k.what = 'superseded' AND NOT EXISTS (SELECT 1 FROM memory_marks AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn')))), 0),
    times = 1 + (SELECT count(*) FROM memory_marks AS k WHERE k.owner = :owner AND k.id = :id AND k.what = 'again'
        AND NOT EXISTS (SELECT 1 FROM memory_marks AS w
            WHERE w.owner = :owner AND w.id = k.other AND w.what = 'withdrawn'))
WHERE owner = :owner AND id = :id;

-- name: count_memory(owner, id, again)
-- Fold of MemorySeen: one more, unless that was withdrawn. What is not there yet is counted by `settle_memory`.
UPDATE memories SET times = times + 1
WHERE owner = :owner AND id = :id AND NOT EXISTS (SELECT 1 FROM memory_marks AS w
    WHERE w.owner = :owner AND w.id = :again AND w.what = 'withdrawn');

-- name: drop_memory_at(stream, seq)
-- Fold of MemoryForgotten: what an erased entry had.
DELETE FROM memories WHERE stream = :stream AND seq = :seq;

-- name: drop_marks_at(stream, seq)
-- Fold of MemoryForgotten: what an erased entry said of others.
DELETE FROM memory_marks WHERE stream = :stream AND seq = :seq;

-- name: drop_memory_uses(owner, id)
-- Of what was forgotten.
DELETE FROM memory_uses WHERE owner = :owner AND id = :id;

-- name: erase_event(stream, seq, digest)
-- Takes the body of an entry away; its digest stays, so that the chain still verifies.
UPDATE events SET body = NULL, digest = :digest WHERE stream = :stream AND seq = :seq AND body IS NOT NULL;

-- name: last_place(owner, thread)
-- The number of what was last said in a thread.
SELECT coalesce(max(place), 0) FROM memories WHERE owner = :owner AND thread = :thread;

-- name: memories_near(owner, person, kind, about, now, count)
-- What counts now and is about the same as a new one: it may say the same, or the opposite.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta FROM (
    SELECT * FROM memories
    WHERE owner = :owner AND about = :about AND about <> '' AND person = :person AND kind = :kind AND ended = 0
      AND (expires = 0 OR expires > :now) ORDER BY valid_from DESC LIMIT :count) AS near
ORDER BY recorded DESC, id DESC;

-- name: memories_alike(owner, person, kind, about, sketch, now, count)
-- What counts now and has the words of a new one, about the same or about nothing.
SELECT id, about, trust, sketch, text, importance, valid_from, valid_to, expires, thread, tags, meta
FROM memories
WHERE owner = :owner AND sketch = :sketch AND about = :about AND person = :person AND kind = :kind AND ended = 0
  AND (expires = 0 OR expires > :now) ORDER BY recorded DESC, id DESC LIMIT :count;

-- name: links_of(owner, ids)
-- Of some memories, what says where they are among those that took each other's place; ids are a list in JSON.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories WHERE owner = :owner AND id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: links_beginning(owner, kind, about, person, valid_from)
-- The same of those about something that begin at a time.
SELECT id, kind, about, person, trust, valid_from, valid_to, replaced FROM memories
WHERE owner = :owner AND about = :about AND about <> '' AND valid_from = :valid_from AND person = :person AND kind = :kind;

-- name: memories_by_id(owner, ids)
-- Some of them, whatever has become of them; ids are a list in JSON.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: memories_again(owner, ids)
-- Which memories were asked for once more under these ids.
SELECT other, id FROM memory_marks WHERE owner = :owner AND what = 'again' AND other IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb));

-- name: marks_of(owner, ids)
-- What is said of memories, and what they say of others.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_marks
WHERE owner = :owner AND id IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb))
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_marks
WHERE owner = :owner AND other IN (SELECT value FROM jsonb_array_elements_text(:ids::jsonb))
ORDER BY at, stream, seq, id, what, other;

-- name: standing_of(owner, ids)
-- The same without how often they were said again, which may be very often, and is counted already. An array is looked up by the indexes.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_marks
WHERE owner = :owner AND id = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
UNION
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_marks
WHERE owner = :owner AND other = ANY (ARRAY(SELECT jsonb_array_elements_text(:ids::jsonb))) AND what IN ('superseded', 'derived', 'contradicts', 'withdrawn')
ORDER BY at, stream, seq, id, what, other;

-- name: marks_from(owner, source)
-- Memories that were seen again, as a source has said.
SELECT id, what, other, at, valid, source, trust, stream, seq FROM memory_marks
WHERE owner = :owner AND what = 'again' AND source = :source ORDER BY at, stream, seq;

-- name: memories_page(owner, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- The newest that pass a filter; `past` is 1 when `moment` is not now. A fact that begins later does not count yet, unless what begins
-- later is asked for; who wrote it may have had another clock.
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
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_about(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- The same of what is about something.
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
ORDER BY m.recorded DESC, m.id DESC LIMIT :count;

-- name: memories_together(owner, thread, first, last)
-- What was said before and after something, in its order.
SELECT m.id, m.stream, m.seq, m.kind, m.about, m.person, m.source, m.writer, m.run, m.step, m.tags, m.trust,
       m.importance, m.valid_from, m.valid_to, m.recorded, m.expires, m.thread, m.place, m.sketch, m.text, m.meta,
       m.ended, m.replaced, m.times, coalesce(u.uses, 0), coalesce(u.last, 0)
FROM memories AS m LEFT JOIN memory_uses AS u ON u.owner = m.owner AND u.id = m.id
WHERE m.owner = :owner AND m.thread = :thread AND m.place >= :first AND m.place <= :last ORDER BY m.place, m.id;

-- name: count_memories(owner)
-- How many there are, and how many of them count.
SELECT count(*), coalesce(sum(CASE WHEN ended = 0 THEN 1 ELSE 0 END), 0) FROM memories WHERE owner = :owner;

-- name: use_memory(owner, id, uses, last)
-- A memory was of use.
INSERT INTO memory_uses (owner, id, uses, last) VALUES (:owner, :id, :uses, :last)
ON CONFLICT (owner, id) DO UPDATE SET uses = memory_uses.uses + excluded.uses, last = greatest(memory_uses.last, excluded.last);

-- name: all_memories()
-- For rebuild.
SELECT owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance, valid_from,
    valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times
FROM memories ORDER BY owner, id;

-- name: all_memory_marks()
-- For rebuild.
SELECT owner, id, what, other, stream, seq, at, valid, source, trust FROM memory_marks
ORDER BY owner, id, what, other, stream, seq;

-- name: all_memory_uses()
-- For copies.
SELECT owner, id, uses, last FROM memory_uses ORDER BY owner, id;

-- name: clear_memories()
-- Rebuild starts from nothing.
DELETE FROM memories;

-- name: clear_memory_marks()
-- Rebuild starts from nothing.
DELETE FROM memory_marks;

-- name: put_piece(owner, memory, part, thread, place, length, asks, day, told, terms)
-- What a memory is found by, or a part of a long one; its words come with it.
INSERT INTO pieces (owner, memory, part, thread, place, length, asks, day, told, terms)
VALUES (:owner, :memory, :part, :thread, :place, :length, :asks, :day, :told, :terms)
ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_missing_piece(owner, memory, part, thread, place, length, asks, day, told, terms)
-- The same for a memory that was kept without it, unless it is forgotten at this moment.
INSERT INTO pieces (owner, memory, part, thread, place, length, asks, day, told, terms)
SELECT owner, id, :part::bigint, :thread::text, :place::bigint, :length::bigint, :asks::bigint, :day::bigint, :told::bytea,
    :terms::text
FROM memories WHERE owner = :owner::bigint AND id = :memory::text FOR SHARE ON CONFLICT (owner, memory, part) DO NOTHING;

-- name: put_piece_words()
-- Nothing to do: the words are a generated column of the piece.

-- name: put_piece_vector(owner, memory, part, embedder, vector)
-- What a model has made of a piece, unless that is gone.
INSERT INTO piece_vectors (piece, owner, embedder, vector) SELECT id, owner, :embedder::text, :vector::real[] FROM pieces
WHERE owner = :owner::bigint AND memory = :memory::text AND part = :part::bigint FOR SHARE
ON CONFLICT (piece, embedder) DO NOTHING;

-- name: drop_piece_words(owner, memory)
-- Nothing to do: the words are a column of the piece.

-- name: drop_piece_vectors(owner, memory)
-- Nothing to do: a foreign key takes the vectors with the pieces.

-- name: drop_pieces(owner, memory)
-- Of a memory that is erased: its words and vectors go with them.
DELETE FROM pieces WHERE owner = :owner AND memory = :memory;

-- name: pieces_now()
-- A number that grows with every piece.
SELECT coalesce((SELECT id FROM pieces ORDER BY id DESC LIMIT 1), 0);

-- name: pieces_known(owner)
-- How many there are, and how long they are together.
SELECT count(*), coalesce(sum(length), 0)::bigint FROM pieces WHERE owner = :owner;

-- name: terms_known(owner)
-- How many pieces have each term.
SELECT substr(word, length(:owner::bigint::text) + 3), ndoc::bigint
FROM ts_stat('SELECT words FROM pieces WHERE owner = ' || :owner::bigint);

-- name: matching_pieces(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, count)
-- Those whose memories pass a filter. What is of one user or about one thing is found by its index.
SELECT p.id FROM (
    SELECT * FROM memories WHERE owner = :owner::bigint AND :person::text = '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND person = :person::text AND person <> '' AND :about::text = ''
    UNION ALL
    SELECT * FROM memories WHERE owner = :owner::bigint AND about = :about::text AND about <> '') AS m
JOIN pieces AS p ON p.owner = m.owner AND p.memory = m.id
WHERE (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint))))) LIMIT :count::bigint;

-- name: pieces_among(ids)
-- Some of them; ids are a list in JSON.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms FROM pieces AS p WHERE p.id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: pieces_near(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- What was said at some places and passes a filter; ranges are [thread, first, last] in JSON.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN pieces AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
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

-- name: pieces_near_compared(owner, ranges, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, embedder, vector)
-- The same with how near each is, if the store compares vectors itself.
WITH there AS MATERIALIZED (
    SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
    FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN pieces AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
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
    SELECT piece, near FROM nearness(:embedder::text, :vector::real[], ARRAY(SELECT id FROM there))) AS near
ON near.piece = there.id;

-- name: pieces_around(owner, ranges)
-- What was said at some places, whatever has become of it; ranges are [thread, first, last] in JSON.
SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN pieces AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
    AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint;

-- name: pieces_around_compared(owner, ranges, embedder, vector)
-- The same with how near each is, if the store compares vectors itself.
WITH there AS MATERIALIZED (
    SELECT p.id, p.memory, p.part, p.thread, p.place, p.length, p.asks, p.day, p.told, p.terms
    FROM jsonb_array_elements(:ranges::jsonb) AS it JOIN pieces AS p ON p.owner = :owner::bigint AND p.thread = it ->> 0
        AND p.place BETWEEN (it ->> 1)::bigint AND (it ->> 2)::bigint)
SELECT there.*, near.near FROM there LEFT JOIN (
    SELECT piece, near FROM nearness(:embedder::text, :vector::real[], ARRAY(SELECT id FROM there))) AS near
ON near.piece = there.id;

-- name: memories_passing(owner, ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Those of some memories that pass a filter; ids are a list in JSON.
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

-- name: pieces_with_words(words, count)
-- Those that have some of these words, the best first; words are [word, what it is worth] in JSON. Of an array the planner expects ten.
WITH asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it)
SELECT p.id FROM asked JOIN pieces AS p ON p.words @@ asked.word
GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count::bigint;

-- name: places_with_words(words, count)
-- The same with where they are.
WITH asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it)
SELECT p.id, p.thread, p.place FROM pieces AS p WHERE p.id = ANY (ARRAY(
    SELECT had.id FROM asked JOIN pieces AS had ON had.words @@ asked.word
    GROUP BY 1 ORDER BY sum(asked.worth) DESC, 1 DESC LIMIT :count::bigint));

-- name: places_of_days(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, first, last, count)
-- Where that was said between two days which passes a filter, the first ones first.
SELECT p.id, p.thread, p.place FROM pieces AS p JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.owner = :owner::bigint AND p.day BETWEEN :first::bigint AND :last::bigint AND (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))))
ORDER BY p.day, p.id LIMIT :count::bigint;

-- name: places_of_pieces(ids)
-- Where some of them are; ids are a list in JSON.
SELECT id, thread, place FROM pieces WHERE id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: places_passing(ids, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past)
-- Where those of some pieces are that pass a filter; ids are a list in JSON.
SELECT p.id, p.thread, p.place FROM pieces AS p JOIN memories AS m ON m.owner = p.owner AND m.id = p.memory
WHERE p.id = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb))) AND (:kind::text = '' OR m.kind = :kind::text) AND (:about::text = '' OR m.about = :about::text)
  AND (:person::text = '' OR m.person = :person::text) AND (:source::text = '' OR m.source = :source::text)
  AND (:run::text = '' OR m.run = :run::text) AND m.trust >= :min_trust::double precision
  AND m.valid_from >= :since::bigint AND m.valid_from < :until::bigint AND (:tags::text = '[]' OR m.tags::jsonb @> :tags::jsonb)
  AND (:all::bigint = 1 OR (m.recorded <= :known::bigint AND (m.ended = 0 OR m.ended > :known::bigint OR m.replaced > :moment::bigint)
    AND (m.expires = 0 OR m.expires > :moment::bigint)
    AND (m.valid_to = 0 OR m.valid_to > :moment::bigint OR (:past::bigint = 0 AND m.kind = 'episodic'))
    AND (m.valid_from <= :moment::bigint OR (:past::bigint = 0 AND (m.kind = 'episodic' OR m.valid_from <= m.recorded OR :since::bigint > :moment::bigint)))));

-- name: vectors_now()
-- What is written from now on, or is being written, is seen by `vectors_since` with this number.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: vectors_since(owner, embedder, since)
-- What has come since then; 0 is all.
SELECT piece, vector FROM piece_vectors
WHERE owner = :owner AND embedder = :embedder AND arrival >= :since ORDER BY number;

-- name: vectors_among(embedder, ids)
-- Those of some pieces; ids are a list in JSON.
SELECT piece, vector FROM piece_vectors
WHERE embedder = :embedder::text AND piece = ANY (ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: vectors_of_memories(owner, memories)
-- Which vectors there are of some memories, and whose; memories are a list of ids in JSON.
SELECT v.piece, v.embedder FROM pieces AS p JOIN piece_vectors AS v ON v.piece = p.id
WHERE p.owner = :owner::bigint AND p.memory = ANY (ARRAY(SELECT jsonb_array_elements_text(:memories::jsonb)));

-- name: vector_home()
-- Whether the store compares vectors itself; empty where it does not.
SELECT vector_home() WHERE vector_home() IS NOT NULL;

-- name: nearest_pieces(owner, embedder, vector, count)
-- Where the nearest are, if the store compares vectors itself.
SELECT p.id, p.thread, p.place FROM near_pieces(:owner::bigint, :embedder::text, :vector::real[], :count::bigint) AS near
JOIN pieces AS p ON p.id = near.piece;

-- name: nearest_of_all(owner, embedder, vector, count)
-- The nearest of all, each of them compared, if the store compares vectors itself; the nearest first.
SELECT piece FROM nearest_of_all(:owner::bigint, :embedder::text, :vector::real[], :count::bigint);

-- name: likely_pieces(owner, about, kind, person, source, run, min_trust, since, until, tags, all, known, moment, past, few, most, words, of_words, embedder, vector, of_meaning)
-- Where those that pass a filter and have some words are, and the nearest of all that pass; without a place all that pass, if they are few; without a number, if they are too many.
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
    SELECT p.id FROM chosen JOIN pieces AS p ON p.owner = chosen.owner AND p.memory = chosen.id WHERE NOT (SELECT wide FROM room)),
counted AS MATERIALIZED (SELECT count(*) > :few::bigint AS many FROM passing),
asked AS MATERIALIZED (
    SELECT ('''' || (it ->> 0) || '''')::tsquery AS word, (it ->> 1)::int AS worth FROM unnest(ARRAY(SELECT jsonb_array_elements(:words::jsonb))) AS it
    WHERE (SELECT many FROM counted)),
had AS MATERIALIZED (SELECT p.id, sum(asked.worth) AS worth FROM asked JOIN pieces AS p ON p.words @@ asked.word GROUP BY 1),
hits AS (
    SELECT had.id FROM had JOIN passing ON passing.id = had.id ORDER BY had.worth DESC, had.id DESC LIMIT :of_words::bigint),
nearest AS (
    SELECT piece FROM nearness(
        :embedder::text, :vector::real[], ARRAY(SELECT id FROM passing WHERE (SELECT many FROM counted)))
    ORDER BY near DESC LIMIT :of_meaning::bigint)
SELECT p.id, p.thread, p.place FROM pieces AS p WHERE p.id = ANY (ARRAY(SELECT id FROM hits UNION SELECT piece FROM nearest))
UNION ALL
SELECT id, NULL, 0 FROM passing WHERE NOT (SELECT many FROM counted)
UNION ALL
SELECT NULL, NULL, 0 FROM room WHERE wide;

-- name: index_first()
-- What a question looks at is in memory: what follows in the same message takes an index where it can.
SELECT set_config('random_page_cost', '1.1', true);

-- name: nearness_of(embedder, vector, ids)
-- How near some pieces are, where the store compares vectors itself; ids are a list in JSON.
SELECT piece, near FROM nearness(:embedder::text, :vector::real[],
    ARRAY(SELECT value::bigint FROM jsonb_array_elements_text(:ids::jsonb)));

-- name: unread_pieces(owner, embedder, after, count)
-- Pieces that a model has not read.
SELECT p.id, p.memory, p.part FROM pieces AS p WHERE p.owner = :owner AND p.id > :after AND NOT EXISTS (
    SELECT 1 FROM piece_vectors AS v WHERE v.piece = p.id AND v.embedder = :embedder) ORDER BY p.id LIMIT :count;

-- name: vectors_known(owner, embedder)
-- How many pieces there are, and how many of them a model has read.
SELECT (SELECT count(*) FROM pieces WHERE owner = :owner),
    (SELECT count(*) FROM piece_vectors WHERE owner = :owner AND embedder = :embedder);

-- name: vectors_by_model(owner)
-- How many vectors each model has made.
SELECT embedder, count(*) FROM piece_vectors WHERE owner = :owner GROUP BY embedder ORDER BY embedder;

-- name: memories_without_pieces(owner, after, count)
-- Memories that were written without an index, by an older program or another store.
SELECT id FROM memories AS m WHERE owner = :owner AND id > :after AND NOT EXISTS (
    SELECT 1 FROM pieces AS p WHERE p.owner = m.owner AND p.memory = m.id) ORDER BY id LIMIT :count;

-- name: drop_other_vectors(owner, embedder, count)
-- What other models have made, once one has read everything.
DELETE FROM piece_vectors WHERE number IN (
    SELECT number FROM piece_vectors WHERE owner = :owner AND embedder <> :embedder LIMIT :count) RETURNING number;

-- name: index_vectors(embedder, dims)
-- Have a model's vectors found by an index, where the store has one.
SELECT index_vectors(:embedder::text, :dims::bigint);

-- name: pieces_page(after, count)
-- Some of all that there are, for copies.
SELECT id, owner, memory, part, thread, place, length, asks, day, told, terms FROM pieces WHERE id > :after ORDER BY id LIMIT :count;

-- name: vectors_page(after, count)
-- Some of all that there are, for copies.
SELECT number, piece, owner, embedder, vector FROM piece_vectors WHERE number > :after ORDER BY number LIMIT :count;

-- name: set_gone(stream, seq)
-- Fold of AgentLeft, and of AgentArrived, after which it is at home again.
UPDATE agents SET gone = :seq WHERE stream = :stream;

-- name: departure_of(name)
-- How an agent has left, if it has: asked in whatever makes a stream for it, or takes one.
SELECT events.kind, events.at, events.body FROM agents JOIN events ON events.stream = agents.stream AND events.seq = agents.gone
WHERE agents.name = :name AND agents.gone > 0;

-- name: lock_agent(name)
-- Before it leaves: who writes for it from elsewhere has done so, or waits.
SELECT gone FROM agents WHERE name = :name FOR UPDATE;

-- name: hold_agent(stream)
-- Before something is written for an agent in a stream of another one: it does not leave meanwhile.
SELECT name FROM agents WHERE stream = :stream FOR KEY SHARE;

-- name: lock_streams()
-- No stream is made until this transaction ends.
SELECT last FROM stream_count FOR UPDATE;

-- name: run_streams(agent)
-- The streams of an agent's runs.
SELECT stream FROM runs WHERE agent = :agent ORDER BY stream;

-- name: fence_off(stream)
-- Whoever holds a stream writes to it no more.
UPDATE leases SET fence = fence + 1, holder = NULL WHERE stream = :stream;

-- name: fence_off_runs(agent)
-- The same for all runs of an agent.
UPDATE leases SET fence = fence + 1, holder = NULL WHERE stream IN (SELECT stream FROM runs WHERE agent = :agent);

-- name: lease_at(stream)
-- What a stream that moves takes along: nobody who has written to it before is mistaken for who will.
SELECT fence, ordered FROM leases WHERE stream = :stream;

-- name: restore_lease(stream, fence, ordered)
-- And what it has where it arrives.
INSERT INTO leases (stream, fence, holder, ordered) VALUES (:stream, :fence, NULL, :ordered);

-- name: append_erased(stream, seq, kind, at, chain, digest)
-- An entry that was erased where it comes from.
INSERT INTO events (stream, seq, kind, at, body, chain, digest) VALUES (:stream, :seq, :kind, :at, NULL, :chain, :digest);

-- name: documents_of(owner, after, count)
-- What an agent's values are found by, for who takes them along.
SELECT id, kind, space, key, part, version, text, embedder, vector, EXISTS (
    SELECT 1 FROM document_words WHERE document = documents.id) FROM documents
WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: number_happenings_of(owner)
-- The events of an agent that has arrived, by time. Later ones come behind all of these.
WITH numbered AS (
    UPDATE happenings SET arrival = ranked.number FROM (
        SELECT stream, seq, place, row_number() OVER (ORDER BY at, stream, seq, place) AS number
        FROM happenings WHERE owner = :owner) AS ranked
    WHERE happenings.owner = :owner AND happenings.stream = ranked.stream AND happenings.seq = ranked.seq
      AND happenings.place = ranked.place RETURNING 1)
UPDATE arrivals SET base = base + (SELECT count(*) FROM numbered);

-- name: pieces_of(owner, after, count)
-- What an agent's memories are found by, for who takes them along.
SELECT id, memory, part, thread, place, length, asks, day, told, terms FROM pieces
WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: vectors_of(owner, after, count)
-- What models have made of them.
SELECT v.number, p.memory, p.part, v.embedder, v.vector FROM piece_vectors AS v JOIN pieces AS p ON p.id = v.piece
WHERE v.owner = :owner AND v.number > :after ORDER BY v.number LIMIT :count;

-- name: uses_of(owner, after, count)
-- How often an agent's memories were of use.
SELECT id, uses, last FROM memory_uses WHERE owner = :owner AND id > :after ORDER BY id LIMIT :count;

-- name: set_lease(stream, fence, ordered)
-- Of a stream that has come back with more in it.
UPDATE leases SET fence = :fence, holder = NULL, ordered = :ordered WHERE stream = :stream;

-- name: drop_document_words_of(owner)
-- Nothing to do: a foreign key takes the words with the documents.

-- name: drop_documents_of(owner)
-- An agent that comes back brings what it is found by.
DELETE FROM documents WHERE owner = :owner;

-- name: drop_piece_words_of(owner)
-- Nothing to do: the words are a column of the piece.

-- name: drop_piece_vectors_of(owner)
-- Nothing to do: a foreign key takes the vectors with the pieces.

-- name: drop_pieces_of(owner)
-- The same of its memories; words and vectors go with them.
DELETE FROM pieces WHERE owner = :owner;

-- name: drop_uses_of(owner)
-- And how often they were of use.
DELETE FROM memory_uses WHERE owner = :owner;
