"""Fixtures of the kit."""

from .chat import program
from .kit import clock, file_url, world
from .replays import shop

__all__ = ["clock", "file_url", "program", "shop", "world"]
