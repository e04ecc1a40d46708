"""Turns templates into answers. Every shown text passes `show_text`, and nothing on a page is inline code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.responses import HTMLResponse

from perdure.run.usage import format_dollars, format_duration
from perdure.server.page.assets import asset_url
from perdure.server.values import to_json
from perdure.server.views import format_ms
from perdure.values.visible import clean

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}
VALUE_CHARACTERS_MAX = 20_000
"""Of one value on a page; the command line and the API show all of it."""
LIVE_BLOCK = "live"
"""The block of a template that a live page repeats when it changes."""


def show_text(value: Any) -> Any:
    r"""Return a value as pages show it: characters that a browser would obey become visible.

    >>> show_text("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return clean(str(value), keep="\n\t")


def show_value(value: Any) -> str:
    """Return a stored value as indented JSON; a text stays a text."""
    text = value if isinstance(value, str) else json.dumps(to_json(value), indent=2, ensure_ascii=False)
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}\n… {len(text):,} characters in all"


def show_short(value: Any, limit: int = 160) -> str:
    """Return a value in one line."""
    text = value if isinstance(value, str) else json.dumps(to_json(value), ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def link(*parts: str, **query: Any) -> str:
    """Return the address of a page: every part of the path is percent-encoded, and empty parameters are left out."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {name: value for name, value in query.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def show_time(at: int) -> Markup:
    """Return a moment as an element that the browser shows in words and in the reader's zone."""
    stamp = format_ms(at)
    return Markup('<time datetime="{}">{}</time>').format(stamp, stamp.replace("T", " ").replace("Z", " UTC"))


def show_ms(milliseconds: float) -> str:
    """Return a duration: milliseconds below a second.

    >>> show_ms(12), show_ms(1500)
    ('12 ms', '1.5 s')
    """
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else format_duration(milliseconds / 1000)


@cache
def templates() -> jinja2.Environment:
    """Return the environment of all templates. It escapes everything, and a missing name is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("perdure.server.page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=show_text,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "value": show_value,
        "short": show_short,
        "time": show_time,
        "ms": show_ms,
        "dollars": format_dollars,
        "count": "{:,}".format,
    }
    made.globals |= {"asset": asset_url, "link": link}
    # Not imported by the templates themselves: the live block of one is rendered alone.
    made.globals["ui"] = made.get_template("parts.html").module
    return made


def render_page(name: str, shown: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """Return a whole page."""
    return HTMLResponse(templates().get_template(name).render(shown), status, HEADERS)


def render_live_block(name: str, shown: Mapping[str, Any]) -> str:
    """Return the part of a page that changes by itself."""
    template = templates().get_template(name)
    return "".join(template.blocks[LIVE_BLOCK](template.new_context(dict(shown))))
