"""Programs that people write first or copy from articles on agent persistence, killed half-way, on both stores.

Each file of `first_programs/` is written as its author would write it: classes, plain loops, no thought of crashes.
Only the import and the obvious call are those of Perdure. Its docstring says what it promises; here that is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.platform.failpoints import CommitMoment, Site

from .programs import Program

PROGRAMS = Path(__file__).parent / "first_programs"
AFTER, BEFORE, BEGUN, WRITTEN = CommitMoment.AFTER, CommitMoment.BEFORE, CommitMoment.BEGUN, CommitMoment.WRITTEN


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def page_counter(program: Program) -> None:
    program.killed_at(Site.STATE, AFTER, 60)  # two writes per page
    program.killed_at(Site.STATE, BEGUN)
    assert program.output == ["Resuming from page 31"]
    program.killed_at(Site.STATE, AFTER)  # between the two writes of page 31: it is read again, and is there once
    assert program.survive(seed=1, most=60)[-1] == "Done: 50 findings, the last is 'finding on page 50'"
    program.at_most_again("fetched.txt", numbers(1, 50))


def workflow_steps(program: Program) -> None:
    program.killed_at(Site.WORKFLOW, AFTER, 3)  # created, two steps completed
    program.killed_at(Site.WORKFLOW, BEFORE)
    assert program.output == ["Step 4: write (pending)"]
    assert program.survive(seed=2, most=6)[-1] == "100% done, send ok"
    program.at_most_again("executed.txt", ["clean", "analyze", "write", "send"])


def checkpoint_manager(program: Program) -> None:
    program.killed_at(Site.CHECKPOINT, AFTER, 3)
    program.killed_at(Site.CHECKPOINT, WRITTEN)
    assert program.output == ["30% done, next: read 16"]
    assert program.survive(seed=3, most=12)[-1] == "Done: 50 documents, the last is 50"
    assert set(program.outside("analyzed.txt")) == set(numbers(1, 50))
    assert len(program.outside("analyzed.txt")) <= 50 + 5 * program.kills, "five documents lie between two checkpoints"


def event_logger(program: Program) -> None:
    program.killed_at(Site.EVENT, AFTER, 7)
    program.killed_at(Site.EVENT, WRITTEN)
    assert program.output == ["Replayed 7 orders"]
    assert program.survive(seed=4, most=20)[-1] == "cash 620, {'XYZ': 20, 'ABC': 20}"


def memory_manager(program: Program) -> None:
    program.killed_at(Site.MEMORY, AFTER, 4)
    program.killed_at(Site.MEMORY, WRITTEN, 6)
    assert program.output == ["4 memories"]
    shown = program.survive(seed=5, most=20)
    assert shown[1:] == ["Alice is allergic to peanuts", "Invoices above 5000 euros need two signatures", "8 memories"]


def agent_core(program: Program) -> None:
    program.killed_at(Site.CHECKPOINT, AFTER, 8)
    program.killed_at(Site.CHECKPOINT, WRITTEN, 2)
    assert program.output == ["loaded at turn 8"]
    last = program.survive(seed=6, most=20)[-1]
    assert last.startswith("20 turns, {'search': 14, 'write': 6}, ['turn 16', 'turn 17',")
    program.at_most_again("turns.txt", numbers(1, 20))


def four_memories(program: Program) -> None:
    program.killed_at(Site.ITEM_DONE, AFTER, 3)
    program.killed_at(Site.ITEM_DONE, WRITTEN, 2)
    assert program.outside("turns.txt") == [
        "Hello, I am Dana", "I live in Lisbon", "I prefer trains to planes", "Book a trip to Porto",
        "My budget is 300 euros",
    ]  # fmt: skip
    shown = program.survive(seed=7, most=20)
    assert shown[0].endswith("'I am vegetarian', 'Goodbye'] {'book': 2}")
    assert shown[1:] == ["episodic 8", "semantic 4", "procedural 2", "I live in Lisbon"]


def before_after(program: Program) -> None:
    program.killed_at(Site.CHECKPOINT, BEFORE, 4)  # the hotel is booked, and nobody has noted it
    program.killed_at(Site.CHECKPOINT, AFTER, 2)  # about to book the car
    assert program.output == ["flight: done before", "hotel: recovered"]
    assert program.survive(seed=8, most=12)[-1].startswith("museum: ")
    bookings = [line.split()[1] for line in program.outside("bookings.txt")]
    assert bookings == ["flight", "hotel", "car", "dinner", "museum"]


def two_agents(program: Program) -> None:
    program.arguments = ("init",)
    program.killed_at(Site.WORKFLOW, AFTER)
    program.finish()
    program.arguments = ("code",)
    assert program.finish() == ["Next: login, 0% done"]
    program.killed_at(Site.STEP_DONE, AFTER)
    program.killed_at(Site.WORKFLOW, BEFORE)
    assert program.finish() == ["Next: search, 25% done"]
    assert program.finish() == ["Next: cart, 50% done"]
    assert program.finish() == ["Next: checkout, 75% done"]
    assert program.finish() == ["All features are done."]
    program.once_each("code.txt", ["login", "search", "cart", "checkout"])
    assert "Do one feature per session" in (program.folder / "project/AGENTS.md").read_text()


def hybrid_memory(program: Program) -> None:
    program.killed_at(Site.STATE, AFTER, 9 * 3)  # three writes per message
    program.killed_at(Site.STATE, BEGUN)
    assert program.output == ["continue at message 10"]
    program.killed_at(Site.MEMORY, AFTER)  # between two writes: the message under way is added again, none is lost
    shown = program.survive(seed=11, most=40)
    assert shown[1:] == ["['last message = 16'] 6", "user: message 1: my cat is called Miso"]


def history_compaction(program: Program) -> None:
    program.killed_at(Site.STEP_DONE, AFTER)  # the first summary is paid for
    program.killed_at(Site.WRITE, AFTER, 12)
    shown = program.survive(seed=9, most=40)
    assert shown == ["8 shown, 40 kept", "answer 20"]
    paid = program.outside("summaries.txt")
    assert set(paid) == {"9"} and 4 <= len(paid) <= 4 + program.kills - 2, "two kills came after a summary was kept"


def soul_workspace(program: Program) -> None:
    program.arguments = ("1",)
    program.finish()
    program.arguments = ("2",)
    program.killed_at(Site.STATE, BEFORE)
    program.killed_at(Site.STATE, AFTER)  # logged, and killed before it could learn
    program.arguments = ("3",)
    assert program.finish() == ["True True", "done today: 2"]
    program.arguments = ("4",)
    assert program.finish() == ["True True", "done today: 3"]
    [log] = (program.folder / "home/memory").glob("2*.md")
    assert re.findall(r"finished task (\d)", log.read_text()) == ["1", "2", "3", "4"]
    assert re.findall(r"Task (\d)", (program.folder / "home/MEMORY.md").read_text()) == ["1", "3", "4"]


def handoff(program: Program) -> None:
    program.arguments = ("researcher",)
    program.killed_at(Site.STEP_DONE, AFTER)
    program.killed_at(Site.STEP_DONE, AFTER)
    program.arguments = ("writer",)
    program.killed_at(Site.STEP_DONE, BEFORE)
    assert program.finish() == ["goal", "reason", "next", "the report"]
    program.at_most_again("work.txt", ["collect sources", "check sources", "write the draft"])
    assert program.outside("work.txt").count("collect sources") == 1


def move_server(program: Program) -> None:
    program.arguments = ("work",)
    program.killed_at(Site.ITEM_DONE, AFTER, 12)
    program.arguments = ("leave",)
    program.finish()
    program.arguments = ("work",)
    assert program.fails_with("AgentMoved")
    program.arguments = ("arrive",)
    program.killed_at(Site.ITEM_DONE, WRITTEN, 3)
    assert program.survive(seed=10, most=20) == ["20 20"]
    program.at_most_again("pages.txt", numbers(1, 20))


PROMISES: dict[str, Callable[[Program], None]] = {
    check.__name__: check
    for check in (
        page_counter, workflow_steps, checkpoint_manager, event_logger, memory_manager, agent_core, four_memories,
        before_after, two_agents, hybrid_memory, history_compaction, soul_workspace, handoff, move_server,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_a_first_program_does_what_its_author_promises(name: str, store_url: str, tmp_path: Path) -> None:
    program = Program(PROGRAMS / f"{name}.py", tmp_path, store_url, PERDURE_EMBEDDER="table")
    PROMISES[name](program)
    assert program.kills >= 2, "it was hardly tried"
    program.finish()


def test_every_first_program_has_its_check() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(PROMISES)
