"""What is compared: a corpus goes in, and for each question the places of ten memories come out."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from typing import Any

from bench.recall.corpus import Corpus
from perdure import Agent
from perdure.memory.meaning import Local

Search = Callable[[str], list[int]]
System = Callable[[Corpus, int], Search]


def plain_fts5(corpus: Corpus, k: int) -> Search:
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


def chroma(corpus: Corpus, k: int) -> Search:
    """Chroma as it comes, but for the model: its own is the same one, and is downloaded when it is first used."""
    import chromadb  # type: ignore[import-not-found, unused-ignore]

    made = chromadb.EphemeralClient().create_collection(corpus.name)
    texts = [memory.text for memory in corpus.memories]
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        numbers = [str(start + at) for at in range(len(part))]
        made.add(ids=numbers, documents=part, embeddings=_local().embed(part).tolist())

    def search(question: str) -> list[int]:
        found = made.query(query_embeddings=_local().embed([question]).tolist(), n_results=k)
        return [int(at) for at in found["ids"][0]]

    return search


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

    def __init__(self, embedder: str, **common: Any) -> None:
        self._embedder = embedder
        self._common = common

    def __call__(self, corpus: Corpus, k: int) -> Search:
        folder = tempfile.TemporaryDirectory(prefix="perdure-recall-")
        agent = Agent(corpus.name, store=f"sqlite:///{folder.name}/perdure.db", embedder=self._embedder)
        agent.memory.remember_all(
            [
                {
                    "text": it.text,
                    "valid_from": datetime.combine(it.day, datetime.min.time(), UTC),
                    "meta": {"at": at},
                    "thread": f"session {it.thread}",
                }
                for at, it in enumerate(corpus.memories)
            ],
            kind="episodic",
        )

        def search(question: str, kept: object = folder) -> list[int]:
            return [int(it.meta["at"]) for it in agent.memory.recall(question, k=k)]

        return search


@cache
def _local() -> Local:
    return Local()


SYSTEMS: dict[str, System] = {
    "plain FTS5 (BM25)": plain_fts5,
    "MiniLM vectors, exact": vectors_alone,
    "Chroma, MiniLM": chroma,
    "Perdure, words alone": Product("words"),
    "Perdure[memory]": Product("table"),
    "Perdure[embed]": Product("minilm"),
}


def chosen(names: Sequence[str]) -> dict[str, System]:
    """Those that are asked for, by their names; all that are installed when nothing is."""
    there = {name: it for name, it in SYSTEMS.items() if it is not chroma or find_spec("chromadb") is not None}
    return {name: it for name, it in there.items() if not names or name in names}
