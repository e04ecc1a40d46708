"""A process that pays somebody, and may die while it does: `python -m bench.peers.crash JSON`.

Three durable calls: think, pay, think. The payment is a line in a file outside of every store. `dies` says where the
process kills itself with SIGKILL: before the payment, after it and before its record, or in the next call, when the
record is long made; or that the payment `raises` after it was made, as a time-out does; "" is for nothing of that.
The last line printed says how the run ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from .systems import make

THINK, PAY, THINK_AGAIN = 0, 1, 2


class Lost(Exception):
    """The payment was made, and the answer of the bank got lost."""


class Story:
    """The functions that are made durable."""

    def __init__(self, outside: Path, dies: str) -> None:
        self._outside, self._dies = outside, dies

    def think(self, number: int) -> str:
        """Safe to repeat."""
        if number == THINK_AGAIN:
            self._die("recorded")
        return "thought"

    def pay(self, number: int) -> str:
        """Must not happen twice."""
        self._die("before")
        with self._outside.open("a", encoding="utf-8") as file:
            file.write("PAY\n")
            file.flush()
            os.fsync(file.fileno())
        self._die("after")
        if self._dies == "raises":
            raise Lost
        return "paid"

    def _die(self, moment: str) -> None:
        if self._dies == moment:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """One attempt, the first or the one after a crash: the program is the same."""
    spec = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def end(how: str) -> NoReturn:
        out.write(json.dumps({"ended": how}) + "\n")
        out.flush()
        # Whatever threads a system has left behind, this process is over.
        os._exit(0)

    sys.excepthook = lambda kind, _error, _trace: end(kind.__name__)
    _pay(spec)
    end("finished")


def _pay(spec: dict[str, Any]) -> None:
    outside = Path(spec["outside"])
    story = Story(outside, spec["dies"])
    system = make(spec["system"], spec["url"], outside if spec["check"] else None)
    think = system.durable("think", story.think, effect=False)
    pay = system.durable("pay", story.pay, effect=spec["effect"])

    def body() -> None:
        think(THINK)
        pay(PAY)
        think(THINK_AGAIN)

    system.run("payment", body)


if __name__ == "__main__":
    main()
