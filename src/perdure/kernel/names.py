"""Validates the names of agents, runs, keys, queues, workflows and artifacts before they are stored."""

from __future__ import annotations

from perdure.errors import NotStorable, ValueTooLarge, WrongType, WrongValue
from perdure.store.base import is_storable_name
from perdure.values.limits import NAME_CHARACTERS_MAX


def check_storable_name(
    name: object,
    what: str,
    *,
    empty: bool = True,
    most: int = NAME_CHARACTERS_MAX,
    error: type[Exception] | None = None,
) -> str:
    """Return a name that every store can hold.

    `what` is the subject of the message. A name of another type raises `TypeError`. A bad name raises `error`, or
    without it `ValueError` if it is empty, `ValueTooLarge`, or `NotStorable` for NUL characters and lone surrogates.
    """
    if not isinstance(name, str):
        raise WrongType(f"{what} must be a str, not {name!r}")
    if not name and not empty:
        raise (error or WrongValue)(f"{what} must not be empty")
    if len(name) > most:
        raise (error or ValueTooLarge)(f"{what} must have at most {most} characters, not {len(name)}")
    if not is_storable_name(name):
        raise (error or NotStorable)(f"{what} must not contain NUL characters or lone surrogates: {name!r}")
    return name


def check_identifier(name: object, what: str) -> str:
    """Validate the name of an agent or the id of a run."""
    return check_storable_name(name, what, empty=False, error=WrongValue)
