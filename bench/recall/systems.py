"""What is compared: a corpus goes in, and for each question the places of ten memories come out."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache

import msgspec

from bench.recall.corpus import Corpus
from perdure.memory import boards, fusion
from perdure.memory.embedders import Embedder
from perdure.memory.meaning import Local, Static

Search = Callable[[str], list[int]]
System = Callable[[Corpus, int], Search]


def plain_fts5(corpus: Corpus, k: int) -> Search:
    """SQLite's own full text search with its stemmer, as most programs have it."""
    base = sqlite3.connect(":memory:")
    base.execute("CREATE VIRTUAL TABLE memories USING fts5 (text, tokenize = 'porter unicode61')")
    rows = ((at, memory.text) for at, memory in enumerate(corpus.memories))
    base.executemany("INSERT INTO memories (rowid, text) VALUES (?, ?)", rows)

    def search(question: str) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        found = "SELECT rowid FROM memories WHERE memories MATCH ? ORDER BY bm25(memories) LIMIT ?"
        return [at for (at,) in base.execute(found, (wanted, k))]

    return search


def vectors_alone(corpus: Corpus, k: int) -> Search:
    """MiniLM's vectors and nothing else: what Chroma and Mem0 give offline, compared exactly."""
    import numpy as np

    embedder = _local()
    table = embedder.embed([memory.text for memory in corpus.memories])

    def search(question: str) -> list[int]:
        near = table @ embedder.embed([question])[0]
        best: list[int] = np.argsort(-near)[:k].tolist()
        return best

    return search


class Recall:
    """Ours, at one of its three levels."""

    def __init__(
        self,
        table: Callable[[], Static] | None = None,
        embedder: Callable[[], Embedder] | None = None,
        weight: float = fusion.MEANING,
    ) -> None:
        self._table = table
        self._embedder = embedder
        self._weight = weight

    def __call__(self, corpus: Corpus, k: int) -> Search:
        alike = self._table().alike if self._table else None
        pieces = pieces_of(corpus)
        scope = boards.Scope.of([piece for _, piece in pieces])
        embedder = self._embedder() if self._embedder else None
        table = embedder.embed([text for text, _ in pieces]) if embedder else None

        def search(question: str) -> list[int]:
            asked = fusion.question(question, corpus.today, alike)
            there = [piece for _, piece in pieces]
            if embedder is not None and table is not None:
                near = (table @ embedder.embed([fusion.meant(asked, scope)])[0]).tolist()
                there = [msgspec.structs.replace(it, likeness=like) for it, like in zip(there, near, strict=True)]
            return [found.memory for found in fusion.rank(asked, there, scope, k, meaning=self._weight)]

        return search


def pieces_of(corpus: Corpus) -> list[tuple[str, boards.Piece]]:
    """Every memory, the long ones cut."""
    made: list[tuple[str, boards.Piece]] = []
    for at, it in enumerate(corpus.memories):
        made += fusion.pieces(it.text, memory=at, place=len(made), day=it.day, thread=it.thread)
    return made


@cache
def _static() -> Static:
    return Static()


@cache
def _local() -> Local:
    return Local()


SYSTEMS: dict[str, System] = {
    "plain FTS5": plain_fts5,
    "MiniLM vectors, as Chroma": vectors_alone,
    "words": Recall(),
    "words + table": Recall(_static),
    "words + table + its vectors": Recall(_static, _static, fusion.MEANING_OF_TABLE),
    "words + table + MiniLM": Recall(_static, _local),
}


def chosen(names: Sequence[str]) -> dict[str, System]:
    """Those that are asked for, by their names; all when nothing is."""
    if not names:
        return SYSTEMS
    return {name: it for name, it in SYSTEMS.items() if name in names}
