"""Fixtures of the kit."""

from tests.conformance.kit import world

__all__ = ["world"]
