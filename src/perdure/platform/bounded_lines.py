"""Reads and writes compressed line files from untrusted sources: agent files and archives of the journal.

A reader never expands a file by more than a fixed factor of its size on disk. A writer whose lines compress better than
that appends padding, which readers skip, so that everything that Perdure writes can be read back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, BinaryIO

import msgspec

from perdure.errors import PerdureError
from perdure.values import limits

PIECE_BYTES = 1 << 16
_PADDING_MAGIC = b"\x50\x2a\x4d\x18"
"""Begins a skippable frame of zstd (RFC 8878, section 3.1.2)."""
_PADDING_HEAD_BYTES = 8

BoundedCount = Annotated[int, msgspec.Meta(ge=0, le=limits.NUMBER_MAX)]
"""A number that every store can hold."""
EntryNumber = Annotated[int, msgspec.Meta(ge=0, le=limits.ENTRY_NUMBER_MAX)]
"""The number of an entry: a larger one would be an entry of another stream."""

ErrorFactory = Callable[[str], PerdureError]
"""Makes the error for a refused file from a text."""


class ExpansionGauge:
    """Counts what a file expands to, and computes how large the file must be for that."""

    def __init__(self) -> None:
        self._plain = self._lines = self._longest = self._values = 0

    def piece(self, size: int) -> None:
        """Count decompressed bytes."""
        self._plain += size

    def line(self, size: int) -> None:
        """Count the bytes of the current line so far."""
        self._longest = max(self._longest, size)

    def end_line(self) -> None:
        """End the current line."""
        self._lines += 1

    def count_line(self, size: int) -> None:
        """Count a whole line."""
        self.piece(size)
        self.line(size)
        self.end_line()

    def value(self, size: int) -> None:
        """Count the decompressed size of a value in a line."""
        self._values += size

    @property
    def too_long(self) -> bool:
        """Whether a line exceeds the limit for any file."""
        return self._longest > limits.FILE_LINE_BYTES_MAX

    @property
    def needed(self) -> int:
        """The minimum size of a file that may expand to what was counted."""
        return max(
            -(-(self._plain - limits.FILE_PLAIN_BYTES) // limits.FILE_PLAIN_RATIO),
            -(-(self._longest - limits.FILE_LINE_BYTES) // limits.FILE_LINE_RATIO),
            (self._lines - limits.FILE_LINES) * limits.FILE_BYTES_PER_LINE,
            -(-(self._values - limits.FILE_VALUE_BYTES) // limits.FILE_VALUE_RATIO),
        )


def make_padding(size: int, needed: int) -> Iterator[bytes]:
    """Yield the padding that a file of `size` bytes needs for its reader; none for most files."""
    left = needed - size
    while left > 0:
        length = min(max(left - _PADDING_HEAD_BYTES, 0), 1 << 20)
        yield _PADDING_MAGIC + length.to_bytes(4, "little") + bytes(length)
        left -= _PADDING_HEAD_BYTES + length


@contextmanager
def open_regular_file(path: str | os.PathLike[str], problem: ErrorFactory) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file and return it with its size. Pipes and devices, which may never end, are refused."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise problem(f"{path} is not a regular file")
        yield file, found.st_size


def lines_in(file: Any, size: int, gauge: ExpansionGauge, problem: ErrorFactory) -> Iterator[bytes]:
    """Yield the lines of a compressed file of `size` bytes. Raises `problem`, or an error of zstandard."""
    import zstandard

    back = zstandard.ZstdDecompressor(max_window_size=limits.FILE_WINDOW_BYTES_MAX)
    with back.stream_reader(file, read_size=PIECE_BYTES, read_across_frames=True, closefd=False) as plain:
        yield from split_lines(plain.read, size, gauge, problem)


def split_lines(
    read: Callable[[int], bytes], size: int, gauge: ExpansionGauge, problem: ErrorFactory
) -> Iterator[bytes]:
    """Yield the lines that `read` returns, each with its newline."""
    rest: list[bytes] = []
    waiting = 0
    while piece := read(PIECE_BYTES):
        gauge.piece(len(piece))
        first, *more = piece.split(b"\n")
        rest.append(first)
        waiting += len(first)
        _check_size(size, gauge, waiting, problem)
        for part in more:
            gauge.end_line()
            yield b"".join(rest) + b"\n"
            rest, waiting = [part], len(part)
            _check_size(size, gauge, waiting, problem)
    if waiting:
        gauge.end_line()
        yield b"".join(rest)


def _check_size(size: int, gauge: ExpansionGauge, waiting: int, problem: ErrorFactory) -> None:
    gauge.line(waiting)
    if gauge.too_long or gauge.needed > size:
        raise problem("it expands to more than a file of its size that Perdure has written")
