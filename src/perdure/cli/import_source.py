"""`perdure import SOURCE PATH`: what other tools have stored becomes threads and memories."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click
import msgspec

from perdure.cli.completion_values import complete_agents
from perdure.cli.output import CommandOutput, clean, format_count
from perdure.cli.store_option import add_common_options, repeat_options
from perdure.importers.ledger import ImportCounts, ImportPolicy
from perdure.importers.sources import SOURCES, ImportReport, SourceImport
from perdure.kernel.engine import Engine
from perdure.mcp.handshake import DEFAULT_AGENT

UNREAD_SHOWN = 20


def _make_command(source: str) -> click.Command:
    """Return the command of one source."""
    known = SOURCES[source]

    @click.command(name=f"import {source}", help=known.help)
    @click.argument("path", required=known.default is None, type=click.Path(path_type=Path))
    @click.option(
        "--agent",
        default=DEFAULT_AGENT,
        show_default=True,
        metavar="NAME",
        help="The agent that gets it.",
        shell_complete=complete_agents,
    )
    @click.option("--user", metavar="NAME", default="", help="The user that memories belong to.")
    @click.option("--trust", is_flag=True, help="Trust the imported text. Default: it is marked as untrusted.")
    @click.option("--memories", is_flag=True, help="Also make what was said in conversations memories, for recall.")
    @click.option("--again", is_flag=True, help="Also import what was deleted here since the last import.")
    @click.option("--dry-run", is_flag=True, help="Only report what would be imported.")
    @add_common_options
    def command(
        path: Path | None,
        agent: str,
        user: str,
        trust: bool,
        memories: bool,
        again: bool,
        dry_run: bool,
        url: str | None,
        as_json: bool,
    ) -> int:
        policy = ImportPolicy(source, float(trust), user, memories, again, dry_run)
        place = path if path is not None else known.default() if known.default is not None else Path()
        return _import(CommandOutput(as_json), agent, url, place, policy)

    return command


def _import(out: CommandOutput, agent: str, url: str | None, path: Path, policy: ImportPolicy) -> int:
    with closing(Engine(agent, store=url)) as engine:
        with out.progress(f"importing {policy.source}") as progress:
            work = SourceImport(engine, policy, path, progress)
            try:
                report = work.run()
            except KeyboardInterrupt:
                _print_interrupted(work.report())
                raise
    _print_report(out, report, repeat_options(url, agent))
    return int(not (report.threads.total or report.memories.total) and report.unread_count > 0)


def _print_interrupted(report: ImportReport) -> None:
    done = report.threads.total + report.memories.total
    print(f"{format_count(done, 'entry', 'entries')} imported; the same command continues there", file=sys.stderr)


def _print_report(out: CommandOutput, report: ImportReport, options: str) -> None:
    if out.as_json:
        out.json(msgspec.to_builtins(report))
        return
    out.line(clean(f"{report.path}: {_describe(report.threads, 'thread')}, {_describe(report.memories, 'memory')}"))
    for place in report.unread[:UNREAD_SHOWN]:
        out.line(clean(f"not read: {place.path}: {place.why}"))
    if report.unread_count > UNREAD_SHOWN:
        out.line(f"not read: {report.unread_count - UNREAD_SHOWN} more; --json lists them")
    if report.dry_run:
        out.line("nothing was written")
    elif report.threads.total:
        out.line(clean(f"`perdure threads{options}` lists the threads"))


def _describe(counts: ImportCounts, noun: str) -> str:
    total = format_count(counts.total, noun, "memories" if noun == "memory" else "")
    details = [f"{getattr(counts, name)} {name}" for name in ("new", "updated", "unchanged") if getattr(counts, name)]
    return f"{total} ({', '.join(details)})" if details else total


import_claude_code = _make_command("claude-code")
import_chatgpt = _make_command("chatgpt")
import_mem0 = _make_command("mem0")
import_letta = _make_command("letta")
import_markdown = _make_command("markdown")
