"""Model costs and the savings of resuming: recorded by `run.usage`, summed up for reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure import records as r
from perdure.errors import WrongType, WrongValue
from perdure.journal.project import DAY_MS
from perdure.kernel.names import check_storable_name
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import frame_of
from perdure.platform.failpoints import Site
from perdure.run import prices
from perdure.run.core import RunCore
from perdure.store.base import Store
from perdure.values.clock import moment
from perdure.values.limits import COST_USD_MAX, TOKENS_MAX

# -- recording --------------------------------------------------------------------------------------------------------


def record(run: RunCore, usage: r.ModelUsage, cost_usd: float | Decimal | None) -> Protocol[None]:
    """`run.usage`: record the usage of a model call once. A resumed run does not count it again."""
    frame = frame_of(run)
    instead, reported = 0, {name: getattr(usage, name) for name in ("provider", *_TOKENS)}
    if frame.buffer is None:
        nth = frame.count(f"\0write {r.WriteOp.USAGE}", usage.model.encode())
        recorded = run.ledger.find_write(frame.path, r.WriteOp.USAGE, usage.model, nth)
        if recorded is not None:
            if (yield from run.compare(f"usage of {usage.model}", recorded.value, reported, telemetry=True)):
                return
            instead = nth + 1
        run.check_open()
    else:
        run.check_not_left()
    made = usage
    if cost_usd is not None:
        made = msgspec.structs.replace(usage, cost=prices.nanos_of(cost_usd), unpriced=0)
    elif run.ledger.finished is None:
        made = yield Read(prices.add_cost, (usage, run.clock.wall_ms()))
    for budget in run.account.budgets:
        budget.spend(made)
    if frame.buffer is not None:
        frame.buffer.usage += (made,)
        return
    packed, objects = run.pack(reported, "usage")
    wrote = r.Wrote(frame.path, r.RunWrite(r.WriteOp.USAGE, made.model, packed), usage=(made,), instead=instead)
    yield from run.commit(Site.WRITE, wrote, objects=objects)


_TOKENS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens")


def check_report(
    model: object,
    provider: object,
    input_tokens: int,
    output_tokens: int,
    cached_input_tokens: int,
    cache_write_tokens: int,
) -> r.ModelUsage:
    """Check the reported numbers of one call. The cost is added later."""
    for what, name in (("model", model), ("provider", provider)):
        check_storable_name(name, f"usage({what}=)", empty=what != "model", error=WrongValue)
    counts = (input_tokens, output_tokens, cached_input_tokens, cache_write_tokens)
    for what, count in zip(("input", "output", "cached_input", "cache_write"), counts, strict=True):
        if type(count) is not int:
            raise WrongType(f"usage({what}_tokens=) must be an int, not {count!r}")
        if not 0 <= count <= TOKENS_MAX:
            raise WrongValue(f"usage({what}_tokens={count}): must be from 0 to {TOKENS_MAX:,}")
    if cached_input_tokens + cache_write_tokens > input_tokens:
        raise WrongValue(
            f"usage(): {cached_input_tokens + cache_write_tokens} cached tokens exceed {input_tokens} "
            "input tokens. input_tokens includes cached ones: if the provider counts them separately, add them"
        )
    return r.ModelUsage(str(model), str(provider), "", 1, 1, *counts)


def dollars(what: str, given: object) -> float | Decimal:
    """Check an amount of money."""
    if isinstance(given, bool) or not isinstance(given, int | float | Decimal):
        raise WrongType(f"{what} must be a number of dollars, not {given!r}")
    if not math.isfinite(given) or not 0 <= given <= COST_USD_MAX:
        raise WrongValue(f"{what}={given}: must be from 0 to {COST_USD_MAX:,} dollars")
    return Decimal(given) if isinstance(given, int) else given


def budget_of(given: object) -> int | None:
    """Return a budget in billionths of a dollar."""
    if given is None:
        return None
    budget = prices.nanos_of(dollars("budget_usd", given))
    if budget <= 0:
        raise WrongValue(f"budget_usd={given}: must be more than 0, or the run could not start")
    return budget


# -- adding up --------------------------------------------------------------------------------------------------------


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls, their tokens and their cost.

    `cost_usd` sums the known costs, or is None if none is known. `unpriced_calls` counts the other calls.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    """The part of the input tokens that came from the provider's cache."""
    cache_write_tokens: int = 0
    cost_usd: float | None = 0.0
    unpriced_calls: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def money(self) -> str:
        """The cost as text, including the number of calls of unknown cost."""
        if self.cost_usd is None:
            return "cost unknown"
        unknown = f" + {self.unpriced_calls:,} of unknown cost" if self.unpriced_calls else ""
        return format_dollars(self.cost_usd) + unknown

    def __str__(self) -> str:
        calls = f"{self.calls:,} call{'' if self.calls == 1 else 's'}"
        return f"{calls}, {self.input_tokens:,} tokens in, {self.output_tokens:,} out, {self.money}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


class SavedTotals(Totals, frozen=True, kw_only=True):
    """Steps, effects and their model calls that were not repeated."""

    steps: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        steps = f"{self.steps:,} step{'' if self.steps == 1 else 's'} not run again"
        return f"{steps}: {super().__str__()}, {format_duration(self.seconds)}"


class Usage(Totals, frozen=True, kw_only=True):
    """The result of `agent.usage()`: totals, and the same by run, model, day (UTC) and step.

    >>> agent.usage().by_model["gpt-4o"].cost_usd
    """

    by_run: dict[str, Totals] = {}
    by_model: dict[str, Totals] = {}
    by_day: dict[str, Totals] = {}
    by_step: dict[str, Totals] = {}


class Savings(SavedTotals, frozen=True, kw_only=True):
    """The result of `agent.savings()`: totals, and the same by run, model and day (UTC).

    >>> agent.savings().by_run["trip-42"].seconds
    """

    by_run: dict[str, SavedTotals] = {}
    by_model: dict[str, SavedTotals] = {}
    by_day: dict[str, SavedTotals] = {}


class UsageLine(msgspec.Struct, frozen=True):
    """One row of a view: one run, step, model and day."""

    agent: str
    run: str
    step: str
    model: str
    day: str
    usage: r.ModelUsage
    steps: int = 0
    took_us: int = 0


T = TypeVar("T", bound=Totals)


def group_totals(kind: Callable[[Sequence[UsageLine]], T], lines: Iterable[UsageLine], by: str) -> dict[str, T]:
    """Return the totals for each run, model, day, step or agent, sorted by name."""
    groups: dict[str, list[UsageLine]] = {}
    for line in lines:
        groups.setdefault(getattr(line, by), []).append(line)
    return {name: kind(groups[name]) for name in sorted(groups)}


def _sum_lines(lines: Sequence[UsageLine]) -> dict[str, Any]:
    whole = r.ModelUsage("", calls=0)
    for line in lines:
        whole += line.usage
    known = whole.calls > whole.unpriced or not whole.calls
    return {
        "calls": whole.calls,
        "input_tokens": whole.input_tokens,
        "output_tokens": whole.output_tokens,
        "cached_input_tokens": whole.cached_input_tokens,
        "cache_write_tokens": whole.cache_write_tokens,
        "cost_usd": whole.cost / prices.NANOS if known else None,
        "unpriced_calls": whole.unpriced,
    }


def totals_of(lines: Sequence[UsageLine]) -> Totals:
    """Sum up usage."""
    return Totals(**_sum_lines(lines))


def sum_savings(lines: Sequence[UsageLine]) -> SavedTotals:
    """Sum up savings."""
    seconds = sum(line.took_us for line in lines) / 1e6
    return SavedTotals(**_sum_lines(lines), steps=sum(line.steps for line in lines), seconds=seconds)


def usage_of(lines: Sequence[UsageLine]) -> Usage:
    """Return the result of `agent.usage()`."""
    by = partial(group_totals, totals_of, lines)
    return Usage(**_sum_lines(lines), by_run=by("run"), by_model=by("model"), by_day=by("day"), by_step=by("step"))


def savings_of(lines: Sequence[UsageLine]) -> Savings:
    """Return the result of `agent.savings()`."""
    by, whole = partial(group_totals, sum_savings, lines), msgspec.structs.asdict(sum_savings(lines))
    return Savings(**whole, by_run=by("run"), by_model=by("model"), by_day=by("day"))


# -- reading ----------------------------------------------------------------------------------------------------------


def usage_lines(store: Store, agent: str = "", run: str = "") -> list[UsageLine]:
    """Return the recorded usage of all agents, one agent, or one run."""
    return [
        UsageLine(whose, of, step, model, _day(day), r.ModelUsage(model, provider, step, *counts))
        for whose, of, step, model, provider, day, *counts in store.read("usage_of", (agent, run))
    ]


def savings_lines(store: Store, agent: str = "", run: str = "") -> list[UsageLine]:
    """Return the recorded savings of all agents, one agent, or one run."""
    return [
        UsageLine(whose, of, "", model, _day(day), r.ModelUsage(model, provider, "", *counts), steps, took_us)
        for whose, of, model, provider, day, steps, took_us, *counts in store.read("savings_of", (agent, run))
    ]


class DayOfMoney(msgspec.Struct, frozen=True):
    """What model calls cost on one day (UTC), and what resuming saved."""

    day: str
    spent: float = 0.0
    saved: float = 0.0
    steps: int = 0
    """Steps and effects that were not repeated."""


def money_by_day(store: Store, agent: str = "", days: int = 30) -> list[DayOfMoney]:
    """Return the last days, today last; of one agent, or of all."""
    today = store.clock.wall_ms() // DAY_MS
    first = today - days + 1
    spent = {day: cost for day, cost, _ in store.read("spent_by_day", (agent, first))}
    saved = {day: (cost, steps) for day, cost, steps in store.read("saved_by_day", (agent, first))}
    found = []
    for day in range(first, today + 1):
        cost, steps = saved.get(day, (0, 0))
        found.append(DayOfMoney(_day(day), spent.get(day, 0) / prices.NANOS, cost / prices.NANOS, steps))
    return found


def _day(number: int) -> str:
    return moment(number * DAY_MS).date().isoformat()


def format_dollars(amount: float) -> str:
    """Format an amount of money: with cents, and four digits below a dollar.

    >>> in_dollars(1234.5), in_dollars(0.0123), in_dollars(0.00001)
    ('$1,234.50', '$0.0123', '<$0.0001')
    """
    if 0 < amount < 0.00005:
        return "<$0.0001"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def format_duration(seconds: float) -> str:
    """Format a duration.

    >>> format_duration(0.25), format_duration(75), format_duration(7325)
    ('0.2 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
