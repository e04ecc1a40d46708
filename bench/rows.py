"""One line of the table: what was measured, what it may be, and whether it is."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """What a row comes to."""

    OK = "ok"
    OVER_TARGET = "over target"
    FAIL = "FAIL"
    FIGURE = ""
    """A figure without a bar."""
    NOT_MEASURED = "not measured"


class Bar(msgspec.Struct, frozen=True):
    """What a figure should be (`target`) and must be (`fail`); `relation` reads "measured relation target"."""

    relation: str
    target: float
    fail: float

    def judge(self, measured: float) -> Verdict:
        """Where a figure stands."""
        if _holds(measured, self.relation, self.target):
            return Verdict.OK
        return Verdict.OVER_TARGET if _holds(measured, self.relation, self.fail) else Verdict.FAIL


def _holds(measured: float, relation: str, bound: float) -> bool:
    if relation == "==":
        return measured == bound
    return measured <= bound if relation == "<=" else measured >= bound


def exactly(count: float) -> Bar:
    """A count that may be nothing else."""
    return Bar("==", count, count)


def at_most(target: float, fail: float | None = None) -> Bar:
    """The smaller the better; without `fail`, missing the target is a failure."""
    return Bar("<=", target, target if fail is None else fail)


def at_least(target: float, fail: float | None = None) -> Bar:
    """The larger the better; without `fail`, missing the target is a failure."""
    return Bar(">=", target, target if fail is None else fail)


class Row(msgspec.Struct, frozen=True):
    """A figure and its verdict. `hard` rows are counts: no noise can excuse them."""

    section: str
    what: str
    measured: float | None
    unit: str = ""
    bar: Bar | None = None
    hard: bool = False
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        """Whether the figure is what it may be."""
        if self.measured is None:
            return Verdict.NOT_MEASURED
        return self.bar.judge(self.measured) if self.bar is not None else Verdict.FIGURE

    @property
    def shown(self) -> str:
        """The figure as people read it."""
        return number(self.measured, self.unit) if self.measured is not None else "-"

    @property
    def target(self) -> str:
        """The bar to meet."""
        return f"{_sign(self.bar)} {number(self.bar.target, self.unit)}" if self.bar is not None else ""

    @property
    def fails(self) -> str:
        """The bar that fails the run."""
        if self.bar is None:
            return ""
        opposite = {"==": "≠", "<=": ">", ">=": "<"}[self.bar.relation]
        return f"{opposite} {number(self.bar.fail, self.unit)}"


def _sign(bar: Bar) -> str:
    return {"==": "=", "<=": "≤", ">=": "≥"}[bar.relation]


def number(value: float, unit: str = "") -> str:
    """A figure as people read it."""
    if value == int(value) and abs(value) < 1e6:
        text = f"{int(value):,}"
    elif abs(value) >= 100:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return f"{text} {unit}".rstrip()
