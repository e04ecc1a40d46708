"""`run.undo(n)`: take back the last steps of a run, and restore its state and messages from before them.

Undo is an entry of the run. A replay executes the undone steps, reaches the same `undo` call, and from there matches
the ledger of the next chapter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perdure import records as r
from perdure.errors import PointNotFound, WrongValue
from perdure.journal.lineage import events_of
from perdure.kernel.protocol import Protocol, Read
from perdure.kernel.scope import BegunCall, frame_of
from perdure.platform.failpoints import Site
from perdure.records.forks import StateReset
from perdure.run.core import RunCore
from perdure.run.data_view import view_of
from perdure.run.history import HistorySegment, Stays, chapters, drop_undone, list_remaining_effects
from perdure.run.ledger import Ledger, UndoPoint

EFFECTS = ("keep", "again")


class Undo(msgspec.Struct, frozen=True):
    """The result of an undo."""

    steps: int
    to: int
    """The run's data is as it was right after this entry."""
    kept: tuple[str, ...] = ()
    """Effects that stay recorded: a repeated call returns their result and does not execute them."""
    stays: tuple[Stays, ...] = ()
    """Other actions since then on the world and the agent. They are not reverted."""

    def __repr__(self) -> str:
        kept = f", kept {', '.join(self.kept)}" if self.kept else ""
        return f"<Undo of {self.steps} steps, back to entry {self.to}{kept}, {len(self.stays)} not taken back>"


def undo(run: RunCore, steps: int, effects: str) -> Protocol[Undo]:
    """Undo the last steps, effects and loops of the run itself."""
    check_steps(steps, effects)
    frame = frame_of(run)
    if frame is not run.root:
        raise RuntimeError("call run.undo() in the run itself, not in a step, an effect or an item of a loop")
    turn = run.ledger.after
    if turn is not None:
        run.root.rewind_counts(turn.undone.steps)
        run.rewind(turn)
        return undo_report(turn.before, turn.undone)
    run.check_open()
    events: list[r.JournalEntry] = yield Read(_events, (run,))
    now = chapters(events)[-1]
    begun = run.root.last_begun_calls(steps)
    if len(begun) < steps:
        raise PointNotFound(f"run {run.id!r} has done {len(begun)} steps, so {steps} cannot be undone")
    to = min(_find_entry_before(now.events, run.ledger, one) for one in begun)
    undone = plan(now.events, to, steps, effects, inside=True)
    seq = yield from run.commit(Site.UNDO, undone)
    before = list(now.events)
    left = drop_undone(before, undone)
    run.root.rewind_counts(steps)
    run.rewind(_turn(before, HistorySegment(seq, undone, len(left), left), run.ledger))
    return undo_report(before, undone)


def check_steps(steps: object, effects: str) -> None:
    """Validate the arguments of an undo."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise WrongValue(f"undo({steps!r}): the number of steps must be an int of at least 1")
    if effects not in EFFECTS:
        raise WrongValue(f'effects={effects!r}: must be "keep" or "again"')


def plan(
    events: Sequence[r.JournalEntry], to: int, steps: int, effects: str, *, inside: bool, by: str = ""
) -> r.Undone:
    """Return the entry of an undo. Effects in doubt are always kept."""
    ledger = Ledger(events)
    later = [seq for seq in ledger.by_intent if seq > to]
    kept = [seq for seq in later if effects == "keep" or ledger.by_intent[seq].in_doubt]
    bare = r.Undone(to, steps, inside, tuple(kept), by=by)
    left = drop_undone(events, bare)
    then, now = view_of(left).state, view_of(events).state
    changed = [key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)]
    state = [StateReset(key, then.get(key, b"")) for key in changed]
    asked = {seq for seq in _find_open_intents(events) if seq > to} - _find_open_intents(left)
    undone: r.Undone = msgspec.structs.replace(bare, state=tuple(state), closes=tuple(sorted(asked)))
    return undone


def build_chapters(events: Sequence[r.JournalEntry]) -> Ledger:
    """Return the ledger of the first chapter of a run with undos. It leads to the later ones."""
    found = chapters(events)
    ledgers = [Ledger(chapter.events) for chapter in found]
    for (chapter, ledger), after, next_ledger in zip(
        zip(found, ledgers, strict=True), found[1:], ledgers[1:], strict=False
    ):
        ledger.latest_start = max(ledger.latest_start, after.began - 1)  # the code has passed all of it
        ledger.share(ledgers[-1])
        ledger.after = _settle_chapter(chapter.events, after, next_ledger)
    for event in events:
        if isinstance(event.record, r.Forked):
            for ledger in ledgers:
                ledger.override(event.record)
    return ledgers[0]


def _turn(before: Sequence[r.JournalEntry], chapter: HistorySegment, old: Ledger) -> UndoPoint:
    ledger = Ledger(chapter.events)
    ledger.share(old)
    if old.forked is not None:
        ledger.override(old.forked)
    return _settle_chapter(before, chapter, ledger)


def _settle_chapter(before: Sequence[r.JournalEntry], chapter: HistorySegment, ledger: Ledger) -> UndoPoint:
    """Mark entries before the undo as consumed, because the code has passed them. Kept effects can be matched again."""
    undone = chapter.undone
    assert undone is not None
    for calls in ledger.calls.values():
        for one in calls:
            if one.seq <= undone.to:
                one.consumed = one.credited = True
                one.writes = ()
            elif one.seq in undone.kept:
                one.credited, one.writes = True, ()  # their writes stay in the view
    for waits in ledger.waits.values():
        for waited in waits:
            waited.asked = waited.asked or waited.seq <= undone.to
    return UndoPoint(undone, view_of(chapter.events[: chapter.before]), ledger, tuple(before))


def _events(run: RunCore) -> list[r.JournalEntry]:
    return events_of(run.store, run.head.stream, fork=run.ledger.forked is not None)


def _find_entry_before(events: Sequence[r.JournalEntry], ledger: Ledger, begun: BegunCall) -> int:
    """Return the last entry before something that the code began, perhaps in an earlier opening."""
    if not begun.loop:
        return begun.since
    inside = [one.since for (path, _, _), calls in ledger.calls.items() for one in calls if path.startswith(begun.loop)]
    items = [(event.seq - 1, event.record.scope) for event in events if isinstance(event.record, r.ItemDone)]
    done = [before for before, scope in items if scope.startswith(begun.loop)]
    return min([begun.since, *(since for since in inside if since), *done])


def _find_open_intents(events: Iterable[r.JournalEntry]) -> set[int]:
    found: set[int] = set()
    for event in events:
        record = event.record
        if isinstance(record, r.QuestionAsked | r.WaitBegan):
            found.add(event.seq)
        elif isinstance(record, r.QuestionClosed | r.WaitEnded):
            found.discard(record.question if isinstance(record, r.QuestionClosed) else record.wait)
    return found


def undo_report(before: Sequence[r.JournalEntry], undone: r.Undone) -> Undo:
    """Return the result of an undo for its caller."""
    names = {event.seq: event.record.call.name for event in before if isinstance(event.record, r.EffectIntended)}
    return Undo(
        undone.steps,
        undone.to,
        tuple(names[seq] for seq in undone.kept),
        tuple(list_remaining_effects(before, undone.to, undone.kept)),
    )
