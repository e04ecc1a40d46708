"""What a run writes of its own: state, messages and events. Buffered in a step or an item, recorded in the open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

from .. import codec
from .. import records as r
from ..errors import NotStorable, PerdureError, ResultErased, ValueTooLarge
from ..failpoints import Site
from ..limits import NAME_CHARACTERS_MAX
from ..objects import opened as just_packed
from ..objects import reference
from ..store.base import decide, holds, must_not_decide
from .awaitables import plain
from .core import RunCore
from .obeying import heed
from .requests import Protocol
from .scope import Frame, frame_of
from .spoken import PIN, PINNED, UNPIN, Speech, stays

T = TypeVar("T")


def write(
    run: RunCore, op: r.Op, key: str, value: Any, path: str, version: int = 0, position: int | None = None
) -> Protocol[bytes]:
    """One write, wherever the code is: it lands with the step or item around it, or now. Returns what is written."""
    must_not_decide()
    frame = frame_of(run)
    named(key, f"{path}: a name")
    if frame.buffer is None:
        if (recorded := _recorded(run, frame, op, key)) is not None:
            if op != r.Op.DELETE:
                _refused(frame, op, key, codec.encode, value, path)
                run.compare(path, recorded.value, value)
            run.land(frame, (recorded,))
            return recorded.value
        run.must_be_open()
    else:
        run.must_be_here()  # in a finished run too: what is only buffered may be dropped, as it was the first time
    packed, objects = (b"", ()) if op == r.Op.DELETE else _refused(frame, op, key, run.pack, value, path)
    made = r.Write(op, key, packed, _position(run, op) if position is None else position, version)
    if frame.buffer is not None:
        frame.buffer.add(made, objects)
        return packed
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, made), objects=objects)
    run.land(frame, (made,))
    if run.is_told:
        yield from heed(run)
    return packed


def update(run: RunCore, key: str, make: Callable[[Any], Any]) -> Protocol[Any]:
    """Set a key of `run.state` to what a function makes of its value; what an earlier attempt has recorded wins."""
    must_not_decide()
    there = read_key(run, key)
    value = plain(decide(make, None if there is None else opened(run, there)), make)
    packed = yield from write(run, r.Op.SET, key, value, f"state[{key!r}]")
    return opened(run, packed)


def set_result(run: RunCore, value: Any) -> None:
    """`run.result = value`: lands with the step or item around it, else it is written when the run ends."""
    if run.ledger.finished is not None:
        if run.ledger.finished.result:
            run.compare("result", run.ledger.finished.result, value)
        return
    frame = frame_of(run)
    packed, objects = run.pack(value, "result")
    if frame.buffer is not None:
        frame.buffer.add(r.Write(r.Op.RESULT, "", packed), objects)
    else:
        run.view.result, run.result_objects = packed, objects


def get_result(run: RunCore) -> Any:
    """What was set last, as the code sees it here."""
    if run.ledger.finished is not None:
        if not run.ledger.finished.result:
            raise ResultErased(f"the result of run {run.id!r} was erased")
        return run.unpack(run.ledger.finished.result)
    for frame in _frames(run):
        if frame.buffer is not None:
            made = frame.buffer.result
            if made is not None:
                return opened(run, made.value)
    return opened(run, run.view.result) if run.view.result else None


def _recorded(run: RunCore, frame: Frame, op: r.Op, key: str) -> r.Write | None:
    """The same write of an earlier attempt: its recorded value wins, so that the run goes through the same states."""
    name, ident = _counted(op, key)
    nth = frame.count(name, ident)
    return run.ledger.recorded_write(frame.path, op, ident.decode(), nth)


def _counted(op: r.Op, key: str) -> tuple[str, bytes]:
    """By what the writes of a kind are told from each other."""
    return f"\0write {op}", b"" if op == r.Op.MESSAGE else key.encode()


def _refused(frame: Frame, op: r.Op, key: str, made: Callable[[Any, str], T], value: Any, path: str) -> T:
    """A value that is refused is no write: who catches that, and writes another, has written once."""
    try:
        return made(value, path)
    except PerdureError:
        if frame.buffer is None:
            frame.uncount(*_counted(op, key))
        raise


def _position(run: RunCore, op: r.Op) -> int:
    if op != r.Op.MESSAGE:
        return 0
    with run.lock:
        position = run.view.next_position
        run.view.next_position += 1
    return position


def named(text: object, what: str) -> str:
    """A text by which something is found again, in every store."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {type(text).__name__}")
    if len(text) > NAME_CHARACTERS_MAX:
        raise ValueTooLarge(f"{what} has at most {NAME_CHARACTERS_MAX} characters")
    if not holds(text):
        raise NotStorable(f"{what} has no NUL character and no lone surrogate")
    return text


def read_state(run: RunCore) -> dict[str, bytes]:
    """All of `run.state` as the code sees it here: what has landed, and over it what waits around the caller."""
    state = dict(run.view.state)
    for frame in reversed(_frames(run)):
        if frame.buffer is None:
            continue
        for key, made in frame.buffer.state.items():
            if made.op == r.Op.DELETE:
                state.pop(key, None)
            else:
                state[key] = made.value
    return state


def read_key(run: RunCore, key: str) -> bytes | None:
    """One key of it."""
    for frame in _frames(run):
        if frame.buffer is not None and key in frame.buffer.state:
            made = frame.buffer.state[key]
            return None if made.op == r.Op.DELETE else made.value
    return run.view.state.get(key)


def read_messages(run: RunCore) -> Speech:
    """The conversation in program order."""
    return run.view.speech(_waiting(run))


def read_raw(run: RunCore) -> list[tuple[int, bytes]]:
    """All that was ever said, whatever was compacted."""
    waiting = [(write.position, write.value) for write in _waiting(run) if write.op == r.Op.MESSAGE]
    return sorted([*run.view.messages, *waiting], key=lambda message: message[0])


def read_values(run: RunCore) -> list[bytes]:
    """The conversation as it is shown, values alone."""
    if run.view.compacted or any(write.op == r.Op.COMPACT for write in _waiting(run)):
        return [one.value for one in read_messages(run).shown()]
    return [value for _, value in read_raw(run)]


def _waiting(run: RunCore) -> list[r.Write]:
    """What waits around the caller to be written, outermost first."""
    return [made for frame in reversed(_frames(run)) if frame.buffer is not None for made in frame.buffer.writes]


def opened(run: RunCore, packed: bytes) -> Any:
    """A value that the code has written, perhaps just now: then what it refers to is not in the store yet."""
    identity = reference(packed)
    if identity:
        made = [run.result_objects, *(frame.buffer.objects for frame in _frames(run) if frame.buffer is not None)]
        for statement in (one for objects in made for one in objects):
            if statement.name == "put_object" and statement.args[0] == identity:
                return just_packed(packed, [statement])
    return run.unpack(packed)


def _frames(run: RunCore) -> list[Frame]:
    """The frames of this run around the caller, innermost first."""
    frame: Frame | None = frame_of(run) if run.root.alive else run.root
    frames = []
    while frame is not None and frame.run is run:
        frames.append(frame)
        frame = frame.parent
    return frames


class StateReader(Mapping[str, Any]):
    """Reading `run.state`. Every value is a fresh copy: to change it, set it."""

    def __init__(self, run: RunCore) -> None:
        self._run = run

    def __getitem__(self, key: str) -> Any:
        packed = read_key(self._run, key)
        if packed is None:
            raise KeyError(key)
        return opened(self._run, packed)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and read_key(self._run, key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(read_state(self._run))

    def __len__(self) -> int:
        return len(read_state(self._run))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class MessageReader(Sequence[Any]):
    """Reading `run.messages`: as they are shown, which is all that was said unless the run was compacted."""

    def __init__(self, run: RunCore) -> None:
        self._run = run

    @property
    def raw(self) -> list[Any]:
        """All that was ever said, whatever was compacted."""
        return [opened(self._run, value) for _, value in read_raw(self._run)]

    @property
    def pinned(self) -> list[Any]:
        """Those that stay, whatever is compacted or has to make way in a context."""
        return [opened(self._run, one.value) for one in read_messages(self._run).shown() if one.pinned]

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        packed = read_values(self._run)[index]
        if isinstance(packed, list):
            return [opened(self._run, one) for one in packed]
        return opened(self._run, packed)

    def __len__(self) -> int:
        return len(read_values(self._run))

    def __iter__(self) -> Iterator[Any]:
        return iter([opened(self._run, packed) for packed in read_values(self._run)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


def append(run: RunCore, message: Any, pinned: bool) -> Protocol[None]:
    """One more message."""
    version = PINNED if pinned or stays(message) else 0
    yield from write(run, r.Op.MESSAGE, "", message, "message", version)


def pin(run: RunCore, index: int, pinned: bool) -> Protocol[None]:
    """Pin a message of those that are shown, or unpin it."""
    one = read_messages(run).shown()[index]
    if one.covers is not None:
        raise ValueError("this message stands for others, and stays anyway; run.uncompact() takes it away")
    yield from write(run, r.Op.PIN, PIN if pinned else UNPIN, None, "pin", position=one.position)
