"""What a model answered, as it is stored: its messages, and structured output as the fields that it has."""

from __future__ import annotations

from typing import Any


def parts_of(response: Any) -> Any:
    """A model's response as plain parts."""
    from langchain_core.messages import AIMessage

    if isinstance(response, AIMessage):
        return {"messages": [response]}
    return {"messages": list(response.result), "structured": _fields_of(response.structured_response)}


def _fields_of(value: Any) -> Any:
    if value is None or isinstance(value, dict | str | int | float | bool | list):
        return value
    from pydantic import TypeAdapter

    return TypeAdapter(type(value)).dump_python(value, mode="json")


def answer_of(stored: dict[str, Any], response_format: Any) -> Any:
    """The response again."""
    from langchain.agents.middleware.types import ModelResponse

    structured = stored.get("structured")
    if isinstance(structured, dict):
        structured = _made(structured, getattr(response_format, "schema", response_format))
    return ModelResponse(result=stored["messages"], structured_response=structured)


def _made(fields: dict[str, Any], schema: Any) -> Any:
    """An instance of the class that was asked for; a dictionary when that was a JSON schema."""
    if not isinstance(schema, type) and not hasattr(schema, "__args__"):
        return fields
    from pydantic import TypeAdapter

    return TypeAdapter(schema).validate_python(fields)
