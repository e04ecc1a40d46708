"""What went wrong in a round, what it comes from, and what to change where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from .learning import Learned, differences, plain_lines, plain_path, runs_in
from .orders import Manner, Seen, manner_of
from .snapshot import TIMES_DONE
from .sources import Change
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
    about: str = ""
    """What stands in lines that depend on it."""

    @property
    def identity(self) -> tuple[str, str]:
        return self.kind, self.at or self.title

    def is_like(self, other: Finding) -> bool:
        """Whether a closer look at the same round shows this one; it may know better where it comes from."""
        return self.identity == other.identity or not other.at or other.about != ""


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
    if name in learned.sources.not_done and any(manner_of(place) == Manner.RAISE for place in done.places):
        return Finding(
            "an error taken for proof",
            f"{name} says by not_done= that nothing has happened, although an answer can be lost after it has",
            "list only errors there that come before anything happens, such as ConnectionRefusedError",
            learned.sources.not_done[name], evidence,
        )  # fmt: skip
    suspects = [name] if name in again else list(again) if not name else []
    if suspects:
        return _done_again(learned, suspects[0], again[suspects[0]], by.at if by else "", evidence)
    if _more_effects(learned, done) or "Diverged" in done.last.output:
        return _changed(learned, done, evidence)
    if runs_in(done.snapshot) > learned.runs:
        return _new_run(learned, done, evidence)
    return Finding(
        "effect outside of a step", "something changes the world that is no effect, and happens again at every start",
        "move it into a function with @agent.effect; with a FILE in --count-effects the line is found", "", evidence,
    )  # fmt: skip


def _done_again(learned: Learned, name: str, reason: str, at: str, evidence: tuple[str, ...]) -> Finding:
    if not reason.startswith("declared"):
        check, where = learned.sources.checks.get(name, (f"the check of {name}", at))
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
    for path, evidence in differences(learned, done):
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


def _other_ways(learned: Learned, done: Round) -> Iterator[Finding]:
    """The program went another way than in peace, or did not end as it does in peace."""
    evidence = tuple(text for _, text in differences(learned, done))[:SHOWN_MAX]
    effects = Counter(effect.name for effect in done.snapshot.effects)
    lost = {name: count - effects[name] for name, count in learned.effects.items() if effects[name] < count}
    lines = Counter(map(learned.reading, plain_lines(done)))
    missing = [line for line, count in learned.outside.items() if lines[line] < count]
    evidence += tuple(f"effect {name} is missing" for name in list(lost)[:SHOWN_MAX])
    evidence += tuple(f"outside is missing: {line[:100]}" for line in missing[:SHOWN_MAX])
    bad_end = done.last.code != learned.code
    if "Diverged" in done.last.output or _more_effects(learned, done):
        yield _changed(learned, done, evidence)
    elif runs_in(done.snapshot) > learned.runs and len(done.snapshot.unfinished) > learned.unfinished:
        yield _new_run(learned, done, evidence)
    elif evidence and not lost and (name := _adopted(done)):
        yield (_said_done if missing else _another_result)(learned, name, evidence)
    elif evidence or bad_end:
        yield _cause(learned, done, evidence or _last_lines(done)) or _symptom(learned, done, missing, evidence)


def _symptom(learned: Learned, done: Round, missing: list[str], evidence: tuple[str, ...]) -> Finding:
    """What is seen, where nobody knows what it comes from."""
    turn = _turned_at(learned, done)
    if done.last.code != learned.code:
        return Finding(
            "does not end well", f"started again, it ends with {done.last.code} instead of {learned.code}",
            "let it find what it left behind", _raised_at(done) or turn, _last_lines(done),
        )  # fmt: skip
    if missing or any("effect" in text and "is missing" in text for text in evidence):
        by = [learned.written_by[line].at for line in missing if line in learned.written_by]
        return Finding(
            "lost", "something that happens in peace does not happen after a crash",
            "look at what makes it skip this when it starts again: what was noted before it was done?",
            turn or next(iter(by), ""), evidence,
        )  # fmt: skip
    return Finding(
        "differs", "the outcome differs from that of an undisturbed run",
        "let steps return what later code needs: variables that they set are not set when they are remembered",
        turn, evidence,
    )  # fmt: skip


def _turned_at(learned: Learned, done: Round) -> str:
    """The line of plain code after which it goes another way than in peace; only a thorough start tells."""
    path = plain_path(done.trail, learned.sources)
    for number, (here, there) in enumerate(zip(path, learned.path, strict=False)):
        if here != there:
            return learned.path[number - 1] if number else there
    return ""


def _cause(learned: Learned, done: Round, evidence: tuple[str, ...]) -> Finding | None:
    """The likeliest of what the program does, where something differs."""
    turn = learned.source_line(_turned_at(learned, done))
    found = [
        *(_set_in_body(learned, change, evidence) for change in learned.sources.changes),
        *(_live(seen, evidence) for seen in learned.live_reads()),
        *(_step_again(learned, name, evidence) for name in _steps_again(learned, done)),
        *(_world(seen, evidence) for seen in learned.world_reads()),
    ]
    named = [one for one in found if turn and (learned.source_line(one.at) == turn or one.about in turn)]
    return next(iter(named or found), None)


def _set_in_body(learned: Learned, change: Change, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "variable changed in a body",
        f"{change.function} changes {change.variable}, which is not changed when {change.function} is remembered",
        f"let {change.function} return it, or keep it in run.state, which is remembered too",
        change.at, evidence, about=change.variable,
    )  # fmt: skip


def _live(read: Seen, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "live state read in a run",
        f"{read.name} in the plain code of a run reads what is there now: started again, it goes another way",
        "read it in a step, whose result is remembered, or keep it in run.state",
        read.at, evidence, about=read.name,
    )  # fmt: skip


def _world(read: Seen, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "world looked at in a run",
        f"{read.name} in the plain code of a run looks at what is there now: started again, it goes another way",
        "look in a step, whose result is remembered", read.at, evidence, about=read.name,
    )  # fmt: skip


def _steps_again(learned: Learned, done: Round) -> list[str]:
    """Steps that were done more often than in peace."""
    found = []
    for path, text in done.snapshot.leaves.items():
        _, is_count, name = path.partition(TIMES_DONE)
        if is_count and path in learned.leaves and int(text) > int(learned.leaves[path]):
            found.append(name.removesuffix(" was done"))
    return found


def _step_again(learned: Learned, name: str, evidence: tuple[str, ...]) -> Finding:
    origin, made_by = _origin(learned, name)
    return Finding(
        "arguments change", f"the arguments of step {name} come from {made_by}: started again, it is another step",
        "make the value in a step, which is remembered, and pass its result on",
        origin or learned.sources.call_of(name), evidence, about=name,
    )  # fmt: skip


def _origin(learned: Learned, called: str) -> tuple[str, str]:
    """Where the arguments of a call come from, as far as they change: the line, and what it asks."""
    changing = learned.changing()
    at = learned.sources.flowing_into(called, [seen.at for seen in changing])
    if not at and changing:
        at = changing[0].at
    names = ", ".join(dict.fromkeys(seen.name for seen in changing if seen.at == at))
    return at, names or "something that differs at every start"


def _adopted(done: Round) -> str:
    """An effect of which only its check says that it happened."""
    return next((effect.name for effect in done.snapshot.effects if effect.adopted), "")


def _another_result(learned: Learned, name: str, evidence: tuple[str, ...]) -> Finding:
    check, where = learned.sources.checks.get(name, (f"the check of {name}", ""))
    return Finding(
        "a check gives another result",
        f"{check} says Done of {name}, and what {name} returned or wrote is lost",
        f"let {check} return Done(result) with what {name} returns, and write state after the effect, not in it",
        where, evidence,
    )  # fmt: skip


def _said_done(learned: Learned, name: str, evidence: tuple[str, ...]) -> Finding:
    check, where = learned.sources.checks.get(name, (f"the check of {name}", ""))
    return Finding(
        "wrong check", f"{check} says Done of {name}, although it had not happened",
        f"let {check} look for the key of this very call, and return NotDone when it is not there", where, evidence,
    )  # fmt: skip


def _more_effects(learned: Learned, done: Round) -> str:
    """An effect that was begun more often than in peace."""
    counts = Counter(effect.name for effect in done.snapshot.effects)
    if runs_in(done.snapshot) > learned.runs:
        return ""
    return next((name for name in counts if counts[name] > learned.effects[name]), "")


def _changed(learned: Learned, done: Round, evidence: tuple[str, ...]) -> Finding:
    """An effect was asked for with other arguments than recorded."""
    told = [line for line in done.last.output.splitlines() if "Diverged" in line][-1:]
    evidence = (*evidence, *(line.strip()[:300] for line in told))
    if not learned.changing() and (cause := _cause(learned, done, evidence)) is not None:
        return cause
    name = _more_effects(learned, done) or _diverged(told)
    origin, made_by = _origin(learned, name)
    return Finding(
        "arguments change", f"the arguments of an effect come from {made_by}: started again, it is another effect",
        "make the value in a step, which is remembered, and pass its result on",
        origin or _turned_at(learned, done) or _raised_at(done), evidence,
    )  # fmt: skip


def _diverged(told: list[str]) -> str:
    """The name of the effect in the message of Diverged."""
    found = re.search(r"effect '?(\w+)", told[0]) if told else None
    return found[1] if found else ""


def _new_run(learned: Learned, done: Round, evidence: tuple[str, ...]) -> Finding:
    left = f"left unfinished: {', '.join(done.snapshot.unfinished[:SHOWN_MAX])}"
    origin = learned.sources.flowing_into("run", [seen.at for seen in learned.changing()])
    return Finding(
        "a new run at every start", "the id of the run differs from start to start, so that nothing is continued",
        "give agent.run() an id that stays: of the task, not of the moment",
        origin or learned.sources.call_of("run"), (*evidence, left),
    )  # fmt: skip


def _raised_at(done: Round) -> str:
    """The program's own line in the last traceback."""
    found = re.findall(rf'File "{re.escape(done.folder)}/([^"]+)", line (\d+)', done.last.output)
    return ":".join(found[-1]) if found else ""


def _last_lines(done: Round) -> tuple[str, ...]:
    lines = [line.strip().replace(f"{done.folder}/", "") for line in done.last.output.splitlines() if line.strip()]
    return tuple(line[:200] for line in lines[-SHOWN_MAX:])
