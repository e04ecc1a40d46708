"""Warnings to the program's log. `logging` is imported for the first one: most programs never get any."""

from __future__ import annotations


def warn(message: str, *args: object) -> None:
    """Log a warning of the caller's line."""
    import logging

    logging.getLogger("perdure").warning(message, *args, stacklevel=2)
