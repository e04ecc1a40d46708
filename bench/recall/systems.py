"""What is compared: a corpus goes in, and for each question the places of ten memories come out."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from bench.lab import run
from bench.recall.corpus import Corpus
from perdure import Agent
from perdure.memory.recall.embedding import LocalEmbedder

Search = Callable[[str], list[int]]
System = Callable[[Corpus, int], Search]


def search_fts5(corpus: Corpus, k: int) -> Search:
    """SQLite's own full text search with its stemmer and BM25, as most programs have it."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE memories USING fts5 (text, tokenize = 'porter unicode61')")
    rows = ((at, memory.text) for at, memory in enumerate(corpus.memories))
    base.executemany("INSERT INTO memories (rowid, text) VALUES (?, ?)", rows)

    def search(question: str) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        found = "SELECT rowid FROM memories WHERE memories MATCH ? ORDER BY bm25(memories) LIMIT ?"
        return [at for (at,) in base.execute(found, (wanted, k))]

    return search


class Chroma:
    """Chroma as it comes, but for the model: its own is the same one, and is downloaded when it is first used.

    It lives in the environment of the peers, and is asked all questions of a set at once.
    """

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self._file = folder / "given.json"
        self.version = ""

    def __call__(self, corpus: Corpus, k: int) -> Search:
        texts, questions = [memory.text for memory in corpus.memories], [question.text for question in corpus.questions]
        vectors, asked = (_local().embed(part).tolist() for part in (texts, questions))
        given = {"texts": texts, "vectors": vectors, "questions": asked, "count": k}
        self._file.write_text(json.dumps(given), encoding="utf-8")
        said = json.loads(run([str(self._python), "-m", "bench.peers.chroma", str(self._file)]).splitlines()[-1])
        self.version = said["version"]
        found: dict[str, list[int]] = dict(zip(questions, said["found"], strict=True))
        return found.__getitem__


def vectors_alone(corpus: Corpus, k: int) -> Search:
    """MiniLM's vectors and nothing else, compared exactly: the most that Chroma and Mem0 can give offline."""
    import numpy as np

    embedder = _local()
    table = embedder.embed([memory.text for memory in corpus.memories])

    def search(question: str) -> list[int]:
        near = table @ embedder.embed([question])[0]
        best: list[int] = np.argsort(-near)[:k].tolist()
        return best

    return search


class Product:
    """An agent that remembers every turn and recalls, at one of its three levels."""

    def __init__(self, embedder: str) -> None:
        self._embedder = embedder

    def __call__(self, corpus: Corpus, k: int) -> Search:
        folder = tempfile.TemporaryDirectory(prefix="perdure-recall-")
        agent = Agent(corpus.name, store=f"sqlite:///{folder.name}/perdure.db", embedder=self._embedder)
        agent.memory.remember_all(
            [
                {
                    "text": memory.text,
                    "valid_from": datetime.combine(memory.day, datetime.min.time(), UTC),
                    "meta": {"at": at},
                    "thread": f"session {memory.thread}",
                }
                for at, memory in enumerate(corpus.memories)
            ],
            kind="episodic",
        )

        def search(question: str, kept: object = folder) -> list[int]:
            return [int(memory.meta["at"]) for memory in agent.memory.recall(question, k=k)]

        return search


@cache
def _local() -> LocalEmbedder:
    return LocalEmbedder()


CHROMA = "Chroma, MiniLM"
SYSTEMS: dict[str, System] = {
    "plain FTS5 (BM25)": search_fts5,
    "MiniLM vectors, exact": vectors_alone,
    "Perdure, words alone": Product("words"),
    "Perdure[memory]": Product("table"),
    "Perdure[embed]": Product("minilm"),
}
"""Those that live in our own environment."""


def choose_systems(names: Sequence[str]) -> dict[str, System]:
    """Those that are asked for, by their names; all when nothing is."""
    return {name: system for name, system in SYSTEMS.items() if not names or name in names}
