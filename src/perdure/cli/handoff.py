"""`perdure handoff RUN`: a brief in Markdown for whoever goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from ..files import replace_file
from ..handoff import Handoff, handoff_of
from ..handoff.desk import TITLE, AgentHandoff
from ..trees.tolerant import tolerant
from .completed import completed_runs
from .output import Output, clean, when
from .stores import agent_option, common, existing_store, one_agent, one_run


@click.command()
@click.argument("run", required=False, shell_complete=completed_runs)
@agent_option
@click.option("--output", "path", metavar="FILE", type=click.Path(dir_okay=False), help="Write it there.")
@common
def handoff(run: str | None, agent: str | None, path: str | None, url: str | None, as_json: bool) -> int:
    """Write a brief for whoever goes on with a run: a person, a process, a model.

    What was asked, what is done, in doubt, waited for and decided, state, last messages, cost, and how to go on.

    Without RUN it is about all that an agent has left to do. FILE may replace an older brief, and nothing else.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        if run is not None:
            found = one_run(store, run, agent)
            brief = handoff_of(store, found.agent, found.id, unpack=tolerant(store))
            told, page = _as_json(brief), brief.markdown()
        else:
            meant = one_agent(store, agent)
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
    """As a whole or not at all; in place of an older brief only."""
    if path.exists() and not path.read_text("utf-8", errors="replace").startswith(TITLE):
        raise click.UsageError(f"{path} is no brief of ours, and stays as it is; name another FILE")
    replace_file(path, page.encode("utf-8"), mode=0o666)


def _desk_as_json(desk: AgentHandoff) -> dict[str, Any]:
    return {
        "agent": desk.agent,
        "left": [run.id for run in desk.left],
        "runs": [_as_json(it) for it in desk.briefs],
        "markdown": str(desk),
    }


def _as_json(brief: Handoff) -> dict[str, Any]:
    run = brief.summary
    return {
        "id": run.id,
        "agent": run.agent,
        "status": run.status.value,
        "store": brief.store,
        "at": when(brief.at),
        "last_entry_at": when(brief.last_entry_at),
        "error": run.error,
        "input": brief.input,
        "result": brief.result,
        "counts": brief.counts,
        "items": brief.items,
        "done": [msgspec.structs.asdict(one) for one in brief.done],
        "in_doubt": [{"name": it.name, "key": it.key, "arguments": it.arguments} for it in brief.in_doubt],
        "questions": [{"kind": it.kind, "text": it.text, "choices": it.choices} for it in brief.questions],
        "progress": msgspec.structs.asdict(brief.progress),
        "state": brief.state,
        "messages": brief.messages,
        "decisions": [{"kind": it.kind, "payload": it.payload, "at": when(it.at)} for it in brief.decisions],
        "children": [{"id": it.id, "agent": it.agent, "status": it.status.value} for it in brief.children],
        "cost_usd": brief.usage.cost_usd,
        "markdown": brief.markdown(),
    }
