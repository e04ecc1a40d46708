"""Where stories are played: a store, a process that watches it, and the model's account beside what is seen."""

from __future__ import annotations

import json
import os
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401  before the forks, not after each one

import perdure.store.postgres.store
import perdure.store.sqlite.store  # noqa: F401  likewise
from perdure import Agent
from perdure import records as r
from perdure.errors import AlreadyAnswered, NothingToAnswer
from perdure.run.listing import RunInfo

from ..model import Model
from ..model.ops import Answer, Move, Start
from .kit import run_in_child
from .model_runner import Colour, Lines, Player

Told = dict[str, Any]
"""What is known after one move, in the types of JSON."""


def expected(moves: Sequence[Move]) -> list[Told]:
    """What the model says after each move, up to where the semantics leave the order of writes open."""
    model, told = Model(), list[Told]()
    for move in moves:
        said: Told = {}
        if isinstance(move, Answer):
            said["answer"] = "given" if model.answerable() else "NothingToAnswer"
        traces = model.play([move])
        for trace in traces:
            said |= {"ending": trace.ending, "error": trace.error, "trace": trace.observations}
        if model.reordered:
            break
        told.append(json.loads(json.dumps(said | _summary(model))))
    return told


def _summary(model: Model) -> Told:
    summary = model.summary()
    return {
        "status": summary.status,
        "run_error": summary.error or "",
        "result": summary.result,
        "state": summary.state,
        "messages": summary.messages,
        "events": sorted(summary.events),
        "questions": summary.questions,
        "executions": sorted([*call, times] for call, times in summary.executions.items()),
        "outside": summary.outside,
    }


class Stage:
    """Plays stories, each as a run of its own in one store."""

    def __init__(self, folder: Path, url: str, colour: Colour, watcher: Watcher) -> None:
        self._folder = folder
        self.url = url
        self.colour = colour
        self._watcher = watcher
        self._runs = 0

    def play(self, moves: Sequence[Move]) -> list[Told]:
        """What is seen after each move."""
        self._runs += 1
        run_id = f"run-{self._runs}"
        world = Lines(self._folder / f"{run_id}.world")
        seen = []
        for number, move in enumerate(moves):
            told: Told = {}
            if isinstance(move, Start):
                told = self._attempt(move, run_id, world, Lines(self._folder / f"{run_id}.{number}"))
            elif isinstance(move, Answer):
                told = {"answer": self._watcher.ask("answer", run_id, move.verdict, move.result)}
            seen.append(told | self._watcher.ask("look", run_id) | describe_world(world))
        return seen

    def _attempt(self, start: Start, run_id: str, world: Lines, trace: Lines) -> Told:
        status = run_in_child(lambda: Player(self.colour, self.url, run_id, start.stop, world, trace).go(start))
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the runner itself has failed: see stderr"
        lines = trace.read_all()
        ended = lines.pop() if lines and isinstance(lines[-1], dict) else {"ending": "crashed", "error": None}
        return {**ended, "trace": lines}


def describe_world(world: Lines) -> Told:
    """The world's account, its keys numbered in order of first appearance."""
    lines = world.read_all()
    ran = Counter((line[1], line[2]) for line in lines if line[0] == "ran")
    did = [line[1:4] for line in lines if line[0] == "did"]
    keys = list(dict.fromkeys(key for _, _, key in did))
    return {
        "executions": sorted([*call, times] for call, times in ran.items()),
        "outside": [[name, arg, keys.index(key) + 1] for name, arg, key in did],
    }


class Watcher:
    """Somebody elsewhere: a process that reads the store and answers, for as long as the stage stands."""

    def __init__(self, requests: TextIO, replies: TextIO) -> None:
        self._requests = requests
        self._replies = replies

    def ask(self, *request: Any) -> Any:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return json.loads(self._replies.readline())


@contextmanager
def stage(folder: Path, url: str, colour: Colour) -> Iterator[Stage]:
    """A new store with its watcher, and a folder for what happens outside of it."""
    to_watcher, from_watcher = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as for the children of the kit
        pid = os.fork()
    if pid == 0:
        try:
            _watch(url, os.fdopen(to_watcher[0]), os.fdopen(from_watcher[1], "w"))
        finally:
            traceback.print_exc()
            os._exit(1)
    os.close(to_watcher[0])
    os.close(from_watcher[1])
    try:
        with os.fdopen(to_watcher[1], "w") as requests, os.fdopen(from_watcher[0]) as replies:
            yield Stage(folder, url, colour, Watcher(requests, replies))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _watch(url: str, requests: TextIO, replies: TextIO) -> None:
    agent = Agent("a", store=url, durability="process")
    for line in requests:
        what, *rest = json.loads(line)
        reply = _look(agent, *rest) if what == "look" else _answer(agent, *rest)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _look(agent: Agent, run_id: str) -> Told:
    info = agent.runs.get(run_id)
    return {
        "status": str(info.status),
        "run_error": info.error.partition(":")[0] if info.status == r.RunStatus.FAILED else "",
        "result": info.result,
        "state": info.state,
        "messages": info.messages,
        "events": sorted(write.key for write in _writes(info) if write.op == r.WriteOp.EVENT),
        "questions": len(info.questions),
    }


def _writes(info: RunInfo) -> Iterator[r.RunWrite]:
    for event in info.events:
        match event.record:
            case r.StepDone() | r.EffectDone() | r.ItemDone():
                yield from event.record.writes
            case r.Wrote():
                yield event.record.write


def _answer(agent: Agent, run_id: str, verdict: str, result: str | None) -> str:
    """To the oldest effect in doubt that has no answer yet."""
    said: dict[str, Any] = {"done": result} if verdict == "done" else {verdict: True}
    for effect in agent.runs.get(run_id).in_doubt:
        try:
            agent.runs.answer(run_id, key=effect.key, **said)
        except AlreadyAnswered:
            continue
        except NothingToAnswer:
            break
        return "given"
    return "NothingToAnswer"
