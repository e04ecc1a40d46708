"""Input from people and programs to a run: the outcome of an effect in doubt, an answer, an event."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import NotDone, NothingToAnswer, ValueProblem, WrongValue
from perdure.journal import objects
from perdure.journal.append import Append
from perdure.journal.run_signals import SendSignal
from perdure.kernel.names import check_storable_name
from perdure.kernel.open_stream import commit_to_process_stream
from perdure.kernel.protocol import Protocol, Read, drive_sync
from perdure.kernel.write_routing import write
from perdure.platform.failpoints import Site
from perdure.platform.process import host_name
from perdure.run.doubt import Done
from perdure.run.listing import EffectInDoubt, Question, RunInfo, get_run
from perdure.values.hints import insert_run_id

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_YES_NO = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
"""What people write to approve or not."""
ASKED = ("ask", "approve")
"""The kinds of questions that are answered with a value."""


class RunAnswer(msgspec.Struct, frozen=True):
    """An answer: `done` with a result, `retry` or `fail` for an effect in doubt; `value` for a question."""

    verdict: str
    result: Any = None


def make_answer(answer: Any, done: Any, retry: bool, fail: bool) -> RunAnswer:
    """Return the answer from the arguments of `agent.runs.answer`."""
    if retry or fail or done is not ...:
        return RunAnswer("retry" if retry else "fail" if fail else "done", None if done is ... else done)
    if answer is ...:
        raise WrongValue("answer with a value; for an effect in doubt, pass done=RESULT, retry=True or fail=True")
    if isinstance(answer, Done):
        return RunAnswer("done", answer.result)
    return RunAnswer("retry") if answer is NotDone else RunAnswer("value", answer)


def give_answer(
    engine: Engine,
    run_id: str,
    answer: RunAnswer,
    *,
    key: str | None = None,
    question: str | None = None,
    by: str | None = None,
) -> RunAnswer:
    """Answer a run that waits now or will be resumed later. The first answer counts. Returns the answer."""
    # Values stay packed: the answering program need not know the run's types.
    info = get_run(engine.store, engine.name, run_id, unpack=bytes)
    if info.finished:
        raise _nothing_to_answer_error(run_id, f"run {run_id!r} is finished: it needs no answer")
    if info.status == r.RunStatus.CANCELLED:
        raise _run_ended_error(info)
    asked = [item for item in info.questions if item.kind in ASKED]
    if answer.verdict == "value" and key is None and (asked or question is not None):
        about = _find_question(info, asked, question)
        answer = _fit_answer(engine, info.id, about, answer)
        _record_answer(engine, info, about.about, answer, by)
        return answer
    if answer.verdict == "value":
        answer = _effect_answer(info, answer.result)
    _record_answer(engine, info, _find_effect(info, key).about, answer, by)
    return answer


def send_event(engine: Engine, run_id: str, name: str, payload: Any, by: str | None) -> Protocol[None]:
    """Send an event to a run, which receives it when it waits for it. Inside a body it is sent when the body ends."""
    check_storable_name(name, "event's name")
    check_storable_name(run_id, "run's id")
    by = check_person(by)
    yield Read(engine.ensure_agent)
    owner = yield Read(lambda: engine.stream)
    packed, made = objects.pack(engine.store, payload, f"event {name!r}")
    signal = SendSignal(owner, run_id, name, packed, made, by)
    yield from write(engine, Site.SIGNAL, [signal])


def check_person(by: str | None) -> str:
    """Return who says something: the given name, or the user of this process."""
    return check_storable_name(by or find_current_user(), "by=")


def find_current_user() -> str:
    """Return the user and the host."""
    import getpass  # only for who says something

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container may run as a user without a name
    return f"{user}@{host_name()}"


# -- internals --------------------------------------------------------------------------------------------------------


def _record_answer(engine: Engine, info: RunInfo, about: int, answer: RunAnswer, by: str | None) -> None:
    store = engine.store
    packed, made = objects.pack(store, answer.result, "answer")
    record = r.Answered(info.summary.stream, about, answer.verdict, packed, check_person(by))
    signer = engine.signer  # an answer is signed at once
    drive_sync(
        store,
        commit_to_process_stream(
            engine,
            lambda head, _: Append(Site.ANSWER, head, [record], store.clock, objects=made, signer=signer, seal=True),
        ),
    )


def _nothing_to_answer_error(run_id: str, message: str) -> NothingToAnswer:
    return NothingToAnswer(message, hint=insert_run_id(NothingToAnswer.hint, run_id))


def _run_ended_error(info: RunInfo) -> NothingToAnswer:
    """Return the error for a run that was ended by an order or by a person who settled its workflow step."""
    [*_, ended] = [event.record for event in info.events if isinstance(event.record, r.RunCancelledEntry)]
    why = f": {ended.reason}" if ended.reason else ""
    return NothingToAnswer(
        f"run {info.id!r} was cancelled by {ended.by}{why}; it needs no answer",
        hint="its effects in doubt stay recorded as such",
    )


def _effect_answer(info: RunInfo, answer: Any) -> RunAnswer:
    """Read an answer without a question as one about an effect in doubt."""
    if answer in ("retry", "fail"):
        return RunAnswer(answer)
    if answer == "done":
        return RunAnswer("done")
    if not info.in_doubt:
        raise _nothing_to_answer_error(info.id, f"run {info.id!r} is {info.status} and asks nothing")
    raise NothingToAnswer(
        f"run {info.id!r} asks nothing; effects in doubt: {_list_questions(info)}",
        hint="answer with done=RESULT, retry=True or fail=True",
    )


def _find_question(info: RunInfo, asked: list[Question], text: str | None) -> Question:
    found = [question for question in asked if text in (None, question.text)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(repr(question.text) for question in asked) or "nothing"
    if not found:
        raise _nothing_to_answer_error(info.id, f"run {info.id!r} does not ask {text!r}; it asks: {listed}")
    raise NothingToAnswer(f"run {info.id!r} asks several questions: {listed}", hint="choose one with question=")


def _fit_answer(engine: Engine, run_id: str, question: Question, answer: RunAnswer) -> RunAnswer:
    """Return the answer as the question takes it. Reject an unsuitable one where possible; the run checks it again."""
    value = _YES_NO.get(answer.result.lower()) if isinstance(answer.result, str) else answer.result
    if question.kind == "approve" and not isinstance(value, bool):
        raise WrongValue(
            f"{question.text!r} takes True or False, not {answer.result!r}",
            hint=f"`perdure answer {shlex.quote(run_id)} --yes` or `--no`",
        )
    if question.kind == "approve":
        return RunAnswer(answer.verdict, value)
    _check_choice(engine, question, answer.result)
    return answer


def _check_choice(engine: Engine, question: Question, value: Any) -> None:
    if question.choices is None:
        return
    try:
        choices = objects.unpack(engine.store, question.choices)  # packed, like all values here
    except ValueProblem:
        return  # its types are unknown in this program
    if value not in choices:
        raise WrongValue(f"{question.text!r} takes one of {', '.join(map(repr, choices))}, not {value!r}")


def _list_questions(info: RunInfo) -> str:
    return ", ".join(f"{effect.name} (key {effect.key})" for effect in info.in_doubt)


def _find_effect(info: RunInfo, key: str | None) -> EffectInDoubt:
    """Return the effect in doubt with that key, or the only one."""
    if not info.in_doubt:
        raise _nothing_to_answer_error(info.id, f"run {info.id!r} is {info.status} and has no effect in doubt")
    effects = [effect for effect in info.in_doubt if key in (None, effect.key)]
    if not effects:
        raise _nothing_to_answer_error(
            info.id, f"no effect in doubt has the key {key!r}; effects in doubt: {_list_questions(info)}"
        )
    if len(effects) > 1:
        raise NothingToAnswer(
            f"several effects are in doubt: {_list_questions(info)}", hint="choose one with key= (--key)"
        )
    return effects[0]
