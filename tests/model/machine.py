"""The store as the semantics see it: one run, its lease, its questions, the clock, and the world outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from perdure.errors import InputChanged, LeaseLost, NothingToAnswer, PerdureError, RunBusy, RunFinished, RunWaiting
from perdure.values.limits import LEASE_SECONDS

from .journal import UNRESOLVED, Ident, Record, View, check_transition, durable, writes_of
from .ops import Answer, Arg, CodeError, Effect, Kill, Move, PassTime, Program, Start, Stop, Wake
from .process import Process

Ending = Literal["finished", "failed", "interrupted", "waiting", "crashed", "frozen", "refused"]


class Observation(NamedTuple):
    """What the code of the run has seen at one place."""

    path: str
    what: Literal["returned", "raised", "entered"]
    value: Any
    state: tuple[tuple[str, int], ...]
    messages: tuple[str, ...]
    result: int | None


@dataclass(slots=True)
class Trace:
    """One attempt from the inside. `error` is the type that left the `with` block, or refused to open it."""

    resumed: bool
    observations: list[Observation] = field(default_factory=list)
    ending: Ending | None = None
    error: str | None = None
    points: list[tuple[str, str]] = field(default_factory=list, repr=False)
    """Every (point, path) that it came to: the stops that there are."""
    process: Process | None = field(default=None, repr=False, compare=False)

    def observe(self, path: str, what: Literal["returned", "raised", "entered"], value: Any, view: View) -> None:
        state = tuple(sorted(view.state.items()))
        self.observations.append(Observation(path, what, value, state, view.messages, view.result))


@dataclass(frozen=True, slots=True)
class Summary:
    """The run from the outside, and the outside itself. Keys are numbered in order of first appearance."""

    status: str
    error: str | None
    result: int | None
    state: dict[str, int]
    messages: tuple[str, ...]
    events: tuple[str, ...]
    questions: int
    executions: dict[tuple[str, Arg], int]
    outside: tuple[tuple[str, Arg, int], ...]


class World:
    """What no crash undoes: how often bodies ran, and which effects happened."""

    def __init__(self) -> None:
        self.executions: Counter[tuple[str, Arg]] = Counter()
        self.happened: list[tuple[str, Arg, int]] = []
        self._results: dict[int, str] = {}
        self._keys = 0

    def new_key(self) -> int:
        """Section 2: "made with the intent, stable over every retry, never derived from arguments"."""
        self._keys += 1
        return self._keys

    def execute(self, name: str, arg: Arg) -> int:
        self.executions[name, arg] += 1
        return self.executions[name, arg]

    def happen(self, name: str, arg: Arg, key: int, result: str) -> None:
        self.happened.append((name, arg, key))
        self._results[key] = result

    def ask(self, op: Effect, key: int) -> tuple[str, str]:
        """The answer of `check`, and the result when done; "raising counts as Unknown"."""
        if op.check == "truth":
            return ("done", self._results[key]) if key in self._results else ("not_done", "")
        if op.check in ("done", "not_done"):
            return op.check, "adopted"
        return "unknown", ""


class Model:
    """One run in one store. `attempt` is a process that opens it; between attempts the outside moves."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = 0.0
        self.journal: list[Record] = []
        self.status = "new"
        self.error: str | None = None
        self.result: int | None = None
        self.input: Arg | None = None
        self.fence = 0
        self.reordered = False
        """The code has changed, or a step that failed has run again, so that something was written before recorded
        writes that the code had not come to, or recorded messages have changed places. The semantics leave open
        how this looks: here the code sees program order, a store may show the order of landing.
        """
        self.questions: list[Ident] = []
        self._answers: dict[Ident, Answer] = {}
        self._holder: Process | None = None
        self._holders: dict[int, Process] = {}

    # What the outside does.

    def attempt(
        self,
        program: Program,
        *,
        stop: Stop | None = None,
        answers: Iterable[Answer] = (),
        input: Arg | None = None,
    ) -> Trace:
        """Open the run in a new process, interpret the program until it ends or `stop` befalls it."""
        trace = Trace(resumed=self.status != "new")
        try:
            trace.process = self._open(program, trace, input)
        except PerdureError as error:
            trace.ending, trace.error = "refused", type(error).__name__
            return trace
        return self._go(trace.process, stop, list(answers), woken=False)

    def wake(self, trace: Trace, *, stop: Stop | None = None, answers: Iterable[Answer] = ()) -> Trace:
        """A frozen process goes on where it was; `trace` grows."""
        assert trace.ending == "frozen"
        assert trace.process is not None
        return self._go(trace.process, stop, list(answers), woken=True)

    def kill(self, trace: Trace) -> None:
        """A frozen process dies."""
        assert trace.ending == "frozen"
        assert trace.process is not None
        self._die(trace.process)

    def pass_time(self, seconds: float) -> None:
        self.clock += seconds

    def answer(self, answer: Answer) -> None:
        """`agent.runs.answer`: settles the oldest effect in doubt; the first answer wins."""
        if not self.answerable():
            raise NothingToAnswer
        self._answers[self.answerable()[0]] = answer

    def answerable(self) -> list[Ident]:
        """What may be answered: what the run asks, or, when no process is at work on it, all that is in doubt."""
        if self.status == "finished" or self.summary().status == "running":
            return []
        doubtful = dict(self._find_in_doubt(self.journal, ()))
        asked = [call for call in doubtful if self.status != "waiting" or call in self.questions]
        return sorted((call for call in asked if call not in self._answers), key=doubtful.__getitem__)

    def _find_in_doubt(self, records: Iterable[Record], address: Ident) -> Iterator[tuple[Ident, int]]:
        """Effects begun and not resolved, with their keys, which tell the order of their intents."""
        for record in records:
            if record.kind == "effect" and record.state in UNRESOLVED:
                yield (*address, record.ident), record.key
            yield from self._find_in_doubt(record.children, (*address, record.ident))

    def play(self, moves: Iterable[Move]) -> list[Trace]:
        """The traces of all Starts. A move that makes no sense (no question, not frozen) does nothing."""
        traces: list[Trace] = []
        for move in moves:
            match move:
                case Start(program, stop, answers, given):
                    traces.append(self.attempt(program, stop=stop, answers=answers, input=given))
                case Answer():
                    if self.answerable():
                        self.answer(move)
                case PassTime(seconds):
                    self.pass_time(seconds)
                case Wake(which, stop) if which < len(traces) and traces[which].ending == "frozen":
                    self.wake(traces[which], stop=stop)
                case Kill(which) if which < len(traces) and traces[which].ending == "frozen":
                    self.kill(traces[which])
        return traces

    def summary(self) -> Summary:
        """Section 1: "Other processes see the latest durable values"."""
        view = View.from_writes(writes_of(self.journal))
        seen: dict[int, int] = {}
        outside = tuple((name, arg, seen.setdefault(key, len(seen) + 1)) for name, arg, key in self.world.happened)
        dead = self.status == "running" and (self._holder is None or not self._holder.alive)
        return Summary(
            "crashed" if dead else self.status,
            self.error,
            self.result,
            view.state,
            view.messages,
            view.events,
            len(self.questions),
            dict(self.world.executions),
            outside,
        )

    # Section 7, leases; section 6, the life of a run.

    def _open(self, program: Program, trace: Trace, given: Arg | None) -> Process:
        holder = self._holder
        if holder is not None and holder.alive and self.clock < holder.deadline:
            raise RunBusy  # "holder alive"; "a stopped process is alive until its lease runs out"
        if self.status != "new" and given is not None and given != self.input:
            raise InputChanged  # "A different `input=` raises InputChanged"
        if self.status == "finished":  # "replayed read-only"
            return Process(self, program, trace, readonly=True)
        if self.status == "new":
            self.input = given
        self._check_at_work()
        self.error = None
        self.fence += 1  # "a holder that is gone is taken over at once; otherwise the lease must run out"
        process = Process(self, program, trace, readonly=False)
        self._holder = self._holders[self.fence] = process
        return process

    def _go(self, process: Process, stop: Stop | None, answers: list[Answer], woken: bool) -> Trace:
        """Drive the code from point to point; the heartbeat goes on as long as the process runs."""
        if process.fence == self.fence:
            process.deadline = self.clock + LEASE_SECONDS
        trace = process.trace
        hits: Counter[str] = Counter()
        try:
            point = self._pass(process, answers) if woken else next(process.code)
            while True:
                process.point = point
                trace.points.append(point)
                if not self._befalls(stop, point, hits):
                    point = self._pass(process, answers)
                elif stop is not None and stop.kind == "freeze":
                    trace.ending = "frozen"
                    return trace
                elif stop is not None and stop.kind == "crash":
                    self._die(process)
                    return trace
                else:
                    thrown = KeyboardInterrupt() if stop and stop.kind == "interrupt" else CodeError()
                    point = process.code.throw(thrown)
        except StopIteration:
            self._end(process, None)
        except (Exception, KeyboardInterrupt) as error:
            self._end(process, error)
        return trace

    def _befalls(self, stop: Stop | None, point: tuple[str, str], hits: Counter[str]) -> bool:
        labels = (point[0], "@".join(point))
        hits.update(labels)
        return stop is not None and stop.at in labels and hits[stop.at] == stop.nth

    def _pass(self, process: Process, answers: list[Answer]) -> tuple[str, str]:
        """On from a point. Section 6: it "blocks ..., or raises RunWaiting when `wait=` is exceeded"."""
        waits = process.point[0] == "waiting" and process.fence == self.fence
        if waits and process.awaited not in self._answers:
            if not answers:
                return process.code.throw(RunWaiting())
            self.answer(answers.pop(0))
        return next(process.code)

    def _die(self, process: Process) -> None:
        process.alive = False
        process.code.close()
        process.trace.ending = "crashed"

    def _end(self, process: Process, error: BaseException | None) -> None:
        """Leave the `with` block."""
        trace = process.trace
        process.alive = False  # its bodies are over: as good as dead to whoever finds an intent of it
        try:
            if error is None and not process.readonly:
                self.admit(process)
        except LeaseLost as lost:
            error = lost
        endings: dict[type[BaseException], Ending] = {KeyboardInterrupt: "interrupted", RunWaiting: "waiting"}
        trace.ending = "finished" if error is None else endings.get(type(error), "failed")
        trace.error = None if error is None else type(error).__name__
        if process.readonly or self.fence != process.fence:
            return  # a finished run stays as it is; "after takeover the old holder never commits anything"
        process.end(error)
        self.journal = durable(process.root.records)
        self.set_status(trace.ending)
        self.error = trace.error if trace.ending == "failed" else None
        self.result = process.view().result if error is None else None
        self._holder = None  # "lease released, resumable at once"

    # What a process asks of the store.

    def admit(self, process: Process) -> None:
        """Design, guarantee 5: the fencing number is "checked in the same statement as every write"."""
        if process.readonly:
            raise RunFinished
        if process.fence != self.fence:
            raise LeaseLost

    def save(self, process: Process, address: Ident, state: str) -> None:
        """Make what the process has committed durable, and open or close the question about it."""
        self.journal = durable(process.root.records)
        if state == "asked":
            self.questions.append(address)
            self._check_at_work()
        elif address in self.questions:
            self.questions.remove(address)
            self._check_at_work()
        if state not in UNRESOLVED - {"intent"}:
            self._answers.pop(address, None)

    def _check_at_work(self) -> None:
        """Section 3: "the run waits, visible", for as long as the question is open, whoever has the run."""
        self.set_status("waiting" if self.questions else "running")

    def set_status(self, status: str) -> None:
        check_transition("run", self.status, status)
        self.status = status

    def is_settled(self, address: Ident) -> bool:
        """Somebody has said how it ended, though the run has not come to hear it."""
        return address in self._answers and self._answers[address].verdict != "retry"

    def verdict(self, op: Effect, record: Record, address: Ident, process: Process) -> tuple[str, str | None]:
        """done, not_done, fail or unknown, and the result when done."""
        answer = self._answers.get(address)
        if answer is not None:
            return {"done": "done", "retry": "not_done", "fail": "fail"}[answer.verdict], answer.result
        said, result = self.world.ask(op, record.key)
        if said == "not_done" and not self._body_is_over(op, record, process):
            return "unknown", ""
        return said, result

    def _body_is_over(self, op: Effect, record: Record, process: Process) -> bool:
        """Section 3: NotDone "is believed only when the old holder is proven dead, or its lease and the
        effect's timeout have passed since the intent; before that it is Unknown".
        """
        holder = self._holders[record.fence]
        if holder is process or not holder.alive:
            return True
        timed_out = op.timeout is not None and self.clock >= record.since + op.timeout
        return timed_out and self.clock >= holder.deadline
