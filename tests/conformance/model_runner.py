"""Plays the stories of tests/model on a real store: one process per attempt, killed for real, sync and async.

The interpreter is written once, as coroutines. Under `Agent` nothing in it ever suspends, so that one `send`
plays it to the end; under `AsyncAgent` it is an ordinary task. What the code of the run sees goes to a file,
line by line, because a process that is killed cannot report.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from perdure import Agent, AsyncAgent, Done, NotDone, Unknown
from perdure.platform import failpoints
from perdure.platform.failpoints import CommitMoment, Site

from ..model.ops import (
    CAUGHT,
    AppendMessage,
    Break,
    Catch,
    CodeError,
    Delete,
    Each,
    Effect,
    EffectError,
    Emit,
    Incr,
    ItemDone,
    Op,
    SetResult,
    SetState,
    Start,
    Step,
    StepError,
    Stop,
    WriteOp,
)

Colour = Literal["sync", "async"]

BODY_SECONDS_MAX = 60.0
"""For an effect with a timeout, which is never meant to pass here."""


def play(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine that never suspends, as a plain call."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it suspended, where there is no event loop")


async def settle(value: Any) -> Any:
    """What `Agent` returns and what `AsyncAgent` must be asked to wait for, alike."""
    return await value if inspect.isawaitable(value) else value


class Entered:
    """`with`, for `async with`."""

    def __init__(self, run: Any) -> None:
        self._run = run

    async def __aenter__(self) -> Any:
        return self._run.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self._run.__exit__(*error)


class Iterated:
    """`for`, for `async for`; no generator, because `break` must drop the real iterator at once."""

    def __init__(self, items: Any) -> None:
        self._items = iter(items)

    def __aiter__(self) -> Iterated:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None


class Lines:
    """A file that only grows, of JSON, which no kill can undo."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: Any) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def read_all(self) -> list[Any]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []


class Player:
    """One attempt, inside its process."""

    def __init__(self, colour: Colour, url: str, run_id: str, stop: Stop | None, world: Lines, trace: Lines) -> None:
        self._async = colour == "async"
        make = AsyncAgent if self._async else Agent
        self._agent: Any = make("a", store=url, durability="process")
        self._id = run_id
        self._stop = stop
        self._world = world
        self._trace = trace
        self._hits: Counter[str] = Counter()
        self._run: Any = None

    def go(self, start: Start) -> None:
        """Play the whole attempt."""
        failpoints.arm(self._commit_point(start))
        if self._async:
            asyncio.run(self._attempt(start))
        else:
            play(self._attempt(start))

    async def _attempt(self, start: Start) -> None:
        try:
            opened = self._agent.run(self._id, input=start.input, wait=0)
            async with opened if self._async else Entered(opened) as run:
                self._run = run
                await self._ops(start.program, "")
        except BaseException as error:  # however the block was left is what the story tells
            name = name_error(error)
            ending = {"KeyboardInterrupt": "interrupted", "RunWaiting": "waiting"}.get(name, "failed")
            ended = "refused" if self._run is None else ending
            self._trace.add({"ending": ended, "error": name, "why": traceback.format_exc()})
        else:
            self._trace.add({"ending": "finished", "error": None})

    # What befalls it.

    def _commit_point(self, start: Start) -> Callable[[Site, CommitMoment], None]:
        """The model knows before and after; a crash inside of the transaction must do as one before it does."""
        inside = (CommitMoment.BEFORE, CommitMoment.BEGUN, CommitMoment.WRITTEN)[len(repr(start)) % 3]

        def hook(site: Site, moment: CommitMoment) -> None:
            if moment in (inside, CommitMoment.AFTER):
                self._reach(f"{site}:{'after' if moment == CommitMoment.AFTER else 'before'}")

        return hook

    def _reach(self, point: str) -> str | None:
        """The kind of the stop that is due here; a crash happens at once."""
        self._hits[point] += 1
        if self._stop is None or self._stop.at != point or self._hits[point] != self._stop.nth:
            return None
        if self._stop.kind == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        return self._stop.kind

    async def _point(self, point: str) -> None:
        match self._reach(point):
            case "raise":
                raise CodeError
            case "interrupt" if self._async:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # which is what Ctrl-C and SIGTERM do to a task
                await asyncio.sleep(0)
            case "interrupt":
                raise KeyboardInterrupt

    # Operations.

    def _see(self, path: str, what: str, value: Any) -> None:
        run = self._run
        state = sorted([key, value] for key, value in dict(run.state).items())
        self._trace.add([path, what, value, state, list(run.messages), run.result])

    async def _ops(self, ops: tuple[Op | Break, ...], prefix: str) -> bool:
        """True when the loop was left by `break`."""
        for number, op in enumerate(ops):
            if isinstance(op, Break):
                return True
            await self._op(op, f"{prefix}{number}")
        return False

    async def _op(self, op: Op, path: str) -> None:
        await self._point("before")
        try:
            value = await self._do(op, path)
        except BaseException as error:
            self._see(path, "raised", name_error(error))
            raise
        self._see(path, "returned", value)
        await self._point("after")

    async def _do(self, op: Op, path: str) -> Any:
        match op:
            case Step() | Effect():
                return await settle(self._durable(op)(op.arg))
            case Each():
                await self._play_each(op, path)
            case ItemDone():
                await settle(self._run.item_done())
            case Catch():
                return await self._catch(op, path)
            case _:
                await self._write(op)
        return None

    async def _play_each(self, op: Each, path: str) -> None:
        told = [item[op.key] if op.key is not None and isinstance(item, tuple) else item for item in op.items]
        labels = [f"{key}#{told[:at].count(key)}" if key in told[:at] else f"{key}" for at, key in enumerate(told)]
        # Numbered, so that the body knows which of two equal items it has; the run tells them apart by their keys.
        numbered = list(enumerate(told))
        plain = op.key is None and len(set(told)) == len(told)
        items, key = (told, None) if plain else (numbered, itemgetter(1))
        loop = self._run.each(items, key=key, name=op.name or "")
        async for item in loop if self._async else Iterated(loop):
            label = f"{path}[{labels[told.index(item) if plain else item[0]]}]"
            self._see(label, "entered", None)
            if await self._ops(op.body, f"{label}/"):
                break
            await self._point("item-body-done")

    async def _catch(self, op: Catch, path: str) -> str:
        try:
            await self._op(op.op, f"{path}/0")
        except CAUGHT as error:
            if op.then is not None:
                await self._op(op.then, f"{path}/1")
            if op.again:
                raise
            return f"caught {name_error(error)}"
        return "passed"

    async def _write(self, op: WriteOp | Op) -> None:
        run = self._run
        match op:
            case SetState(key, value):
                await settle(run.state.set(key, value))
            case Incr(key):
                await settle(run.state.set(key, run.state.get(key, 0) + 1))
            case Delete(key):
                if key in run.state:
                    await settle(run.state.delete(key))
            case AppendMessage(text):
                await settle(run.messages.append(text))
            case Emit(kind):
                await settle(run.event(kind, None))
            case SetResult(value):
                run.result = value

    # Bodies.

    def _durable(self, op: Step | Effect) -> Any:
        if isinstance(op, Step):
            made = self._agent.step(name=op.name, retries=op.retries, backoff=0.0)(self._step_body(op))
        else:
            made = self._agent.effect(
                name=op.name,
                check=self._check(op) if op.check is not None else None,
                in_doubt=op.in_doubt,
                retries=op.retries,
                backoff=0.0,
                timeout=BODY_SECONDS_MAX if op.timeout is not None else None,
                on_change=op.on_change,
            )(self._effect_body(op))
        return made.options(id=op.id) if op.id is not None else made

    def _runs_in_thread(self, op: Step | Effect) -> bool:
        """Half of the bodies under asyncio are plain functions, which run in threads; those cannot be cancelled."""
        interrupted = self._stop is not None and self._stop.kind == "interrupt"
        return op.arg == 1 and not interrupted and not (isinstance(op, Step) and op.inside)

    def _step_body(self, op: Step) -> Callable[..., Any]:
        async def body(arg: Any) -> str:
            try:
                return await self._execute(op)
            finally:
                await self._point("step-body-done")

        def plain(arg: Any) -> Any:
            return play(body(arg))

        return body if self._async and not self._runs_in_thread(op) else plain

    async def _execute(self, op: Step) -> str:
        nth = self._count(op)
        for inner in op.inside:
            if isinstance(inner, Step):
                await settle(self._inner(inner)(inner.arg))
            else:
                await settle(self._durable(inner)(inner.arg))
        for write in op.writes:
            await self._write(write)
        if nth <= op.fails:
            raise StepError
        return f"{op.name}({op.arg})#{nth}"

    def _inner(self, op: Step) -> Any:
        """A step inside a step: a plain call, at whose end nothing befalls anybody."""

        async def body(arg: Any) -> str:
            return await self._execute(op)

        def plain(arg: Any) -> Any:
            return play(body(arg))

        return self._agent.step(name=op.name, retries=op.retries)(body if self._async else plain)

    def _effect_body(self, op: Effect) -> Callable[..., Any]:
        async def body(arg: Any, *, key: str) -> str:
            try:
                return await self._happen(op, key)
            finally:
                await self._point("effect-body-done")

        def plain(arg: Any, *, key: str) -> Any:
            return play(body(arg, key=key))

        return body if self._async and not self._runs_in_thread(op) else plain

    async def _happen(self, op: Effect, key: str) -> str:
        nth = self._count(op)
        for write in op.writes:
            await self._write(write)
        result = f"{op.name}({op.arg})#{nth}"
        outcome = op.outcomes[min(nth, len(op.outcomes)) - 1]
        if outcome in ("ok", "raises_after_doing"):
            self._world.add(["did", op.name, op.arg, key, result])
        if outcome == "ok":
            return result
        raise NotDone if outcome == "raises_not_done" else EffectError

    def _check(self, op: Effect) -> Callable[..., Any]:
        def plain(arg: Any, *, key: str) -> Any:
            if op.check == "truth":
                results = [line[4] for line in self._world.read_all() if line[0] == "did" and line[3] == key]
                return Done(results[-1]) if results else NotDone
            if op.check == "raises":
                raise ValueError
            return {"done": Done("adopted"), "not_done": NotDone, "unknown": Unknown}[str(op.check)]

        async def check(arg: Any, *, key: str) -> Any:
            return plain(arg, key=key)

        return check if self._async and not self._runs_in_thread(op) else plain

    def _count(self, op: Step | Effect) -> int:
        self._world.add(["ran", op.name, op.arg])
        return self._world.read_all().count(["ran", op.name, op.arg])


def name_error(error: BaseException) -> str:
    """A cancelled task is an interrupted one."""
    return "KeyboardInterrupt" if isinstance(error, asyncio.CancelledError) else type(error).__name__
