"""Questions: what runs ask people, and a form for each answer."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.run.inbox import InboxQuestion, answer_question, find_question, list_inbox
from perdure.server.answer_form import read_answer
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import link

ROWS = 50


class InboxQuery(msgspec.Struct, frozen=True):
    """Which page."""

    after: str = ""


async def show_questions(call: PageCall) -> Shown:
    """Show the inbox."""
    found: list[InboxQuestion] = await call.read(list_inbox, call.principal.agent or "", call.query.after, ROWS + 1)
    return {
        "title": "Questions",
        "questions": found[:ROWS],
        "next": link("questions", after=found[ROWS - 1].id) if len(found) > ROWS else "",
    }


async def show_question(call: PageCall) -> Shown:
    """Show one question with its form."""
    question = await call.read(find_question, call.principal.agent or "", call.path["question"])
    return {"title": "Answer", "question": question}


async def answer(call: PageCall) -> str:
    """Record the answer. The first one counts."""
    question: InboxQuestion = await call.read(find_question, call.principal.agent or "", call.path["question"])
    agent = await call.services.tenants.agent(call.principal, question.agent)
    await asyncio.to_thread(answer_question, agent._engine, question, read_answer(question, call.body), call.by)
    return link("runs", question.agent, question.run)


PAGE = Page(
    path="/questions",
    show=show_questions,
    template="questions.html",
    query=InboxQuery,
    live=True,
    section="Questions",
)
ANSWER = Page(
    path="/questions/{question}", show=show_question, act=answer, template="question.html", section="Questions"
)
