"""`perdure replay-check` and what a resume with the changed code really does: exit code 0 means nothing twice.

Each change is tried on a run that was left in the middle: first it is judged, then it is deployed, and the outside
world counts. Bodies say what they do to the world, and not what they are called: a payment to customer 1 is that
payment under every name and with every other argument.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, NamedTuple

import pytest

from perdure.errors import PerdureError
from perdure.kernel.engine import close_left
from perdure.run.rehearse.verdict import FAILS

from .kit import World
from .replay_programs import Shop, check

PROGRAM = """
import os
from perdure import {Agent}
from pathlib import Path

agent = {Agent}("shop", store=os.environ["REPLAYED"])

def happens(what):
    with Path(os.environ["WORLD"]).open("a") as file:
        file.write(what + "\\n")

@agent.step
{async}def think(of):
    happens(f"think {{of}}")
    return f"about {{of}}"

@agent.effect
{async}def book(room, beds=None):
    happens("book")
    return "AB12"

@agent.effect
{async}def pay(customer, note):
    happens(f"pay {{customer}}")
    return customer

@agent.effect
{async}def mail(text):
    happens(f"mail {{text}}")

@agent.effect
{async}def audit(what):
    happens(f"audit {{what}}")

#declare
{async}def main(run_id):
    {async}with agent.run(run_id) as run:
        #front
        topic = {await}think("topic")
        code = {await}book(topic)
        {async}with agent.run(run_id + "/audit"):
            {await}audit("the books")
        #middle
        {async}for n in run.each([1, 2, 3]):
            note = {await}think(n)
            {await}pay(n, note)
            if n == 2 and run_id.startswith("left") and os.environ.get("LEAVES"):
                raise ConnectionError("the power is out")
        #end
        {await}mail("the end")
        run.result = code
"""


class Change(NamedTuple):
    """A change of the program, and whether the deploy may go on."""

    code: int
    verdict: str
    edits: tuple[tuple[str, str], ...]
    options: tuple[str, ...] = ()
    finished: str = ""
    """The verdict of a run that has finished, if that is another one."""

    @property
    def finished_code(self) -> int:
        return int(self.finished in FAILS) if self.finished else self.code


def _wrapped(call: str, name: str = "wrapper") -> str:
    return f"{{async}}with agent.run(run_id + '/{name}'):\n            {call}"


NEW_STEP = "@agent.step\n{async}def weather(city):\n    happens('weather')\n    return 'sunny'\n"
SEEN = (
    ("#declare", NEW_STEP + "seen = []"),
    ("#front", "seen.append({await}weather('Oslo'))"),
)

HARMLESS = {
    "nothing": Change(0, "replays", ()),
    "a step in front": Change(0, "replays", (("#front", '{await}think("new")'),), finished="differs"),
    "a step in front whose result is passed on": Change(0, "replays", SEEN, finished="differs"),
    "a step in the middle": Change(0, "replays", (("#middle", '{await}think("new")'),), finished="differs"),
    "a step at the end": Change(0, "replays", (("#end", '{await}think("new")'),), finished="differs"),
    "a step in the loop": Change(
        0, "replays", (("note =", "{await}think(-n)\n            note ="),), finished="differs"
    ),
    "an effect in front": Change(0, "replays", (("#front", '{await}mail("soon")'),), finished="diverges"),
    "an effect of its own in front": Change(
        0,
        "replays",
        (("#declare", "@agent.effect\n{async}def call(who):\n    happens('call')\n"), ("#front", "{await}call('Ann')")),
        finished="differs",
    ),
    "a loop in front, with a name": Change(
        0, "replays", (("#front", "{async}for m in run.each([7], name='n'): {await}think(m)"),), finished="differs"
    ),
    "a child run in front": Change(0, "replays", (("#front", _wrapped("{await}think('new')")),), finished="differs"),
    "another order of calls": Change(
        0,
        "replays",
        (("        code = {await}book(topic)\n", ""), ("        #middle\n", "        code = {await}book(topic)\n")),
    ),
    "a recorded effect moved behind new work, run": Change(
        0,
        "replays",
        (("        code = {await}book(topic)\n", ""), ("        #end\n", "        code = {await}book(topic)\n")),
        ("--run-steps",),
    ),
    "another order of items": Change(0, "replays", (("[1, 2, 3]", "[3, 2, 1]"),), ("--run-steps",)),
    "an item more": Change(0, "replays", (("[1, 2, 3]", "[1, 2, 3, 4]"),), ("--run-steps",), finished="differs"),
    "a name for the loop, with was": Change(0, "replays", (("[1, 2, 3])", "[1, 2, 3], name='all', was=1)"),)),
    "an effect renamed, with was": Change(
        0, "replays", (("@agent.effect\n{async}def book", "@agent.effect(was='book', name='hold')\n{async}def book"),)
    ),
    "a step renamed, with was": Change(
        0, "replays", (("@agent.step\n{async}def think", "@agent.step(was='think', name='muse')\n{async}def think"),)
    ),
    "a parameter more, with a default": Change(0, "replays", (("of):", "of, much=False):"),)),
    "a new step that is used, run": Change(
        0,
        "replays",
        (("#declare", NEW_STEP), ("#front", "if {await}weather('Oslo') == 'rain': return")),
        ("--run-steps",),
        finished="differs",
    ),
    "the version of a step, allowed": Change(
        0,
        "differs",
        (
            ("@agent.step\n", "@agent.step(version=2)\n"),
            ("book(topic)", "book('about topic')"),
            ("pay(n, note)", "pay(n, f'about {{n}}')"),
        ),
        ("--allow-steps",),
    ),
    "an effect removed, on purpose": Change(
        0, "differs", (("code = {await}book(topic)", "code = 'AB12'"),), ("--removed", "book", "--run-steps")
    ),
}

HARMFUL = {
    "a recorded effect moved behind new work": Change(
        1,
        "unknown",
        (("        code = {await}book(topic)\n", ""), ("        #end\n", "        code = {await}book(topic)\n")),
        finished="replays",
    ),
    "the loop gets a name": Change(1, "repeats", (("[1, 2, 3])", "[1, 2, 3], name='all')"),)),
    "the items get a key": Change(1, "repeats", (("[1, 2, 3])", "[1, 2, 3], key=str)"),)),
    "a loop in front, without a name": Change(
        1, "repeats", (("#front", "{async}for m in run.each(['x']): {await}think(m)"),)
    ),
    "a loop in front over the same items, without a name": Change(
        1, "repeats", (("#front", "{async}for m in run.each([1, 2, 3]): {await}think(-m)"),)
    ),
    "another argument of an effect": Change(1, "diverges", (("book(topic)", "book('a room')"),)),
    "another argument of an effect in the loop": Change(1, "diverges", (("pay(n, note)", "pay(n, 'thanks')"),)),
    "another argument, which is declared to be fine": Change(
        1, "repeats", (("book(topic)", "book.options(on_change='rerun')('a room')"),)
    ),
    "another argument of a step": Change(1, "reruns", (('think("topic")', 'think("topics")'),)),
    "a step renamed": Change(1, "reruns", (("@agent.step\n", "@agent.step(name='muse')\n"),)),
    "a new version of a step": Change(1, "reruns", (("@agent.step\n", "@agent.step(version=2)\n"),)),
    "an effect renamed": Change(
        1, "diverges", (("@agent.effect\n{async}def book", "@agent.effect(name='hold')\n{async}def book"),)
    ),
    "an effect renamed, and called otherwise": Change(
        1,
        "unknown",
        (
            ("@agent.effect\n{async}def book", "@agent.effect(name='hold')\n{async}def book"),
            ("book(topic)", "book('a room')"),
        ),
    ),
    "an effect gets an id": Change(1, "diverges", (("book(topic)", "book.options(id='leg-1')(topic)"),)),
    "an effect removed": Change(1, "unknown", (("code = {await}book(topic)", "code = 'AB12'"),), finished="repeats"),
    "an effect removed, with its steps run": Change(
        1, "repeats", (("code = {await}book(topic)", "code = 'AB12'"),), ("--run-steps",)
    ),
    "an effect said to be removed, before that is known": Change(
        1, "unknown", (("code = {await}book(topic)", "code = 'AB12'"),), ("--removed", "book"), finished="differs"
    ),
    "another order of items, which is not known": Change(
        1, "unknown", (("[1, 2, 3]", "[3, 2, 1]"),), finished="replays"
    ),
    "an item less": Change(1, "unknown", (("[1, 2, 3]", "[2, 3]"),), finished="repeats"),
    "an effect wrapped in a child run": Change(
        1, "repeats", (("code = {await}book(topic)", _wrapped("code = {await}book(topic)")),)
    ),
    "a child run renamed": Change(1, "repeats", (('"/audit"', '"/revision"'),)),
    "a child run removed": Change(
        1,
        "unknown",
        (('{async}with agent.run(run_id + "/audit"):\n            {await}audit("the books")', ""),),
        finished="repeats",
    ),
    "an effect moved into the loop": Change(
        1,
        "repeats",
        (("code = {await}book(topic)", "code = 'AB12'"), ("note =", "{await}book(topic)\n            note =")),
    ),
    "a new step whose result is used": Change(
        1, "unknown", (("#declare", NEW_STEP), ("#front", "if {await}weather('Oslo') == 'rain': return"))
    ),
    "a new step whose result is compared by is": Change(
        1, "unknown", (("#declare", NEW_STEP), ("#front", "if ({await}weather('Oslo')) is None: return"))
    ),
    "the version of a step, allowed, whose result is used": Change(
        1, "unknown", (("@agent.step\n", "@agent.step(version=2)\n"),), ("--allow-steps",)
    ),
    "an effect removed and begun elsewhere": Change(
        1,
        "repeats",
        (("code = {await}book(topic)", "code = 'AB12'"), ("#end", _wrapped("{await}book(topic)"))),
        ("--removed", "book", "--run-steps"),
    ),
}

CHANGES = {**HARMLESS, **HARMFUL}


def version(face: str, edits: tuple[tuple[str, str], ...] = ()) -> str:
    """The text of a program."""
    program = PROGRAM
    for old, new in edits:
        assert old in program, old
        program = program.replace(old, new)
    words = {"Agent": "Agent", "async": "", "await": ""}
    if face == "async":
        words = {"Agent": "AsyncAgent", "async": "async ", "await": "await "}
    return program.format(**words)


def start(module: Any, run_id: str) -> None:
    result = module.main(run_id)
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))


async def _awaited(result: Any) -> Any:
    return await result


def record(shop: Shop, face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each change a run that was left in the second item, and one that has finished for all."""
    first = shop.module(shop.write_version(version(face)))
    start(first, "done")
    with monkeypatch.context() as patched:
        patched.setenv("LEAVES", "1")
        for number in range(len(CHANGES)):
            with pytest.raises(ConnectionError):
                start(first, f"left-{number}")
    close_left(shop.url)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_exit_code_0_means_that_nothing_is_done_twice(
    shop: Shop, world: World, face: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(shop, face, monkeypatch)
    wrong = {}
    for number, (name, change) in enumerate(CHANGES.items()):
        module, run_id = shop.write_version(version(face, change.edits)), f"left-{number}"
        tables = shop.tables()
        code, report = check(capsys, f"{module}:main", "--run", run_id, *change.options)
        close_left(shop.url)
        assert shop.tables() == tables, f"{name}: something was written"
        verdicts = [run["verdict"] for run in report["runs"] if run["id"] == run_id]
        happened = deploy(shop, module, run_id, world)
        again = [
            what for what in happened if what in DONE and not ("--allow-steps" in change.options and "think" in what)
        ]
        if (code, verdicts) != (change.code, [change.verdict]) or (code == 0 and again):
            wrong[name] = code, verdicts, again, report
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())


DONE = ("think topic", "book", "audit the books", "think 1", "pay 1", "think 2", "pay 2")
"""What was done before the run was left."""


def deploy(shop: Shop, module: str, run_id: str, world: World) -> list[str]:
    """Resume the run with the changed program; returns what happened. A refusal is fine."""
    before = len(world.read_all())
    with contextlib.suppress(PerdureError):
        start(shop.module(module), run_id)
    close_left(shop.url)
    return world.read_all()[before:]


@pytest.mark.parametrize("face", ["sync", "async"])
def test_finished_runs_are_judged_as_if_they_could_have_stopped_anywhere(
    shop: Shop, face: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start(shop.module(shop.write_version(version(face))), "done")
    close_left(shop.url)
    wrong = {}
    for name, change in CHANGES.items():
        module = shop.write_version(version(face, change.edits))
        code, report = check(capsys, f"{module}:main", "--run", "done", *change.options)
        close_left(shop.url)
        verdicts = [run["verdict"] for run in report["runs"] if run["id"] == "done"]
        if (code, verdicts) != (change.finished_code, [change.finished or change.verdict]):
            wrong[name] = code, verdicts, report
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())
