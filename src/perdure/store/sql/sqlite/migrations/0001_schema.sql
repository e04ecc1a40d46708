-- Facts about the store itself: its id, its schema version, the secret that keys object ids.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- Every host and file where the store was used, oldest first. It reveals copies.
CREATE TABLE store_locations (
    id   INTEGER PRIMARY KEY,
    host TEXT NOT NULL,
    file TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- Streams are numbered without gaps, so that verify notices a removed one.
CREATE TABLE streams (
    id   INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- The journal. id is (stream << 32) | seq: one B-tree in stream order, so that appending a step touches as few pages as a
-- bare insert. body is NULL and digest set once a payload is erased.
CREATE TABLE journal (
    id     INTEGER PRIMARY KEY,
    kind   INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    body   BLOB,
    chain  BLOB NOT NULL,
    digest BLOB
) STRICT;

-- Signed heads. Not a view: nobody can make a signature again without the key.
CREATE TABLE seals (
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    chain      BLOB NOT NULL,
    streams    INTEGER NOT NULL,
    public_key BLOB NOT NULL,
    signature  BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT;

-- Large values, stored once each; id is a keyed hash of the content. A rowid table, because rows are large.
CREATE TABLE objects (
    id   BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Processes that hold leases. One heartbeat renews the row for all runs of the process. Ids are never reused: the first
-- owner may only have been asleep.
CREATE TABLE holders (
    id        INTEGER PRIMARY KEY,
    boot      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    pid       INTEGER NOT NULL,
    started   INTEGER NOT NULL,
    host      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    deadline  INTEGER NOT NULL
) STRICT;

-- The writer of each stream. The fence only grows: a writer with an older one changes nothing.
CREATE TABLE leases (
    stream  INTEGER PRIMARY KEY,
    fence   INTEGER NOT NULL,
    holder  INTEGER,
    -- The number of the last order to the holder: appending an entry returns it.
    ordered INTEGER NOT NULL DEFAULT 0
) STRICT;

-- View: the agents of this store.
CREATE TABLE agents (
    name       TEXT PRIMARY KEY,
    stream     INTEGER NOT NULL,
    public_key BLOB NOT NULL,
    at         INTEGER NOT NULL,
    -- The entry by which the agent left this store; 0 while it is here.
    gone       INTEGER NOT NULL DEFAULT 0
) STRICT;

-- View: the runs.
CREATE TABLE runs (
    stream       INTEGER PRIMARY KEY,
    agent        TEXT NOT NULL,
    id           TEXT NOT NULL,
    status       TEXT NOT NULL,
    input_digest BLOB NOT NULL,
    parent       INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    resumes      INTEGER NOT NULL,
    outcome      INTEGER NOT NULL,
    error        TEXT NOT NULL,
    -- Of a fork: the stream of its origin, and the last entry that they share.
    forked_from  INTEGER NOT NULL DEFAULT 0,
    forked_at    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (agent, id)
) STRICT;

-- View: the latest values of `run.state`; owner is the stream of the run.
CREATE TABLE run_state (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    version   INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key)
) STRICT;

-- View: questions that runs have asked people.
CREATE TABLE questions (
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    about  INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    text   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    open   INTEGER NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT;

-- The few questions that are open, among all that were ever asked.
CREATE INDEX questions_open ON questions (stream, seq) WHERE open = 1;

-- View: answers; the first one wins. Apart from questions, because an answer may come first.
CREATE TABLE answers (
    stream  INTEGER NOT NULL,
    about   INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    value   BLOB NOT NULL,
    by      TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (stream, about)
) STRICT;

-- View: the revision of each namespace of agent state: how often it has changed.
CREATE TABLE state_namespaces (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- View: the latest values of agent state; owner is the stream of the agent. A deleted key stays without a value, so that
-- its versions continue.
CREATE TABLE agent_state (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    version   INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    -- When the key was created (0: by its last change), and how long each read extends it.
    created   INTEGER NOT NULL DEFAULT 0,
    lasts     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, namespace, key)
) STRICT;

-- View: every change of a key, and the journal entry that has its value.
CREATE TABLE state_history (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key, revision)
) STRICT, WITHOUT ROWID;

-- View: checkpoints of agents, and the journal entry that has each. A deleted one stays, marked, so that its number is not
-- reused.
CREATE TABLE checkpoints (
    owner   INTEGER NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT, WITHOUT ROWID;

-- Keys that expire, in order: the sweeper reads no others.
CREATE INDEX agent_state_expiring ON agent_state (owner, expires) WHERE expires > 0;

-- View: artifacts of agents, and the journal entry that has each. A deleted one stays, marked, so that its number is not
-- reused.
CREATE TABLE artifacts (
    owner   INTEGER NOT NULL,
    name    TEXT NOT NULL,
    version INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT, WITHOUT ROWID;

-- Uploads of artifacts in progress. Not a view: it protects objects that no entry refers to yet from collection.
CREATE TABLE uploads (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    holder INTEGER NOT NULL
) STRICT;

-- The objects that uploads have written so far.
CREATE TABLE upload_objects (
    upload INTEGER NOT NULL,
    object BLOB NOT NULL,
    PRIMARY KEY (upload, object)
) STRICT, WITHOUT ROWID;

-- View: model usage by run, step, model and day (since 1970, UTC). cost is in billionths of a dollar, without unpriced calls.
CREATE TABLE usage (
    stream              INTEGER NOT NULL,
    step                TEXT NOT NULL,
    model               TEXT NOT NULL,
    provider            TEXT NOT NULL,
    day                 INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    unpriced            INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens  INTEGER NOT NULL,
    cost                INTEGER NOT NULL,
    PRIMARY KEY (stream, step, model, provider, day)
) STRICT, WITHOUT ROWID;

-- View: what resuming has saved: finished steps and effects that a restart would have run again.
CREATE TABLE savings (
    stream              INTEGER NOT NULL,
    model               TEXT NOT NULL,
    provider            TEXT NOT NULL,
    day                 INTEGER NOT NULL,
    steps               INTEGER NOT NULL,
    took_us             INTEGER NOT NULL,
    calls               INTEGER NOT NULL,
    unpriced            INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cache_write_tokens  INTEGER NOT NULL,
    cost                INTEGER NOT NULL,
    PRIMARY KEY (stream, model, provider, day)
) STRICT, WITHOUT ROWID;

-- The newest runs of an agent in a status: lists and counts read no others.
CREATE INDEX runs_in_status ON runs (agent, status, changed_at, stream);

-- The child runs of a run, for its budget.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> 0;

-- View: the agents' events in order of arrival, and the journal entry that has each; place is the index within the entry.
-- Arrival belongs to this store: rebuilding renumbers by time. It is never below the time, so that no arrival is reused.
CREATE TABLE events (
    owner   INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    run     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (owner, arrival, stream, seq, place)
) STRICT, WITHOUT ROWID;

-- The events of one kind.
CREATE INDEX events_of_kind ON events (owner, kind, arrival, stream, seq, place);

-- The events of one run; most have none.
CREATE INDEX events_of_run ON events (run, arrival, stream, seq, place) WHERE run > 0;

-- Finds a time in the order of events.
CREATE INDEX events_by_time ON events (owner, at, arrival, stream, seq, place);

-- Results of replays up to an event, from which the next replay continues. Not a view: rebuilding drops them.
CREATE TABLE replay_snapshots (
    owner   INTEGER NOT NULL,
    key     BLOB NOT NULL,
    arrival INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    value   BLOB NOT NULL,
    PRIMARY KEY (owner, key, arrival, stream, seq, place)
) STRICT;

-- View: every version of the agents' workflows with its initial steps; owner is the stream of the agent.
CREATE TABLE workflows (
    owner    INTEGER NOT NULL,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    steps    BLOB NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (owner, name, version)
) STRICT;

-- View: the progress of workflow steps that have moved since their version was made.
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

-- View: signals sent to runs, in the order in which each run receives those of a name.
CREATE TABLE signals (
    owner  INTEGER NOT NULL,
    run    TEXT NOT NULL,
    name   TEXT NOT NULL,
    number INTEGER NOT NULL,
    value  BLOB NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (owner, run, name, number)
) STRICT, WITHOUT ROWID;

-- View: since when the history of a namespace is complete; earlier changes were compacted.
CREATE TABLE state_horizons (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- The compaction entries (kind 50) of a stream, found without reading the stream.
CREATE INDEX journal_compactions ON journal (id) WHERE kind = 50;

-- The forks of a run; most have none.
CREATE INDEX runs_by_origin ON runs (forked_from) WHERE forked_from > 0;

-- View: orders (cancel, pause) to open runs, in the order in which each run received them.
CREATE TABLE orders (
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    what   TEXT NOT NULL,
    reason TEXT NOT NULL,
    by     TEXT NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;

-- View: runs handed to workers, until they finish. owner is the stream of the agent, stream that of the run once it has
-- begun. ready_at is when a worker may take it: 0 means now, 4611686018427387904 means not by itself.
CREATE TABLE tasks (
    owner        INTEGER NOT NULL,
    run          TEXT NOT NULL,
    stream       INTEGER NOT NULL,
    task         TEXT NOT NULL,
    queue        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    key          TEXT NOT NULL,
    state        TEXT NOT NULL,
    ready_at     INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    failed_seq   INTEGER NOT NULL,
    requeued_seq INTEGER NOT NULL,
    input        BLOB NOT NULL,
    digest       BLOB NOT NULL,
    parent       INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (owner, run)
) STRICT;

-- The task that a worker takes next.
CREATE INDEX tasks_ready ON tasks (owner, queue, priority DESC, at, run) WHERE ready_at = 0;

-- Tasks that become ready at a time, in order; those that never do come last.
CREATE INDEX tasks_timed ON tasks (owner, ready_at) WHERE ready_at > 0;

-- Running tasks: for limits, and to find those of dead workers.
CREATE INDEX tasks_running ON tasks (owner, queue, key) WHERE state = 'running';

-- The task of a run.
CREATE INDEX tasks_of_stream ON tasks (stream) WHERE stream > 0;

-- View: what parked runs wait for; stream is that of the run.
CREATE TABLE task_waits (
    what   TEXT NOT NULL,
    stream INTEGER NOT NULL,
    PRIMARY KEY (what, stream)
) STRICT, WITHOUT ROWID;

-- The waits of one run.
CREATE INDEX task_waits_of ON task_waits (stream);

-- When the next run of a rate-limited queue may start. Not a view: it matters only for a moment.
CREATE TABLE rate_limits (
    owner INTEGER NOT NULL,
    queue TEXT NOT NULL,
    next  INTEGER NOT NULL,
    PRIMARY KEY (owner, queue)
) STRICT, WITHOUT ROWID;

-- View: threads of which something was dropped: how often, at which generation last the whole thread (lower ones are gone),
-- and the newest id dropped then.
CREATE TABLE thread_generations (
    owner              INTEGER NOT NULL,
    thread             TEXT NOT NULL,
    generation         INTEGER NOT NULL,
    deleted_generation INTEGER NOT NULL,
    deleted_up_to      TEXT NOT NULL,
    PRIMARY KEY (owner, thread)
) STRICT, WITHOUT ROWID;

-- View: checkpoints of threads, and the journal entry that has each. A dropped one stays, empty, until its thread is
-- deleted: dropped is the generation that dropped it.
CREATE TABLE thread_checkpoints (
    owner      INTEGER NOT NULL,
    thread     TEXT NOT NULL,
    ns         TEXT NOT NULL,
    id         TEXT NOT NULL,
    generation INTEGER NOT NULL,
    parent     TEXT NOT NULL,
    run        TEXT NOT NULL,
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    dropped    INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id)
) STRICT, WITHOUT ROWID;

-- Checkpoints by a framework's run id; most have none.
CREATE INDEX thread_checkpoints_of_run ON thread_checkpoints (owner, run) WHERE run <> '';

-- View: pending writes of checkpoints, which may not exist yet: one row for each time that a task has written, and the
-- journal entry that has them.
CREATE TABLE thread_writes (
    owner      INTEGER NOT NULL,
    thread     TEXT NOT NULL,
    ns         TEXT NOT NULL,
    id         TEXT NOT NULL,
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id, stream, seq)
) STRICT, WITHOUT ROWID;

-- Searchable texts by what they belong to: kind 'state' is a key of agent state in its version, part is the path within the
-- value. A vector is 4-byte floats by the named embedder; empty without one. Not a view: only its model can make a vector
-- again. Written by the commit that writes the value.
CREATE TABLE documents (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner    INTEGER NOT NULL,
    kind     TEXT NOT NULL,
    space    TEXT NOT NULL,
    key      TEXT NOT NULL,
    part     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    text     BLOB NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL,
    UNIQUE (owner, kind, space, key, part)
) STRICT;

-- The words of documents, as `words.py` splits them: already separated by spaces.
CREATE VIRTUAL TABLE document_words USING fts5 (words, tokenize = 'ascii');

-- Deleted words leave no trace in the index.
INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 1);

-- View: what agents know; owner is the stream of the agent, stream and seq are the journal entry that has it. The text is
-- packed, tags are a JSON list. A memory is valid until it ended (superseded or withdrawn, as recorded); replaced is when, by
-- the time of its successor, it stopped being true.
CREATE TABLE memories (
    owner      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    about      TEXT NOT NULL,
    person     TEXT NOT NULL,
    source     TEXT NOT NULL,
    writer     TEXT NOT NULL,
    run        TEXT NOT NULL,
    step       TEXT NOT NULL,
    tags       TEXT NOT NULL,
    trust      REAL NOT NULL,
    importance REAL NOT NULL,
    valid_from INTEGER NOT NULL,
    valid_to   INTEGER NOT NULL,
    recorded   INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    thread     TEXT NOT NULL,
    place      INTEGER NOT NULL,
    sketch     BLOB NOT NULL,
    text       BLOB NOT NULL,
    meta       BLOB NOT NULL,
    ended      INTEGER NOT NULL,
    replaced   INTEGER NOT NULL,
    times      INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT;

-- The memory of a journal entry.
CREATE INDEX memories_at ON memories (stream, seq);

-- Memories on a subject; most episodic ones have none.
CREATE INDEX memories_about ON memories (owner, about, valid_from) WHERE about <> '';

-- Valid memories on a subject, to compare with a new one, however many were superseded.
CREATE INDEX memories_counting ON memories (owner, about, person, kind, valid_from) WHERE about <> '' AND ended = 0;

-- Memories with the same words.
CREATE INDEX memories_alike ON memories (owner, sketch, about, person, recorded) WHERE ended = 0;

-- The memories of a thread, in order.
CREATE INDEX memories_in_thread ON memories (owner, thread, place);

-- The newest memories.
CREATE INDEX memories_by_time ON memories (owner, recorded, id);

-- Memories that expire.
CREATE INDEX memories_expiring ON memories (owner, expires) WHERE expires > 0;

-- View: what entries say about memories, which may not exist: `superseded` by another, seen `again` under another id,
-- `withdrawn`, `derived` from another, `contradicts` another; and since when, by its own time, that holds.
CREATE TABLE memory_relations (
    owner  INTEGER NOT NULL,
    id     TEXT NOT NULL,
    what   TEXT NOT NULL,
    other  TEXT NOT NULL,
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    valid  INTEGER NOT NULL,
    source TEXT NOT NULL,
    trust  REAL NOT NULL,
    PRIMARY KEY (owner, id, what, other, stream, seq)
) STRICT, WITHOUT ROWID;

-- The relations of a journal entry.
CREATE INDEX memory_relations_at ON memory_relations (stream, seq);

-- Relations by their other end.
CREATE INDEX memory_relations_of ON memory_relations (owner, other, what);

-- When memories were last used, and how often. Not a view: losing it only changes an order.
CREATE TABLE memory_uses (
    owner INTEGER NOT NULL,
    id    TEXT NOT NULL,
    uses  INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

-- Search chunks of memories: one each, several for a long memory. terms are made by `memory/recall/terms.py`; thread and place are
-- those of the memory; asks is in thousandths, day counts from the year 1, told are the days that the text mentions.
-- Not a view: written by the memory's commit, made again by `agent.memory.reembed()`.
CREATE TABLE chunks (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    owner  INTEGER NOT NULL,
    memory TEXT NOT NULL,
    part   INTEGER NOT NULL,
    thread TEXT NOT NULL,
    place  INTEGER NOT NULL,
    length INTEGER NOT NULL,
    asks   INTEGER NOT NULL,
    day    INTEGER NOT NULL,
    told   BLOB NOT NULL,
    terms  TEXT NOT NULL,
    UNIQUE (owner, memory, part)
) STRICT;

-- The neighbours of a chunk.
CREATE INDEX chunks_in_thread ON chunks (owner, thread, place);

-- The chunks of a day.
CREATE INDEX chunks_of_day ON chunks (owner, day);

-- The chunks that have a term. The owner prefixes each term, so that rarity is per agent.
CREATE VIRTUAL TABLE chunk_words USING fts5 (words, content = '', tokenize = 'ascii');

-- Deleted words leave no trace in the index.
INSERT INTO chunk_words (chunk_words, rank) VALUES ('secure-delete', 1);

-- How many chunks have a term.
CREATE VIRTUAL TABLE chunk_terms USING fts5vocab (chunk_words, row);

-- Vectors of chunks: 4-byte floats, normalized. Vectors of different models are never compared.
CREATE TABLE chunk_vectors (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk    INTEGER NOT NULL,
    owner    INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL,
    UNIQUE (chunk, embedder)
) STRICT;

-- Vectors since a cursor.
CREATE INDEX chunk_vectors_since ON chunk_vectors (owner, embedder, number);

-- Memories of one user. With every column that a filter can ask for, because the rows themselves are far apart in the file.
CREATE INDEX memories_of_person ON memories (owner, person, kind, source, run, trust, valid_from, valid_to, recorded, expires,
    ended, replaced, about, tags, id) WHERE person <> '';
