"""Stores a model's answer: its messages, and structured output as plain fields."""

from __future__ import annotations

from typing import Any

from perdure.values.codec.exceptions import limited_repr


def parts_of(response: Any) -> Any:
    """Return the parts of a model response to store."""
    from langchain_core.messages import AIMessage

    if isinstance(response, AIMessage):
        return {"messages": [response]}
    return {"messages": list(response.result), "structured": _fields_of(response.structured_response)}


def _fields_of(value: Any) -> Any:
    """Return the fields as JSON types. The answer is paid for, so anything else is kept as text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True, round_trip=True, fallback=limited_repr)


def answer_of(stored: dict[str, Any], response_format: Any) -> Any:
    """Rebuild a model response from its stored parts."""
    from langchain.agents.middleware.types import ModelResponse

    structured = stored.get("structured")
    if isinstance(structured, dict):
        structured = _build_answer(structured, getattr(response_format, "schema", response_format))
    return ModelResponse(result=stored["messages"], structured_response=structured)


def _build_answer(fields: dict[str, Any], schema: Any) -> Any:
    """Return an instance of the requested class, or the plain fields for a JSON schema or if the class rejects them."""
    if not isinstance(schema, type) and not hasattr(schema, "__args__"):
        return fields
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    try:
        return TypeAdapter(schema).validate_json(to_json(fields, inf_nan_mode="constants"))
    except ValidationError:
        return fields
