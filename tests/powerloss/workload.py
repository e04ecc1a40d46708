"""Real runs whose every returned call is marked in the log, and which anybody can take up from an image."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure import Agent, Done, InDoubt, NotDone, RunWaiting
from perdure.errors import AlreadyAnswered, NothingToAnswer
from perdure.journal.objects import iterate_packed, reference
from perdure.kernel import engine
from perdure.records import decode
from perdure.store import open_store

from .vfs import NAME, LoggingVfs, Op

AGENT = "power"
FILE = "perdure.db"
OPERATIONS = 14
THREADS = 2

Row = tuple[int, int, int, bytes, bytes, None]
"""Of the table `journal`; here nothing is ever erased."""

JOURNAL = "SELECT id, kind, at, body, chain, digest FROM journal ORDER BY id"

Heads = dict[int, int]
"""The last entry of each stream."""


class Setup(msgspec.Struct, frozen=True):
    """How a workload runs."""

    seed: int
    durability: str = "full"
    synchronous: str = ""
    """Sabotage: what to set PRAGMA synchronous to behind the store's back."""
    threads: bool = False
    trusting: bool = True
    checkpoint_pages: int = 16


class Recording(msgspec.Struct, frozen=True):
    """What happened: the log, what the callers knew after each returned call, and what it all came to."""

    log: list[Op]
    history: list[Heads]
    """Heads after the n-th returned call; entry 0 is from before the first."""
    journal: list[Row]
    """Every entry that was ever committed, as stored."""
    references: list[list[bytes]]
    """The objects that each of them needs."""
    outcome: dict[str, Any]


class World:
    """What is outside of the store: which bodies ran here, and which effects have ever happened."""

    def __init__(
        self, log: list[Op] | None = None, happened: set[str] | None = None, *, troubled: bool = False
    ) -> None:
        self.log = log if log is not None else []
        self.happened = set(happened or ())
        self.ran: list[str] = []
        self.twice: list[str] = []
        self.troubled = troubled
        """The first time, things go wrong in the middle."""

    def body(self, label: str) -> None:
        self.ran.append(label)

    def effect(self, label: str) -> None:
        if label in self.happened:
            self.twice.append(label)
        self.happened.add(label)
        self.log.append(Op("effect", label))


class Trouble(Exception):
    """Ends a run in the middle, so that it has to be resumed."""


def ignore_ack(label: str = "") -> None:
    """For those who take up an image: nobody counts on their calls."""


class Program:
    """The code of an agent: the same calls for the same seed, whoever runs it and however often."""

    def __init__(self, agent: Agent, setup: Setup, world: World, ack: Callable[[str], None]) -> None:
        self.agent = agent
        self.setup = setup
        self.world = world
        self.ack = ack
        self._stopped: set[str] = set()

    def outcome(self) -> dict[str, Any]:
        """Bring every run to its end; the results by run."""
        if self.setup.threads:
            threads = [threading.Thread(target=self._finish, args=(f"main-{n}", n)) for n in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            self._finish("main-0", 0)
        names = [f"main-{n}" for n in range(THREADS)] if self.setup.threads else ["main-0"]
        return {name: self.agent.runs.result(name) for name in names}

    def _finish(self, name: str, nth: int) -> None:
        for _ in range(6):
            try:
                with self.agent.run(name, input={"seed": self.setup.seed}, wait=0) as run:
                    run.result = self._work(run, nth)
                self.ack(f"{name}/end")
                return
            except Trouble:
                continue
            except (InDoubt, RunWaiting):
                self._answer(name)

    def _answer(self, name: str) -> None:
        """A person looks at the world and says what is true there."""
        try:
            if f"{name}/asked" in self.world.happened:
                self.agent.runs.answer(name, done="asked")
            else:
                self.agent.runs.answer(name, retry=True)
        except (NothingToAnswer, AlreadyAnswered):
            return
        self.ack("")

    def _work(self, run: Any, nth: int) -> Any:
        name, rng = run.id, random.Random(f"{self.setup.seed}/{nth}")
        self.ack("")
        total = 0
        for number in range(OPERATIONS):
            kind = rng.choice(_KINDS)
            size = rng.choice((20, 700, 5000))
            total += kind(self, run, f"{name}/{number}", bytes(rng.randbytes(size // 2)) + bytes(size // 2)) or 0
            if number == OPERATIONS // 2 and self.world.troubled and name not in self._stopped:
                self._stopped.add(name)
                raise Trouble
        total += len(run.effect(self._ask, f"{name}/asked", name="ask"))
        self.ack(f"{name}/asked")
        run.step(self._body, f"{name}/last", b"", name="last")
        self.ack(f"{name}/last")
        return {"total": total, "state": dict(run.state.items()), "messages": list(run.messages)}

    # -- bodies -------------------------------------------------------------------------------------------------

    def _body(self, label: str, data: bytes) -> bytes:
        self.world.body(label)
        return data

    def _book(self, label: str, data: bytes) -> bytes:
        self.world.body(label)
        self.world.effect(label)
        return data

    def _is_booked(self, label: str, data: bytes, *, key: str) -> Any:
        return Done(data) if label in self.world.happened else NotDone

    def _ask(self, label: str) -> str:
        self.world.body(label)
        self.world.effect(label)
        if self.world.troubled:
            raise ConnectionError("the answer was lost")
        return "asked"

    # -- operations ---------------------------------------------------------------------------------------------

    def _step(self, run: Any, label: str, data: bytes) -> int:
        size = len(run.step(self._body, label, data, name="step"))
        self.ack(label)
        return size

    def _writing_step(self, run: Any, label: str, data: bytes) -> int:
        def body() -> int:
            self.world.body(label)
            run.state["in step"] = data
            run.messages.append({"label": label})
            return len(data)

        size: int = run.step(body, name=label)
        self.ack(label)
        return size

    def _effect(self, run: Any, label: str, data: bytes) -> int:
        size = len(run.effect(self._book, label, data, check=self._is_booked, name="book"))
        self.ack(label)
        return size

    def _state(self, run: Any, label: str, data: bytes) -> None:
        run.state["open"] = data
        self.ack("")
        run.state[label] = len(data)
        self.ack("")
        del run.state[label]
        self.ack("")

    def _message(self, run: Any, label: str, data: bytes) -> None:
        run.messages.append(data)
        self.ack("")
        run.event("NOTED", {"label": label})
        self.ack("")

    def _loop(self, run: Any, label: str, data: bytes) -> None:
        for item in run.each(["a", "b", "c"], name=label):
            self.ack("")
            run.state["items"] = run.state.get("items", 0) + 1
            run.step(self._body, f"{label}/{item}", data, name="item")
            self.ack(f"{label}/{item}")
        self.ack("")

    def _fail_step(self, run: Any, label: str, data: bytes) -> None:
        tries: list[int] = []

        def body() -> None:
            tries.append(1)
            if len(tries) < 2:
                raise ConnectionError("once more")
            self.world.body(label)

        run.step(body, name=label, retries=2, backoff=0.0)
        self.ack(label)


_KINDS: tuple[Callable[..., int | None], ...] = (
    Program._step,
    Program._step,
    Program._writing_step,
    Program._effect,
    Program._effect,
    Program._state,
    Program._message,
    Program._loop,
    Program._fail_step,
)


def make_agent(folder: str, durability: str = "full") -> Agent:
    """The agent of all workloads; its key is not in a file, because only SQLite's files are in the images."""
    return Agent(AGENT, store=os.path.join(folder, FILE), durability=durability, key=lambda name: b"k" * 32)


def record(folder: str, setup: Setup, happened: set[str] | None = None) -> Recording:
    """Run the workload on whatever is in the folder. Needs a process of its own, which ends afterwards.

    `happened` is given when the folder holds an image: those effects are in the world already.
    """
    vfs = LoggingVfs(trusting=setup.trusting)
    vars(engine)["open_store"] = partial(_open_logged, setup)
    agent = make_agent(folder, setup.durability)
    history: list[Heads] = [{} if happened is None else heads_in(_rows(agent._engine.store))]

    def ack(label: str = "") -> None:
        store: Any = agent._engine.store
        # Nobody commits between the look and the mark: the mark stands where its heads stood.
        with store._writer_lock:
            history.append(heads_in(_rows(store)))
            vfs.log.append(Op("ack", label, len(history) - 1))

    world = World(vfs.log, happened, troubled=happened is None)
    outcome = Program(agent, setup, world, ack).outcome()
    agent.close()  # checkpoints SQLite's log into the file, and removes it
    with agent.run("late") as run:
        ack()
        run.step(world.body, "late", name="late")
        ack("late")
    ack()
    log = list(vfs.log)  # what the end of the process adds is of no interest
    journal = _rows(agent._engine.store)
    references = [[*map(reference, iterate_packed(decode(kind, body)))] for _, kind, _, body, _, _ in journal]
    return Recording(log, history, journal, references, outcome)


def _open_logged(setup: Setup, url: str, **options: Any) -> Any:
    store: Any = open_store(url, vfs=NAME, **options)
    store._writer.wal_autocheckpoint(setup.checkpoint_pages)
    if setup.synchronous:
        store._writer.pragma("synchronous", setup.synchronous)
    return store


def heads_in(rows: list[Row]) -> Heads:
    """The last entry of each stream."""
    return {row[0] >> 32: row[0] & 0xFFFFFFFF for row in rows}


def _rows(store: Any) -> list[Row]:
    rows: list[Row] = store._writer.execute(JOURNAL).fetchall()
    return rows
