"""Writes the digests by which a store file's schema is recognised at open: run it after adding a migration.

python tools/schema_digests.py
"""

from __future__ import annotations

from pathlib import Path

from perdure.store import sql
from perdure.store.sqlite.schema_guard import build_expected, digest

TARGET = Path(sql.__file__).parent / "sqlite" / "digests.txt"


def digests() -> str:
    """One line for each schema version: its number, and the SHA-256 of its definitions."""
    versions = range(1, len(sql.migrations("sqlite")) + 1)
    return "".join(f"{version} {digest(sorted(build_expected(version).values())).hex()}\n" for version in versions)


if __name__ == "__main__":
    TARGET.write_text(digests(), encoding="utf-8")
