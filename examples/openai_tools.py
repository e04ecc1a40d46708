"""A tool loop with the OpenAI SDK: a model finds a flight and books it. Kill it at any moment and start it again.

    pip install perdure openai
    OPENAI_API_KEY=... python openai_tools.py

No answer of the model is paid for twice, and the flight is booked once. To see it again: rm -r travel.db* bookings.txt
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletion

from perdure import Agent, Done, NotDone

agent = Agent("travel", store=os.environ.get("PERDURE_URL", "travel.db"))
client = OpenAI()
BOOKINGS = Path("bookings.txt")  # stands for the airline


@agent.step  # a recorded answer is not paid for again; it comes back as a ChatCompletion
def ask(messages: list[Any]) -> ChatCompletion:
    return client.chat.completions.create(model="gpt-5.2", messages=messages, tools=TOOLS)


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
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [tool("search", "city"), tool("book", "flight")]

if __name__ == "__main__":
    with agent.run("trip-1", input="Book the cheapest flight to Oslo.") as run:
        run.messages.append({"role": "user", "content": run.input})
        while (message := ask(list(run.messages)).choices[0].message).tool_calls:
            run.messages.append(message)
            for call in message.tool_calls:
                result = {"search": search, "book": book}[call.function.name](**json.loads(call.function.arguments))
                run.messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        run.result = message.content
    print(run.result)
