"""What went wrong in a round, what it comes from, and what to change where."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator

import msgspec

from .belonging import done_again, never_done
from .learning import Learned, differences, is_item, plain_lines, plain_path, runs_in
from .orders import Manner, Seen, manner_of
from .outside import ANY_LINE
from .probe import WORLD
from .snapshot import TIMES_DONE
from .sources import Change
from .stage import Round

SHOWN_MAX = 3
"""Examples of one thing."""

SYMPTOMS = frozenset({"lost", "differs", "does not end well", "hangs"})


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
    def identity(self) -> str:
        """What is to be changed: one line is one thing, whatever comes of it."""
        return self.at or self.title

    @property
    def is_symptom(self) -> bool:
        """Whether it says only what was seen, and not what it comes from."""
        return self.kind in SYMPTOMS


def judge(learned: Learned, done: Round) -> list[Finding]:
    """Everything that differs from the undisturbed runs, by its cause; nothing, if the program has survived."""
    found = _judged(learned, done)
    return [msgspec.structs.replace(one, line=learned.source_line(one.at)) if one.at else one for one in found]


def _judged(learned: Learned, done: Round) -> list[Finding]:
    asked = bool(done.snapshot.asked)
    found = list(_repeated(learned, done))
    if done.last.hung and not asked:
        found.append(_hangs(learned, done))
    if asked or _handled(done):
        return found  # a person decides how it goes on; or the program, which has seen an error
    found += _states_in_the_open(learned, done)
    if found:
        return found  # what else differs comes from that
    return list(_other_ways(learned, done))


def _handled(done: Round) -> bool:
    """Whether the program has seen an error, and gone on as it saw fit."""
    manners = {manner_of(place) for place in done.places}
    return Manner.RAISE in manners or (Manner.FULL in manners and len(done.starts) == 1)


def _repeated(learned: Learned, done: Round) -> Iterator[Finding]:
    """Lines outside that are there more often than in peace. One that is never there in peace is no repetition."""
    counts = Counter(map(learned.reading, plain_lines(done)))
    for line, count in counts.items():
        if count > learned.outside[line] > 0:
            evidence = (f"outside {count} times instead of {learned.outside[line]}: {line[:100]}",)
            yield _why_repeated(learned, done, line, evidence)


def _why_repeated(learned: Learned, done: Round, line: str, evidence: tuple[str, ...]) -> Finding:
    by = learned.written_by.get(line)
    kind, _, name = by.inside.partition(" ") if by is not None else ("", "", "")
    if by is not None and kind in ("", "run"):
        who = "plain code" if by.function == "<module>" else f"{by.function}(), called by plain code,"
        return Finding(
            "effect outside of a step", f"{who} changes the world, and runs again at every start",
            "move it into a function with @agent.effect, so that it happens once", by.at, evidence,
        )  # fmt: skip
    if by is not None and kind == "step":
        return Finding(
            "effect in a step", f"step {name} changes the world, and a step is done again if it was cut off",
            f"make {name}{learned.sources.place_of(name)} an effect: @agent.effect(check=..., timeout=...) instead of "
            "@agent.step; the check gets the same arguments and key=, and returns Done(result) or NotDone",
            by.at, evidence,
        )  # fmt: skip
    if name in learned.sources.not_done and any(manner_of(place) == Manner.RAISE for place in done.places):
        return Finding(
            "an error taken for proof",
            f"{name} says by not_done= that nothing has happened, although an answer can be lost after it has",
            "list only errors there that come before anything happens, such as ConnectionRefusedError",
            learned.sources.not_done[name], evidence,
        )  # fmt: skip
    if (again := done_again(learned, done, line, name)) is not None:
        return _done_again(learned, again.name, again.again[-1], by.at if by else "", evidence)
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
        "look at what it prints, or allow more with --timeout", "", last_lines(done),
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
            "write it inside a step, an effect or the body of run.each: there it lands once",
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
    evidence += tuple(
        f"outside is missing: {line[:100]}" if line != ANY_LINE else f"outside has {lines[line]} lines, undisturbed "
        f"{learned.outside[line]}; which is missing cannot be told, because they differ at every start"
        for line in missing[:SHOWN_MAX]
    )  # fmt: skip
    new = list(lines - learned.outside)
    evidence += tuple(f"outside is new: {line[:100]}" for line in new[:SHOWN_MAX])
    if not evidence and done.last.code == learned.code:
        return
    yield (
        _of_effects(learned, done, [] if new else missing, evidence)
        or _of_items(learned, done, [*lost, _more_effects(learned, done)], evidence)
        or _of_runs(learned, done, evidence)
        or _cause(learned, done, evidence or last_lines(done))
        or _symptom(learned, done, missing, evidence)
    )


def _of_effects(learned: Learned, done: Round, missing: list[str], evidence: tuple[str, ...]) -> Finding | None:
    """What the journal says of effects that ended in another way than by their bodies."""
    adopted = [effect for effect in done.snapshot.effects if effect.adopted]
    for effect in done.snapshot.effects:
        handler = learned.sources.passes_over(effect.name)
        if handler and effect.finished and not (effect.done or effect.failed or effect.asked):
            return _passed_over(effect.name, handler, evidence)
    for effect in adopted:
        if effect.name in learned.writing:
            return _lost_write(learned, effect.name, evidence)
    for effect in adopted:
        if effect.result.replace(effect.key, "KEY") not in learned.results.get(effect.name, {effect.result}):
            return _another_result(learned, effect.name, evidence)
    belied = never_done(learned, done, missing)
    return _said_done(learned, belied.name, evidence) if belied else None


def _of_items(learned: Learned, done: Round, names: list[str], evidence: tuple[str, ...]) -> Finding | None:
    """A variable that is not what it was, because items that are done are skipped."""
    if sum(map(is_item, done.trail)) >= learned.items:
        return None
    called = {name for name in names if name}
    for one in learned.sources.carried:
        if one.decides or called & one.into or not called:
            return Finding(
                "variable carried from item to item",
                f"`{one.variable}` is changed in the body of `run.each`; items that are done are skipped, so it is not "
                "changed again",
                f'keep it in run.state, which is remembered with each item: run.state["{one.name}"] = ...',
                one.at, evidence,
            )  # fmt: skip
    return None


def _of_runs(learned: Learned, done: Round, evidence: tuple[str, ...]) -> Finding | None:
    """What the journal says of calls and runs that are not those of before."""
    if "Diverged" in done.last.output or _more_effects(learned, done):
        return _changed(learned, done, evidence)
    if runs_in(done.snapshot) > learned.runs and len(done.snapshot.unfinished) > learned.unfinished:
        return _new_run(learned, done, evidence)
    return None


def _symptom(learned: Learned, done: Round, missing: list[str], evidence: tuple[str, ...]) -> Finding:
    """What is seen, where nobody knows what it comes from."""
    turn = _turned_at(learned, done)
    if done.last.code != learned.code:
        return Finding(
            "does not end well", f"started again, it ends with {done.last.code} instead of {learned.code}",
            "let it find what it left behind", _raised_at(done) or turn, last_lines(done),
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
    """What decides where it goes another way; if that is not known, the likeliest of what the program does."""
    turn = _turned_at(learned, done)
    reads = [*learned.live_reads(), *learned.world_reads()]
    deciding = [*reads, *learned.changing()]
    at = learned.sources.flowing_to(turn, [seen.at for seen in deciding]) if turn else ""
    if at:
        return next(_read(learned, seen, evidence) for seen in deciding if seen.at == at)
    changes = [change for change in learned.sources.changes if change.variable in learned.source_line(turn)]
    found = [
        *(_set_in_body(change, evidence) for change in changes or learned.sources.changes),
        *(_step_again(learned, name, evidence) for name in _steps_again(learned, done)),
        *(_read(learned, seen, evidence) for seen in reads),
    ]
    return next(iter(found), None)


def _read(learned: Learned, seen: Seen, evidence: tuple[str, ...]) -> Finding:
    """A value that may be another one after a crash decides how the run goes on."""
    at, name = learned.in_run(seen), seen.name
    if seen.name.startswith("agent."):
        return Finding(
            "live state read in a run",
            f"{name} in the plain code of a run reads what is there now: started again, it goes another way",
            "read it in a step, whose result is remembered, or keep it in run.state", at, evidence,
        )  # fmt: skip
    if name in WORLD:
        return Finding(
            "world looked at in a run",
            f"{name} in the plain code of a run looks at what is there now: started again, it goes another way",
            "look in a step, whose result is remembered", at, evidence,
        )  # fmt: skip
    return Finding(
        "time or chance decides", f"the way of the run depends on {name}, which says something else at every start",
        "ask in a step, whose result is remembered", at, evidence,
    )  # fmt: skip


def _set_in_body(change: Change, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "variable changed in a body",
        f"{change.function} changes {change.variable}, which is not changed when {change.function} is remembered",
        f"let {change.function} return it, or keep it in run.state, which is remembered too", change.at, evidence,
    )  # fmt: skip


def _passed_over(name: str, handler: str, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "doubt passed over", f"nobody knows whether {name} has happened, and the program goes on as if it had not",
        "let InDoubt through: catch only errors that prove that nothing has happened", handler, evidence,
    )  # fmt: skip


def _lost_write(learned: Learned, name: str, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        "write in the body of an effect", f"what {name} writes in its body is lost when only its check says Done",
        f"write it after {name} has returned, or in the item around it", learned.sources.write_in(name), evidence,
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
    seen = _flowing_into(learned, name, learned.changing())
    return Finding(
        "arguments change",
        f"the arguments of step {name} come from {_told(seen)}: started again, it is another step",
        "make the value in a step, which is remembered, and pass its result on",
        learned.in_run(seen) if seen else learned.sources.call_of(name), evidence,
    )  # fmt: skip


def _flowing_into(learned: Learned, called: str, among: list[Seen]) -> Seen | None:
    """Where the arguments of a call come from, as far as they change."""
    at = learned.sources.flowing_into(called, [seen.at for seen in among])
    return next((seen for seen in among if seen.at == at), None)


def _told(seen: Seen | None) -> str:
    return seen.name if seen else "something that differs at every start"


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
    evidence = (*evidence, *(textwrap.shorten(line, 300, placeholder=" ...") for line in told))
    name = _more_effects(learned, done) or _diverged(told)
    if (found := _of_items(learned, done, [name], evidence)) is not None:
        return found
    reads = [*learned.live_reads(), *learned.world_reads()]
    if (seen := _flowing_into(learned, name, reads)) is not None:
        return _read(learned, seen, evidence)
    seen = _flowing_into(learned, name, learned.changing())
    if seen is None and (cause := _cause(learned, done, evidence)) is not None:
        return cause
    seen = seen or next(iter(learned.changing()), None)
    return Finding(
        "arguments change", f"the arguments of an effect come from {_told(seen)}: started again, it is another effect",
        "make the value in a step, which is remembered, and pass its result on",
        learned.in_run(seen) if seen else _turned_at(learned, done) or _raised_at(done), evidence,
    )  # fmt: skip


def _diverged(told: list[str]) -> str:
    """The name of the effect in the message of Diverged."""
    found = re.search(r"Diverged: (\w+)", told[0]) if told else None
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


def last_lines(done: Round, count: int = SHOWN_MAX) -> tuple[str, ...]:
    """What it has printed last."""
    lines = [line.replace(f"{done.folder}/", "") for line in done.last.output.splitlines() if line.strip()]
    return tuple(line[:200] for line in lines[-count:])
