"""Compresses JSON answers with the best encoding that the client accepts."""

from __future__ import annotations

import gzip
import re

import zstandard

BYTES_MIN = 1024
"""Smaller answers are sent as they are."""

_REFUSED = re.compile(r";\s*q=0(\.0*)?\s*$")


def compress(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Return the body and its encoding; no encoding if it is small or the client accepts none."""
    if len(body) < BYTES_MIN:
        return body, ""
    parts = [part for part in accepted.lower().split(",") if not _REFUSED.search(part)]
    names = {part.partition(";")[0].strip() for part in parts}
    if "zstd" in names:
        return zstandard.ZstdCompressor(level=3).compress(body), "zstd"
    if "gzip" in names:
        return gzip.compress(body, 5, mtime=0), "gzip"
    return body, ""
