"""`python -m bench recall`: quality on conversations with known evidence beside what others use, and speed at scale."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..failures import NoServer
from ..lab import ROOT, Lab, clean_environment, run
from ..rows import Row, at_least, at_most
from . import corpus
from .measuring import measure
from .page import PAGE, write
from .systems import chosen

DATA = "BENCH_RECALL"
"""In the environment: the file with the conversations. They may not be a part of this repository."""

BARS = {"Perdure, words alone": 0.68, "Perdure[memory]": 0.74, "Perdure[embed]": 0.76}
MEMORIES, MEMORIES_QUICK = 100_000, 5_000


def recall(lab: Lab) -> Iterator[Row]:
    """What is recalled of conversations, and how long it takes among many memories."""
    rows = [*_quality(lab), *_speed(lab)]
    yield from rows
    if not lab.quick and all(row.measured is not None for row in rows):
        lab.say(f"writing {PAGE}")
        write(rows)


def _quality(lab: Lab) -> Iterator[Row]:
    path = Path(os.environ.get(DATA) or ROOT.parent / "shared" / "data" / "locomo-dev.json")
    if not path.exists():
        yield Row("recall", "recall@10", None, note=f"{DATA} names a file with conversations")
        return
    sets = corpus.read(path, "speaker")[: 1 if lab.quick else None]
    for name, system in chosen(()).items():
        lab.say(name)
        done = measure(system, sets, 10)
        bar = at_least(BARS[name]) if name in BARS else None
        yield Row("recall", f"recall@10, {name}", done.recall, "", bar, False, f"first right one: {done.rank:.3f}")


def _speed(lab: Lab) -> Iterator[Row]:
    count = MEMORIES_QUICK if lab.quick else MEMORIES
    yield from _of("SQLite", f"sqlite:///{lab.new_folder('recall') / 'perdure.db'}", count, 40.0)
    try:
        url = lab.server.url(lab.server.new_database())
    except NoServer as error:
        yield Row("recall", "PostgreSQL", None, note=str(error))
        return
    yield from _of("PostgreSQL", url, count, 20.0)


def _of(name: str, url: str, count: int, bar: float) -> Iterator[Row]:
    command = [sys.executable, "-m", "bench.recall.scale", "--json", "--memories", str(count), "--store", url]
    found = msgspec.json.decode(run(command, clean_environment(), seconds=3600).splitlines()[-1])
    said = f"{name}, {count:,} memories"
    note = f"p95 {found['p95']:.0f} ms; one user's of twenty {found['filtered_p50']:.0f} ms"
    yield Row("recall", f"{said}: a question, p50", found["p50"], "ms", at_most(bar), False, note)
    yield Row("recall", f"{said}: the first question of a process", found["cold"], "s")
    yield Row("recall", f"{said}: memory of the process", found["rss"], "MB", note=f"{found['stored']:.0f} MB stored")


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {"recall": recall}
