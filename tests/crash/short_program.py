"""A short run for faults below Python: few system calls, and a report of every error that reached the program."""

from __future__ import annotations

import sys
from typing import Any

from perdure import Done, NotDone, PerdureError
from tests.crash.colours import Over, enter, settle
from tests.crash.outcome import report
from tests.crash.victim import LARGE, Cast

RUNS = ("journey", "errand")


async def short(cast: Cast) -> None:
    """A step, an effect, a loop of two items and a child run, with large values: some twelve commits."""

    async def search(city: str) -> str:
        cast.world.note("body", "search")
        run.state["city"] = city
        return LARGE

    async def book(name: str, *, key: str) -> str:
        return cast.world.act(name, key)

    async def booked(name: str, *, key: str) -> Any:
        receipt = cast.world.receipt(key)
        return NotDone if receipt is None else Done(receipt)

    async with enter(cast.agent.run("journey", input={"to": "NYC"})) as run:
        await settle(cast.step("search", search)("NYC"))
        cast.ack("search")
        await settle(run.state.set("token", (await settle(run.uuid())).hex))
        cast.ack("token", run.state["token"])
        receipt = await settle(cast.effect("book", book, check=booked)("booked"))
        cast.ack("booked", receipt.replace(" ", "-"))
        async for item in Over(run.each(["a", "b"])):
            await settle(run.messages.append(item))
        async with enter(cast.agent.run("errand")) as errand:
            errand.result = LARGE
        cast.ack("errand")
        run.result = [*run.messages]


async def probe(cast: Cast) -> None:
    """After an error: does this process still write, and can it still read what it has?"""
    try:
        await settle(cast.agent.runs.list())
        cast.world.note("reads", "work")
    except PerdureError as error:
        cast.world.note("reads", type(error).__name__)
    try:
        async with enter(cast.agent.run("probe")) as run:
            run.result = 1
        cast.world.note("writes", "work")
    except PerdureError as error:
        cast.world.note("writes", type(error).__name__)


async def tell(cast: Cast) -> None:
    try:
        await short(cast)
        await report(cast)
    except PerdureError as error:
        cast.world.note("error", type(error).__name__)
        await probe(cast)
        sys.exit(3)


def main(folder: str, colour: str = "sync") -> None:
    cast = Cast(folder, colour)
    cast.palette.perform(tell(cast))
