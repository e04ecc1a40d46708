"""An agent in this process: its store, its leases, its key and its open runs."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from perdure import records as r
from perdure.errors import PerdureError, StoreMoved, StoreMovedWarning, StoreUnavailable
from perdure.journal import keys
from perdure.journal.append import Append, StreamHead
from perdure.journal.departures import departure, refuse_departed
from perdure.journal.leases import LeaseKeeper
from perdure.kernel.names import check_identifier
from perdure.kernel.parts import Parts
from perdure.platform.failpoints import Site
from perdure.platform.process import identify_this_process
from perdure.store import file_of, find_key, hide_password, is_embedded, is_remote, locate, open_store
from perdure.store.base import FinalBatch, Script, Statement, Store, UnitOfWork
from perdure.store.rows import first_number
from perdure.values.clock import SYSTEM_CLOCK, Clock
from perdure.values.lazy import lazy
from perdure.values.locks import call_after_fork, rlock

if TYPE_CHECKING:
    from perdure.kernel.protocol import Protocol as Steps
    from perdure.kernel.scope import Frame


class StoreSession:
    """A store that all agents of this process share: one committer, one heartbeat."""

    def __init__(self, url: str, durability: str, clock: Clock, wary: bool, api_key: str | None = None) -> None:
        self.store = open_store(url, durability=durability, clock=clock, wary=wary, api_key=api_key)
        self.users = 0
        self.vectors: dict[tuple[int, str, str], Any] = {}
        """In-memory vector indexes of `data/search/vectors.py` and `memory/`, by agent, kind and embedder."""
        self.background: list[tuple[Engine, Callable[[], None]]] = []
        """Background work: its agent, and the function that stops it. All of it stops before the store is closed."""
        self._streams: dict[tuple[str, int], tuple[StreamHead, Callable[[], keys.SigningKey | None]]] = {}
        self.parts = Parts()
        """Objects that higher floors keep with the store until it is closed."""
        self._lease_keeper: LeaseKeeper | None = None
        self._lock = rlock()

    @property
    def lease_keeper(self) -> LeaseKeeper:
        """The leases of this process, registered when the first run is opened: reading needs none."""
        if self._lease_keeper is None:
            # A second keeper, made by a concurrent thread, would leave a heartbeat that nobody stops.
            with self._lock:
                if self._lease_keeper is None:
                    self._lease_keeper = LeaseKeeper(self.store)
        return self._lease_keeper

    @property
    def lease_keeper_if_any(self) -> LeaseKeeper | None:
        """The leases of this process, or None if it has only read so far."""
        return self._lease_keeper

    def own_stream(self, agent: str, lane: int, signer: Callable[[], keys.SigningKey | None]) -> StreamHead:
        """Return this process's stream for writes outside of runs. Processes do not queue on one head.

        Writes to different lanes are committed in parallel where the store supports it.
        """
        which = (agent, lane)
        with self._lock:
            if which in self._streams:
                head, _ = self._streams[which]
            else:
                name = f"{agent}/{identify_this_process()}"
                head = StreamHead(self.store.identity, self.store.submit(_AddStream(self.store, agent, name)), 1)
            self._streams[which] = head, signer  # the latest agent's key: earlier agents may have closed theirs
        return head

    def leave_stream(self, head: StreamHead) -> None:
        """Send later writes outside of runs to a new stream."""
        with self._lock:
            for which in [which for which, (own, _) in self._streams.items() if own is head]:
                del self._streams[which]

    def seal(self) -> None:
        """Sign the unsigned entries of this process's own streams."""
        for head, signer in list(self._streams.values()):
            if head.seq > head.sealed and (key := signer()) is not None:
                self.store.submit(Append(Site.SEAL, head, (), self.store.clock, signer=key, seal=True))

    def end_background(self, engine: Engine | None = None) -> None:
        """Stop the background work of one agent, or of all."""
        for one in [one for one in self.background if engine in (None, one[0])]:
            one[1]()
            with suppress(ValueError):  # another thread removed it first
                self.background.remove(one)

    def close(self) -> None:
        """Stop background work, sign, release the leases and close the store."""
        self.end_background()
        if self._lease_keeper is not None:
            self._lease_keeper.stop_heartbeats()  # also if signing fails
        try:
            self.seal()
            if self._lease_keeper is not None:
                self._lease_keeper.close()
        except PerdureError:
            pass  # a fenced or forked store accepts no release; its leases expire by themselves
        self.store.close()


class Rehearsing(Protocol):
    """A process that replays recorded runs without writing, as `perdure replay-check` does."""

    def enter(self, url: str, enter: Callable[[], StoreSession]) -> StoreSession:
        """Open a store read-only."""

    def open(self, engine: Engine, run_id: str, given: Any, outer: Frame | None, on_change: str) -> Steps[Any]:
        """Open a recorded run."""

    def refuse_effect(self, name: str) -> None:
        """Raise for an effect outside of all runs."""


class Engine:
    """The common part of `Agent` and `AsyncAgent`."""

    rehearsal: ClassVar[Rehearsing | None] = None
    """Set in a process that only rehearses what a program would do with recorded runs."""

    def __init__(
        self,
        name: str,
        *,
        store: str | os.PathLike[str] | None,
        durability: str = "full",
        strict: bool = False,
        key: keys.KeySource | None = None,
        single_home: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        wary: bool = False,
        api_key: str | None = None,
    ) -> None:
        self.name = check_identifier(name, "an agent's name")
        self.url = locate(store)
        self.strict = strict or os.environ.get("PERDURE_STRICT", "") not in ("", "0")
        self.open_runs = 0
        self.parts = Parts()
        """Objects that nouns keep with this agent for the life of the process."""
        self.session = Parts()
        """Objects that nouns keep with this agent until it closes its store."""
        self.before_close: list[Callable[[], None]] = []
        """Called before the agent closes its store."""
        self.clock = clock
        self._options = (durability, clock, wary, api_key)
        self.key_source = key
        self._single_home = single_home
        self._lock = rlock()
        self._place: StoreSession | None = None

    @property
    def shown_url(self) -> str:
        """The address of the store without its password."""
        return self.url if is_embedded(self.url) else hide_password(self.url)

    @property
    def absolute_url(self) -> str:
        """The address of the store with an absolute path, without its password."""
        path = file_of(self.url)
        return self.shown_url if path is None else f"sqlite:///{path}"

    @property
    def place(self) -> StoreSession:
        """The store session, opened on first use: an agent may be created at import time, before a server forks."""
        return self._place or self._open()

    def _open(self) -> StoreSession:
        with self._lock:
            if self._place is not None:
                return self._place  # another thread opened it first
            if self.rehearsal is not None:
                self._place = self.rehearsal.enter(self.url, lambda: _enter(self.url, *self._options))
                return self._place
            place = _enter(self.url, *self._options)
            try:
                _check_home(place.store, self._single_home)
                if place.store.stale:
                    from perdure.journal.rebuild import refresh

                    refresh(place.store)
                place.store.finish_scrub()
            except PerdureError:
                _leave(place)
                raise
            self._place = place
            return place

    @property
    def store(self) -> Store:
        return (self._place or self._open()).store

    @property
    def lease_keeper(self) -> LeaseKeeper:
        return (self._place or self._open()).lease_keeper

    @lazy
    def signer(self) -> keys.SigningKey | None:
        """The agent's key, or None on a machine that does not have it."""
        rows = self.store.read("get_agent", (self.name,))
        key = keys.find(self.name, self._key_folder(), self.key_source)
        if key is not None and any(key.public_key != public_key for _, public_key in rows):
            warnings.warn(
                f"the key found is not the key of agent {self.name!r}: heads stay unsigned", UserWarning, stacklevel=2
            )
            return None
        return key

    def ensure_agent(self) -> None:
        """Create the agent's identity if the store does not know the agent yet, and cache its stream number."""
        if "_known" in self.__dict__:
            return
        with self._lock:  # one thread creates it, even if many open their first run at once
            self._ensure_agent()
        self.__dict__["_known"] = True

    def _ensure_agent(self) -> None:
        if "_known" not in self.__dict__ and not self.is_known():
            found = keys.find(self.name, self._key_folder(), self.key_source)
            key = found or keys.create(self.name, self._key_folder())
            if self.store.submit(_CreateAgent(self, key)):
                self.__dict__["signer"] = key
            elif found is None and not self.store.one_host:
                # Another host was faster, with its own key. Ours would sign nothing.
                keys.discard(self.name, self._key_folder(), key)
            self.is_known()

    def own_stream(self, lane: int = 0) -> StreamHead:
        """Return this process's stream for the agent's writes outside of runs."""
        return self.place.own_stream(self.name, lane, lambda: self.signer)

    def is_known(self) -> bool:
        """Whether the store knows this agent. Reading does not create it."""
        if "_stream" not in self.__dict__:
            rows = self.store.read("get_agent", (self.name,))
            if not rows:
                return False
            self.__dict__["_stream"] = first_number(rows)
        return True

    @property
    def stream(self) -> int:
        """The number of the agent's own stream, which identifies it in the store."""
        if "_stream" not in self.__dict__:
            assert self.is_known(), "a known agent is asked for"
        stream: int = self.__dict__["_stream"]
        return stream

    def close(self) -> None:
        """Release the store. The last agent that uses it closes it."""
        if self._place is not None:
            self._place.end_background(self)
            with suppress(PerdureError):  # as in `StoreSession.close`: entries are durable, signed or not
                for callback in self.before_close:
                    callback()
                self._place.seal()
        self.leave()

    def leave(self) -> None:
        """Release the store as it is: an engine that has written nothing signs nothing of the others."""
        with self._lock:
            place, self._place = self._place, None
            self.__dict__.pop("_known", None)
            self.__dict__.pop("_stream", None)
            self.session.clear()
        if place is not None:
            _leave(place)

    def _key_folder(self) -> str | None:
        return keys.folder_of(self.store)


class _AddStream(UnitOfWork[int]):
    """Create a stream of this process. A resubmission leaves an empty, unused stream behind."""

    site = Site.STREAM

    def __init__(self, store: Store, agent: str, name: str) -> None:
        self._agent = agent
        self._args = ("process", name, store.clock.wall_ms())

    def script(self) -> Script[int]:
        [[(stream,)], left] = yield [Statement("add_stream", self._args), departure(self._agent)]
        refuse_departed(self._agent, left)
        yield FinalBatch([Statement("add_lease", (stream, None))])  # a lease that cannot be taken over
        return int(stream)


class _CreateAgent(UnitOfWork[bool]):
    """Create the agent's identity; True if the stored key is ours. A resubmission finds its own row."""

    site = Site.AGENT_CREATE

    def __init__(self, engine: Engine, key: keys.SigningKey) -> None:
        self._engine = engine
        self._key = key

    def script(self) -> Script[bool]:
        engine, clock = self._engine, self._engine.store.clock
        [rows] = yield [Statement("get_agent", (engine.name,))]
        if rows:
            [(_, public_key)] = rows
            return bool(public_key == self._key.public_key)  # another process was faster, perhaps with the same key
        [[(stream,)]] = yield [Statement("add_stream", ("agent", engine.name, clock.wall_ms()))]
        created = r.AgentCreated(engine.name, self._key.public_key)
        head = StreamHead(engine.store.identity, stream, 1)
        first = [Statement("add_lease", (stream, None))]  # a lease that cannot be taken over
        yield from Append(self.site, head, [created], clock, objects=first, signer=self._key, seal=True).script()
        return True


# -- store sessions, shared within the process --------------------------------------------------------------------

_places: dict[tuple[str, str, str | None], StoreSession] = {}
_places_lock = rlock()


def _enter(url: str, durability: str, clock: Clock, wary: bool, api_key: str | None) -> StoreSession:
    path = file_of(url)
    if (path is None and is_embedded(url)) or clock is not SYSTEM_CLOCK:
        return StoreSession(url, durability, clock, wary, api_key)  # cannot be shared
    path = path or url
    if is_remote(url):
        api_key = find_key(api_key)  # agents with different keys do not share a session
    with _places_lock:
        place = _places.get((path, durability, api_key))
        if place is None or place.store.fenced is not None:
            place = StoreSession(url, durability, clock, wary, api_key)
            _places[path, durability, api_key] = place
        place.users += 1
    return place


def _leave(place: StoreSession) -> None:
    with _places_lock:
        place.users -= 1
        if place.users > 0:
            return
        for key in [key for key, value in _places.items() if value is place]:
            del _places[key]
    place.close()


def _close_all() -> None:
    while _places:
        _places.popitem()[1].close()


def close_left(url: str) -> None:
    """Close a store that agents of this process still use. They raise `StoreClosed` from now on."""
    path = file_of(url) or url
    for key in [key for key in _places if key[0] == path]:
        _places.pop(key).close()


atexit.register(_close_all)
call_after_fork(_places.clear)


# -- where the store lives --------------------------------------------------------------------------------------


def home_of(path: str) -> tuple[str, str]:
    """Return host and file identity. An unknown host is "" and is not compared."""
    host = ""
    try:
        with open("/etc/machine-id", encoding="utf-8") as file:
            host = file.read().strip()
    except OSError:
        pass  # containers often have no machine id, and their host name changes with every start
    return host, str(os.stat(path).st_ino)


def _check_home(store: Store, single_home: bool) -> None:
    """Warn or raise if the store file was copied or restored: the original may still be in use."""
    path = file_of(store.url)
    if path is None or store.read_only:
        return  # in memory, or on a server, where this check does not apply
    try:
        host, file = home_of(path)
    except FileNotFoundError as error:
        hint = "close every agent of this process that uses it, then open it again"
        raise StoreUnavailable(f"{path} was removed while this process had it open", hint=hint) from error
    for last_host, last_file in store.read("last_location"):
        if (last_host, last_file) == (host, file):
            return
        moved = f"{path} was last used {'on another host' if last_host != host else 'as another file'}"
        if single_home:
            raise StoreMoved(moved)
        warnings.warn(f"{moved}: if it is a copy, the original may still be running", StoreMovedWarning, stacklevel=5)
    store.submit(AddStoreLocation(store, host, file))


class AcceptLosses(UnitOfWork[None]):
    """Continue without the entries that the store has lost."""

    site = Site.STORE_HOME

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[None]:
        yield self._statements


class AddStoreLocation(UnitOfWork[None]):
    """Record this host and file as the store's location."""

    site = Site.STORE_HOME

    def __init__(self, store: Store, host: str, file: str) -> None:
        self._args = (host, file, store.clock.wall_ms())

    def script(self) -> Script[None]:
        yield [Statement("add_location", self._args)]
