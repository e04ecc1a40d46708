"""Stands in for the people and programs that the tested program waits for: answers questions and sends events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import msgspec

from perdure import records as r
from perdure.errors import StoreBusy
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync
from perdure.run.answers import ASKED, RunAnswer, give_answer, send_event
from perdure.run.listing import Question, RunSummary, get_run, list_runs
from perdure.store import open_store
from perdure.testing.crashtest.messages import CrashtestProblem

APPROVALS = {"yes": True, "true": True, "no": False, "false": False}
WHO = "perdure crashtest"

AnsweredWaits = set[tuple[str, str, int]]
"""What was answered in a round: agent, run and wait."""


class ScriptedAnswers(msgspec.Struct, frozen=True):
    """The answers and events from `--answer` and `--event`."""

    answers: tuple[str, ...] = ()
    """`VALUE`, or `PART OF THE QUESTION=VALUE`."""
    events: tuple[str, ...] = ()
    """`NAME`, or `NAME=JSON`."""

    def __bool__(self) -> bool:
        return bool(self.answers or self.events)

    def hint(self, waits: Sequence[str]) -> str:
        """Return a hint for a program that waits for a person."""
        if not waits:
            return ""
        if ": event " in waits[0]:
            return "send the event with --event NAME=JSON"
        if ": until " in waits[0]:
            return "a crash test sleeps as long as the program does: shorten the sleep, or raise --timeout"
        return "answer it with --answer VALUE (yes, no, JSON or text), or --answer 'PART OF THE QUESTION=VALUE'"

    def answer_all(self, urls: Sequence[str], heard: AnsweredWaits) -> None:
        """Answer every open question once. If a store is busy, try again the next time."""
        with suppress(StoreBusy):
            for url in urls:
                for run, question in _list_questions(url):
                    what = (run.agent, run.id, question.seq)
                    if what not in heard and self._answer(url, run, question):
                        heard.add(what)

    def _answer(self, url: str, run: RunSummary, question: Question) -> bool:
        """Answer a question if there is an answer for it. Returns whether there was."""
        if question.kind in ASKED:
            given = _find_answer(self.answers, question.text)
        elif question.kind == "event":
            given = _find_event(self.events, question.text)
        else:
            return False
        if given is None:
            return False
        engine = Engine(run.agent, store=url, key=_nobody)
        try:
            if question.kind == "event":
                name, value = given
                drive_sync(engine.store, send_event(engine, run.id, name, value, WHO))
            else:
                value = APPROVALS.get(str(given[1]).lower(), given[1]) if question.kind == "approve" else given[1]
                give_answer(engine, run.id, RunAnswer("value", value), question=question.text, by=WHO)
        except ValueError as error:
            raise CrashtestProblem(f"--answer: {error}") from error
        finally:
            engine.close()
        return True


def _list_questions(url: str) -> list[tuple[RunSummary, Question]]:
    with closing(open_store(url, create=False)) as store:
        return [
            (run, one)
            for run in list_runs(store, status=r.RunStatus.WAITING)
            for one in get_run(store, run.agent, run.id, unpack=bytes).questions
        ]


def _nobody(agent: str) -> None:
    """Provide no key: answers are not signed, because the key belongs to the program."""


def _find_answer(answers: Sequence[str], text: str) -> tuple[str, Any] | None:
    """Return the first answer that names this question, else the first that names none."""
    for answer in answers:
        about, is_named, value = answer.partition("=")
        if is_named and about in text:
            return about, _value(value)
    return next((("", _value(answer)) for answer in answers if "=" not in answer), None)


def _find_event(events: Sequence[str], text: str) -> tuple[str, Any] | None:
    for event in events:
        name, is_given, value = event.partition("=")
        if text == f"event {name!r}":
            return name, _value(value) if is_given else None
    return None


def _value(text: str) -> Any:
    """Parse JSON, or return the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
