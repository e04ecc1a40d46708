"""Requests made from the server's own OpenAPI document: valid ones, and ones with something wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

TEXTS = (
    "a",
    "travel",
    "trip",
    "",
    "1",
    "ä ö",
    "x" * 600,
    "perdure:server",
    "../..",
    "%00",
    "a/b#c?d",
    "\u202e",
    "null",
)
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, "", "text", [], {}, [1, "two"], {"$bytes": "%%"}, {"$tuple": [1]}, {"a": {"b": []}},
)  # fmt: skip


@dataclass(frozen=True)
class FuzzRequest:
    """One request."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]
    operation: dict[str, Any]


class RequestMaker:
    """Makes requests from a document; the same seed makes the same requests."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._document = document
        self._random = random.Random(seed)
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if "text/event-stream" not in json.dumps(operation["responses"])  # has no end
            if not path.startswith("/answer/")  # pages for people
            if path != "/mcp"  # its errors are those of JSON-RPC
        ]

    def requests(self, count: int) -> Iterator[FuzzRequest]:
        """Yield requests to all operations in turn."""
        for number in range(count):
            method, path, operation = self._operations[number % len(self._operations)]
            yield self._make(method, path, operation)

    def _make(self, method: str, path: str, operation: dict[str, Any]) -> FuzzRequest:
        query, headers = {}, {}
        for parameter in operation["parameters"]:
            name, value = parameter["name"], self._value(parameter["schema"])
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", quote(str(value) or "a", safe=""))
            elif parameter["in"] == "query" and self._random.random() < 0.5:
                query[name] = value if isinstance(value, str) else json.dumps(value)
            elif parameter["in"] == "header" and self._random.random() < 0.2:
                headers[name] = f"k-{self._random.randrange(50)}"
        if query:
            path += "?" + urlencode(query)
        return FuzzRequest(method, path, self._body(operation, headers), headers, operation)

    def _body(self, operation: dict[str, Any], headers: dict[str, str]) -> bytes | None:
        if "requestBody" not in operation:
            return None
        [(media, content)] = operation["requestBody"]["content"].items()
        headers["content-type"] = media
        if media != "application/json":
            return self._random.randbytes(self._random.randrange(200))
        if self._random.random() < 0.05:
            return self._random.choice([b"", b"{", b"[" * 5000, b"\xff\xfe", b'{"a":1,"a":2}', b"null", b"[]"])
        return json.dumps(self._value(content["schema"])).encode()

    def _value(self, schema: dict[str, Any] | bool, depth: int = 0) -> Any:
        if isinstance(schema, bool):
            schema = {}
        if "$ref" in schema:
            schema = self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return self._value(self._random.choice(schema["anyOf"]), depth)
        if self._random.random() < 0.08 or not schema or depth > 4:
            return self._random.choice(VALUES)
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                wanted = schema.get("required", ())
                return {
                    name: self._value(part, depth + 1)
                    for name, part in schema.get("properties", {}).items()
                    if (name in wanted and self._random.random() < 0.97) or self._random.random() < 0.4
                }
            case "array":
                count = self._random.randrange(3)
                return [self._value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return self._random.choice(TEXTS[:5]) if self._random.random() < 0.7 else self._random.choice(TEXTS)
            case "integer":
                return self._random.choice((0, 1, 2, 10, -5, 2**63))
            case "number":
                return self._random.choice((0.5, 1, -1.0, 1e300))
            case "boolean":
                return self._random.random() < 0.5
        return self._random.choice(VALUES)
