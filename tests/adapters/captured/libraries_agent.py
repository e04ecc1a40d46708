"""A program that asks through `httpx`, `requests` and `urllib3`, whole and streamed. It knows nothing of Perdure."""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.request import urlopen

import httpx
import requests
import urllib3

URL = sys.argv[1]
ASK = f"{URL}/v1/chat/completions?key=sk-secret"
HEADERS = {"authorization": "Bearer sk-secret", "content-type": "application/json", "x-pid": str(os.getpid())}


def make_question(turn: int, *, stream: bool) -> dict[str, Any]:
    return {"model": "gpt-4o", "stream": stream, "messages": [{"role": "user", "content": f"question {turn}"}]}


def ask(turn: int) -> bytes:
    body = json.dumps(make_question(turn, stream=turn % 2 == 1))
    if turn == 0:
        return httpx.post(ASK, content=body, headers=HEADERS).content
    if turn == 1:
        with httpx.stream("POST", ASK, content=body, headers=HEADERS) as answer:
            return b"".join(answer.iter_bytes())
    if turn == 2:
        return requests.post(ASK, data=body, headers=HEADERS).content
    if turn == 3:
        with requests.post(ASK, data=body, headers=HEADERS, stream=True) as told:
            return b"".join(told.iter_lines())
    if turn == 4:
        return urllib3.request("POST", ASK, body=body, headers=HEADERS).data
    return urllib3.request("POST", ASK, body=body.encode(), headers=HEADERS, preload_content=False).read()


def main() -> None:
    for turn in range(6):
        print(ask(turn).decode().strip())
        urlopen(f"{URL}/log/{turn}/{os.getpid()}").close()


main()
