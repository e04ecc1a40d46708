"""Records what undisturbed runs are like, and how another run differs from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from perdure.testing.crashtest.messages import ProgramEvent
from perdure.testing.crashtest.outside import LineNormalizer, choose_normalizer, replace_keys
from perdure.testing.crashtest.probe import WORLD
from perdure.testing.crashtest.rounds import CrashRound
from perdure.testing.crashtest.snapshot import StoreSnapshot
from perdure.testing.crashtest.sources import ProgramSources

OPENED_TO_WRITE = re.compile(r"open\(.*['\"][rbt+]*[awx]")


class ExpectedOutcome(msgspec.Struct, frozen=True):
    """The expected outcome, from the undisturbed runs."""

    code: int
    leaves: dict[str, str]
    """Leaves that were equal in all of them."""
    volatile: frozenset[str]
    """Leaves that were not."""
    lists: dict[str, tuple[Counter[str], LineNormalizer]]
    """List contents, and how their elements are normalized."""
    outside: Counter[str]
    reading: LineNormalizer
    written_by: dict[str, ProgramEvent]
    """Which line of the program made which line outside."""
    effects: Counter[str]
    writing: frozenset[str]
    """Effects that write to the run or the agent in their bodies."""
    results: dict[str, frozenset[str]]
    """The results of effects, by name."""
    items: int
    """How many items of `run.each` were done."""
    runs: int
    unfinished: int
    calls: tuple[ProgramEvent, ...]
    writes: tuple[ProgramEvent, ...]
    """Where agent.state and events were written outside of steps."""
    path: tuple[str, ...]
    """The lines of plain code in runs, in order."""
    sources: ProgramSources
    source_line: Callable[[str], str]

    def list_changing_calls(self) -> list[ProgramEvent]:
        """Return where plain code calls something that differs at every start."""
        return [seen for seen in self._list_plain_events(("", "run")) if _sort(seen.name) == "changing"]

    def list_live_reads(self) -> list[ProgramEvent]:
        """Return where the plain code of a run reads current values from the store."""
        return [seen for seen in self._list_plain_events(("run",)) if _sort(seen.name) == "live"]

    def world_reads(self) -> list[ProgramEvent]:
        """Return where the plain code of a run reads files."""
        found = [seen for seen in self._list_plain_events(("run",)) if _sort(seen.name) == "world"]
        return [seen for seen in found if not OPENED_TO_WRITE.search(self.source_line(seen.at))]

    def find_run_line(self, seen: ProgramEvent) -> str:
        """Return the line in the code that opens the run which led to a call: the line to change."""
        steps = [(seen.at, seen.function), *seen.callers]
        return next((at for at, function in steps if function in self.sources.openers), seen.at)

    def _list_plain_events(self, inside: tuple[str, ...]) -> list[ProgramEvent]:
        checks = {name for name, _ in self.sources.checks.values()}
        return [seen for seen in self.calls if seen.inside in inside and seen.function not in checks]


def _sort(name: str) -> str:
    return "live" if name.startswith("agent.") else "world" if name in WORLD else "changing"


def learn(
    rest: Sequence[CrashRound], other: CrashRound, source: Callable[[str], str], source_line: Callable[[str], str]
) -> ExpectedOutcome:
    """Compare undisturbed runs. `other` recorded a trail."""
    every = [other, *rest]
    sources = ProgramSources({seen.at.rpartition(":")[0] for seen in other.trail if seen.at}, source)
    all_leaves = [done.snapshot.leaves for done in every]
    same = {path: text for path, text in all_leaves[0].items() if all(one.get(path) == text for one in all_leaves)}
    reading = choose_normalizer([strip_keys(done) for done in every])
    return ExpectedOutcome(
        code=other.last.code,
        leaves=same,
        volatile=frozenset({path for one in all_leaves for path in one} - same.keys()),
        lists=_lists(every),
        outside=Counter(map(reading, strip_keys(other))),
        reading=reading,
        written_by=_map_writers(other, reading),
        effects=Counter(effect.name for effect in other.snapshot.effects),
        writing=frozenset(effect.name for effect in other.snapshot.effects if effect.wrote),
        results=_results(every),
        items=sum(map(is_item, other.trail)),
        runs=runs_in(other.snapshot),
        unfinished=len(other.snapshot.unfinished),
        calls=tuple(seen for seen in other.trail if seen.what == "call"),
        writes=tuple(
            seen for seen in other.trail
            if seen.name in ("state.write:before", "event.append:before") and seen.inside in ("", "run")
        ),
        path=trace_plain_path(other.trail, sources),
        sources=sources,
        source_line=source_line,
    )  # fmt: skip


def is_item(seen: ProgramEvent) -> bool:
    """Return whether an item of `run.each` was done here."""
    return seen.name == "item.done:before"


def trace_plain_path(trail: Iterable[ProgramEvent], sources: ProgramSources) -> tuple[str, ...]:
    """Return the lines of plain code in runs, in order: the same after a crash if the path is the same."""
    checks = {name for name, _ in sources.checks.values()}
    return tuple(
        seen.at for seen in trail if seen.what == "line" and seen.inside == "run" and seen.function not in checks
    )


def _results(every: Sequence[CrashRound]) -> dict[str, frozenset[str]]:
    """Return the results of effects that are equal in every run."""
    found: dict[str, list[frozenset[str]]] = {}
    for done in every:
        seen: dict[str, set[str]] = {}
        for effect in done.snapshot.effects:
            seen.setdefault(effect.name, set()).add(effect.result.replace(effect.key or "\0", "KEY"))
        for name, results in seen.items():
            found.setdefault(name, []).append(frozenset(results))
    return {name: sets[0] for name, sets in found.items() if all(one == sets[0] for one in sets)}


def _lists(every: Sequence[CrashRound]) -> dict[str, tuple[Counter[str], LineNormalizer]]:
    found = {}
    for path in {path for done in every for path in done.snapshot.lists}:
        reading = choose_normalizer([_parts(done, path) for done in every])
        found[path] = Counter(map(reading, _parts(every[0], path))), reading
    return found


def _parts(done: CrashRound, path: str) -> list[str]:
    keys = (effect.key for effect in done.snapshot.effects)
    return replace_keys(done.snapshot.lists.get(path, ()), keys)


def strip_keys(done: CrashRound) -> list[str]:
    """Return the lines outside, without the keys of effects."""
    return replace_keys(done.outside, (effect.key for effect in done.snapshot.effects))


def runs_in(snapshot: StoreSnapshot) -> int:
    return sum(path.endswith(": status") for path in snapshot.leaves)


def _map_writers(done: CrashRound, reading: LineNormalizer) -> dict[str, ProgramEvent]:
    """Map lines outside to the program lines that wrote them.

    Each growth of the file covers the lines before its end.
    """
    growths = [seen for seen in done.trail if seen.what == "grew"]
    if not growths:
        return {}
    plain = strip_keys(done)
    ends, at = [], int(growths[-1].name) - sum(len(line.encode()) + 1 for line in done.outside)
    for line in done.outside:
        at += len(line.encode()) + 1
        ends.append(at)
    found: dict[str, ProgramEvent] = {}
    for line, end in zip(plain, ends, strict=True):
        grown = next((seen for seen in growths if int(seen.name) >= end), growths[-1])
        found.setdefault(reading(line), grown)
    return found


def differences(learned: ExpectedOutcome, done: CrashRound) -> Iterator[tuple[str, str]]:
    """Yield leaves that the stores should not have, or should have and do not."""
    leaves = done.snapshot.leaves
    for path, text in learned.leaves.items():
        found = leaves.get(path)
        if found is None:
            yield path, f"{path} is missing; undisturbed: {text[:80]}"
        elif found != text:
            yield path, f"{path} is {found[:80]}; undisturbed: {text[:80]}"
    owners = {path.partition(": ")[0] for path in learned.leaves}
    for path, text in leaves.items():
        known = path in learned.leaves or path in learned.volatile
        mine = path.partition(": ")[0] in owners
        if mine and not known and not any(path.startswith(one) for one in learned.volatile):
            empty = text in ("{}", "[]", "()", "set()", "None")
            yield path, f"{path} is {'empty' if empty else text[:80]}; undisturbed it is not{'' if empty else ' there'}"
    yield from _different_lists(learned, done, owners)


def _different_lists(learned: ExpectedOutcome, done: CrashRound, owners: set[str]) -> Iterator[tuple[str, str]]:
    for path in learned.lists.keys() | done.snapshot.lists.keys():
        if path.partition(": ")[0] not in owners:
            continue
        wanted, reading = learned.lists.get(path, (Counter[str](), str))
        found = Counter(map(reading, _parts(done, path)))
        for text in found | wanted:
            if found[text] != wanted[text]:
                yield path, f"{path}: {found[text]} times instead of {wanted[text]}: {text[:80]}"
