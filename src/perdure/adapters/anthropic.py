"""The `anthropic` client: in a run, each paid call is a step. After a crash its answer is read, not paid for again.

    from perdure.adapters.anthropic import durable

    client = durable(Anthropic())
    with agent.run("report-7"):
        answer = client.messages.create(model="claude-sonnet-5-5", max_tokens=99, messages=messages)

Needs `pip install perdure[anthropic]`. See docs/guides/raw-clients.md.
"""

from __future__ import annotations

from typing import TypeVar

from perdure.errors import ExtraMissing, WrongType

try:
    from anthropic import Anthropic, AsyncAnthropic

    from perdure.adapters.http_recording import record_client
except ModuleNotFoundError as missing:
    raise ExtraMissing(
        "perdure.adapters.anthropic needs anthropic", hint='pip install "perdure[anthropic]"'
    ) from missing

__all__ = ["durable"]

C = TypeVar("C")


def durable(client: C) -> C:
    """Return a copy of a client whose answers are recorded in the run that is open where it is called.

    It works for synchronous and asynchronous clients, whole answers and streams, and every API that the client posts
    to. Outside of a run, calls are made as before, with a warning.
    """
    if not isinstance(client, Anthropic | AsyncAnthropic):
        raise WrongType(f"durable() needs a client of anthropic, not {client!r}")
    return record_client(client, "anthropic")
