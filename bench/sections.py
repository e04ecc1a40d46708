"""Every row of the table: which measurement it comes from, and the bars of the design."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from .failures import MeasurementFailed, NoServer
from .lab import ROOT, Lab, run
from .marked import write
from .rows import Bar, Row, at_least, at_most, exactly

RUNS = 64
SLOW_SYNC_US = 2000
BYTES_PER_STEP_MAX = 1.6 * 1024
PYTHON_CALLS_MAX = {"step": 66, "effect": 144, "replayed step": 25}
"""How many functions of Perdure run for one of each."""

MEMORY_DISK = Path("/dev/shm")  # noqa: S108  the RAM disk of the system; folders in it are made by tempfile

Section = Callable[[Lab], Iterator[Row]]


def counts(lab: Lab) -> Iterator[Row]:
    """Syncs, statements and bytes of single operations: the hard gate."""
    found = lab.measure("counts", calls=10 if lab.quick else 40)
    bars = {"step": 1, "effect": 2, "message": 1, "state in the open": 1, "state of the agent": 1, "item": 1}
    bars |= {"run opened": 1, "run closed": 1, "finished run replayed": 0}
    for name, one in found.items():
        yield _syncs(name, one["syncs"], bars.get(name))
    for name, statements in (("step", 3), ("effect", 6)):
        [text] = found[name]["statements"]
        yield Row("counts", f"{name}: statements", len(text.split()), "", exactly(statements), True, text.lower())
    bare = lab.measure("pages", calls=40)["pages"]
    note = f"bare commit: {bare:.3g}"
    yield Row("counts", "step: pages written to the log", found["step"]["pages"], "", at_most(2), True, note)
    for name, functions in lab.measure("python", calls=12).items():
        what = f"{name}: Python functions called"
        yield Row("counts", what, functions, "", at_most(PYTHON_CALLS_MAX[name]), True, "without the body")
    size = lab.measure("bytes", steps=200 if lab.quick else 1000)["bytes"]
    yield Row("counts", "step: bytes in the file, 1 KB result", size, "B", at_most(BYTES_PER_STEP_MAX), True)


def _syncs(name: str, found: list[int] | None, wanted: int | None) -> Row:
    if found is None:
        return Row("counts", f"{name}: syncs", None, note="needs a C compiler or strace")
    varies = f"between {found[0]} and {found[-1]}" if len(found) > 1 else ""
    bar = exactly(wanted) if wanted is not None else None
    return Row("counts", f"{name}: syncs", found[-1], "", bar, wanted is not None, varies)


def step(lab: Lab) -> Iterator[Row]:
    """Steps in a chain, with a result of 1 KB."""
    yield from _chain(lab, "step", at_most(1.3, 1.6), commits=1, cpu_ms=at_most(0.05, 0.06))


def effect(lab: Lab) -> Iterator[Row]:
    """Effects in a chain."""
    yield from _chain(lab, "effect", at_most(2.5, 3), commits=2, cpu_ms=at_most(0.09, 0.1))


def _chain(lab: Lab, kind: str, bar: Bar, commits: int, cpu_ms: Bar) -> Iterator[Row]:
    measured = lab.measure("chain", kind=kind, pairs=lab.pairs, size=20)
    ratio, *times = chain_rows(kind, kind, measured, bar)
    yield ratio
    what = f"processor time beyond {'its 2 bare commits' if commits == 2 else 'a bare commit'}"
    yield _beyond(kind, what, measured, commits, cpu_ms)
    if MEMORY_DISK.is_dir():
        with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
            warm = lab.measure_in(Path(folder), "chain", kind=kind, pairs=lab.pairs, size=20)
        # After the sync of a disk the processor's caches are cold, and the same code takes two or three times as long.
        yield _beyond(kind, f"{what}, on a RAM disk", warm, commits, cpu_ms)
    yield from times


def _beyond(kind: str, what: str, measured: dict[str, Any], commits: int, bar: Bar) -> Row:
    beyond = measured["cpu_extra_ms"] - (commits - 1) * measured["cpu_floor_ms"]
    note = f"a bare commit takes {measured['cpu_floor_ms']:.3f} ms of processor time"
    if commits == 2:
        note += f"; beyond one of them it is {measured['cpu_extra_ms']:.3f} ms"
    return Row(kind, what, beyond, "ms", bar, False, note)


def chain_rows(section: str, kind: str, measured: dict[str, Any], bar: Bar) -> Iterator[Row]:
    """The ratio to the floor, and the times, of a chain on either store."""
    spread = measured["ratio_spread"]
    quartiles = f"middle half of {len(spread)} pairs: {spread[len(spread) // 4]:.2f} to {spread[-len(spread) // 4]:.2f}"
    yield Row(section, f"{kind} in a chain, in bare commits", measured["ratio"], "", bar, False, quartiles)
    of = "" if section == kind else f"{kind}: "
    yield Row(section, f"{of}{kind}s per second", measured["per_second"])
    yield Row(section, f"{of}p50", measured["p50_ms"], "ms", note=f"bare commit {measured['floor_p50_ms']:.3f} ms")
    yield Row(section, f"{of}p99", measured["p99_ms"], "ms", note=f"bare commit {measured['floor_p99_ms']:.3f} ms")


def concurrent(lab: Lab) -> Iterator[Row]:
    """64 runs at once in one process, beside one plain run alone."""
    for kind, wanted in (("asyncio", 1.5), ("threads", 1.2)):
        size = {"runs": RUNS, "steps": 10, "alone": 40, "pairs": lab.pairs}
        measured = lab.measure("concurrent", kind=kind, **size)
        yield _make_shared_syncs_row(kind, measured["syncs_per_step"])
        note = f"{measured['per_second']:,.0f} steps per second; one run {measured['alone_per_second']:,.0f}"
        yield Row(
            "64 runs", f"{kind}: times the steps/s of one run", measured["ratio"], "", at_least(wanted), False, note
        )
        if not lab.probe.name:
            yield Row("64 runs", f"{kind}: the same, each sync 2 ms slower", None, note="needs a C compiler or strace")
            continue
        slow = lab.measure("concurrent", delay_us=SLOW_SYNC_US, **{**size, "kind": kind, "alone": 10})
        note = f"{slow['per_second']:,.0f} steps per second; one run {slow['alone_per_second']:,.0f}"
        yield Row("64 runs", f"{kind}: the same, each sync 2 ms slower", slow["ratio"], "", at_least(8), False, note)


def _make_shared_syncs_row(kind: str, found: float) -> Row:
    if found < 0:
        return Row("64 runs", f"{kind}: syncs per step", None, note="needs a C compiler or strace")
    return Row("64 runs", f"{kind}: syncs per step", found, "", at_most(0.15), True)


def resume(lab: Lab) -> Iterator[Row]:
    """A run with 1,000 finished steps, in a new process."""
    folder = lab.folder / "resume"
    folder.mkdir()
    lab.measure_in(folder, "prepare", steps=1000)
    attempts = range(3 if lab.quick else 21)
    found = [lab.measure_in(folder, "resume", steps=1000, attempt=attempt) for attempt in attempts]
    measured: dict[str, Any] = {name: median(one[name] for one in found) for name in found[0]}
    whats = {"load": "load of a run with 1,000 steps, takeover included", "first_new": "from the imports to a new step"}
    for (key, what), most in zip(whats.items(), (10, 15), strict=True):
        note = f"processor time; {measured[f'{key}_ms']:.1f} ms by the clock"
        yield Row("resume", what, measured[f"{key}_cpu_ms"], "ms", at_most(most), False, note)
    note = "processor time, of 1,000"
    yield Row("resume", "replay of a finished step", measured["replay_cpu_ms"], "µs", at_most(15), False, note)
    yield from _long_run(lab)


def _long_run(lab: Lab) -> Iterator[Row]:
    entries = 50_000 if lab.quick else 1_000_000
    folder = lab.new_folder("long")
    lab.measure_in(folder, "prepare_long", entries=entries)
    found = lab.measure_in(folder, "open_long", entries=entries)
    what, note = f"a run of {entries:,} entries", f"processor time; {found['seconds']:.1f} s by the clock"
    yield Row("resume", f"{what}: opened", found["cpu"], "s", at_most(2), False, note)
    yield Row("resume", f"{what}: memory of the process", found["megabytes"], "MB", at_most(200), False)
    yield Row("resume", f"{what}: replay of a finished step", found["replay_us"], "µs", at_most(15), False)


def conversation(lab: Lab) -> Iterator[Row]:
    """The cost of a message does not depend on how many there are; what values cost."""
    size = {"length": 200 if lab.quick else 1000, "pairs": max(lab.pairs - 4, 5), "size": 20}
    for kind in ("message", "step", "effect"):
        measured = lab.measure("growth", kind=kind, **size)
        # In processor time: on a slow disk a cost that grows would hide behind the syncs until it is too late.
        what, note = f"1,000th {kind}, in times of the 10th", f"by the clock {measured['ratio']:.2f}; 1 is flat"
        yield Row("growth", what, measured["cpu_ratio"], "", at_most(1.15, 1.5), False, note)
    cost = lab.measure("values", rounds=5 if lab.quick else 40)
    for name, of in (("plain", "JSON-like"), ("mixed", "dataclasses, tuples and dates")):
        note = f"{of}; decoding {cost[f'{name}_decode_ns']:,.0f} ns"
        encoding = cost[f"{name}_encode_ns"]
        yield Row("growth", f"encoding, per element ({name})", encoding, "ns", at_most(5000), False, note)
    note = f"decoding {cost['text_decode_ns']:,.0f} ns"
    yield Row("growth", "encoding a text of 1 KB", cost["text_encode_ns"], "ns", note=note)


def state(lab: Lab) -> Iterator[Row]:
    """`agent.state` in the open."""
    keys = 2000 if lab.quick else 20_000
    measured = lab.measure("state", pairs=lab.pairs, size=20, keys=keys, reads=40_000)
    spread = measured["ratio_spread"]
    note = f"middle half of {len(spread)} pairs: {spread[len(spread) // 4]:.2f} to {spread[-len(spread) // 4]:.2f}"
    yield Row("state", "set in the open, in bare commits", measured["ratio"], "", at_most(1.3, 1.6), False, note)
    yield Row("state", "sets per second in one transaction", measured["sets_per_second"], "", at_least(20_000), False)
    yield _make_many_sets_row(lab, keys)
    yield Row("state", "get", measured["get_us"], "µs", at_most(30), False, "one of 20,000 keys")


def _make_many_sets_row(lab: Lab, keys: int) -> Row:
    what = "PostgreSQL: sets per second in one transaction"
    try:
        url = lab.server.url(lab.server.new_database())
    except NoServer as error:
        return Row("state", what, None, note=str(error))
    found = lab.measure("many_sets", url=url, keys=keys, rounds=3)["sets_per_second"]
    return Row("state", what, found, "", at_least(20_000), False)


def checkpoints(lab: Lab) -> Iterator[Row]:
    """1,000 checkpoints of a conversation that grows by 1 KB each."""
    count = 100 if lab.quick else 1000
    measured = lab.measure("checkpoints", count=count)
    what = f"{count:,} checkpoints of a conversation growing by 1 KB: bytes in the file"
    yield Row(
        "checkpoints", what, measured["bytes"], "B", at_most(3 * 1024 * 1024), not lab.quick, "1 MB of text in all"
    )
    per, note = measured["us_per_element"], "the median of the second half"
    yield Row("checkpoints", "time beyond a bare commit, per element", per, "µs", at_most(5), False, note)
    apart = lab.measure("checkpoints", count=count, names=count)
    what = "the same, each under a name of its own"
    yield Row("checkpoints", what, apart["us_per_element"], "µs", at_most(3, 5), False, note)
    yield Row("checkpoints", f"{what}: bytes in the file", apart["bytes"], "B", at_most(3 * 1024 * 1024), not lab.quick)
    yield Row("checkpoints", "restore of any of them", measured["restore_ms"], "ms", note="on average")


def flat(lab: Lab) -> Iterator[Row]:
    """`agent.state` with a million keys beside ten thousand, on both stores."""
    size = {"small": 10_000, "large": 50_000 if lab.quick else 1_000_000, "calls": 200 if lab.quick else 1000}
    yield from _make_flat_rows("SQLite", lab.measure("flat", **size), size["large"])
    many = size | {"large": 100_000 if lab.quick else 10_000_000}
    yield from _make_flat_rows("SQLite", lab.measure("flat_view", **many), many["large"])
    try:
        url = lab.server.url(lab.server.new_database())
    except NoServer as error:
        yield Row("flat", "PostgreSQL", None, note=str(error))
        return
    yield from _make_flat_rows("PostgreSQL", lab.measure("flat", url=url, **size), size["large"])


def _make_flat_rows(store: str, measured: dict[str, Any], keys: int) -> Iterator[Row]:
    for name, ratio in measured["ratios"].items():
        what = f"{store}: {name} with {keys:,} keys, in times of 10,000"
        yield Row("flat", what, ratio, "", at_most(1.5, 2), False, f"{measured['us'][name]:,.0f} µs; 1 is flat")
    if "sets_per_second" in measured:
        yield Row("flat", f"{store}: keys per second on the way there", measured["sets_per_second"])


def many_runs(lab: Lab) -> Iterator[Row]:
    """Lists and counts among a million runs."""
    count, folders = 20_000 if lab.quick else 1_000_000, [lab.new_folder("runs") for _ in range(2)]
    few, measured = (
        lab.measure_in(folder, "many_runs", runs=runs) for folder, runs in zip(folders, (1, count), strict=True)
    )
    whats = {"list": "the newest 50", "filter": "50 of one status", "count": "counts", "doctor": "1,000 unfinished"}
    for key, what in whats.items():
        note = "processor time"
        yield Row("runs", f"SQLite, {count:,} runs: {what}", measured[key], "ms", at_most(200), False, note)
    for command in ("doctor", "gc --dry-run"):
        small, large = (_command_ms(folder, command, 3 if lab.quick else 5) for folder in folders)
        note = f"processor time beyond that of a store with {few['runs']:.0f} runs, {small:.0f} ms"
        what = f"SQLite, {count:,} runs: perdure {command}"
        yield Row("runs", what, max(large - small, 0.0), "ms", at_most(200), False, note)


def _command_ms(folder: Path, command: str, rounds: int) -> float:
    store = f"sqlite:///{folder / 'perdure.db'}"
    return median([_milliseconds(_perdure(*command.split(), "--store", store)) for _ in range(rounds)])


def events(lab: Lab) -> Iterator[Row]:
    """`agent.events` in the open, with few events in the store and with many."""
    few, many = (3000, 30_000) if lab.quick else (10_000, 200_000)
    measured = lab.measure("events", pairs=lab.pairs, size=20, few=few, many=many, reads=50)
    spread = measured["ratio_spread"]
    note = f"middle half of {len(spread)} pairs: {spread[len(spread) // 4]:.2f} to {spread[-len(spread) // 4]:.2f}"
    yield Row("events", "append in the open, in bare commits", measured["ratio"], "", note=note)
    yield Row("events", "events per second, 5,000 in one commit", measured["per_second"])
    yield Row("events", "reading the last 100", measured["page_ms"], "ms", note="processor time")
    for name, of in (("append", "append"), ("limit", "read(limit=100)"), ("kind", "read(kind=)"), ("follow", "follow")):
        what = f"{of}: processor time with {many:,} events, as a multiple of that with {few:,}"
        yield Row("events", what, measured["growth"][name], "", at_most(1.3, 2), False)


def artifacts(lab: Lab) -> Iterator[Row]:
    """A large file as an artifact, in and out."""
    measured = lab.measure("artifacts", megabytes=16 if lab.quick else 64, rounds=1 if lab.quick else 5)
    whats = {"in": "saved", "again": "saved again, as after a crash", "out": "loaded into a file, verified and synced"}
    for key, what in whats.items():
        rate, by_processor = measured[key]
        plain, plain_by_processor = measured["plain"]
        note = f"{rate:,.0f} MB/s, a plain copy with one sync {plain:,.0f}"
        note += f"; by processor time {by_processor:,.0f} and {plain_by_processor:,.0f}"
        bar = at_least(0.5) if key != "again" else None
        yield Row("artifacts", f"{what}, in times of a plain copy", rate / plain, "", bar, False, note)
    rate, by_processor = measured["in"]
    rows, rows_by_processor = measured["rows"]
    note = f"bare rows {rows:,.0f} MB/s; by processor time {by_processor:,.0f} and {rows_by_processor:,.0f}"
    yield Row("artifacts", "saved, in times of bare SQLite rows", rate / rows, "", note=note)
    note = "16 bytes inserted in the middle"
    yield Row("artifacts", "bytes that a small edit adds", measured["added"], "B", at_most(150_000), False, note)


def context(lab: Lab) -> Iterator[Row]:
    """`run.context` in a run of a thousand turns with outputs of 50 KB."""
    size = {"turns": 100 if lab.quick else 1000, "size": 50_000, "calls": 20 if lab.quick else 100, "memories": 200}
    rows = list(_context("SQLite", lab.measure("context", **size), size["turns"]))
    yield from rows
    try:
        url = lab.server.url(lab.server.new_database())
    except NoServer as error:
        yield Row("context", "PostgreSQL", None, note=str(error))
        return
    more = list(_context("PostgreSQL", lab.measure("context", url=url, **size), size["turns"]))
    yield from more
    if not lab.quick:
        write(ROOT / "docs" / "reference" / "context.md", [*rows, *more])


def _context(store: str, measured: dict[str, Any], turns: int) -> Iterator[Row]:
    what = f"{store}, {turns:,} turns with outputs of 50 KB: a context"
    yield Row("context", f"{what}, p50", measured["p50"], "ms", at_most(20), False, f"p95 {measured['p95']:.1f} ms")
    note = "each message is counted once"
    yield Row("context", f"{what}, the first of a process", measured["first"] / 1000, "s", note=note)


def startup(lab: Lab) -> Iterator[Row]:
    """Imports and the command line, with everything in the page cache."""
    rounds = 3 if lab.quick else 11
    bare = [_milliseconds([sys.executable, "-c", "pass"]) for _ in range(rounds + 1)][1:]
    note = f"beside {median(bare):.0f} ms of processor time for Python itself"
    what = "import perdure, processor time"
    yield Row("startup", what, _import_ms("import perdure", rounds), "ms", at_most(60), False, note)
    what = "from perdure import Agent, processor time"
    yield Row("startup", what, _import_ms("from perdure import Agent", rounds), "ms", at_most(60, 120), False, note)
    note = "what the first use of a store imports is included"
    what = "import of perdure and its store, processor time"
    yield Row("startup", what, _import_ms("import perdure.store.sqlite.store", rounds), "ms", note=note)
    try:
        told = [_milliseconds(_perdure("--help")) for _ in range(rounds + 1)][1:]
    except (OSError, MeasurementFailed) as error:
        yield Row("startup", "perdure --help", None, note=str(error).strip().splitlines()[-1])
        return
    note = "processor time, Python itself included"
    yield Row("startup", "perdure --help", median(told), "ms", at_most(250), False, note)
    store = f"sqlite:///{lab.new_folder('startup') / 'perdure.db'}"
    run([sys.executable, "-c", f"import perdure\nwith perdure.Agent('bench', store={store!r}).run('one'): pass"])
    told = [_milliseconds(_perdure("runs", "--store", store)) for _ in range(rounds + 1)][1:]
    yield Row("startup", "perdure runs", median(told), "ms", at_most(150), False, note)


def _import_ms(statement: str, rounds: int) -> float:
    code = f"from time import process_time as t; a = t(); {statement}; print((t() - a) * 1000)"
    return median([float(run([sys.executable, "-c", code])) for _ in range(rounds + 1)][1:])


def _perdure(*arguments: str) -> list[str]:
    """The installed command, else the same code without it."""
    script = Path(sys.executable).with_name("perdure")
    if script.exists():
        return [str(script), *arguments]
    return [sys.executable, "-c", "from perdure.cli.main import main; main()", *arguments]


def _milliseconds(command: list[str]) -> float:
    """The processor time of a command and its children."""
    begun = os.times()
    run(command)
    ended = os.times()
    return (ended.children_user + ended.children_system - begun.children_user - begun.children_system) * 1000


SECTIONS: dict[str, Section] = {
    "counts": counts,
    "step": step,
    "effect": effect,
    "concurrent": concurrent,
    "resume": resume,
    "state": state,
    "checkpoints": checkpoints,
    "flat": flat,
    "runs": many_runs,
    "events": events,
    "artifacts": artifacts,
    "conversation": conversation,
    "context": context,
    "startup": startup,
}
