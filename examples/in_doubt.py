"""An effect in doubt, which only a person can settle.

    python in_doubt.py           the power fails right after the payment, before it is recorded
    python in_doubt.py           the run waits: was it paid? It does not guess, and does not pay again
    python in_doubt.py paid      somebody has looked at the bank account, and says so; or: not-paid

On the command line: perdure show invoice-7 --store accountant.db, perdure answer invoice-7 --done '"paid"' ...

Once it has finished, it only prints its result. To see it all again: rm -r accountant.db* bank.txt power-failed.txt
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from perdure import Agent, RunWaiting
from perdure.errors import NothingToAnswer, RunNotFound

agent = Agent("accountant", store="accountant.db")
POWER_FAILED = Path("power-failed.txt")


@agent.effect  # there is no check, so a person is asked
def pay(invoice: str, amount: int, *, key: str) -> str:
    with open("bank.txt", "a") as bank:
        bank.write(f"{key} {invoice} {amount}\n")
    if not POWER_FAILED.exists():
        POWER_FAILED.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


def answer(words: list[str]) -> None:
    try:
        if words == ["paid"]:
            agent.runs.answer("invoice-7", done="paid, says the bank", by="Ada")
        elif words == ["not-paid"]:
            agent.runs.answer("invoice-7", retry=True, by="Ada")
    except (NothingToAnswer, RunNotFound) as error:  # finished already, or not begun
        print(error)


if __name__ == "__main__":
    answer(sys.argv[1:])
    try:
        with agent.run("invoice-7", wait=0) as run:  # wait=None, the default, would stay and wait for the answer
            run.result = pay("7", 120)
        print(run.result)
    except RunWaiting as waiting:
        print(waiting)
