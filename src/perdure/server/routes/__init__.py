"""All routes. A new noun is one module here, and one line below."""

from __future__ import annotations

from perdure.server.openapi import describe_api
from perdure.server.routes import (
    agent_context,
    agents,
    answers,
    artifacts,
    checkpoints,
    events,
    health,
    keys,
    maintenance,
    mcp,
    memories,
    meta,
    questions,
    run_protocol,
    runs,
    state,
    store,
    threads,
    workflows,
)
from perdure.server.routing import Route

_MODULES = (
    health,
    keys,
    agents,
    runs,
    state,
    checkpoints,
    workflows,
    events,
    memories,
    threads,
    agent_context,
    artifacts,
    run_protocol,
    questions,
    answers,
    store,
    mcp,
    maintenance,
)

ROUTES: tuple[Route, ...] = meta.add_document(
    tuple(route for module in _MODULES for route in module.ROUTES), describe_api
)
