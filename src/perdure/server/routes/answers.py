"""`/answer/...`: where the link of a notice leads. Its token is all that a person needs, and opens one question."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from perdure.errors import AlreadyAnswered, NotAllowed, NothingToAnswer, RequestInvalid, ResourceNotFound, WrongValue
from perdure.run.inbox import answer_question, find_question
from perdure.server.access import OPEN_PRINCIPAL, Principal, Role
from perdure.server.answer_form import read_answer
from perdure.server.answer_page import show_question, show_text
from perdure.server.calls import ApiCall
from perdure.server.notify.links import ANSWER_PATH, read_token
from perdure.server.routing import Route
from perdure.values.clock import SYSTEM_CLOCK

PATH = ANSWER_PATH + "{token}"
FIELDS_MAX = 10


async def show(call: ApiCall) -> Response:
    """Show the question. It changes nothing: mail programs open links by themselves."""
    try:
        principal, opened = await _open(call)
        store = await call.services.tenants.store(principal)
        return show_question(await asyncio.to_thread(find_question, store, "", opened))
    except (ResourceNotFound, NothingToAnswer) as error:
        return _closed(error)


async def take(call: ApiCall) -> Response:
    """Record the answer, once."""
    _refuse_other_sites(call.request)
    form = await _read_form(call.request)
    try:
        principal, opened = await _open(call)
        store = await call.services.tenants.store(principal)
        question = await asyncio.to_thread(find_question, store, "", opened)
    except (ResourceNotFound, NothingToAnswer) as error:
        return _closed(error)
    engine = (await call.services.tenants.agent(principal, question.agent))._engine
    by = form.get("by", "").strip()[:200] or "somebody with the link"
    try:
        await asyncio.to_thread(answer_question, engine, question, read_answer(question, form), by)
    except (AlreadyAnswered, NothingToAnswer) as error:
        return _closed(error)
    except (WrongValue, RequestInvalid) as error:
        return show_question(question, error.message, 422)
    return show_text("Thank you", "The answer is recorded, and the run goes on.")


async def _open(call: ApiCall) -> tuple[Principal, str]:
    """Return who answers and which question. The token is checked before any store of a tenant is opened."""
    own = await call.services.tenants.store(OPEN_PRINCIPAL)
    link = read_token(own, call.path["token"], SYSTEM_CLOCK.wall_ms())
    return Principal("link", link.tenant, None, Role.WRITER), link.question


def _closed(error: ResourceNotFound | NothingToAnswer | AlreadyAnswered) -> Response:
    if isinstance(error, ResourceNotFound):
        return show_text("No question", "This link opens no question. It may be incomplete, or too old.", 404)
    return show_text("Answered", "This question needs no answer any more. The first answer counts.", 410)


def _refuse_other_sites(request: Request) -> None:
    """Refuse a form on a page of another site. There is no cookie that it could use, but it could know the link."""
    origin = request.headers.get("origin", "null")
    foreign = origin != "null" and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise NotAllowed("the answer comes from a page of another site", hint="open the link itself, and answer there")


async def _read_form(request: Request) -> Mapping[str, str]:
    try:
        text = (await request.body()).decode()
        return {name: values[-1] for name, values in parse_qs(text, True, max_num_fields=FIELDS_MAX).items()}
    except ValueError as error:
        raise RequestInvalid("the form cannot be read") from error


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        operation="show_answer_page",
        summary="Show a question to the person who has its link.",
        handler=show,
        role=None,
        media_type="text/html",
    ),
    Route(
        method="POST",
        path=PATH,
        operation="take_answer_page",
        summary="Take the answer of the person who has the link.",
        handler=take,
        role=None,
        media_type="text/html",
        request_media_type="application/x-www-form-urlencoded",
    ),
)
