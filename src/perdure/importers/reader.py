"""Reads files of other tools within limits. What cannot be read is noted, and the import goes on."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from perdure.errors import WrongValue

FILES_MAX = 200_000
FILE_BYTES_MAX = 1024**3
"""Of one file that is read as a whole, after decompression."""
LINE_BYTES_MAX = 64 * 1024**2
ZIP_RATIO_MAX = 200
"""How much larger than its compressed form a file may be. Text shrinks to a fifth, a bomb to a thousandth."""
UNREAD_MAX = 1000
"""How many unreadable places are kept by name; others are counted."""
CHUNK_BYTES = 1024**2
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv"})

JSON_ERRORS = (ValueError, RecursionError, msgspec.DecodeError)


class UnreadPlace(msgspec.Struct, frozen=True):
    """Something that was not imported, and why."""

    path: str
    why: str


class ImportReader:
    """Reads files, counts bytes for the progress bar and notes what cannot be read."""

    def __init__(self, root: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        self.root = root
        self.unread: list[UnreadPlace] = []
        self.unread_count = 0
        self._progress = progress
        self._done = self._total = 0
        if not root.exists():
            raise WrongValue(f"{root} does not exist; nothing was imported", hint="give the path of the data")

    def note(self, path: Path | str, why: str) -> None:
        """Note what is not imported."""
        self.unread_count += 1
        if len(self.unread) < UNREAD_MAX:
            self.unread.append(UnreadPlace(str(path), why))

    def list_files(self, *endings: str) -> list[Path]:
        """Return the files at the path, sorted. Hidden folders and links that lead elsewhere are left out."""
        found = [self.root] if self.root.is_file() else list(self._walk(endings))
        self._total = sum(path.stat().st_size for path in found)
        return found

    def _walk(self, endings: tuple[str, ...]) -> Iterator[Path]:
        count, base = 0, self.root.resolve()
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in SKIPPED_FOLDERS)
            for path in (Path(folder, name) for name in sorted(names) if name.lower().endswith(endings)):
                if path.is_symlink() and not path.resolve().is_relative_to(base):
                    self.note(path, "a link that leads out of the folder")
                    continue
                if not path.is_file():
                    continue
                count += 1
                if count > FILES_MAX:
                    self.note(folder, f"more than {FILES_MAX:,} files: the others were not read")
                    return
                yield path

    def advance(self, count: int) -> None:
        """Show that bytes were read."""
        self._done += count
        self._progress(min(self._done, self._total), self._total)

    def read_bytes(self, path: Path) -> bytes | None:
        """Return the content of a file; None, noted, if it is too large or cannot be read."""
        try:
            size = path.stat().st_size
            if size > FILE_BYTES_MAX:
                self.note(path, f"larger than {FILE_BYTES_MAX:,} bytes")
                return None
            content = path.read_bytes()
        except OSError as error:
            self.note(path, error.strerror or str(error))
            return None
        self.advance(len(content))
        return content

    def read_text(self, path: Path) -> str | None:
        """Return the text of a file; None, noted, if it is none."""
        content = self.read_bytes(path)
        if content is None:
            return None
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.note(path, "not UTF-8")
            return None

    def read_json(self, path: Path) -> Any:
        """Return the data of a JSON file; None, noted, if it is none."""
        content = self.read_bytes(path)
        return None if content is None else self.parse_json(path, content)

    def parse_json(self, path: Path | str, content: bytes) -> Any:
        """Return the data of JSON text; None, noted, if it is none."""
        try:
            return json.loads(content)
        except JSON_ERRORS as error:
            self.note(path, f"not JSON: {_describe(error)}")
            return None

    def split_json_list(self, path: Path | str, content: bytes) -> list[msgspec.Raw]:
        """Return the entries of a JSON list undecoded, so that one that cannot be read does not hide the others."""
        try:
            return msgspec.json.decode(content, type=list[msgspec.Raw])
        except JSON_ERRORS as error:
            self.note(path, f"not a JSON list: {_describe(error)}")
            return []

    def read_lines(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the objects of a file with one JSON object per line, with the number of the line."""
        try:
            with path.open("rb") as file:
                yield from self._parse_lines(path, file)
        except OSError as error:
            self.note(path, error.strerror or str(error))

    def _parse_lines(self, path: Path, file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            self.advance(len(line))
            if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
                self.note(f"{path}:{number}", f"the line has more than {LINE_BYTES_MAX:,} bytes")
                while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                    self.advance(len(rest))
            elif line.strip() and (found := self.parse_json(f"{path}:{number}", line)) is not None:
                if isinstance(found, dict):
                    yield number, found
                else:
                    self.note(f"{path}:{number}", "not a JSON object")

    def read_zip(self, path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        """Yield the wanted files of a zip. Bombs are noted and not unpacked."""
        try:
            with zipfile.ZipFile(path) as archive:
                for entry in archive.infolist()[:FILES_MAX]:
                    if wanted(entry.filename) and (content := self._unpack(path, archive, entry)) is not None:
                        self.advance(entry.compress_size)
                        yield f"{path}/{entry.filename}", content
        except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
            self.note(path, f"not a readable zip file: {error}")

    def _unpack(self, path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes | None:
        """Unpack one file, never more than the limit: the size that the zip tells may be a lie."""
        place = f"{path}/{entry.filename}"
        most = min(FILE_BYTES_MAX, max(entry.compress_size * ZIP_RATIO_MAX, CHUNK_BYTES))
        parts, size = list[bytes](), 0
        try:
            with archive.open(entry) as file:
                while part := file.read(CHUNK_BYTES):
                    size += len(part)
                    if size > most:
                        self.note(place, f"unpacks to more than {most:,} bytes: refused as a zip bomb")
                        return None
                    parts.append(part)
        except (zipfile.BadZipFile, RuntimeError, EOFError, OSError) as error:
            self.note(place, f"damaged or encrypted: {error}")
            return None
        return b"".join(parts)


def _describe(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:200]


def parse_moment(value: object) -> int:
    """Return a time in milliseconds: of seconds since 1970, or of a text in ISO format; 0 if it is neither."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return max(0, int(value * 1000)) if 0 < value < 1e11 else 0
        if isinstance(value, str) and value:
            when = datetime.fromisoformat(value)
            aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
            return max(0, int(aware.timestamp() * 1000))
    except (ValueError, OverflowError):
        return 0
    return 0
