"""Asking every question of every set, and what comes of it."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import mean, median

from bench.recall import corpus as corpora
from bench.recall.systems import System


@dataclass
class Measured:
    """What one system has done, question by question."""

    by_set: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_kind: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ranks: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """The share of a question's evidence that was found, on average."""
        return mean(value for values in self.by_set.values() for value in values)

    @property
    def rank(self) -> float:
        """One divided by the place of the first right one, on average."""
        return mean(self.ranks)

    def __str__(self) -> str:
        sets = [round(mean(values), 3) for values in self.by_set.values()]
        kinds = {kind: round(mean(values), 3) for kind, values in sorted(self.by_kind.items())}
        head = f"recall {self.recall:.4f}  rank {self.rank:.3f}  p50 {median(self.ms):.1f} ms"
        return f"{head}  {sets} {kinds}"


def measure(system: System, sets: list[corpora.Corpus], k: int) -> Measured:
    """Asks every question of every set."""
    done = Measured()
    for corpus in sets:
        search = system(corpus, k)
        for asked in corpus.questions:
            began = time.perf_counter()
            found = search(asked.text)
            done.ms.append((time.perf_counter() - began) * 1000)
            share = len(asked.evidence.intersection(found)) / len(asked.evidence)
            done.by_set[corpus.name].append(share)
            done.by_kind[asked.kind].append(share)
            done.ranks.append(next((1 / n for n, at in enumerate(found, 1) if at in asked.evidence), 0.0))
    return done
