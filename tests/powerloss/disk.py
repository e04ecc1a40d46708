"""What is on the disk after a power cut: everything synced, and of the rest whatever chance decides."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .vfs import Op

SECTOR_BYTES = 512
Image = dict[str, bytes]

DROP, KEEP, REORDER, TORN = "drop", "keep", "reorder", "torn"
"""Of the writes that were not synced: none, all, some of them, some sectors of some of them."""


class Disk:
    """Follows a log. `images` may be asked for at any point of it."""

    def __init__(self, initial: Image | None = None) -> None:
        self._safe: dict[str, bytes | None] = dict(initial or {})
        """Content as of the last sync; None for a file whose entry in the folder is not safe yet."""
        self._pending: dict[str, list[Op]] = {}
        self._may_return: Image = {}
        """Deleted, but the folder was not synced since: they may be back after the power cut."""

    def apply(self, op: Op) -> None:
        """Let the next operation of the log happen."""
        if op.kind in ("write", "trunc"):
            self._safe.setdefault(op.file, None)
            self._pending.setdefault(op.file, []).append(op)
        elif op.kind == "sync":
            self._sync(op.file)
        elif op.kind == "delete":
            self._delete(op.file, folder_synced=bool(op.offset))

    @property
    def has_pending(self) -> bool:
        """Whether a power cut now has more than one possible outcome."""
        return bool(self._may_return) or any(self._pending.values())

    def images(self, rng: random.Random, chances: int) -> Iterator[tuple[str, Image]]:
        """What a power cut may leave now: the two extremes, and some of what lies between. No image comes twice."""
        variants = [DROP]
        if self.has_pending:
            variants += [KEEP, *[REORDER, TORN] * chances]
        seen = set()
        for variant in variants:
            image = self._image(variant, rng)
            identity = hash(tuple(sorted(image.items())))
            if identity not in seen:
                seen.add(identity)
                yield variant, image

    def _sync(self, file: str) -> None:
        if self._safe.get(file) is None:
            # The unix VFS syncs the folder together with a new log or journal.
            self._may_return.clear()
        content = bytearray(self._safe.get(file) or b"")
        for op in self._pending.pop(file, ()):
            _write(content, op)
        self._safe[file] = bytes(content)

    def _delete(self, file: str, folder_synced: bool) -> None:
        content = self._safe.pop(file, None)
        self._pending.pop(file, None)
        if folder_synced:
            self._may_return.clear()
        elif content is not None:
            self._may_return[file] = content

    def _image(self, variant: str, rng: random.Random) -> Image:
        keep = rng.choice((0.1, 0.5, 0.9))
        image: Image = {}
        for file, safe in self._safe.items():
            content = bytearray(safe or b"")
            for op in self._pending.get(file, ()):
                for part in _iterate_surviving(op, variant, rng, keep):
                    _write(content, part)
            if safe is not None or content:
                image[file] = bytes(content)
        if variant in (REORDER, TORN):
            for file, content_before in self._may_return.items():
                if file not in image and rng.random() < 0.5:
                    image[file] = content_before
        return image


def _iterate_surviving(op: Op, variant: str, rng: random.Random, keep: float) -> Iterator[Op]:
    """The parts of an operation that reached the disk although nobody waited for them."""
    if variant == KEEP:
        yield op
    elif variant == REORDER or (variant == TORN and op.kind == "trunc"):
        if rng.random() < keep:
            yield op
    elif variant == TORN:
        # Sectors are those of the disk, not of the write.
        start = op.offset
        end = op.offset + len(op.data)
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < keep:
                yield Op("write", op.file, start, op.data[start - op.offset : stop - op.offset])
            start = stop


def _write(content: bytearray, op: Op) -> None:
    if op.kind == "trunc":
        if len(content) < op.offset:
            content.extend(bytes(op.offset - len(content)))
        del content[op.offset :]
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data
