"""What people and programs say to a run: what became of an effect, the answer to a question, an event."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from . import objects
from . import records as r
from .errors import NotDone, NothingToAnswer, ValueProblem
from .failpoints import Site
from .journal.append import Append
from .journal.signals import Signal
from .process import host_name
from .run.doubt import Done
from .run.open_stream import in_the_open
from .run.requests import Protocol, Read, drive_sync
from .run.writes import named
from .runs import EffectInDoubt, Question, RunInfo, get_run
from .state import write

if TYPE_CHECKING:
    from .engine import Engine

ASKED = ("ask", "approve")
"""The kinds of questions that are answered with a value."""


class Answer(msgspec.Struct, frozen=True):
    """What somebody says: about an effect in doubt `done` with a result, `retry` or `fail`; to a question a `value`."""

    verdict: str
    result: Any = None


def read_answer(answer: Any, done: Any, retry: bool, fail: bool) -> Answer:
    """The answer in whichever form it was given."""
    if retry or fail or done is not ...:
        return Answer("retry" if retry else "fail" if fail else "done", None if done is ... else done)
    if answer is ...:
        raise ValueError("answer with a value, or say of an effect in doubt done=RESULT, retry=True or fail=True")
    if isinstance(answer, Done):
        return Answer("done", answer.result)
    return Answer("retry") if answer is NotDone else Answer("value", answer)


def give_answer(
    engine: Engine,
    run_id: str,
    answer: Answer,
    *,
    key: str | None = None,
    question: str | None = None,
    by: str | None = None,
) -> Answer:
    """Answer a run, whether it waits now or will be resumed later; the first answer counts. Returns what was said."""
    # Values stay packed: whoever answers need not have the types of everything that the run has stored.
    info = get_run(engine.store, engine.name, run_id, unpack=bytes)
    if info.finished:
        raise NothingToAnswer(f"run {run_id!r} is finished: nobody would hear the answer")
    if info.status == r.Status.CANCELLED:
        raise _too_late(info)
    asked = [it for it in info.questions if it.kind in ASKED]
    if answer.verdict == "value" and key is None and (asked or question is not None):
        about = _question_meant(info, asked, question)
        _must_fit(engine, about, answer.result)
        _say(engine, info, about.about, answer, by)
        return answer
    if answer.verdict == "value":
        answer = _about_effect(info, answer.result)
    _say(engine, info, _effect_meant(info, key).about, answer, by)
    return answer


def send_event(engine: Engine, run_id: str, name: str, payload: Any, by: str | None) -> Protocol[None]:
    """Send something to a run, which takes it when it comes to wait for it. In a body it waits for the body's end."""
    named(name, "event's name")
    named(run_id, "run's id")
    yield Read(engine.ensure_agent)
    owner = yield Read(lambda: engine.stream)
    packed, made = objects.pack(engine.store, payload, f"event {name!r}")
    signal = Signal(owner, run_id, name, packed, made, by or whoever())
    yield from write(engine, Site.SIGNAL, [signal])


def whoever() -> str:
    """The user and the host."""
    import getpass  # only for who says something

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container may run as a user that has no name
    return f"{user}@{host_name()}"


# -- inside -----------------------------------------------------------------------------------------------------------


def _say(engine: Engine, info: RunInfo, about: int, answer: Answer, by: str | None) -> None:
    store = engine.store
    packed, made = objects.pack(store, answer.result, "answer")
    record = r.Answered(info.summary.stream, about, answer.verdict, packed, by or whoever())
    signer = engine.signer  # an answer is signed at once
    drive_sync(
        store,
        in_the_open(
            engine,
            lambda head, _: Append(Site.ANSWER, head, [record], store.clock, objects=made, signer=signer, seal=True),
        ),
    )


def _too_late(info: RunInfo) -> NothingToAnswer:
    """For a run that was ended: by an order, or with a step of a workflow that somebody has settled by hand."""
    [*_, ended] = [it.record for it in info.events if isinstance(it.record, r.RunCancelled)]
    why = f": {ended.reason}" if ended.reason else ""
    return NothingToAnswer(
        f"run {info.id!r} was cancelled by {ended.by}{why}; nobody would hear the answer",
        hint="what was in doubt stays in its record",
    )


def _about_effect(info: RunInfo, answer: Any) -> Answer:
    """Words that by themselves are about an effect in doubt, when there is no question."""
    if answer in ("retry", "fail"):
        return Answer(answer)
    if answer == "done":
        return Answer("done")
    if not info.in_doubt:
        raise NothingToAnswer(f"run {info.id!r} is {info.status}, and asks nothing")
    raise NothingToAnswer(
        f"run {info.id!r} asks nothing; in doubt: {_listed(info)}",
        hint="answer with done=RESULT, retry=True or fail=True",
    )


def _question_meant(info: RunInfo, asked: list[Question], text: str | None) -> Question:
    found = [it for it in asked if text in (None, it.text)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(repr(it.text) for it in asked) or "nothing"
    if not found:
        raise NothingToAnswer(f"run {info.id!r} does not ask {text!r}; it asks: {listed}")
    raise NothingToAnswer(f"run {info.id!r} asks several things: {listed}", hint="say which with question=")


def _must_fit(engine: Engine, question: Question, value: Any) -> None:
    """Tell whoever answers, where it can be told here: the run looks at it once more."""
    if question.kind == "approve" and not isinstance(value, bool):
        raise ValueError(f"{question.text!r} is answered with True or False, not {value!r}")
    if question.choices is None:
        return
    try:
        choices = objects.unpack(engine.store, question.choices)  # packed, as all values here
    except ValueProblem:
        return  # of types that are not known here
    if value not in choices:
        raise ValueError(f"{question.text!r} is answered with one of {', '.join(map(repr, choices))}, not {value!r}")


def _listed(info: RunInfo) -> str:
    return ", ".join(f"{effect.name} (key {effect.key})" for effect in info.in_doubt)


def _effect_meant(info: RunInfo, key: str | None) -> EffectInDoubt:
    """The effect in doubt of that key, or the only one."""
    if not info.in_doubt:
        raise NothingToAnswer(f"run {info.id!r} is {info.status}, and nothing in it is in doubt")
    effects = [effect for effect in info.in_doubt if key in (None, effect.key)]
    if not effects:
        raise NothingToAnswer(f"no effect in doubt has the key {key!r}; in doubt: {_listed(info)}")
    if len(effects) > 1:
        raise NothingToAnswer(f"several effects are in doubt: {_listed(info)}", hint="say which one with key= (--key)")
    return effects[0]
