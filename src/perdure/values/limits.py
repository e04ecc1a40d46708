"""Every bound of Perdure in one place; sizes in bytes, times in seconds."""

from __future__ import annotations

VALUE_BYTES_MAX = 64 * 1024 * 1024
"""One encoded value. Larger things are artifacts, not values."""

ARTIFACT_BYTES_MAX = 1 << 39
"""One version of an artifact: 512 GiB."""

ARTIFACT_NOTE_CHARACTERS_MAX = 4096
"""The note of an artifact."""

UPLOAD_BATCH_BYTES = 4 * 1024 * 1024
"""How much of an artifact one commit uploads; it is in memory twice at most."""

UPLOAD_GRACE_SECONDS = 24 * 60 * 60.0
"""How long the chunks of an interrupted upload are kept for the next attempt."""

DURATION_SECONDS_MAX = 1000 * 366 * 86_400
"""A duration: a thousand years before and after now are still valid times."""

NUMBER_MAX = (1 << 63) - 1
"""Integers in a store, such as versions, and requested counts."""

VALUE_DEPTH_MAX = 100
"""Nesting of a value: well below the recursion limit of any Python."""

INTEGER_BITS_MAX = 1_000_000
"""A big integer: beyond it, conversion to text is quadratic."""

INLINE_BYTES_MAX = 4096
"""Larger values become objects: compressed, shared, outside the journal's pages."""

NAME_CHARACTERS_MAX = 512
"""Names of agents, steps, state keys, event kinds and run ids."""

WORKFLOW_STEPS_MAX = 10_000
"""Steps of one workflow: every change of a step reads all of them."""

BATCH_COMMITS_MAX = 256
"""Commits that one transaction may carry."""

LEASE_SECONDS = 30.0
"""How long a holder that cannot be examined (another host or pid namespace) counts as alive."""

CLIENT_LEASE_SECONDS_MIN = 1.0
"""The shortest lease that a client of a server can ask for; the longest is LEASE_SECONDS."""

CLIENT_NAME_CHARACTERS_MAX = 100
"""The id that a client gives itself."""

CLIENT_CALLS_AT_ONCE_MAX = 1000
"""Calls with the same name and arguments that a client may have under way."""

CLIENT_LOOK_SECONDS = 1.0
"""How often a client asks again while a person is asked."""

HEARTBEAT_SECONDS = 10.0
"""How often a holder renews; three missed renewals lose the lease."""

ANCESTORS_MAX = 100
"""Ancestors that a process names to its children: each takes 30 bytes of their environment."""

LOCK_SECONDS_MAX = 30.0
"""How long a writer waits for other processes before it raises StoreBusy."""

FORK_SECONDS_MAX = 5.0
"""How long os.fork() waits for threads inside SQLite."""

SEAL_EVENTS = 1000
"""A stream is sealed at the end of each run and after this many entries."""

EVENTS_OF_ENTRY_MAX = 100
"""Events appended together share journal entries; reading one reads its whole entry."""

EVENTS_OF_PAGE_MAX = 500
"""Events that a reader holds in memory."""

REPLAY_EVENTS = 1000
"""How many events a replay processes between two snapshots."""

REPLAYS_KEPT = 8
"""Snapshots kept per replay."""

WAIT_POLL_SECONDS = 0.02
"""How often a waiting run checks whether the store has changed."""

WAIT_POLL_SECONDS_MAX = 1.0
"""The longest interval between two checks on a server without LISTEN."""

LEAVE_SECONDS = 30.0
"""How long the end of a block waits for an effect without a timeout, and for a cancelled coroutine."""

LEAVE_LOOK_SECONDS = 0.01
"""How often the end of a block checks whether they have ended."""

LISTEN_POLL_SECONDS = 5.0
"""How often a waiting run checks the store on a server with LISTEN."""

ORDER_LOOK_SECONDS = 0.2
"""How often a process checks for orders to its runs while it makes no commit, which would return them."""

ORDER_LOOK_AFTER_SECONDS = 1.0
"""On a server, only runs that have been open for this long are checked: short ones see orders at their next commit."""

RETRY_BACKOFF_SECONDS = 0.5
RETRY_BACKOFF_SECONDS_MAX = 60.0
"""The pause before the first retry, doubled each time up to the maximum."""

TASKS_AT_ONCE = 16
"""Runs that a worker executes at a time by default."""

WORKER_POLL_SECONDS = 0.015
"""How often an idle worker checks whether the store has changed."""

WORKER_LOOK_SECONDS = 1.0
"""How often a worker looks for work without a notification."""

TAKEOVER_POLL_SECONDS = 0.1
"""How often a worker checks whether another one has died."""

DEATHS_SUSPECT = 2
DEATHS_MAX = 5
"""After 2 worker deaths at the same point the run executes alone; after 5 it is dead-lettered."""

CONNECT_SECONDS_MAX = 10.0
"""The connection timeout, per host of the URL."""

STATEMENT_SECONDS_MAX = 30.0
"""The statement timeout. After it the connection is discarded, and the commit is looked up on another."""

SERVER_LOCK_SECONDS_MAX = 10.0
"""How long a statement waits for a locked row before it is retried."""

IDLE_SECONDS_MAX = 10.0
"""How long a transaction may idle before the server ends it and releases its locks."""

TRANSACTION_SECONDS_MAX = 60.0
"""The server ends longer transactions, so that nobody waits for a stopped process."""

RECONNECT_SECONDS_MAX = 60.0
"""How long a call retries while the server is unavailable before it raises StoreUnavailable."""

OPEN_SECONDS_MAX = 3.0
"""How long opening a store waits for a server that does not answer: a wrong address should fail soon."""

LEAVE_SECONDS_MAX = 2.0
"""How long an ending process waits for an unavailable server: its leases expire by themselves."""

POOL_CONNECTIONS = 10
"""Connections per process and server; `pool_size=` in the URL overrides it."""

KEEP_LAST_DROPS_MAX = 20
"""Checkpoints that `keep_last` drops when one is saved; `gc` drops the rest."""

SWEEP_WRITES = 100
"""After this many direct state commits, one also deletes expired keys."""

SWEEP_KEYS_MAX = 50
"""Expired keys that one commit deletes."""

GC_BATCH = 500
"""Keys, checkpoints or objects that one transaction of `gc` removes; other writers run in between."""

VACUUM_BYTES_MAX = 256 * 1024 * 1024
"""The largest content that `gc` vacuums without `--vacuum`, which blocks writers for some seconds."""

VACUUM_SHARE_MIN = 0.2
"""The share of the file that must be empty for that: less is reused soon."""

TOKENS_MAX = 10**12
"""Tokens of one model call."""

COST_USD_MAX = 1_000_000
"""Cost of one call, and of a budget."""

COMPACT_ENTRIES_MAX = 20_000
"""Entries that one transaction compacts; a longer stream is compacted in several."""

FORK_DEPTH_MAX = 100
"""Nested forks: the number of streams that a run's entries may be in."""

THREAD_STREAMS = 8
"""Streams of one process for its threads on a server; different streams commit concurrently."""

THREADS_REMEMBERED_MAX = 64
"""Threads whose last state a process caches, so that it need not encode or store it again."""

THREAD_BYTES_REMEMBERED_MAX = 64 * 1024 * 1024
"""The size of that cache."""

THREAD_SECONDS_REMEMBERED = 60.0
"""How long a cached state is returned without reading the store: damage there must not stay hidden."""

WORDS_MAX = 16_000
"""Indexed words of one text; later words are not found."""

WORD_CHARACTERS_MAX = 64
"""Indexed characters of one word: longer words are found by their beginning."""

VECTOR_DIMENSIONS_MAX = 8192
"""Dimensions of an embedding."""

RECALL_ALL = 2000
"""Up to this many chunks, recall compares all with the question; beyond, only likely ones."""

RECALL_CACHED = 8000
"""Parsed chunks that a process keeps per agent; they take about 20 MB."""

RECALL_EXACT = 4000
"""Up to this many chunks that pass a filter are listed; beyond, the filter is applied to the best hits."""

RECALL_WIDE = 20_000
"""The limit instead of RECALL_EXACT for one user or subject, and on a server, which lists and compares in one query."""

RECALL_WORDS = 30
RECALL_MEANING = 15
"""Candidates by words and by meaning; without embeddings, words get both shares."""

CANDIDATES = 500
"""Candidates of a search; if a filter leaves too few, the search reads all."""

WORKSPACE_FILE_BYTES_MAX = 8 * 1024 * 1024
"""One file of a workspace: people read them."""

ASIDE_SECONDS = 3600
"""A temporary file older than this was left by a killed process."""

LOG_CHARACTERS_MAX = 100_000
"""One line of a daily log."""

LOG_DAYS = 14
"""Days after which a daily log is consolidated and archived."""

LOG_ITEMS_KEPT = 7
"""Items of an old log that go to MEMORY.md by default."""

PROGRESS_ITEMS_MAX = 200
"""Finished items in PROGRESS.md."""

FORGOTTEN_LINES_MAX = 10_000
"""Forgotten lines of a workspace that an outdated folder cannot bring back."""

GIT_SECONDS_MAX = 30.0
"""The timeout of one git command."""

GIT_INDEX_BYTES_MAX = 256 * 1024 * 1024
"""The index of a repository in a workspace, and its other files that are read."""

GIT_TREE_BYTES_MAX = 64 * 1024 * 1024
"""The tree objects of one commit of such a repository."""

MEMORY_CHARACTERS_MAX = 1_000_000
"""The text of one memory: longer texts are artifacts."""

MEMORY_TAGS_MAX = 100
"""Tags of one memory."""

MEMORIES_COMPARED_MAX = 200
"""A new memory is compared with this many on the same subject, newest first, and as many with the same words."""

CONTRADICTIONS_MAX = 20
"""Memories that a new one is said to contradict, newest first."""

TRACES_MAX = 10_000
"""Listed remaining copies of a forgotten text."""

CONSOLIDATED_MAX = 200
"""Episodes that are consolidated at a time."""

HOLDER_LOOK_SECONDS = 5.0
"""How often a parked turn checks that the holder of its thread is still alive. The end of its turn wakes it sooner."""

AWAITED_LOOK_SECONDS = 86_400.0
"""How often a run that waits for another agent's run checks that this agent is still in the store."""

FILE_LINE_BYTES = 2 * 1024 * 1024
FILE_LINE_RATIO = 4
"""One line of an agent file or an archive: this much, plus this many times the size of the compressed file."""

FILE_LINE_BYTES_MAX = 256 * 1024 * 1024
"""One line, however large the file is."""

FILE_PLAIN_BYTES = 4 * 1024 * 1024
FILE_PLAIN_RATIO = 20
"""All lines together: this much, plus this many times the size of the compressed file."""

FILE_LINES = 1000
FILE_BYTES_PER_LINE = 8
"""The line count: this many, plus one per FILE_BYTES_PER_LINE compressed bytes. Hashes and salts do not compress."""

FILE_VALUE_BYTES = 256 * 1024 * 1024
FILE_VALUE_RATIO = 1000
"""What the compressed values in the lines may expand to: this much, plus this many times the size of the file."""

FILE_WINDOW_BYTES_MAX = 8 * 1024 * 1024
"""The window that a compressed file may ask the decompressor to keep."""

ENTRY_NUMBER_MAX = (1 << 32) - 1
"""The number of an entry in its stream: SQLite stores it in the lower half of a key."""

MEMORY_BYTES_MAX = 4 * MEMORY_CHARACTERS_MAX + 16
"""The encoded text of one memory."""

READ_STEPS_MIN = 20_000_000
READ_STEPS_PER_BYTE = 50
"""SQLite steps that one query of a command may take; sound files need 5 per byte of the file."""

READ_ROWS_MIN = 100_000
READ_ROW_BYTES_MIN = 4
"""Rows that one query of a command may return: no row takes fewer bytes of the file."""

READ_SECONDS_MIN = 60.0
READ_SECOND_BYTES = 1_000_000
"""CPU seconds that one query of a command may take, and the bytes of the file that allow one more."""

READ_ONLY_COPY_BYTES_MAX = 10_000_000_000
"""A store on read-only media is copied with its log to be read, up to this size and half of the free space."""

PLAYBOOK_PAGE_CHARACTERS_MAX = 1_000_000
"""Characters of the page of a playbook in a file: a prompt shows far less of it."""
PLAYBOOK_STEPS_MAX = 200
"""Steps of a playbook: its whole text is one value."""
