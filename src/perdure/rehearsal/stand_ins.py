"""What stands in for a result that is not recorded: it can be passed on, and any use of it ends the replay.

`is` and `type()` cannot be seen by an object. So a replay that has passed with opaque stand-ins is repeated with the
values that programs compare by `is`: see `VALUES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

OPAQUE: Any = object()
"""Stand in with an object that cannot be used."""

RECORDED: Any = object()
"""Stand in with what the same call returned elsewhere in the run. Only to tell more about a replay that has failed."""

VALUES = (None, True, False)
"""What a result is compared with by `is`."""


class Stops(BaseException):
    """Unwinds the program where its replay ends. No Exception: programs handle those."""


class Unrecorded:
    """The result of a call that was not made. Every operation on it raises `Stops`."""

    __slots__ = ("_stop",)

    def __init__(self, stop: Callable[[], Stops]) -> None:
        object.__setattr__(self, "_stop", stop)


def _used(self: Unrecorded, *args: object, **kwargs: object) -> NoReturn:
    stop: Callable[[], Stops] = object.__getattribute__(self, "_stop")
    raise stop()


_ARITHMETIC = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
_OPERATIONS = (
    "getattribute setattr delattr dir repr str bytes format hash bool eq ne lt le gt ge "
    "int float complex index round trunc floor ceil neg pos abs invert fspath "
    "len length_hint iter next reversed contains getitem setitem delitem call "
    "enter exit aenter aexit await aiter anext copy deepcopy reduce reduce_ex sizeof buffer "
    "instancecheck subclasscheck mro_entries"
).split()

for _name in (*_OPERATIONS, *(f"{side}{name}" for name in _ARITHMETIC for side in ("", "r", "i"))):
    setattr(Unrecorded, f"__{_name}__", _used)

Mapping.register(Unrecorded)  # so that `match` looks into it, which is a use
