"""Checks the demo's claims against the journal and the files that its agent wrote."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from perdure import records as r
from perdure.journal.objects import unpack
from perdure.run.ledger import Ledger
from perdure.run.listing import get_run
from perdure.store import open_store

AGENT, RUN = "coder", "pull-request-482"
CALLS, KILLED_AT = 50, 47


class JournalSummary(msgspec.Struct, frozen=True):
    """The run as the store recorded it. Effects are identified by their idempotency keys."""

    status: str = ""
    done: int = 0
    """Calls with a recorded outcome."""
    effects: tuple[str, ...] = ()
    in_doubt: tuple[tuple[str, str], ...] = ()
    """Effects with an intent and no outcome, and what they publish."""
    begun_again: tuple[str, ...] = ()
    """Effects in doubt that ran because their check proved them absent."""
    adopted: tuple[str, ...] = ()
    """Effects in doubt that did not run because their check proved them done."""


class DemoProcess(msgspec.Struct, frozen=True):
    """One process of the agent."""

    number: int
    pid: int
    remembered: int
    exit_code: int
    executed: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    """The effects that had happened when the process ended."""
    journal: JournalSummary = JournalSummary()
    died_in: str | None = None

    @property
    def killed(self) -> bool:
        return self.exit_code == -signal.SIGKILL


def look(folder: Path, life: DemoProcess) -> DemoProcess:
    """Return an ended process with the calls, effects and journal that it left."""
    executed = tuple(task for pid, task in read_calls(folder) if pid == life.pid)
    outside, journal = read_outside(folder), read_journal(folder)
    died_in = next((what for _, what in journal.in_doubt), None)
    return msgspec.structs.replace(life, executed=executed, outside=outside, journal=journal, died_in=died_in)


def read_calls(folder: Path) -> list[tuple[int, str]]:
    """Return every execution of a tool: process and task."""
    lines = (folder / "calls.txt").read_text("utf-8").splitlines()
    return [(int(line.split(" ")[1]), line.split(" ", 2)[2]) for line in lines]


def read_outside(folder: Path) -> tuple[str, ...]:
    """Return the keys of all effects in the outside file."""
    return tuple(line.split(" ")[0] for line in (folder / "outside.txt").read_text("utf-8").splitlines())


def read_journal(folder: Path) -> JournalSummary:
    """Read the run from the store, as any other process may."""
    store = open_store(f"sqlite:///{folder / 'coder.db'}")
    try:
        run = get_run(store, AGENT, RUN)
        records = [event.record for event in run.events]
        keys = {event.seq: event.record.key for event in run.events if isinstance(event.record, r.EffectIntended)}
        effects = [record for record in records if isinstance(record, r.EffectDone)]
        return JournalSummary(
            status=run.status,
            done=sum(isinstance(record, r.StepDone | r.EffectDone) for record in records),
            effects=tuple(keys[effect.intent] for effect in effects),
            in_doubt=tuple(
                (claim.key, unpack(store, claim.arguments)["what"]) for claim in Ledger(run.events).list_in_doubt()
            ),
            begun_again=tuple(keys[record.intent] for record in records if isinstance(record, r.EffectAgain)),
            adopted=tuple(keys[effect.intent] for effect in effects if effect.how == "check"),
        )
    finally:
        store.close()


def count(folder: Path, lives: list[DemoProcess]) -> dict[str, dict[str, int]]:
    """Count what was done, what was done twice, and what restarts from zero would have repeated."""
    calls, outside = [task for _, task in read_calls(folder)], read_outside(folder)
    spared = [sum(len(life.executed) for life in lives[: death.number]) for death in lives if death.killed]
    return {
        "made": {"calls": len(calls), "effects": len(outside)},
        "repeated": {"calls": len(calls) - len(set(calls)), "effects": len(outside) - len(set(outside))},
        "spared": {"calls": sum(spared), "effects": sum(len(life.outside) for life in lives if life.killed)},
    }


def examine(folder: Path, lives: list[DemoProcess]) -> dict[str, bool]:
    """Return the claims, and whether each holds."""
    first, second, third = lives
    journal, outside, calls = read_journal(folder), read_outside(folder), [task for _, task in read_calls(folder)]
    pushed, deployed = (tuple(key for key, _ in life.journal.in_doubt) for life in (first, second))
    claims = {
        f"Process 1 died by SIGKILL in call {first.journal.done + 1}, {first.died_in!r}: intended, not happened.": (
            first.killed and first.journal.done == KILLED_AT - 1 and len(pushed) == 1 and pushed[0] not in first.outside
        ),
        f"Process 2 died by SIGKILL in call {second.journal.done + 1}, {second.died_in!r}: happened, not recorded.": (
            second.killed and len(deployed) == 1 and second.outside.count(deployed[0]) == 1
        ),
        f"The check found that {first.died_in!r} had not happened, so it ran, once.": (
            journal.begun_again == pushed and [outside.count(key) for key in pushed] == [1]
        ),
        f"The check found that {second.died_in!r} had happened, so it did not run again.": (
            journal.adopted == deployed and [outside.count(key) for key in deployed] == [1]
        ),
        f"The run is {journal.status}; {len(calls)} calls were executed, each once.": (
            journal.status == "finished" and len(calls) == CALLS == journal.done == len(set(calls))
        ),
        f"{len(outside)} effects are in the outside file, each once, all with their key in the journal.": (
            sorted(outside) == sorted(set(journal.effects))
        ),
    }
    for before, life in ((first, second), (second, third)):
        again = {task for past in lives[: before.number] for task in past.executed} & {*life.executed}
        text = f"Process {life.number} continued after {life.remembered} recorded calls and repeated"
        claims[f"{text} {len(again) or 'none'}."] = life.remembered == before.journal.done and not again
    return claims
