"""Which store a scene has: a file in its folder, or a schema in the session's PostgreSQL server.

A victim is only told its folder; a file there says where its store is, when it is not in the folder itself.
"""

from __future__ import annotations

from pathlib import Path

FILE = "store.db"
SAID = "store.url"


def store_of(folder: str | Path) -> str:
    """The URL of the store that belongs to a folder."""
    said = Path(folder) / SAID
    return said.read_text() if said.exists() else f"sqlite:///{folder}/{FILE}"


def settle(folder: Path, url: str) -> None:
    """From now on the store of the folder is elsewhere."""
    (folder / SAID).write_text(url)
