"""Threads: conversations whose state a framework for agents saves after every move.

Nothing here knows any framework. A *checkpoint* of a thread has channels with values, a head (what the framework needs
to go on) and metadata. It goes on from its parent; ids grow with time, and the newest is where the thread is. *Writes*
are what tasks have done since a checkpoint: they come before the next one, and are kept with the one before.
"""

from __future__ import annotations
