"""Faults put into Perdure on purpose: each must be found out within a few thousand histories, else the rules are blind.

Some break the server's statements (`statements.py` looks at the name), the others replace a method of the client.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.journal.leases import LEASE_MS, LeaseKeeper
from perdure.kernel.protocol import Submit
from perdure.run.core import RunCore
from tests.simulation.unblocking import PostgresCommit
from tests.simulation.world import Steps


class Sabotage(msgspec.Struct, frozen=True):
    """What is wrong, and which methods are replaced by which."""

    breaks: str
    finds: str
    """A piece of the sentence that one of the rules must say."""
    patches: tuple[tuple[type, str, Any], ...] = ()


def _deadline_from_after_the_commit(self: LeaseKeeper, now: int) -> int:
    if self.has_expired():
        self.require_confirmation()
    self._deadline = self._store.clock.boot_ms() + LEASE_MS
    return self.lapses


def _lapse_forgotten(self: LeaseKeeper, now: int) -> int:
    self._deadline = now + LEASE_MS
    return self.lapses


def _expire_by_wall_clock(self: LeaseKeeper) -> bool:
    return self._store.clock.wall_ms() >= int(self.__dict__.get("_wall_deadline", 0))


def _extend_by_wall_clock(self: LeaseKeeper, now: int) -> int:
    if self.has_expired():
        self.require_confirmation()
    sent = self._store.clock.wall_ms() - (self._store.clock.boot_ms() - now)
    self.__dict__["_wall_deadline"] = sent + LEASE_MS
    return self.lapses


def _skip_lookup(self: RunCore) -> Steps:
    return
    yield


def _look_up_once(self: RunCore) -> Steps:
    lease_keeper = self.engine.lease_keeper
    if lease_keeper.has_expired() or self.lapses != lease_keeper.lapses:
        renewal = lease_keeper.renewal(self.head.stream, self.head.fence)
        yield Submit(renewal)
        self.lapses = renewal.lapses


def _resend_blindly(self: Any, link: Any) -> Steps:
    """What was sent once is sent again, wherever the stream ends by now."""
    head = getattr(self._unit, "head", None)
    if head is not None:
        query = self._doubtful[0].proof.query
        answers = yield from link.send_batch([msgspec.structs.replace(query, name="head_of", args=(head.stream,))], 1e9)
        [(head.seq, head.chain)] = answers[0].rows
    return False


def _silence_is_consent(self: Any, link: Any) -> Steps:
    return self._doubtful[0].proof is not None
    yield


SABOTAGES = {
    "no-fence": Sabotage("an old holder goes on writing", "after"),
    "callers-clock": Sabotage("a lease is written and judged by the clocks of its users", "taken the run over"),
    "no-waiting": Sabotage("a lease is taken before it has run out", "taken the run over"),
    "deadline-from-after-the-commit": Sabotage(
        "a process believes in its lease for longer than the server does",
        "taken the run over",
        ((LeaseKeeper, "extend", _deadline_from_after_the_commit),),
    ),
    "wall-clock": Sabotage(
        "a process counts its lease by a clock that people set",
        "taken the run over",
        ((LeaseKeeper, "has_expired", _expire_by_wall_clock), (LeaseKeeper, "extend", _extend_by_wall_clock)),
    ),
    "lapse-forgotten": Sabotage(
        "a renewal hides that the lease had run out", "taken the run over", ((LeaseKeeper, "extend", _lapse_forgotten),)
    ),
    "no-last-look": Sabotage(
        "an effect begins on old rights", "taken the run over", ((RunCore, "check_lease", _skip_lookup),)
    ),
    "one-look": Sabotage(
        "an answer is believed that is older than a lease", "has run out", ((RunCore, "check_lease", _look_up_once),)
    ),
    "append-without-its-key": Sabotage(
        "after a lost answer an entry is written again", "twice", ((PostgresCommit, "_has_landed", _resend_blindly),)
    ),
    "silence-is-consent": Sabotage(
        "a lost answer counts as a commit",
        "is not in the journal",
        ((PostgresCommit, "_has_landed", _silence_is_consent),),
    ),
}
