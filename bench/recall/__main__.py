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
from pathlib import Path
from statistics import mean, median

from bench.recall import corpus as corpora
from bench.recall.systems import chosen, System


def measure(system: System, sets: list[corpora.Corpus], k: int) -> tuple[list[float], list[float], list[float], dict[str, list[float]]]:
    """Recall of each set, reciprocal rank of each question, milliseconds of each, recall by kind of question."""
    each: list[float] = []
    ranks: list[float] = []
    spent: list[float] = []
    kinds: dict[str, list[float]] = defaultdict(list)
    for corpus in sets:
        search = system(corpus, k)
        got = []
        for asked in corpus.questions:
            began = time.perf_counter()
            found = search(asked.text)
            spent.append((time.perf_counter() - began) * 1000)
            got.append(len(asked.evidence.intersection(found)) / len(asked.evidence))
            ranks.append(next((1 / n for n, at in enumerate(found, 1) if at in asked.evidence), 0.0))
            kinds[asked.kind].append(got[-1])
        each += [mean(got)] * len(got)
    return each, ranks, spent, kinds


def main() -> None:
    """Prints one line for each system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a system by its name; again for more")
    parser.add_argument("--shape", choices=sorted(corpora.SHAPES), default="speaker", help="how a turn is written")
    parser.add_argument("-k", type=int, default=10)
    given = parser.parse_args()
    sets = [corpus for path in given.files for corpus in corpora.read(path, given.shape)]
    print(f"{len(sets)} sets, {sum(len(it.memories) for it in sets)} memories, {sum(len(it.questions) for it in sets)} questions")
    for name, system in chosen(given.only).items():
        each, ranks, spent, kinds = measure(system, sets, given.k)
        by_set = list(dict.fromkeys(round(value, 3) for value in each))
        by_kind = {kind: round(mean(values), 3) for kind, values in sorted(kinds.items())}
        print(f"{name:28} recall {mean(each):.4f}  rank {mean(ranks):.3f}  p50 {median(spent):.1f} ms  {by_set} {by_kind}", flush=True)


if __name__ == "__main__":
    main()
