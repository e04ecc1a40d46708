"""The OpenAPI 3.1 document, generated from the routes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from perdure import __version__
from perdure.server.problems import MEDIA_TYPE, Problem
from perdure.server.routing import Route

_REF = "#/components/schemas/{name}"


def describe_api(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document as plain data."""
    types = [kind for route in routes for kind in (route.request, route.response, route.query) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    known = dict(zip(map(id, [*types, Problem]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Perdure", "version": __version__, "summary": "Durable execution and memory for AI agents"},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if not name.endswith("Query")},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        "security": [{"bearer": []}, {"header": []}],
    }


def _operation(route: Route, known: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [route.operation.partition("_")[2] or "server"],
        "parameters": [*_path_parameters(route), *_query_parameters(route, components)],
        "responses": _responses(route, known),
    }
    if route.role is None:
        operation["security"] = []
    if route.method == "POST":
        operation["parameters"].append(_IDEMPOTENCY_KEY)
    if route.request is not None:
        content = {route.request_media_type: {"schema": known[id(route.request)]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request that is sent again with the same key is carried out once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in route.parameters]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components.get(route.query.__name__, {})
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": properties}
        for name, properties in schema.get("properties", {}).items()
    ]


def _responses(route: Route, known: dict[int, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.response is not None:
        good["content"] = {route.media_type: {"schema": known[id(route.response)]}}
    elif route.media_type != "application/json":
        good["content"] = {route.media_type: {"schema": {}}}
    problem = {"description": "A problem", "content": {MEDIA_TYPE: {"schema": known[id(Problem)]}}}
    return {str(route.status): good, "4XX": problem, "5XX": problem}
