"""A process that has imported everything and opened nothing: a fork of it is a fresh process in a millisecond.

Thousands of processes are killed here, and starting an interpreter for each would take most of the time. The
fork_server reads one JSON order per line, forks, and tells the pid at once and the exit status later. It never opens
a store, so its children inherit none.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import sys
import tempfile
import traceback
from datetime import date
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
SURFACE = ("perdure.adapters", "perdure.cli", "perdure.demo", "perdure.testing")
"""What no victim uses. All else is imported here, and not by each fork that uses a noun for the first time."""
PRELOADED = (
    "apsw",
    "asyncio",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "tests.crash.short_program",
    "tests.crash.victim",
    "zstandard",
)


def _preload() -> list[str]:
    import perdure

    found = (
        module_info.name
        for module_info in pkgutil.walk_packages(perdure.__path__, "perdure.", onerror=lambda name: None)
    )
    return [*PRELOADED, *(name for name in found if not name.startswith(SURFACE))]


def main() -> None:
    """Serve orders until the harness closes its end."""
    for name in _preload():
        importlib.import_module(name)
    _compile_times()
    gc.freeze()
    waiting = selectors.DefaultSelector()
    waiting.register(sys.stdin.fileno(), selectors.EVENT_READ)
    backlog = b""
    while True:
        for ready, _ in waiting.select():
            if ready.fd != 0:
                _report(waiting, ready)
                continue
            more = os.read(0, 65536)
            if not more:
                return _leave_nobody(waiting)
            *orders, backlog = (backlog + more).split(b"\n")
            for order in orders:
                _start(waiting, json.loads(order))


def _compile_times() -> None:
    """Expressions are compiled when they are first needed, which each fork would do for itself."""
    from perdure.memory.dates.times import parse_question_times

    parse_question_times(
        "May 5, 2026, last Tuesday, two weeks ago, over the weekend, at Christmas, yesterday, in summer", date.min
    )


def _leave_nobody(waiting: selectors.BaseSelector) -> None:
    """A test that failed may have left its victim stopped: nobody else would ever wake or end it."""
    for left in list(waiting.get_map().values()):
        if left.data is not None:
            signal.pidfd_send_signal(left.fd, signal.SIGKILL)
            os.waitpid(left.data[1], 0)


def _start(waiting: selectors.BaseSelector, order: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(_perform(order))
    waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (order["id"], pid))
    _tell({"id": order["id"], "pid": pid})


def _report(waiting: selectors.BaseSelector, ended: selectors.SelectorKey) -> None:
    order, pid = ended.data
    waiting.unregister(ended.fd)
    os.close(ended.fd)
    _, status = os.waitpid(pid, 0)
    _tell({"id": order, "code": os.waitstatus_to_exitcode(status)})


def _tell(fact: dict[str, Any]) -> None:
    os.write(1, json.dumps(fact).encode() + b"\n")


def _perform(order: dict[str, Any]) -> int:
    """In the child: what a new interpreter would do with `module:function`.

    The child dies with the fork_server: a harness that kills its own process group reaches only the fork_server.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None  # forget the fork_server's: a killed child leaves its temporary files in the scene's folder
    output = os.open(order["output"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if "CRASH_TRACED" in os.environ:
        _wait_for_a_tracer()
    try:
        module, _, name = order["call"].partition(":")
        getattr(importlib.import_module(module), name)(**order["arguments"])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # the child ends here, whatever happened, and must not return into the fork_server's loop
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _wait_for_a_tracer() -> None:
    """Stop until somebody has got hold of this process. Some systems let only a parent do so, unless they are asked."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, -1, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    main()
