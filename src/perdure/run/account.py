"""The money of a run: what it has spent, what it may spend, and what resuming has saved.

Both are facts of the journal, and neither costs a commit of its own where another one is about to be made: what is
still to be written down goes along with the next entry of the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .. import records as r
from ..errors import BudgetExceeded
from ..failpoints import Site
from ..prices import NANOS
from .ledger import Ledger, Recorded
from .requests import Protocol

if TYPE_CHECKING:
    from .core import RunCore


class Budget:
    """What a run and the runs inside it may spend, and how much of it they have."""

    def __init__(self, run_id: str, nanos: int, spent: int, unpriced: Iterable[str]) -> None:
        self._id = run_id
        self._nanos = nanos
        self._spent = spent
        self._unpriced = set(unpriced)
        """Models, one of whose calls has no known cost."""
        self._lock = threading.Lock()

    def spend(self, usage: r.Usage) -> None:
        """A call has been paid for."""
        with self._lock:
            self._spent += usage.cost
            if usage.unpriced:
                self._unpriced.add(usage.model)

    def must_afford(self) -> None:
        """Nothing new begins when it is spent, or cannot be kept."""
        if self._spent >= self._nanos:
            spent, all_of_it = f"${self._spent / NANOS:.4f}", f"${self._nanos / NANOS:.4f}"
            raise BudgetExceeded(f"run {self._id!r} has spent {spent} of its budget of {all_of_it}")
        if self._unpriced:
            models = ", ".join(map(repr, sorted(self._unpriced)))
            raise BudgetExceeded(
                f"nobody knows what calls of {models} cost, so the budget of run {self._id!r} cannot be kept",
                hint="say it with run.usage(cost_usd=...), 0 for a free model, or `pip install perdure[cost]` for the "
                "prices; the run goes on without budget_usd=",
            )


class Account:
    """What a run that is open here has to do with money."""

    def __init__(self, ledger: Ledger, *, credits: bool) -> None:
        self.budgets: tuple[Budget, ...] = ()
        """Its own, and those of the runs that it is part of."""
        self._ledger = ledger
        self._credits = credits
        """Whether going past something recorded saves anything: not in the first opening, nor in a finished run."""
        self._lock = threading.Lock()
        self._saved: dict[str, r.Saved] = {}
        self._lost: list[r.Usage] = []

    def follow(self, ledger: Ledger) -> None:
        """The run has gone back, and goes on with another one."""
        self._ledger = ledger

    # -- what resuming saves ------------------------------------------------------------------------------------

    def credit(self, recorded: Recorded) -> None:
        """The code has asked for a call that an earlier opening of the run has done."""
        if self._credits:
            with self._lock:  # two threads may ask for the same call by its id
                if not recorded.credited:
                    recorded.credited = True
                    self._save(1, recorded.took_us, recorded.usage)

    def credit_other(self, recorded: Recorded) -> None:
        """The same of a call in a finished run, which is part of the work that goes on here."""
        with self._lock:
            self._save(1, recorded.took_us, recorded.usage)

    def credit_item(self, item: str) -> None:
        """The code has come to an item that is done: its steps are not even asked for."""
        if not self._credits:
            return
        for recorded in self._ledger.done_within(item):
            self.credit(recorded)
        with self._lock:
            for usage in self._ledger.item_usage.pop(item, ()):
                self._save(0, 0, usage)

    def _save(self, steps: int, took_us: int, usage: Sequence[r.Usage]) -> None:
        """A step's time belongs to the first model that it has called."""
        for one in usage or (r.Usage("", calls=0),):
            key = f"{one.provider}/{one.model}"
            before = self._saved.get(key) or r.Saved(0, 0, r.Usage(one.model, one.provider, calls=0))
            self._saved[key] = r.Saved(before.steps + steps, before.took_us + took_us, before.usage + one)
            steps = took_us = 0

    @property
    def owes_credit(self) -> bool:
        """Whether something was saved that is not written down yet."""
        return bool(self._saved)

    # -- what is written down -----------------------------------------------------------------------------------

    def lose(self, usage: Iterable[r.Usage]) -> None:
        """Money was spent on something that does not land. The next entry, which mostly says why, brings it along."""
        with self._lock:
            self._lost += usage

    def take(self) -> Sequence[r.Record]:
        """The entries that are to go along with the next ones."""
        if not self._saved and not self._lost:
            return ()
        with self._lock:
            saved, lost = tuple(self._saved.values()), tuple(self._lost)
            self._saved, self._lost = {}, []
        return [*([r.Replayed(saved)] if saved else ()), *([r.Spent(lost)] if lost else ())]

    def put_back(self, entries: Sequence[r.Record]) -> None:
        """They could not be written."""
        with self._lock:
            for entry in entries:
                if isinstance(entry, r.Spent):
                    self._lost += entry.usage
                elif isinstance(entry, r.Replayed):
                    for saved in entry.saved:
                        self._save(saved.steps, saved.took_us, (saved.usage,))


def write_credit(run: RunCore) -> Protocol[None]:
    """New work begins: what was saved up to here is kept first, for the work may not survive."""
    if run.account.owes_credit:
        yield from run.commit(Site.CREDIT)


def must_afford(run: RunCore) -> None:
    """Neither this run nor one that it is part of has used up its budget."""
    for budget in run.account.budgets:
        budget.must_afford()
