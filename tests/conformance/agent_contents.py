"""All that an agent has, read noun by noun through its public face: what must be the same wherever it lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from perdure import Agent
from perdure.run.listing import RunSummary

QUESTION = "Where does Ann live?"


def read_everything(agent: Agent, folder: Path, spaces: tuple[str, ...]) -> dict[str, Any]:
    """What its users can ask it for. Numbers of streams are left out, and what is called by them is told by name."""
    return {
        "runs": runs_of(agent),
        "state": {space: state_of(agent, space) for space in spaces},
        "checkpoints": checkpoints_of(agent),
        "artifacts": artifacts_of(agent),
        "events": events_of(agent),
        "workflows": workflows_of(agent),
        "threads": threads_of(agent),
        "memories": memories_of(agent),
        "queues": sorted(agent.queues.list(), key=lambda item: item.name),
        "money": (str(agent.usage()), agent.usage(), str(agent.savings()), agent.savings()),
        "workspace": workspace_of(agent, folder),
    }


def runs_of(agent: Agent) -> dict[str, Any]:
    listed = agent.runs.list()
    names = {run.stream: run.id for run in listed}
    return {run.id: (describe_line(run, names), run_of(agent, run)) for run in listed}


def describe_line(run: RunSummary, names: dict[int, str]) -> Any:
    """A line of the list; runs that it refers to by their names."""
    whose = (names.get(run.parent, ""), names.get(run.origin, ""))
    return run.status, run.started_at, run.changed_at, run.resumes, run.error, run.cut, whose


def run_of(agent: Agent, summary: RunSummary) -> Any:
    if summary.status == "queued":
        return None
    run = agent.runs.get(summary.id)
    entries = [(event.seq, event.at, event.kind) for event in run.events]
    doubts = [(one.name, one.key, one.arguments) for one in run.in_doubt]
    values = (run.input, run.result, run.state, run.messages, doubts, run.questions, entries)
    past = [] if run.archive else [(at.state, at.messages) for at in _past(agent, summary.id, run.events)]
    return *values, past, run.usage, run.savings, run.archive[-40:]


def _past(agent: Agent, run: str, events: list[Any]) -> list[Any]:
    return [agent.runs.get(run, at=event.seq) for event in events[:: max(1, len(events) // 3)]]


def state_of(agent: Agent, space: str) -> Any:
    items = agent.state.items(space)
    past = {key: agent.state.history(space, key) for key, _ in items}
    return items, past, agent.state.revision(space), [agent.state.version(space, key) for key, _ in items]


def checkpoints_of(agent: Agent) -> Any:
    listed = agent.checkpoint.list()
    return [
        (checkpoint, agent.checkpoint.restore(checkpoint.name, checkpoint.version)) for checkpoint in listed
    ], agent.checkpoint.retention()


def artifacts_of(agent: Agent) -> Any:
    versions = [one for artifact in agent.artifacts.list() for one in agent.artifacts.versions(artifact.name)]
    shares = [
        usage.info for usage in agent.artifacts.usage()
    ]  # how many bytes each added depends on the ids of a store
    return [(artifact, agent.artifacts.load(artifact.name, artifact.version)) for artifact in versions], shares


def events_of(agent: Agent) -> Any:
    noted = [msgspec.structs.replace(event, position="") for event in agent.events.read()]
    replayed = agent.events.replay(lambda seen, event: [*seen, event.data], [], snapshot="all", version=1, every=1)
    return noted, replayed


def workflows_of(agent: Agent) -> Any:
    every = [one for workflow in agent.workflows.list() for one in agent.workflows.versions(workflow.name)]
    nobody = {"claimed_by": "", "ours": False}
    return [
        (
            workflow.name,
            workflow.version,
            workflow.progress,
            [msgspec.structs.replace(step, **nobody) for step in workflow.steps],
            workflow.results,
        )
        for workflow in every
    ]


def threads_of(agent: Agent) -> Any:
    found = []
    for thread in agent.threads.list():
        points = agent.threads.history(thread.id)
        found.append((thread, [(one, agent.threads.state(thread.id, one.id, ns=one.ns)) for one in points]))
    return found, agent.threads.retention()


def memories_of(agent: Agent) -> Any:
    memory = agent.memory

    def placeless(found: Any) -> list[Any]:
        return [msgspec.structs.replace(item, entry=(0, 0)) for item in found]

    every = placeless(memory.list(all=True))
    abouts = sorted({item.about for item in every})
    return {
        "all": every,
        "now": placeless(memory.list()),
        "then": {year: placeless(memory.list(as_of=f"{year}-06-01")) for year in (2019, 2021, 2024)},
        "history": {about: placeless(memory.history(about)) for about in abouts if about},
        "against": [placeless(pair) for pair in memory.contradictions()],
        "found": [
            (recalled.id, round(recalled.score, 5), recalled.why.words) for recalled in memory.recall(QUESTION, k=9)
        ],
        "kept": memory.retention(),
    }


def workspace_of(agent: Agent, folder: Path) -> dict[str, Any]:
    """Its documents, in a folder that is made of what the agent knows; not what is made anew of it."""
    home = agent.workspace(folder, git=False)
    made = {"PROGRESS.md", "HANDOFF.md"}
    return {path: (home.read(path), home.history(path)) for path in home.files() if path not in made}
