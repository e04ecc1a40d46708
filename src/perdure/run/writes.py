"""Writes of a run to its state, messages and events: buffered in a step or an item, otherwise committed at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar, overload

from perdure import records as r
from perdure.errors import PerdureError, ResultErased, UnknownAttribute, WrongType, WrongValue
from perdure.journal.objects import decode_packed, reference
from perdure.kernel.awaitables import require_plain
from perdure.kernel.names import check_storable_name
from perdure.kernel.program_line import find_calling_line
from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import Frame, frame_of
from perdure.platform.failpoints import Site
from perdure.run.conversation import PIN, PINNED, UNPIN, Conversation, is_pinned
from perdure.run.core import RunCore
from perdure.run.ledger import operation_key
from perdure.run.order_handling import stop_if_ordered
from perdure.run.replay_difference import handle_difference
from perdure.run.state_copies import handed_out
from perdure.store.base import check_not_deciding, decide
from perdure.values import codec
from perdure.values.attributes import KnownAttributes

T = TypeVar("T")


def write(
    run: RunCore, op: r.WriteOp, key: str, value: Any, path: str, version: int = 0, position: int | None = None
) -> Protocol[bytes]:
    """Write now, or with the enclosing step or item. Returns the packed value."""
    check_not_deciding()
    frame = frame_of(run)
    check_storable_name(key, f"{path}: a name")
    instead = 0
    if frame.buffer is None:
        nth = frame.count(*_count_key(op, key))
        if (recorded := run.ledger.find_write(frame.path, op, key, nth)) is not None:
            if (yield from _can_stand(run, frame, op, recorded, value, path, version)):
                run.land(frame, (recorded,))
                return recorded.value
            instead, position = nth + 1, recorded.position
        run.check_open()
    else:
        run.check_not_left()  # in a finished run too: a buffered write may be dropped, as it was the first time
    packed, objects = (b"", ()) if op == r.WriteOp.DELETE else _encode_or_uncount(frame, op, key, run.pack, value, path)
    made = r.RunWrite(op, key, packed, _position(run, op) if position is None else position, version)
    if frame.buffer is not None:
        frame.buffer.add(made, objects)
        return packed
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, made, instead=instead), objects=objects)
    run.land(frame, (made,))
    if run.has_orders:
        yield from stop_if_ordered(run)
    return packed


def _can_stand(
    run: RunCore, frame: Frame, op: r.WriteOp, recorded: r.RunWrite, value: Any, path: str, version: int
) -> Protocol[bool]:
    """Whether the recorded write stands for this one, which may have another value."""
    key = recorded.key
    try:
        if op != recorded.op and op in _STATE:
            known = _DELETED if recorded.op == r.WriteOp.DELETE else run.unpack(recorded.value)
            return handle_difference(run, path, known, _DELETED if op == r.WriteOp.DELETE else value)
        if op == r.WriteOp.DELETE:
            return True
        codec.encode(value, path)
        if op not in _COMPARED and not run.rehearsed:
            return True
        if op == r.WriteOp.EVENT and version != recorded.version:
            return True  # a later version of the schema gives the same event another form
        return (yield from run.compare(path, recorded.value, value, telemetry=op == r.WriteOp.EVENT))
    except PerdureError:
        frame.uncount(*_count_key(op, key))  # a refused write is no write: the next one takes its place
        raise


_STATE = (r.WriteOp.SET, r.WriteOp.DELETE)
_COMPARED = (*_STATE, r.WriteOp.MESSAGE, r.WriteOp.EVENT)
_DELETED = "<deleted>"


def record_value(run: RunCore, key: str, make: Callable[[], Protocol[Any]]) -> Protocol[Any]:
    """Return a value that replay sees again. Inside a step it needs no record of its own: the step has one."""
    check_not_deciding()
    frame = frame_of(run)
    if frame.inside:
        return (yield from make())
    nth = frame.count(*_count_key(r.WriteOp.VALUE, key))
    recorded = run.ledger.find_write(frame.path, r.WriteOp.VALUE, key, nth)
    if recorded is not None:
        return (yield from run.load(recorded.value))
    value = yield from make()
    packed, objects = run.pack(value, key)
    # Recorded at once, also in an item: a step of the item that takes the value is committed before the item is.
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, r.RunWrite(r.WriteOp.VALUE, key, packed)), objects=objects)
    return value


def call_once(run: RunCore, make: Callable[..., T], *args: Any) -> Protocol[T]:
    """Return what a function returns, for `record_value`. A finished run records nothing new, so it is refused."""
    yield from ()
    if run.finished:
        run.check_open()
    return make(*args)


def update(run: RunCore, key: str, make: Callable[[Any], Any]) -> Protocol[Any]:
    """Set a key of `run.state` to a function of its value. A value recorded by an earlier attempt wins."""
    check_not_deciding()
    there = read_key(run, key)
    value = require_plain(decide(make, None if there is None else decode_written(run, there)), make)
    packed = yield from write(run, r.WriteOp.SET, key, value, f"state[{key!r}]")
    return decode_written(run, packed)


def set_result(run: RunCore, value: Any) -> None:
    """`run.result = value`: lands with the enclosing step or item, otherwise when the run ends."""
    if run.ledger.finished is not None:
        run.result_line = find_calling_line()
    frame = frame_of(run)
    packed, objects = run.pack(value, "result")
    if frame.buffer is not None:
        frame.buffer.add(r.RunWrite(r.WriteOp.RESULT, "", packed), objects)
    else:
        run.view.result, run.result_objects = packed, objects


def check_result(run: RunCore) -> Protocol[None]:
    """At the end of a finished run: the result that the code has set last is the recorded one."""
    finished = run.ledger.finished
    if finished is not None and finished.result and run.view.result:
        value = decode_written(run, run.view.result)
        yield from run.compare("result", finished.result, value, line=run.result_line)


def get_result(run: RunCore) -> Any:
    """Return the last result that was set, as the code sees it here."""
    if run.ledger.finished is not None:
        if not run.ledger.finished.result:
            raise ResultErased(f"the result of run {run.id!r} was erased")
        return run.unpack(run.ledger.finished.result)
    for frame in _frames(run):
        if frame.buffer is not None:
            made = frame.buffer.result
            if made is not None:
                return decode_written(run, made.value)
    return decode_written(run, run.view.result) if run.view.result else None


def _count_key(op: r.WriteOp, key: str) -> tuple[str, bytes]:
    """Return the name and identity by which writes are counted."""
    op, key = operation_key(op, key)
    return f"\0write {op}", key.encode()


def _encode_or_uncount(
    frame: Frame, op: r.WriteOp, key: str, made: Callable[[Any, str], T], value: Any, path: str
) -> T:
    """Encode a value. A refused value does not count as a write."""
    try:
        return made(value, path)
    except PerdureError:
        if frame.buffer is None:
            frame.uncount(*_count_key(op, key))
        raise


def _position(run: RunCore, op: r.WriteOp) -> int:
    if op != r.WriteOp.MESSAGE:
        return 0
    with run.lock:
        position = run.view.next_position
        run.view.next_position += 1
    return position


def read_state(run: RunCore) -> dict[str, bytes]:
    """Return all of `run.state` as the code sees it here: landed writes, then the buffered ones around the caller."""
    state = dict(run.view.state)
    for frame in reversed(_frames(run)):
        if frame.buffer is None:
            continue
        for key, made in frame.buffer.state.items():
            if made.op == r.WriteOp.DELETE:
                state.pop(key, None)
            else:
                state[key] = made.value
    return state


def read_key(run: RunCore, key: str) -> bytes | None:
    """Return one key of `run.state` as the code sees it here."""
    for frame in _frames(run):
        if frame.buffer is not None and key in frame.buffer.state:
            made = frame.buffer.state[key]
            return None if made.op == r.WriteOp.DELETE else made.value
    return run.view.state.get(key)


def read_messages(run: RunCore) -> Conversation:
    """Return the conversation in program order."""
    return run.view.conversation(list_buffered_writes(run))


def read_all_messages(run: RunCore) -> list[tuple[int, bytes]]:
    """Return every message, including compacted ones."""
    waiting = [(write.position, write.value) for write in list_buffered_writes(run) if write.op == r.WriteOp.MESSAGE]
    return sorted([*run.view.messages, *waiting], key=lambda message: message[0])


def read_values(run: RunCore) -> list[bytes]:
    """Return the values of the visible messages."""
    if run.view.compacted or any(write.op == r.WriteOp.COMPACT for write in list_buffered_writes(run)):
        return [one.value for one in read_messages(run).list_visible()]
    return [value for _, value in read_all_messages(run)]


def list_buffered_writes(run: RunCore) -> list[r.RunWrite]:
    """Return the buffered writes around the caller, outermost first."""
    return [made for frame in reversed(_frames(run)) if frame.buffer is not None for made in frame.buffer.writes]


def decode_written(run: RunCore, packed: bytes) -> Any:
    """Decode a value that the code has written. Its object may still be buffered."""
    identity = reference(packed)
    if identity:
        made = [run.result_objects, *(frame.buffer.objects for frame in _frames(run) if frame.buffer is not None)]
        for statement in (one for objects in made for one in objects):
            if statement.name == "put_object" and statement.args[0] == identity:
                return decode_packed(packed, [statement])
    return run.unpack(packed)


def _frames(run: RunCore) -> list[Frame]:
    """Return the frames of this run around the caller, innermost first."""
    frame: Frame | None = frame_of(run) if run.root.alive else run.root
    frames = []
    while frame is not None and frame.run is run:
        frames.append(frame)
        frame = frame.parent
    return frames


_MISSING_METHODS = dict.fromkeys(("pop", "popitem", "clear"), "del run.state[key] deletes a key")
"""What a dict has and `run.state` has not."""


class StateReader(Mapping[str, Any], KnownAttributes):
    """Reads `run.state`. Every value is a fresh copy: to change it, set it."""

    __slots__ = ("_run",)

    def __init__(self, run: RunCore) -> None:
        self._run = run

    def __getitem__(self, key: str) -> Any:
        return handed_out(self._run, f"run.state[{key!r}]", partial(self._read, key))

    def _read(self, key: str) -> tuple[bytes, Any]:
        packed = read_key(self._run, key)
        if packed is None:
            raise KeyError(key)
        return packed, decode_written(self._run, packed)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and read_key(self._run, key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(read_state(self._run))

    def __len__(self) -> int:
        return len(read_state(self._run))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    def _unknown(self, name: str) -> UnknownAttribute:
        hint = _MISSING_METHODS.get(name, f"set a key: run.state[{name!r}] = ...")
        return UnknownAttribute(f"run.state has no attribute {name!r}", hint=hint)


class MessageReader(Sequence[Any], KnownAttributes):
    """Reads the visible `run.messages`: all of them, unless the run was compacted."""

    __slots__ = ("_run",)

    def __init__(self, run: RunCore) -> None:
        self._run = run

    @property
    def raw(self) -> list[Any]:
        """Every message, including compacted ones."""
        return [decode_written(self._run, value) for _, value in read_all_messages(self._run)]

    @property
    def pinned(self) -> list[Any]:
        """The messages that compaction and context limits keep."""
        return [decode_written(self._run, one.value) for one in read_messages(self._run).list_visible() if one.pinned]

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        packed = read_values(self._run)[index]
        if isinstance(packed, list):
            return [decode_written(self._run, one) for one in packed]
        return decode_written(self._run, packed)

    def __iadd__(self, messages: object) -> NoReturn:
        raise WrongType("run.messages is no list, so += is not recorded", hint="use run.messages.extend([...])")

    def __len__(self) -> int:
        return len(read_values(self._run))

    def __iter__(self) -> Iterator[Any]:
        return iter([decode_written(self._run, packed) for packed in read_values(self._run)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


def append(run: RunCore, message: Any, pinned: bool) -> Protocol[None]:
    """Append a message."""
    version = PINNED if pinned or is_pinned(message) else 0
    yield from write(run, r.WriteOp.MESSAGE, "", message, "message", version)


def pin(run: RunCore, index: int, pinned: bool) -> Protocol[None]:
    """Pin or unpin a visible message."""
    one = read_messages(run).list_visible()[index]
    if one.covers is not None:
        raise WrongValue("this message is a summary and is always kept; run.uncompact() removes it")
    yield from write(run, r.WriteOp.PIN, PIN if pinned else UNPIN, None, "pin", position=one.position)
