"""Classes of openai, anthropic and langchain_core: the only packages that reading a value may import.

Which modules are imported is written here and nowhere else: a stored name only selects the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from perdure.values.codec.fields import Shape
from perdure.values.codec.models import PlainModel

NamedClass: TypeAlias = tuple[str, type, Shape]


class TextShape(Shape):
    """The shape of `message.text`, a str that can also be called."""

    def names(self, cls: type) -> Iterable[str]:
        return ("text",)

    def take(self, value: str) -> dict[str, Any]:
        return {"text": str(value)}

    def make(self, cls: type, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        return str.__new__(cls, fields["text"])


def _langchain() -> Iterator[NamedClass]:
    """Messages and documents have fixed names and the fastest shape: they occur by the thousand."""
    import langchain_core.outputs.llm_result
    import langchain_core.prompt_values  # noqa: F401
    from langchain_core import agents, documents, messages
    from langchain_core.messages.base import TextAccessor

    speakers = ("Human", "AI", "System", "Tool", "Chat", "Function")
    kinds = [getattr(messages, f"{speaker}Message{chunk}") for speaker in speakers for chunk in ("", "Chunk")]
    for kind in (*kinds, messages.RemoveMessage, documents.Document, agents.AgentAction, agents.AgentFinish):
        yield f"langchain/{kind.__name__}", kind, PlainModel()
    yield "langchain/TextAccessor", TextAccessor, TextShape()


def _openai() -> Iterator[NamedClass]:
    import openai.types.chat
    import openai.types.responses  # noqa: F401

    yield from ()


def _anthropic() -> Iterator[NamedClass]:
    import anthropic.types
    import anthropic.types.beta  # noqa: F401

    yield from ()


_PACKAGES: Final[dict[str, Callable[[], Iterator[NamedClass]]]] = {  # by how a stored name begins
    "langchain/": _langchain,
    "langchain_core.": _langchain,
    "openai.": _openai,
    "anthropic.": _anthropic,
}


def import_package(name: str) -> tuple[NamedClass, ...]:
    """Import the package of a stored name if it is one of the table, and return its classes with fixed names."""
    load = next((load for start, load in _PACKAGES.items() if name.startswith(start)), None)
    try:
        return tuple(load()) if load is not None else ()
    except ImportError:
        return ()  # not installed: then the name is unknown
