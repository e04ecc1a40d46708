"""Locks that are free again in a child made by os.fork(), and the order of what happens there.

The thread that held a lock does not exist in the child and would never release it. Python calls the hooks of a fork in
the order of their registration, which is the order of imports. A hook that takes a lock before it is free would hang
the child, so every hook in the child is registered here: this module is imported first and frees the locks first.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a `threading.Lock` that a forked child gets unlocked."""
    made = threading.Lock()
    _made.add(made)
    return made


def rlock() -> threading.RLock:
    """Return a `threading.RLock` that a forked child gets unlocked."""
    made = threading.RLock()
    _made.add(made)
    return made


def call_after_fork(hook: Callable[[], object]) -> None:
    """Call a function in every forked child, after all locks are free, in the order of registration."""
    os.register_at_fork(after_in_child=hook)


def _free_locks() -> None:
    for made in list(_made):
        made._at_fork_reinit()  # as the standard library does for its own locks


call_after_fork(_free_locks)
