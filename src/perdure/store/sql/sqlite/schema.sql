-- Facts about the store itself: its id, the secret that keys object ids.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- Every host and file that the store has been used as, oldest first: a copy is noticed.
CREATE TABLE homes (
    id   INTEGER PRIMARY KEY,
    host TEXT NOT NULL,
    file TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- Streams are numbered without gaps, so that a removed one is missed by `verify`.
CREATE TABLE streams (
    id   INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at   INTEGER NOT NULL
) STRICT;

-- The journal. id is (stream << 32) | seq: one B-tree, in order within each stream, so that appending a step
-- touches the same number of pages as a bare insert. body is NULL and digest set once a payload is erased.
CREATE TABLE events (
    id     INTEGER PRIMARY KEY,
    kind   INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    body   BLOB,
    chain  BLOB NOT NULL,
    digest BLOB
) STRICT;

-- Signed heads. Not a view: a signature cannot be made again without the key.
CREATE TABLE seals (
    stream     INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    chain      BLOB NOT NULL,
    streams    INTEGER NOT NULL,
    public_key BLOB NOT NULL,
    signature  BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT;

-- Large values, once each; id is a keyed hash of the content. A rowid table, because rows are large.
CREATE TABLE objects (
    id   BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- Processes that hold leases. One row is renewed by a heartbeat, however many runs the process has open. A number is
-- never given again: its first owner may only have been asleep.
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

-- Who may write to a stream. The fence only grows; a writer with an older one changes nothing.
CREATE TABLE leases (
    stream INTEGER PRIMARY KEY,
    fence  INTEGER NOT NULL,
    holder INTEGER
) STRICT;

-- View: the agents of this store.
CREATE TABLE agents (
    name       TEXT PRIMARY KEY,
    stream     INTEGER NOT NULL,
    public_key BLOB NOT NULL,
    at         INTEGER NOT NULL
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
    UNIQUE (agent, id)
) STRICT;

-- View: latest values of state; owner is the stream of the run.
CREATE TABLE state (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    version   INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key)
) STRICT;

-- View: questions that a run has put to people.
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

-- View: answers, the first of which wins. Apart from questions, so that an answer may come first.
CREATE TABLE answers (
    stream  INTEGER NOT NULL,
    about   INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    value   BLOB NOT NULL,
    by      TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (stream, about)
) STRICT;

-- View: how often a namespace of an agent's state has changed; a change has that number as its revision.
CREATE TABLE spaces (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- View: latest values of the agents' state; owner is the stream of the agent. A key that was deleted stays, without a
-- value, so that its versions go on.
CREATE TABLE entries (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     BLOB NOT NULL,
    version   INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace, key)
) STRICT;

-- View: every change of a key, and the entry of the journal that has its value.
CREATE TABLE history (
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

-- View: the checkpoints of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
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

-- Keys that will run out, in the order in which they do: the sweeper looks at no others.
CREATE INDEX entries_expiring ON entries (owner, expires) WHERE expires > 0;

-- View: the artifacts of the agents, and the entry of the journal that has each. One that was deleted stays, marked, so
-- that its number is not given again.
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

-- Artifacts on their way into the store, and whose they are. Not a view: it says what must not be collected, although no
-- entry has it yet.
CREATE TABLE uploads (
    id     INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    holder INTEGER NOT NULL
) STRICT;

-- The objects that they have come to so far.
CREATE TABLE pending (
    upload INTEGER NOT NULL,
    object BLOB NOT NULL,
    PRIMARY KEY (upload, object)
) STRICT, WITHOUT ROWID;

-- View: what calls of models have come to, for each run, step, model and day (since 1970, UTC); cost is in billionths of a
-- dollar, without that of the calls that are unpriced.
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

-- View: what resuming has saved: finished steps and effects that a restart from zero would have run again.
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

-- The children of a run, for its budget; a run without a parent is not in it.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> 0;

-- View: the events of the agents in the order of their arrival, and the entry of the journal that has each; place is its
-- place in the entry. Arrival is a matter of this store: rebuilding numbers anew, by time. One arrival is never given
-- twice, even when the last ones are taken away: it is not less than the time.
CREATE TABLE happenings (
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
CREATE INDEX happenings_of_kind ON happenings (owner, kind, arrival, stream, seq, place);

-- The events of one run; most have none.
CREATE INDEX happenings_of_run ON happenings (run, arrival, stream, seq, place) WHERE run > 0;

-- Where a time is in the order.
CREATE INDEX happenings_by_time ON happenings (owner, at, arrival, stream, seq, place);

-- What replays came to up to an event, so that the next one begins there. No view: rebuilding drops it.
CREATE TABLE replays (
    owner   INTEGER NOT NULL,
    key     BLOB NOT NULL,
    arrival INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    value   BLOB NOT NULL,
    PRIMARY KEY (owner, key, arrival, stream, seq, place)
) STRICT;

-- Runs have noted events before there was this view of them: whoever opens the store makes its views anew.
INSERT INTO meta (key, value) SELECT 'stale', x'01' WHERE EXISTS (SELECT 1 FROM events);

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

-- View: events that were sent to runs, in the order in which each run takes those of a name.
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

-- View: from when on the past of a namespace is whole; what came before was folded.
CREATE TABLE floors (
    owner     INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (owner, namespace)
) STRICT, WITHOUT ROWID;

-- What was folded of a stream, to be found without reading the stream. No other entry is in it.
CREATE INDEX events_folded ON events (id) WHERE kind = 50;

-- Of a fork: the stream of the run that it has its beginning from, and the last entry that they share.
ALTER TABLE runs ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;

-- The forks of a run; most have none.
CREATE INDEX runs_by_origin ON runs (origin) WHERE origin > 0;

-- View: what runs that were open were told, in the order in which each was told.
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

-- The number of the last order to the holder: whoever appends an entry is told of it by the same statement.
ALTER TABLE leases ADD COLUMN ordered INTEGER NOT NULL DEFAULT 0;

-- View: runs that were handed to workers, until they have finished; owner is the stream of the agent, stream that of the run
-- once it has begun. ready_at is when a worker may take it: 0 is now, 4611686018427387904 is not by itself.
CREATE TABLE tasks (
    owner    INTEGER NOT NULL,
    run      TEXT NOT NULL,
    stream   INTEGER NOT NULL,
    task     TEXT NOT NULL,
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    key      TEXT NOT NULL,
    state    TEXT NOT NULL,
    ready_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    died     INTEGER NOT NULL,
    again    INTEGER NOT NULL,
    input    BLOB NOT NULL,
    digest   BLOB NOT NULL,
    parent   INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (owner, run)
) STRICT;

-- What a worker takes next.
CREATE INDEX tasks_ready ON tasks (owner, queue, priority DESC, at, run) WHERE ready_at = 0;

-- What comes by itself, in the order in which it does; what does not is at the far end.
CREATE INDEX tasks_timed ON tasks (owner, ready_at) WHERE ready_at > 0;

-- What is at work: for limits, and to find what dead workers have left.
CREATE INDEX tasks_running ON tasks (owner, queue, key) WHERE state = 'running';

-- The task of a run.
CREATE INDEX tasks_of_stream ON tasks (stream) WHERE stream > 0;

-- View: what parked runs wait for, by what it is; stream is that of the run.
CREATE TABLE task_waits (
    what   TEXT NOT NULL,
    stream INTEGER NOT NULL,
    PRIMARY KEY (what, stream)
) STRICT, WITHOUT ROWID;

-- What one run waits for.
CREATE INDEX task_waits_of ON task_waits (stream);

-- When the next run of a queue with a rate may begin. Not a view: it is only of use for a moment.
CREATE TABLE paces (
    owner INTEGER NOT NULL,
    queue TEXT NOT NULL,
    next  INTEGER NOT NULL,
    PRIMARY KEY (owner, queue)
) STRICT, WITHOUT ROWID;

-- View: threads of which something was dropped: how often, when last the whole of it (those with a lower life are gone), and
-- the newest id that went then.
CREATE TABLE thread_lives (
    owner  INTEGER NOT NULL,
    thread TEXT NOT NULL,
    life   INTEGER NOT NULL,
    whole  INTEGER NOT NULL,
    floor  TEXT NOT NULL,
    PRIMARY KEY (owner, thread)
) STRICT, WITHOUT ROWID;

-- View: the checkpoints of threads, and the entry of the journal that has each. One that was dropped stays, empty, until its
-- thread is deleted: dropped is the life that took it.
CREATE TABLE thread_points (
    owner   INTEGER NOT NULL,
    thread  TEXT NOT NULL,
    ns      TEXT NOT NULL,
    id      TEXT NOT NULL,
    life    INTEGER NOT NULL,
    parent  TEXT NOT NULL,
    run     TEXT NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id)
) STRICT, WITHOUT ROWID;

-- The checkpoints of a run, as a framework calls it; most have none.
CREATE INDEX thread_points_of_run ON thread_points (owner, run) WHERE run <> '';

-- View: the writes that go on from each checkpoint, whether that is there yet or not: one row for each time that a task has
-- written, and the entry of the journal that has them.
CREATE TABLE thread_writes (
    owner  INTEGER NOT NULL,
    thread TEXT NOT NULL,
    ns     TEXT NOT NULL,
    id     TEXT NOT NULL,
    stream INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    life   INTEGER NOT NULL,
    PRIMARY KEY (owner, thread, ns, id, stream, seq)
) STRICT, WITHOUT ROWID;

-- When a key was set that has been there ever since (0: by its last change), and for how long reading keeps it.
ALTER TABLE entries ADD COLUMN created INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entries ADD COLUMN lasts INTEGER NOT NULL DEFAULT 0;

-- Texts that can be searched, by what they belong to: kind 'state' is a key of an agent's state in its version, part is where
-- in the value the text was. A vector is floats of four bytes each, made by the embedder that is named; empty without one.
-- Not a view: a vector can only be made again by its model. Written by the commit that writes what it belongs to.
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

-- Their words, as `words.py` cuts them: spaces are between them, and nothing else is left to be cut.
CREATE VIRTUAL TABLE document_words USING fts5 (words, tokenize = 'ascii');

-- A word of a document that is gone leaves nothing behind.
INSERT INTO document_words (document_words, rank) VALUES ('secure-delete', 1);

-- View: what the agents know; owner is the stream of the agent, stream and seq are the entry of the journal that has it. The
-- text is packed, tags are a list in JSON. A memory counts until it ended (superseded or withdrawn, as recorded), and is held
-- true until it was replaced (by the time of what took its place).
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

-- What an entry of the journal has.
CREATE INDEX memories_at ON memories (stream, seq);

-- What is known about something; most of what was said in passing is about nothing.
CREATE INDEX memories_about ON memories (owner, about, valid_from) WHERE about <> '';

-- What counts about something, to be compared with what is new: however much was replaced, and whosever else it is.
CREATE INDEX memories_counting ON memories (owner, about, person, kind, valid_from) WHERE about <> '' AND ended = 0;

-- What says the same.
CREATE INDEX memories_alike ON memories (owner, sketch, about, person, recorded) WHERE ended = 0;

-- What was said together, in its order.
CREATE INDEX memories_together ON memories (owner, thread, place);

-- What was recorded last.
CREATE INDEX memories_by_time ON memories (owner, recorded, id);

-- Memories whose time will run out.
CREATE INDEX memories_expiring ON memories (owner, expires) WHERE expires > 0;

-- View: what entries of the journal say of memories, whether these are there or not: `superseded` by another, seen `again` under
-- another id, `withdrawn`, `derived` from another, `contradicts` another; and when, by its own time, that holds.
CREATE TABLE memory_marks (
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

-- What an entry says.
CREATE INDEX memory_marks_at ON memory_marks (stream, seq);

-- The other way round.
CREATE INDEX memory_marks_of ON memory_marks (owner, other, what);

-- When memories were last of use, and how often. Not a view: who loses it loses nothing but an order.
CREATE TABLE memory_uses (
    owner INTEGER NOT NULL,
    id    TEXT NOT NULL,
    uses  INTEGER NOT NULL,
    last  INTEGER NOT NULL,
    PRIMARY KEY (owner, id)
) STRICT, WITHOUT ROWID;

-- What memories are found by: each is one piece, a long one several. Terms are what `memory/terms.py` makes of its words; thread
-- and place are those of the memory; asks are thousandths, day counts from the year 1, told are the days that it tells of.
-- Not a view: written by the commit of the memory, made again from it by `agent.memory.reembed()`.
CREATE TABLE pieces (
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

-- What was said before and after.
CREATE INDEX pieces_together ON pieces (owner, thread, place);

-- What was said on a day.
CREATE INDEX pieces_of_day ON pieces (owner, day);

-- The pieces that have a term. Each has its owner before it, so that what is rare is rare for its agent.
CREATE VIRTUAL TABLE piece_words USING fts5 (words, content = '', tokenize = 'ascii');

-- A word of a piece that is erased leaves nothing behind.
INSERT INTO piece_words (piece_words, rank) VALUES ('secure-delete', 1);

-- How many pieces have a term.
CREATE VIRTUAL TABLE piece_terms USING fts5vocab (piece_words, row);

-- What a model has made of a piece: floats of four bytes each, of length 1 together. Never compared with another model's.
CREATE TABLE piece_vectors (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    piece    INTEGER NOT NULL,
    owner    INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    vector   BLOB NOT NULL,
    UNIQUE (piece, embedder)
) STRICT;

-- What has come since somebody has last looked.
CREATE INDEX piece_vectors_since ON piece_vectors (owner, embedder, number);

-- The entry of an agent's stream that says that it has left this store; 0 while it is at home here.
ALTER TABLE agents ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;

-- Memories of one user: a question that is asked for one of many looks at theirs alone.
CREATE INDEX memories_of_person ON memories (owner, person) WHERE person <> '';
