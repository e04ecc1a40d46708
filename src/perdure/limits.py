"""Every bound of Perdure in one place; sizes in bytes, times in seconds."""

from __future__ import annotations

VALUE_BYTES_MAX = 64 * 1024 * 1024
"""One encoded value. Larger things are artifacts, not values."""

ARTIFACT_BYTES_MAX = 1 << 39
"""One version of an artifact: 512 GiB."""

ARTIFACT_NOTE_CHARACTERS_MAX = 4096
"""What is said of one."""

TENSOR_HEADER_BYTES_MAX = 16 * 1024 * 1024
"""The table of contents of stored arrays, which is read as a whole."""

UPLOAD_BATCH_BYTES = 4 * 1024 * 1024
"""Of an artifact in one commit, on its way into the store; it is in memory twice at most."""

UPLOAD_GRACE_SECONDS = 24 * 60 * 60.0
"""What an interrupted upload has written is kept for so long, for the next try."""

DURATION_SECONDS_MAX = 1000 * 366 * 86_400
"""What somebody gives as a length of time: a thousand years from now and before are still times."""

NUMBER_MAX = (1 << 63) - 1
"""What a store counts with: versions, and how many of something are wanted."""

VALUE_DEPTH_MAX = 100
"""Nesting of a value: well below the recursion limit of any Python."""

INTEGER_BITS_MAX = 1_000_000
"""A big integer: beyond it, conversion to text is quadratic."""

INLINE_BYTES_MAX = 4096
"""Values above this become objects: compressed, shared, outside of the journal's pages."""

NAME_CHARACTERS_MAX = 512
"""Names of agents, steps, keys of state, kinds of events, run ids."""

WORKFLOW_STEPS_MAX = 10_000
"""Of one workflow: every change of a step looks at all of them."""

BATCH_COMMITS_MAX = 256
"""Commits that one transaction may carry."""

LEASE_SECONDS = 30.0
"""How long a holder that cannot be looked at (another pid namespace) counts as alive."""

HEARTBEAT_SECONDS = 10.0
"""How often a holder renews; three missed ones lose the lease."""

ANCESTORS_MAX = 100
"""Outer processes that a process names to its children: each takes 30 bytes of their environment."""

LOCK_SECONDS_MAX = 30.0
"""How long a writer waits for other processes before it says StoreBusy."""

FORK_SECONDS_MAX = 5.0
"""How long os.fork() waits for threads that are at work in a file."""

SEAL_EVENTS = 1000
"""A stream is sealed at the end of each run and after this many events."""

EVENTS_OF_ENTRY_MAX = 100
"""Events that are appended in one go share entries of the journal; one of them is read with all of its entry."""

EVENTS_OF_PAGE_MAX = 500
"""Events that a reader has in memory."""

REPLAY_EVENTS = 1000
"""After how many events the result of a replay is kept."""

REPLAYS_KEPT = 8
"""How many of them."""

WAIT_POLL_SECONDS = 0.02
"""How often a waiting run looks whether the store has changed."""

WAIT_POLL_SECONDS_MAX = 1.0
"""The same for a store on a server that cannot tell us, after a while."""

LEAVE_SECONDS = 30.0
"""How long the end of a block awaits an effect that has no timeout, and a coroutine that it has cancelled."""

LEAVE_LOOK_SECONDS = 0.01
"""How often it looks whether they have ended."""

LISTEN_POLL_SECONDS = 5.0
"""And for one that can."""

ORDER_LOOK_SECONDS = 0.2
"""How often a process looks whether one of its runs was told to stop, while it makes no commit that would tell it."""

ORDER_LOOK_AFTER_SECONDS = 1.0
"""On a server, only for runs that have been open for so long: short ones hear of it with their next commit."""

RETRY_BACKOFF_SECONDS = 0.5
RETRY_BACKOFF_SECONDS_MAX = 60.0
"""Pause before the first repetition, doubled each time up to the maximum."""

TASKS_AT_ONCE = 16
"""Runs that a worker has at a time, when nobody says otherwise."""

WORKER_POLL_SECONDS = 0.015
"""How often an idle worker looks whether the store has changed."""

WORKER_LOOK_SECONDS = 1.0
"""How often it looks for work although nobody has told it of any."""

TAKEOVER_POLL_SECONDS = 0.1
"""How often it looks whether another worker has died."""

DEATHS_SUSPECT = 2
DEATHS_MAX = 5
"""Of workers at the same place of a run: after so many, no other suspect is beside it; after so many of these, it is
dead.
"""

CONNECT_SECONDS_MAX = 10.0
"""Until a server has let us in; per host, where a URL names several."""

STATEMENT_SECONDS_MAX = 30.0
"""Until a server has answered. After it the connection is thrown away, and the commit looked up on another."""

SERVER_LOCK_SECONDS_MAX = 10.0
"""How long a statement waits for a row that another transaction has locked, before it is tried again."""

IDLE_SECONDS_MAX = 10.0
"""How long a transaction may wait for its client, before the server ends it and its locks."""

TRANSACTION_SECONDS_MAX = 60.0
"""A transaction of several round trips; the server ends longer ones, so that nobody waits for a stopped process."""

RECONNECT_SECONDS_MAX = 60.0
"""How long a call goes on trying while the server is away, before it says StoreUnavailable."""

OPEN_SECONDS_MAX = 3.0
"""The same when a store is opened and nobody answers: a wrong address should be told soon."""

LEAVE_SECONDS_MAX = 2.0
"""And when a process ends: its leases run out by themselves."""

POOL_CONNECTIONS = 10
"""To one server, for one process; `pool_size=` in the URL says otherwise."""

KEEP_LAST_DROPS_MAX = 20
"""Checkpoints that `keep_last` drops when one is made; whatever more there is, `gc` drops."""

SWEEP_WRITES = 100
"""Every so many commits of state in the open, keys whose time has run out are taken along."""

SWEEP_KEYS_MAX = 50
"""How many of them in one commit."""

GC_BATCH = 500
"""Keys, checkpoints or objects that one transaction of `gc` removes: others write in between."""

VACUUM_BYTES_MAX = 256 * 1024 * 1024
"""Of what is left in a file, when `gc` writes it anew unasked: nobody else can write meanwhile, for some seconds."""

VACUUM_SHARE_MIN = 0.2
"""How much of it has to be empty then: less is used again soon, and is not worth writing the rest anew."""

TOKENS_MAX = 10**12
"""Of one call of a model."""

COST_USD_MAX = 1_000_000
"""Of one call, and of a budget."""

FOLD_ENTRIES_MAX = 20_000
"""Entries that one transaction folds; a longer stream is folded in several."""

FORK_DEPTH_MAX = 100
"""Forks of forks of forks: how many streams a run's entries are in."""

THREAD_STREAMS = 8
"""Streams of one process for its threads on a server: what goes to different ones is committed side by side."""

THREADS_REMEMBERED_MAX = 64
"""Threads of which a process remembers what it has put last, so that it need not store or encode it again."""

THREAD_BYTES_REMEMBERED_MAX = 64 * 1024 * 1024
"""And how much of it."""

THREAD_SECONDS_REMEMBERED = 60.0
"""How long a state that was read or put is given without a look at the store: damage there must not stay hidden."""

WORDS_MAX = 16_000
"""Of one text that can be searched; what comes behind them is not found by words."""

WORD_CHARACTERS_MAX = 64
"""Of one word: longer ones are found by their beginning."""

VECTOR_DIMENSIONS_MAX = 8192
"""Of an embedding."""

RECALL_ALL = 2000
"""Pieces of memory that are all compared with a question: when there are more, those that are likely."""

RECALL_EXACT = 4000
"""Pieces that a filter may leave to be listed: when there are more, it is asked of the best ones whether they pass."""

RECALL_WIDE = 20_000
"""The same for a server, which lists and compares at once."""

RECALL_WORDS = 30
RECALL_MEANING = 15
"""Likely ones because of their words, and because of their meaning; as many because of their words alone."""

CANDIDATES = 500
"""What a search looks at first; when a filter leaves too few of them, it looks at all."""

WORKSPACE_FILE_BYTES_MAX = 8 * 1024 * 1024
"""Of one file of a workspace: people read them."""

ASIDE_SECONDS = 3600
"""A file that was written aside is a killed process's after so long."""

LOG_CHARACTERS_MAX = 100_000
"""Of one line of a daily log."""

LOG_DAYS = 14
"""How long the log of a day stays among the others; then it is consolidated and archived."""

LOG_ITEMS_KEPT = 7
"""What MEMORY.md gets of an old log when nobody says how to consolidate it."""

PROGRESS_ITEMS_MAX = 200
"""Of what is done, in PROGRESS.md."""

FORGOTTEN_LINES_MAX = 10_000
"""Lines of a workspace that were forgotten, and that a folder that is behind does not bring back."""

GIT_SECONDS_MAX = 30.0
"""For one command of git: who works is not held up by it for ever."""

GIT_INDEX_BYTES_MAX = 256 * 1024 * 1024
"""Of the index of a repository in a workspace, and of its other files that are read."""

GIT_TREE_BYTES_MAX = 64 * 1024 * 1024
"""Of the folders of one commit of such a repository."""

MEMORY_CHARACTERS_MAX = 1_000_000
"""Of one memory: longer things are artifacts."""

MEMORY_TAGS_MAX = 100
"""Of one memory."""

MEMORIES_COMPARED_MAX = 200
"""With how many that are about the same thing a new memory is compared, newest first; and with as many that have the
same words."""

CONTRADICTIONS_MAX = 20
"""Of those that it may contradict, so many are named, newest first."""

TRACES_MAX = 10_000
"""Other places of a forgotten text that are listed."""

CONSOLIDATED_MAX = 200
"""Episodes that become one memory, or what a function makes of them."""

AWAITED_LOOK_SECONDS = 86_400.0
"""A parked run that waits for another agent's run looks so often whether that agent is still in the store."""

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
"""This many lines, plus one for every so many bytes of the compressed file. Hashes and salts do not compress."""

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
"""Steps of SQLite's machine that one query of a command may take; honest queries take 5 for each byte of the file."""

READ_ROWS_MIN = 100_000
READ_ROW_BYTES_MIN = 4
"""Rows that one query of a command may find: none takes fewer bytes of the file."""

READ_SECONDS_MIN = 60.0
READ_SECOND_BYTES = 1_000_000
"""Seconds of the processor that one query of a command may take, and the bytes of the file that allow one more."""

READ_ONLY_COPY_BYTES_MAX = 10_000_000_000
"""A store on read-only media is copied with its log to be read, up to this size and half of the free space."""
