"""The example server that the conformance tool asks for, on Perdure's protocol: its own tools, resources and prompts.

`python -m tests.mcp.conformance_server STORE` speaks over standard input and output, as `perdure mcp` does.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
from collections.abc import Mapping
from typing import Any

from perdure.api.aio import AsyncAgent
from perdure.errors import ResourceNotFound, WrongValue
from perdure.mcp import progress
from perdure.mcp.catalog import McpCatalog
from perdure.mcp.prompts import complete
from perdure.mcp.stdio import StdioChannel, serve_stdio
from perdure.mcp.stdio_loop import StdioLoop
from perdure.mcp.tool import McpCaller, McpTool, ToolAnswer, ToolInput

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": base64.b64encode(b"RIFF").decode(), "mimeType": "audio/wav"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def embedded(uri: str, words: str = "Embedded resource content for testing.") -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": words}}


class Blocks(ToolAnswer, frozen=True):
    """An answer with other content than text."""

    blocks: tuple[dict[str, Any], ...] = ()

    @property
    def content(self) -> list[dict[str, Any]]:
        return list(self.blocks)


class NoInput(ToolInput, frozen=True):
    """No arguments."""


class ExampleTool(McpTool, frozen=True, kw_only=True):
    """A tool whose schema is given."""

    schema: dict[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        told = super().describe()
        return told if self.schema is None else {**told, "inputSchema": self.schema}


async def _fail(caller: McpCaller, given: NoInput) -> ToolAnswer:
    raise WrongValue("This tool intentionally returns an error for testing")


async def _log(caller: McpCaller, given: NoInput) -> ToolAnswer:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        logging.getLogger("perdure").info(words)
        await asyncio.sleep(0.05)
    return ToolAnswer("logged", {})


async def _take_long(caller: McpCaller, given: NoInput) -> ToolAnswer:
    await asyncio.sleep(0.5)
    return ToolAnswer("done", {})


def _saying(*blocks: dict[str, Any]) -> Any:
    async def handler(caller: McpCaller, given: NoInput) -> ToolAnswer:
        return Blocks("", {}, blocks=blocks)

    return handler


_ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": _ADDRESS},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
_HANDLERS = {
    "test_simple_text": _saying(text("This is a simple text response for testing.")),
    "test_image_content": _saying(IMAGE),
    "test_audio_content": _saying(AUDIO),
    "test_embedded_resource": _saying(embedded("test://embedded-resource")),
    "test_multiple_content_types": _saying(text("Multiple content types test:"), IMAGE, embedded("test://mixed")),
    "test_error_handling": _fail,
    "test_tool_with_logging": _log,
    "test_tool_with_progress": _take_long,
    "json_schema_2020_12_tool": _saying(text("ok")),
}
TOOLS = {
    name: ExampleTool(
        name=name,
        title=name,
        description=name,
        arguments=NoInput,
        handler=handler,
        schema=_SCHEMA if name.startswith("json_schema") else None,
    )
    for name, handler in _HANDLERS.items()
}
_STATIC: Mapping[str, dict[str, Any]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}
_PROMPTS: Mapping[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
}


async def read(agent: AsyncAgent, uri: str) -> dict[str, Any]:
    if uri in _STATIC:
        return {"uri": uri, **_STATIC[uri]}
    if uri.startswith("test://template/"):
        return {"uri": uri, "mimeType": "application/json", "text": f'{{"id": "{uri.split("/")[3]}"}}'}
    raise ResourceNotFound(f"there is no resource {uri}")


async def prompt(agent: AsyncAgent, name: str, arguments: dict[str, str]) -> dict[str, Any]:
    contents = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [text(f"Prompt with arguments: {arguments}")],
        "test_prompt_with_embedded_resource": [embedded(arguments.get("resourceUri", "")), text("Process it.")],
        "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
    }[name]
    return {"messages": [{"role": "user", "content": content} for content in contents]}


CATALOG = McpCatalog(
    tools=TOOLS,
    resources=[{"uri": uri, "name": uri, "mimeType": content["mimeType"]} for uri, content in _STATIC.items()],
    templates=[{"uriTemplate": "test://template/{id}/data", "name": "template"}],
    prompts=[
        {"name": name, "description": name, "arguments": [{"name": one, "required": True} for one in arguments]}
        for name, arguments in _PROMPTS.items()
    ],
    read=read,
    prompt=prompt,
    complete=complete,
)


def main(store: str) -> None:
    progress.PROGRESS_SECONDS = 0.05
    channel = StdioChannel.take_standard_streams()
    serve_stdio(channel, lambda channel: StdioLoop(channel, "conformance", store, "", CATALOG))


if __name__ == "__main__":
    main(sys.argv[1])
