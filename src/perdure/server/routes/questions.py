"""`/v1/questions`: what runs ask people, and their answers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import RequestInvalid
from perdure.run.answers import RunAnswer
from perdure.run.inbox import InboxQuestion, answer_question, find_question, list_inbox
from perdure.server.access import Role
from perdure.server.calls import ApiCall
from perdure.server.routing import Route
from perdure.server.values import from_json, to_json
from perdure.server.views import format_ms

LIMIT_MAX = 1000


class QuestionsQuery(msgspec.Struct, frozen=True):
    """Which page."""

    after: str = ""
    limit: int = 100


class QuestionEntry(msgspec.Struct, frozen=True):
    """A question that waits for a person."""

    id: str
    agent: str
    run: str
    kind: str
    """`ask`, `approve` or `in_doubt`."""
    text: str
    asked_at: str
    choices: Any
    """The allowed answers, if they are limited."""
    key: str
    """The key of an effect in doubt."""


class QuestionList(msgspec.Struct, frozen=True):
    """Open questions."""

    questions: list[QuestionEntry]
    next: str | None
    """Give it to `?after=` for more of them."""


class AnswerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An answer: a value; or for an effect in doubt `done` with its result, `retry` or `fail`."""

    answer: Any = UNSET
    done: Any = UNSET
    retry: bool = False
    fail: bool = False
    by: str = ""

    def read(self) -> RunAnswer:
        """Return the answer."""
        given = [not isinstance(self.answer, UnsetType), not isinstance(self.done, UnsetType), self.retry, self.fail]
        if sum(given) != 1:
            raise RequestInvalid("give one of `answer`, `done`, `retry` and `fail`")
        if self.retry or self.fail:
            return RunAnswer("retry" if self.retry else "fail")
        return RunAnswer("value", from_json(self.answer)) if given[0] else RunAnswer("done", from_json(self.done))


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """A question that has its answer."""

    id: str
    verdict: str


async def list_all(call: ApiCall) -> QuestionList:
    """List the open questions of the agents that the key may see."""
    return await _list(call, call.principal.agent or "")


async def list_of_agent(call: ApiCall) -> QuestionList:
    """List the open questions of one agent."""
    call.principal.require_agent(call.path["agent"])
    return await _list(call, call.path["agent"])


async def _list(call: ApiCall, agent: str) -> QuestionList:
    query: QuestionsQuery = call.query
    store, limit = await call.services.tenants.store(call.principal), max(1, min(query.limit, LIMIT_MAX))
    found = await asyncio.to_thread(list_inbox, store, agent, query.after, limit + 1)
    shown = [_entry(one) for one in found[:limit]]
    return QuestionList(shown, shown[-1].id if len(found) > limit else None)


def _entry(question: InboxQuestion) -> QuestionEntry:
    told = {"asked_at": format_ms(question.asked_at), "choices": to_json(question.choices)}
    return QuestionEntry(**msgspec.structs.asdict(question) | told)


async def answer(call: ApiCall) -> AnsweredQuestion:
    """Answer a question. The first answer counts."""
    body: AnswerRequest = call.body
    engine = (await call.agent())._engine
    given, by = body.read(), body.by or f"key {call.principal.key_id}"
    question = await asyncio.to_thread(find_question, engine.store, engine.name, call.path["question"])
    recorded = await asyncio.to_thread(answer_question, engine, question, given, by)
    return AnsweredQuestion(question.id, recorded.verdict)


ROUTES = (
    Route(
        method="GET",
        path="/v1/questions",
        operation="list_questions",
        summary="List what runs ask people, over all agents that the key may see.",
        handler=list_all,
        query=QuestionsQuery,
        response=QuestionList,
    ),
    Route(
        method="GET",
        path="/v1/agents/{agent}/questions",
        operation="list_agent_questions",
        summary="List what the runs of an agent ask people.",
        handler=list_of_agent,
        query=QuestionsQuery,
        response=QuestionList,
    ),
    Route(
        method="POST",
        path="/v1/agents/{agent}/questions/{question}:answer",
        operation="answer_question",
        summary="Answer a question. The first answer counts.",
        handler=answer,
        role=Role.WRITER,
        request=AnswerRequest,
        response=AnsweredQuestion,
    ),
)
