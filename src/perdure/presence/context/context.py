"""The result of `run.context`: messages in provider formats and as text, and what was left out and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import msgspec

from perdure.presence.context import provider_formats
from perdure.presence.context.parse import ANTHROPIC, OpaquePart, ParsedMessage, TextPart, ToolCallPart, ToolResultPart

CACHED = {"type": "ephemeral"}
"""Anthropic's marker for the end of a cacheable prefix."""


class ContextSection(msgspec.Struct, frozen=True):
    """One part of a context."""

    name: str
    title: str
    share: float
    room: int
    """The maximum number of tokens."""
    tokens: int
    """The tokens used."""
    wanted: int
    """The tokens of all its content; estimated for a long conversation."""
    text: str

    def __repr__(self) -> str:
        return f"<Section {self.name}: {self.tokens} of {self.wanted} tokens>"


class DroppedContent(msgspec.Struct, frozen=True):
    """Content that is shown shortened, or not at all."""

    what: str
    why: str
    tokens: int
    """Estimated number of tokens that are not shown."""
    ref: str = ""
    """Pointer to it, for `agent.open(ref)`."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}, {self.tokens:,} tokens" + (f", open {self.ref}" if self.ref else "")


class ContextSections(tuple[ContextSection, ...]):
    """Sections in order; `sections["conversation"]` looks one up by name."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> ContextSection: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[ContextSection, ...]: ...

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for section in self:
            if section.name == key:
                return section
        raise KeyError(key)


class Context:
    """What a model is shown of a run.

    >>> context = run.context("Which flight?", budget=8000)
    >>> client.chat.completions.create(model=..., messages=context.messages)
    >>> client.messages.create(model=..., max_tokens=..., **context.anthropic())
    """

    def __init__(
        self,
        budget: int,
        sections: ContextSections,
        dropped: tuple[DroppedContent, ...],
        *,
        tokens: int,
        system: str,
        said: tuple[ParsedMessage, ...],
        numbers: tuple[int, ...],
        changing: int,
        stable: int,
        steps: int,
        shape: str,
        estimated: bool,
    ) -> None:
        self.budget = budget
        self.tokens = tokens
        """Total tokens; never more than the budget."""
        self.sections = sections
        self.dropped = dropped
        """What is shortened or left out, and why."""
        self.system = system
        """The text before the conversation: identity, user, long-term memory."""
        self.steps = steps
        """How often older messages were condensed. While it stays the same, the prefix of `messages` does too."""
        self.shape = shape
        """The message format of the conversation: `openai` or `anthropic`."""
        self.estimated = estimated
        """Whether token counts are estimates: no tokenizer was given or found."""
        self._said = said
        self._numbers = numbers
        self._changing = changing
        self._stable = stable

    @property
    def numbered(self) -> list[tuple[ParsedMessage, int]]:
        """The messages after the system message, each with its number in the conversation if it is shown whole.

        Of all others the number is -1.
        """
        return list(zip(self._said, self._numbers, strict=True))

    @property
    def changing(self) -> int:
        """The place of the message with the sections that change often; -1 if there is none."""
        return self._changing

    @property
    def stable_said(self) -> int:
        """How many of the messages after the system message stay the same until `steps` changes."""
        return self._stable

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages to send, in the format in which the conversation was recorded.

        In OpenAI's format the first one is a system message, unless that is empty. Anthropic takes it separately, as
        `system`; `anthropic()` returns both.
        """
        return self.anthropic()["messages"] if self.shape == ANTHROPIC else self.openai()

    def openai(self) -> list[dict[str, Any]]:
        """Return the messages for `client.chat.completions.create(messages=...)`."""
        return provider_formats.openai([*self._add_introduction(), *self._said])

    def anthropic(self, *, cache: bool = False) -> dict[str, Any]:
        """Return `system` and `messages` for `client.messages.create(**context.anthropic(), ...)`.

        `cache=True` marks the stable prefix for the provider's prompt cache.
        """
        words = [one.text for one in (*self._add_introduction(), *self._said) if one.role == "system"]
        system: Any = "\n\n".join(words)
        messages = provider_formats.anthropic(self._said)
        if cache:
            system = [{"type": "text", "text": system, "cache_control": CACHED}] if system else system
            messages = self._add_cache_mark()
        return {**({"system": system} if system else {}), "messages": messages}

    @property
    def stable(self) -> int:
        """Number of messages at the beginning that stay the same until `steps` changes."""
        if self.shape == ANTHROPIC:
            return len(self._render_beginning())
        return len(provider_formats.openai([*self._add_introduction(), *self._said[: self._stable]]))

    @property
    def text(self) -> str:
        """The whole context as text, section by section, for models that take text and for people."""
        return "\n\n".join(f"## {section.title}\n\n{section.text}" for section in self.sections if section.text)

    def explain(self) -> str:
        """Show the budget as a chart, and what is left out and why."""
        from perdure.presence.context.explain import render_explanation

        return render_explanation(self)

    def _add_introduction(self) -> list[ParsedMessage]:
        return [ParsedMessage("system", (TextPart(self.system),))] if self.system else []

    def _render_beginning(self) -> list[dict[str, Any]]:
        return provider_formats.anthropic(self._said[: self._stable])

    def _add_cache_mark(self) -> list[dict[str, Any]]:
        """Return the messages with a cache mark after the stable prefix. A message across the boundary is split."""
        messages, stays = provider_formats.anthropic(self._said), self._render_beginning()
        if stays:
            last = messages[len(stays) - 1]
            own = provider_formats.blocks(stays[-1]["content"])
            content = provider_formats.blocks(last["content"])
            content[len(own) - 1] = {**content[len(own) - 1], "cache_control": CACHED}
            last["content"] = content
        return messages

    def __str__(self) -> str:
        return self.text

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        tokens = f"{'about ' if self.estimated else ''}{self.tokens:,} of {self.budget:,} tokens"
        return f"<Context of {tokens}: {len(self._said)} messages, {len(self.dropped)} shortened or left out>"


def transcript(said: tuple[ParsedMessage, ...]) -> str:
    """Render a conversation as text."""
    return "\n\n".join(f"{one.role}: {_words(one)}" for one in said)


def _words(one: ParsedMessage) -> str:
    lines = []
    for part in one.parts:
        if isinstance(part, TextPart):
            lines.append(part.text)
        elif isinstance(part, ToolCallPart):
            lines.append(f"[calls {part.name} {part.arguments}]")
        elif isinstance(part, ToolResultPart):
            lines.append(f"[a tool {'failed' if part.error else 'returned'}]\n{part.text}")
        elif isinstance(part, OpaquePart):
            lines.append(f"[{part.kind}]")
    return "\n".join(lines)
