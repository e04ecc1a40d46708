"""What it costs that of many memories only the likely ones are compared.

    python -m bench.recall.crowded ../shared/data/locomo-dev.json --others 20000

All conversations are remembered by one agent, as those of one user, among others that have nothing to do with them.
Each question is asked in three ways: of all that there is, of that user, and with every piece compared one by one.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

from bench.recall import corpus as corpora
from bench.recall.scale import PEOPLE, sentences
from perdure import Agent
from perdure.memory.recall import candidates

EVERYTHING = 1 << 30
BATCH = 500
THE_USER = "of the conversations"
Found = Callable[[str], list[str]]


def talk(sets: Sequence[corpora.Corpus]) -> Iterator[dict[str, Any]]:
    """What was said, each with its set and place."""
    for one in sets:
        for at, memory in enumerate(one.memories):
            day = datetime.combine(memory.day, datetime.min.time(), UTC)
            where = {"meta": {"at": f"{one.name} {at}"}, "thread": f"{one.name} {memory.thread}", "user": THE_USER}
            yield {"text": memory.text, "valid_from": day, **where}


def make_others(count: int, seed: int = 5) -> Iterator[dict[str, Any]]:
    """What is in the way."""
    chance, known, begin = random.Random(seed), sentences(), datetime(2022, 1, 1, tzinfo=UTC)
    for number in range(count):
        text = " ".join(chance.choice(known) for _ in range(chance.choice((1, 1, 2, 3))))
        at = begin + timedelta(minutes=50 * number)
        meta = {"at": f"other {number}"}
        yield {
            "text": f"{chance.choice(PEOPLE)}: {text}",
            "valid_from": at,
            "user": f"user {number % 20}",
            "meta": meta,
        }


def remember(agent: Agent, wishes: list[dict[str, Any]]) -> None:
    """All of them, in the order of their time, as if they had been said then."""
    for start in range(0, len(wishes), BATCH):
        agent.memory.remember_all(wishes[start : start + BATCH], kind="episodic")


def measure_recall(found: Found, sets: Sequence[corpora.Corpus], every: int) -> tuple[float, float]:
    """The share of the evidence among ten, and milliseconds for a question."""
    shares, ms = list[float](), list[float]()
    for one in sets:
        for asked in one.questions[::every]:
            began = time.perf_counter()
            there = found(asked.text)
            ms.append((time.perf_counter() - began) * 1000)
            evidence = {f"{one.name} {at}" for at in asked.evidence}
            shares.append(len(evidence.intersection(there)) / len(evidence))
    return mean(shares), median(ms)


def measure(sets: Sequence[corpora.Corpus], level: str, count: int, every: int) -> dict[str, tuple[float, float]]:
    """Recall and milliseconds of each way to ask."""
    with tempfile.TemporaryDirectory(prefix="perdure-crowded-") as folder:
        agent = Agent("crowded", store=f"sqlite:///{folder}/perdure.db", embedder=level)
        remember(agent, [*make_others(count // 2), *talk(sets), *make_others(count - count // 2, seed=6)])

        def ask(question: str, **narrowed: Any) -> list[str]:
            return [str(memory.meta["at"]) for memory in agent.memory.recall(question, k=10, **narrowed)]

        def of_user(question: str) -> list[str]:
            return ask(question, user=THE_USER)

        likely = {
            "likely, all": measure_recall(ask, sets, every),
            "likely, of the user": measure_recall(of_user, sets, every),
        }
        with patch.object(candidates, "RECALL_ALL", EVERYTHING):
            each = {
                "each, all": measure_recall(ask, sets, every),
                "each, of the user": measure_recall(of_user, sets, every),
            }
        agent.close()
    return {**likely, **each}


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--others", type=int, default=20_000)
    parser.add_argument("--level", action="append", default=[], choices=["words", "table", "minilm"])
    parser.add_argument("--every", type=int, default=1, help="ask every so many questions")
    given = parser.parse_args()
    sets = corpora.read(given.file, "speaker")
    for level in given.level or ["words", "table", "minilm"]:
        for way, (share, ms) in measure(sets, level, given.others, given.every).items():
            print(f"{level:8} {way:24} recall {share:.4f}  p50 {ms:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
