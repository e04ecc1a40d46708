"""A run of a playbook: the plan that it records first, and how an attempt is counted."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.errors import PlaybookFailed, WrongType, WrongValue
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


def make_plan(run: RunCore, name: str, rules: ChoiceRules) -> Protocol[dict[str, Any]]:
    """Choose the tiers of every step. Runs in a step of the play, so that a resumed play keeps the choice."""
    engine = run.engine
    book = yield from shelf.get(engine, name)
    record = yield from shelf.read_record(engine, book)
    seed = _seed_of(engine.name, book, run.id)
    listed: dict[str, float | None] = yield Read(_list_prices, (rules.tiers, engine.clock))
    choices = [choose(step.name, rules, record.evidence(step.name), listed.get, seed) for step in book.steps]
    yield from shelf.count_play(engine, book, rules.tiers, choices)
    plan = PlayPlan(book, {choice.step: choice for choice in choices}, seed)
    made: dict[str, Any] = msgspec.to_builtins(plan)
    return made


def _seed_of(agent: str, book: Playbook, run_id: str) -> int:
    """Return the seed of a play. A plan that was lost in a crash draws the same again, so a kill changes no choice."""
    text = json.dumps([agent, book.name, book.version, run_id])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


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
    made_elsewhere: bool = False
    """Whether the program made the call before this step. The run's usage then has its cost already."""
    cost_usd: float | None = None
    """What a call that was made elsewhere has cost; None if that is unknown."""


def record_attempt(run: RunCore, plan: PlayPlan, attempt: FinishedAttempt) -> Protocol[dict[str, Any]]:
    """Count an attempt inside its step, so that it is counted once; return what the step records."""
    outcome = yield from _outcome_of(run, attempt)
    yield from shelf.count_attempt(run.engine, plan.playbook, attempt.step, attempt.tier, outcome)
    if attempt.result.accepted and attempt.refused:
        yield from shelf.offer(run.engine, plan.playbook, _lesson(run, attempt))
    return {"answer": attempt.result.answer, "accepted": attempt.result.accepted}


def _outcome_of(run: RunCore, attempt: FinishedAttempt) -> Protocol[AttemptOutcome]:
    rendered, accepted = attempt.rendered or RenderedStep("", 0, 0), attempt.result.accepted
    tokens = rendered.tokens, rendered.stable_tokens
    if attempt.made_elsewhere:
        cost = attempt.cost_usd
        return AttemptOutcome(accepted, prices.nanos_of(cost or 0.0), cost is not None, *tokens)
    spent = yield from _spent(run, attempt.result.answer)
    priced = bool(spent) and all(not one.unpriced for one in spent)
    main = max(spent, key=lambda one: (one.cost, one.input_tokens + one.output_tokens), default=None)
    nanos = sum(one.cost for one in spent)
    return AttemptOutcome(accepted, nanos, priced, *tokens, main.model if main is not None else "")


def _spent(run: RunCore, answer: Any) -> Protocol[tuple[ModelUsage, ...]]:
    """Return the usage of this attempt: as the program reported it, else as the response of the SDK tells."""
    buffer = frame_of(run).buffer
    assert buffer is not None, "an attempt is a step"
    if not buffer.usage:
        carried = usage_in(answer)
        if carried is not None:
            yield from usage.record(run, carried, None)
    return buffer.usage


def explain_failure(playbook: Playbook, step: str, refused: Sequence[RefusedAnswer]) -> PlaybookFailed:
    """Return the error for a step whose every tier was refused."""
    last = refused[-1]
    return PlaybookFailed(
        f"step {step!r} of playbook {playbook.name!r}: every tier was refused, "
        f"last {last.tier}, which answered {last.shown}"
    )


def warn_of_drift(plan: PlayPlan) -> None:
    """Warn about tiers whose success is falling, once for each place in a program."""
    for choice in plan.choices.values():
        if choice.falling:
            text = f"playbook {plan.playbook.name!r}, step {choice.step!r}: success is falling: "
            hint = f"see `perdure playbooks report {plan.playbook.name}`"
            warnings.warn(f"{text}{', '.join(choice.falling)}; {hint}", UserWarning, stacklevel=4)


def _lesson(run: RunCore, attempt: FinishedAttempt) -> Lesson:
    wrong = "; ".join(f"{one.tier} answered {one.shown}, which was refused" for one in attempt.refused)
    text = f"{wrong}; {attempt.tier} answered {show_answer(attempt.result.answer)}"
    return Lesson(f"{run.id}/{attempt.step}", attempt.step, text)


def show_answer(answer: Any) -> str:
    """Show the beginning of an answer on one line."""
    text = " ".join((answer if isinstance(answer, str) else limited_repr(answer)).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
