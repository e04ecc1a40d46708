"""Validates numbers that users pass, where a comparison would fail without saying what to do."""

from __future__ import annotations

from perdure.errors import WrongType, WrongValue


def require_whole_number(name: str, value: object, least: int) -> None:
    """Require an int of at least `least`."""
    if type(value) is not int:
        raise WrongType(f"{name}={value!r} must be an int, not {type(value).__name__}", hint=f"for example {name}=3")
    if value < least:
        raise WrongValue(f"{name}={value} must be at least {least}")


def seconds(name: str, value: object, *, above_zero: bool = False) -> None:
    """Require a number of seconds."""
    if type(value) is not int and type(value) is not float:
        told = f"{name}={value!r} must be a number of seconds, not {type(value).__name__}"
        raise WrongType(told, hint=f"for example {name}=1.5")
    if not (value > 0 if above_zero else value >= 0):
        raise WrongValue(f"{name}={value} must be {'above' if above_zero else 'at least'} 0 seconds")
