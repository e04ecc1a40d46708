"""Finding the agent of a program that a command is about: `module:agent`, or `path/to/file.py:agent`."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import click

from ..aio import AsyncAgent
from ..hints import meant
from ..sync import Agent
from .targets import imported


def load_agent(given: str) -> Agent | AsyncAgent:
    """Import a module, and find the agent in it; the only one, when it is not named."""
    name, _, attribute = given.partition(":")
    module = imported(_module(name))
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent | AsyncAgent)}
    if attribute:
        return _named(module, attribute, agents)
    found = {id(agent): agent for agent in agents.values()}
    if len(found) == 1:
        return next(iter(found.values()))
    told = "there is none" if not found else f"there are {', '.join(sorted(agents))}"
    raise click.UsageError(f"say which agent of {name} is meant, as {name}:agent; {told}")


def _named(module: ModuleType, attribute: str, agents: dict[str, Agent | AsyncAgent]) -> Agent | AsyncAgent:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Agent | AsyncAgent):
        return found
    maybe = meant(attribute, sorted(agents))
    what = "there is no such name" if found is None else f"it is {type(found).__name__}, and no agent"
    raise click.UsageError(f"{module.__name__}:{attribute}: {what}" + (f"; {maybe}" if maybe else ""))


def _module(name: str) -> str:
    """`path/to/file.py` is a module too, in its own folder."""
    if not name.endswith(".py"):
        return name
    if not os.path.exists(name):
        raise click.UsageError(f"there is no file {name!r}")
    folder, file = os.path.split(os.path.abspath(name))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return file.removesuffix(".py")
