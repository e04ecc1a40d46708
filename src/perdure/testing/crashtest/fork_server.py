"""A fork server that has imported Perdure and opened nothing: its forks are fresh processes in a millisecond.

A crash test starts a program a hundred times, and starting an interpreter each time would take most of the time. The
server reads one order per line and forks. The child starts the program, waits for it, and reports its start and end.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import sys
import traceback
from types import TracebackType

import msgspec

from perdure.api import aio, sync
from perdure.store.sqlite import store
from perdure.testing.crashtest.messages import READY, LaunchOrder, ProcessNews
from perdure.testing.crashtest.probe import CrashProbe

PRELOADED = (aio, sync, store)


def main() -> int:
    """Serve orders until the crash test closes its end. Forks return from here too, to end as interpreters end."""
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    _tell(ProcessNews(id=READY, pid=os.getpid()))
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=LaunchOrder)
        if os.fork() == 0:
            return _supervise(order)
    return 0


def _supervise(order: LaunchOrder) -> int:
    """Start the program and wait for it, so that the server is free for the next order."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        return _perform(order)
    _tell(ProcessNews(id=order.id, pid=pid))
    _, status = os.waitpid(pid, os.WUNTRACED)
    while os.WIFSTOPPED(status):
        _tell(ProcessNews(id=order.id, pid=pid, stopped=True))
        _, status = os.waitpid(pid, os.WUNTRACED)
    _tell(ProcessNews(id=order.id, code=os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _tell(news: ProcessNews) -> None:
    os.write(1, msgspec.json.encode(news) + b"\n")


def _perform(order: LaunchOrder) -> int:
    """Do what a new interpreter would do with `python PROGRAM ARGUMENTS`."""
    os.setpgid(0, 0)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    output = os.open(order.output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = [order.program, *order.arguments]
    sys.path[0] = os.path.dirname(os.path.join(order.folder, order.program))
    return _run(order)


def _run(order: LaunchOrder) -> int:
    CrashProbe(order).begin()
    try:
        runpy.run_path(os.path.join(order.folder, order.program), run_name="__main__")
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 0xFF
        print(leaving.code, file=sys.stderr)
        return 1
    # The user's program: print the error and return an exit code, as an interpreter does.
    except BaseException as error:
        traceback.print_exception(error.with_traceback(_strip_server_frames(error.__traceback__)))
        return 1
    return 0


def _strip_server_frames(trace: TracebackType | None) -> TracebackType | None:
    """Strip the frames of the fork server from a traceback."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    sys.exit(main())
