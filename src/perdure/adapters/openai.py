"""The `openai` client: in a run, each paid call is a step. After a crash its answer is read, not paid for again.

    from perdure.adapters.openai import durable

    client = durable(OpenAI())
    with agent.run("report-7"):
        answer = client.responses.create(model="gpt-5.5", input="hi")

Needs `pip install perdure[openai]`. See docs/guides/raw-clients.md.
"""

from __future__ import annotations

from typing import TypeVar

from perdure.errors import ExtraMissing, WrongType

try:
    from openai import AsyncOpenAI, OpenAI

    from perdure.adapters.http_recording import record_client
except ModuleNotFoundError as missing:
    raise ExtraMissing("perdure.adapters.openai needs openai", hint='pip install "perdure[openai]"') from missing

__all__ = ["durable"]

C = TypeVar("C")


def durable(client: C) -> C:
    """Return a copy of a client whose answers are recorded in the run that is open where it is called.

    It works for synchronous and asynchronous clients, whole answers and streams, and every API that the client posts
    to. Outside of a run, calls are made as before, with a warning.
    """
    if not isinstance(client, OpenAI | AsyncOpenAI):
        raise WrongType(f"durable() needs a client of openai, not {client!r}")
    return record_client(client, "openai")
