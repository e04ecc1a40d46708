"""Workflows: their progress, and one as a graph with the status of every step."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

import msgspec

from perdure.server.page.of_agent import AgentQuery, ListPart, ask, show_list
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.routes.workflows import StepEntry, get_workflow, list_workflows
from perdure.server.views import PageQuery

STEPS_DRAWN = 200
"""A larger workflow is shown as a table only."""
BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, EDGE = 200, 52, 28, 40, 8


class GraphBox(msgspec.Struct, frozen=True):
    """A step where it is drawn."""

    step: StepEntry
    x: int
    y: int


class GraphLine(msgspec.Struct, frozen=True):
    """A dependency as a curve, from the bottom of one box to the top of another."""

    path: str
    done: bool


class WorkflowGraph(msgspec.Struct, frozen=True):
    """A drawing: the steps in layers, each below everything that it depends on."""

    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    lines: tuple[GraphLine, ...]


async def show_workflows(call: PageCall) -> Shown:
    """Show the workflows of an agent."""

    async def load(agent: str) -> ListPart:
        page = await list_workflows(ask(call, PageQuery(call.query.cursor or None), agent=agent))
        return ListPart(page.workflows, page.next)

    return await show_list(call, "Workflows", "workflows", load)


async def show_workflow(call: PageCall) -> Shown:
    """Show one workflow."""
    found = await get_workflow(call)
    graph = draw(found.steps) if len(found.steps) <= STEPS_DRAWN else None
    return {"title": found.name, "agent": call.path["agent"], "workflow": found, "graph": graph}


def draw(steps: list[StepEntry]) -> WorkflowGraph:
    """Lay out the steps of a workflow."""
    depths = _find_depths(steps)
    layers: dict[int, list[StepEntry]] = {}
    for step in steps:
        layers.setdefault(depths[step.step], []).append(step)
    widest = max((len(layer) for layer in layers.values()), default=1)
    width = 2 * EDGE + widest * BOX_WIDTH + (widest - 1) * GAP_X
    boxes = {
        step.step: GraphBox(step, *_place(depth, number, len(layer), width))
        for depth, layer in layers.items()
        for number, step in enumerate(layer)
    }
    lines = [_connect(boxes[other], box) for box in boxes.values() for other in box.step.depends_on if other in boxes]
    height = 2 * EDGE + len(layers) * BOX_HEIGHT + max(0, len(layers) - 1) * GAP_Y
    return WorkflowGraph(width, height, tuple(boxes.values()), tuple(lines))


def _find_depths(steps: list[StepEntry]) -> Mapping[int | str, int]:
    """Return the layer of each step: one below the lowest that it depends on."""
    above = {step.step: step.depends_on for step in steps}
    depths: dict[int | str, int] = {}
    for name in TopologicalSorter(above).static_order():
        depths[name] = max((depths[other] + 1 for other in above.get(name, ())), default=0)
    return depths


def _place(depth: int, number: int, count: int, width: int) -> tuple[int, int]:
    used = count * BOX_WIDTH + (count - 1) * GAP_X
    return (width - used) // 2 + number * (BOX_WIDTH + GAP_X), EDGE + depth * (BOX_HEIGHT + GAP_Y)


def _connect(above: GraphBox, below: GraphBox) -> GraphLine:
    x1, y1 = above.x + BOX_WIDTH // 2, above.y + BOX_HEIGHT
    x2, y2 = below.x + BOX_WIDTH // 2, below.y
    middle = (y1 + y2) // 2
    return GraphLine(f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}", above.step.status in ("completed", "skipped"))


PAGE = Page(path="/workflows", show=show_workflows, template="workflows.html", query=AgentQuery, section="Workflows")
ONE = Page(
    path="/workflows/{agent}/{workflow}", show=show_workflow, template="workflow.html", live=True, section="Workflows"
)
