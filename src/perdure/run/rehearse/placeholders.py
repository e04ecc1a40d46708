"""Placeholders for unrecorded results: they can be passed on, and any other use ends the replay.

An object cannot detect `is` and `type()`. So a replay that passed with opaque placeholders is repeated with the values
that programs compare by `is`: see `VALUES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

OPAQUE: Any = object()
"""Replace a result by an object that cannot be used."""

RECORDED: Any = object()
"""Replace a result by that of the same call elsewhere in the run. Only explains a failed replay further."""

VALUES = (None, True, False)
"""Values that results are compared with by `is`."""


class ReplayStop(BaseException):
    """Unwinds the program where its replay ends. Not an `Exception`, because programs handle those."""


class UnrecordedResult:
    """The result of a call that was not made. Every operation on it raises `ReplayStop`."""

    __slots__ = ("_stop",)

    def __init__(self, stop: Callable[[], ReplayStop]) -> None:
        object.__setattr__(self, "_stop", stop)


def _refuse_use(self: UnrecordedResult, *args: object, **kwargs: object) -> NoReturn:
    stop: Callable[[], ReplayStop] = object.__getattribute__(self, "_stop")
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
    setattr(UnrecordedResult, f"__{_name}__", _refuse_use)

Mapping.register(UnrecordedResult)  # so that `match` inspects it, which counts as use
