"""Converts the outcome of a call for LangGraph, whether it comes from the body, a check or a person."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import Command


def message_of(value: Any, name: str, id: str) -> Any:
    """Return the message of a tool call. An answer of a check or a person becomes its content."""
    if not id or isinstance(value, BaseMessage | Command):
        return value
    if isinstance(value, list) and value and all(isinstance(one, BaseMessage | Command) for one in value):
        return value
    return ToolMessage(content=_text(value), name=name, tool_call_id=id)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


def make_abandoned_message(error: Exception, name: str, id: str) -> Any:
    """Return the message that tells the model that the outcome stays unknown."""
    told = f"The outcome of {name} is unknown, and it will not be tried again: {error}"
    return ToolMessage(content=told, name=name, tool_call_id=id, status="error")
