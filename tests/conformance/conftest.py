"""Fixtures of the kit."""

from .kit import file_url, world
from .replays import shop

__all__ = ["file_url", "shop", "world"]
