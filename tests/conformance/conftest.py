"""Fixtures of the kit."""

from .kit import file_url, world

__all__ = ["file_url", "world"]
