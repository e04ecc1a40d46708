"""What every system must be able to do to be compared, and the work that it is given."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Protocol

RESULT_BYTES = 1024
TEXTS = 64

Call = Callable[[int], str]


class Contender(Protocol):
    """A system on a store. Functions are made durable before the one run of the process begins."""

    def durable(self, name: str, function: Call, *, effect: bool) -> Call:
        """A function whose result is kept. An `effect` changes the world; not every system knows the difference."""

    def run(self, name: str, body: Callable[[], None]) -> None:
        """Start the run of that name, or resume it after a crash, and end it when the body ends."""

    def facts(self) -> dict[str, str]:
        """Its version, and what it has set to make data survive a power cut. Asked inside the run."""


def text(number: int) -> str:
    """1 KB that does not compress, another one for each number."""
    source = random.Random(number)
    return "".join(source.choices(string.ascii_letters + string.digits, k=RESULT_BYTES))


def texts() -> Call:
    """Results made before anything is measured, and used in turn."""
    made = [text(number) for number in range(TEXTS)]
    return lambda number: made[number % TEXTS]


def sqlite_path(url: str) -> str:
    """The file of a `sqlite:///` URL."""
    return url.removeprefix("sqlite:///")


def on_postgres(url: str) -> bool:
    """Whether the store is a server."""
    return url.startswith("postgres")
