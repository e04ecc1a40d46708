"""What the demo claims, and whether it holds: everything is counted in the outside files and in the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec

from .stage import Stage
from .story import CALLS, KILLED_AT, Call, Effect, Journal, Life, read_calls, read_journal, read_outside


class Price(msgspec.Struct, frozen=True):
    """What a call of a tool is assumed to cost."""

    dollars: float
    seconds: float


ASSUMED = {"model": Price(0.05, 20), "shell": Price(0, 60), "publish": Price(0, 2)}
"""Ordinary prices of 2026; the demo is offline, so it cannot measure them."""


class Claim(msgspec.Struct, frozen=True):
    """A sentence, and whether the counting bears it out."""

    claim: str
    holds: bool


class Cost(msgspec.Struct, frozen=True):
    """Calls, the effects that they left outside, and what they come to at the assumed prices."""

    calls: int
    effects: int
    dollars: float
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """How the demo ended."""

    ok: bool
    made: Cost
    repeated: Cost
    """What was done more than once."""
    spared: Cost
    """What a restart from zero after each death would have repeated."""
    assumed: dict[str, Price]
    claims: list[Claim]
    lives: list[Life]


def examine(stage: Stage, lives: list[Life]) -> Report:
    """Count, compare, conclude."""
    calls, outside, journal = read_calls(stage.folder), read_outside(stage.folder), read_journal(stage)
    claims = [*_deaths(lives), *_resumes(lives, outside, journal), *_totals(calls, outside, journal)]
    if stage.hosts:
        claims += _moves(stage.hosts, lives, journal)
    deaths = [life for life in lives if life.killed]
    return Report(
        ok=all(claim.holds for claim in claims),
        made=_cost([call.tool for call in calls], len(outside)),
        repeated=_cost(_repeated(calls), len(outside) - len({effect.task for effect in outside})),
        spared=_cost(
            [call.tool for death in deaths for call in _executed_until(lives, death)],
            sum(len(death.outside) for death in deaths),
        ),
        assumed=ASSUMED,
        claims=claims,
        lives=lives,
    )


def _repeated(calls: Iterable[Call]) -> list[str]:
    """The tool of every execution that is not the first of its kind."""
    counts = Counter((call.tool, call.task) for call in calls)
    return [tool for (tool, _), count in counts.items() for _ in range(count - 1)]


def _cost(tools: list[str], effects: int) -> Cost:
    dollars = round(sum(ASSUMED[tool].dollars for tool in tools), 2)
    return Cost(len(tools), effects, dollars, sum(ASSUMED[tool].seconds for tool in tools))


def _executed_until(lives: list[Life], last: Life) -> Iterator[Call]:
    for life in lives[: last.number]:
        yield from life.executed


def _deaths(lives: list[Life]) -> Iterator[Claim]:
    first, second, _ = lives
    yield Claim(
        f"Process 1 died by SIGKILL in call {first.journal.done + 1}, {first.died_in!r}: intended, not happened.",
        first.killed
        and first.journal.done + 1 == KILLED_AT
        and len(first.journal.in_doubt) == 1
        and not _traces(first.journal.in_doubt, first.outside),
    )
    yield Claim(
        f"Process 2 died by SIGKILL in call {second.journal.done + 1}, {second.died_in!r}: happened, not recorded.",
        second.killed
        and len(second.journal.in_doubt) == 1
        and len(_traces(second.journal.in_doubt, second.outside)) == 1,
    )


def _traces(doubted: Iterable[Effect], outside: Iterable[Effect]) -> list[Effect]:
    keys = {effect.key for effect in doubted}
    return [effect for effect in outside if effect.key in keys]


def _resumes(lives: list[Life], outside: tuple[Effect, ...], journal: Journal) -> Iterator[Claim]:
    first, second, third = lives
    for life in (second, third):
        before = {(call.tool, call.task) for call in _executed_until(lives, lives[life.number - 2])}
        again = [call for call in life.executed if (call.tool, call.task) in before]
        yield Claim(
            f"Process {life.number} went on after {life.remembered} calls of the journal and repeated "
            f"{len(again) or 'none'} of them.",
            life.remembered == lives[life.number - 2].journal.done
            and not again
            and (life.host, life.pid) != (first.host, first.pid),
        )
    pushed = [effect.key for effect in first.journal.in_doubt]
    yield Claim(
        f"The check found that {first.died_in!r} had not happened, so it ran, once.",
        list(journal.begun_again) == pushed and len(_traces(first.journal.in_doubt, outside)) == 1,
    )
    deployed = [effect.key for effect in second.journal.in_doubt]
    yield Claim(
        f"The check found that {second.died_in!r} had happened, so it did not run again.",
        list(journal.adopted) == deployed and len(_traces(second.journal.in_doubt, outside)) == 1,
    )


def _totals(calls: tuple[Call, ...], outside: tuple[Effect, ...], journal: Journal) -> Iterator[Claim]:
    yield Claim(
        f"The run is {journal.status}; {len(calls)} calls were executed, each once.",
        journal.status == "finished"
        and len(calls) == CALLS == journal.done
        and len({(call.tool, call.task) for call in calls}) == CALLS,
    )
    keys, tasks = [effect.key for effect in outside], [effect.task for effect in outside]
    intended = [call.task for call in calls if call.tool == "publish"]
    yield Claim(
        f"{len(outside)} effects are in the outside file, each once, all with their key in the journal.",
        sorted(keys) == sorted(set(journal.effects)) and sorted(tasks) == sorted(set(intended)),
    )


def _moves(hosts: tuple[str, ...], lives: list[Life], journal: Journal) -> Iterator[Claim]:
    for before, life in pairwise(lives):
        yield Claim(
            f"{life.host} could not see that the process on {before.host} was dead; it had to wait "
            f"{life.waited:.0f} s for its lease to run out.",
            life.waited > 0,
        )
    yield Claim(
        f"The processes were on {', '.join(life.host for life in lives)}: so say their calls and the journal.",
        hosts == tuple(life.host for life in lives) == journal.hosts and all(life.executed for life in lives),
    )
