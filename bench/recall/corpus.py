"""Memories, and questions whose answers are known. Files stay where they are: LoCoMo may not be part of a product."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Memory:
    """One thing that was said."""

    text: str
    day: date
    thread: int


@dataclass(frozen=True)
class Asked:
    """A question, and the places of the memories that hold its answer."""

    text: str
    evidence: frozenset[int]
    kind: str


@dataclass(frozen=True)
class Corpus:
    """Memories of one agent, and questions about them."""

    name: str
    memories: Sequence[Memory]
    questions: Sequence[Asked]
    today: date


SHAPES: dict[str, Callable[[dict[str, Any]], str]] = {
    "speaker": lambda turn: f"{turn['speaker']}: {turn['text']}",
    "bare": lambda turn: str(turn["text"]),
    "dated": lambda turn: f"[{turn['at']}] {turn['speaker']}: {turn['text']}",
}
"""How people may hand over a turn; the date is given beside it in any case."""


def conversations(path: Path, shape: str = "speaker") -> list[Corpus]:
    """LoCoMo, as `shared/data` has it: one turn is one memory, a session is a thread."""
    return [_conversation(entry, shape) for entry in json.loads(path.read_text())]


def _conversation(entry: dict[str, Any], shape: str) -> Corpus:
    turns = entry["turns"]
    place = {turn["id"]: at for at, turn in enumerate(turns)}
    memories = [Memory(SHAPES[shape](turn), _day(turn["at"]), turn["session"]) for turn in turns]
    questions = [
        Asked(
            question["question"], frozenset(place[evidence] for evidence in question["evidence"]), question["category"]
        )
        for question in entry["questions"]
    ]
    # Whoever asks does so later; a question that says "last week" means the week before it.
    return Corpus(entry["id"], memories, questions, max(memory.day for memory in memories))


def _day(text: str) -> date:
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").date()  # noqa: DTZ007 - a day, not a moment


def load_plain(path: Path) -> list[Corpus]:
    """Any other: [{name, today, memories: [{text, day, thread}], questions: [{text, evidence, kind}]}], in JSON."""
    made = []
    for entry in json.loads(path.read_text()):
        memories = [
            Memory(memory["text"], date.fromisoformat(memory["day"]), memory["thread"]) for memory in entry["memories"]
        ]
        questions = [
            Asked(question["text"], frozenset(question["evidence"]), question.get("kind", ""))
            for question in entry["questions"]
        ]
        made.append(Corpus(entry["name"], memories, questions, date.fromisoformat(entry["today"])))
    return made


def read(path: Path, shape: str) -> list[Corpus]:
    """Either of the two."""
    first = json.loads(path.read_text())[0]
    return conversations(path, shape) if "turns" in first else load_plain(path)
