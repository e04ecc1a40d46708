"""A million vectors in one process: how many of the ten nearest sketches find, in what time and memory.

    python -m bench.recall.vectors --count 1000000

The texts are those of `scale.py`, embedded with the bundled table. Processor time of this thread.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from bench.recall.scale import PEOPLE, sentences
from perdure.data.search.vectors import NumpyVectorTable, packed_rows
from perdure.memory.recall.embedders import table

BATCH, QUESTIONS, NEAREST = 5000, 100, 10


@dataclass(frozen=True)
class Measured:
    """Milliseconds and megabytes."""

    recall: float
    nearest: float
    exact: float
    megabytes: float


def texts(chance: random.Random, known: list[str], count: int) -> list[str]:
    """One to three sentences each, said by somebody."""
    return [
        f"{chance.choice(PEOPLE)}: {' '.join(chance.choice(known) for _ in range(chance.choice((1, 1, 2, 3))))}"
        for _ in range(count)
    ]


def vectors(seed: int, count: int) -> Iterator[list[bytes]]:
    """Vectors of texts, some thousand at a time."""
    chance, known, embedder = random.Random(seed), sentences(), table()
    assert embedder is not None
    for start in range(0, count, BATCH):
        yield packed_rows(embedder.embed(texts(chance, known, min(BATCH, count - start))))


def measure(count: int) -> Measured:
    """Everything."""
    kept = NumpyVectorTable(np)
    for part in vectors(3, count):
        kept.extend(part)
    [questions] = vectors(4, QUESTIONS)
    kept.nearest(questions[0], NEAREST)  # very many are sketched before the first answer
    shares, quick, slow = list[float](), list[float](), list[float]()
    for question in questions:
        began = time.thread_time()
        found = kept.nearest(question, NEAREST)
        between = time.thread_time()
        products = kept.products(question)
        least = np.partition(products, -NEAREST)[-NEAREST]
        quick.append(1000 * (between - began))
        slow.append(1000 * (time.thread_time() - between))
        shares.append(float((products[found] >= least - 1e-6).mean()))
    words = kept._sketches._words.nbytes if kept._sketches is not None else 0
    return Measured(sum(shares) / len(shares), median(quick), median(slow), (kept._rows.nbytes + words) / 1e6)


def main() -> None:
    """Prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    print(json.dumps(asdict(measure(parser.parse_args().count))))


if __name__ == "__main__":
    main()
