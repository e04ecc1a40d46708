"""An agent on the `anthropic` SDK: whole answers, streams, and an asynchronous call. It knows nothing of Perdure."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any
from urllib.request import urlopen

from anthropic import Anthropic, AsyncAnthropic

URL = sys.argv[1]
OPTIONS: dict[str, Any] = {
    "base_url": os.environ.get("ANTHROPIC_BASE_URL", URL),
    "api_key": "sk-secret",
    "default_headers": {"x-pid": str(os.getpid())},
}
ASKED: dict[str, Any] = {"model": "claude-sonnet-4-5", "max_tokens": 99}


def ask_whole(messages: list[Any]) -> str:
    answer: Any = Anthropic(**OPTIONS).messages.create(messages=messages, **ASKED)
    return str(answer.content[0].text)


def ask_stream(messages: list[Any]) -> str:
    with Anthropic(**OPTIONS).messages.stream(messages=messages, **ASKED) as stream:
        return "".join(stream.text_stream)


async def ask_async(messages: list[Any]) -> str:
    answer: Any = await AsyncAnthropic(**OPTIONS).messages.create(messages=messages, **ASKED)
    return str(answer.content[0].text)


async def stream_async(messages: list[Any]) -> str:
    async with AsyncAnthropic(**OPTIONS).messages.stream(messages=messages, **ASKED) as stream:
        return "".join([text async for text in stream.text_stream])


def main() -> None:
    messages: list[Any] = []
    for turn in range(6):
        messages.append({"role": "user", "content": f"question {turn}"})
        way = turn % 4
        if way == 0:
            text = ask_whole(messages)
        elif way == 1:
            text = ask_stream(messages)
        elif way == 2:
            text = asyncio.run(ask_async(messages))
        else:
            text = asyncio.run(stream_async(messages))
        messages.append({"role": "assistant", "content": text})
        urlopen(f"{URL}/log/{turn}/{os.getpid()}").close()
    print(*(message["content"] for message in messages[1::2]), sep="\n")


main()
