"""Perdure under frameworks for agents: each is imported by name, and needs its extra, as `perdure[langgraph]`."""

from __future__ import annotations
