"""`perdure playbooks`: the pages of playbooks, and what they have done."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import add_common_options, agent_option, open_engine, open_existing_store, url_of
from perdure.errors import PlaybookNotFound
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync
from perdure.run.usage import format_dollars
from perdure.values.hints import name_hint
from perdure.values.limits import NUMBER_MAX
from perdure.work.playbooks import page, shelf
from perdure.work.playbooks.definition import Playbook
from perdure.work.playbooks.report import PlaybookReport, StepReport, read_report

name_argument = click.argument("name")


@click.group(invoke_without_command=True)
@agent_option
@add_common_options
@click.pass_context
def playbooks(context: click.Context, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show playbooks: their pages, success and cost by step and tier, what they save."""
    return _print_list(url, agent, as_json) if context.invoked_subcommand is None else 0


@playbooks.command("list")
@agent_option
@add_common_options
def list_playbooks(agent: str | None, url: str | None, as_json: bool) -> int:
    """List the playbooks, with their plays and savings."""
    return _print_list(url, agent, as_json)


@playbooks.command("show")
@name_argument
@click.option("--version", type=click.IntRange(1, NUMBER_MAX), help="An older version. Default: the newest.")
@agent_option
@add_common_options
def show_playbook(name: str, version: int | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Print the page of a playbook as Markdown. `edit` takes it back."""
    with _open_owner(name, agent, url) as engine:
        book = drive_sync(engine.store, shelf.get(engine, name, version))
    return _print_page(book, book.text, as_json)


@playbooks.command("skill")
@name_argument
@agent_option
@add_common_options
def show_skill(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Print a playbook as a SKILL.md for coding agents."""
    with _open_owner(name, agent, url) as engine:
        book = drive_sync(engine.store, shelf.get(engine, name))
    return _print_page(book, page.to_skill(book), as_json)


@playbooks.command("edit")
@name_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@agent_option
@add_common_options
def edit_playbook(name: str, file: Path, agent: str | None, url: str | None, as_json: bool) -> int:
    """Replace a playbook by an edited page: its next version. `-` reads standard input."""
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    with _open_owner(name, agent, url) as engine:
        before = drive_sync(engine.store, shelf.get(engine, name))
        made = drive_sync(engine.store, shelf.save(engine, page.from_markdown(before, text)))
    out = CommandOutput(as_json)
    if as_json:
        out.json({"name": made.name, "version": made.version, "changed": made.version != before.version})
    else:
        changed = f"is now version {made.version}" if made.version != before.version else "has not changed"
        out.line(f"playbook {clean(name)} {changed}")
    return 0


@playbooks.command("report")
@name_argument
@agent_option
@add_common_options
def report_playbook(name: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show success, cost and escalations by step and tier, and what the playbook saves."""
    with _open_owner(name, agent, url) as engine:
        made = drive_sync(engine.store, read_report(engine, name))
    out = CommandOutput(as_json)
    if as_json:
        out.json(report_json(engine.name, made))
    else:
        print("\n".join(map(clean, str(made).splitlines())))
    return 0


@playbooks.command("lessons")
@name_argument
@click.option("--accept", is_flag=True, help="Make them pitfalls of the playbook: its next version.")
@agent_option
@add_common_options
def list_lessons(name: str, accept: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """List the corrections that stronger tiers have made."""
    with _open_owner(name, agent, url) as engine:
        offered = drive_sync(engine.store, shelf.lessons(engine, name))
        if accept:
            drive_sync(engine.store, shelf.accept(engine, name, None))
    out = CommandOutput(as_json)
    if as_json:
        out.json([{**msgspec.to_builtins(one), "accepted": accept} for one in offered])
    elif not offered:
        out.line("no lessons")
    else:
        out.table(("STEP", "LESSON"), [(clean(one.step), clean(one.text)) for one in offered])
    return 0


@contextmanager
def _open_owner(name: str, agent: str | None, url: str | None) -> Iterator[Engine]:
    """Open the agent that has the playbook."""
    owners = [owner for owner, book in _all_playbooks(url, agent) if book == name]
    if len(owners) > 1:
        raise click.UsageError(f"several agents have a playbook of that name: {', '.join(owners)}; add --agent")
    if not owners:
        known = [book for _, book in _all_playbooks(url, agent)]
        raise PlaybookNotFound(f"there is no playbook {name!r}", hint=name_hint(name, known))
    with open_engine(owners[0], url_of(url)) as engine:
        yield engine


def _all_playbooks(url: str | None, agent: str | None) -> list[tuple[str, str]]:
    with open_existing_store(url) as store:
        names = [name for name, *_ in store.read("all_agents") if agent in (None, name)]
    found = []
    for owner in names:
        with open_engine(owner, url_of(url)) as engine:
            found += [(owner, book.name) for book in drive_sync(engine.store, shelf.list_playbooks(engine))]
    return found


def _print_list(url: str | None, agent: str | None, as_json: bool) -> int:
    reports = []
    for owner, name in _all_playbooks(url, agent):
        with open_engine(owner, url_of(url)) as engine:
            reports.append((owner, drive_sync(engine.store, read_report(engine, name))))
    out = CommandOutput(as_json)
    if as_json:
        out.json([report_json(owner, report) for owner, report in reports])
    elif not reports:
        out.line("no playbooks")
    else:
        heads = ("PLAYBOOK", "AGENT", "VERSION", "STEPS", "PLAYS", "COST", "SAVED")
        out.table(heads, [_cells(owner, report) for owner, report in reports])
    return 0


def _cells(owner: str, report: PlaybookReport) -> tuple[str, ...]:
    saved = "" if report.saved_share is None else f"{report.saved_share:.0%}"
    counts = str(report.version), str(len(report.steps)), f"{report.plays:,}"
    return clean(report.playbook), clean(owner), *counts, format_dollars(report.cost), saved


def _print_page(book: Playbook, text: str, as_json: bool) -> int:
    if as_json:
        CommandOutput(as_json).json({**msgspec.to_builtins(book), "text": text})
    else:
        print("\n".join(map(clean, text.splitlines())))
    return 0


def report_json(owner: str, report: PlaybookReport) -> dict[str, Any]:
    """Return a report as the fields that `--json` prints."""
    return {
        "playbook": report.playbook,
        "agent": owner,
        "version": report.version,
        "plays": report.plays,
        "cost": report.cost,
        "strongest": report.strongest,
        "saved_share": report.saved_share,
        "saved_per_1000": report.saved_per_1000,
        "unaided_saved_per_1000": report.unaided_saved_per_1000,
        "cacheable": report.cacheable,
        "lessons": report.lessons,
        "steps": [_step_json(step) for step in report.steps],
        "chart": msgspec.to_builtins(report.chart),
    }


def _step_json(step: StepReport) -> dict[str, Any]:
    tiers = [
        {
            "tier": tier,
            "tries": one.tries,
            "successes": one.successes,
            "cost": one.cost,
            "cost_per_success": one.cost_per_success,
            "interval": list(one.interval),
            "drifting": one.drifting,
            "model": one.model,
        }
        for tier, one in step.tiers.items()
    ]
    return {"step": step.step, "escalations": step.escalations, "explored": step.explored, "tiers": tiers}
