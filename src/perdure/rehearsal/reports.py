"""What a replay has shown: what the code no longer reaches, what it begins, and whether something is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from .. import records as r
from ..prices import NANOS

SHOWN_MAX = 3
"""Calls that are named one by one."""

FAILS = ("repeats", "diverges", "reruns", "unknown")
"""The verdicts with which a deploy must not go on, the worst first."""

_WORK = ("step", "effect", "item", "run")

VERDICTS = (*FAILS, "differs", "stops", "replays")

_RENAMED = 'if it was renamed, declare was="old_name"'
_LOOP = 'if the loop was renamed, say run.each(..., name="new", was={was})'
_REMOVED = "if it was removed on purpose, pass --removed {name}"
_STEPS = "if these steps may run again, pass --allow-steps"
RUN_STEPS = "--run-steps runs new steps for real, so that the replay can go on"


class Finding(msgspec.Struct, frozen=True):
    """Something that a replay has shown."""

    kind: str
    """One of VERDICTS, or `new`: something that is not recorded begins, beside everything that is."""
    text: str
    line: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.text + (f" ({self.line})" if self.line else "")


class New(msgspec.Struct, frozen=True):
    """Something that is not recorded, and that the code begins."""

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


class Unreached(msgspec.Struct, frozen=True):
    """Something recorded that the code has not asked for."""

    kind: str
    """`effect`, `step`, `item`, `run`, `wait` or `write`."""
    name: str
    entry: int = 0
    scope: str = ""
    """Of the item around it; empty in the run itself."""
    cost_usd: float = 0.0
    """What its model calls have cost."""
    weighs: str = ""
    """As what it counts: an `effect` that may have happened, a `step` that is done, or nothing."""
    ident: bytes = b""

    def __str__(self) -> str:
        return f"{self.name} (entry {self.entry})" if self.entry else self.name


class Rules(msgspec.Struct, frozen=True):
    """What whoever asks accepts."""

    run_steps: bool = False
    """New steps run for real."""
    allow_steps: bool = False
    """Recorded steps may run again."""
    removed: frozenset[str] = frozenset()
    """Effects that the code does not contain any more, on purpose."""


class Replay(msgspec.Struct, frozen=True):
    """What became of one recorded run."""

    agent: str
    id: str
    status: r.Status
    findings: tuple[Finding, ...]
    calls: int
    """Recorded calls that the code has asked for."""
    then: str
    """Where it goes on, or how it ends."""
    new: tuple[str, ...] = ()
    """What the code begins before it has asked for everything that is recorded."""
    unreached: tuple[Unreached, ...] = ()
    """What is recorded, and was not asked for."""

    @property
    def verdict(self) -> str:
        """The worst that was found."""
        kinds = {finding.kind for finding in self.findings}
        if "new" in kinds and self.status == r.Status.FINISHED:
            kinds.add("differs")
        return next(verdict for verdict in VERDICTS if verdict in kinds or verdict == "replays")

    @property
    def fails(self) -> bool:
        """Whether something may be done twice, the run cannot go on, or that is not known."""
        return self.verdict in FAILS


class Cut(msgspec.Struct, frozen=True):
    """Why a replay has ended before the code did, and what to do about that."""

    text: str = ""
    hint: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


def judged(left: Sequence[Unreached], new: Sequence[New], cut: Cut, rules: Rules) -> list[Finding]:
    """What it means that something recorded was not reached."""
    removed = [one for one in left if one.name in rules.removed and not cut and not _instead([one], new, cut, "effect")]
    effects = [one for one in left if one.weighs == "effect" and one not in removed]
    steps = [one for one in left if one.weighs == "step" and not rules.allow_steps]
    found = []
    instead = _instead(effects, new, cut, "effect")
    if effects and (instead or not cut):
        found.append(_again("repeats", effects, instead, _effects_hint(effects)))
    instead = _instead(steps, new, cut, *_WORK)
    if steps and (instead or (not cut and _may_replace_steps(new))):
        found.append(_again("reruns", steps, instead or _may_replace_steps(new), f"{_RENAMED}; {_STEPS}"))
    if cut and (effects or steps):
        text = f"{cut.text}; not reached before that: {listed([*effects, *steps])}"
        found.append(Finding("unknown", text, hint=cut.hint))
    if left and not found:
        found.append(Finding("differs", f"recorded, and not asked for any more: {listed(left)}"))
    return found


def _may_replace_steps(new: Iterable[New]) -> list[New]:
    """What may do the work of a recorded step. Where nothing does, the step was removed: that costs nothing."""
    return [one for one in new if one.kind in _WORK]


def _instead(left: Iterable[Unreached], new: Iterable[New], cut: Cut, *kinds: str) -> list[New]:
    """What begins and has the name or the arguments of something that was not reached.

    After a cut nobody knows whether that would have been reached: then two of name, arguments and place must agree.
    """
    enough = 2 if cut else 1
    found = [one for one in new if one.kind in kinds and any(_agree(one, it, cut) >= enough for it in left)]
    if any(one.kind == "run" for one in left):
        found += [one for one in new if one.kind == "run"]
    return found


def _agree(new: New, left: Unreached, cut: Cut) -> int:
    """In how many of name, arguments and, after a cut, place, they are the same."""
    same_arguments = bool(new.ident) and new.ident == left.ident
    return (new.name == left.name) + same_arguments + (bool(cut) and new.scope == left.scope)


def _again(kind: str, left: Sequence[Unreached], instead: Sequence[New], hint: str) -> Finding:
    text = f"{counted(left)} recorded and not found{_where(left)}: {listed(left)}"
    if cost := sum(one.cost_usd for one in left):
        text += f", which cost ${cost:.4f}"
    if instead:
        text += f"; it would begin {listed(instead)}"
    return Finding(kind, text, hint=hint)


def _effects_hint(effects: Sequence[Unreached]) -> str:
    labels = sorted({loop_of(one.scope) for one in effects if one.scope})
    hints = []
    if labels:
        was = labels[0] if labels[0].isdigit() else '"old"' if labels[0].startswith("~") else f'"{labels[0]}"'
        hints.append(_LOOP.format(was=was))
    if named := [one.name for one in effects if one.kind == "effect" and not one.scope]:
        hints += [_RENAMED, _REMOVED.format(name=named[0])]
    return "; ".join(hints)


def _where(left: Sequence[Unreached]) -> str:
    """`, in 2 items of loop '1'`."""
    loops: dict[str, set[str]] = {}
    for one in left:
        if one.scope:
            loops.setdefault(loop_of(one.scope), set()).add(one.scope)
    bare = all(one.kind == "item" for one in left)
    told = [("" if bare else f"{plural(len(at), 'item')} of ") + _loop_named(label) for label, at in loops.items()]
    return f", in {' and '.join(told)}" if told else ""


def _loop_named(label: str) -> str:
    return "a loop" if label.startswith("~") else f"loop {label!r}"


def loop_of(scope: str) -> str:
    """What the innermost loop around an item is called in its scope."""
    return scope.rstrip("/").rpartition("/")[2].partition(":")[0]


def listed(found: Sequence[Unreached | New]) -> str:
    """Some of them by name, and how many more."""
    more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(map(str, found[:SHOWN_MAX])) + more


def counted(found: Sequence[Unreached]) -> str:
    """`1 effect is`, `2 effects and 1 run are`."""
    kinds = Counter(one.kind for one in found)
    told = " and ".join(plural(number, kind) for kind, number in kinds.items())
    return f"{told} {'is' if len(found) == 1 else 'are'}"


def plural(number: int, noun: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def dollars(usage: Iterable[r.Usage]) -> float:
    """What some model calls have cost."""
    return sum(one.cost for one in usage) / NANOS
