"""`/v1/openapi.json`: the description of all other routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perdure.server.calls import Answer, ApiCall
from perdure.server.routing import Route


def add_document(routes: Sequence[Route], describe: Callable[[Sequence[Route]], dict[str, Any]]) -> tuple[Route, ...]:
    """Return the routes with one more, which answers with the OpenAPI document of all of them."""
    document: list[dict[str, Any]] = []

    async def answer(call: ApiCall) -> Answer:
        if not document:
            document.append(describe(everything))
        return Answer(document[0])

    everything = (
        *routes,
        Route(
            method="GET",
            path="/v1/openapi.json",
            operation="get_openapi",
            summary="Return this document.",
            handler=answer,
            role=None,
            response=dict[str, Any],
        ),
    )
    return everything
