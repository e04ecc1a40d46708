"""A SQLite VFS that writes through to the real one, and notes each operation in the order in which it happened."""

from __future__ import annotations

import os
from typing import Any

import apsw
import msgspec

NAME = "powerloss"


class Op(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that happened to a file (`write`, `trunc`, `sync`, `delete`), or a call that returned (`ack`)."""

    kind: str
    file: str = ""
    offset: int = 0
    """Of a truncation the new size; of a deletion 1 when the folder was synced too; of an ack its number."""
    data: bytes = b""


class LoggedFile(apsw.VFSFile):
    """One file of the database."""

    def __init__(self, vfs: LoggingVfs, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._vfs = vfs
        self._name = os.path.basename(path)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._vfs.log.append(Op("write", self._name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._vfs.log.append(Op("trunc", self._name, size))

    def xSync(self, flags: int) -> None:
        # Not done: the images say what a sync is worth, and a real one only costs time.
        self._vfs.log.append(Op("sync", self._name))

    def xDeviceCharacteristics(self) -> int:
        return super().xDeviceCharacteristics() if self._vfs.trusting else 0

    def xSectorSize(self) -> int:
        return 512


class LoggingVfs(apsw.VFS):
    """Register it by making one. `trusting` passes on what the real file system promises, else nothing is promised."""

    def __init__(self, *, trusting: bool) -> None:
        self.log: list[Op] = []
        self.trusting = trusting
        super().__init__(NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if name is None:  # a file without a name is gone when the power is
            return apsw.VFSFile("", name, flags)
        return LoggedFile(self, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:
        super().xDelete(name, sync)
        self.log.append(Op("delete", os.path.basename(name), int(sync)))
