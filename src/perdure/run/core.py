"""An open run: its journal head, its recorded calls, and its data as the code has seen it so far."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perdure import records as r
from perdure.errors import Abandoned, Diverged, PerdureError, RunCompacted, RunFinished, RunStopped, ValueProblem
from perdure.journal import objects
from perdure.journal.agent_writes import AgentWrite, AppendAgentWrites
from perdure.journal.append import Append, StreamHead
from perdure.kernel.bodies import bodies_of
from perdure.kernel.parts import Parts
from perdure.kernel.program_line import format_calling_line
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.kernel.scope import BegunCall, Frame
from perdure.platform.failpoints import Site
from perdure.run import order_handling
from perdure.run.cost import RunAccount
from perdure.run.data_view import RunDataView
from perdure.run.function import EXPLICIT, CallOptions, DurableFunction
from perdure.run.ledger import Ledger, RecordedCall, UndoPoint
from perdure.run.renames import CallPosition, adopt, move_scope
from perdure.run.replay_difference import handle_difference
from perdure.store import locate
from perdure.store.base import Statement
from perdure.values import codec, locks
from perdure.values.hints import insert_run_id
from perdure.values.limits import SEAL_EVENTS

if TYPE_CHECKING:
    from perdure.journal.leases import LeaseKeeper
    from perdure.kernel.engine import Engine
    from perdure.run.parking import RunParking


PROCEED: Any = object()
"""Returned by `RunCore.begin` when the call may proceed."""


class RunCore:
    """The core of `Run` and `AsyncRun`. It does no I/O: it builds units of work and consumes records."""

    def __init__(self, engine: Engine, run_id: str, ledger: Ledger, head: StreamHead, *, resumed: bool) -> None:
        self.engine = engine
        self.store = engine.store
        self.clock = engine.store.clock
        self.id = run_id
        self.ledger = ledger
        self.head = head
        self.resumed = resumed
        self.finished = ledger.finished is not None
        self.account = RunAccount(ledger, head.stream, credits=ledger.openings > 1 and not self.finished)
        self.on_change = "error"
        self.wait: float | None = None
        self.lapses = 0
        """The lease keeper's lapse count when the lease was last known to be ours."""
        self.view = RunDataView()
        self.lock = locks.lock()
        self._under_way: set[tuple[str, str, bytes]] = set()
        self.bodies = bodies_of(engine.store.identity, head.stream)
        """Bodies of its effects in this process, including those that earlier openings started."""
        self.under_way: set[Frame] = set()
        """Bodies of steps and effects that this opening has started and whose outcome is not recorded."""
        self.leaving = False
        """Whether the block is ending: nothing new starts."""
        self.root = Frame(self, "", None, "", None)
        self.root.trail, self.root.units = [], []
        self.child: RunCore | None = None
        self.order: order_handling.PendingOrder | None = None
        """The order that it has read and not yet obeyed."""
        self.heard = head.ordered
        """The number of the last order that it has read."""
        self.stopped = ledger.cleanup is not None
        """Whether the code was stopped, here or in an earlier process. Such a run cannot finish normally."""
        self.cleanup = ledger.cleanup
        """The entry that allows a cancelled run to clean up."""
        if self.cleanup is not None:
            self.order = order_handling.PendingOrder(
                r.Order.CANCEL, self.cleanup.reason, self.cleanup.by, self.cleanup.order
            )
        self.parking: RunParking | None = None
        """In a worker: which parts of the run wait or work, so that the worker can leave the run."""
        self.retry: Callable[[BaseException], tuple[int, int]] | None = None
        """In a worker: returns when to retry the run after an exception, and the number of attempts by then."""
        self.whole: Frame | None = None
        """Set if the whole run is one item that ends with the run."""
        self.result_objects: Sequence[Statement] = ()
        """Objects that the result refers to, if it was set outside of a body. Written when the run ends."""
        self.result_line = ""
        """The line of the program that set the result last, in a finished run."""
        self.differences: set[tuple[str, str]] = set()
        """What was reported otherwise than recorded, and at which line: each is warned about once."""
        self.parts = Parts()
        """Objects that higher floors keep with an open run."""

    @property
    def store_option(self) -> str:
        """The `--store` option for commands in messages, or "" if they find this store by default."""
        return "" if self.engine.url == locate(None) else f" --store {shlex.quote(self.store.url)}"

    def hint_of(self, kind: type[PerdureError]) -> str:
        """Return the hint of a kind of error, with the id of this run in its commands."""
        return insert_run_id(kind.hint, self.id, self.store_option)

    # -- orders -------------------------------------------------------------------------------------------------

    @property
    def outer(self) -> RunCore | None:
        """The enclosing run, if it is open here."""
        return core_of(self.root.parent) if self.root.parent is not None else None

    @property
    def has_orders(self) -> bool:
        """Whether an order may be pending. Checked at every boundary, without reading the store."""
        if self.head.ordered != self.heard or self.order is not None:
            return True
        outer = self.root.parent
        return outer is not None and core_of(outer).has_orders

    @property
    def cleans_up(self) -> bool:
        """Whether the code here is cleanup code."""
        return order_handling.cleans_up(self)

    def stop_error(self) -> RunStopped | None:
        """Return the error that stops the code here, according to the orders read so far."""
        return order_handling.find_stop_error(self)

    def interrupt(self) -> None:
        """Cancel the bodies that can be cancelled, if the run is ordered to stop."""
        if self.order is not None:
            for body in self.under_way.copy():
                if body.awaited is not None and body.awaited.stops:
                    body.awaited.interrupt()

    # -- values -------------------------------------------------------------------------------------------------

    def pack(self, value: Any, path: str) -> tuple[bytes, Sequence[Statement]]:
        """Encode a value for the journal."""
        return objects.pack(self.store, value, path)

    def unpack(self, packed: bytes) -> Any:
        """Decode a value and read its object, blocking: for properties, which cannot be awaited."""
        return objects.unpack(self.store, packed)

    def load(self, packed: bytes) -> Protocol[Any]:
        """Decode a value without blocking an event loop."""
        if not objects.reference(packed):
            return objects.unpack(self.store, packed)
        return (yield Read(objects.unpack, (self.store, packed)))

    def recall(self, frame: Frame, recorded: RecordedCall) -> Protocol[Any]:
        """Credit a done call that the code has reached, apply its writes, and return how its result is read."""
        self.account.credit(recorded)
        if recorded.writes:
            self.land(frame, recorded.take_writes())
        return self.read_result(recorded)

    def read_result(self, recorded: RecordedCall) -> Protocol[Any]:
        """Return the result of a done call."""
        try:
            if not objects.reference(recorded.result):
                return objects.unpack(self.store, recorded.result)
            return (yield Read(objects.unpack, (self.store, recorded.result)))
        except ValueProblem as error:
            line = format_calling_line()
            where = f"the result of {recorded.name} in run {self.id!r} (entry {recorded.seq}) cannot be read{line}"
            raise type(error)(f"{where}: {error.message}", hint=error.hint) from error

    # -- writing ------------------------------------------------------------------------------------------------

    def commit(
        self,
        site: Site,
        *entries: r.Record,
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        seal: bool = False,
        asks: Sequence[AgentWrite] = (),
    ) -> Protocol[int]:
        """Append entries to this run's stream, and return the number of the last one. `asks` land with the first."""
        self.check_open()
        notes = self.account.take()
        if notes:
            return (yield from self._commit_with_notes(notes, site, entries, objects, also, seal, asks))
        if asks:
            yield from self.commit_with(site, entries, asks, objects, also, seal=seal)
            return self.head.seq
        seq: int = yield self._append(site, entries, objects, also, seal)
        return seq

    def make_plain_commit(self, site: Site, entry: r.Record, objects: Sequence[Statement]) -> Submit | None:
        """Return the request that `commit` would make for one entry, or None if other entries must go with it.

        It saves steps and effects, which are many, a generator.
        """
        if self.rehearsed or self.account.has_notes:
            return None
        if self.finished or self.parking is not None or not self.root.alive:
            self.check_open()
        head = self.head
        signer = self.engine.signer if head.seq - head.sealed >= SEAL_EVENTS else None
        return Submit(Append(site, head, (entry,), self.clock, objects, (), signer))

    def _append(
        self,
        site: Site,
        entries: Sequence[r.Record],
        objects: Sequence[Statement],
        also: Sequence[Statement] = (),
        seal: bool = False,
    ) -> Submit:
        head = self.head
        signer = self.engine.signer if seal or head.seq - head.sealed >= SEAL_EVENTS else None
        return Submit(Append(site, head, entries, self.clock, objects, also, signer, seal))

    def commit_with(
        self,
        site: Site,
        entries: Sequence[r.Record],
        asks: Sequence[AgentWrite],
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        *,
        seal: bool = False,
    ) -> Protocol[tuple[r.AgentChange, ...]]:
        """Append entries, the first of which carries writes to agents. Returns the resulting changes."""
        self.check_open()
        signer = self.engine.signer if seal or self.head.seq - self.head.sealed >= SEAL_EVENTS else None
        unit = AppendAgentWrites(
            site, self.head, entries, self.store, asks, objects=objects, also=also, signer=signer, seal=seal
        )
        yield Submit(unit)
        return unit.landed

    def _commit_with_notes(
        self,
        notes: Sequence[r.Record],
        site: Site,
        entries: Sequence[r.Record],
        objects: Sequence[Statement],
        also: Sequence[Statement],
        seal: bool,
        asks: Sequence[AgentWrite],
    ) -> Protocol[int]:
        """Commit the account's notes before the entries, so that the last number belongs to the entries."""
        together = (*entries[:1], *notes, *entries[1:]) if asks else (*notes, *entries)
        try:
            return (yield from self.commit(site, *together, objects=objects, also=also, seal=seal, asks=asks))
        except PerdureError:  # nothing was written; after other exceptions that is unknown, and twice is worse
            self.account.return_entries(notes)
            raise

    def check_open(self) -> None:
        """Raise if the run is finished, or if this process has left it."""
        if self.ledger.compaction is not None:
            raise RunCompacted(
                f"run {self.id!r} is finished, and its steps are no longer in the store",
                hint=f"read its result with agent.runs.result({self.id!r}), and its steps with "
                f"`perdure archive show {self.ledger.compaction.archive}`",
            )
        if self.finished:
            raise RunFinished(f"run {self.id!r} is finished: a replay cannot do anything new")
        if self.parking is not None:
            self.parking.check_not_left()
        if not self.root.alive:
            self.check_not_left()

    # Hooks for a rehearsal (`rehearsal.py`).

    rehearsed = False
    """Whether the run is only replayed."""

    def settle(self) -> Protocol[None]:
        """In a rehearsal, before `begin`: let concurrent code advance as far as it can."""
        yield from ()

    def begin(
        self,
        kind: str,
        what: str,
        arguments: Mapping[str, Any] | None = None,
        why: str = "",
        call: r.CallIdentity | None = None,
    ) -> Any:
        """Called before something unrecorded starts: a step, an effect, a wait or a checkpoint.

        Returns PROCEED, or in a rehearsal a value that replaces the result: then nothing starts.
        """
        if self.finished or self.leaving or self.parking is not None or self.ledger.compaction or not self.root.alive:
            self.check_open()
            if self.leaving:
                raise self.abandoned_error()
        return PROCEED

    def compare(
        self, what: str, recorded: bytes, value: Any, *, telemetry: bool = False, line: str = ""
    ) -> Protocol[bool]:
        """Return whether the recorded value stands. Another value raises `Diverged`, or is recorded instead."""
        if not recorded or self.head.erased or self.pack(value, what)[0] == recorded:
            return True
        known = yield from self.load(recorded)
        if codec.digest(known, what) == codec.digest(value, what):
            return True
        return handle_difference(self, what, known, value, telemetry=telemetry, line=line)

    def is_item_done(self, path: str) -> bool:
        """Whether a loop skips this item, because it is done."""
        return path in self.ledger.items

    def rename_loop(self, old: str, new: str) -> None:
        """Move the entries of a renamed loop's items to its new name."""
        with self.lock:
            move_scope(self.ledger, old, new)

    def skip_item(self, path: str) -> None:
        """Credit the savings of a skipped item."""
        self.account.credit_item(path)

    def land_item(self, item: Frame, writes: tuple[r.RunWrite, ...]) -> None:
        """Apply the durable writes of a done item."""
        assert item.parent is not None
        self.land(item.parent, writes)

    def end(self, error: BaseException | None) -> None:
        """Called when the block ends."""

    def check_not_left(self) -> None:
        """Raise if this process has left the run."""
        if not self.root.alive:
            raise self.abandoned_error()

    def abandoned_error(self) -> Abandoned:
        """Return the error for code that uses a run after its block has ended."""
        return Abandoned(f"run {self.id!r} is no longer open here: its block has ended")

    def land(self, frame: Frame, writes: tuple[r.RunWrite, ...]) -> None:
        """Make writes visible to the code, now that they are durable or were found recorded."""
        if not writes:
            return
        self.view.apply(writes)
        outer: Frame | None = frame
        while outer is not None and outer.run is self:
            if outer.buffer is not None:
                outer.buffer.supersede(writes)
            outer = outer.parent

    def rewind(self, turn: UndoPoint) -> None:
        """Undo: restore the view, and match against the ledger of the next chapter."""
        turn.view.result = self.view.result
        self.ledger, self.view = turn.ledger, turn.view
        self.account.switch_ledger(turn.ledger)

    @property
    def lease_keeper(self) -> LeaseKeeper:
        """The leases of the holder: of this process, or of a client that drives the run through it."""
        return self.engine.lease_keeper

    request = ""
    """Of a client: identifies the request that starts the body of an effect."""

    def make_key(self) -> str:
        """Return the key of a new effect."""
        return self.clock.key()

    def check_asked_at(self) -> int:
        """Return when the check of an effect in doubt is asked, by the boot clock."""
        return self.clock.boot_ms()

    def unregister(self) -> None:
        """Called when the run is closed."""
        order_handling.unregister(self)

    @property
    def holds_lease(self) -> bool:
        """Whether nobody else can have taken the run over yet."""
        lease_keeper = self.lease_keeper
        return not lease_keeper.has_expired() and self.lapses == lease_keeper.lapses

    def check_lease(self) -> Protocol[None]:
        """Renew the lease right before an effect's body: a process that slept past its deadline must not act."""
        # Repeated, because the answer itself may arrive too late to prove anything.
        while not self.holds_lease:
            renewal = self.lease_keeper.renewal(self.head.stream, self.head.fence)
            yield Submit(renewal)
            self.lapses = renewal.lapses

    # -- matching -----------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive_id(self, frame: Frame, name: str, ident: bytes) -> Iterator[None]:
        """Hold an explicit id, so that no concurrent call can use it."""
        call = (frame.path, name, ident)
        with self.lock:
            if call in self._under_way:
                raise Diverged(f"{name} with this id is already running")
            self._under_way.add(call)
        try:
            yield
        finally:
            self._under_way.discard(call)

    def match(
        self, frame: Frame, function: DurableFunction, options: CallOptions, arguments: dict[str, Any], ident: bytes
    ) -> tuple[RecordedCall | None, int]:
        """Return the recorded call that matches this one, if any, and its number among equal calls."""
        units, mark = frame.units, len(frame.trail or ())
        if ident[:1] == EXPLICIT:  # an explicit id is one call, however often it is made
            recorded, nth = self.ledger.find(frame.path, function.name, ident, 0), 0
        else:
            recorded, nth = self._find_counted(frame, function.name, ident)
        if self.resumed and (recorded is None or recorded.blank):
            with self.lock:
                place = CallPosition(frame.path, function.name, ident, nth)
                recorded = adopt(self.ledger, place, function, options, arguments) or recorded
        if recorded is not None:
            recorded.consumed = True
            if recorded.effect and recorded.done:
                self.ledger.close(recorded)
        if units is not None:
            known = recorded is not None and recorded.seq > 0
            units.append(BegunCall(mark, recorded.since if recorded is not None and known else self.head.seq))
        return recorded, nth

    def _find_counted(self, frame: Frame, name: str, ident: bytes) -> tuple[RecordedCall | None, int]:
        calls = self.ledger.calls.get((frame.path, name, ident))
        while True:
            nth = frame.count(name, ident)
            if calls is None or nth >= len(calls):
                return None, nth
            recorded = calls[nth]
            if recorded.name == name and recorded.ident == ident:
                return recorded, nth
            # That call was matched by one that has since been renamed or given more parameters.


def core_of(frame: Frame) -> RunCore:
    """Return the open run that a frame belongs to."""
    assert isinstance(frame.run, RunCore)
    return frame.run
