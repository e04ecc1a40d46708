"""`perdure workflows`: show the workflows of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.cli.output import CommandOutput, clean, format_time, format_value
from perdure.cli.store_option import add_common_options, agent_option, open_existing_store
from perdure.errors import WorkflowNotFound
from perdure.journal.trees.tolerant_read import tolerant
from perdure.values.hints import name_hint
from perdure.values.limits import NUMBER_MAX
from perdure.work.workflows import rendering
from perdure.work.workflows.plan import WorkflowSnapshot, WorkflowStep
from perdure.work.workflows.read import WorkflowReader, WorkflowRef

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.store.base import Store

T = TypeVar("T")
_STYLES = {"completed": "green", "in_progress": "cyan", "failed": "bold red", "blocked": "yellow", "skipped": "dim"}


@click.group(invoke_without_command=True)
@agent_option
@add_common_options
@click.pass_context
def workflows(context: click.Context, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show the workflows of agents, with the status of every step."""
    return _print_list(url, agent, as_json) if context.invoked_subcommand is None else 0


@workflows.command("list")
@agent_option
@add_common_options
def list_workflows(agent: str | None, url: str | None, as_json: bool) -> int:
    """List the workflows and their progress."""
    return _print_list(_outer(url, "url"), _outer(agent, "agent"), _outer(as_json, "as_json"))


@workflows.command("show")
@click.argument("name")
@agent_option
@click.option("--version", type=click.IntRange(1, NUMBER_MAX), help="An older version. Default: the newest.")
@click.option("--markdown", is_flag=True, help="Print a checklist in Markdown.")
@click.option("--mermaid", is_flag=True, help="Print a flow chart as Mermaid text.")
@add_common_options
def show_workflow(
    name: str,
    agent: str | None,
    version: int | None,
    markdown: bool,
    mermaid: bool,
    url: str | None,
    as_json: bool,
) -> int:
    """Show one workflow: finished steps, steps in progress with their process, next steps."""
    as_json = _outer(as_json, "as_json")
    out = CommandOutput(as_json)
    with open_existing_store(_outer(url, "url")) as store:
        plan = _find_workflow(store, name, _outer(agent, "agent"), version)
    if as_json:
        out.json(_as_json(plan))
    elif markdown or mermaid:
        lines = (rendering.mermaid(plan) if mermaid else rendering.markdown(plan)).splitlines()
        print("\n".join(map(clean, lines)))
    else:
        _print_tree(out, plan)
    return 0


def _outer(given: T, option: str) -> T:
    """Return an option of a subcommand, which may also be given before the subcommand."""
    context = click.get_current_context().parent
    outer: T = context.params.get(option, given) if context is not None else given
    return given or outer


def _list_workflows(store: Store, agent: str | None) -> list[WorkflowRef]:
    reader = WorkflowReader(store)
    names = [name for name, *_ in store.read("all_agents") if agent in (None, name)]
    return [which for name in names for which in reader.list_workflows(name)]


def _find_workflow(store: Store, name: str, agent: str | None, version: int | None) -> WorkflowSnapshot:
    reader, there = WorkflowReader(store, unpack=tolerant(store)), _list_workflows(store, agent)
    found = [which for which in there if which.name == name]
    if len(found) > 1:
        agents = ", ".join(clean(which.agent) for which in found)
        raise click.UsageError(f"several agents have a workflow of that name: {agents}; choose one with --agent")
    if not found:
        names = [which.name for which in there]
        raise WorkflowNotFound(f"there is no workflow {name!r}", hint=name_hint(name, names))
    return reader.plan(WorkflowRef(found[0].agent, name, version))


def _print_list(url: str | None, agent: str | None, as_json: bool) -> int:
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        plans = [WorkflowReader(store).read_without_values(which) for which in _list_workflows(store, agent)]
    if as_json:
        out.json([_summary(plan) for plan in plans])
    elif not plans:
        out.line("no workflows" if agent is None else "no such workflows")
    else:
        out.table(("WORKFLOW", "AGENT", "VERSION", "STATUS", "DONE", "NEXT"), [_cells(plan) for plan in plans])
    return 0


def _cells(plan: WorkflowSnapshot) -> tuple[str, ...]:
    following = plan.possible()
    left = clean(rendering.label(following[0])) if following else ""
    done = f"{plan.done} of {len(plan.steps)}, {plan.progress}%"
    return clean(plan.name), clean(plan.agent), str(plan.version), plan.status.value, done, left


def _print_tree(out: CommandOutput, plan: WorkflowSnapshot) -> None:
    head = clean(rendering.headline(plan))
    if not out.rich:
        print("\n".join(map(clean, rendering.text(plan).splitlines())))
        return
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(head, style="bold"))
    path = [tree]
    for depth, step in rendering.tree(plan):
        del path[depth + 1 :]
        path.append(path[depth].add(Text(_line(plan, step), style=_STYLES.get(step.status, ""))))
    out.tree(tree)


def _line(plan: WorkflowSnapshot, step: WorkflowStep) -> str:
    told = rendering.remark(plan, step)
    result = f" -> {format_value(step.result, 60)}" if step.result is not None else ""
    return f"{rendering.SIGNS[step.status]} {clean(rendering.label(step))}{result}" + (
        f"  ({clean(told)})" if told else ""
    )


def _summary(plan: WorkflowSnapshot) -> dict[str, Any]:
    return {
        "name": plan.name,
        "agent": plan.agent,
        "version": plan.version,
        "status": plan.status.value,
        "progress": plan.progress,
        "done": plan.done,
        "steps": len(plan.steps),
        "made_at": _iso(plan.at),
    }


def _as_json(plan: WorkflowSnapshot) -> dict[str, Any]:
    steps = [
        {
            "step": step.step,
            "action": step.action,
            "title": step.title,
            "args": step.args,
            "depends_on": list(step.depends_on),
            "status": step.status.value,
            "result": step.result,
            "note": step.note,
            "claimed_by": step.claimed_by,
            "run": step.run,
            "changed_at": _iso(step.changed_at) if step.changed_at is not None else None,
        }
        for step in plan.steps
    ]
    return {**_summary(plan), "steps": steps}


def _iso(at: datetime) -> str:
    return format_time(int(at.timestamp() * 1000))
