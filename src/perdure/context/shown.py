"""A context: what a model is shown, in the shapes of providers and as text; and what it is not shown, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import msgspec

from . import shapes
from .said import ANTHROPIC, Call, Other, Result, Said, Text

CACHED = {"type": "ephemeral"}
"""What Anthropic wants at the end of a beginning that is to be cached."""


class Section(msgspec.Struct, frozen=True):
    """One part of a context."""

    name: str
    title: str
    share: float
    room: int
    """The tokens that it might have."""
    tokens: int
    """The tokens that it has."""
    wanted: int
    """The tokens of all that there is for it; of a long conversation about."""
    text: str

    def __repr__(self) -> str:
        return f"<Section {self.name}: {self.tokens} of {self.wanted} tokens>"


class Dropped(msgspec.Struct, frozen=True):
    """Something that is not shown as a whole, or not at all."""

    what: str
    why: str
    tokens: int
    """So many are not shown, about."""
    ref: str = ""
    """`agent.open(ref)` reads it."""

    def __str__(self) -> str:
        return f"{self.what}: {self.why}, {self.tokens:,} tokens" + (f", open {self.ref}" if self.ref else "")


class Sections(tuple[Section, ...]):
    """Sections in their order; `sections["conversation"]` is found by its name."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Section: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[Section, ...]: ...

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
        sections: Sections,
        dropped: tuple[Dropped, ...],
        *,
        tokens: int,
        system: str,
        said: tuple[Said, ...],
        stable: int,
        steps: int,
        shape: str,
        estimated: bool,
    ) -> None:
        self.budget = budget
        self.tokens = tokens
        """Of everything that is shown; never more than the budget."""
        self.sections = sections
        self.dropped = dropped
        """What is not shown as a whole, and why."""
        self.system = system
        """What stands before the conversation: identity, user, long-term memory."""
        self.steps = steps
        """How often older messages had to make way. While it is the same, so is the beginning of `messages`."""
        self.shape = shape
        """That of the conversation: `openai` or `anthropic`."""
        self.estimated = estimated
        """Whether tokens are estimated: no provider's tokeniser was given or found."""
        self._said = said
        self._stable = stable

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Ready to be sent, in the shape in which the conversation was kept.

        In the shape of OpenAI the first one is a system message, when there is something to say in it. Anthropic takes
        that apart from the messages: it is `system`, and `anthropic()` has both.
        """
        return self.anthropic()["messages"] if self.shape == ANTHROPIC else self.openai()

    def openai(self) -> list[dict[str, Any]]:
        """The messages for `client.chat.completions.create(messages=...)`."""
        return shapes.openai([*self._introduced(), *self._said])

    def anthropic(self, *, cache: bool = False) -> dict[str, Any]:
        """`system` and `messages` for `client.messages.create(**context.anthropic(), ...)`.

        With `cache=True` the provider is told to cache what stays as it is.
        """
        words = [one.text for one in (*self._introduced(), *self._said) if one.role == "system"]
        system: Any = "\n\n".join(words)
        messages = shapes.anthropic(self._said)
        if cache:
            system = [{"type": "text", "text": system, "cache_control": CACHED}] if system else system
            messages = self._marked()
        return {**({"system": system} if system else {}), "messages": messages}

    @property
    def stable(self) -> int:
        """So many messages at the beginning are the same the next time, until there is a step."""
        if self.shape == ANTHROPIC:
            return len(self._beginning())
        return len(shapes.openai([*self._introduced(), *self._said[: self._stable]]))

    @property
    def text(self) -> str:
        """Everything, section by section, for a model that takes a text; or to be read by people."""
        return "\n\n".join(f"## {section.title}\n\n{section.text}" for section in self.sections if section.text)

    def explain(self) -> str:
        """The budget as a picture, and what is not shown and why."""
        from .explaining import explained

        return explained(self)

    def _introduced(self) -> list[Said]:
        return [Said("system", (Text(self.system),))] if self.system else []

    def _beginning(self) -> list[dict[str, Any]]:
        return shapes.anthropic(self._said[: self._stable])

    def _marked(self) -> list[dict[str, Any]]:
        """The same messages, with a mark at the end of those that stay: a message of both kinds is cut in two parts."""
        messages, stays = shapes.anthropic(self._said), self._beginning()
        if stays:
            last = messages[len(stays) - 1]
            own = shapes.blocks(stays[-1]["content"])
            content = shapes.blocks(last["content"])
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


def transcript(said: tuple[Said, ...]) -> str:
    """A conversation as text."""
    return "\n\n".join(f"{one.role}: {_words(one)}" for one in said)


def _words(one: Said) -> str:
    lines = []
    for part in one.parts:
        if isinstance(part, Text):
            lines.append(part.text)
        elif isinstance(part, Call):
            lines.append(f"[calls {part.name} {part.arguments}]")
        elif isinstance(part, Result):
            lines.append(f"[a tool {'failed' if part.error else 'returned'}]\n{part.text}")
        elif isinstance(part, Other):
            lines.append(f"[{part.kind}]")
    return "\n".join(lines)
