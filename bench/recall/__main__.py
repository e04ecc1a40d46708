"""Recall on sets with known evidence, beside what others use.

    python -m bench.recall ../shared/data/locomo-dev.json
    python -m bench.recall --only words --only "words + table" long.json

Recall@10 is the share of a question's evidence among the ten results, averaged over questions. Each set's own mean
stands beside it: what is good on one and bad on another was tuned to the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.recall import corpus as corpora
from bench.recall.measuring import measure
from bench.recall.systems import choose_systems


def main() -> None:
    """Prints one line for each system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a system by its name; again for more")
    parser.add_argument("--shape", choices=sorted(corpora.SHAPES), default="speaker", help="how a turn is written")
    parser.add_argument("-k", type=int, default=10)
    given = parser.parse_args()
    sets = [corpus for path in given.files for corpus in corpora.read(path, given.shape)]
    memories, questions = sum(len(corpus.memories) for corpus in sets), sum(len(corpus.questions) for corpus in sets)
    print(f"{len(sets)} sets, {memories} memories, {questions} questions")
    for name, system in choose_systems(given.only).items():
        print(f"{name:28} {measure(system, sets, given.k)}", flush=True)


if __name__ == "__main__":
    main()
