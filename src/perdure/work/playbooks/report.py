"""What a playbook has done: success and cost by step and tier, against always using the strongest tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.kernel.protocol import Protocol, Read
from perdure.records import ModelUsage
from perdure.run import prices
from perdure.run.rehearse.verdict import plural
from perdure.run.usage import format_dollars
from perdure.work.playbooks import shelf
from perdure.work.playbooks.definition import Playbook
from perdure.work.playbooks.shelf import VersionRecord
from perdure.work.playbooks.statistics import TierStatistics

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine


class StepReport(msgspec.Struct, frozen=True):
    """One step: the statistics of each tier that was tried, from cheap to strong."""

    step: str
    tiers: dict[str, TierStatistics]
    explored: int = 0
    top: str = ""
    """The strongest tier of the last play. Nothing is left to escalate to when it is refused."""

    @property
    def escalations(self) -> int:
        """How often a tier was refused and a stronger one asked."""
        return sum(one.tries - one.successes for tier, one in self.tiers.items() if tier != self.top)

    @property
    def cost(self) -> float:
        """What all attempts have cost, in dollars, with models that a tier no longer has."""
        return sum(one.spent for one in self.tiers.values())

    @property
    def successes(self) -> int:
        """How often the step succeeded, with any tier."""
        return sum(one.successes for one in self.tiers.values())

    @property
    def drifting(self) -> tuple[str, ...]:
        """The tiers whose success is falling."""
        return tuple(tier for tier, one in self.tiers.items() if one.drifting)


class ChartBar(msgspec.Struct, frozen=True):
    """One bar of a chart: a tier at a step, its share of successes, and how sure that is."""

    step: str
    tier: str
    rate: float
    low: float
    high: float
    tries: int
    cost: float


class PlaybookChart(msgspec.Struct, frozen=True):
    """What a page draws: success by step and tier, and the cost of a play beside its alternatives."""

    success: tuple[ChartBar, ...]
    cost_per_play: dict[str, float]
    """Dollars by `playbook`, `strongest` (that tier alone) and `unaided` (no playbook), as far as they are known."""


class PlaybookReport(msgspec.Struct, frozen=True):
    """A version of a playbook and its results. `print(report)` shows a table."""

    playbook: str
    version: int
    plays: int
    steps: tuple[StepReport, ...]
    strongest: str = ""
    """The strongest tier that was tried."""
    learned_cost: float | None = None
    """What a run without the playbook cost, in dollars."""
    lessons: int = 0
    """Corrections that wait to be accepted."""
    cacheable: float | None = None
    """What prompt caches would save in all, in dollars: the common beginning of the prompts, at the cached price."""

    @property
    def cost(self) -> float:
        """What all plays have cost, in dollars."""
        return sum(step.cost for step in self.steps)

    @property
    def cost_per_play(self) -> float | None:
        """The average cost of a play in dollars; None before the first one."""
        return self.cost / self.plays if self.plays else None

    @property
    def strongest_cost(self) -> float | None:
        """What a play would cost with the strongest tier alone, in dollars; None if that is not known."""
        known = [step.tiers[self.strongest].cost_per_success for step in self.steps if self.strongest in step.tiers]
        costs = [cost for cost in known if cost is not None]
        return sum(costs) / len(costs) * len(self.steps) if costs else None

    @property
    def saved_share(self) -> float | None:
        """The share of the strongest tier's cost that was saved; negative if it cost more."""
        strongest, own = self.strongest_cost, self.cost_per_play
        return None if not strongest or own is None else 1 - own / strongest

    @property
    def saved_per_1000(self) -> float | None:
        """What 1,000 plays save against the strongest tier alone, in dollars."""
        strongest, own = self.strongest_cost, self.cost_per_play
        return None if strongest is None or own is None else 1000 * (strongest - own)

    @property
    def unaided_saved_per_1000(self) -> float | None:
        """What 1,000 plays save against runs without the playbook, in dollars."""
        own = self.cost_per_play
        return None if self.learned_cost is None or own is None else 1000 * (self.learned_cost - own)

    @property
    def chart(self) -> PlaybookChart:
        """The numbers of the report, as a page draws them."""
        bars = (
            ChartBar(step.step, tier, one.successes / one.tries, *one.interval, one.tries, one.spent)
            for step in self.steps
            for tier, one in step.tiers.items()
            if one.tries
        )
        costs = {"playbook": self.cost_per_play, "strongest": self.strongest_cost, "unaided": self.learned_cost}
        return PlaybookChart(tuple(bars), {what: cost for what, cost in costs.items() if cost is not None})

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def read_report(engine: Engine, name: str) -> Protocol[PlaybookReport]:
    """Report on the newest version of a playbook."""
    book = yield from shelf.get(engine, name)
    record = yield from shelf.read_record(engine, book)
    offered = yield from shelf.lessons(engine, name)
    made: PlaybookReport = yield Read(_make_report, (engine, book, record, len(offered)))
    return made


def _make_report(engine: Engine, book: Playbook, record: VersionRecord, lessons: int) -> PlaybookReport:
    order = order_tiers(record)
    steps = tuple(
        StepReport(
            step.name,
            {tier: record.tiers.get(step.name, {})[tier] for tier in order if tier in record.tiers.get(step.name, {})},
            record.explored.get(step.name, 0),
            record.order[-1] if record.order else "",
        )
        for step in book.steps
    )
    return PlaybookReport(
        book.name,
        book.version,
        record.plays,
        steps,
        order[-1] if order else "",
        book.learned_cost,
        lessons,
        _cacheable(steps, engine.clock.wall_ms()),
    )


def order_tiers(record: VersionRecord) -> list[str]:
    """Return the tiers that were tried, from cheap to strong: as the last play named them, others before by cost."""
    sums: dict[str, list[float]] = {}
    for tiers in record.tiers.values():
        for tier, known in tiers.items():
            sums.setdefault(tier, []).append(known.cost_per_try or 0.0)
    others = sorted(sums.keys() - set(record.order), key=lambda tier: (sum(sums[tier]) / len(sums[tier]), tier))
    return [*others, *(tier for tier in record.order if tier in sums)]


def _cacheable(steps: Sequence[StepReport], at: int) -> float | None:
    """Price the stable beginnings twice, fresh and cached; the first prompt of each step fills the cache."""
    saved, known = 0.0, False
    for step in steps:
        for tier, one in step.tiers.items():
            if one.tries > 1 and one.stable_tokens:
                again = one.stable_tokens * (one.tries - 1) // one.tries
                fresh = prices.add_cost(ModelUsage(tier, "", "", 1, 1, again, 0, 0, 0), at)
                cached = prices.add_cost(ModelUsage(tier, "", "", 1, 1, again, 0, again, 0), at)
                if not fresh.unpriced and not cached.unpriced:
                    saved, known = saved + (fresh.cost - cached.cost) / prices.NANOS, True
    return saved if known else None


def _lines(report: PlaybookReport) -> list[str]:
    lines = [f"playbook {report.playbook}, version {report.version}: {plural(report.plays, 'play')}"]
    for step in report.steps:
        for tier, one in step.tiers.items():
            low, high = one.interval
            drift = ", success is falling" if one.drifting else ""
            each = one.cost_per_success
            price = "cost unknown" if each is None else f"{format_dollars(each)} per success"
            lines.append(
                f"  {step.step}, {tier}: {one.successes:,} of {one.tries:,} ({low:.0%} to {high:.0%}), {price}{drift}"
            )
        if step.escalations:
            lines.append(f"  {step.step}: {plural(step.escalations, 'escalation')}")
    return [*lines, *_saving_lines(report)]


def _saving_lines(report: PlaybookReport) -> Iterator[str]:
    if report.saved_share is not None and report.saved_per_1000 is not None:
        against = f"against {report.strongest} alone"
        yield f"  saved {report.saved_share:.0%} {against}, {format_dollars(report.saved_per_1000)} per 1,000 plays"
    if report.unaided_saved_per_1000 is not None:
        yield f"  saved {format_dollars(report.unaided_saved_per_1000)} per 1,000 plays against no playbook"
    if report.cacheable:
        yield f"  prompt caches would save {format_dollars(report.cacheable)} more"
    if report.lessons:
        yield f"  {plural(report.lessons, 'correction')} to accept: `perdure playbooks lessons {report.playbook}`"
