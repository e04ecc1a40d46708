"""Adapters for agent frameworks. Import each by name; each needs its extra, such as `perdure[langgraph]`."""

from __future__ import annotations
