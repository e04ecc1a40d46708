"""Memories of mem0: exported JSON (`get_all()`, the platform's export), or its `history.db`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from perdure.importers.items import ImportedItem, ImportedNote, clean_text, clean_value
from perdure.importers.reader import ImportReader, parse_moment
from perdure.values.limits import MEMORY_TAGS_MAX

_LISTS = ("results", "memories", "data")
"""The names that exports have for their list of memories."""
_HISTORY = (
    "SELECT memory_id, new_memory, event, is_deleted, coalesce(updated_at, created_at) FROM history ORDER BY rowid"
)


def read_mem0(reader: ImportReader) -> Iterator[ImportedItem]:
    """Yield the memories of JSON files and history databases."""
    for path in reader.list_files(".json", ".db", ".sqlite"):
        if path.name == "storage.sqlite":
            reader.note(path, "Qdrant stores pickles, which can run code: export with `json.dump(memory.get_all(...))`")
        elif path.suffix in (".db", ".sqlite"):
            yield from _read_history(reader, path)
        else:
            yield from _read_export(reader, path)


def _read_export(reader: ImportReader, path: Path) -> Iterator[ImportedNote]:
    data = reader.read_json(path)
    if isinstance(data, dict):
        data = next((data[name] for name in _LISTS if isinstance(data.get(name), list)), None)
        if data is None:
            if path == reader.root:
                reader.note(path, "no list of memories in it")
            return
    for number, entry in enumerate(data if isinstance(data, list) else ()):
        note = _to_note(entry)
        if note is None:
            reader.note(f"{path}[{number}]", "not a memory: it has no id or no text")
        else:
            yield note


def _to_note(entry: Any) -> ImportedNote | None:
    if not isinstance(entry, dict):
        return None
    key, text = entry.get("id"), entry.get("memory") or entry.get("text") or entry.get("data")
    if not isinstance(key, str | int) or not isinstance(text, str) or not text.strip():
        return None
    meta = clean_value(entry["metadata"]) if isinstance(entry.get("metadata"), dict) else {}
    for name in ("agent_id", "run_id", "actor_id", "app_id"):
        if isinstance(entry.get(name), str):
            meta[name] = clean_text(entry[name])
    user = entry.get("user_id")
    return ImportedNote(
        clean_text(str(key)),
        clean_text(text),
        user=clean_text(user) if isinstance(user, str) else "",
        tags=_read_tags(entry.get("categories")),
        at=parse_moment(entry.get("created_at")),
        meta=meta,
    )


def _read_tags(names: Any) -> tuple[str, ...]:
    found = names if isinstance(names, list) else ()
    return tuple(clean_text(name) for name in found if isinstance(name, str) and name)[:MEMORY_TAGS_MAX]


def _read_history(reader: ImportReader, path: Path) -> Iterator[ImportedNote]:
    """Yield what every memory was last. The vectors beside it are not needed: recall makes its own."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(_HISTORY).fetchall()
    except sqlite3.Error as error:
        reader.note(path, f"not a history of mem0: {error}")
        return
    yield from _last_texts(rows)


def _last_texts(rows: Iterable[tuple[Any, ...]]) -> Iterator[ImportedNote]:
    last: dict[str, ImportedNote] = {}
    for key, text, event, deleted, at in rows:
        if event == "DELETE" or deleted or not isinstance(text, str) or not text.strip():
            last.pop(str(key), None)
        else:
            last[str(key)] = ImportedNote(clean_text(str(key)), clean_text(text), at=parse_moment(at))
    yield from last.values()
