"""The fields of a form that answers a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.errors import RequestInvalid
from perdure.run.answers import RunAnswer
from perdure.run.inbox import InboxQuestion

VERDICTS = ("done", "retry", "fail")


def read_answer(question: InboxQuestion, form: Mapping[str, str]) -> RunAnswer:
    """Return the answer from the fields of a form."""
    text = form.get("answer", "").replace("\r\n", "\n")  # browsers send every line break of a form like this
    if question.kind == "in_doubt":
        verdict = form.get("verdict", "")
        if verdict not in VERDICTS:
            raise RequestInvalid("say whether it happened")
        return RunAnswer(verdict, read_json_or_text(text) if verdict == "done" else None)
    if question.choices is None:
        return RunAnswer("value", text)
    number = form.get("choice", "")
    if not (number.isascii() and number.isdigit() and len(number) < 9 and int(number) < len(question.choices)):
        raise RequestInvalid("choose one of the answers")
    return RunAnswer("value", question.choices[int(number)])


def read_json_or_text(text: str) -> Any:
    """Return JSON as its value, and anything else as text."""
    try:
        return msgspec.json.decode(text) if text.strip() else None
    except msgspec.DecodeError:
        return text
