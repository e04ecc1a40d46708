"""Locks of the process that are free again in a child made by os.fork().

The thread that held one is not there any more, and would never let go of it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """As `threading.Lock`."""
    made = threading.Lock()
    _made.add(made)
    return made


def rlock() -> threading.RLock:
    """As `threading.RLock`."""
    made = threading.RLock()
    _made.add(made)
    return made


def _after_fork_in_child() -> None:
    for it in list(_made):
        it._at_fork_reinit()  # as the standard library does with its own


os.register_at_fork(after_in_child=_after_fork_in_child)
