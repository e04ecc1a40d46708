"""What a model answered, as it is stored: its messages, and structured output as the fields that it has."""

from __future__ import annotations

from typing import Any

from ...codec.exceptions import shown


def parts_of(response: Any) -> Any:
    """A model's response as plain parts."""
    from langchain_core.messages import AIMessage

    if isinstance(response, AIMessage):
        return {"messages": [response]}
    return {"messages": list(response.result), "structured": _fields_of(response.structured_response)}


def _fields_of(value: Any) -> Any:
    """Its fields as JSON has them. It is paid for: what JSON has no word for is kept as text."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, by_alias=True, round_trip=True, fallback=shown)


def answer_of(stored: dict[str, Any], response_format: Any) -> Any:
    """The response again."""
    from langchain.agents.middleware.types import ModelResponse

    structured = stored.get("structured")
    if isinstance(structured, dict):
        structured = _made(structured, getattr(response_format, "schema", response_format))
    return ModelResponse(result=stored["messages"], structured_response=structured)


def _made(fields: dict[str, Any], schema: Any) -> Any:
    """An instance of the class that was asked for; the fields alone when that was a JSON schema, or refuses them."""
    if not isinstance(schema, type) and not hasattr(schema, "__args__"):
        return fields
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    try:
        return TypeAdapter(schema).validate_json(to_json(fields, inf_nan_mode="constants"))
    except ValidationError:
        return fields
