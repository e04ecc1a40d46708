"""A run of a playbook: the plan that it records first, and how an attempt is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import WrongType, WrongValue
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import frame_of
from perdure.records import ModelUsage
from perdure.run import prices, usage
from perdure.run.core import RunCore
from perdure.run.response_usage import usage_in
from perdure.values.clock import Clock
from perdure.values.codec.exceptions import limited_repr
from perdure.values.hints import name_hint
from perdure.work.playbooks import shelf
from perdure.work.playbooks.choice import ChoiceRules, TierChoice, choose
from perdure.work.playbooks.definition import Playbook
from perdure.work.playbooks.page import RenderedStep
from perdure.work.playbooks.shelf import Lesson
from perdure.work.playbooks.statistics import AttemptOutcome

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

_TYPICAL = (1000, 300)
"""Tokens in and out of a typical call, to compare the prices of models that were never tried."""
_SHOWN = 160


class PlayPlan(msgspec.Struct, frozen=True):
    """What a play has recorded before its first step: the version that it follows, and the tiers of each step."""

    playbook: Playbook
    choices: dict[str, TierChoice]
    seed: int


class PlayAttempt(msgspec.Struct, frozen=True):
    """The recorded result of an attempt."""

    answer: Any
    accepted: bool


class RefusedAnswer(msgspec.Struct, frozen=True):
    """An answer that `verify` refused."""

    tier: str
    shown: str


def check_rules(tiers: object, target: object, explore: object, tier: object) -> ChoiceRules:
    """Check the arguments of `playbooks.run`."""
    if isinstance(tiers, str) or not isinstance(tiers, Sequence) or not all(isinstance(one, str) for one in tiers):
        raise WrongType(f"tiers must be a list of model names, from cheap to strong, not {tiers!r}")
    if not tiers or len(set(tiers)) < len(tiers):
        raise WrongValue(f"tiers={list(tiers)!r}: name at least one model, and each once")
    if not isinstance(target, int | float) or not 0 <= target <= 1:
        raise WrongValue(f"target={target!r}: must be a share from 0 to 1")
    if tier is not None and tier not in tiers:
        raise WrongValue(f"tier={tier!r} is not one of the tiers", hint=name_hint(tier, tiers))
    return ChoiceRules(tuple(tiers), float(target), bool(explore), str(tier or ""))


def make_plan(engine: Engine, name: str, rules: ChoiceRules) -> Protocol[dict[str, Any]]:
    """Choose the tiers of every step. Runs in a step of the play, so that a resumed play keeps the choice."""
    book = yield from shelf.get(engine, name)
    record = yield from shelf.read_record(engine, book)
    seed = int.from_bytes(engine.clock.salt()[:8], "big")
    listed: dict[str, float | None] = yield Read(_list_prices, (rules.tiers, engine.clock))
    choices = [choose(step.name, rules, record.evidence(step.name), listed.get, seed) for step in book.steps]
    yield from shelf.count_play(engine, book, choices)
    plan = PlayPlan(book, {choice.step: choice for choice in choices}, seed)
    made: dict[str, Any] = msgspec.to_builtins(plan)
    return made


def _list_prices(tiers: Sequence[str], clock: Clock) -> dict[str, float | None]:
    at = clock.wall_ms()
    priced = [prices.add_cost(ModelUsage(tier, "", "", 1, 1, *_TYPICAL, 0, 0), at) for tier in tiers]
    return {one.model: None if one.unpriced else one.cost / prices.NANOS for one in priced}


def read_plan(recorded: Mapping[str, Any]) -> PlayPlan:
    """Read the recorded plan."""
    return msgspec.convert(recorded, PlayPlan)


class FinishedAttempt(msgspec.Struct, frozen=True):
    """An attempt that is about to be recorded, with what it needs to be counted."""

    step: str
    tier: str
    result: PlayAttempt
    refused: tuple[RefusedAnswer, ...] = ()
    rendered: RenderedStep | None = None


def record_attempt(run: RunCore, plan: PlayPlan, attempt: FinishedAttempt) -> Protocol[dict[str, Any]]:
    """Count an attempt inside its step, so that it is counted once; return what the step records."""
    spent = yield from _spent(run, attempt.result.answer)
    priced = all(not one.unpriced for one in spent)
    nanos, rendered = sum(one.cost for one in spent), attempt.rendered or RenderedStep("", 0, 0)
    outcome = AttemptOutcome(attempt.result.accepted, nanos, priced, rendered.tokens, rendered.stable_tokens)
    yield from shelf.count_attempt(run.engine, plan.playbook, attempt.step, attempt.tier, outcome)
    if attempt.result.accepted and attempt.refused:
        yield from shelf.offer(run.engine, plan.playbook, _lesson(run, attempt))
    return {"answer": attempt.result.answer, "accepted": attempt.result.accepted}


def _spent(run: RunCore, answer: Any) -> Protocol[tuple[ModelUsage, ...]]:
    """Return the usage of this attempt: as the program reported it, else as the response of the SDK tells."""
    buffer = frame_of(run).buffer
    assert buffer is not None, "an attempt is a step"
    if not buffer.usage:
        carried = usage_in(answer)
        if carried is not None:
            yield from usage.record(run, carried, None)
    return buffer.usage


def _lesson(run: RunCore, attempt: FinishedAttempt) -> Lesson:
    wrong = "; ".join(f"{one.tier} answered {one.shown}, which was refused" for one in attempt.refused)
    text = f"{wrong}; {attempt.tier} answered {show_answer(attempt.result.answer)}"
    return Lesson(f"{run.id}/{attempt.step}", attempt.step, text)


def show_answer(answer: Any) -> str:
    """Show the beginning of an answer on one line."""
    text = " ".join((answer if isinstance(answer, str) else limited_repr(answer)).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
