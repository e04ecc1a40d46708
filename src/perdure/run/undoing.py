"""`run.undo(n)`: the run goes back over its last steps, and what it had of its own is as it was before them.

It is an entry of the run. On replay the code goes through the steps that were undone, comes to the same call, and from
there on matches what was recorded after it: the ledger of the next chapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .. import records as r
from ..errors import PointNotFound
from ..failpoints import Site
from ..fork_records import Back
from ..journal.lineage import events_of
from .core import RunCore, view_of
from .history import Chapter, Stays, chapters, stays_after, what_is_left
from .ledger import Ledger, Turn
from .requests import Protocol, Read
from .scope import Begun, frame_of

EFFECTS = ("keep", "again")


class Undo(msgspec.Struct, frozen=True):
    """What going back has come to."""

    steps: int
    to: int
    """The run is as it was right after this entry."""
    kept: tuple[str, ...] = ()
    """Effects that stay recorded: called again they return what they did, and are not repeated."""
    stays: tuple[Stays, ...] = ()
    """What else was done to the world and to the agent since then: it is not taken back."""

    def __repr__(self) -> str:
        kept = f", kept {', '.join(self.kept)}" if self.kept else ""
        return f"<Undo of {self.steps} steps, back to entry {self.to}{kept}, {len(self.stays)} not taken back>"


def undo(run: RunCore, steps: int, effects: str) -> Protocol[Undo]:
    """Go back over the last steps, effects and loops of the run itself."""
    must_be_steps(steps, effects)
    frame = frame_of(run)
    if frame is not run.root:
        raise RuntimeError("run.undo() is called in the run itself, not in a step, an effect or an item of a loop")
    turn = run.ledger.after
    if turn is not None:
        run.root.go_back(turn.undone.steps)
        run.turn(turn)
        return told(turn.before, turn.undone)
    run.must_be_open()
    events: list[r.Event] = yield Read(_events, (run,))
    now = chapters(events)[-1]
    begun = run.root.begun_last(steps)
    if len(begun) < steps:
        raise PointNotFound(f"run {run.id!r} has done {len(begun)} steps, and {steps} cannot be undone")
    to = min(_before(now.events, run.ledger, one) for one in begun)
    undone = plan(now.events, to, steps, effects, inside=True)
    seq = yield from run.commit(Site.UNDO, undone)
    before = list(now.events)
    left = what_is_left(before, undone)
    run.root.go_back(steps)
    run.turn(_turn(before, Chapter(seq, undone, len(left), left), run.ledger))
    return told(before, undone)


def must_be_steps(steps: object, effects: str) -> None:
    """Whether that can be asked for."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"undo({steps!r}): say how many steps, 1 or more")
    if effects not in EFFECTS:
        raise ValueError(f'effects={effects!r}: choose "keep" or "again"')


def plan(events: Sequence[r.Event], to: int, steps: int, effects: str, *, inside: bool, by: str = "") -> r.Undone:
    """What is to be recorded. Effects in doubt are never forgotten."""
    ledger = Ledger(events)
    later = [seq for seq in ledger.by_intent if seq > to]
    kept = [seq for seq in later if effects == "keep" or ledger.by_intent[seq].in_doubt]
    bare = r.Undone(to, steps, inside, tuple(kept), by=by)
    left = what_is_left(events, bare)
    then, now = view_of(left).state, view_of(events).state
    changed = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
    state = [Back(key, then.get(key, b"")) for key in changed]
    asked = {seq for seq in _open(events) if seq > to} - _open(left)
    undone: r.Undone = msgspec.structs.replace(bare, state=tuple(state), closes=tuple(sorted(asked)))
    return undone


def open_chapters(events: Sequence[r.Event]) -> Ledger:
    """The ledger of the first chapter of a run that went back, with the others behind it."""
    found = chapters(events)
    ledgers = [Ledger(chapter.events) for chapter in found]
    for (chapter, ledger), after, next_ledger in zip(
        zip(found, ledgers, strict=True), found[1:], ledgers[1:], strict=False
    ):
        ledger.latest_start = max(ledger.latest_start, after.began - 1)  # the code went past what came before
        ledger.share(ledgers[-1])
        ledger.after = _settled(chapter.events, after, next_ledger)
    for event in events:
        if isinstance(event.record, r.Forked):
            for ledger in ledgers:
                ledger.override(event.record)
    return ledgers[0]


def _turn(before: Sequence[r.Event], chapter: Chapter, old: Ledger) -> Turn:
    ledger = Ledger(chapter.events)
    ledger.share(old)
    if old.forked is not None:
        ledger.override(old.forked)
    return _settled(before, chapter, ledger)


def _settled(before: Sequence[r.Event], chapter: Chapter, ledger: Ledger) -> Turn:
    """What was there before is consumed: the code has gone past it. Effects that were kept may be asked for again."""
    undone = chapter.undone
    assert undone is not None
    for calls in ledger.calls.values():
        for one in calls:
            if one.seq <= undone.to:
                one.consumed = one.credited = True
                one.writes = ()
            elif one.seq in undone.kept:
                one.credited, one.writes = True, ()  # they are in the view: what an effect wrote stays with it
    for waits in ledger.waits.values():
        for waited in waits:
            waited.asked = waited.asked or waited.seq <= undone.to
    return Turn(undone, view_of(chapter.events[: chapter.before]), ledger, tuple(before))


def _events(run: RunCore) -> list[r.Event]:
    return events_of(run.store, run.head.stream, fork=run.ledger.forked is not None)


def _before(events: Sequence[r.Event], ledger: Ledger, begun: Begun) -> int:
    """The last entry before something that the code began, perhaps in an earlier opening of the run."""
    if not begun.loop:
        return begun.since
    inside = [one.since for (path, _, _), calls in ledger.calls.items() for one in calls if path.startswith(begun.loop)]
    items = [(event.seq - 1, event.record.scope) for event in events if isinstance(event.record, r.ItemDone)]
    done = [before for before, scope in items if scope.startswith(begun.loop)]
    return min([begun.since, *(since for since in inside if since), *done])


def _open(events: Iterable[r.Event]) -> set[int]:
    found: set[int] = set()
    for event in events:
        it = event.record
        if isinstance(it, r.QuestionAsked | r.WaitBegan):
            found.add(event.seq)
        elif isinstance(it, r.QuestionClosed | r.WaitEnded):
            found.discard(it.question if isinstance(it, r.QuestionClosed) else it.wait)
    return found


def told(before: Sequence[r.Event], undone: r.Undone) -> Undo:
    """What is said of it to who asked for it."""
    names = {event.seq: event.record.call.name for event in before if isinstance(event.record, r.EffectIntended)}
    return Undo(
        undone.steps,
        undone.to,
        tuple(names[seq] for seq in undone.kept),
        tuple(stays_after(before, undone.to, undone.kept)),
    )
