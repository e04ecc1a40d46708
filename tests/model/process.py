"""One attempt: a process that has the run open and interprets a program, rule by rule of docs/about/semantics.md.

The code of the process is a generator that yields each point at which something may befall it, so that a
crash is `close()`, an interrupt is `throw()`, and a stopped process is a generator that nobody asks for
more. It works on its own copy of the journal; only `commit` makes anything durable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from perdure.errors import EffectInsideStep, RunFinished

from .effects import Effects
from .journal import Code, Frame, Ident, Record, View, Written, durable, flatten, iterate_landed, writes_of
from .ops import (
    CAUGHT,
    AppendMessage,
    Break,
    Catch,
    Delete,
    Each,
    Effect,
    Emit,
    Incr,
    ItemDone,
    Op,
    Program,
    SetResult,
    SetState,
    Step,
    StepError,
    WriteOp,
)

if TYPE_CHECKING:
    from .machine import Model, Trace


class Process:
    def __init__(self, model: Model, program: Program, trace: Trace, readonly: bool) -> None:
        self.model = model
        self.trace = trace
        self.fence = model.fence
        self.readonly = readonly
        self.alive = True
        self.deadline = 0.0
        self.point = ("", "")
        self.awaited: Ident = ()
        self.root = Frame(durable(model.journal))
        self.code = self._ops(program, "", self.root)
        self._seen: list[Record] = []
        self.met: set[Record] = set()
        self._fresh: list[Record] = []
        self._failed_here: set[Record] = set()
        self._failures: list[tuple[Exception, Record]] = []

    # Section 1: what the code of the run sees.

    def view(self, written: list[Written] | None = None) -> View:
        """Section 1: "run.state ... is the fold of what has been consumed so far"."""
        view = View.from_writes([*writes_of(self._seen), *(written or ())])
        return replace(view, result=self.model.result) if self.readonly else view

    def see(self, record: Record) -> None:
        """Section 1: "consuming a recorded step, effect or skipped item applies what it wrote", once."""
        if record not in self._seen:
            self._seen.append(record)
            self._notice_move()

    def meet(self, frame: Frame, record: Record) -> None:
        frame.reach(record)
        self.met.add(record)

    def _evaluate(self, op: WriteOp, written: list[Written]) -> Written | None:
        """None when there is nothing to delete."""
        match op:
            case SetState(key, value):
                return Written("state", key, value)
            case Incr(key):
                return Written("state", key, self.view(written).state.get(key, 0) + 1)
            case Delete(key):
                return Written("delete", key, None) if key in self.view(written).state else None
            case SetResult(value):
                return Written("result", "", value)
            case AppendMessage(text):
                return Written("message", "", text)
            case Emit(kind):
                return Written("event", kind, None)

    # Commits.

    def commit(self, site: str, path: str, frame: Frame, record: Record, to: str, **changes: Any) -> Code:
        yield f"{site}:before", path
        self.model.admit(self)
        self._go_past_failures()
        if record not in frame.records:
            frame.add(record)
        self.met.add(record)
        record.move(to, **changes)
        if to == "failed":
            record.past = False
            self._fresh.append(record)
            self._failed_here.add(record)
        self._notice_insertion(record)
        self.model.save(self, (*frame.address, record.ident), to)
        yield f"{site}:after", path

    def _notice_insertion(self, record: Record) -> None:
        """What lands now comes, in program order, before recorded writes that the code has not come to."""
        if not record.writes and not record.children:
            return
        every = list(iterate_landed(self.root.records))
        mine = [at for at, entry in enumerate(every) if entry is record or entry in record.children]
        seen = {record, *iterate_landed(self._seen)}
        if mine and any(entry not in seen for entry in every[mine[0] :]):
            self.model.reordered = True

    def _notice_move(self) -> None:
        """What the code has come to now are messages that once came before others that it has seen."""
        seen = [record for record in flatten(self._seen) if record.writes_messages]
        if len(seen) > 1:
            order = [record for record in flatten(self.root.records) if record in seen]
            self.model.reordered |= order != [record for record in seen if record in order]

    def _go_past_failures(self) -> None:
        """Section 2, "step raises": the run went past a failure when it has recorded something after it."""
        for record in self._fresh:
            record.past = True
        self._fresh.clear()

    def end(self, error: BaseException | None) -> None:
        """Leave the `with` block; the run did not go past a failure that leaves with it."""
        if error is None:
            self._go_past_failures()
        while error is not None and isinstance(error, Exception):
            for raised, record in self._failures:
                if raised is error:
                    record.past = False
            error = error.__context__  # what was raised while handling a failure left for its sake

    def raises_again(self, record: Record) -> bool:
        """Section 2: "On resume it is raised again if the run went past it". In the attempt in which it failed, code
        that calls it once more, by its id, wants it to run; a finished run gives its recorded results.
        """
        return self.readonly or record.final or (record.past and record not in self._failed_here)

    def raise_failure(self, record: Record) -> NoReturn:
        assert record.error is not None
        error = record.error()
        self._failures.append((error, record))
        raise error

    # Operations.

    def _ops(self, ops: tuple[Op | Break, ...], prefix: str, frame: Frame) -> Code:
        """True when the loop was left by `break`."""
        for number, op in enumerate(ops):
            if isinstance(op, Break):
                return True
            yield from self._op(op, f"{prefix}{number}", frame)
        return False

    def _op(self, op: Op, path: str, frame: Frame) -> Code:
        yield "before", path
        try:
            value = yield from self._dispatch(op, path, frame.innermost())
        except GeneratorExit:
            raise
        except BaseException as error:
            self.trace.observe(path, "raised", type(error).__name__, self.view())
            raise
        self.trace.observe(path, "returned", value, self.view())
        yield "after", path

    def _dispatch(self, op: Op, path: str, frame: Frame) -> Code:
        match op:
            case Step():
                return (yield from self._step(op, path, frame))
            case Effect():
                return (yield from Effects(self).call(op, path, frame))
            case Each():
                return (yield from self._play_each(op, path, frame))
            case ItemDone():
                if frame.item is not None and frame.parent is not None:
                    yield from self.commit("item.done", path, frame.parent, frame.item, "done")
            case Catch():
                return (yield from self._catch(op, path, frame))
            case _:
                yield from self._write(op, path, frame)

    def _catch(self, op: Catch, path: str, frame: Frame) -> Code:
        try:
            yield from self._op(op.op, f"{path}/0", frame)
        except CAUGHT as error:
            try:
                if op.then is not None:
                    yield from self._op(op.then, f"{path}/1", frame)
            except Exception as other:
                other.__context__ = error  # as Python does, but not for what is thrown into a generator
                raise
            if op.again:
                raise
            return f"caught {type(error).__name__}"
        return "passed"

    def _write(self, op: WriteOp, path: str, frame: Frame) -> Code:
        """Section 1: "on replay they are consumed in order, never applied twice": the k-th of each key."""
        written = self._evaluate(op, [])
        if written is None:
            return
        ident = ("write", written.what, written.key, frame.nth("write", written.what, written.key))
        record = frame.find(ident)
        if record is not None:
            # The recorded value wins: the state "goes through the same values as the first time".
            self.meet(frame, record)
        else:
            record = Record(ident, writes=(written,))
            if frame.item is None and written.what == "result":
                pass  # in memory: the end of the run writes the last one that the code has seen
            elif frame.item is None:
                yield from self.commit("run.write", path, frame, record, "done")
            else:
                # Section 5: "writes made in the item's body are buffered, are seen by the body itself".
                frame.add(record)
        self.see(record)

    # Section 2: steps.

    def body(self, op: Step | Effect, written: list[Written]) -> tuple[int, str]:
        """What every body does; the number of its execution makes the result tell which one it came from."""
        nth = self.model.world.execute(op.name, op.arg)
        for inner in op.inside if isinstance(op, Step) else ():
            if isinstance(inner, Effect):
                raise EffectInsideStep  # "effect inside a step or effect: error"
            self.body(inner, written)  # "step inside a step or effect: a plain call, part of the outer one"
        for write in op.writes:
            written.extend(filter(None, [self._evaluate(write, written)]))
        if isinstance(op, Step) and nth <= op.fails:
            raise StepError
        return nth, f"{op.name}({op.arg})#{nth}"

    def ident(self, kind: str, op: Step | Effect, frame: Frame) -> Ident:
        """Section 4: "(scope path, name, digest, k-th with that digest)"; `id=` "replaces" the last two."""
        if op.id is not None:
            return (kind, op.name, "id", op.id)
        return (kind, op.name, "digest", op.arg, frame.nth(kind, op.name, op.arg))

    def _step(self, op: Step, path: str, frame: Frame) -> Code:
        ident = self.ident("step", op, frame)
        record = frame.find(ident)
        if record is not None:
            self.meet(frame, record)
            if record.state == "done":  # "step, recorded: returns the recorded result"
                self.see(record)
                return record.result
            if record.state == "failed" and self.raises_again(record):
                self.raise_failure(record)
        if self.readonly:  # section 6, finished: "an unrecorded step raises RunFinished"
            raise RunFinished
        return (yield from self._run_step(op, path, frame, record or Record(ident)))

    def _run_step(self, op: Step, path: str, frame: Frame, record: Record) -> Code:
        # "retries (count and backoff are durable)"; "else the step runs again with fresh attempts"
        failures = record.failures if record.state == "pending" else 0
        while True:
            written: list[Written] = []
            error: Exception | None = None
            result = None
            try:
                _, result = self.body(op, written)
            except (StepError, EffectInsideStep) as raised:
                error = raised
            yield "step-body-done", path
            if error is None:
                # "completion (result + everything written inside) commits; then it returns"
                changes = {"result": result, "writes": tuple(written)}
                yield from self.commit("step.done", path, frame, record, "done", **changes)
                self.see(record)
                return result
            failures += 1
            # "when exhausted the exception is recorded and raised"; a wrong use of Perdure is not repeated
            if failures > op.retries or isinstance(error, EffectInsideStep):
                yield from self.commit("step.failed", path, frame, record, "failed", error=type(error))
                self.raise_failure(record)
            yield from self.commit("attempt.failed", path, frame, record, "pending", failures=failures)

    # Section 5: items.

    def _play_each(self, op: Each, path: str, frame: Frame) -> Code:
        loop = frame.nth("loop", op.name)
        here = Frame([])  # only counts: "told apart by key, else by digest and count"
        for item in op.items:
            told = item[op.key] if isinstance(item, tuple) and op.key is not None else item
            nth = here.nth(told)
            ident = ("item", op.name, loop, told, nth)
            record = frame.find(ident) or Record(ident, "open")
            if record not in frame.records:
                frame.add(record)
            self.meet(frame, record)
            if record.state == "done":
                self.see(record)
                continue
            label = f"{path}[{told}{f'#{nth}' if nth else ''}]"
            if (yield from self._item(op, label, frame, record)):
                return

    def _item(self, op: Each, label: str, frame: Frame, record: Record) -> Code:
        """True when the loop was left. "`break`, `return` or an exception leaves it open"."""
        inner = Frame(record.children, (*frame.address, record.ident), frame)
        inner.item = record
        self.trace.observe(label, "entered", None, self.view())
        try:
            left = yield from self._ops(op.body, f"{label}/", inner)
            if not left:
                yield "item-body-done", label
        except BaseException:
            self._drop(inner)
            raise
        if left:
            self._drop(inner)
        elif record.state == "open":  # "An item is done when the loop asks for the next one"
            yield from self.commit("item.done", label, frame, record, "done")
        return left

    def _drop(self, frame: Frame) -> None:
        """Section 5: writes "land with the item's completion, or are dropped with it"; steps stay."""
        if frame.item is not None and frame.item.state == "open":
            dropped = [record for record in frame.records if record.kind == "write"]
            frame.records[:] = [record for record in frame.records if record not in dropped]
            self._seen = [record for record in self._seen if record not in dropped]
