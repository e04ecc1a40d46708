"""`python -m bench recall`: quality on conversations with known evidence beside what others use, and speed at scale."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..comparison import environment
from ..failures import MeasurementFailed, NoPeers, NoServer
from ..lab import ROOT, Lab, clean_environment, run
from ..marked import is_measured, write
from ..rows import Row, at_least, at_most, exactly
from . import corpus
from .measuring import measure
from .systems import CHROMA, Chroma, System, choose_systems

DATA = "BENCH_RECALL"
"""In the environment: the file with the conversations. They may not be a part of this repository."""

PAGE = ROOT / "docs" / "reference" / "recall.md"
BARS = {"Perdure, words alone": 0.68, "Perdure[memory]": 0.74, "Perdure[embed]": 0.76}
MEMORIES, MEMORIES_QUICK = 100_000, 5_000
SECONDS_MAX = 2 * 3600
"""A server takes half an hour for 100,000 memories: each commit puts vectors into its index."""


def recall(lab: Lab) -> Iterator[Row]:
    """What is recalled of conversations, and how long it takes among many memories."""
    rows = []
    for row in _rows(lab):
        rows.append(row)
        yield row
    if not lab.quick and is_measured(rows):
        lab.say(f"writing {PAGE}")
        write(PAGE, rows)


def _rows(lab: Lab) -> Iterator[Row]:
    yield from _quality(lab)
    yield from _chat(lab)
    yield from _speed(lab)
    yield from _nearest(lab)


def _quality(lab: Lab) -> Iterator[Row]:
    path = Path(os.environ.get(DATA) or ROOT.parent / "shared" / "data" / "locomo-dev.json")
    if not path.exists():
        yield Row("recall", "recall@10", None, "", at_least(0.68), note=f"{DATA} names a file with conversations")
        return
    sets = corpus.read(path, "speaker")[: 1 if lab.quick else None]
    for name, system in choose_systems(()).items():
        yield _measure_recall(lab, name, system, sets)
    yield _compare_chroma(lab, sets)


def _measure_recall(lab: Lab, name: str, system: System, sets: list[corpus.Corpus], also: str = "") -> Row:
    lab.say(name)
    done = measure(system, sets, 10)
    bar = at_least(BARS[name]) if name in BARS else None
    note = f"first right one: {done.rank:.3f}{also}"
    return Row("recall", f"recall@10, {name}", done.recall, "", bar, False, note)


def _compare_chroma(lab: Lab, sets: list[corpus.Corpus]) -> Row:
    try:
        if not lab.peers:
            raise NoPeers("left out by --no-peers")
        chroma = Chroma(environment.python(lab.say, environment.CHROMA), lab.new_folder("chroma"))
        row = _measure_recall(lab, CHROMA, chroma, sets)
    except (NoPeers, MeasurementFailed) as error:
        return Row("recall", f"recall@10, {CHROMA}", None, note=str(error).strip().splitlines()[-1])
    return msgspec.structs.replace(row, note=f"{row.note}; version {chroma.version}")


def _chat(lab: Lab) -> Iterator[Row]:
    """Long messages: what does not change is parsed once, and a network embeds each of them."""
    for level, count, bar in (("table", 188, None), ("minilm", 20, at_most(60.0))):
        lab.say(f"{count} long messages, {level}")
        command = [sys.executable, "-m", "bench.recall.chat", "--level", level, "--messages", str(count)]
        found = msgspec.json.decode(run(command, clean_environment(), seconds=SECONDS_MAX).splitlines()[-1])
        said = f"{count} messages of 400 words, {'Perdure[embed]' if level == 'minilm' else 'Perdure[memory]'}"
        yield Row("recall", f"{said}: remembering one", found["message"], "ms", bar)
        if level == "table":
            note = f"processor time; {found['first']:.0f} ms for the first"
            yield Row("recall", f"{said}: a question, p50", found["p50"], "ms", at_most(20.0), False, note)
            yield Row("recall", f"{said}: pieces parsed again", found["parsed"], "", exactly(0), True)


def _speed(lab: Lab) -> Iterator[Row]:
    count = MEMORIES_QUICK if lab.quick else MEMORIES
    lab.say(f"{count:,} memories on SQLite")
    yield from _make_rows("SQLite", f"sqlite:///{lab.new_folder('recall') / 'perdure.db'}", count)
    try:
        url = lab.server.url(lab.server.new_database())
    except NoServer as error:
        yield Row("recall", "PostgreSQL", None, "", at_most(10.0), note=str(error))
        return
    lab.say(f"{count:,} memories on PostgreSQL")
    yield from _make_rows("PostgreSQL", url, count)


def _nearest(lab: Lab) -> Iterator[Row]:
    """A million vectors: what sketches find of what comparing all of them finds."""
    count = 50_000 if lab.quick else 1_000_000
    lab.say(f"{count:,} vectors")
    command = [sys.executable, "-m", "bench.recall.vectors", "--count", str(count)]
    found = msgspec.json.decode(run(command, clean_environment(), seconds=SECONDS_MAX).splitlines()[-1])
    said = f"{count:,} vectors in a process"
    yield Row("recall", f"{said}: share of the ten nearest", found["recall"], "", at_least(0.99))
    note = f"processor time; {found['exact']:.0f} ms for comparing all"
    yield Row("recall", f"{said}: the ten nearest, p50", found["nearest"], "ms", at_most(200.0), False, note)
    yield Row("recall", f"{said}: memory", found["megabytes"], "MB")


def _make_rows(name: str, url: str, count: int) -> Iterator[Row]:
    command = [sys.executable, "-m", "bench.recall.scale", "--json", "--memories", str(count), "--store", url]
    found = msgspec.json.decode(run(command, clean_environment(), seconds=SECONDS_MAX).splitlines()[-1])
    said = f"{name}, {count:,} memories"
    note = f"{'processor time; ' if name == 'SQLite' else ''}p95 {found['p95']:.0f} ms"
    yield Row("recall", f"{said}: a question, p50", found["p50"], "ms", at_most(10.0), False, note)
    yield Row("recall", f"{said}: a question with new words, p50", found["fresh"], "ms")
    for filtered, ms in found["filtered"].items():
        limit = at_most(15.0) if filtered == "one user's of twenty" else None
        yield Row("recall", f"{said}: among {filtered}, p50", ms, "ms", limit)
    yield Row("recall", f"{said}: the first question of a process", found["cold"], "s", at_most(0.3))
    rate = at_least(3000) if name == "SQLite" else None
    yield Row("recall", f"{said}: remembered per second", count / found["built"], "", rate, False, "500 in a commit")
    size = f"{found['stored']:.0f} MB stored" if found["stored"] else ""
    yield Row("recall", f"{said}: memory of the process", found["rss"], "MB", note=size)


SECTIONS: dict[str, Callable[[Lab], Iterator[Row]]] = {"recall": recall}
