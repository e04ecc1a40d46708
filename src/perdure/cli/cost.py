"""`perdure usage` and `perdure savings`: what models have cost, and what was not paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from ..store.base import Store
from ..usage import Line, SavedTotals, Totals, grouped, in_time, saved_of, savings_lines, totals_of, usage_lines
from .output import Output, clean
from .stores import agent_option, common, existing_store, one_agent, one_run, run_option

NO_MODEL, NO_STEP = "(no model)", "(outside of steps)"


@click.command()
@run_option
@agent_option
@click.option(
    "--by",
    type=click.Choice(["run", "agent", "day", "model", "step"]),
    default="model",
    show_default=True,
    help="One row for each of them.",
)
@common
def usage(run: str | None, agent: str | None, by: str, url: str | None, as_json: bool) -> int:
    """What calls of models have cost.

    Calls, tokens and money, as programs have recorded them with run.usage().

    Days are those of UTC. A call of a model without a known price is counted, and its cost called unknown.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        whose = _whose(store, run, agent)
        lines = usage_lines(store, whose, run or "")
    whole, rows = totals_of(lines), grouped(totals_of, _named(lines, by), by)
    if as_json:
        out.json(_as_json(whole, rows, by))
    elif not lines:
        out.line("no usage is recorded; programs do it with run.usage(model=..., input_tokens=..., output_tokens=...)")
    else:
        headers = (by.upper(), "CALLS", "TOKENS IN", "CACHED", "TOKENS OUT", "COST")
        out.table(headers, [_cells(name, one) for name, one in (*rows.items(), ("in all", whole))])
    return 0


@click.command()
@run_option
@agent_option
@click.option(
    "--by",
    type=click.Choice(["run", "agent", "day", "model"]),
    default="run",
    show_default=True,
    help="One row for each of them.",
)
@common
def savings(run: str | None, agent: str | None, by: str, url: str | None, as_json: bool) -> int:
    """What resuming has saved: the amnesia tax not paid.

    Steps that a restart from zero would have run again.

    Each counts once for each time that its run was opened again and came past it. Reading a finished run saves nothing.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        whose = _whose(store, run, agent)
        lines = savings_lines(store, whose, run or "")
    whole, rows = saved_of(lines), grouped(saved_of, _named(lines, by), by)
    if as_json:
        out.json(_as_json(whole, rows, by))
    elif not lines:
        out.line("nothing had to be saved: no run was resumed past a finished step")
    else:
        headers = (by.upper(), "STEPS", "TIME", "CALLS", "TOKENS IN", "CACHED", "TOKENS OUT", "COST")
        out.table(headers, [_saved_cells(name, one) for name, one in (*rows.items(), ("in all", whole))])
    return 0


def _whose(store: Store, run: str | None, agent: str | None) -> str:
    """The agent that is meant; empty for all of them."""
    if run is not None:
        return one_run(store, run, agent).agent
    chosen = one_agent(store, agent) if agent is not None else None
    return chosen[0] if chosen is not None else ""


def _named(lines: Sequence[Line], by: str) -> list[Line]:
    """With a name for what has none; runs of several agents are told apart."""
    several = len({line.agent for line in lines}) > 1
    return [_renamed(line, by, several) for line in lines]


def _renamed(line: Line, by: str, several: bool) -> Line:
    if by == "run" and several:
        return msgspec.structs.replace(line, run=f"{line.agent}/{line.run}")
    if by == "model" and not line.model:
        return msgspec.structs.replace(line, model=NO_MODEL)
    if by == "step" and not line.step:
        return msgspec.structs.replace(line, step=NO_STEP)
    return line


def _cells(name: str, it: Totals) -> tuple[str, ...]:
    counts = (it.calls, it.input_tokens, it.cached_input_tokens, it.output_tokens)
    return clean(name), *(f"{count:,}" for count in counts), it.money


def _saved_cells(name: str, it: SavedTotals) -> tuple[str, ...]:
    shown, *rest = _cells(name, it)
    return shown, f"{it.steps:,}", in_time(it.seconds), *rest


def _as_json(whole: Totals, rows: dict[str, Any], by: str) -> dict[str, Any]:
    parts = [{by: name, **msgspec.structs.asdict(one)} for name, one in rows.items()]
    return {"total": msgspec.structs.asdict(whole), "by": by, "rows": parts}
