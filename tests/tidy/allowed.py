"""Where a rule does not hold, and why. An entry that nothing needs any more is a complaint too.

Keys are (path, qualified name of the function).
"""

from __future__ import annotations

BROAD_EXCEPTS = {
    ("src/perdure/store/group_commit.py", "Committer._commit_batch"): (
        "not swallowed: whatever ended the transaction is raised again in every caller of the batch"
    ),
    ("src/perdure/store/postgres/loop_commits.py", "LoopCommits._go_on"): (
        "not swallowed: carried from the thread that commits to the task that waits for it"
    ),
    ("src/perdure/store/remote/store.py", "RemoteStore._conclude_async.conclude"): (
        "the error is raised in the task that awaits the commit, not in this thread"
    ),
    ("src/perdure/store/lanes.py", "CommitThreads.result_of.task"): (
        "not swallowed: carried from the thread that commits to the task that waits for it"
    ),
    ("src/perdure/server/admission.py", "Admission._perform"): (
        "the last boundary: logged with its traceback and answered with 500, without a word of the exception"
    ),
    ("src/perdure/kernel/protocol.py", "drive_sync"): "not swallowed: thrown into the protocol, which decides",
    ("src/perdure/kernel/protocol.py", "drive_async"): "not swallowed: thrown into the protocol, which decides",
    ("src/perdure/kernel/protocol.py", "_outcome_of"): (
        "not swallowed: carried from a thread to the caller that waits for it"
    ),
    ("src/perdure/kernel/protocol.py", "_perform_in_tasks.perform"): (
        "not swallowed: told in its place to the caller that waits for all of them"
    ),
    ("src/perdure/api/aio/worker.py", "AsyncWorker._perform"): (
        "the user's task: whatever it raises is recorded with its run, and the worker goes on with others"
    ),
    ("src/perdure/api/sync/worker.py", "Worker._perform"): (
        "the user's task: whatever it raises is recorded with its run, and the worker goes on with others"
    ),
    ("src/perdure/api/aio/conversation.py", "AsyncTurnFunction._finish_earlier"): (
        "the user's turn function: whatever it raises is recorded with that turn; raised again if it is in the way"
    ),
    ("src/perdure/api/sync/conversation.py", "TurnFunction._finish_earlier"): (
        "the user's turn function: whatever it raises is recorded with that turn; raised again if it is in the way"
    ),
    ("src/perdure/mcp/stdio_loop.py", "StdioLoop._answer"): (
        "logged and told to the client as an internal error: one bad request must not end the connection"
    ),
    ("src/perdure/server/message_stream.py", "_answer"): (
        "logged and told to the client as an internal error: the status of the answer has been sent"
    ),
    ("src/perdure/hooks/client.py", "main"): "a hook must not break the session: logged, and the exit code is 0",
    ("src/perdure/hooks/server.py", "HookHelper._answer"): "told to the client, which logs it: the helper goes on",
    ("src/perdure/hooks/server.py", "main"): "the last boundary of a detached process: written to the log",
    ("src/perdure/run/step.py", "_execute"): "the body is the user's code: whatever it raises is an outcome",
    (
        "src/perdure/run/clients/calls.py",
        "_Relay.drive",
    ): "not swallowed: thrown into the protocol, or told to the client",
    ("src/perdure/run/effect.py", "execute_body"): "the body is the user's code: what it raises is judged",
    (
        "src/perdure/http_capture/aiohttp_patch.py",
        "_pass_stream",
    ): "not swallowed: raised where the program reads the stream",
    (
        "src/perdure/adapters/openai_agents.py",
        "durable.on_invoke_tool",
    ): "the user's tool: told to the model as the SDK does, or raised again",
    (
        "src/perdure/adapters/session_calls.py",
        "SessionCalls._perform",
    ): "the user's code: raised again, the run is left",
    ("src/perdure/run/doubt.py", "ask_check"): "a check that raises counts as Unknown: docs/about/semantics.md, 3",
    ("src/perdure/testing/crashtest/fork_server.py", "_run"): (
        "the user's program: shown and told by the exit code, as an interpreter does it"
    ),
    ("src/perdure/cli/replay_targets.py", "_go_through"): "the user's program: told with its run, or as a note",
    (
        "src/perdure/values/codec/annotations.py",
        "_hints",
    ): "an annotation may be any expression: it declares nothing",
    ("src/perdure/values/codec/salvage.py", "_fields"): "the user's code, for a refused value: its repr is kept",
    ("src/perdure/values/codec/registry.py", "_upcast"): "the user's code: raised again as UnknownType",
    (
        "src/perdure/values/codec/exceptions.py",
        "_safe_text",
    ): "the user's __str__ and __repr__: it is recorded all the same",
    (
        "src/perdure/values/codec/decoder.py",
        "_check_distinct",
    ): "the user's __hash__ and __eq__: raised again as CorruptValue",
    (
        "src/perdure/run/block_exit.py",
        "drain_bodies",
    ): "a cancellation of any kind: raised again when the end is recorded",
    (
        "src/perdure/values/codec/decoder.py",
        "_build_guarded",
    ): "the user's code or forged arguments: raised again as UnknownType",
    (
        "src/perdure/values/codec/encoder.py",
        "_take_fields",
    ): "the user's code: raised again as NotStorable, with the path",
}
"""`except Exception`, `except BaseException` and their kin."""

DYNAMIC_CODE: dict[tuple[str, str], str] = {
    (
        "src/perdure/cli/replay_targets.py",
        "import_target",
    ): "the module that the user names on the command line, as for python -m",
    ("src/perdure/__init__.py", "__getattr__"): "a module of the table in the same file, never data",
    (
        "src/perdure/adapters/lazy_names.py",
        "lazy_names.load",
    ): "a module of the table in the adapter's own file, never data",
    (
        "src/perdure/cli/main.py",
        "_LazyCommands.get_command",
    ): "a module of the table COMMANDS in the same file, never data",
    (
        "src/perdure/values/codec/fingerprints.py",
        "<module>",
    ): "only written, to be compared in memory: nothing is read from it",
}
"""Imports whose name is computed, and other ways to make code from data."""

TABLES = {
    "src/perdure/errors.py": "one tree in one file, without logic; stored bytes have the names of its classes",
}
"""Modules that are looked up and not read: they may be longer."""
