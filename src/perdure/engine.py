"""An agent at work in this process: its store, its tenancy there, its key and its open runs."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from . import keys
from . import records as r
from .clock import SYSTEM_CLOCK, Clock
from .descendants import mark_descendants
from .errors import PerdureError, StoreMoved, StoreMovedWarning, StoreUnavailable
from .failpoints import Site
from .journal.append import Append, Head
from .journal.departures import departure, refuse_departed
from .journal.marks import Shelf
from .leases import Tenancy
from .limits import NAME_CHARACTERS_MAX
from .locks import rlock
from .process import this_process
from .run.core import RunCore
from .run.obeying import Ear
from .store import file_of, is_embedded, locate, open_store, without_password
from .store.base import Last, Script, Statement, Store, Unit, holds

if TYPE_CHECKING:
    from .events.schemas import Kinds
    from .memory.outside import VectorIndex
    from .rehearsal.passes import Rehearsal
    from .run.durable import Durable
    from .threads.memory import Memory
    from .workspace.home import Home


class Place:
    """A store that this process uses, shared by all of its agents: one committer, one heartbeat."""

    def __init__(self, url: str, durability: str, clock: Clock, wary: bool) -> None:
        self.store = open_store(url, durability=durability, clock=clock, wary=wary)
        self.users = 0
        self.vectors: dict[tuple[int, str, str], Any] = {}
        """By agent, kind and embedder: what `search/vectors.py` and `memory/` have in memory."""
        self.background: list[tuple[Engine, Callable[[], None]]] = []
        """What works beside the callers, and for whom; called, it ends. Before the store is closed it has to."""
        self._streams: dict[tuple[str, int], tuple[Head, Callable[[], keys.SigningKey | None]]] = {}
        self.ear = Ear(self.store)
        self._tenancy: Tenancy | None = None
        self._lock = rlock()

    @property
    def tenancy(self) -> Tenancy:
        """Registered when the first run is opened: reading needs none."""
        if self._tenancy is None:
            # One, however many threads open their first runs at once: the heart of a second one would be forgotten.
            with self._lock:
                if self._tenancy is None:
                    tenancy = Tenancy(self.store)
                    tenancy.between_beats = self.ear.look
                    self._tenancy = tenancy
        return self._tenancy

    @property
    def tenancy_if_any(self) -> Tenancy | None:
        """For who only reads."""
        return self._tenancy

    def own_stream(self, agent: str, lane: int, signer: Callable[[], keys.SigningKey | None]) -> Head:
        """The stream for what this process writes in the open, so that processes do not queue on one head.

        What goes to different lanes is committed side by side, where the store can do that.
        """
        which = (agent, lane)
        with self._lock:
            if which in self._streams:
                head, _ = self._streams[which]
            else:
                name = f"{agent}/{this_process()}"
                head = Head(self.store.identity, self.store.submit(_AddStream(self.store, agent, name)), 1)
            self._streams[which] = head, signer  # the key of whoever came last: others may have closed theirs
        return head

    def leave_stream(self, head: Head) -> None:
        """What this process writes in the open goes to another stream from now on."""
        with self._lock:
            for which in [which for which, (own, _) in self._streams.items() if own is head]:
                del self._streams[which]

    def seal(self) -> None:
        """Sign what this process has written in the open since it was last signed."""
        for head, signer in list(self._streams.values()):
            if head.seq > head.sealed and (key := signer()) is not None:
                self.store.submit(Append(Site.SEAL, head, (), self.store.clock, signer=key, seal=True))

    def end_background(self, engine: Engine | None = None) -> None:
        """Whatever works beside the callers ends, for one of them or for all."""
        for one in [one for one in self.background if engine in (None, one[0])]:
            one[1]()
            with suppress(ValueError):  # another thread was quicker
                self.background.remove(one)

    def close(self) -> None:
        """Leave the store in order."""
        self.end_background()
        try:
            self.seal()
            if self._tenancy is not None:
                self._tenancy.close()
        except PerdureError:
            pass  # a fenced or forked store cannot be told goodbye; its leases run out by themselves
        self.store.close()


def checked_name(name: object, what: str) -> str:
    """A name that can be stored and shown."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {name!r}")
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"{what} has 1 to {NAME_CHARACTERS_MAX} characters, not {len(name)}")
    if not holds(name):
        raise ValueError(f"{what} has no NUL character and no lone surrogate, unlike {name!r}")
    return name


class Engine:
    """What `Agent` and `AsyncAgent` have in common."""

    rehearsal: ClassVar[Rehearsal | None] = None
    """In a process that only looks what a program would do with recorded runs."""

    def __init__(
        self,
        name: str,
        *,
        store: str | os.PathLike[str] | None,
        durability: str = "full",
        strict: bool = False,
        key: keys.KeySource | None = None,
        single_home: bool = False,
        embedder: Any = None,
        clock: Clock = SYSTEM_CLOCK,
        wary: bool = False,
    ) -> None:
        self.embedder = embedder
        """What reads memories, as it was given; see `memory/embedders.py`."""
        self.vectors: VectorIndex | None = None
        """A vector database beside the store that finds memories, if there is one."""
        self.name = checked_name(name, "an agent's name")
        self.url = locate(store)
        self.strict = strict or os.environ.get("PERDURE_STRICT", "") not in ("", "0")
        self.open_runs = 0
        self.shelf = Shelf()
        self.unswept = 0
        """Commits of state since keys were last looked for whose time has run out."""
        self._kinds: Kinds | None = None
        self._threads: Memory | None = None
        self.recalled: dict[str, tuple[int, int]] = {}
        """Memories that were recalled here: how often, and when last. Written now and then: see `memory/using.py`."""
        self.functions: dict[str, Durable[..., Any]] = {}
        """The steps and effects that were declared, by name: what the actions of a workflow are bound to."""
        self.tasks: dict[str, Any] = {}
        """The tasks that were declared, by name: what a worker can do."""
        self.claims: dict[tuple[int, str, str], int] = {}
        """Steps of workflows that this agent has started here, and under which claim."""
        self.jobs: set[tuple[int, str, str]] = set()
        """Those of them that a `resume` in this process works at."""
        self.home: Home | None = None
        """The folder that is kept in step with this agent, if one was named."""
        self.clock = clock
        self._options = (durability, clock, wary)
        self.key_source = key
        self._single_home = single_home
        self._lock = rlock()
        self._place: Place | None = None

    def declared(self, name: str) -> Durable[..., Any] | None:
        """The step or effect of that name, or that had it before."""
        if name in self.functions:
            return self.functions[name]
        return next((one for one in self.functions.values() if name in one.was), None)

    @property
    def shown_url(self) -> str:
        """The store, as it may be shown to people."""
        return self.url if is_embedded(self.url) else without_password(self.url)

    @property
    def absolute_url(self) -> str:
        """The same, whatever folder it is read in."""
        path = file_of(self.url)
        return self.shown_url if path is None else f"sqlite:///{path}"

    @property
    def place(self) -> Place:
        """The store, opened when it is first needed: an agent may be made at import, before a server forks."""
        return self._place or self._open()

    def _open(self) -> Place:
        with self._lock:
            if self._place is not None:
                return self._place  # another thread was quicker
            if self.rehearsal is not None:
                self._place = self.rehearsal.enter(self.url, lambda: _enter(self.url, *self._options))
                return self._place
            place = _enter(self.url, *self._options)
            try:
                _check_home(place.store, self._single_home)
                if place.store.stale:
                    from .journal.rebuild import refresh

                    refresh(place.store)
                place.store.make_good()
            except PerdureError:
                _leave(place)
                raise
            self._place = place
            return place

    @property
    def kinds(self) -> Kinds:
        """The kinds of events that have a schema; loaded when the first event is noted or read."""
        if self._kinds is None:
            from .events.schemas import Kinds

            with self._lock:
                if self._kinds is None:  # what another thread has registered meanwhile stays
                    self._kinds = Kinds()
        return self._kinds

    @property
    def threads(self) -> Memory:
        """What this process remembers of the threads of this agent; for who has any."""
        found = self._threads
        if found is None:
            from .threads.memory import Memory

            with self._lock:
                found = self._threads = self._threads or Memory()
        return found

    @property
    def store(self) -> Store:
        return self.place.store

    @property
    def tenancy(self) -> Tenancy:
        return self.place.tenancy

    @property
    def signer(self) -> keys.SigningKey | None:
        """The agent's key, or None on a machine that does not have it."""
        # Two threads may look at once; a `cached_property` has a lock in Python 3.11, that a fork could leave locked.
        if "_signer" not in self.__dict__:
            self.__dict__["_signer"] = self._find_signer()
        found: keys.SigningKey | None = self.__dict__["_signer"]
        return found

    def _find_signer(self) -> keys.SigningKey | None:
        rows = self.store.read("get_agent", (self.name,))
        key = keys.find(self.name, self._key_folder(), self.key_source)
        if key is not None and rows and key.public_key != rows[0][1]:
            warnings.warn(
                f"the key at hand is not agent {self.name!r}'s: heads stay unsigned", UserWarning, stacklevel=2
            )
            return None
        return key

    def ensure_agent(self) -> None:
        """Give the agent its identity when the store does not know it yet. From then on its stream is known here."""
        if "_known" in self.__dict__:
            return
        with self._lock:  # one thread, and not all that open their first runs at once
            self._ensure_agent()
        self.__dict__["_known"] = True

    def _ensure_agent(self) -> None:
        if "_known" not in self.__dict__ and not self.is_known():
            found = keys.find(self.name, self._key_folder(), self.key_source)
            key = found or keys.create(self.name, self._key_folder())
            if self.store.submit(_CreateAgent(self, key)):
                self.__dict__["_signer"] = key
            elif found is None and not self.store.one_host:
                # Another host was quicker, with a key of its own: what we have just made signs for nobody.
                keys.discard(self.name, self._key_folder(), key)
            self.is_known()

    def own_stream(self, lane: int = 0) -> Head:
        """Where what this agent writes in the open goes, in this process."""
        return self.place.own_stream(self.name, lane, lambda: self.signer)

    def is_known(self) -> bool:
        """Whether the store knows this agent; reading makes nobody known."""
        if "_stream" not in self.__dict__:
            rows = self.store.read("get_agent", (self.name,))
            if not rows:
                return False
            self.__dict__["_stream"] = int(rows[0][0])
        return True

    @property
    def stream(self) -> int:
        """The number of the agent's own stream, by which the store knows it."""
        if "_stream" not in self.__dict__:
            assert self.is_known(), "a known agent is asked for"
        stream: int = self.__dict__["_stream"]
        return stream

    def opened(self, run: RunCore) -> None:
        """A run is open here from now on."""
        self.open_runs += 1
        if run.head.fence:
            mark_descendants(self.tenancy.process)
            self.tenancy.open_streams.add(run.head.stream)
            self.place.ear.opened(run)

    def closed(self, run: RunCore) -> None:
        """And now no more."""
        self.open_runs -= 1
        run.root.alive = False
        if run.head.fence:
            self.tenancy.open_streams.discard(run.head.stream)
            self.place.ear.closed(run)

    def close(self) -> None:
        """Give the store back; the last agent that uses it closes it."""
        if self._place is not None:
            self._place.end_background(self)
            with suppress(PerdureError):  # as in `Place.close`: what is written is kept, signed or not
                if self.recalled:
                    from .memory.using import Uses

                    self._place.store.submit(Uses(self))
                self._place.seal()
        with self._lock:
            place, self._place = self._place, None
            self.__dict__.pop("_known", None)
            self.__dict__.pop("_stream", None)
            self.shelf = Shelf()
            self._threads = None
            self.claims.clear()
        if place is not None:
            _leave(place)

    def _key_folder(self) -> str | None:
        return keys.folder_of(self.store)


class _AddStream(Unit[int]):
    """Submitted twice, it leaves an empty stream behind, which is nobody's and harms nobody."""

    site = Site.STREAM

    def __init__(self, store: Store, agent: str, name: str) -> None:
        self._agent = agent
        self._args = ("process", name, store.clock.wall_ms())

    def script(self) -> Script[int]:
        [[(stream,)], left] = yield [Statement("add_stream", self._args), departure(self._agent)]
        refuse_departed(self._agent, left)
        yield Last([Statement("add_lease", (stream, None))])  # nobody will ever take it over
        return int(stream)


class _CreateAgent(Unit[bool]):
    """True when the agent has got its identity from us. Submitted twice, it finds its own row."""

    site = Site.AGENT_CREATE

    def __init__(self, engine: Engine, key: keys.SigningKey) -> None:
        self._engine = engine
        self._key = key

    def script(self) -> Script[bool]:
        engine, clock = self._engine, self._engine.store.clock
        [rows] = yield [Statement("get_agent", (engine.name,))]
        if rows:
            return bool(rows[0][1] == self._key.public_key)  # another process was quicker, perhaps with the same key
        [[(stream,)]] = yield [Statement("add_stream", ("agent", engine.name, clock.wall_ms()))]
        created = r.AgentCreated(engine.name, self._key.public_key)
        head = Head(engine.store.identity, stream, 1)
        first = [Statement("add_lease", (stream, None))]  # nobody will ever take it over
        yield from Append(self.site, head, [created], clock, objects=first, signer=self._key, seal=True).script()
        return True


# -- places, shared within the process ------------------------------------------------------------------------

_places: dict[tuple[str, str], Place] = {}
_places_lock = rlock()


def _enter(url: str, durability: str, clock: Clock, wary: bool) -> Place:
    path = file_of(url)
    if (path is None and is_embedded(url)) or clock is not SYSTEM_CLOCK:
        return Place(url, durability, clock, wary)  # nobody else can share it
    path = path or url
    with _places_lock:
        place = _places.get((path, durability))
        if place is None or place.store.fenced is not None:
            place = _places[path, durability] = Place(url, durability, clock, wary)
        place.users += 1
    return place


def _leave(place: Place) -> None:
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
    """Close a store although agents of this process still have it; they say `StoreClosed` from now on."""
    path = file_of(url) or url
    for key in [key for key in _places if key[0] == path]:
        _places.pop(key).close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_places.clear)


# -- where the store lives --------------------------------------------------------------------------------------


def home_of(path: str) -> tuple[str, str]:
    """The host and the file, as far as they can be told: an empty host is not compared."""
    host = ""
    try:
        with open("/etc/machine-id", encoding="utf-8") as file:
            host = file.read().strip()
    except OSError:
        pass  # containers often have none, and their host name changes with every start
    return host, str(os.stat(path).st_ino)


def _check_home(store: Store, single_home: bool) -> None:
    """A restored backup or a copied file must not go on unnoticed beside the original."""
    path = file_of(store.url)
    if path is None or store.read_only:
        return  # in memory, or on a server, which has its own ways to be copied
    try:
        host, file = home_of(path)
    except FileNotFoundError as error:
        hint = "close every agent of this process that uses it, then open it again"
        raise StoreUnavailable(f"{path} was removed while this process has it open", hint=hint) from error
    rows = store.read("last_home")
    if rows and rows[0] == (host, file):
        return
    if rows:
        moved = f"{path} was last used {'on another host' if rows[0][0] != host else 'as another file'}"
        if single_home:
            raise StoreMoved(moved)
        warnings.warn(f"{moved}: if it is a copy, the original may still be running", StoreMovedWarning, stacklevel=5)
    store.submit(AddHome(store, host, file))


class Adopt(Unit[None]):
    """Go on without what the store has lost."""

    site = Site.STORE_HOME

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements

    def script(self) -> Script[None]:
        yield self._statements


class AddHome(Unit[None]):
    """The store is at home here from now on."""

    site = Site.STORE_HOME

    def __init__(self, store: Store, host: str, file: str) -> None:
        self._args = (host, file, store.clock.wall_ms())

    def script(self) -> Script[None]:
        yield [Statement("add_home", self._args)]
