"""Finds the line of the user's program that called Perdure, for messages."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from types import FrameType
from typing import Any, NamedTuple

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SERVER = os.path.join(_OURS, "server", "")
_PYTHONS = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # not sysconfig: it takes milliseconds to import
_INSTALLED = os.sep + "site-packages" + os.sep

SHOWN_CHARACTERS_MAX = 300


_WARNED: dict[Any, Any] = {}
"""What Python's filters have shown already, so that "once" and "default" hold."""


class Place(NamedTuple):
    """A line of a program."""

    path: str
    line: int


def calling_place() -> Place | None:
    """Return the line of the user's program that called."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and not _is_the_users(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(_SERVER):
            return None  # the program is on the other side of a request
        frame = frame.f_back
    return None if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def warn_at(place: Place | None, warning: Warning) -> None:
    """Warn with a line of the user's program as the place, not one of ours."""
    if place is None:
        warnings.warn(warning, stacklevel=3)
    else:
        warnings.warn_explicit(warning, type(warning), place.path, place.line, registry=_WARNED)


def line_of(place: Place) -> str:
    """Format a line of a program: `agent.py:41`."""
    short = os.path.relpath(place.path) if os.path.isabs(place.path) else place.path
    return f"{place.path if short.startswith('..') else short}:{place.line}"


def find_calling_line() -> str:
    """Return the calling line of the user's program as `agent.py:41`, or ""."""
    place = calling_place()
    return "" if place is None else line_of(place)


def _is_the_users(path: str) -> bool:
    if path.startswith((_OURS, "<frozen")):
        return False
    return not path.startswith(_PYTHONS) or _INSTALLED in path


def format_value(value: object) -> str:
    """Format a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def format_call(name: str, arguments: Mapping[str, object]) -> str:
    """Format a call for a message: `book(flight='PD 42')`."""
    given = ", ".join(f"{parameter}={value!r}" for parameter, value in arguments.items())
    return f"{name}({given if len(given) <= SHOWN_CHARACTERS_MAX else given[:SHOWN_CHARACTERS_MAX] + '…'})"


def format_calling_line() -> str:
    """Return the calling line as ` at agent.py:41`, or ""."""
    line = find_calling_line()
    return f" at {line}" if line else ""
