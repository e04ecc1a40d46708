"""One history: a server, hosts, processes, runs, and the faults that befall them, all out of one seed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from perdure.run.function import CallOptions
from perdure.values.limits import LEASE_SECONDS
from tests.simulation import seams
from tests.simulation.database import Database
from tests.simulation.fault_rates import WEATHERS
from tests.simulation.hosts import EPOCH_MS, Host, Process, is_booked
from tests.simulation.network import Fate, Session
from tests.simulation.rules import Rules
from tests.simulation.statements import Server
from tests.simulation.world import Steps, World

LEASE_MS = int(LEASE_SECONDS * 1000)
FAULTS_MS_MAX = 120_000
PATIENCE_MS = 400_000
"""After the last fault every run must have finished within this time."""

JUMP_MS_MAX = 500
DRIFT_MAX = 0.0002
CHECKED = CallOptions(check=is_booked, in_doubt="retry")
UNCHECKED = CallOptions(in_doubt="retry")


class Operation(msgspec.Struct, frozen=True):
    """A step or an effect of a run's program."""

    effect: bool
    options: CallOptions


class Result(msgspec.Struct, frozen=True):
    """What is left of a history."""

    seed: int
    violations: list[str]
    trace: list[str]
    digest: str
    """Of the journal, byte for byte."""
    seconds: float
    """Of virtual time."""
    bodies: int
    takeovers: int


class History:
    """Everything that exists in it."""

    def __init__(self, seed: int, *, broken: frozenset[str] = frozenset(), trace: bool = False) -> None:
        world = self.world = World(seed, trace=trace)
        self.seed = seed
        self.broken = broken
        self.database = Database()
        self.server = Server(self._server_ms, broken)
        self.faults_end = world.between(20_000, FAULTS_MS_MAX)
        self.outside: list[str] = []
        """The keys of what was done, in order."""
        self._server_offset = world.between(-600_000, 600_000)
        self._server_down_until = 0
        self._sessions: list[Session] = []
        self.weather = world.random.choice(WEATHERS)(world.random)
        self._pace = world.random.choice((500, 8000, 20_000))
        exact = world.chance(0.6)
        self._jumps = 0 if exact else world.between(0, 2)
        drift = 0.0 if exact else DRIFT_MAX
        count = world.between(1, 3)
        self.hosts = [Host(self, number, 1 + world.random.uniform(-drift, drift)) for number in range(1, count + 1)]
        allowance = self._jumps * JUMP_MS_MAX + int(drift * LEASE_MS) + (0 if exact else 2)
        self.rules = Rules(world, self.database, allowance)
        self.programs = {f"run{number}": self._program() for number in range(1, world.between(1, 2) + 1)}
        self.processes: list[Process] = []
        self._unfinished = 0
        for host in self.hosts:
            for _ in range(2 if world.chance(0.4) else 1):
                self._start(host)
        while self._unfinished < 2:
            self._start(self.hosts[0])
        for _ in range(world.between(0, self.weather.faults_max)):
            world.spawn(self._fault(), None, world.between(0, self.faults_end))

    def _program(self) -> tuple[Operation, ...]:
        world = self.world
        choices = (CHECKED, CHECKED, UNCHECKED)
        return tuple(
            Operation(effect=effect, options=world.random.choice(choices) if effect else CallOptions())
            for effect in (world.chance(0.7) for _ in range(world.between(2, 5)))
        )

    def play(self) -> Result:
        """From the beginning to the end."""
        with seams.install_seams(self):
            try:
                self.world.run(self.faults_end + PATIENCE_MS)
            except Exception as error:  # whatever it is: no fault of the world's may make Perdure raise that
                self.rules.broken(f"{type(error).__name__}: {error}")
            finally:
                for process in self.processes:
                    process.bury()
        self.rules.conclude(len(self.programs))
        events = sorted((key, row.value) for key, row in self.database.tables["journal"].items())
        return Result(
            seed=self.seed,
            violations=self.rules.violations,
            trace=self.world.lines or [],
            digest=sha256(repr((events, self.world.now, self.outside)).encode()).hexdigest(),
            seconds=self.world.now / 1000,
            bodies=len(self.outside),
            takeovers=self.rules.takeovers,
        )

    # -- the server ---------------------------------------------------------------------------------------------------

    def _server_ms(self) -> int:
        return EPOCH_MS + self.world.now + self._server_offset

    def server_is_down(self) -> bool:
        return self.world.now < self._server_down_until

    def connect(self, client: Process) -> Session:
        """The server's end of a new connection."""
        session = Session(self, client)
        self._sessions = [one for one in self._sessions if not one.closed] + [session]
        return session

    # -- chance -------------------------------------------------------------------------------------------------------

    @property
    def faulty(self) -> bool:
        return self.world.now < self.faults_end

    def latency(self) -> int:
        """Of one message that gets through."""
        world = self.world
        if self.faulty and world.chance(self.weather.slowness):
            return world.between(100, 12_000)
        return world.between(1, 8)

    def reply_ms(self, host: Host) -> int:
        """Of an answer: what cannot be delivered now is, as TCP does, when there is a network again."""
        return self.latency() + max(0, host.down_until - self.world.now)

    def statement_ms(self) -> int:
        """How long the server takes over one thing: a busy disk, a standby that has to confirm."""
        world = self.world
        if self.faulty and world.chance(self.weather.stalling):
            return world.between(10, 15_000)
        return world.between(0, 1)

    def fate_of_a_message(self, process: Process, batch: Sequence[Any] = ()) -> Fate:
        """What becomes of a message from this process and of its answer."""
        world, host = self.world, process.host
        heart = len(batch) == 1 and getattr(batch[0], "name", "") == "renew_holder"
        if heart and self.faulty and world.chance(self.weather.slow_hearts):
            return Fate(self.latency(), answer_ms=world.between(3000, 25_000))
        if host.down_until > world.now:
            if world.chance(0.5):
                return Fate(None, noticed=world.between(10, 20_000) if world.chance(0.5) else None)
            return Fate(host.down_until - world.now + self.latency())
        if (
            host is self.hosts[0] and self.faulty and world.chance(self.weather.flapping)
        ):  # this one gets through, and then nothing for a while
            host.down_until = world.now + world.between(8000, 45_000)
            return Fate(self.latency(), answered=world.chance(0.7))
        if not self.faulty or not world.chance(self.weather.loss):
            return Fate(self.latency())
        noticed = world.between(1, 30_000) if world.chance(0.8) else None
        kind = world.between(1, 3)
        if kind == 1:
            return Fate(None, noticed=noticed)
        if kind == 2:
            return Fate(world.between(100, 50_000), answered=False, noticed=noticed)
        return Fate(self.latency(), answered=False, noticed=noticed)

    def stumble(self) -> int:
        """For how long a process is stopped here; mostly 0."""
        return self._choose_lease_time() if self.faulty and self.world.chance(self.weather.stumbling) else 0

    def peril(self, process: Process) -> int:
        """An intent has just become durable: how late its caller is to go on, and what happens meanwhile."""
        world = self.world
        if not self.faulty or not world.chance(self.weather.peril):
            return 0
        length = self._choose_lease_time()
        kind = world.between(1, 4)
        if kind == 1:
            self._sleep(process, length)
        elif kind == 2:
            self._unplug(process)
        elif kind == 3:
            self._set_wall_clock(process)
            self._sleep(process, length)
        return length

    def _choose_lease_time(self) -> int:
        return self.world.between(100, 45_000)

    def body_ms(self) -> int:
        """A step, or half of an effect."""
        return self.world.between(1, self._pace)

    def fails(self) -> bool:
        """Whether a body fails at this place."""
        return self.faulty and self.world.chance(self.weather.failing)

    # -- processes and faults ------------------------------------------------------------------------------------------

    def _start(self, host: Host, delay: int = 0) -> None:
        process = Process(self, host)
        self.processes.append(process)
        self._unfinished += 1
        self.world.spawn(self._life(process), process, delay)

    def _life(self, process: Process) -> Steps:
        yield from process.live()
        self._unfinished -= 1
        self.world.stopped = self._unfinished == 0

    def _list_alive(self) -> list[Process]:
        return [process for process in self.processes if not process.dead and not process.done]

    def _fault(self) -> Steps:
        yield 0
        world = self.world
        fault = world.random.choice(
            (self._stop, self._stop, self._suspend, self._kill, self._kill, self._reboot, self._unplug, self._unplug,
             self._unplug, self._restart_server, self._jump, self._set_wall_clock, self._set_wall_clock)
        )  # fmt: skip
        alive = self._list_alive()
        if alive:
            fault(world.random.choice(alive))

    def _stop(self, process: Process) -> None:
        self._sleep(process, self.world.between(1000, 70_000))

    def _suspend(self, process: Process) -> None:
        length = self.world.between(5000, 70_000)
        for other in self._list_alive():
            if other.host is process.host:
                self._sleep(other, length)

    def _sleep(self, process: Process, length: int) -> None:
        process.asleep_until = max(process.asleep_until, self.world.now + length)
        self._note(process.name, f"is stopped for {length} ms")

    def dies(self, process: Process) -> bool:
        """Whether a process dies at this moment, with a message on its way."""
        if not self.faulty or not self.world.chance(self.weather.dying):
            return False
        self._kill(process)
        return True

    def _kill(self, process: Process) -> None:
        self._note(process.name, "is killed")
        process.dead = True
        process.host.alive.pop(process.holder.pid)
        process.pool.drop_all()
        process.bury()
        self._unfinished -= 1
        self._start(process.host, self.world.between(10, 20_000))

    def _reboot(self, process: Process) -> None:
        host = process.host
        host.boots += 1
        for other in self._list_alive():
            if other.host is host:
                self._kill(other)

    def _unplug(self, process: Process) -> None:
        length = self.world.between(2000, 60_000)
        process.host.down_until = self.world.now + length
        self._note(process.host.name, f"has no network for {length} ms")

    def _restart_server(self, process: Process) -> None:
        self._server_down_until = self.world.now + self.world.between(100, 10_000)
        self._note("server", f"is down for {self._server_down_until - self.world.now} ms")
        for session in self._sessions:
            session.close()

    def _jump(self, process: Process) -> None:
        if self._jumps:
            self._jumps -= 1
            self._server_offset += self.world.between(-JUMP_MS_MAX, JUMP_MS_MAX)
            self._note("server", "sets its clock")

    def _set_wall_clock(self, process: Process) -> None:
        process.host.wall_offset += self.world.between(-60_000, 60_000)
        self._note(process.host.name, "sets its wall clock")

    def _note(self, who: str, what: str) -> None:
        if self.world.lines is not None:
            self.world.note(who, what)


def play(seed: int, *, broken: frozenset[str] = frozenset(), trace: bool = False) -> Result:
    """The history of a seed."""
    return History(seed, broken=broken, trace=trace).play()
