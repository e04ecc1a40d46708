"""An outside service that keeps bookings: slow, forgetful, sometimes without an answer, but honest about what it did.

It serves one request after the other, in the order in which they came: who asks for a key after a request to book
it was sent is told the truth about that request. Without this no `check` in the world could be believed.
"""

from __future__ import annotations

import json
import random
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.crash.world import World

NAME = "service.sock"
DELAY_SECONDS_MAX = 0.003
UNKNOWN_SHARE, SILENT_SHARE = 0.3, 0.1
"""How often a question is answered with "I cannot tell", or not at all."""


class ServiceError(Exception):
    """The service hung up."""


def serve(folder: str, seed: int) -> None:
    """Serve until asked to stop."""
    chance, world = random.Random(seed), World(folder)
    bookings: dict[str, str] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/{NAME}")
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as file:
                line = file.readline()
                if not line.endswith(b"\n"):
                    continue  # the client died before it had asked for anything
                answer = _handle(json.loads(line), bookings, world, chance)
                if answer is None:
                    continue
                with suppress(OSError):  # a client that died hears nothing; what was done is done
                    connection.sendall(json.dumps(answer).encode() + b"\n")
                if answer == "stopped":
                    return


def _handle(
    asked: dict[str, str], bookings: dict[str, str], world: World, chance: random.Random
) -> dict[str, Any] | str | None:
    if asked["do"] == "stop":
        return "stopped"
    time.sleep(chance.uniform(0, DELAY_SECONDS_MAX))
    if asked["do"] == "book":
        bookings[asked["key"]] = world.act(asked["name"], asked["key"])
        time.sleep(chance.uniform(0, DELAY_SECONDS_MAX))
    elif asked["do"] == "find" and (luck := chance.random()) < UNKNOWN_SHARE + SILENT_SHARE:
        return {"unknown": True} if luck < UNKNOWN_SHARE else None
    return {"receipt": bookings.get(asked["key"])}


def ask(folder: str, do: str, **more: str) -> Any:
    """One request."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as file:
        connection.connect(f"{folder}/{NAME}")
        connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
        line = file.readline()
    if not line:
        raise ServiceError("no answer")
    return json.loads(line)


def is_up(folder: Path) -> bool:
    return (folder / NAME).exists()
