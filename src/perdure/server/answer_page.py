"""The page behind a link: it shows one question and takes its answer. No scripts, no cookies, nothing remote."""

from __future__ import annotations

import base64
from hashlib import sha256
from html import escape
from typing import Any

import msgspec
from starlette.responses import HTMLResponse

from perdure.run.inbox import InboxQuestion

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}"
    "textarea,input[type=text]{width:100%;box-sizing:border-box;font:inherit}"
    "button{font:inherit;padding:.4rem 1.2rem;margin:.5rem .5rem 0 0}"
    ".about{color:#555}.text{white-space:pre-wrap;font-size:1.2rem}label{display:block;margin:.4rem 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}.about{color:#aaa}}"
)
_STYLE_HASH = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def show_question(question: InboxQuestion, error: str = "", status: int = 200) -> HTMLResponse:
    """Return the page with the question and its form."""
    told = f'<p role="alert"><strong>{escape(error)}</strong></p>' if error else ""
    return _page(
        "A run asks",
        f'<p class="about">Run {escape(question.run)} of agent {escape(question.agent)}</p>'
        f'<p class="text">{escape(question.text)}</p>{told}'
        f'<form method="post">{_fields(question)}</form>',
        status,
    )


def show_text(title: str, text: str, status: int = 200) -> HTMLResponse:
    """Return a page that says one thing."""
    return _page(title, f"<p>{escape(text)}</p>", status)


def show_choice(value: Any) -> str:
    """Return a choice as the page shows it, and as the form sends it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _page(title: str, content: str, status: int) -> HTMLResponse:
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{escape(title)}</h1>{content}</main></body></html>"
    )
    return HTMLResponse(page, status, _HEADERS)


def _fields(question: InboxQuestion) -> str:
    by = '<label>Your name <input type="text" name="by" maxlength="200" autocomplete="name"></label>'
    send = "<button>Send</button>"
    if question.kind == "approve":
        return f'{by}<button name="answer" value="yes">Yes</button><button name="answer" value="no">No</button>'
    if question.kind == "in_doubt":
        return (
            '<label><input type="radio" name="verdict" value="done" required> It happened. Its result: '
            '<textarea name="answer" rows="3"></textarea></label>'
            '<label><input type="radio" name="verdict" value="retry"> It did not happen: run it again</label>'
            f'<label><input type="radio" name="verdict" value="fail"> Give up</label>{by}{send}'
        )
    if question.choices is not None:
        listed = "".join(
            f'<label><input type="radio" name="choice" value="{index}" required> {escape(show_choice(choice))}</label>'
            for index, choice in enumerate(question.choices)
        )
        return f"{listed}{by}{send}"
    return f'<label>Answer <textarea name="answer" rows="5" required></textarea></label>{by}{send}'
