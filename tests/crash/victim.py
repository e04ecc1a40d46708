"""The program that gets killed: one run that uses every public operation.

It is started again and again with the same arguments, and knows nothing of earlier starts but what Perdure and
the outside world tell it. Whatever happens to it, it must come to the same outcome, with each effect once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy  # noqa: F401, recall wants it: once here, and not in every fork

from perdure import Done, InDoubt, NotDone, RunWaiting, Unknown
from perdure.errors import RunCancelled, RunExists
from perdure.journal import object_gc as collecting
from perdure.journal import objects, rebuild
from perdure.journal.compaction import plan
from perdure.kernel.engine import Engine
from perdure.maintenance import compaction
from perdure.memory.recall.embedders import FunctionEmbedder
from perdure.platform import failpoints
from perdure.store.base import Script, UnitOfWork
from perdure.transfer import export, import_file
from perdure.work.threads import write
from perdure.work.threads.write import NewThreadCheckpoint, TaskWrite
from tests.crash.colours import Over, Palette, enter, settle
from tests.crash.outcome import WEIGHTS, is_certain, report
from tests.crash.stores import store_of
from tests.crash.world import World

LARGE = random.Random(7).randbytes(6000).hex()
"""Above `INLINE_BYTES_MAX`, so that it becomes an object."""

STARTS_MAX = 20


class Cast:
    """The agent with its steps and effects, and the world that they change."""

    def __init__(self, folder: str, colour: str) -> None:
        self.palette = Palette(colour, "victim", store_of(folder))
        self.agent = self.palette.agent
        # Words alone: to load a model takes three times as long as all the rest, in every fork, and commits nothing.
        self.agent.memory.embedder = False
        self.world = World(folder)
        self._raised: set[str] = set()

    def ack(self, name: str, *value: str) -> None:
        """A call has returned."""
        self.world.note("ack", name, *value)

    def step(self, name: str, body: Callable[..., Any], **options: Any) -> Any:
        return self.agent.step(name=name, **options)(self.palette.paint(body))

    def effect(self, name: str, body: Callable[..., Any], **options: Any) -> Any:
        if (check := options.get("check")) is not None:
            options["check"] = self.palette.paint(check)
        return self.agent.effect(name=name, **options)(self.palette.paint(body))

    def is_first_time(self, name: str) -> bool:
        """True once per process: what was tried before a crash fails again after it."""
        fresh = name not in self._raised
        self._raised.add(name)
        return fresh

    async def is_booked(self, name: str, *, key: str) -> Any:
        """A check that always knows."""
        receipt = self.world.receipt(key)
        return NotDone if receipt is None else Done(receipt)


async def read_and_think(cast: Cast, run: Any) -> None:
    """Steps: plain, writing inside, large, repeated, failing for good, ad hoc, with a timeout, in parallel."""

    async def search(city: str) -> list[dict[str, Any]]:
        cast.world.note("body", "search")
        return [{"id": n, "city": city} for n in (1, 2)]

    async def plan(subject: str) -> str:
        cast.world.note("body", "plan")
        run.state["plan"] = {"subject": subject, "steps": (1, 2, 3)}
        await settle(run.state.incr("thoughts"))
        await settle(run.messages.append({"role": "assistant", "content": subject}))
        await settle(run.event("PLANNED", {"subject": subject}))
        await settle(run.usage(model="planner", input_tokens=100, output_tokens=10, cost_usd=0.5))
        await settle(cast.agent.state.incr("trip", "plans"))
        await settle(cast.agent.state.set("trip", "plan", LARGE, if_version=0))
        await settle(cast.agent.checkpoint.create("planned", {"plan": LARGE, "next": subject}))
        await settle(cast.agent.artifacts.save("plan", WEIGHTS))
        await settle(cast.agent.memory.remember(f"planned {subject}", kind="episodic"))
        return LARGE

    async def flaky() -> str:
        if cast.is_first_time("flaky"):
            run.state["never"] = "dropped with its attempt"
            raise ConnectionError("try again")
        cast.world.note("body", "flaky")
        return "worked"

    async def hopeless() -> None:
        raise ValueError("never works")

    await settle(cast.step("search", search)(run.input["to"]))
    cast.ack("search")
    assert await settle(cast.step("plan", plan, version=2)("flights")) == LARGE
    cast.ack("plan")
    await settle(cast.step("flaky", flaky, retries=9, backoff=0.0)())
    cast.ack("flaky")
    try:
        await settle(cast.step("hopeless", hopeless)())
    except ValueError as error:
        await settle(run.state.set("refused", str(error)))
        cast.ack("refused")


async def write_in_the_open(cast: Cast, run: Any) -> None:
    """Run-level writes; the token is random and recorded, so that a lost one would show."""
    await settle(run.state.set("token", (await settle(run.uuid())).hex))
    cast.ack("token", run.state["token"])
    await settle(run.state.set("draft", LARGE))
    await settle(run.state.delete("draft"))
    await settle(run.messages.append({"role": "user", "content": "go on", "large": LARGE}))
    cast.ack("message", str(len(run.messages)))
    await settle(run.event("DECIDED", {"token": run.state["token"]}))
    await settle(run.usage(model="writer", input_tokens=1000, cost_usd=0.25))
    cast.ack("event")
    await settle(cast.agent.events.append("OPENED", {"token": LARGE}))
    assert (
        await settle(cast.agent.events.replay(lambda seen, _: seen + 1, 0, snapshot="count", version=1, every=2)) >= 2
    )
    await settle(cast.agent.state.set("trip", "where", "in the open" * 60))
    async with enter(cast.agent.state.transaction()) as both:
        await settle(both.set("trip", "left", run.state["token"]))
        await settle(both.set("trip", "right", run.state["token"]))
    await settle(cast.agent.state.delete("trip", "where"))
    for share in (1, 2, 3):
        await settle(run.checkpoint("share", {"done": list(range(share * 1000))}))
    await settle(cast.agent.checkpoint.create("spare", [LARGE, run.id]))
    assert await settle(cast.agent.checkpoint.delete("spare")) >= 1  # and those of earlier starts
    await settle(cast.agent.artifacts.save("spare", LARGE.encode()))
    assert await settle(cast.agent.artifacts.delete("spare")) >= 1
    await settle(cast.agent.memory.remember("The traveller likes trains", about="traveller", meta={"why": LARGE}))
    assert [memory.text for memory in await settle(cast.agent.memory.recall("who likes trains?", k=1))] == [
        "The traveller likes trains"
    ]
    await settle(cast.agent.memory.remember("Spare thoughts", source="spare", meta={"more": LARGE[::-1]}))
    assert (await settle(cast.agent.memory.forget(source="spare"))).count == 1
    cast.agent.memory.embedder = FunctionEmbedder(
        lambda texts: [[1.0, len(text)] for text in texts], id="lengths", dims=2
    )
    assert (await settle(cast.agent.memory.reembed())).embedder == "lengths"
    cast.agent.memory.embedder = False
    await settle(cast.agent.send_event(run.id, "go", {"token": run.state["token"]}))
    assert "token" in await settle(run.wait_event("go"))
    await settle(run.sleep(datetime.fromtimestamp(0, UTC)))  # over: how often it starts must not depend on time
    left, right = [await settle(cast.agent.state.get("trip", key)) for key in ("left", "right")]
    assert left == right == run.state["token"]


async def ad_hoc(cast: Cast, run: Any) -> None:
    """Functions that were never declared, with an id, a timeout, in threads or side by side."""

    def double(number: int) -> int:
        cast.world.note("body", f"double-{number}")
        return 2 * number

    async def soon(number: int) -> int:
        return double(number)

    async def note(text: str, *, key: str) -> str:
        return cast.world.act(text, key)

    assert await settle(run.step(double, 4, id="four", timeout=30)) == 8
    cast.ack("double-4")
    receipt = await settle(run.effect(cast.palette.paint(note), "noted", check=cast.palette.paint(cast.is_booked)))
    cast.ack("noted", receipt.replace(" ", "-"))
    if cast.palette.is_async:
        # Coroutines, which end in the order of their calls: in threads, the order of commits would be anybody's.
        side_by_side = [run.step(soon, number) for number in (5, 6)]
        assert [*await asyncio.gather(*side_by_side)] == [10, 12]
    else:
        with run.executor(max_workers=1) as pool:
            assert [pool.submit(run.step, double, n).result() for n in (5, 6)] == [10, 12]
    cast.ack("double-5")
    cast.ack("double-6")


async def act(cast: Cast, run: Any) -> None:
    """Effects: with and without check, repeated, refused, raising after the deed, in doubt, idempotent outside."""
    world = cast.world

    async def plain(name: str, *, key: str) -> str:
        # Lands with what the body returns; a check that adopts the deed knows nothing of it.
        run.state[f"inside {name}"] = name
        return world.act(name, key)

    async def reluctant(name: str, *, key: str) -> str:
        if cast.is_first_time(name):
            raise NotDone("not yet")
        return world.act(name, key)

    async def declined(name: str) -> None:
        raise NotDone("never")

    async def breaks(name: str, *, key: str) -> str:
        world.act(name, key)
        raise ConnectionError("the line broke after the deed")

    async def tolerant(name: str, *, key: str) -> str:
        return world.act_once(name, key)

    async def clueless(name: str, *, key: str) -> Any:
        return Unknown

    await settle(cast.effect("book", plain, check=cast.is_booked)("booked"))
    cast.ack("booked")
    await settle(cast.effect("post", plain)("posted"))
    cast.ack("posted")
    await settle(cast.effect("insist", reluctant, check=cast.is_booked, retries=9, backoff=0.0)("insisted"))
    cast.ack("insisted")
    try:
        await settle(cast.effect("decline", declined)("declined"))
    except NotDone:
        await settle(run.event("DECLINED"))
    await settle(cast.effect("charge", breaks, check=cast.is_booked)("charged"))
    cast.ack("charged")
    await settle(cast.effect("murk", breaks, check=clueless)("murky"))
    cast.ack("murky")
    await settle(cast.effect("repeat", tolerant, in_doubt="retry")("repeated"))
    cast.ack("repeated")
    # As if this process had slept past its deadline: the lease is confirmed before the body starts.
    cast.agent._engine.lease_keeper._deadline = 0
    await settle(cast.effect("late", plain, check=cast.is_booked).options(id="once")("late"))
    cast.ack("late")


async def loop(cast: Cast, run: Any) -> None:
    """Items with writes of their own, a step, an effect, and a loop inside the loop."""

    async def look(item: str) -> str:
        cast.world.note("body", f"look-{item}")
        await settle(run.state.incr("looked"))
        return item.upper()

    async def comment(item: str, *, key: str) -> str:
        return cast.world.act(f"comment-{item}", key)

    async def commented(item: str, *, key: str) -> Any:
        return await cast.is_booked(item, key=key)

    look_at, comment_on = cast.step("look", look), cast.effect("comment", comment, check=commented)
    async for item in Over(run.each([{"id": "a"}, {"id": "b"}], key="id")):
        run.state["seen"] = [*run.state.get("seen", []), item["id"]]
        await settle(look_at(item["id"]))
        await settle(comment_on(item["id"]))
        async for part in Over(run.each(["x", "y"], name="parts")):
            run.state[f"{item['id']}{part}"] = await settle(look_at(item["id"] + part))
            await settle(run.messages.append(f"{item['id']}{part}"))
            await settle(run.usage(model="reader", input_tokens=7, cost_usd=0.125))
            await settle(cast.agent.state.update("trip", "parts", lambda seen, name=part: [*(seen or []), name]))
            if part == "y":
                await settle(run.item_done())
                cast.ack(f"{item['id']}{part}")
    cast.ack("loop")


async def follow_a_plan(cast: Cast, run: Any) -> None:
    """A workflow: one step in the style of state, completed with a step around it, and the rest by `resume`."""

    async def announce(name: str, *, key: str) -> str:
        return cast.world.act(name, key)

    async def noted() -> None:
        await settle(flow.complete("look", result=LARGE))

    cast.effect("announce", announce, check=cast.is_booked)
    plan = [{"step": "look"}, {"step": "announce", "args": ["announced"]}]
    flow = await settle(cast.agent.workflows.create("voyage", plan))
    if (await settle(flow.step("look"))).status != "completed":
        await settle(flow.start("look"))
    await settle(cast.step("noted", noted)())
    assert (await settle(flow.resume(wait=0)))["look"] == LARGE
    cast.ack("announced")


async def converse(cast: Cast) -> None:
    """A thread, as a framework saves it: what was put and has returned is there, once."""
    engine, parent = cast.agent._engine, ""
    for number in range(2):
        wanted = NewThreadCheckpoint(
            *("talk", "", f"{number:08}", parent, {"v": 4}, {"step": number}),
            channels={"messages": [LARGE] * number},
            versions={"messages": number},
        )
        await settle(cast.palette.drive(write.put_checkpoint(engine, wanted)))
        written = [TaskWrite(0, "messages", [LARGE])]
        await settle(cast.palette.drive(write.write(engine, ("talk", "", wanted.id), "task", "", written)))
        parent = wanted.id
    assert await settle(cast.agent.threads.state("talk")) == {"messages": [LARGE]}
    assert [checkpoint.id for checkpoint in await settle(cast.agent.threads.history("talk"))] == [
        "00000001",
        "00000000",
    ]
    await settle(cast.agent.threads.prune("talk", keep_last=1))
    cast.ack("talk")


async def delete_a_conversation(cast: Cast) -> None:
    """A turn of a thread, and the end of all of it."""
    thread = cast.agent.thread("chat")
    async with enter(thread.turn(LARGE, id="request")) as turn:
        await settle(turn.reply("forget it"))
    await settle(thread.delete())
    assert thread.messages == []
    cast.ack("chat")


async def nest(cast: Cast, run: Any) -> None:
    """A run inside the run, with an effect that nobody can check."""

    async def deliver(name: str, *, key: str) -> str:
        return cast.world.act(name, key)

    async def pack(what: str) -> str:
        await settle(errand.usage(model="packer", input_tokens=len(what), cost_usd=0.125))
        return what

    packed = cast.step("pack", pack)
    with contextlib.suppress(ConnectionError):
        async with enter(cast.agent.run("errand", wait=0)) as errand:
            await settle(packed("box"))
            if not errand.finished:
                raise ConnectionError("no van today")
    async with enter(cast.agent.run("errand", wait=0, budget_usd=1)) as errand:
        await settle(packed("box"))  # remembered, and then a new one: what that saved is kept first
        await settle(packed("parcel"))
        await settle(errand.state.set("parcel", LARGE))
        errand.result = await settle(cast.effect("deliver", deliver)("delivered"))
    cast.ack("delivered")
    await settle(run.state.set("errand", errand.result))
    with contextlib.suppress(RunCancelled):
        async with enter(cast.agent.run("recall", wait=0)) as recall:
            try:
                await settle(cast.agent.runs.cancel("recall"))
                await settle(recall.step(str.upper, "under way"))
            finally:
                async with enter(recall.cleanup()):
                    await settle(recall.state.set("undone", True))


async def branch(cast: Cast) -> None:
    """A fork of that run, which knows what it shares and does the rest; it goes back once."""
    with contextlib.suppress(RunExists):
        await settle(cast.agent.runs.fork("errand", at="pack", to="detour"))
    async with enter(cast.agent.run("detour")) as detour:
        await settle(detour.step(str.upper, "back"))
        await settle(detour.state.set("looked", "back"))
        await settle(detour.undo())
        assert "looked" not in detour.state
        detour.result = await settle(detour.step(str.upper, "around"))
    cast.ack("detour")


class Litter(UnitOfWork[None]):
    """An object that nothing refers to, for the collector to find."""

    site = failpoints.Site.WRITE

    def __init__(self, cast: Cast) -> None:
        _, self._statements = objects.pack(cast.agent._engine.store, f"litter {LARGE}", "litter")

    def script(self) -> Script[None]:
        yield self._statements


async def collect(cast: Cast) -> None:
    """Collecting in the middle of the run takes the litter, and nothing that anybody needs."""
    store = cast.agent._engine.store
    commit = store.submit_async if cast.palette.is_async else store.submit
    await settle(commit(Litter(cast)))
    assert collecting.collect(store).bytes > 0
    store.shrink(whole=True)
    compact(cast)


def compact(cast: Cast) -> None:
    """What was written in the open in this life, and replaced since, goes into an archive."""
    engine = cast.agent._engine
    number = engine.own_stream().stream
    [(_, kind, name, _)] = engine.store.read("streams_page", (number - 1, 1))
    found = plan(engine.store, number, engine.store.clock.wall_ms() + 1, whole=False)
    assert found is not None
    assert found.gone > 0
    compaction.compact_stream(
        engine, compaction.CompactableStream(number, kind, name), found, f"{cast.world.folder}/archive"
    )


def move(cast: Cast) -> None:
    """Another agent of this store moves out of it, and in again under another name."""
    url, path = cast.agent._engine.url, Path(cast.world.folder) / "mover.perdure"
    leaves, arrives = Engine("mover", store=url), Engine("moved", store=url)
    leaves.ensure_agent()
    if not path.exists():
        export.export(leaves, str(path), export.ExportOptions(move=True))
    if not arrives.is_known():
        import_file.import_agent(arrives, str(path))


async def journey(cast: Cast) -> None:
    """The whole run, from the top, every time."""
    engine = cast.agent._engine
    async with enter(cast.agent.run("journey", input={"to": "NYC"}, wait=0)) as run:
        await read_and_think(cast, run)
        await write_in_the_open(cast, run)
        engine.lease_keeper.renew()
        await ad_hoc(cast, run)
        await act(cast, run)
        await loop(cast, run)
        await collect(cast)
        rebuild.rebuild(engine.store)
        if not engine.store.one_host:  # the copy of a file has no commit that could be killed
            engine.store.backup(f"{cast.world.folder}/backup-{os.urandom(4).hex()}.db")
        await follow_a_plan(cast, run)
        await nest(cast, run)
        await branch(cast)
        await converse(cast)
        await delete_a_conversation(cast)
        run.result = {"state": sorted(filter(is_certain, run.state)), "messages": len(run.messages), "large": LARGE}


async def answer_everything(cast: Cast) -> None:
    """What a person does who is asked: look at the world, and say what is there."""
    for waiting in await settle(cast.agent.runs.list(status="waiting")):
        info = await settle(cast.agent.runs.get(waiting.id))
        for effect in info.in_doubt:
            receipt = cast.world.receipt(effect.key)
            said: dict[str, Any] = {"retry": True} if receipt is None else {"done": receipt}
            await settle(cast.agent.runs.answer(waiting.id, key=effect.key, by="a person", **said))


async def queue(cast: Cast) -> None:
    """A run is left to workers; nobody has signed that when this process ends."""

    async def later(token: str) -> str:
        return token

    await settle(cast.agent.task(cast.palette.paint(later)).start("for workers", "token"))


async def survive(cast: Cast) -> None:
    """Open the run until it is finished, whatever it waits for."""
    for _ in range(STARTS_MAX):
        try:
            await journey(cast)
        except InDoubt:
            continue  # the run has failed; opened again, it asks
        except RunWaiting:
            await answer_everything(cast)
        else:
            await queue(cast)
            move(cast)
            return await report(cast)
    raise AssertionError("the run asks for ever")


def main(folder: str, colour: str) -> None:
    """The program. CRASH_COUNT lists each failpoint that is reached; CRASH_NTH gets a signal at the n-th of all."""
    reached: list[str] = []
    nth = int(os.environ.get("CRASH_NTH", "0"))
    number = signal.Signals[os.environ.get("CRASH_SIGNAL", "SIGKILL")]

    def note(site: failpoints.Site, moment: failpoints.CommitMoment) -> None:
        reached.append(f"{site}:{moment}")
        if len(reached) == nth:
            is_open = reached.count("run.claim:before") > reached.count("run.end:after")
            World(folder).note("signal", "in" if is_open else "out", reached[-1])
            os.kill(os.getpid(), number)

    if nth or "CRASH_COUNT" in os.environ:
        failpoints.arm(note)
    # A shell that starts the tests in the background makes its children ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cast = Cast(folder, colour)
    try:
        cast.palette.perform(survive(cast))
    except KeyboardInterrupt:
        sys.exit(130)
    if "CRASH_COUNT" in os.environ:
        (Path(folder) / "reached.txt").write_text("\n".join(reached))
