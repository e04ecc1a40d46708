"""What went wrong in a round, what it comes from, and what to change where."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from .orders import Manner, Seen, manner_of
from .outside import Reading, reading_for, without_keys
from .snapshot import Snapshot
from .stage import Round

SHOWN_MAX = 3
"""Examples of one thing."""


class Finding(msgspec.Struct, frozen=True):
    """Something to change. The same one is found in many rounds."""

    kind: str
    title: str
    change: str
    at: str = ""
    """`agent.py:12`, if it is known."""
    evidence: tuple[str, ...] = ()
    line: str = ""
    """The text that stands there."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.at or self.title


class Learned(msgspec.Struct, frozen=True):
    """What the undisturbed runs were like: what every other one must come to."""

    code: int
    leaves: dict[str, str]
    """Those that were the same in both of them."""
    volatile: frozenset[str]
    """Those that were not."""
    lists: dict[str, tuple[Counter[str], Reading]]
    """What is in them, and how their parts are read."""
    outside: Counter[str]
    reading: Reading
    written_by: dict[str, Seen]
    """Which line of the program made which line outside."""
    effects: Counter[str]
    runs: int
    unfinished: int
    calls: tuple[Seen, ...]
    writes: tuple[Seen, ...]
    """Where agent.state and events were written in the open."""
    checks: dict[str, tuple[str, str]]
    """The check of an effect, by the name of the effect: its name, and where it is."""
    source_line: Callable[[str], str]

    def changing(self) -> list[Seen]:
        """Where plain code asks for what is different at every start."""
        return [seen for seen in self.calls if not seen.name.startswith("agent.") and seen.inside in ("", "run")]

    def live_reads(self) -> list[Seen]:
        """Where the plain code of a run reads what is there now."""
        return [seen for seen in self.calls if seen.name.startswith("agent.") and seen.inside == "run"]


def learn(
    rest: Sequence[Round], other: Round, source: Callable[[str], str], source_line: Callable[[str], str]
) -> Learned:
    """Compare undisturbed runs; `other` has left a trail."""
    every = [other, *rest]
    all_leaves = [done.snapshot.leaves for done in every]
    same = {path: text for path, text in all_leaves[0].items() if all(one.get(path) == text for one in all_leaves)}
    reading = reading_for([plain_lines(done) for done in every])
    return Learned(
        code=other.last.code,
        leaves=same,
        volatile=frozenset({path for one in all_leaves for path in one} - same.keys()),
        lists=_lists(every),
        outside=Counter(map(reading, plain_lines(other))),
        reading=reading,
        written_by=_written_by(other, reading),
        effects=Counter(effect.name for effect in other.snapshot.effects),
        runs=_runs(other.snapshot),
        unfinished=len(other.snapshot.unfinished),
        calls=tuple(seen for seen in other.trail if seen.what == "call"),
        writes=tuple(
            seen for seen in other.trail
            if seen.name in ("state.write:before", "event.append:before") and seen.inside in ("", "run")
        ),
        checks=_checks({seen.at.rpartition(":")[0] for seen in other.trail if seen.at}, source),
        source_line=source_line,
    )  # fmt: skip


def _lists(every: Sequence[Round]) -> dict[str, tuple[Counter[str], Reading]]:
    found = {}
    for path in {path for done in every for path in done.snapshot.lists}:
        reading = reading_for([_parts(done, path) for done in every])
        found[path] = Counter(map(reading, _parts(every[0], path))), reading
    return found


def _parts(done: Round, path: str) -> list[str]:
    keys = (effect.key for effect in done.snapshot.effects)
    return without_keys(done.snapshot.lists.get(path, ()), keys)


def plain_lines(done: Round) -> list[str]:
    """The lines outside, without the keys of effects."""
    return without_keys(done.outside, (effect.key for effect in done.snapshot.effects))


def _runs(snapshot: Snapshot) -> int:
    return sum(path.endswith(": status") for path in snapshot.leaves)


def _written_by(done: Round, reading: Reading) -> dict[str, Seen]:
    """Lines come in the order in which the file grew: each growth takes those that begin before its end."""
    growths = [seen for seen in done.trail if seen.what == "grew"]
    if not growths:
        return {}
    plain = plain_lines(done)
    ends, at = [], int(growths[-1].name) - sum(len(line.encode()) + 1 for line in done.outside)
    for line in done.outside:
        at += len(line.encode()) + 1
        ends.append(at)
    found: dict[str, Seen] = {}
    for line, end in zip(plain, ends, strict=True):
        grown = next((seen for seen in growths if int(seen.name) >= end), growths[-1])
        found.setdefault(reading(line), grown)
    return found


def _checks(files: set[str], source: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    """From the decorators of the program: which check an effect has."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(files):
        try:
            tree = ast.parse(source(name))
        except SyntaxError:
            continue
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        lines = {function.name: function.lineno for function in functions}
        for function in functions:
            for check in _check_names(function):
                found[function.name] = (check, f"{name}:{lines.get(check, function.lineno)}")
    return found


def _check_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "check":
                yield ast.unparse(keyword.value)


def judge(learned: Learned, done: Round) -> list[Finding]:
    """Everything that differs from the undisturbed runs, by its cause; nothing, if the program has survived."""
    found = _judged(learned, done)
    return [msgspec.structs.replace(one, line=learned.source_line(one.at)) if one.at else one for one in found]


def _judged(learned: Learned, done: Round) -> list[Finding]:
    asked = bool(done.snapshot.asked)
    found = list(_repeated(learned, done))
    if done.last.hung and not asked:
        found.append(_hangs(learned, done))
    if asked or any(manner_of(place) == Manner.RAISE for place in done.places):
        return found  # a person decides how it goes on; or the program, which has seen an error
    found += _states_in_the_open(learned, done)
    if found:
        return found  # what else differs comes from that
    return list(_other_ways(learned, done))


def _repeated(learned: Learned, done: Round) -> Iterator[Finding]:
    """Lines outside that are there more often than in peace."""
    counts = Counter(map(learned.reading, plain_lines(done)))
    for line, count in counts.items():
        if count > learned.outside[line]:
            evidence = (f"outside {count} times instead of {learned.outside[line]}: {line[:100]}",)
            yield _why_repeated(learned, done, learned.written_by.get(line), evidence)


def _why_repeated(learned: Learned, done: Round, by: Seen | None, evidence: tuple[str, ...]) -> Finding:
    kind, _, name = by.inside.partition(" ") if by is not None else ("", "", "")
    again = {effect.name: effect.again[-1] for effect in done.snapshot.effects if effect.again}
    if by is not None and kind in ("", "run"):
        who = "plain code" if by.function == "<module>" else f"{by.function}(), called by plain code,"
        return Finding(
            "effect outside of a step", f"{who} changes the world, and runs again at every start",
            "move it into a function with @agent.effect, so that it happens once", by.at, evidence,
        )  # fmt: skip
    if by is not None and kind == "step":
        return Finding(
            "effect in a step", f"step {name} changes the world, and a step is done again if it was cut off",
            f"make {name} an effect: @agent.effect(check=...) instead of @agent.step", by.at, evidence,
        )  # fmt: skip
    suspects = [name] if name in again else list(again) if not name else []
    if suspects:
        return _done_again(learned, suspects[0], again[suspects[0]], by.at if by else "", evidence)
    if _more_effects(learned, done) or "Diverged" in done.last.output:
        return _changed(learned, done, evidence)
    if _runs(done.snapshot) > learned.runs:
        return _new_run(done, evidence)
    return Finding(
        "effect outside of a step", "something changes the world that is no effect, and happens again at every start",
        "move it into a function with @agent.effect; with a FILE in --count-effects the line is found", "", evidence,
    )  # fmt: skip


def _done_again(learned: Learned, name: str, reason: str, at: str, evidence: tuple[str, ...]) -> Finding:
    if not reason.startswith("declared"):
        check, where = learned.checks.get(name, (f"the check of {name}", at))
        return Finding(
            "wrong check", f"{check} says NotDone of {name}, although it had happened",
            f"let {check} look for the key where {name} leaves it, and return Done when it is there", where, evidence,
        )  # fmt: skip
    return Finding(
        "not safe to repeat", f'{name} says in_doubt="retry", and happens twice with the same key',
        "pass the key on to a service that knows its keys, or give the effect a check instead", at, evidence,
    )  # fmt: skip


def _hangs(learned: Learned, done: Round) -> Finding:
    waits = f"; it waits for {done.snapshot.waits[0]}" if done.snapshot.waits else ""
    return Finding(
        "hangs", f"started again, it did not end in {done.last.seconds:.0f} s{waits}",
        "look at what it prints, or allow more with --timeout", "", _last_lines(done),
    )  # fmt: skip


def _states_in_the_open(learned: Learned, done: Round) -> Iterator[Finding]:
    for path, evidence in _differences(learned, done):
        base = next((one for one in done.snapshot.open_writes if path.startswith(one)), None)
        if base is None:
            continue
        key = base.rpartition("/")[2].rpartition(" ")[2]
        lines = [seen for seen in learned.writes if key in learned.source_line(seen.at)] or list(learned.writes)
        what = "agent.state" if ": state " in base else "an event"
        yield Finding(
            "state written in the open",
            f"{what} {base.partition(': ')[2].removeprefix('state ')} is written in the open, at every start again",
            "write it inside a step, an effect or an item: there it lands once",
            lines[0].at if lines else "", (evidence,),
        )  # fmt: skip


def _differences(learned: Learned, done: Round) -> Iterator[tuple[str, str]]:
    """What the stores have, and should not; or have not, and should."""
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
            yield path, f"{path} is {text[:80]}; undisturbed it is not there"
    yield from _different_lists(learned, done, owners)


def _different_lists(learned: Learned, done: Round, owners: set[str]) -> Iterator[tuple[str, str]]:
    for path in learned.lists.keys() | done.snapshot.lists.keys():
        if path.partition(": ")[0] not in owners:
            continue
        wanted, reading = learned.lists.get(path, (Counter[str](), str))
        found = Counter(map(reading, _parts(done, path)))
        for text in found | wanted:
            if found[text] != wanted[text]:
                yield path, f"{path}: {found[text]} times instead of {wanted[text]}: {text[:80]}"


def _other_ways(learned: Learned, done: Round) -> Iterator[Finding]:
    """The program went another way than in peace, or did not end as it does in peace."""
    evidence = tuple(text for _, text in _differences(learned, done))[:SHOWN_MAX]
    effects = Counter(effect.name for effect in done.snapshot.effects)
    lost = {name: count - effects[name] for name, count in learned.effects.items() if effects[name] < count}
    lines = Counter(map(learned.reading, plain_lines(done)))
    missing = [line for line, count in learned.outside.items() if lines[line] < count]
    evidence += tuple(f"effect {name} is missing" for name in list(lost)[:SHOWN_MAX])
    evidence += tuple(f"outside is missing: {line[:100]}" for line in missing[:SHOWN_MAX])
    if "Diverged" in done.last.output or _more_effects(learned, done):
        yield _changed(learned, done, evidence)
    elif _runs(done.snapshot) > learned.runs and len(done.snapshot.unfinished) > learned.unfinished:
        yield _new_run(done, evidence)
    elif evidence and not lost and not missing and (name := _adopted(done)):
        yield _another_result(learned, name, evidence)
    elif (evidence or done.last.code != learned.code) and learned.live_reads():
        yield _live(learned, evidence or _last_lines(done))
    elif done.last.code != learned.code:
        title = f"started again, it ends with {done.last.code} instead of {learned.code}"
        yield Finding(
            "does not end well", title, "let it find what it left behind", _raised_at(done), _last_lines(done)
        )
    elif lost or missing:
        title = "something that happens in peace does not happen after a crash"
        yield Finding("lost", title, "look at the branch that skips it when it starts again", "", evidence)
    elif evidence:
        title = "the outcome differs from that of an undisturbed run"
        change = "let steps return what later code needs: variables that they set are not set when they are remembered"
        yield Finding("differs", title, change, "", evidence)


def _adopted(done: Round) -> str:
    """An effect of which only its check says that it happened."""
    return next((effect.name for effect in done.snapshot.effects if effect.adopted), "")


def _another_result(learned: Learned, name: str, evidence: tuple[str, ...]) -> Finding:
    check, where = learned.checks.get(name, (f"the check of {name}", ""))
    return Finding(
        "a check gives another result",
        f"{check} says Done of {name}, and what {name} returned or wrote is lost",
        f"let {check} return Done(result) with what {name} returns, and write state after the effect, not in it",
        where, evidence,
    )  # fmt: skip


def _more_effects(learned: Learned, done: Round) -> bool:
    counts = Counter(effect.name for effect in done.snapshot.effects)
    return _runs(done.snapshot) <= learned.runs and any(counts[name] > learned.effects[name] for name in counts)


def _changed(learned: Learned, done: Round, evidence: tuple[str, ...]) -> Finding:
    """An effect was asked for with other arguments than recorded."""
    told = [line for line in done.last.output.splitlines() if "Diverged" in line][-1:]
    evidence = (*evidence, *(line.strip()[:300] for line in told))
    changing = learned.changing()
    asked_for = changing[0].at if changing else _raised_at(done)
    if not changing and learned.live_reads():
        return _live(learned, evidence)
    names = ", ".join(dict.fromkeys(seen.name for seen in changing)) or "something that differs at every start"
    return Finding(
        "arguments change", f"the arguments of an effect come from {names}: started again, it is another effect",
        "make the value in a step, which is remembered, and pass its result on",
        asked_for, evidence,
    )  # fmt: skip


def _live(learned: Learned, evidence: tuple[str, ...]) -> Finding:
    read = learned.live_reads()[0]
    return Finding(
        "live state read in a run",
        f"{read.name} in the plain code of a run reads what is there now: started again, it goes another way",
        "read it in a step, whose result is remembered, or keep it in run.state", read.at, evidence,
    )  # fmt: skip


def _new_run(done: Round, evidence: tuple[str, ...]) -> Finding:
    left = f"left unfinished: {', '.join(done.snapshot.unfinished[:SHOWN_MAX])}"
    return Finding(
        "a new run at every start", "the id of the run differs from start to start, so that nothing is continued",
        "give agent.run() an id that stays: of the task, not of the moment", "", (*evidence, left),
    )  # fmt: skip


def _raised_at(done: Round) -> str:
    """The program's own line in the last traceback."""
    found = re.findall(rf'File "{re.escape(done.folder)}/([^"]+)", line (\d+)', done.last.output)
    return ":".join(found[-1]) if found else ""


def _last_lines(done: Round) -> tuple[str, ...]:
    lines = [line.strip().replace(f"{done.folder}/", "") for line in done.last.output.splitlines() if line.strip()]
    return tuple(line[:200] for line in lines[-SHOWN_MAX:])
