"""Perdure under LangGraph: `PerdureSaver` is a checkpointer.

from perdure.adapters.langgraph import PerdureSaver

graph = builder.compile(checkpointer=PerdureSaver("agent.db"))
"""

from __future__ import annotations

from .saver import PerdureSaver

__all__ = ["PerdureSaver"]
