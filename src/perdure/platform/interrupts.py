"""SIGTERM and Ctrl-C while a run is open: the run is marked interrupted, and no commit is torn.

Python delivers a signal between any two lines of the main thread. During a commit it is deferred until after the
commit, so that the state in memory matches the durable one.
"""

from __future__ import annotations

import signal
import threading
from threading import get_ident
from types import FrameType
from typing import Any

_HANDLED = (signal.SIGTERM, signal.SIGINT)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)

_users = 0
_main = 0
"""The main thread, as of the last `install`."""
_before: dict[int, Any] = {}
_holding = False
_pending: int | None = None
_tasks: list[Any] = []
"""The task of each run that is open under asyncio."""
_handled_in_loop = False
"""Whether SIGTERM is handled for those tasks. A program's own handler stays."""
_terminated = False


def install() -> None:
    """Handle the signals that have no other handler, until as many calls of `uninstall`."""
    global _main, _users
    if threading.current_thread() is not threading.main_thread():
        return
    _main = get_ident()
    _users += 1
    if _users == 1:
        for number in _HANDLED:
            if signal.getsignal(number) in _DEFAULTS:
                _before[number] = signal.signal(number, _handle)


def uninstall() -> None:
    """Restore the signal handlers."""
    global _users
    if threading.current_thread() is not threading.main_thread() or _users == 0:
        return
    _users -= 1
    if _users == 0:
        while _before:
            number, handler = _before.popitem()
            if signal.getsignal(number) is _handle:
                signal.signal(number, handler)


def install_in_loop() -> None:
    """Under asyncio, let SIGTERM cancel every task that has a run open. asyncio itself handles Ctrl-C."""
    import asyncio

    global _handled_in_loop
    if threading.current_thread() is not threading.main_thread():
        return
    _tasks.append(asyncio.current_task())
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _handled_in_loop = True
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _terminate)


def uninstall_in_loop() -> None:
    """Restore SIGTERM after the last run, and end the process if the signal came."""
    import asyncio

    global _handled_in_loop, _terminated
    if threading.current_thread() is not threading.main_thread():
        return
    task = asyncio.current_task()
    _tasks.remove(task if task in _tasks else _tasks[-1])
    if not _tasks and _handled_in_loop:
        _handled_in_loop = False
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        if _terminated:
            _terminated = False
            _raise(signal.SIGTERM)


def _terminate() -> None:
    global _terminated
    _terminated = True
    for task in {*_tasks}:
        task.cancel()


def hold() -> bool:
    """Defer signals. Returns True if the caller must call `release`."""
    global _holding
    if _users == 0 or _holding or get_ident() != _main:
        return False
    _holding = True
    return True


def is_pending() -> bool:
    """Whether the process was asked to end and waits for a commit."""
    return _pending is not None or _terminated


def has_deferred_signal() -> bool:
    """Whether a signal came while signals are deferred."""
    return _pending is not None


def release() -> None:
    """Raise a deferred signal."""
    global _holding, _pending
    _holding = False
    if _pending is not None:
        number, _pending = _pending, None
        _raise(number)


def _handle(number: int, frame: FrameType | None) -> None:
    global _pending
    if _holding:
        _pending = number
    else:
        _raise(number)


def _raise(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    # 128 + 15 is what a shell reports for a process that SIGTERM ended.
    raise SystemExit(128 + number)
