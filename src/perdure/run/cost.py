"""The cost of a run: what it has spent, its budgets, and what resuming has saved.

Spending and savings are journal entries. They are committed with the next entry of the run where possible.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from perdure import records as r
from perdure.errors import BudgetExceeded
from perdure.kernel.protocol import Protocol
from perdure.platform.failpoints import Site
from perdure.run.ledger import Ledger, RecordedCall
from perdure.run.prices import NANOS

if TYPE_CHECKING:
    from perdure.run.core import RunCore


class RunBudget:
    """The budget of a run and the runs inside it, and what they have spent."""

    def __init__(self, run_id: str, nanos: int, spent: int, unpriced: Iterable[str]) -> None:
        self._id = run_id
        self._nanos = nanos
        self._spent = spent
        self._unpriced = set(unpriced)
        """Models with a call of unknown cost."""
        self._lock = threading.Lock()

    def spend(self, usage: r.ModelUsage) -> None:
        """Add the cost of a call."""
        with self._lock:
            self._spent += usage.cost
            if usage.unpriced:
                self._unpriced.add(usage.model)

    def check_budget(self) -> None:
        """Raise if the budget is spent, or cannot be enforced because a cost is unknown."""
        if self._spent >= self._nanos:
            spent, all_of_it = f"${self._spent / NANOS:.4f}", f"${self._nanos / NANOS:.4f}"
            raise BudgetExceeded(f"run {self._id!r} has spent {spent} of its budget of {all_of_it}")
        if self._unpriced:
            models = ", ".join(map(repr, sorted(self._unpriced)))
            raise BudgetExceeded(
                f"the cost of calls to {models} is unknown, so the budget of run {self._id!r} cannot be enforced",
                hint="pass run.usage(cost_usd=...), 0 for a free model, or install the prices with "
                "`pip install perdure[cost]`; without budget_usd= the run continues",
            )


_NO_MODEL = r.ModelUsage("", calls=0)
"""The usage of steps that called no model."""

FinishedWork = tuple[int, int, Sequence[r.ModelUsage]]
"""Steps, microseconds and model calls."""


def work_of(events: Sequence[r.JournalEntry]) -> list[FinishedWork]:
    """Return what a finished run has done. One without calls counts as one step."""
    calls = [event.record for event in events if isinstance(event.record, r.StepDone | r.EffectDone)]
    found: list[FinishedWork] = [(1, call.took_us, call.usage) for call in calls]
    if not calls and events:
        found.append((1, (events[-1].at - events[0].at) * 1000, ()))
    others = [event.record for event in events if isinstance(event.record, r.ItemDone | r.Wrote)]
    return [*found, *((0, 0, other.usage) for other in others if other.usage)]


class RunAccount:
    """The costs and savings of an open run."""

    def __init__(self, ledger: Ledger, stream: int, *, credits: bool) -> None:
        self.stream = stream
        self.budgets: tuple[RunBudget, ...] = ()
        """Its own budget, and those of the enclosing runs."""
        self._ledger = ledger
        self._credits = credits
        """Whether replaying recorded calls saves anything: not in the first opening, nor in a finished run."""
        self.outer: RunAccount | None = None
        """The account of the enclosing run, if this run is a finished part of it: there it saves something."""
        self.worked: set[int] = set()
        """The streams of child runs that did new work in this opening. Reading them again saves nothing."""
        self._parts: set[tuple[int, int]] = set()
        """The calls of finished child runs that are credited, by stream and entry."""
        self._lock = threading.Lock()
        self._saved: dict[str, r.SavedWork] = {}
        """What was saved with calls of models, by provider and model."""
        self._plain = (0, 0)
        """Steps and microseconds that were saved without one."""
        self._lost: list[r.ModelUsage] = []
        self._differed: list[r.ReplayDiffered] = []

    def switch_ledger(self, ledger: Ledger) -> None:
        """Use the ledger of the next chapter, after an undo."""
        self._ledger = ledger

    # -- what resuming saves ------------------------------------------------------------------------------------

    def credit(self, recorded: RecordedCall) -> None:
        """Credit a call that an earlier opening has done and the code has reached."""
        account = self if self._credits else self._creditor()
        if account is None:
            return
        with account._lock:  # two threads may ask for the same call by its id
            if not recorded.credited and (account is self or account._counts(self, recorded)):
                recorded.credited = True
                account._save(1, recorded.took_us, recorded.usage)

    def _creditor(self) -> RunAccount | None:
        account: RunAccount | None = self
        while account is not None and not account._credits:
            account = account.outer
        return account

    def _counts(self, of: RunAccount, recorded: RecordedCall) -> bool:
        """Whether a call is not credited yet. A finished child is read anew whenever the code opens it."""
        if of is self:
            return True
        part = (of.stream, recorded.seq)
        known = part in self._parts
        self._parts.add(part)
        return not known

    def credit_work(self, work: Iterable[FinishedWork]) -> None:
        """Credit work of finished runs that the code does not even open again."""
        with self._lock:
            for one in work:
                self._save(*one)

    def credit_other(self, recorded: RecordedCall) -> None:
        """Credit a call of a finished run that is part of the work here."""
        with self._lock:
            self._save(1, recorded.took_us, recorded.usage)

    def credit_item(self, item: str) -> None:
        """Credit the steps of a done item, which the code skips."""
        account = self._creditor()
        if account is None:
            return
        for recorded in self._ledger.list_done_within(item):
            self.credit(recorded)
        with account._lock:
            for usage in self._ledger.item_usage.pop(item, ()):
                account._save(0, 0, usage)

    def credit_whole(self) -> None:
        """Credit a finished run whose code is not executed again: the run around it reads only its result."""
        for recorded in [one for calls in self._ledger.calls.values() for one in calls if one.done]:
            self.credit(recorded)

    def _save(self, steps: int, took_us: int, usage: Sequence[r.ModelUsage]) -> None:
        """Add savings. The time of a step counts for the first model that it called."""
        if not usage:  # most steps; summed up when they are taken
            self._plain = (self._plain[0] + steps, self._plain[1] + took_us)
        for one in usage:
            key = f"{one.provider}/{one.model}"
            before = self._saved.get(key) or r.SavedWork(0, 0, r.ModelUsage(one.model, one.provider, calls=0))
            self._saved[key] = r.SavedWork(before.steps + steps, before.took_us + took_us, before.usage + one)
            steps = took_us = 0

    @property
    def owes_credit(self) -> bool:
        """Whether there are savings that are not recorded yet."""
        return self._plain[0] > 0 or bool(self._saved)

    # -- entries for the journal -----------------------------------------------------------------------------------

    def record_lost(self, usage: Iterable[r.ModelUsage]) -> None:
        """Add the cost of work that does not land. The next entry, which usually says why, carries it."""
        with self._lock:
            self._lost += usage

    def note(self, difference: r.ReplayDiffered) -> None:
        """Record a difference between what the code reports and what is recorded, with the next entry."""
        with self._lock:
            self._differed.append(difference)

    @property
    def has_notes(self) -> bool:
        """Whether `take` would return anything."""
        return self._plain[0] > 0 or bool(self._saved or self._lost or self._differed)

    def take(self) -> Sequence[r.Record]:
        """Return the entries to commit with the next ones."""
        if not self.has_notes:
            return ()
        with self._lock:
            saved, lost, differed = tuple(self._saved.values()), tuple(self._lost), self._differed
            if self._plain != (0, 0):
                saved = (r.SavedWork(*self._plain, _NO_MODEL), *saved)
            self._saved, self._lost, self._differed, self._plain = {}, [], [], (0, 0)
        return [*([r.Replayed(saved)] if saved else ()), *([r.Spent(lost)] if lost else ()), *differed]

    def return_entries(self, entries: Sequence[r.Record]) -> None:
        """Keep entries that could not be written."""
        with self._lock:
            for entry in entries:
                if isinstance(entry, r.Spent):
                    self._lost += entry.usage
                elif isinstance(entry, r.ReplayDiffered):
                    self._differed.append(entry)
                elif isinstance(entry, r.Replayed):
                    for saved in entry.saved:
                        self._save(saved.steps, saved.took_us, (saved.usage,) if saved.usage != _NO_MODEL else ())


def write_credit(run: RunCore) -> Protocol[None]:
    """Record savings before new work starts: the process may die in it."""
    if run.account.owes_credit:
        yield from run.commit(Site.CREDIT)


def check_budgets(run: RunCore) -> None:
    """Raise if this run or an enclosing one has used up its budget."""
    for budget in run.account.budgets:
        budget.check_budget()
