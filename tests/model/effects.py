"""Sections 2 and 3: intent before, outcome after, and what is done about an effect in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import Diverged, InDoubt, NotDone, RunFinished

from .journal import UNRESOLVED, Code, Frame, Record, Written
from .ops import Effect, EffectError

if TYPE_CHECKING:
    from .process import Process


class Effects:
    """What an effect does in one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._model = process.model

    def call(self, op: Effect, path: str, frame: Frame) -> Code:
        ident = self._process.ident("effect", op, frame)
        record = frame.find(ident)
        if record is None:
            if self._process.readonly:
                raise RunFinished
            self._refuse_divergence(op, frame)
            fresh = Record(ident, key=self._model.world.new_key())
            return (yield from self._run(op, path, frame, fresh, "effect.intent"))
        self._process.meet(frame, record)
        if record.state == "done":  # "effect, recorded done: returns the recorded result"
            self._process.see(record)
            return record.result
        if record.state in UNRESOLVED:  # "found with an intent and no outcome: in doubt, see 3"
            return (yield from self._resolve(op, path, frame, record))
        if record.state == "failed":
            if self._process.raises_again(record):
                self._process.raise_failure(record)
            record.failures = 0
        return (yield from self._run(op, path, frame, record, "effect.again"))

    def _refuse_divergence(self, op: Effect, frame: Frame) -> None:
        same = frame.find_named("effect", op.name)
        # Section 3: "While an intent of a name is unresolved in a scope ... an unmatched one raises Diverged"
        if any(
            record.state in UNRESOLVED and not self._model.is_settled((*frame.address, record.ident)) for record in same
        ):
            raise Diverged
        # Section 4: "only when an unmatched effect meets an unconsumed recorded effect of the same name in
        # the same scope ...; on_change="rerun" overrides"
        if op.on_change != "rerun" and any(record not in self._process.met for record in same):
            raise Diverged

    def _run(self, op: Effect, path: str, frame: Frame, record: Record, site: str) -> Code:
        """Section 2: "intent commits; lease deadline is looked at once more; body runs; outcome commits"."""
        while True:
            intent = {"fence": self._process.fence, "since": self._model.clock}
            yield from self._process.commit(site, path, frame, record, "intent", **intent)
            self._model.admit(self._process)
            written: list[Written] = []
            error: Exception | None = None
            result = None
            try:
                result = self._do(op, record.key, written)
            except (NotDone, EffectError) as raised:
                error = raised
            yield "effect-body-done", path
            if error is None:
                return (yield from self._adopt(path, frame, record, result, tuple(written)))
            # "raises NotDone: nothing happened"; "anything else: in doubt; check is asked at once"
            asked = ("not_done", "") if isinstance(error, NotDone) else self._model.world.ask(op, record.key)
            verdict, known = asked
            if verdict == "done":  # "adopted and returned, the exception noted"
                return (yield from self._adopt(path, frame, record, known))
            if verdict == "unknown":  # "InDoubt is raised ..., and the policy holds the run on resume"
                yield from self._process.commit("effect.doubt", path, frame, record, "doubt")
                raise InDoubt
            failures = record.failures + 1
            if failures > op.retries:  # "failed, the original raised"
                error_type = {"error": type(error)}
                yield from self._process.commit("effect.failed", path, frame, record, "failed", **error_type)
                self._process.raise_failure(record)
            # "retries allowed, same key"; nothing is in doubt until the intent is renewed
            counted = {"failures": failures}
            yield from self._process.commit("attempt.failed", path, frame, record, "pending", **counted)
            site = "effect.again"

    def _do(self, op: Effect, key: int, written: list[Written]) -> str:
        nth, result = self._process.body(op, written)
        outcome = op.outcomes[min(nth, len(op.outcomes)) - 1]
        if outcome in ("ok", "raises_after_doing"):
            self._model.world.happen(op.name, op.arg, key, result)
        if outcome == "ok":
            return result
        raise NotDone if outcome == "raises_not_done" else EffectError

    def _adopt(
        self, path: str, frame: Frame, record: Record, result: str | None, writes: tuple[Written, ...] = ()
    ) -> Code:
        changes = {"result": result, "writes": writes}
        yield from self._process.commit("effect.outcome", path, frame, record, "done", **changes)
        self._process.see(record)
        return result

    def _resolve(self, op: Effect, path: str, frame: Frame, record: Record) -> Code:
        """Section 3, from the top to the bottom: an answer, else `check`, else the policy."""
        address = (*frame.address, record.ident)
        while True:
            if self._process.readonly:
                raise InDoubt
            verdict, known = self._model.verdict(op, record, address, self._process)
            if verdict == "done":
                return (yield from self._adopt(path, frame, record, known))
            if verdict == "fail":
                yield from self._close(path, frame, record)
                final = {"error": InDoubt, "final": True}
                yield from self._process.commit("effect.failed", path, frame, record, "failed", **final)
                self._process.raise_failure(record)
            if verdict == "not_done" or op.in_doubt == "retry":  # "run again with the same key"
                yield from self._close(path, frame, record)
                return (yield from self._run(op, path, frame, record, "effect.again"))
            if op.in_doubt == "fail":  # "the run fails with InDoubt"
                raise InDoubt
            if record.state != "asked":  # "the run waits ... until somebody answers"
                yield from self._process.commit("run.question", path, frame, record, "asked")
            self._model.admit(self._process)
            self._process.awaited = address
            yield "waiting", path
            self._model.admit(self._process)

    def _close(self, path: str, frame: Frame, record: Record) -> Code:
        """The question is answered before the body runs again, so that nobody is asked about a running one."""
        if record.state == "asked":
            yield from self._process.commit("run.question", path, frame, record, "doubt")
