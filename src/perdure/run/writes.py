"""What a run writes of its own: state, messages and events. Buffered in a step or an item, recorded in the open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from .. import records as r
from ..errors import NotStorable, ValueTooLarge
from ..failpoints import Site
from ..limits import NAME_CHARACTERS_MAX
from ..store.base import holds
from .core import RunCore
from .obeying import heed
from .requests import Protocol
from .scope import Frame, frame_of


def write(run: RunCore, op: r.Op, key: str, value: Any, path: str, version: int = 0) -> Protocol[None]:
    """One write, wherever the code is: it lands with the step or item around it, or now."""
    frame = frame_of(run)
    named(key, f"{path}: a name")
    if frame.buffer is None:
        if (recorded := _recorded(run, frame, op, key)) is not None:
            if op != r.Op.DELETE:
                run.compare(path, recorded.value, value)
            run.land(frame, (recorded,))
            return
        run.must_be_open()
    else:
        run.must_be_here()  # in a finished run too: what is only buffered may be dropped, as it was the first time
    packed, objects = (b"", ()) if op == r.Op.DELETE else run.pack(value, path)
    made = r.Write(op, key, packed, _position(run, op), version)
    if frame.buffer is not None:
        frame.buffer.add(made, objects)
        return
    yield from run.commit(Site.WRITE, r.Wrote(frame.path, made), objects=objects)
    run.land(frame, (made,))
    if run.is_told:
        yield from heed(run)


def set_result(run: RunCore, value: Any) -> None:
    """`run.result = value`: lands with the step or item around it, else it is written when the run ends."""
    if run.ledger.finished is not None:
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
        return run.unpack(run.ledger.finished.result)
    for frame in _frames(run):
        if frame.buffer is not None:
            made = frame.buffer.result
            if made is not None:
                return run.unpack(made.value)
    return run.unpack(run.view.result) if run.view.result else None


def _recorded(run: RunCore, frame: Frame, op: r.Op, key: str) -> r.Write | None:
    """The same write of an earlier attempt: its recorded value wins, so that the run goes through the same states."""
    name = "" if op == r.Op.MESSAGE else key
    nth = frame.count(f"\0write {op}", name.encode())
    return run.ledger.recorded_write(frame.path, op, name, nth)


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


def read_messages(run: RunCore) -> list[bytes]:
    """The conversation in program order."""
    messages = list(run.view.messages)
    for frame in _frames(run):
        if frame.buffer is not None:
            messages += [(w.position, w.value) for w in frame.buffer.writes if w.op == r.Op.MESSAGE]
    messages.sort(key=lambda message: message[0])
    return [value for _, value in messages]


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
        return self._run.unpack(packed)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and read_key(self._run, key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(read_state(self._run))

    def __len__(self) -> int:
        return len(read_state(self._run))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


class MessageReader(Sequence[Any]):
    """Reading `run.messages`."""

    def __init__(self, run: RunCore) -> None:
        self._run = run

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        packed = read_messages(self._run)[index]
        if isinstance(packed, list):
            return [self._run.unpack(one) for one in packed]
        return self._run.unpack(packed)

    def __len__(self) -> int:
        return len(read_messages(self._run))

    def __iter__(self) -> Iterator[Any]:
        return iter([self._run.unpack(packed) for packed in read_messages(self._run)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"
