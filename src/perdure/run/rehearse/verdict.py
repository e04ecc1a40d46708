"""Judges a replay: what the code no longer reaches, what it starts, and whether anything would be done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from perdure import records as r
from perdure.run.prices import NANOS

SHOWN_MAX = 3
"""How many calls are listed by name."""

FAILS = ("repeats", "diverges", "reruns", "unknown")
"""The verdicts that must stop a deployment, worst first."""

_WORK = ("step", "effect", "item", "run")

VERDICTS = (*FAILS, "differs", "stops", "replays")

_RENAMED = 'if it was renamed, declare was="old_name"'
_LOOP = 'if the loop was renamed, use run.each(..., name="new", was={was})'
_REMOVED = "if it was removed on purpose, pass --removed {name}"
_STEPS = "if these steps may run again, pass --allow-steps"
RUN_STEPS = "--run-steps executes new steps, so that the replay can continue"


class ReplayFinding(msgspec.Struct, frozen=True):
    """A finding of a replay."""

    kind: str
    """One of VERDICTS, or `new`: something unrecorded starts."""
    text: str
    line: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.text + (f" ({self.line})" if self.line else "")


class NewOperation(msgspec.Struct, frozen=True):
    """An unrecorded operation that the code starts."""

    kind: str
    """`step`, `effect`, `item`, `run`, `wait`, `checkpoint` or `write`."""
    name: str
    text: str
    line: str = ""
    ident: bytes = b""
    """The digest of its arguments."""
    scope: str = ""

    def __str__(self) -> str:
        return self.text + (f" at {self.line}" if self.line else "")


class UnreachedOperation(msgspec.Struct, frozen=True):
    """A recorded operation that the code has not reached."""

    kind: str
    """`effect`, `step`, `item`, `run`, `wait` or `write`."""
    name: str
    entry: int = 0
    scope: str = ""
    """The scope of the enclosing item; "" in the run itself."""
    cost_usd: float = 0.0
    """The cost of its model calls."""
    weighs: str = ""
    """What it counts as: an `effect` that may have happened, a `step` that is done, or "" for nothing."""
    ident: bytes = b""

    def __str__(self) -> str:
        return f"{self.name} (entry {self.entry})" if self.entry else self.name


class ReplayRules(msgspec.Struct, frozen=True):
    """The options of a replay check."""

    run_steps: bool = False
    """Whether new steps are executed."""
    allow_steps: bool = False
    """Whether recorded steps may run again."""
    removed: frozenset[str] = frozenset()
    """Effects that were removed from the code on purpose."""


class ReplayResult(msgspec.Struct, frozen=True):
    """The result of replaying one recorded run."""

    agent: str
    id: str
    status: r.RunStatus
    findings: tuple[ReplayFinding, ...]
    calls: int
    """How many recorded calls the code reached."""
    then: str
    """Where it continues, or how it ends."""
    new: tuple[str, ...] = ()
    """What the code starts before it has reached everything recorded."""
    unreached: tuple[UnreachedOperation, ...] = ()
    """Recorded operations that were not reached."""

    @property
    def verdict(self) -> str:
        """The worst finding."""
        kinds = {finding.kind for finding in self.findings}
        if "new" in kinds and self.status == r.RunStatus.FINISHED:
            kinds.add("differs")
        return next(verdict for verdict in VERDICTS if verdict in kinds or verdict == "replays")

    @property
    def fails(self) -> bool:
        """Whether something may be done twice, the run cannot continue, or the replay could not tell."""
        return self.verdict in FAILS


class ReplayEnd(msgspec.Struct, frozen=True):
    """Why a replay ended before the code did, and what to do about it."""

    text: str = ""
    hint: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


def judge_unreached(
    left: Sequence[UnreachedOperation], new: Sequence[NewOperation], cut: ReplayEnd, rules: ReplayRules
) -> list[ReplayFinding]:
    """Return what the unreached operations mean."""
    removed = [
        one
        for one in left
        if one.name in rules.removed and not cut and not _find_replacements([one], new, cut, "effect")
    ]
    effects = [one for one in left if one.weighs == "effect" and one not in removed]
    steps = [one for one in left if one.weighs == "step" and not rules.allow_steps]
    found = []
    instead = _find_replacements(effects, new, cut, "effect")
    if effects and (instead or not cut):
        found.append(_make_repeat_finding("repeats", effects, instead, _effects_hint(effects)))
    instead = _find_replacements(steps, new, cut, *_WORK)
    if steps and (instead or (not cut and _find_step_replacements(new))):
        found.append(
            _make_repeat_finding("reruns", steps, instead or _find_step_replacements(new), f"{_RENAMED}; {_STEPS}")
        )
    if cut and (effects or steps):
        text = f"{cut.text}; not reached before that: {list_operations([*effects, *steps])}"
        found.append(ReplayFinding("unknown", text, hint=cut.hint))
    if left and not found:
        found.append(ReplayFinding("differs", f"recorded, but no longer reached: {list_operations(left)}"))
    return found


def _find_step_replacements(new: Iterable[NewOperation]) -> list[NewOperation]:
    """Return operations that may replace a recorded step. Without any, the step was just removed."""
    return [one for one in new if one.kind in _WORK]


def _find_replacements(
    left: Iterable[UnreachedOperation], new: Iterable[NewOperation], cut: ReplayEnd, *kinds: str
) -> list[NewOperation]:
    """Return new operations with the name or the arguments of an unreached one.

    After a cut, the recorded one might still have been reached. So two of name, arguments and scope must agree.
    """
    enough = 2 if cut else 1
    found = [
        one for one in new if one.kind in kinds and any(_agree(one, unreached, cut) >= enough for unreached in left)
    ]
    if any(one.kind == "run" for one in left):
        found += [one for one in new if one.kind == "run"]
    return found


def _agree(new: NewOperation, left: UnreachedOperation, cut: ReplayEnd) -> int:
    """Return in how many of name, arguments and, after a cut, scope they agree."""
    same_arguments = bool(new.ident) and new.ident == left.ident
    return (new.name == left.name) + same_arguments + (bool(cut) and new.scope == left.scope)


def _make_repeat_finding(
    kind: str, left: Sequence[UnreachedOperation], instead: Sequence[NewOperation], hint: str
) -> ReplayFinding:
    text = f"{count_operations(left)} recorded and not found{_describe_loops(left)}: {list_operations(left)}"
    if cost := sum(one.cost_usd for one in left):
        text += f", which cost ${cost:.4f}"
    if instead:
        text += f"; it would start {list_operations(instead)}"
    return ReplayFinding(kind, text, hint=hint)


def _effects_hint(effects: Sequence[UnreachedOperation]) -> str:
    labels = sorted({loop_of(one.scope) for one in effects if one.scope})
    hints = []
    if labels:
        was = labels[0] if labels[0].isdigit() else '"old"' if labels[0].startswith("~") else f'"{labels[0]}"'
        hints.append(_LOOP.format(was=was))
    if named := [one.name for one in effects if one.kind == "effect" and not one.scope]:
        hints += [_RENAMED, _REMOVED.format(name=named[0])]
    return "; ".join(hints)


def _describe_loops(left: Sequence[UnreachedOperation]) -> str:
    """Return the loops around the unreached operations: `, in 2 items of loop '1'`."""
    loops: dict[str, set[str]] = {}
    for one in left:
        if one.scope:
            loops.setdefault(loop_of(one.scope), set()).add(one.scope)
    bare = all(one.kind == "item" for one in left)
    places = [("" if bare else f"{plural(len(at), 'item')} of ") + _loop_named(label) for label, at in loops.items()]
    return f", in {' and '.join(places)}" if places else ""


def _loop_named(label: str) -> str:
    return "a loop" if label.startswith("~") else f"loop {label!r}"


def loop_of(scope: str) -> str:
    """Return the label of the innermost loop in an item's scope."""
    return scope.rstrip("/").rpartition("/")[2].partition(":")[0]


def list_operations(found: Sequence[UnreachedOperation | NewOperation]) -> str:
    """List the first operations, and the number of the others."""
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(map(str, found[:SHOWN_MAX])) + more


def count_operations(found: Sequence[UnreachedOperation]) -> str:
    """`1 effect is`, `2 effects and 1 run are`."""
    kinds = Counter(one.kind for one in found)
    counts = " and ".join(plural(number, kind) for kind, number in kinds.items())
    return f"{counts} {'is' if len(found) == 1 else 'are'}"


def plural(number: int, noun: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def dollars(usage: Iterable[r.ModelUsage]) -> float:
    """Return the cost of model calls in dollars."""
    return sum(one.cost for one in usage) / NANOS
