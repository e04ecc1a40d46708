-- Inserts into a backup of a server's store. Each has the name of the query that reads its rows, and takes their columns.

-- name: all_agents(name, stream, public_key, at, gone)
-- Rows of agents.
INSERT INTO agents (name, stream, public_key, at, gone)
VALUES (:name, :stream, :public_key, :at, :gone);

-- name: all_runs(stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error, forked_from, forked_at)
-- Rows of runs.
INSERT INTO runs (stream, agent, id, status, input_digest, parent, started_at, changed_at, resumes, outcome, error,
    forked_from, forked_at)
VALUES (:stream, :agent, :id, :status, :input_digest, :parent, :started_at, :changed_at, :resumes, :outcome, :error,
    :forked_from, :forked_at);

-- name: all_run_state(owner, namespace, key, value, version, at)
-- Rows of run_state.
INSERT INTO run_state (owner, namespace, key, value, version, at)
VALUES (:owner, :namespace, :key, :value, :version, :at);

-- name: all_questions(stream, seq, about, kind, text, at, open)
-- Rows of questions.
INSERT INTO questions (stream, seq, about, kind, text, at, open)
VALUES (:stream, :seq, :about, :kind, :text, :at, :open);

-- name: all_answers(stream, about, verdict, value, by, at)
-- Rows of answers.
INSERT INTO answers (stream, about, verdict, value, by, at)
VALUES (:stream, :about, :verdict, :value, :by, :at);

-- name: all_state_namespaces(owner, namespace, revision)
-- Rows of state_namespaces.
INSERT INTO state_namespaces (owner, namespace, revision)
VALUES (:owner, :namespace, :revision);

-- name: all_state_horizons(owner, namespace, revision, at)
-- Rows of state_horizons.
INSERT INTO state_horizons (owner, namespace, revision, at)
VALUES (:owner, :namespace, :revision, :at);

-- name: all_agent_state(owner, namespace, key, value, version, revision, at, expires, created, lasts)
-- Rows of agent_state.
INSERT INTO agent_state (owner, namespace, key, value, version, revision, at, expires, created, lasts)
VALUES (:owner, :namespace, :key, :value, :version, :revision, :at, :expires, :created, :lasts);

-- name: all_state_history(owner, namespace, key, revision, version, stream, seq, at)
-- Rows of state_history.
INSERT INTO state_history (owner, namespace, key, revision, version, stream, seq, at)
VALUES (:owner, :namespace, :key, :revision, :version, :stream, :seq, :at);

-- name: all_checkpoints(owner, name, version, stream, seq, at, dropped)
-- Rows of checkpoints.
INSERT INTO checkpoints (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, :dropped);

-- name: all_artifacts(owner, name, version, stream, seq, at, dropped)
-- Rows of artifacts.
INSERT INTO artifacts (owner, name, version, stream, seq, at, dropped)
VALUES (:owner, :name, :version, :stream, :seq, :at, :dropped);

-- name: all_usage(stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Rows of usage.
INSERT INTO usage (stream, step, model, provider, day, calls, unpriced, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, cost)
VALUES (:stream, :step, :model, :provider, :day, :calls, :unpriced, :input_tokens, :output_tokens,
    :cached_input_tokens, :cache_write_tokens, :cost);

-- name: all_savings(stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, cost)
-- Rows of savings.
INSERT INTO savings (stream, model, provider, day, steps, took_us, calls, unpriced, input_tokens, output_tokens,
    cached_input_tokens, cache_write_tokens, cost)
VALUES (:stream, :model, :provider, :day, :steps, :took_us, :calls, :unpriced, :input_tokens, :output_tokens,
    :cached_input_tokens, :cache_write_tokens, :cost);

-- name: copy_events(owner, arrival, stream, seq, place, run, kind, at)
-- Rows of events.
INSERT INTO events (owner, arrival, stream, seq, place, run, kind, at)
VALUES (:owner, :arrival, :stream, :seq, :place, :run, :kind, :at);

-- name: all_workflows(owner, name, version, revision, steps, at)
-- Rows of workflows.
INSERT INTO workflows (owner, name, version, revision, steps, at)
VALUES (:owner, :name, :version, :revision, :steps, :at);

-- name: all_workflow_steps(owner, name, version, step, revision, status, standing, at)
-- Rows of workflow_steps.
INSERT INTO workflow_steps (owner, name, version, step, revision, status, standing, at)
VALUES (:owner, :name, :version, :step, :revision, :status, :standing, :at);

-- name: all_signals(owner, run, name, number, value, by, at)
-- Rows of signals.
INSERT INTO signals (owner, run, name, number, value, by, at)
VALUES (:owner, :run, :name, :number, :value, :by, :at);

-- name: all_orders(stream, number, fence, what, reason, by, at)
-- Rows of orders.
INSERT INTO orders (stream, number, fence, what, reason, by, at)
VALUES (:stream, :number, :fence, :what, :reason, :by, :at);

-- name: all_leases(stream, fence, ordered)
-- Leases without their holders, which use the original.
INSERT INTO leases (stream, fence, holder, ordered)
VALUES (:stream, :fence, NULL, :ordered);

-- name: all_tasks(owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq, requeued_seq, input, digest, parent, at)
-- Rows of tasks.
INSERT INTO tasks (owner, run, stream, task, queue, priority, key, state, ready_at, attempts, failed_seq,
    requeued_seq, input, digest, parent, at)
VALUES (:owner, :run, :stream, :task, :queue, :priority, :key, :state, :ready_at, :attempts, :failed_seq,
    :requeued_seq, :input, :digest, :parent, :at);

-- name: all_task_waits(what, stream)
-- Rows of task_waits.
INSERT INTO task_waits (what, stream)
VALUES (:what, :stream);

-- name: all_thread_generations(owner, thread, generation, deleted_generation, deleted_up_to)
-- Rows of thread_generations.
INSERT INTO thread_generations (owner, thread, generation, deleted_generation, deleted_up_to)
VALUES (:owner, :thread, :generation, :deleted_generation, :deleted_up_to);

-- name: all_thread_checkpoints(owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
-- Rows of thread_checkpoints.
INSERT INTO thread_checkpoints (owner, thread, ns, id, generation, parent, run, stream, seq, at, dropped)
VALUES (:owner, :thread, :ns, :id, :generation, :parent, :run, :stream, :seq, :at, :dropped);

-- name: all_thread_writes(owner, thread, ns, id, stream, seq, generation)
-- Rows of thread_writes.
INSERT INTO thread_writes (owner, thread, ns, id, stream, seq, generation)
VALUES (:owner, :thread, :ns, :id, :stream, :seq, :generation);

-- name: all_memories(owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance, valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times)
-- Rows of memories.
INSERT INTO memories (owner, id, stream, seq, kind, about, person, source, writer, run, step, tags, trust, importance,
    valid_from, valid_to, recorded, expires, thread, place, sketch, text, meta, ended, replaced, times)
VALUES (:owner, :id, :stream, :seq, :kind, :about, :person, :source, :writer, :run, :step, :tags, :trust, :importance,
    :valid_from, :valid_to, :recorded, :expires, :thread, :place, :sketch, :text, :meta, :ended, :replaced, :times);

-- name: all_memory_relations(owner, id, what, other, stream, seq, at, valid, source, trust)
-- Rows of memory_relations.
INSERT INTO memory_relations (owner, id, what, other, stream, seq, at, valid, source, trust)
VALUES (:owner, :id, :what, :other, :stream, :seq, :at, :valid, :source, :trust);

-- name: all_memory_uses(owner, id, uses, last)
-- Rows of memory_uses.
INSERT INTO memory_uses (owner, id, uses, last)
VALUES (:owner, :id, :uses, :last);

-- name: all_seals(stream, seq, chain, streams, public_key, signature)
-- Rows of seals.
INSERT INTO seals (stream, seq, chain, streams, public_key, signature)
VALUES (:stream, :seq, :chain, :streams, :public_key, :signature);

-- name: streams_page(id, kind, name, at)
-- Rows of streams.
INSERT INTO streams (id, kind, name, at)
VALUES (:id, :kind, :name, :at);

-- name: journal_page(id, kind, at, body, chain, digest)
-- Rows of journal.
INSERT INTO journal (id, kind, at, body, chain, digest)
VALUES (:id, :kind, :at, :body, :chain, :digest);

-- name: get_object(id, size, data)
-- A large value.
INSERT INTO objects (id, size, data)
VALUES (:id, :size, :data);

-- name: documents_page(id, owner, kind, space, key, part, version, text, embedder, vector)
-- Rows of documents.
INSERT INTO documents (id, owner, kind, space, key, part, version, text, embedder, vector)
VALUES (:id, :owner, :kind, :space, :key, :part, :version, :text, :embedder, :vector);

-- name: document_words(rowid, words)
-- The words of a document, split again: a server stores them in its own form.
INSERT INTO document_words (rowid, words)
VALUES (:rowid, :words);

-- name: chunks_page(id, owner, memory, part, thread, place, length, asks, day, told, terms)
-- Rows of chunks.
INSERT INTO chunks (id, owner, memory, part, thread, place, length, asks, day, told, terms)
VALUES (:id, :owner, :memory, :part, :thread, :place, :length, :asks, :day, :told, :terms);

-- name: vectors_page(number, chunk, owner, embedder, vector)
-- Rows of chunk_vectors.
INSERT INTO chunk_vectors (number, chunk, owner, embedder, vector)
VALUES (:number, :chunk, :owner, :embedder, :vector);

-- name: set_meta(key, value)
-- A fact about the store: the copy has the secret and the identity of the original.
INSERT INTO meta (key, value)
VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: add_location(host, file, at)
-- Where the original is: opening the copy warns that it may be in use.
INSERT INTO store_locations (host, file, at)
VALUES (:host, :file, :at);
