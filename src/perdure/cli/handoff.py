"""`perdure handoff RUN`: a Markdown brief for whoever continues the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.cli.completion_values import complete_runs
from perdure.cli.output import CommandOutput, clean, format_time
from perdure.cli.store_option import add_common_options, agent_option, find_agent, find_run, open_existing_store
from perdure.journal.trees.tolerant_read import tolerant
from perdure.platform.files import replace_file
from perdure.presence.handoff import HandoffBrief, handoff_of
from perdure.presence.handoff.pending import TITLE, AgentHandoff


@click.command()
@click.argument("run", required=False, shell_complete=complete_runs)
@agent_option
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write to this file.")
@add_common_options
def handoff(run: str | None, agent: str | None, path: str | None, url: str | None, as_json: bool) -> int:
    """Write a brief for whoever continues a run: a person, a process or a model.

    It has the task, finished work, effects in doubt, waits, decisions, state, last messages, cost, and how to continue.

    Without RUN it covers all open work of an agent. FILE may replace an older brief, but no other file.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        if run is not None:
            found = find_run(store, run, agent)
            brief = handoff_of(store, found.agent, found.id, unpack=tolerant(store))
            told, page = _as_json(brief), brief.markdown()
        else:
            meant = find_agent(store, agent)
            if meant is None:
                raise click.UsageError("there is no agent in this store yet: nothing to hand over")
            desk = AgentHandoff(store, *meant)
            told, page = _desk_as_json(desk), str(desk)
    page = "\n".join(map(clean, page.rstrip("\n").split("\n"))) + "\n"
    if path is not None:
        _write(Path(path), page)
    if as_json:
        out.json(told)
    elif path is not None:
        out.line(clean(f"wrote {path}"))
    else:
        print(page, end="")
    return 0


def _write(path: Path, page: str) -> None:
    """Write the file atomically, replacing only an older brief."""
    if path.exists() and not path.read_text("utf-8", errors="replace").startswith(TITLE):
        raise click.UsageError(f"{path} is not a brief and was not overwritten; give another FILE")
    replace_file(path, page.encode("utf-8"), mode=0o666)


def _desk_as_json(desk: AgentHandoff) -> dict[str, Any]:
    return {
        "agent": desk.agent,
        "left": [run.id for run in desk.left],
        "runs": [_as_json(page) for page in desk.briefs],
        "markdown": str(desk),
    }


def _as_json(brief: HandoffBrief) -> dict[str, Any]:
    run = brief.summary
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "store": brief.store,
        "at": format_time(brief.at),
        "last_entry_at": format_time(brief.last_entry_at),
        "error": run.error,
        "input": brief.input,
        "result": brief.result,
        "counts": brief.counts,
        "items": brief.items,
        "done": [msgspec.structs.asdict(one) for one in brief.done],
        "in_doubt": [
            {"name": effect.name, "key": effect.key, "arguments": effect.arguments} for effect in brief.in_doubt
        ],
        "questions": [
            {"kind": question.kind, "text": question.text, "choices": question.choices} for question in brief.questions
        ],
        "progress": msgspec.structs.asdict(brief.progress),
        "state": brief.state,
        "messages": brief.messages,
        "decisions": [
            {"kind": note.kind, "payload": note.payload, "at": format_time(note.at)} for note in brief.decisions
        ],
        "children": [
            {"id": summary.id, "agent": summary.agent, "status": summary.status.value} for summary in brief.children
        ],
        "cost_usd": brief.usage.cost_usd,
        "markdown": brief.markdown(),
    }
