"""Responses of the OpenAI and Anthropic SDKs and LangChain messages: the real classes, in this and other processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from perdure.errors import CorruptValue, NotStorable
from perdure.values import codec
from perdure.values.codec.tags import STRUCTURES, ExtensionTag

COMPLETION = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [
        {
            "finish_reason": "tool_calls",
            "index": 0,
            "message": {
                "role": "assistant",
                "content": None,
                "a_new_field": {"x": [1]},
                "tool_calls": [{"id": "t", "type": "function", "function": {"name": "book", "arguments": "{}"}}],
            },
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}
RESPONSE = {
    "id": "r-1",
    "object": "response",
    "created_at": 1.5,
    "model": "gpt-5",
    "output": [
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        }
    ],
}
MESSAGE = {
    "id": "m-1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "t", "name": "book", "input": {"x": 1}}],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


class Flight(pydantic.BaseModel):
    number: str


def completion() -> Any:
    return pytest.importorskip("openai.types.chat", reason="openai is not installed").ChatCompletion.construct(
        **COMPLETION
    )


def make_parsed() -> Any:
    """What `client.chat.completions.parse(response_format=Flight)` returns."""
    chat = pytest.importorskip("openai.types.chat", reason="openai is not installed")
    made = chat.ParsedChatCompletion[Flight].construct(**COMPLETION)
    made.choices[0].message.parsed = Flight(number="LH1")
    return made


def response() -> Any:
    module = pytest.importorskip("openai.types.responses", reason="openai is not installed")
    return module.Response.construct(**RESPONSE)


def message() -> Any:
    return pytest.importorskip("anthropic.types", reason="anthropic is not installed").Message.construct(**MESSAGE)


def make_requested() -> Any:
    """As the client returns it: with the id of the request, and more in newer versions."""
    made = message()
    made._request_id, made._workspace_id, made._of_a_later_version = "req-1", None, "text"
    return made


def make_said() -> Any:
    messages = pytest.importorskip("langchain_core.messages", reason="langchain_core is not installed")
    return messages.AIMessage("hi", tool_calls=[{"name": "book", "args": {"x": 1}, "id": "t"}])


def make_generated() -> Any:
    outputs = pytest.importorskip("langchain_core.outputs", reason="langchain_core is not installed")
    return outputs.ChatResult(generations=[outputs.ChatGeneration(message=make_said())])


MAKERS = [completion, make_parsed, response, message, make_requested, make_said, make_generated]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_a_response_comes_back_as_its_class(make: Any) -> None:
    value = make()
    back = codec.decode(codec.encode({"deep": [(value,)]}))["deep"][0][0]
    assert type(back) is type(value)
    assert back == value
    assert back.model_dump(exclude_unset=True) == value.model_dump(exclude_unset=True)
    assert back.model_fields_set == value.model_fields_set
    assert {name: item for name, item in vars(back).items() if name[0] == "_"} == {
        name: item for name, item in vars(value).items() if name[0] == "_"
    }
    assert codec.encode(back) == codec.encode(value)


@pytest.mark.parametrize("attached", [{"_iter": "x"}, {"__class__": "x"}, {"id": "x"}, {"_note": ["x"]}, ["_note"]])
def test_a_store_attaches_nothing_that_hides_what_the_class_has(attached: Any) -> None:
    data = codec.encode(make_requested())
    name, version, fields, aside = msgspec.msgpack.decode(data)[1:]
    forged = [STRUCTURES[ExtensionTag.OBJECT], name, version, fields, {**aside, "attached": attached}]
    with pytest.raises(CorruptValue):
        codec.decode(msgspec.msgpack.encode(forged))


def test_what_cannot_be_attached_is_refused_at_once() -> None:
    made = make_requested()
    made._client = object()
    with pytest.raises(NotStorable, match="'_client' is not a field"):
        codec.encode(made)


def _raw_objects() -> list[tuple[Any, str]]:
    """What the SDKs return besides data: pages, raw responses, streams; and their clients."""
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    openai = pytest.importorskip("openai", reason="openai is not installed")
    models = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=models))
    client = openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=httpx.Client(transport=transport))
    stream = client.chat.completions.create(model="m", messages=[], stream=True)
    return [
        (client.models.list(), "store list(page)"),
        (client.models.with_raw_response.list(), "store response.parse()"),
        (stream, "collect it inside of the step"),
        (stream.response, "store response.json() or response.text"),
        (client, "make it outside of the step"),
    ]


def test_what_is_no_data_is_refused_with_what_to_store_instead() -> None:
    for value, advice in _raw_objects():
        with pytest.raises(NotStorable, match=re.escape(advice)):
            codec.encode(value)


def test_an_unset_field_takes_no_space() -> None:
    assert len(codec.encode(completion())) < 700


READ = """
import json, sys
from perdure.errors import CorruptValue, NotStorable
from perdure.values import codec
from perdure.values.codec.tags import STRUCTURES, ExtensionTag
back = codec.decode(bytes.fromhex(sys.argv[1]))
print(json.dumps([type(back).__module__, type(back).__qualname__, back.model_dump(mode="json")], sort_keys=True))
"""


@pytest.mark.parametrize("make", [completion, message, make_said], ids=lambda make: make.__name__)
def test_another_process_reads_it_without_an_import(make: Any) -> None:
    value = make()
    done = subprocess.run(
        [sys.executable, "-c", READ, codec.encode(value).hex()],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(codec.__file__).parents[3]), *sys.path])},
    )
    cls = type(value)
    assert json.loads(done.stdout) == [cls.__module__, cls.__qualname__, value.model_dump(mode="json")]
