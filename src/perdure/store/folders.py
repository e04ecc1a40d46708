"""Folders that are still there after a power cut: a file is only as durable as the way to it."""

from __future__ import annotations

import os


def make_folder(path: str) -> None:
    """Make a folder that only its owner can enter, with every folder above it that is missing; all of it durable."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another process was quicker
    sync_folder(above)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Wait until the names in a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
