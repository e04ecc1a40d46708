"""A run that is open in this process: its journal head, what is recorded, and what the code has seen so far."""

from __future__ import annotations

import shlex
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import locks, objects
from .. import records as r
from ..errors import Abandoned, Diverged, PerdureError, RunFinished, RunFolded, RunStopped, ValueProblem
from ..failpoints import Site
from ..journal.append import Append, Head
from ..journal.landing import Land, Wanted
from ..limits import SEAL_EVENTS
from ..store import locate
from ..store.base import Statement
from . import obeying
from .account import Account
from .bodies import bodies_of
from .functions import EXPLICIT, Function, Options
from .ledger import Ledger, Recorded, Turn
from .lines import at_line
from .renames import Place, adopt, move_scope
from .requests import Protocol, Read, Submit
from .scope import Frame
from .spoken import PIN, PINNED, UNDO, Compacted, Speech

if TYPE_CHECKING:
    from ..context.talk import Talk
    from ..engine import Engine
    from .parking import Parking


PROCEED: Any = object()
"""What `RunCore.begin` returns when the call is to be made."""


class View:
    """`run.state` and `run.messages` as the code sees them: the fold of what it has consumed so far."""

    __slots__ = ("compacted", "messages", "next_position", "pins", "result", "state")

    def __init__(self) -> None:
        self.state: dict[str, bytes] = {}
        self.messages: list[tuple[int, bytes]] = []
        self.next_position = 0
        self.pins: dict[int, bool] = {}
        """By the number of a message: whether it was pinned, or unpinned."""
        self.compacted: list[Compacted] = []
        """One over the other; the last one counts."""
        self.result = b""

    def apply(self, writes: Iterable[r.Write]) -> None:
        """Let writes take effect, in program order."""
        for write in writes:
            if write.op == r.Op.SET:
                self.state[write.key] = write.value
            elif write.op == r.Op.DELETE:
                self.state.pop(write.key, None)
            elif write.op == r.Op.MESSAGE:
                insort(self.messages, (write.position, write.value), key=lambda message: message[0])
                self.next_position = max(self.next_position, write.position + 1)
                if write.version == PINNED:
                    self.pins[write.position] = True
            elif write.op == r.Op.RESULT:
                self.result = write.value
            elif write.op == r.Op.PIN:
                self.pins[write.position] = write.key == PIN
            elif write.op == r.Op.COMPACT:
                self._compact(write)

    def _compact(self, write: r.Write) -> None:
        if write.key == UNDO:
            del self.compacted[-1:]
            return
        there = (position for position, _ in self.messages if position < write.position)
        covers = frozenset(position for position in there if not self.pins.get(position))
        if covers:
            self.compacted.append(Compacted(write.value, covers))

    def speech(self, also: Iterable[r.Write] = ()) -> Speech:
        """The conversation; with what waits to be written."""
        view = View()
        view.messages, view.pins, view.compacted = list(self.messages), dict(self.pins), list(self.compacted)
        view.apply(write for write in also if write.op in (r.Op.MESSAGE, r.Op.PIN, r.Op.COMPACT))
        return Speech(view.messages, view.pins, view.compacted)


def view_of(events: Iterable[r.Event]) -> View:
    """What a run has of its own after some entries, all of which hold: state and messages."""
    view = View()
    for event in events:
        record = event.record
        if isinstance(record, r.StepDone | r.EffectDone | r.ItemDone):
            view.apply(record.writes)
        elif isinstance(record, r.Wrote):
            view.apply((record.write,))
    return view


class RunCore:
    """The shared heart of `Run` and `AsyncRun`: no I/O of its own, it makes units and consumes records."""

    def __init__(self, engine: Engine, run_id: str, ledger: Ledger, head: Head, *, resumed: bool) -> None:
        self.engine = engine
        self.store = engine.store
        self.clock = engine.store.clock
        self.id = run_id
        self.ledger = ledger
        self.head = head
        self.resumed = resumed
        self.finished = ledger.finished is not None
        self.account = Account(ledger, credits=ledger.openings > 1 and not self.finished)
        self.on_change = "error"
        self.wait: float | None = None
        self.lapses = 0
        """Of the tenancy, when the lease was last known to be ours."""
        self.view = View()
        self.lock = locks.lock()
        self._under_way: set[tuple[str, str, bytes]] = set()
        self.bodies = bodies_of(engine.store.identity, head.stream)
        """Bodies of its effects in this process, also of those that an earlier opening has begun."""
        self.under_way: set[Frame] = set()
        """Bodies of steps and effects that this opening has under way, until their outcome is recorded."""
        self.leaving = False
        """Whether the block is being left: then nothing new begins."""
        self.root = Frame(self, "", None, "", None)
        self.root.trail, self.root.units = [], []
        self.child: RunCore | None = None
        self.order: obeying.Told | None = None
        """What it was told, as far as it has heard, and has not obeyed yet."""
        self.heard = head.ordered
        """The number of the last order that it knows of."""
        self.stopped = ledger.cleanup is not None
        """Whether its code has been told to stop, here or in a process before: then it does not end well any more."""
        self.cleanup = ledger.cleanup
        """The entry that lets a cancelled run clean up."""
        if self.cleanup is not None:
            self.order = obeying.Told(r.Order.CANCEL, self.cleanup.reason, self.cleanup.by, self.cleanup.order)
        self.parking: Parking | None = None
        """In a worker: who waits and who is at work, so that it can leave."""
        self.retry: Callable[[BaseException], tuple[int, int]] | None = None
        """In a worker: when the run is tried again after an exception, and how often it has been tried then."""
        self.whole: Frame | None = None
        """Where all of the run is one item, whose end is the end of the run."""
        self.result_objects: Sequence[Statement] = ()
        """What the result refers to, when it was set in the open: written at the end of the run."""
        self.talk: Talk | None = None
        """What `run.context` has counted of its messages."""

    @property
    def store_option(self) -> str:
        """For commands: which store they have to be told of, if they would not find it by themselves."""
        return "" if self.engine.url == locate(None) else f" --store {shlex.quote(self.store.url)}"

    # -- orders -------------------------------------------------------------------------------------------------

    @property
    def outer(self) -> RunCore | None:
        """The run that this one is part of, if that is open here."""
        return self.root.parent.run if self.root.parent is not None else None

    @property
    def is_told(self) -> bool:
        """Whether there is something to heed. Asked at every boundary, without a look into the store."""
        if self.head.ordered != self.heard or self.order is not None:
            return True
        return self.root.parent is not None and self.root.parent.run.is_told

    @property
    def cleans_up(self) -> bool:
        """Whether the code here cleans up."""
        return obeying.cleans_up(self)

    def stopping(self) -> RunStopped | None:
        """What stops the code here, going by what was heard."""
        return obeying.stopped_here(self)

    def interrupt(self) -> None:
        """End what can be ended, if the run is to stop."""
        if self.order is not None:
            for body in self.under_way.copy():
                if body.awaited is not None and body.awaited.stops:
                    body.awaited.interrupt()

    # -- values -------------------------------------------------------------------------------------------------

    def pack(self, value: Any, path: str) -> tuple[bytes, Sequence[Statement]]:
        """Encode a value for the journal."""
        return objects.pack(self.store, value, path)

    def unpack(self, packed: bytes) -> Any:
        """Decode one, reading an object where it stands: for properties, which cannot be awaited."""
        return objects.unpack(self.store, packed)

    def load(self, packed: bytes) -> Protocol[Any]:
        """Decode one, without blocking an event loop."""
        if not objects.reference(packed):
            return objects.unpack(self.store, packed)
        return (yield Read(objects.unpack, (self.store, packed)))

    def recall(self, recorded: Recorded) -> Protocol[Any]:
        """The result of a call that is done."""
        try:
            return (yield from self.load(recorded.result))
        except ValueProblem as error:
            where = f"what {recorded.name} returned in run {self.id!r} (entry {recorded.seq}) cannot be read{at_line()}"
            raise type(error)(f"{where}: {error.message}", hint=error.hint) from error

    # -- writing ------------------------------------------------------------------------------------------------

    def commit(
        self,
        site: Site,
        *entries: r.Record,
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        seal: bool = False,
        asks: Sequence[Wanted] = (),
    ) -> Protocol[int]:
        """Append entries to this run's stream; returns the number of the last one. `asks` land with the first."""
        self.must_be_open()
        notes = self.account.take()
        if notes:
            return (yield from self._commit_with_notes(notes, site, entries, objects, also, seal, asks))
        signer = self.engine.signer if seal or self.head.seq - self.head.sealed >= SEAL_EVENTS else None
        if asks:
            yield from self.commit_with(site, entries, asks, objects, also, seal=seal)
            return self.head.seq
        unit = Append(site, self.head, entries, self.clock, objects=objects, also=also, signer=signer, seal=seal)
        seq: int = yield Submit(unit)
        return seq

    def commit_with(
        self,
        site: Site,
        entries: Sequence[r.Record],
        asks: Sequence[Wanted],
        objects: Sequence[Statement] = (),
        also: Sequence[Statement] = (),
        *,
        seal: bool = False,
    ) -> Protocol[tuple[r.Landing, ...]]:
        """Append entries, the first of which carries what is written to agents; returns what that came to."""
        self.must_be_open()
        signer = self.engine.signer if seal or self.head.seq - self.head.sealed >= SEAL_EVENTS else None
        unit = Land(site, self.head, entries, self.store, asks, objects=objects, also=also, signer=signer, seal=seal)
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
        asks: Sequence[Wanted],
    ) -> Protocol[int]:
        """What the account has to note goes along; before the entries, so that the last one is theirs."""
        together = (*entries[:1], *notes, *entries[1:]) if asks else (*notes, *entries)
        try:
            return (yield from self.commit(site, *together, objects=objects, also=also, seal=seal, asks=asks))
        except PerdureError:  # nothing of it was written; after any other exception nobody knows, and twice is worse
            self.account.put_back(notes)
            raise

    def must_be_open(self) -> None:
        """Nothing new happens in a finished run, nor in one that this process has left."""
        if self.ledger.folded is not None:
            raise RunFolded(
                f"run {self.id!r} is finished, and its steps are not in the store any more",
                hint=f"its result is agent.runs.result({self.id!r}); its steps are shown by "
                f"`perdure archive show {self.ledger.folded.archive}`",
            )
        if self.finished:
            raise RunFinished(f"run {self.id!r} is finished: it is replayed, and does nothing new")
        if self.parking is not None:
            self.parking.must_stay()
        if not self.root.alive:
            self.must_be_here()

    # What a rehearsal looks at, and an ordinary run does not (`rehearsal.py`).

    rehearsed = False
    """Whether it is only replayed."""

    def settle(self) -> Protocol[None]:
        """Let what goes on beside the caller come as far as it can; asked before `begin` in a rehearsal."""
        yield from ()

    def begin(
        self,
        kind: str,
        what: str,
        arguments: Mapping[str, Any] | None = None,
        why: str = "",
        call: r.Call | None = None,
    ) -> Any:
        """Something that is not recorded is about to begin: a step, an effect, a wait or a checkpoint.

        Returns PROCEED, or in a rehearsal the value that stands in for its result: then nothing begins.
        """
        self.must_be_open()
        self.must_stay()
        return PROCEED

    def compare(self, what: str, recorded: bytes, value: Any) -> None:
        """The code writes what is recorded as written, perhaps with another value: the recorded one counts."""

    def passes_over(self, path: str) -> bool:
        """Whether a loop skips this item, because it is done."""
        return path in self.ledger.items

    def rename_loop(self, old: str, new: str) -> None:
        """What is recorded in the items of a loop belongs to one with another name."""
        with self.lock:
            move_scope(self.ledger, old, new)

    def pass_item(self, path: str) -> None:
        """The code has come to an item that is done."""
        self.account.credit_item(path)

    def land_item(self, item: Frame, writes: tuple[r.Write, ...]) -> None:
        """An item is done, and what its body wrote has become durable."""
        assert item.parent is not None
        self.land(item.parent, writes)

    def end(self, error: BaseException | None) -> None:
        """The block is left."""

    def must_be_here(self) -> None:
        """This process has not left the run."""
        if not self.root.alive:
            raise self.abandoned()

    def must_stay(self) -> None:
        """The block is not being left."""
        if self.leaving:
            raise self.abandoned()

    def abandoned(self) -> Abandoned:
        """For whoever goes on with a run after its block has ended."""
        return Abandoned(f"run {self.id!r} is not open here any more: its block has ended")

    def land(self, frame: Frame, writes: tuple[r.Write, ...]) -> None:
        """Writes have become durable, or were found recorded: the code sees them from here on."""
        if not writes:
            return
        self.view.apply(writes)
        outer: Frame | None = frame
        while outer is not None and outer.run is self:
            if outer.buffer is not None:
                outer.buffer.supersede(writes)
            outer = outer.parent

    def turn(self, turn: Turn) -> None:
        """The code goes back: from here on it sees what it saw then, and matches what was recorded after it went."""
        turn.view.result = self.view.result
        self.ledger, self.view = turn.ledger, turn.view
        self.account.follow(turn.ledger)

    def must_hold_lease(self) -> Protocol[None]:
        """The last look before an effect's body: a process that slept past its deadline must not act on old rights."""
        tenancy = self.engine.tenancy
        # Again and again: the answer itself may come so late that it says nothing any more.
        while tenancy.expired() or self.lapses != tenancy.lapses:
            renewal = tenancy.renewal(self.head.stream, self.head.fence)
            yield Submit(renewal)
            self.lapses = renewal.lapses

    # -- matching -----------------------------------------------------------------------------------------------

    @contextmanager
    def one_at_a_time(self, frame: Frame, name: str, ident: bytes) -> Iterator[None]:
        """An explicit id stands for one call: beside it, in another thread or task, there cannot be a second one."""
        if not ident.startswith(EXPLICIT):
            yield
            return
        call = (frame.path, name, ident)
        with self.lock:
            if call in self._under_way:
                raise Diverged(f"{name} with this id is under way already")
            self._under_way.add(call)
        try:
            yield
        finally:
            self._under_way.discard(call)

    def match(
        self, frame: Frame, function: Function, options: Options, arguments: dict[str, Any], ident: bytes
    ) -> tuple[Recorded | None, int]:
        """The recorded call that this one is, if any, and which of its kind it is."""
        mark = frame.mark()
        recorded, nth = self._find(frame, function.name, ident)
        if self.resumed and (recorded is None or recorded.blank):
            with self.lock:
                place = Place(frame.path, function.name, ident, nth)
                recorded = adopt(self.ledger, place, function, options, arguments) or recorded
        if recorded is not None:
            recorded.consumed = True
            if recorded.effect and recorded.done:
                self.ledger.close(recorded)
        if frame.units is not None:
            known = recorded is not None and recorded.seq > 0
            frame.begin(mark, recorded.since if recorded is not None and known else self.head.seq)
        return recorded, nth

    def _find(self, frame: Frame, name: str, ident: bytes) -> tuple[Recorded | None, int]:
        if ident.startswith(EXPLICIT):  # which stands for one call, however often it is made
            return self.ledger.find(frame.path, name, ident, 0), 0
        while True:
            nth = frame.count(name, ident)
            recorded = self.ledger.find(frame.path, name, ident, nth)
            if recorded is None or (recorded.name, recorded.ident) == (name, ident):
                return recorded, nth
            # That one is counted, and was taken by a call which has another name or more parameters now.
