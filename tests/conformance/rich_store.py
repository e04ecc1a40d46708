"""A store in which everything has happened once: what verify, rebuild, backup and the command line are tried on."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import threading
import time
import warnings
from functools import cache
from pathlib import Path

import apsw

from perdure import Agent, InDoubt, Run, RunWaiting, kinds
from perdure.errors import RunCancelled, StoreMovedWarning
from perdure.journal.object_gc import collect
from perdure.kernel.protocol import drive_sync
from perdure.store import open_store
from perdure.store.base import Store
from perdure.testing.plugin import SESSION_END
from perdure.work.threads import write as writing
from perdure.work.threads.write import NewThreadCheckpoint, TaskWrite

LARGE = "a page of text that repeats itself. " * 300
NOISE = random.Random(7).randbytes(6000)  # does not compress: is stored raw


def fill(path: Path) -> None:
    """Steps, effects, items, state, messages, events, questions, answers; runs in every status; large values."""
    agent = Agent("travel", store=path)

    @agent.step
    def search(city: str) -> dict[str, str]:
        agent.state.incr("trip", "searches")
        return {"city": city, "page": LARGE}

    @agent.step(retries=1, backoff=0.0)
    def flaky(seen: list[int]) -> int:
        seen.append(1)
        if len(seen) < 2:
            raise ValueError("not yet")
        return len(seen)

    @agent.step
    def think() -> None:
        run.usage(model="gpt-4o", input_tokens=1200, output_tokens=300, cost_usd=0.25)

    @agent.effect
    def book(flight: str, *, key: str) -> str:
        if flight == "lost":
            raise TimeoutError("the line went dead")
        return f"booked {flight}"

    with agent.run("finished", input={"to": "NYC"}) as run:
        search("NYC")
        flaky.options(id="flaky")([])
        book("AA1")
        run.state["kept"], run.state["dropped"] = 1, NOISE
        run.state["kept"] = {"twice": True}
        del run.state["dropped"]
        for item in run.each(["a", "b"]):
            run.state[item] = item
            run.messages.append({"role": "user", "content": item})
            run.checkpoint("seen", item)
        run.event("DECISION", {"why": "cheapest"})
        with agent.run("child"):
            search("BOS")
        run.result = LARGE
    with contextlib.suppress(RuntimeError), agent.run("failed"):
        raise RuntimeError("no money")
    with contextlib.suppress(KeyboardInterrupt), agent.run("interrupted"):
        search("LAX")
        raise KeyboardInterrupt
    for run_id in ("answered", "waiting", "in-doubt"):
        with contextlib.suppress(InDoubt), agent.run(run_id) as run:
            if run_id == "answered":
                think()
            book("lost")
        if run_id != "in-doubt":
            with contextlib.suppress(RunWaiting), agent.run(run_id, wait=0):
                book("lost")
    _order(agent)
    agent.runs.answer("answered", done="AB12", by="ann")
    with agent.run("answered") as run:
        think()
        run.result = book("lost")
    agent.runs.fork("finished", at="search", override={"search": {"city": "BOS", "page": LARGE + "!"}}, input=[LARGE])
    with agent.run("finished-fork") as run:
        search("NYC")
        run.state["undone"] = NOISE
        search("LAX")
        run.undo()
        run.result = run.state.get("kept")
    _keep(agent)
    store = agent._engine.store
    collect(store)
    agent.close()


def compact(path: Path) -> None:
    """More of an agent of its own: changes of state that others have replaced, in an archive."""
    keeper = Agent("keeper", store=path)
    for number in range(12):
        keeper.state.set("kept", "k", [number, LARGE[:200]])
    time.sleep(0.005)
    assert keeper.gc(compact_before=0.001).events.count == 11
    keeper.close()


def _order(agent: Agent) -> None:
    """Runs that were told to stop, and to go on."""
    with contextlib.suppress(RunCancelled), agent.run("cancelled") as run:
        agent.runs.pause("cancelled")
        agent.runs.resume("cancelled")
        agent.runs.cancel("cancelled", "too dear", by="ann")
        run.step(str.upper, "ROM")
    with contextlib.suppress(KeyboardInterrupt), agent.run("paused"):
        raise KeyboardInterrupt
    agent.runs.pause("paused", by="ann")
    agent.runs.resume("paused", by="bob")
    agent.runs.pause("paused", by="ann")


def _keep(agent: Agent) -> None:
    """What is written to the agent in the open."""
    agent.state.set("trip", "page", 1)
    agent.state.update("trip", "pages", lambda seen: [LARGE])
    agent.state.delete("trip", "page")
    agent.checkpoint.create("draft", {"pages": [LARGE, NOISE]}, labels=("first",), meta={"by": "ann"})
    agent.checkpoint.create("draft", {"pages": [LARGE, NOISE, LARGE]})
    agent.checkpoint.delete("draft", version=1)
    agent.artifacts.save("model", NOISE * 40, labels=("first",), note="by ann")
    agent.artifacts.save("model", NOISE * 39 + b"edited")
    agent.artifacts.save("page", [LARGE.encode()] * 200)
    agent.artifacts.delete("model", version=1)
    agent.events.append_many([("PAGE_SEEN", {"page": LARGE}), kinds.Decision("go on", why="it is cheap")])
    agent.events.replay(lambda seen, event: [*seen, event.data], [], snapshot="all", version=1, every=1)
    flow = agent.workflows.create("report", ["search", {"action": "write", "args": {"page": LARGE}}, "send"])
    flow.complete(1, result=NOISE)
    flow.start(2)
    flow.fail(2, note="no paper")
    agent.workflows.create("report", ["search", "think", "send"])
    agent.send_event("later", "paid", {"euro": 7}, by="ann")
    _converse(agent)
    _know(agent)
    _hand_over(agent)


def _converse(agent: Agent) -> None:
    """Threads, as a framework saves them: large states, writes, a copy, and what was dropped."""
    engine, parent = agent._engine, ""
    for number in range(3):
        point = NewThreadCheckpoint(
            *("talk", "", f"{number:08}", parent, {"v": 4}, {"step": number}),
            channels={"messages": [LARGE, NOISE][:number]},
            versions={"messages": number},
        )
        drive_sync(engine.store, writing.put_checkpoint(engine, point))
        writes = [TaskWrite(0, "messages", [LARGE]), TaskWrite(-1, "__error__", NOISE)]
        drive_sync(engine.store, writing.write(engine, ("talk", "", point.id), "task", "", writes))
        parent = point.id
    agent.threads.copy("talk", "copy")
    agent.threads.copy("talk", "gone")
    agent.threads.prune("talk", keep_last=2)
    agent.threads.delete("gone")


def _know(agent: Agent) -> None:
    """Memories: a large one, one that was known, one that took another's place, one against another."""
    agent.memory.remember(LARGE[:8] + NOISE.hex(), kind="episodic", user="ann", tags=["a", "b"], meta={"page": LARGE})
    city = agent.memory.remember("Ann lives in Paris", about="ann", valid_from="2020-01-01")
    agent.memory.remember("Ann lives in Paris!", about="ann", source="mail")
    agent.memory.remember("Ann lives in Rome", about="ann", trust=0.2)
    agent.memory.forget(agent.memory.remember("Ann was in Rome", about="ann", user="ann", supersedes=city))
    agent.memory.remember("Ann moved to Oslo", about="ann", supersedes=city, derived_from=city)


def _hand_over(agent: Agent) -> None:
    """Runs for workers: one that is parked, and one that comes later."""

    @agent.task
    def choose(run: Run, what: str) -> None:
        run.wait_event(what[:8])

    choose.start("parked", LARGE)
    choose.options(delay="1000d", priority=2).start("tomorrow", "which?")
    worker = agent.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    while not agent._engine.store.read("all_task_waits"):
        time.sleep(0.001)
    worker.drain()
    thread.join()


@cache
def _make_store() -> Path:
    folder = tempfile.mkdtemp(prefix="perdure-rich-")
    SESSION_END.callback(shutil.rmtree, folder)
    path = Path(folder) / "perdure.db"
    fill(path)
    return path


@cache
def _make_compacted_store() -> Path:
    path = _make_store().with_name("compacted.db")
    shutil.copy(_make_store(), path)
    shutil.copytree(f"{_make_store()}.keys", f"{path}.keys")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        compact(path)
    return path


def copy_to(path: Path, *, compacted: bool = False) -> Path:
    """A filled store with its keys, for one test to do with as it likes. Made once, then copied."""
    source = _make_compacted_store() if compacted else _make_store()
    shutil.copy(source, path)
    shutil.copytree(f"{source}.keys", f"{path}.keys")
    return path


def open_copy(path: Path) -> Store:
    """The store at a path."""
    return open_store(f"sqlite:///{path}")


def behind(path: Path) -> apsw.Connection:
    """A connection behind Perdure's back."""
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "OFF")  # what a test destroys need not last
    return connection
