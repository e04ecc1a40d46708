"""What somebody can write who has an agent file and no key, or a key of their own: lines that fit each other again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from perdure import records as r
from perdure.errors import PerdureError
from perdure.journal import chain
from perdure.journal.keys import SigningKey, file_message
from perdure.store import is_remote
from perdure.store.postgres.url import is_postgres
from perdure.transfer import file_format
from perdure.transfer.content_hash import ContentDigests, ContentHasher

from .kit import Behind, find_behind

replace = msgspec.structs.replace


class Forger:
    """The lines of a file. What is changed is chained anew, and the last line fits the others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.header, *self.lines, self.end = list(file_format.lines_of(path))

    @property
    def key(self) -> file_format.LockedKey | None:
        """The private key in the file."""
        return next((line for line in self.lines if isinstance(line, file_format.LockedKey)), None)

    def records(self) -> Iterator[tuple[int, file_format.ExportStream, r.Record]]:
        """The entries, with the places of their lines and the streams that they are in."""
        stream = None
        for place, line in enumerate(self.lines):
            if isinstance(line, file_format.ExportStream):
                stream = line
            elif isinstance(line, file_format.ExportEntry) and line.body is not None:
                assert stream is not None
                yield place, stream, r.decode(line.kind, line.body)

    def put(self, place: int, record: r.Record) -> Forger:
        """Let an entry say something else."""
        line: Any = self.lines[place]
        body = line.body[: r.SALT_BYTES] + msgspec.msgpack.encode(record)
        self.lines[place] = replace(line, kind=r.KIND_OF[type(record)], body=body, digest=None)
        return self

    def change(self, kind: type, edit: Callable[[Any], Any]) -> Forger:
        """Change the first entry of a kind."""
        place, _, record = next(found for found in self.records() if isinstance(found[2], kind))
        return self.put(place, edit(record))

    def drop_lines(self, *kinds: type) -> Forger:
        """Leave out all lines of some kinds."""
        self.lines = [line for line in self.lines if not isinstance(line, kinds)]
        return self

    def write_file(
        self, name: str = "forged.perdure", *, signer: SigningKey | None = None, rechain: bool = True
    ) -> Path:
        """The file, signed by a key, or by nobody; seals, which are signed too, are left out."""
        if rechain:
            self.drop_lines(file_format.ExportSeal)
            self._rechain()
        if signer is not None:
            self._become(signer.public_key)
        data = b"".join(self._encode_lines())
        digest = sha256(data).digest()
        contents = self._contents()
        signature = signer.sign(file_message(digest, contents.contents)) if signer is not None else b""
        counts = [
            sum(isinstance(line, kind) for line in self.lines)
            for kind in (file_format.ExportStream, file_format.ExportEntry, file_format.ExportObject)
        ]
        end = file_format.ExportEnd(*counts, digest, contents.contents, contents.index, signature)
        return self.as_file(name, data + _line(end))

    def as_file(self, name: str, data: bytes) -> Path:
        """A file with this plain content."""
        path = self._path.with_name(name)
        path.write_bytes(zstandard.ZstdCompressor(level=3).compress(data))
        return path

    def _become(self, public_key: bytes) -> None:
        """Another agent of the same name."""
        self.header = replace(self.header, public_key=public_key)
        self.change(r.AgentCreated, lambda record: replace(record, public_key=public_key))
        self._rechain()

    def _encode_lines(self) -> Iterator[bytes]:
        running = sha256()
        for line in (self.header, *self.lines):
            if isinstance(line, file_format.LockedKey):
                line = replace(line, digest=running.digest())
            data = _line(line)
            running.update(data)
            yield data

    def _rechain(self) -> None:
        number, link = 0, b""
        for place, line in enumerate(self.lines):
            if isinstance(line, file_format.ExportStream):
                number, link = line.number, chain.genesis(self.header.store, line.number)
                assert line.compaction is None or not number, "this forger does not compact"
            elif isinstance(line, file_format.ExportEntry) and number:
                digest = line.digest or chain.body_digest(line.body or b"")
                link = chain.link(link, number, line.seq, line.kind, line.at, digest)
                self.lines[place] = replace(line, chain=link)

    def _contents(self) -> Any:
        streams = [line.number for line in self.lines if isinstance(line, file_format.ExportStream)]
        contents = ContentHasher(
            self.header.agent, {number: place for place, number in enumerate(streams, 1) if number}
        )
        try:
            for line in self.lines:
                contents.take(line)
            return contents.digests()
        except PerdureError:  # what cannot be read has no hash; whoever imports it does not come that far
            return ContentDigests(bytes(32), bytes(32))
        finally:
            contents.close()


def _line(line: Any) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def dump(store_url: str, folder: Path) -> dict[str, Any]:
    """Every row of a store, and every file in a folder, apart from databases and who was here."""
    found: dict[str, Any] = {}
    if is_remote(store_url):
        store_url = find_behind(store_url)
    if is_postgres(store_url) or Path(store_url.removeprefix("sqlite:///")).exists():
        with Behind(store_url) as store:
            for table in _tables(store, is_postgres(store_url)):
                found[table] = sorted(map(repr, store.execute(f'SELECT * FROM "{table}"')))
    files = [path for path in folder.rglob("*") if path.is_file() and ".db" not in path.suffix]
    found["files"] = sorted((str(path), sha256(path.read_bytes()).hexdigest()) for path in files)
    return found


def _tables(store: Behind, postgres: bool) -> list[str]:
    asked = (
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        if postgres
        else "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%' "
        "AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '%\\_words\\_%' ESCAPE '\\'"
    )
    return [name for (name,) in store.execute(asked) if name not in ("holders", "store_locations", "meta")]
