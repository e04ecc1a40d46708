"""Fixtures of the kit."""

from .kit import world

__all__ = ["world"]
