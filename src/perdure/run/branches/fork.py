"""Forks: runs that share the beginning of another run by reference and continue on their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import records as r
from perdure.errors import PointNotFound, RunCompacted, RunExists, RunNotFound
from perdure.journal import objects
from perdure.journal.append import Append, StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.lineage import events_of, lineage
from perdure.kernel.protocol import Protocol, Read, Submit
from perdure.platform.failpoints import Site
from perdure.records.forks import OpenQuestion, ResultOverride
from perdure.run.branches.past import find_open_questions
from perdure.run.branches.points import RunPoint, find_overrides, find_point
from perdure.run.history import Stays, effective, list_remaining_effects
from perdure.run.listing import require_run
from perdure.store.base import Overtaken, Script, Statement, UnitOfWork
from perdure.store.rows import RunRow
from perdure.values import codec
from perdure.values.limits import FORK_DEPTH_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

NO_INPUT: Any = object()
FORKS_TRIED_MAX = 10_000


class Fork(msgspec.Struct, frozen=True):
    """A forked run. Open it with `agent.run(fork.id)`."""

    id: str
    origin: str
    at: int
    """The last shared entry."""
    overridden: tuple[int, ...] = ()
    """Entries whose steps have another result in the fork."""
    adopted: tuple[str, ...] = ()
    """Effects in progress at the fork whose outcome the origin knows. The fork adopts it and does not repeat them."""
    in_doubt: tuple[str, ...] = ()
    """Effects in progress at the fork whose outcome is unknown."""
    stays: tuple[Stays, ...] = ()
    """What the origin did to the world and to its agent after the fork point. It is not undone."""

    def __repr__(self) -> str:
        more = [
            f"{len(found)} {word}"
            for found, word in (
                (self.overridden, "overridden"),
                (self.adopted, "adopted"),
                (self.in_doubt, "in doubt"),
                (self.stays, "not undone"),
            )
            if found
        ]
        return f"<Fork {self.id!r} of {self.origin!r} at entry {self.at}{''.join(f', {one}' for one in more)}>"


def fork(
    engine: Engine,
    run_id: str,
    *,
    at: RunPoint | None,
    to: str | None,
    override: Mapping[RunPoint, Any] | None,
    given: Any,
) -> Protocol[Fork]:
    """Create a run that shares the beginning of another one. Open it like any other run."""
    plan = yield Read(_plan, (engine, run_id, at, override or {}, given))
    unit = _CreateFork(engine, run_id, to, plan)
    made: str = yield Submit(unit)
    told: Fork = msgspec.structs.replace(plan.told, id=made)
    return told


class _ForkPlan(msgspec.Struct, frozen=True):
    """A fork to be created."""

    owner: int
    """The stream with the last shared entry."""
    cut: int
    input: bytes
    digest: bytes
    overrides: tuple[ResultOverride, ...]
    questions: tuple[OpenQuestion, ...]
    outcomes: tuple[r.Record, ...]
    """Outcomes of effects in progress. They become the first entries of the fork."""
    objects: tuple[Statement, ...]
    told: Fork


def _plan(engine: Engine, run_id: str, at: RunPoint | None, override: Mapping[RunPoint, Any], given: Any) -> _ForkPlan:
    store = engine.store
    run = require_run(store, engine.name, run_id)
    stream, digest, is_fork = run.stream, run.input_digest, run.is_fork
    if store.read("last_compaction", (stream,)):
        raise RunCompacted(f"run {run_id!r} was compacted: its entries are in an archive, so a fork cannot share them")
    events = events_of(store, stream, fork=is_fork)
    cut = _find_last_shared(events, at, override)
    kept = effective([event for event in events if event.seq <= cut])
    parts = lineage(store, stream) if is_fork else []
    owner, inherited = _locate_shared(stream, parts, cut)
    if len(parts) >= FORK_DEPTH_MAX:
        raise PointNotFound(f"run {run_id!r} is already {FORK_DEPTH_MAX} forks deep")
    packed, made = b"", list[Statement]()
    if given is not NO_INPUT:
        digest = codec.digest(given, "input")
        packed, more = objects.pack(store, given, "input")
        made += more
    elif inherited:
        packed, digest = _input_of(inherited, digest)
    results: dict[int, bytes] = {one.seq: one.result for part in inherited for one in part.overrides if one.seq <= cut}
    chosen = find_overrides(kept, override)
    for seq, value in chosen.items():
        results[seq], more = objects.pack(store, value, f"override of entry {seq}")
        made += more
    begun = _find_open_intents(kept)
    outcomes = _outcomes(events, cut, begun)
    told = Fork(
        "",
        run_id,
        cut,
        tuple(sorted(chosen)),
        tuple(begun[one.intent].call.name for one in outcomes),
        tuple(record.call.name for seq, record in begun.items() if seq not in {one.intent for one in outcomes}),
        tuple(list_remaining_effects(events, cut, begun)),
    )
    overrides = tuple(ResultOverride(seq, result) for seq, result in sorted(results.items()))
    return _ForkPlan(
        owner, cut, packed, digest, overrides, find_open_questions(kept), tuple(outcomes), tuple(made), told
    )


def _find_last_shared(events: Sequence[r.JournalEntry], at: RunPoint | None, override: Mapping[RunPoint, Any]) -> int:
    """Return the last shared entry: as requested, else the last overridden one, else the last of the run."""
    if at is not None:
        return find_point(events, at)
    return max(find_overrides(events, override), default=events[-1].seq)


def _locate_shared(stream: int, parts: Sequence[r.Forked], cut: int) -> tuple[int, list[r.Forked]]:
    """Return the stream that holds an entry, and the forks in between, whose overrides apply to the shared part."""
    passed: list[r.Forked] = []
    for part in reversed(parts):
        if cut > part.cut:
            break
        stream = part.origin
        passed.insert(0, part)
    return stream, passed


def _input_of(inherited: Sequence[r.Forked], digest: bytes) -> tuple[bytes, bytes]:
    given = [part for part in inherited if part.input]
    return (given[-1].input, given[-1].input_digest) if given else (b"", digest)


# -- effects in progress ----------------------------------------------------------------------------------------------

_EffectOutcome = r.EffectDone | r.EffectFailed


def _find_open_intents(events: Sequence[r.JournalEntry]) -> dict[int, r.EffectIntended]:
    """Return the effects without an outcome, by their intents."""
    begun: dict[int, r.EffectIntended] = {}
    known: dict[int, r.EffectIntended] = {}
    for event in events:
        record = event.record
        if isinstance(record, r.EffectIntended):
            begun[event.seq] = known[event.seq] = record
        elif isinstance(record, r.EffectAgain):
            begun[record.intent] = known[record.intent]
        elif isinstance(record, _EffectOutcome):
            begun.pop(record.intent, None)
    return begun


def _outcomes(
    events: Sequence[r.JournalEntry], cut: int, begun: Mapping[int, r.EffectIntended]
) -> list[_EffectOutcome]:
    """Return later outcomes of effects in progress, so that the fork does not repeat them.

    Their agent writes, events and usage stay with the origin and are counted once.
    """
    later: dict[int, _EffectOutcome] = {}
    for event in events:
        record = event.record
        if event.seq <= cut:
            continue
        if isinstance(record, r.EffectAgain):
            later.pop(record.intent, None)
        elif isinstance(record, r.EffectFailed) and record.intent in begun:
            later[record.intent] = record
        elif isinstance(record, r.EffectDone) and record.intent in begun:
            own = tuple(write for write in record.writes if write.op != r.WriteOp.EVENT)
            later[record.intent] = msgspec.structs.replace(record, writes=own, landed=(), usage=())
    return list(later.values())


# -- creation ---------------------------------------------------------------------------------------------------------


class _CreateFork(UnitOfWork[str]):
    """Creates the stream of a fork and its first entries in one commit. Returns the id of the fork."""

    site = Site.FORK

    def __init__(self, engine: Engine, of: str, to: str | None, plan: _ForkPlan) -> None:
        self._engine = engine
        self._of = of
        self._to = to
        self._plan = plan
        self._tried: set[int] = set()
        """Streams requested by earlier attempts whose answer was lost."""

    def script(self) -> Script[str]:
        engine, plan = self._engine, self._plan
        # Hold the lease first: a concurrent compaction of the origin is then either visible or waits for this commit.
        [leases] = yield [Statement("hold_lease", (plan.owner,))]
        [links, compaction] = yield [
            Statement("chain_at", (plan.owner, plan.cut)),
            Statement("last_compaction", (plan.owner,)),
        ]
        if not links or compaction or not leases:
            raise RunCompacted(f"run {self._of!r} was just compacted: its entries are in an archive")
        run_id = yield from self._choose_free_id()
        name = f"{engine.name}/{run_id}"
        add = Statement("add_stream", ("run", name, engine.store.clock.wall_ms()))
        [[(stream,)], gone] = yield [add, departure(engine.name)]
        refuse_departed(engine.name, gone)
        self._tried.add(int(stream))
        [(fence,)], [(link,)] = leases, links
        yield from self._fill(int(stream), run_id, int(fence), link)
        return run_id

    def _fill(self, stream: int, run_id: str, fence: int, link: bytes) -> Script[int]:
        engine, plan = self._engine, self._plan
        forked = r.Forked(
            engine.name,
            run_id,
            plan.owner,
            self._of,
            plan.cut,
            link,
            fence,
            plan.input,
            plan.digest,
            plan.overrides,
            plan.questions,
        )
        head = StreamHead(engine.store.identity, stream, fence, plan.cut)
        first = [Statement("add_fork_lease", (stream, fence)), *plan.objects]
        signer, clock = engine.signer, engine.store.clock
        records = [forked, *plan.outcomes]
        return (yield from Append(self.site, head, records, clock, objects=first, signer=signer, seal=True).script())

    def _choose_free_id(self) -> Script[str]:
        for number in range(1, FORKS_TRIED_MAX):
            wanted = self._to or f"{self._of}-fork" + (f"-{number}" if number > 1 else "")
            [rows] = yield [Statement("get_run", (self._engine.name, wanted))]
            if not rows:
                return wanted
            if RunRow(*rows[0]).stream in self._tried:
                raise Overtaken  # an earlier attempt of this call arrived only now
            if self._to is not None:
                hint = "choose another id with to=, or omit to= to generate one"
                raise RunExists(f"agent {self._engine.name!r} already has a run {wanted!r}", hint=hint)
        raise RunNotFound(f"run {self._of!r} has {FORKS_TRIED_MAX} forks: name this one with to=")
