"""A chat of 188 long messages, as much as fills a model's context: what a question and a message cost.

    python -m bench.recall.chat --level table

Processor time of this thread, which others at work on the machine hardly change; and how many pieces were parsed.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.recall.scale import BEGIN, sentences
from perdure import Agent
from perdure.memory import pieces
from perdure.memory.recall import piece_cache

MESSAGES, WORDS, EVERY = 188, 400, 4


@dataclass(frozen=True)
class Measured:
    """Milliseconds."""

    p50: float
    first: float
    message: float
    """What remembering one message takes, by the clock: a network may use several cores."""
    parsed: int
    """How many pieces were parsed by all questions after the first."""


def messages(chance: random.Random, count: int) -> list[str]:
    """Texts of some 400 words each."""
    known, made = sentences(), list[str]()
    for number in range(count):
        said: list[str] = []
        while sum(len(sentence.split()) for sentence in said) < WORDS:
            said.append(chance.choice(known))
        made.append(f"{'Assistant' if number % 2 else 'User'}: {' '.join(said)}")
    return made


def questions(chance: random.Random, said: list[str]) -> list[str]:
    """What one may ask of some of them."""
    asked = [[word for word in text.split() if len(word) > 4] for text in said[::EVERY]]
    return [f"What did I say about {' '.join(chance.sample(words, 6))}?" for words in asked]


def measure(level: str, count: int = MESSAGES) -> Measured:
    """Everything of one level."""
    chance = random.Random(7)
    said = messages(chance, count)
    asked = questions(chance, said)
    with tempfile.TemporaryDirectory(prefix="perdure-chat-") as folder:
        agent = Agent("chat", store=f"sqlite:///{folder}/perdure.db", embedder=level)
        agent.memory.remember("This loads the model.", thread="another")
        began = time.perf_counter()
        for number, text in enumerate(said):
            agent.memory.remember(
                text, kind="episodic", thread="chat", valid_from=BEGIN + timedelta(minutes=7 * number)
            )
        message = 1000 * (time.perf_counter() - began) / count
        first = _milliseconds(partial(agent.memory.recall, asked[0], k=10))
        with patch.object(piece_cache, "parsed", wraps=pieces.parsed) as parsed:
            taken = [_milliseconds(partial(agent.memory.recall, text, k=10)) for text in 2 * asked]
        agent.close()
    return Measured(median(taken), first, message, parsed.call_count)


def _milliseconds(work: Callable[[], Any]) -> float:
    began = time.thread_time()
    work()
    return 1000 * (time.thread_time() - began)


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=["words", "table", "minilm"], default="table")
    parser.add_argument("--messages", type=int, default=MESSAGES)
    given = parser.parse_args()
    print(json.dumps(asdict(measure(given.level, given.messages))))


if __name__ == "__main__":
    main()
