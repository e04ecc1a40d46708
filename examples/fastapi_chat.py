"""A chat server with FastAPI: conversations that survive, and a person who approves refunds.

    pip install perdure fastapi uvicorn
    uvicorn fastapi_chat:app
    curl localhost:8000/chat/ann --json '{"id": "m1", "text": "Refund order 7"}'      it waits for an approval
    curl localhost:8000/approve/ann --json '{"yes": true}'
    curl localhost:8000/chat/ann --json '{"id": "m1", "text": "Refund order 7"}'      refunded order 7

Kill the server at any moment and start it again. A message that is sent again, with its id, gets the reply of the
first time: no message is lost or doubled, and no refund is made twice.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from perdure import Agent, Done, NotDone, RunBusy, RunWaiting
from perdure.errors import AlreadyAnswered, NothingToAnswer

agent = Agent("support", store=os.environ.get("PERDURE_URL", "support.db"))
app = FastAPI()
BANK = Path("bank.txt")  # stands for the bank


class Message(BaseModel):
    id: str  # made by the client; the same for each attempt
    text: str


class Approval(BaseModel):
    yes: bool
    by: str = "the manager"


@agent.step  # stands for your model, which sees the whole conversation
def think(messages: list[Any]) -> str:
    with open("calls.txt", "a") as calls:
        calls.write(f"{messages[-1]['content']}\n")
    text = messages[-1]["content"].lower()
    said = sum(message["role"] == "user" for message in messages)
    return text if text.startswith("refund") else f"That was message {said}."


def is_refunded(what: str, *, key: str) -> Done | type[NotDone]:  # called when a crash leaves it in doubt
    return Done(f"refunded {what}") if BANK.exists() and key in BANK.read_text() else NotDone


@agent.effect(check=is_refunded, timeout=30)
def refund(what: str, *, key: str) -> str:
    with BANK.open("a") as bank:
        bank.write(f"{key} {what}\n")
    return f"refunded {what}"


@agent.turn  # called once per message, and resumed after a crash
def answer(turn: Any) -> None:
    reply = think(turn.context(budget=8000).messages)
    if reply.startswith("refund"):
        reply = refund(reply.removeprefix("refund ")) if turn.approve(f"{reply}?") else "The manager says no."
    turn.reply(reply)


@app.post("/chat/{user}")
def chat(user: str, message: Message) -> dict[str, Any]:
    try:
        return {"reply": answer(user, message.text, id=message.id)}
    except RunWaiting as waiting:  # the message is kept; the turn continues when somebody has answered
        return {"waiting": waiting.message}
    except RunBusy:  # another request of this user is being answered
        raise HTTPException(503, headers={"Retry-After": "1"}) from None


@app.post("/approve/{user}")
def approve(user: str, approval: Approval) -> dict[str, Any]:
    try:
        agent.runs.answer(agent.thread(user).turns()[-1].run, approval.yes, by=approval.by)
    except (AlreadyAnswered, NothingToAnswer):  # this approval came before, and its response was lost
        return {"answered": False}
    return {"answered": True}
