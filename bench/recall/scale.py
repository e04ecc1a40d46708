"""A hundred thousand memories: how long a question takes, and what a process needs for it.

    python -m bench.recall.scale --memories 100000 [--store URL]

Texts are sentences of this repository's own pages, put together at random: what is asked for is said somewhere. The
embedder's own time is left out, as a question to a network would be; everything else is in it. On SQLite it is the
processor time of all threads of the process, which others at work on the machine change less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import quantiles
from typing import Any

from perdure import Agent
from perdure.memory.recall import terms
from perdure.memory.recall.embedders import Embedder, table

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = "Caroline Melanie John Maria Tim James Evan Sam Ann Bo".split()
BATCH = 500
QUESTIONS = 100
Clock = Callable[[], float]
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Measured:
    """Milliseconds, seconds and megabytes."""

    p50: float
    p95: float
    fresh: float
    """p50 of questions with words that nobody has asked about before."""
    filtered: dict[str, float]
    """p50 by what is left."""
    cold: float
    built: float
    rss: float
    stored: float


class Timed:
    """An embedder whose own time is known."""

    def __init__(self, embedder: Embedder, clock: Clock) -> None:
        self._embedder = embedder
        self.clock = clock
        self.id, self.dims = embedder.id, embedder.dims
        self.seconds = 0.0

    def embed(self, texts: Any) -> Any:
        """The same, timed."""
        began = self.clock()
        made = self._embedder.embed(texts)
        self.seconds += self.clock() - began
        return made


def sentences() -> list[str]:
    """What our own pages say."""
    found: list[str] = []
    for page in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [
            sentence for sentence in terms.sentences(text) if 4 <= len(sentence.split()) <= 40 and "|" not in sentence
        ]
    return found


def build(agent: Agent, count: int, seed: int = 3) -> list[str]:
    """Has an agent remember so many; and questions about some of them."""
    chance, known = random.Random(seed), sentences()
    questions: list[str] = []
    for start in range(0, count, BATCH):
        wishes: list[dict[str, Any]] = []
        for number in range(start, min(start + BATCH, count)):
            text = " ".join(chance.choice(known) for _ in range(chance.choice((1, 1, 2, 3))))
            person = chance.choice(PEOPLE)
            at = BEGIN + timedelta(minutes=10 * number)
            wishes.append({"text": f"{person}: {text}", "valid_from": at, "user": f"user {number % 20}"})
            if len(questions) < QUESTIONS and chance.random() < 4 * QUESTIONS / count:
                asked = [word for word in text.split() if len(word) > 4]
                questions.append(f"What did {person} say about {' '.join(asked[:: max(len(asked) // 5, 1)][:6])}?")
        agent.memory.remember_all(wishes, kind="episodic")
    return questions


def ask(agent: Agent, questions: list[str], embedder: Timed | None, clock: Clock, **narrowed: Any) -> list[float]:
    """Milliseconds for each, without the embedder's."""
    taken = []
    for question in questions:
        before, began = embedder.seconds if embedder else 0.0, clock()
        agent.memory.recall(question, k=10, **narrowed)
        whole = clock() - began
        taken.append(1000 * (whole - ((embedder.seconds - before) if embedder else 0.0)))
    return taken


def measure(store: str, count: int, *, built: bool = False, words_alone: bool = False) -> Measured:
    """Everything of one store."""
    found = None if words_alone else table()
    clock = time.process_time if store.startswith("sqlite:") else time.perf_counter
    timed = Timed(found, clock) if found else None
    agent = Agent("bench", store=store, embedder=timed or False)
    began = time.perf_counter()
    questions = build(agent, 0 if built else count)
    if built:
        questions = _read_questions(count)
    took = time.perf_counter() - began
    agent.close()
    agent = Agent("bench", store=store, embedder=timed or False)
    began = clock()
    agent.memory.recall(questions[0], k=10)
    cold = clock() - began
    fresh = quantiles(ask(agent, questions[1:], timed, clock), n=2)[0]
    warm = ask(agent, questions, timed, clock)
    narrow = {
        what: quantiles(ask(agent, questions, timed, clock, **how), n=2)[0] for what, how in _filters(count).items()
    }
    agent.close()
    rss = _peak()
    cuts = quantiles(warm, n=20)
    return Measured(cuts[9], cuts[18], fresh, narrow, cold, took, rss, _size(store))


def _peak() -> float:
    """The most that this process has had. What `getrusage` says begins with what its parent had."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _filters(count: int) -> dict[str, dict[str, Any]]:
    middle = BEGIN + timedelta(minutes=10 * (count // 2))
    return {
        "one user's of twenty": {"user": "user 7"},
        "the newer half": {"since": middle},
        "all that is trusted": {"min_trust": 0.5},
    }


def _read_questions(count: int) -> list[str]:
    """The questions to a store that was built before."""

    class Nobody:
        def remember_all(self, *_: Any, **__: Any) -> None: ...

    class Empty:
        memory = Nobody()

    return build(Empty(), count)  # type: ignore[arg-type]


def _size(store: str) -> float:
    path = store.removeprefix("sqlite:///")
    return os.path.getsize(path) / 1e6 if os.path.exists(path) else 0.0


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--store", help="a URL; a new file by default")
    parser.add_argument("--built", action="store_true", help="the store has them already")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--words", action="store_true", help="without numpy's table and vectors")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or f"sqlite:///{folder}/recall.db"
        found = measure(store, given.memories, built=given.built, words_alone=given.words)
        print(json.dumps(asdict(found)) if given.json else found)


if __name__ == "__main__":
    main()
