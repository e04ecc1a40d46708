"""Loads the agent of a program, given as `module:agent` or `path/to/file.py:agent`."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

import click

from perdure.api.aio import AsyncAgent
from perdure.api.sync import Agent
from perdure.cli.replay_targets import import_target
from perdure.values.hints import name_hint


def load_agent(given: str) -> Agent | AsyncAgent:
    """Import a module and return its agent: the named one, else the only one."""
    name, _, attribute = given.partition(":")
    module = import_target(_module(name))
    agents = {key: value for key, value in vars(module).items() if isinstance(value, Agent | AsyncAgent)}
    if attribute:
        return _find_agent(module, attribute, agents)
    found = {id(agent): agent for agent in agents.values()}
    if len(found) == 1:
        return next(iter(found.values()))
    told = "there is none" if not found else f"there are {', '.join(sorted(agents))}"
    raise click.UsageError(f"name the agent as {name}:agent; {told}")


def _find_agent(module: ModuleType, attribute: str, agents: dict[str, Agent | AsyncAgent]) -> Agent | AsyncAgent:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Agent | AsyncAgent):
        return found
    maybe = name_hint(attribute, sorted(agents))
    what = "there is no such name" if found is None else f"it is a {type(found).__name__}, not an agent"
    raise click.UsageError(f"{module.__name__}:{attribute}: {what}" + (f"; {maybe}" if maybe else ""))


def _module(name: str) -> str:
    """Return the module name of `path/to/file.py`, and make its folder importable."""
    if not name.endswith(".py"):
        return name
    if not os.path.exists(name):
        raise click.UsageError(f"there is no file {name!r}")
    folder, file = os.path.split(os.path.abspath(name))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return file.removesuffix(".py")
