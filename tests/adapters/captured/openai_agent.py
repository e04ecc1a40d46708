"""An agent on the `openai` SDK: whole answers, streams, and an asynchronous call. It knows nothing of Perdure."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any
from urllib.request import urlopen

from openai import AsyncOpenAI, OpenAI

URL = sys.argv[1]
OPTIONS: dict[str, Any] = {
    "base_url": os.environ.get("OPENAI_BASE_URL", f"{URL}/v1"),
    "api_key": "sk-secret",
    "default_headers": {"x-pid": str(os.getpid())},
}
MODEL = "gpt-4o"


def ask_whole(messages: list[Any]) -> str:
    answer = OpenAI(**OPTIONS).chat.completions.create(model=MODEL, messages=messages)
    return answer.choices[0].message.content or ""


def ask_stream(messages: list[Any]) -> str:
    parts = OpenAI(**OPTIONS).chat.completions.create(model=MODEL, messages=messages, stream=True)
    return "".join(part.choices[0].delta.content or "" for part in parts)


async def ask_async(messages: list[Any]) -> str:
    answer = await AsyncOpenAI(**OPTIONS).chat.completions.create(model=MODEL, messages=messages)
    return answer.choices[0].message.content or ""


async def stream_async(messages: list[Any]) -> str:
    parts = await AsyncOpenAI(**OPTIONS).chat.completions.create(model=MODEL, messages=messages, stream=True)
    return "".join([part.choices[0].delta.content or "" async for part in parts])


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
