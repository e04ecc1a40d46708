"""Explains a context: the budget as a chart, and what is left out and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.presence.context.context import Context

WIDTH = 40
DROPPED_SHOWN = 12
_FULL, _EMPTY = "█", "░"


def bar(tokens: int, of: int, width: int = WIDTH) -> str:
    """Draw a share of the budget. Anything above zero is visible."""
    filled = min(width, max(1 if tokens else 0, round(width * tokens / of)))
    return _FULL * filled + _EMPTY * (width - filled)


def render_explanation(context: Context) -> str:
    """Render the explanation as text."""
    return "\n".join([*_head(context), "", *_sections(context), *_render_dropped(context)])


def _head(context: Context) -> Iterator[str]:
    about = "about " if context.estimated else ""
    used = 100 * context.tokens // context.budget
    yield f"{bar(context.tokens, context.budget)} {about}{context.tokens:,} of {context.budget:,} tokens ({used}%)"
    yield f"{len(context)} messages; the first {context.stable} stay as they are until older ones make way"


def _sections(context: Context) -> Iterator[str]:
    width = max((len(section.name) for section in context.sections), default=0)
    for section in context.sections:
        missing = section.wanted - section.tokens
        cut = f", {missing:,} of {section.wanted:,} not shown" if missing > 0 and section.wanted else ""
        picture = bar(section.tokens, context.budget, WIDTH - 10)
        yield f"{section.name:<{width}} {picture} {section.tokens:>7,} of {section.room:,}{cut}"


def _render_dropped(context: Context) -> Iterator[str]:
    if not context.dropped:
        return
    yield ""
    yield "Shortened or left out:"
    for one in context.dropped[:DROPPED_SHOWN]:
        yield f"- {one}"
    if len(context.dropped) > DROPPED_SHOWN:
        yield f"- and {len(context.dropped) - DROPPED_SHOWN} more: context.dropped has them all"
