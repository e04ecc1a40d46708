"""Styles, scripts and the icon: files of this package, known by the hash of their content."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec

MEDIA_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOLDER = "assets"


class Asset(msgspec.Struct, frozen=True):
    """A file that browsers load."""

    content: bytes
    media_type: str
    hash: str


@cache
def load_assets() -> dict[str, Asset]:
    """Return all files by name."""
    found = {}
    for file in files(__package__).joinpath(FOLDER).iterdir():
        kind = MEDIA_TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = Asset(content, kind, sha256(content).hexdigest()[:20])
    return found


def asset_url(name: str) -> str:
    """Return the address of a file. It changes with the content, so browsers may keep the file for good."""
    return f"/{FOLDER}/{name}?v={load_assets()[name].hash}"
