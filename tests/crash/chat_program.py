"""A chat program that gets killed: messages that wait, a turn that is given up, a fork, and a deleted conversation.

Requests have ids, as those of a web server have. Started again, it sends all of them again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from perdure import RunWaiting
from perdure.errors import NothingToAnswer, RunCancelled, ThreadNotFound, VersionConflict
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.platform import failpoints
from tests.crash.colours import enter, settle
from tests.crash.victim import LARGE, Cast

SECRET = "the third oak tree"


class Left(BaseException):
    """The process leaves a turn, as it does at Ctrl-C: the turn has not ended."""


class Talk:
    """The program: a model that is paid once per message, and an effect that must happen once."""

    def __init__(self, cast: Cast) -> None:
        self.cast, self.agent = cast, cast.agent
        self.ask = cast.step("ask", self._ask)
        self.pay = cast.effect("pay", self._pay, check=cast.is_booked)
        self.chat = cast.agent.turn(cast.palette.paint(self._chat))

    async def _ask(self, request: str) -> str:
        self.cast.world.note("body", request)
        return f"re: {request} {LARGE if request == 'talk-1' else ''}"

    async def _pay(self, name: str, *, key: str) -> str:
        return self.cast.world.act(name, key)

    async def _chat(self, turn: Any) -> None:
        name = turn.id.replace("#", "-")
        if turn.id == "talk#1":
            await settle(turn.ask("Which city?"))
        await settle(turn.thread.state.set(name, turn.number))
        answer = await settle(self.ask(name))
        await settle(self.pay(f"paid-{name}"))
        await settle(turn.reply(answer[:40]))
        self.cast.ack(name)

    async def queue(self) -> None:
        """Two messages wait for a turn that waits for a person; then all of them are done, in their order."""
        for number in ("one", "two", "three"):
            with suppress(RunWaiting):
                await settle(self.chat("talk", number, id=number))
        with suppress(NothingToAnswer):
            await settle(self.agent.runs.answer("talk#1", "Rome"))
        await settle(self.chat("talk", "four", id="four"))

    async def give_up(self) -> None:
        """A turn is left, and the next message does not wait for it. Later all of that is deleted."""
        thread = self.agent.thread("left")
        with suppress(Left, RunCancelled):
            async with enter(thread.turn(SECRET, id="left")) as turn:
                await settle(turn.messages.append({"role": "assistant", "content": SECRET}))
                raise Left
        async with enter(thread.turn("next", id="next", on_unfinished="abandon")) as turn:
            await settle(turn.reply("done"))
        assert [one["content"] for one in thread.messages] == [SECRET, "next", "done"]

    async def fork(self) -> None:
        """The conversation goes on differently after its second turn."""
        with suppress(VersionConflict):  # it is there from an earlier start
            await settle(self.agent.thread("talk").fork(at=2, to="fork"))
        await settle(self.chat("fork", "instead", id="instead"))

    async def delete(self) -> None:
        with suppress(ThreadNotFound):
            await settle(self.agent.thread("left").delete())

    async def all(self) -> None:
        await self.queue()
        if not await settle(self.agent.state.get("talk", "deleted")):
            await self.give_up()
            await settle(self.agent.state.set("talk", "deleted", True))
        await self.delete()
        await self.fork()
        await self.report()

    async def report(self) -> None:
        """Leave what is there for the harness to compare."""
        found: dict[str, Any] = {}
        for name in ("talk", "fork", "left"):
            thread = self.agent.thread(name)
            turns = await settle(thread.turns())
            found[name] = [[one.run.partition("#")[0], one.status, one.input, one.result] for one in turns]
            found[f"{name} messages"] = [one["content"] for one in thread.messages]
            found[f"{name} state"] = dict(thread.state)
            found[f"{name} pending"] = [one.input for one in thread.pending]
        store = self.agent._engine.store
        found["threads"] = [one.id for one in await settle(self.agent.threads.list())]
        bodies = [row[3] for stream, *_ in store.read("all_streams") for row in store.read("journal_of", (stream, 0))]
        found["secrets"] = sum(SECRET.encode() in (body or b"") for body in bodies)
        found["views that differ from the journal"] = [str(one) for one in rebuild.check(store)]
        found["damage"] = [str(one) for one in verify(store).findings if one.severity == "damage"]
        folder = Path(self.cast.world.folder)
        (folder / "outcome.new").write_text(json.dumps(found, default=str))
        (folder / "outcome.new").rename(folder / "outcome.json")
        await settle(self.agent.close())


def main(folder: str, colour: str) -> None:
    """The program. CRASH_COUNT lists each failpoint that is reached."""
    reached: list[str] = []
    if "CRASH_COUNT" in os.environ:
        failpoints.arm(lambda site, moment: reached.append(f"{site}:{moment}"))
    talk = Talk(Cast(folder, colour))
    talk.cast.palette.perform(talk.all())
    if "CRASH_COUNT" in os.environ:
        (Path(folder) / "reached.txt").write_text("\n".join(reached))
