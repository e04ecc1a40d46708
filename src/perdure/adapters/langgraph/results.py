"""What a call came to, as LangGraph wants it: from the body itself, from a check, or in a person's words."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import Command


def message_of(value: Any, name: str, id: str) -> Any:
    """A tool's answer; what a check or a person says becomes the content of one."""
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


def gave_up(error: Exception, name: str, id: str) -> Any:
    """What the model is told when a person has given up on knowing."""
    told = f"Nobody knows whether {name} happened, and it will not be tried again: {error}"
    return ToolMessage(content=told, name=name, tool_call_id=id, status="error")
