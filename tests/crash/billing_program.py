"""Pays bills, one effect each, while somebody lays hands on the files of its store."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from perdure import Done, NotDone, RunWaiting
from perdure.cli.main import main as command
from perdure.errors import StoreFenced
from perdure.platform import failpoints
from tests.crash.colours import Palette, enter, settle
from tests.crash.stores import FILE, store_of
from tests.crash.world import World

BILLS = 8
HALF = 4


EARLIER = "import sys; from tests.crash.billing_program import earlier; earlier(sys.argv[1])"


def find_log_end(data: bytes) -> int:
    """Where the frames of a log end that count: later ones are left from before its last reset."""
    page, salt, end = int.from_bytes(data[8:12], "big"), data[16:24], 32
    while data[end + 8 : end + 16] == salt:
        end += 24 + page
    return end


class Payer:
    """The program."""

    def __init__(self, folder: str, colour: str, policy: str = "check") -> None:
        self.folder = Path(folder)
        self.path = self.folder / FILE
        self.world = World(folder)
        self.palette = Palette(colour, "payer", store_of(folder))
        options: dict[str, Any] = {"check": self.palette.paint(self.paid)} if policy == "check" else {}
        if policy == "retry":
            options["in_doubt"] = "retry"
        self.effect = self.palette.agent.effect(name="pay", **options)(self.palette.paint(self.pay))

    async def pay(self, bill: int, *, key: str) -> str:
        return self.world.act(f"bill-{bill}", key)

    async def paid(self, bill: int, *, key: str) -> Any:
        self.world.note("asked", f"bill-{bill}", key)
        receipt = self.world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    async def work(self, hurt: str, die: bool) -> None:
        async with enter(self.palette.agent.run("bills", wait=0)) as run:
            for bill in range(BILLS):
                if bill == HALF and hurt:
                    getattr(self, hurt)()
                try:
                    await settle(self.effect(bill))
                except StoreFenced as error:
                    self.world.note("fenced", f"bill-{bill}", error.message)
                    os._exit(3)
                self.world.note("ack", f"bill-{bill}")
            if die:
                os.kill(os.getpid(), signal.SIGKILL)
            run.result = BILLS

    # -- what is done to the files -----------------------------------------------------------------------------

    def standard_library(self) -> None:
        """Look into the store with Python's own sqlite3."""
        connection = sqlite3.connect(self.path)
        connection.execute("SELECT count(*) FROM journal").fetchall()
        connection.close()

    def standard_library_twice(self) -> None:
        """Our locks are gone, and then another process is the last one to close the store."""
        self.standard_library()
        look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM journal'); c.close()"
        subprocess.run([sys.executable, "-c", look, str(self.path)], check=True)

    def plain_file(self) -> None:
        self.path.read_bytes()

    def log_removed(self) -> None:
        os.unlink(f"{self.path}-wal")

    def log_emptied(self) -> None:
        os.truncate(f"{self.path}-wal", 0)

    def log_cut(self) -> None:
        log = f"{self.path}-wal"
        os.truncate(log, find_log_end(Path(log).read_bytes()) - 1)

    def index_removed(self) -> None:
        os.unlink(f"{self.path}-shm")

    def index_of_another(self) -> None:
        """Somebody removes the index of the log, and another process makes a new one and writes."""
        self.index_removed()
        subprocess.run([sys.executable, "-c", EARLIER, str(self.folder)], check=True)

    def all_removed(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            os.unlink(f"{self.path}{suffix}")

    def backup_copied_over(self) -> None:
        shutil.copyfile(self.folder / "backup.db", self.path)

    def backup_moved_over(self) -> None:
        os.replace(self.folder / "backup.db", self.path)

    def other_log(self) -> None:
        """Somebody removes the log, and another program has begun a new one."""
        os.unlink(f"{self.path}-wal")
        os.unlink(f"{self.path}-shm")
        Path(f"{self.path}-wal").write_bytes(b"another log")


def main(folder: str, colour: str = "sync", hurt: str = "", die: bool = False, policy: str = "check") -> None:
    payer = Payer(folder, colour, policy)
    payer.palette.perform(payer.work(hurt, die))


def pay_again(folder: str, die: bool) -> None:
    """The first attempt does nothing, the second one pays. The log is copied as it is between the two."""
    payer = Payer(folder, "sync")
    attempts = [0]

    def keep_log(site: failpoints.Site, moment: failpoints.CommitMoment) -> None:
        if (site, moment) == (failpoints.Site.EFFECT_AGAIN, failpoints.CommitMoment.BEFORE):
            shutil.copyfile(f"{payer.path}-wal", f"{payer.path}-older")

    def pay(bill: int, *, key: str) -> str:
        attempts[0] += 1
        if die and attempts[0] == 1:
            raise NotDone
        payer.world.act(f"bill-{bill}", key)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    failpoints.arm(keep_log if die else None)
    effect = payer.palette.agent.effect(name="pay", check=payer.palette.paint(payer.paid), retries=1, backoff=0)(pay)
    with payer.palette.agent.run("bills", wait=0):
        effect(0)


def earlier(folder: str) -> None:
    """Another run, some pages long, which ends well and is in the database when this process has ended."""
    payer = Payer(folder, "sync")
    with payer.palette.agent.run("earlier") as run:
        for number in range(60):
            run.step(os.urandom, 1000, id=str(number))
    payer.palette.agent.close()


def resume(folder: str, colour: str = "sync", policy: str = "check") -> None:
    """Go on; when it waits for a person, say so and leave."""
    payer = Payer(folder, colour, policy)
    try:
        payer.palette.perform(payer.work("", False))
    except RunWaiting:
        [doubt] = Payer(folder, "sync").palette.agent.runs.get("bills").in_doubt
        payer.world.note("waits", doubt.name, doubt.key)


def sound(folder: str, store: str) -> None:
    """`perdure verify` finds nothing."""
    os._exit(command(["verify", "--store", store]))


def say(folder: str, words: list[str]) -> None:
    """A command of `perdure`."""
    os._exit(command([*words, "--store", f"{folder}/{FILE}"]))
