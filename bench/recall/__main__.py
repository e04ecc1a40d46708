"""Recall on sets with known evidence, beside what others use.

    python -m bench.recall ../shared/data/locomo-dev.json
    python -m bench.recall --only words --only "words + table" long.json

Recall@10 is the share of a question's evidence among the ten results, averaged over questions. Each set's own mean
stands beside it: what is good on one and bad on another was tuned to the first.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from bench.recall import corpus as corpora
from bench.recall.systems import System, chosen


@dataclass
class Measured:
    """What one system has done, question by question."""

    by_set: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_kind: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ranks: list[float] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        every = [value for values in self.by_set.values() for value in values]
        sets = [round(mean(values), 3) for values in self.by_set.values()]
        kinds = {kind: round(mean(values), 3) for kind, values in sorted(self.by_kind.items())}
        head = f"recall {mean(every):.4f}  rank {mean(self.ranks):.3f}  p50 {median(self.ms):.1f} ms"
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


def main() -> None:
    """Prints one line for each system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a system by its name; again for more")
    parser.add_argument("--shape", choices=sorted(corpora.SHAPES), default="speaker", help="how a turn is written")
    parser.add_argument("-k", type=int, default=10)
    given = parser.parse_args()
    sets = [corpus for path in given.files for corpus in corpora.read(path, given.shape)]
    memories, questions = sum(len(it.memories) for it in sets), sum(len(it.questions) for it in sets)
    print(f"{len(sets)} sets, {memories} memories, {questions} questions")
    for name, system in chosen(given.only).items():
        print(f"{name:28} {measure(system, sets, given.k)}", flush=True)


if __name__ == "__main__":
    main()
