"""An agent of LangChain that is killed in the middle of a payment, and goes on.

    pip install "perdure[langgraph]" langchain
    python langgraph_agent.py       the power fails right after the payment, before anybody has noted it
    python langgraph_agent.py       it goes on: the model is not asked again, and the bank says that it was paid

To see it all again: rm -r shop.db* bank.txt
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from perdure import Agent, Done, NotDone
from perdure.adapters.langgraph import DurableTools, PerdureSaver, effect_key

BANK = Path("bank.txt")


class Model(BaseChatModel):
    """Stands for the model that you pay for."""

    @property
    def _llm_type(self) -> str:
        return "example"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        print("the model is asked", flush=True)
        said = AIMessage(f"The bank says: {messages[-1].content}.")
        if messages[-1].type == "human":
            said = AIMessage("", tool_calls=[{"name": "pay", "args": {"invoice": 7, "amount": 120}, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=said)])


def pay(invoice: int, amount: int) -> str:
    """Pay an invoice."""
    first = not BANK.exists()
    with BANK.open("a") as bank:
        bank.write(f"{effect_key()} {invoice} {amount}\n")
    print(f"paid {amount} for invoice {invoice}", flush=True)
    if first:
        os.kill(os.getpid(), signal.SIGKILL)  # the power fails
    return "paid"


def was_paid(invoice: int, amount: int, *, key: str) -> Any:
    """Asked when nobody knows: the bank does."""
    return Done("paid before") if BANK.exists() and key in BANK.read_text() else NotDone


if __name__ == "__main__":
    agent = Agent("shop", store="shop.db")
    durable = DurableTools(agent, checks={"pay": was_paid})
    graph = create_agent(Model(), [pay], checkpointer=PerdureSaver(agent), middleware=[durable])
    thread: Any = {"configurable": {"thread_id": "invoice-7"}}
    asked: Any = {"messages": [{"role": "user", "content": "Pay invoice 7, please."}]}
    given = None if graph.get_state(thread).values else asked  # None goes on where the thread was
    print(graph.invoke(given, thread, durability="sync")["messages"][-1].content)
