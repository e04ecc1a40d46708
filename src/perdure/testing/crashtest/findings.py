"""Judges a round: what went wrong, the likely cause, and what to change where."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator

import msgspec

from perdure.testing.crashtest.attribution import find_missing_effect, find_repeated_effect
from perdure.testing.crashtest.baseline import (
    ExpectedOutcome,
    differences,
    is_item,
    runs_in,
    strip_keys,
    trace_plain_path,
)
from perdure.testing.crashtest.messages import Disturbance, ProgramEvent, manner_of
from perdure.testing.crashtest.outside import ANY_LINE
from perdure.testing.crashtest.probe import WORLD
from perdure.testing.crashtest.rounds import CrashRound
from perdure.testing.crashtest.snapshot import TIMES_DONE
from perdure.testing.crashtest.sources import VariableChange

SHOWN_MAX = 3
"""How many examples are shown of one finding."""

SYMPTOMS = frozenset({"lost", "differs", "does not end well", "hangs"})


class CrashFinding(msgspec.Struct, frozen=True):
    """Something to change. The same finding can occur in many rounds."""

    kind: str
    title: str
    change: str
    at: str = ""
    """`agent.py:12`, if known."""
    evidence: tuple[str, ...] = ()
    line: str = ""
    """The source text of that line."""

    @property
    def identity(self) -> str:
        """The key of a finding: one line is one thing to change, whatever its effects."""
        return self.at or self.title

    @property
    def is_symptom(self) -> bool:
        """Whether it only describes what was seen, not its cause."""
        return self.kind in SYMPTOMS


def judge(learned: ExpectedOutcome, done: CrashRound) -> list[CrashFinding]:
    """Return all differences from the undisturbed runs, by cause; empty if the program survived."""
    found = _judge_round(learned, done)
    return [msgspec.structs.replace(one, line=learned.source_line(one.at)) if one.at else one for one in found]


def _judge_round(learned: ExpectedOutcome, done: CrashRound) -> list[CrashFinding]:
    asked = bool(done.snapshot.asked)
    found = list(_find_repeated(learned, done))
    if done.last.hung and not asked:
        found.append(_hangs(learned, done))
    if asked or _has_handled_error(done):
        return found  # a person decides how to continue, or the program itself, which has seen an error
    found += _states_in_the_open(learned, done)
    if found:
        return found  # other differences follow from these
    return list(_find_other_paths(learned, done))


def _has_handled_error(done: CrashRound) -> bool:
    """Return whether the program has seen an error and continued on its own terms."""
    manners = {manner_of(place) for place in done.places}
    return Disturbance.RAISE in manners or (Disturbance.FULL in manners and len(done.starts) == 1)


def _find_repeated(learned: ExpectedOutcome, done: CrashRound) -> Iterator[CrashFinding]:
    """Yield lines outside that occur more often than undisturbed.

    A line that never occurs undisturbed is no repetition.
    """
    counts = Counter(map(learned.reading, strip_keys(done)))
    for line, count in counts.items():
        if count > learned.outside[line] > 0:
            evidence = (f"outside {count} times instead of {learned.outside[line]}: {line[:100]}",)
            yield _explain_repeated(learned, done, line, evidence)


def _explain_repeated(learned: ExpectedOutcome, done: CrashRound, line: str, evidence: tuple[str, ...]) -> CrashFinding:
    by = learned.written_by.get(line)
    kind, _, name = by.inside.partition(" ") if by is not None else ("", "", "")
    if by is not None and kind in ("", "run"):
        who = "plain code" if by.function == "<module>" else f"{by.function}(), called by plain code,"
        return CrashFinding(
            "effect outside of a step", f"{who} changes the world and runs again at every start",
            "move it into a function with @agent.effect, so that it happens once", by.at, evidence,
        )  # fmt: skip
    if by is not None and kind == "step":
        return CrashFinding(
            "effect in a step", f"step {name} changes the world, but an interrupted step runs again",
            f"make {name}{learned.sources.place_of(name)} an effect: @agent.effect(check=..., timeout=...) instead of "
            "@agent.step; the check gets the same arguments and key=, and returns Done(result) or NotDone",
            by.at, evidence,
        )  # fmt: skip
    if name in learned.sources.not_done and any(manner_of(place) == Disturbance.RAISE for place in done.places):
        return CrashFinding(
            "an error taken for proof",
            f"not_done= of {name} lists an error that can also occur after it has happened",
            "list only errors that occur before anything happens, such as ConnectionRefusedError",
            learned.sources.not_done[name], evidence,
        )  # fmt: skip
    if (again := find_repeated_effect(learned, done, line, name)) is not None:
        return _report_done_again(learned, again.name, again.again[-1], by.at if by else "", evidence)
    if _find_extra_effect(learned, done) or "Diverged" in done.last.output:
        return _report_changed_arguments(learned, done, evidence)
    if runs_in(done.snapshot) > learned.runs:
        return _report_new_run(learned, done, evidence)
    return CrashFinding(
        "effect outside of a step", "something that is not an effect changes the world again at every start",
        "move it into a function with @agent.effect; with a file as --count-effects, the report names the line",
        "", evidence,
    )  # fmt: skip


def _report_done_again(
    learned: ExpectedOutcome, name: str, reason: str, at: str, evidence: tuple[str, ...]
) -> CrashFinding:
    if not reason.startswith("declared"):
        check, where = learned.sources.checks.get(name, (f"the check of {name}", at))
        return CrashFinding(
            "wrong check", f"{check} says NotDone of {name}, although it had happened",
            f"let {check} look for the key where {name} leaves it, and return Done when it is there", where, evidence,
        )  # fmt: skip
    return CrashFinding(
        "not safe to repeat", f'{name} has in_doubt="retry" and happens twice with the same key',
        "pass the key to a service that deduplicates by key, or give the effect a check", at, evidence,
    )  # fmt: skip


def _hangs(learned: ExpectedOutcome, done: CrashRound) -> CrashFinding:
    waits = f"; it waits for {done.snapshot.waits[0]}" if done.snapshot.waits else ""
    return CrashFinding(
        "hangs", f"after the restart it did not end in {done.last.seconds:.0f} s{waits}",
        "check its output, or allow more time with --timeout", "", take_last_lines(done),
    )  # fmt: skip


def _states_in_the_open(learned: ExpectedOutcome, done: CrashRound) -> Iterator[CrashFinding]:
    for path, evidence in differences(learned, done):
        base = next((one for one in done.snapshot.open_writes if path.startswith(one)), None)
        if base is None:
            continue
        key = base.rpartition("/")[2].rpartition(" ")[2]
        lines = [seen for seen in learned.writes if key in learned.source_line(seen.at)] or list(learned.writes)
        what = "agent.state" if ": state " in base else "an event"
        yield CrashFinding(
            "state written in the open",
            f"{what} {base.partition(': ')[2].removeprefix('state ')} is written in plain code, again at every start",
            "write it inside a step, an effect or the body of run.each, where it lands once",
            lines[0].at if lines else "", (evidence,),
        )  # fmt: skip


def _find_other_paths(learned: ExpectedOutcome, done: CrashRound) -> Iterator[CrashFinding]:
    """Find why the program took another path than undisturbed, or did not end as it does undisturbed."""
    evidence = tuple(text for _, text in differences(learned, done))[:SHOWN_MAX]
    effects = Counter(effect.name for effect in done.snapshot.effects)
    lost = {name: count - effects[name] for name, count in learned.effects.items() if effects[name] < count}
    lines = Counter(map(learned.reading, strip_keys(done)))
    missing = [line for line, count in learned.outside.items() if lines[line] < count]
    evidence += tuple(f"effect {name} is missing" for name in list(lost)[:SHOWN_MAX])
    evidence += tuple(
        f"missing outside: {line[:100]}" if line != ANY_LINE else f"{lines[line]} lines outside instead of "
        f"{learned.outside[line]}; they differ at every start, so the missing one is unknown"
        for line in missing[:SHOWN_MAX]
    )  # fmt: skip
    new = list(lines - learned.outside)
    evidence += tuple(f"new outside: {line[:100]}" for line in new[:SHOWN_MAX])
    if not evidence and done.last.code == learned.code:
        return
    yield (
        _check_effects(learned, done, [] if new else missing, evidence)
        or _check_items(learned, done, [*lost, _find_extra_effect(learned, done)], evidence)
        or _check_runs(learned, done, evidence)
        or _cause(learned, done, evidence or take_last_lines(done))
        or _symptom(learned, done, missing, evidence)
    )


def _check_effects(
    learned: ExpectedOutcome, done: CrashRound, missing: list[str], evidence: tuple[str, ...]
) -> CrashFinding | None:
    """Check effects that ended in another way than by their bodies, according to the journal."""
    adopted = [effect for effect in done.snapshot.effects if effect.adopted]
    for effect in done.snapshot.effects:
        handler = learned.sources.find_catch_all(effect.name)
        if handler and effect.finished and not (effect.done or effect.failed or effect.asked):
            return _report_swallowed_error(effect.name, handler, evidence)
    for effect in adopted:
        if effect.name in learned.writing:
            return _report_lost_write(learned, effect.name, evidence)
    for effect in adopted:
        if effect.result.replace(effect.key, "KEY") not in learned.results.get(effect.name, {effect.result}):
            return _report_other_result(learned, effect.name, evidence)
    belied = find_missing_effect(learned, done, missing)
    return _report_wrong_check(learned, belied.name, evidence) if belied else None


def _check_items(
    learned: ExpectedOutcome, done: CrashRound, names: list[str], evidence: tuple[str, ...]
) -> CrashFinding | None:
    """Check for a variable with a wrong value because finished items are skipped."""
    if sum(map(is_item, done.trail)) >= learned.items:
        return None
    called = {name for name in names if name}
    for one in learned.sources.carried:
        if one.decides or called & one.into or not called:
            return CrashFinding(
                "variable carried from item to item",
                f"`{one.variable}` is changed in the body of `run.each`; finished items are skipped, so it is not "
                "changed again",
                f'keep it in run.state, which is stored with each item: run.state["{one.name}"] = ...',
                one.at, evidence,
            )  # fmt: skip
    return None


def _check_runs(learned: ExpectedOutcome, done: CrashRound, evidence: tuple[str, ...]) -> CrashFinding | None:
    """Check for calls and runs that differ from the earlier ones, according to the journal."""
    if "Diverged" in done.last.output or _find_extra_effect(learned, done):
        return _report_changed_arguments(learned, done, evidence)
    if runs_in(done.snapshot) > learned.runs and len(done.snapshot.unfinished) > learned.unfinished:
        return _report_new_run(learned, done, evidence)
    return None


def _symptom(learned: ExpectedOutcome, done: CrashRound, missing: list[str], evidence: tuple[str, ...]) -> CrashFinding:
    """Describe what was seen when the cause is unknown."""
    turn = _find_divergence_line(learned, done)
    if done.last.code != learned.code:
        return CrashFinding(
            "does not end well", f"after the restart it ends with exit code {done.last.code} instead of {learned.code}",
            "let it continue from what it had stored", _find_raise(done) or turn, take_last_lines(done),
        )  # fmt: skip
    if missing or any("effect" in text and "is missing" in text for text in evidence):
        by = [learned.written_by[line].at for line in missing if line in learned.written_by]
        return CrashFinding(
            "lost", "something that happens undisturbed does not happen after a crash",
            "find why it skips this after a restart: what was recorded before it was done?",
            turn or next(iter(by), ""), evidence,
        )  # fmt: skip
    return CrashFinding(
        "differs", "the outcome differs from that of an undisturbed run",
        "let steps return what later code needs: a step that is not run again sets no variables",
        turn, evidence,
    )  # fmt: skip


def _find_divergence_line(learned: ExpectedOutcome, done: CrashRound) -> str:
    """Return the line of plain code after which the path differs. Only a thorough start records it."""
    path = trace_plain_path(done.trail, learned.sources)
    for number, (here, there) in enumerate(zip(path, learned.path, strict=False)):
        if here != there:
            return learned.path[number - 1] if number else there
    return ""


def _cause(learned: ExpectedOutcome, done: CrashRound, evidence: tuple[str, ...]) -> CrashFinding | None:
    """Return what decides where the path differs; if unknown, the most likely cause."""
    turn = _find_divergence_line(learned, done)
    reads = [*learned.list_live_reads(), *learned.world_reads()]
    deciding = [*reads, *learned.list_changing_calls()]
    at = learned.sources.find_line_origin(turn, [seen.at for seen in deciding]) if turn else ""
    if at:
        return next(_report_unstable_read(learned, seen, evidence) for seen in deciding if seen.at == at)
    changes = [change for change in learned.sources.changes if change.variable in learned.source_line(turn)]
    found = [
        *(_report_set_in_body(change, evidence) for change in changes or learned.sources.changes),
        *(_step_again(learned, name, evidence) for name in _steps_again(learned, done)),
        *(_report_unstable_read(learned, seen, evidence) for seen in reads),
    ]
    return next(iter(found), None)


def _report_unstable_read(learned: ExpectedOutcome, seen: ProgramEvent, evidence: tuple[str, ...]) -> CrashFinding:
    """Report a value that may differ after a crash and decides how the run continues."""
    at, name = learned.find_run_line(seen), seen.name
    if seen.name.startswith("agent."):
        return CrashFinding(
            "live state read in a run",
            f"{name} in the plain code of a run reads the current value, which may differ after a restart",
            "read it in a step, whose result is stored, or keep it in run.state", at, evidence,
        )  # fmt: skip
    if name in WORLD:
        return CrashFinding(
            "world looked at in a run",
            f"{name} in the plain code of a run reads the current world, which may differ after a restart",
            "read it in a step, whose result is stored", at, evidence,
        )  # fmt: skip
    return CrashFinding(
        "time or chance decides", f"the path of the run depends on {name}, which differs at every start",
        "call it in a step, whose result is stored", at, evidence,
    )  # fmt: skip


def _report_set_in_body(change: VariableChange, evidence: tuple[str, ...]) -> CrashFinding:
    return CrashFinding(
        "variable changed in a body",
        f"{change.function} changes {change.variable}, but {change.function} does not run again once it is finished",
        f"let {change.function} return it, or keep it in run.state", change.at, evidence,
    )  # fmt: skip


def _report_swallowed_error(name: str, handler: str, evidence: tuple[str, ...]) -> CrashFinding:
    return CrashFinding(
        "doubt passed over", f"the outcome of {name} is unknown, and the program continues as if it had not happened",
        "let InDoubt through: catch only errors that prove that nothing happened", handler, evidence,
    )  # fmt: skip


def _report_lost_write(learned: ExpectedOutcome, name: str, evidence: tuple[str, ...]) -> CrashFinding:
    return CrashFinding(
        "write in the body of an effect", f"writes in the body of {name} are lost if its check says Done after a crash",
        f"write it after {name} has returned, or in the item around it", learned.sources.write_in(name), evidence,
    )  # fmt: skip


def _steps_again(learned: ExpectedOutcome, done: CrashRound) -> list[str]:
    """Return steps that ran more often than undisturbed."""
    found = []
    for path, text in done.snapshot.leaves.items():
        _, is_count, name = path.partition(TIMES_DONE)
        if is_count and path in learned.leaves and int(text) > int(learned.leaves[path]):
            found.append(name.removesuffix(" was done"))
    return found


def _step_again(learned: ExpectedOutcome, name: str, evidence: tuple[str, ...]) -> CrashFinding:
    seen = _find_argument_source(learned, name, learned.list_changing_calls())
    return CrashFinding(
        "arguments change",
        f"the arguments of step {name} depend on {_describe(seen)}, so a restart runs another step",
        "compute the value in a step and pass its result on",
        learned.find_run_line(seen) if seen else learned.sources.call_of(name), evidence,
    )  # fmt: skip


def _find_argument_source(learned: ExpectedOutcome, called: str, among: list[ProgramEvent]) -> ProgramEvent | None:
    """Return the source of a call's arguments, if it changes between starts."""
    at = learned.sources.find_argument_origin(called, [seen.at for seen in among])
    return next((seen for seen in among if seen.at == at), None)


def _describe(seen: ProgramEvent | None) -> str:
    return seen.name if seen else "something that differs at every start"


def _report_other_result(learned: ExpectedOutcome, name: str, evidence: tuple[str, ...]) -> CrashFinding:
    check, where = learned.sources.checks.get(name, (f"the check of {name}", ""))
    return CrashFinding(
        "a check gives another result",
        f"{check} says Done of {name}, but does not return the result of {name}",
        f"let {check} return Done(result) with the result of {name}, and write state after the effect, not in it",
        where, evidence,
    )  # fmt: skip


def _report_wrong_check(learned: ExpectedOutcome, name: str, evidence: tuple[str, ...]) -> CrashFinding:
    check, where = learned.sources.checks.get(name, (f"the check of {name}", ""))
    return CrashFinding(
        "wrong check", f"{check} says Done of {name}, although it had not happened",
        f"let {check} look for the key of this very call, and return NotDone when it is not there", where, evidence,
    )  # fmt: skip


def _find_extra_effect(learned: ExpectedOutcome, done: CrashRound) -> str:
    """Return an effect that was started more often than undisturbed."""
    counts = Counter(effect.name for effect in done.snapshot.effects)
    if runs_in(done.snapshot) > learned.runs:
        return ""
    return next((name for name in counts if counts[name] > learned.effects[name]), "")


def _report_changed_arguments(learned: ExpectedOutcome, done: CrashRound, evidence: tuple[str, ...]) -> CrashFinding:
    """Report an effect that was requested with other arguments than recorded."""
    told = [line for line in done.last.output.splitlines() if "Diverged" in line][-1:]
    evidence = (*evidence, *(textwrap.shorten(line, 300, placeholder=" ...") for line in told))
    name = _find_extra_effect(learned, done) or _parse_diverged_effect(told)
    if (found := _check_items(learned, done, [name], evidence)) is not None:
        return found
    reads = [*learned.list_live_reads(), *learned.world_reads()]
    if (seen := _find_argument_source(learned, name, reads)) is not None:
        return _report_unstable_read(learned, seen, evidence)
    seen = _find_argument_source(learned, name, learned.list_changing_calls())
    if seen is None and (cause := _cause(learned, done, evidence)) is not None:
        return cause
    seen = seen or next(iter(learned.list_changing_calls()), None)
    return CrashFinding(
        "arguments change",
        f"the arguments of an effect depend on {_describe(seen)}, so a restart starts another effect",
        "compute the value in a step and pass its result on",
        learned.find_run_line(seen) if seen else _find_divergence_line(learned, done) or _find_raise(done), evidence,
    )  # fmt: skip


def _parse_diverged_effect(told: list[str]) -> str:
    """Return the name of the effect in a Diverged message."""
    found = re.search(r"Diverged: (\w+)", told[0]) if told else None
    return found[1] if found else ""


def _report_new_run(learned: ExpectedOutcome, done: CrashRound, evidence: tuple[str, ...]) -> CrashFinding:
    left = f"left unfinished: {', '.join(done.snapshot.unfinished[:SHOWN_MAX])}"
    origin = learned.sources.find_argument_origin("run", [seen.at for seen in learned.list_changing_calls()])
    return CrashFinding(
        "a new run at every start", "the id of the run differs at every start, so no run is continued",
        "derive the id of agent.run() from the task, not from the time",
        origin or learned.sources.call_of("run"), (*evidence, left),
    )  # fmt: skip


def _find_raise(done: CrashRound) -> str:
    """Return the program's own line in the last traceback."""
    found = re.findall(rf'File "{re.escape(done.folder)}/([^"]+)", line (\d+)', done.last.output)
    return ":".join(found[-1]) if found else ""


def take_last_lines(done: CrashRound, count: int = SHOWN_MAX) -> tuple[str, ...]:
    """Return the last lines that the program printed."""
    lines = [line.replace(f"{done.folder}/", "") for line in done.last.output.splitlines() if line.strip()]
    return tuple(line[:200] for line in lines[-count:])
