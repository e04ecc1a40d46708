"""Everything outside of Perdure: one file that outlives every process, and knows what really happened.

effect NAME KEY      the world was changed
body NAME            a step's body ran
ack NAME [VALUE]     a call returned, so it must never be lost
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path


class World:
    """The file."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder / "world.log"
        self._fd = -1

    def note(self, *words: str) -> None:
        """One line, on disk when this returns; appending it is atomic."""
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._fd, (" ".join(words) + "\n").encode())
        os.fsync(self._fd)

    def act(self, name: str, key: str) -> str:
        """Change the world; nothing is deduplicated here."""
        self.note("effect", name, key)
        return f"receipt of {name}"

    def act_once(self, name: str, key: str) -> str:
        """A service that honours idempotency keys."""
        return self.receipt(key) or self.act(name, key)

    def receipt(self, key: str) -> str | None:
        """What a person finds out about a key."""
        for word, name, *rest in self.lines():
            if word == "effect" and rest == [key]:
                return f"receipt of {name}"
        return None

    def lines(self) -> list[list[str]]:
        if not self._path.exists():
            return []
        return [[*line.split(), ""][: max(2, len(line.split()))] for line in self._path.read_text().splitlines()]

    def effects(self) -> Counter[str]:
        """How often each effect has happened."""
        return Counter(line[1] for line in self.lines() if line[0] == "effect")

    def bodies(self) -> Counter[str]:
        """How often each body has run."""
        return Counter(line[1] for line in self.lines() if line[0] == "body")

    def acks(self) -> Counter[str]:
        return Counter(line[1] for line in self.lines() if line[0] == "ack")

    def broken_promises(self) -> list[str]:
        """Work repeated after it was acknowledged, values that changed after, keys that were not stable."""
        found: list[str] = []
        values: dict[str, list[str]] = {}
        keys: dict[str, set[str]] = defaultdict(set)
        for word, name, *rest in self.lines():
            if word == "ack":
                if values.setdefault(name, rest) != rest:
                    found.append(f"{name} was acknowledged as {values[name]}, and later as {rest}")
            elif word in ("body", "effect") and name in values:
                found.append(f"{word} of {name} came again after it was acknowledged")
            if word == "effect":
                keys[name].add(rest[0])
        return found + [f"{name} had {len(used)} keys" for name, used in keys.items() if len(used) > 1]
