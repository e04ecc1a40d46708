"""Threads: conversations whose state an agent framework saves after every step.

This package does not depend on any framework. A *checkpoint* of a thread has channels with values, a head (what the
framework needs to continue) and metadata. Each has a parent; ids grow with time, and the newest is the current state.
*Writes* are the results of tasks since a checkpoint. They precede the next checkpoint and are stored with the last one.
"""

from __future__ import annotations
