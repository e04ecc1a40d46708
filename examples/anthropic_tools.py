"""A tool loop with the Anthropic SDK: a model finds a flight and books it. Kill it at any moment and start it again.

    pip install perdure anthropic
    ANTHROPIC_API_KEY=... python anthropic_tools.py

No answer of the model is paid for twice, and the flight is booked once. To see it again: rm -r travel.db* bookings.txt
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anthropic import Anthropic
from anthropic.types import Message

from perdure import Agent, Done, NotDone

agent = Agent("travel", store=os.environ.get("PERDURE_URL", "travel.db"))
client = Anthropic()
BOOKINGS = Path("bookings.txt")  # stands for the airline


@agent.step  # a recorded answer is not paid for again; it comes back as a Message
def ask(messages: list[Any]) -> Message:
    return client.messages.create(model="claude-opus-4-5", max_tokens=1000, messages=messages, tools=TOOLS)


@agent.step
def search(city: str) -> list[str]:
    return [f"PD 42 to {city}, 9:00, 120 EUR", f"PD 43 to {city}, 11:00, 90 EUR"]


def is_booked(flight: str, *, key: str) -> Done | type[NotDone]:  # called when a crash leaves it in doubt
    return Done(f"booked {flight}") if BOOKINGS.exists() and key in BOOKINGS.read_text() else NotDone


@agent.effect(check=is_booked, timeout=30)  # changes the world; never silently repeated
def book(flight: str, *, key: str) -> str:
    with BOOKINGS.open("a") as bookings:
        bookings.write(f"{key} {flight}\n")
    return f"booked {flight}"


def tool(name: str, parameter: str) -> Any:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"name": name, "input_schema": schema}


TOOLS = [tool("search", "city"), tool("book", "flight")]

if __name__ == "__main__":
    with agent.run("trip-1", input="Book the cheapest flight to Oslo.") as run:
        run.messages.append({"role": "user", "content": run.input})
        while (answer := ask(list(run.messages))).stop_reason == "tool_use":
            run.messages.append({"role": "assistant", "content": answer.content})
            results = []
            for call in (block for block in answer.content if block.type == "tool_use"):
                result = {"search": search, "book": book}[call.name](**call.input)
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": str(result)})
            run.messages.append({"role": "user", "content": results})
        run.result = answer.content[0].text
    print(run.result)
