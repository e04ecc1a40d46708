"""The public API of `agent.memory`: arguments and documentation. The logic is in `perdure.memory`."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perdure.api.aio.base import AsyncFacade
from perdure.errors import WrongType
from perdure.kernel.awaitables import require_plain
from perdure.memory import arguments as given
from perdure.memory import read, visible
from perdure.memory import remember as remembering
from perdure.memory.arguments import MemoryTime
from perdure.memory.erasure import forget as forgetting
from perdure.memory.erasure.forget import ForgetResult
from perdure.memory.lifecycle import consolidation, usage
from perdure.memory.lifecycle import reembed as reembedding
from perdure.memory.lifecycle import retention as retaining
from perdure.memory.lifecycle.reembed import ReembedResult
from perdure.memory.lifecycle.retention import ALL, MemoryRetention
from perdure.memory.lifecycle.rollback import RollbackResult, RollbackSelection, rollback
from perdure.memory.recall import embedders, index_choice
from perdure.memory.recall.embedders import Embedder
from perdure.memory.recall.search import recall
from perdure.memory.recall.vector_index import VectorIndex
from perdure.memory.results import EVER, Memory, MemoryQuery, Recalled
from perdure.values.durations import Duration, seconds_of

MemoryIds = str | Memory | Iterable[str | Memory]


class AsyncMemories(AsyncFacade):
    """`agent.memory`: long-term memory, searchable by words, meaning and time.

    >>> await agent.memory.remember("Alice prefers aisle seats", about="alice", user="alice")
    >>> (await agent.memory.recall("which seat does Alice like?"))[0].text
    'Alice prefers aisle seats'

    Inside a step, an effect or an item, a memory lands with it or not at all; until then only that body can recall it.
    Outside of them it is on disk when the call returns.
    """

    __slots__ = ()

    async def remember(
        self,
        text: str,
        *,
        kind: str = "semantic",
        about: str | None = None,
        user: str | None = None,
        tags: str | Iterable[str] = (),
        source: str | None = None,
        trust: float | str = 1.0,
        importance: float = 0.5,
        valid_from: MemoryTime | None = None,
        valid_to: MemoryTime | None = None,
        supersedes: MemoryIds = (),
        ttl: Duration | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        derived_from: MemoryIds = (),
        writer: str | None = None,
    ) -> Memory:
        """Store a memory and return it with its id.

        `kind` is "semantic" (a fact), "episodic" (something that happened) or "procedural" (how to do something).
        `about` is its subject, `user` the user it belongs to, `source` its origin, and `trust` (0 to 1) how reliable
        that is. It is valid from `valid_from` to `valid_to`. The memories that it `supersedes` stop being valid at
        `valid_from` and stay readable. After `ttl` it is no longer recalled. A memory is trusted no more than those it
        is `derived_from`. Memories of one `thread` are recalled together.

        Remembering the same fact again increases the `count` of the existing memory.
        """
        wished = given.wish_of(
            text,
            kind=kind,
            about=about,
            user=user,
            tags=tags,
            source=source,
            trust=trust,
            importance=importance,
            valid_from=valid_from,
            valid_to=valid_to,
            supersedes=supersedes,
            ttl=ttl,
            meta=meta,
            thread=thread,
            derived_from=derived_from,
            writer=writer,
        )
        return (await self._do(remembering.remember(self._engine, [wished])))[0]

    async def remember_all(self, memories: Iterable[str | Mapping[str, Any]], **common: Any) -> builtins.list[Memory]:
        """Store many memories in one commit, all or none: texts, or dicts of the arguments of `remember`.

        >>> await agent.memory.remember_all(["Hi!", {"text": "Hello Alice", "user": "alice"}], kind="episodic")
        """
        return await self._do(remembering.remember(self._engine, given.wishes_of(memories, common)))

    async def recall(
        self,
        query: str,
        k: int = 5,
        *,
        kind: str | None = None,
        about: str | None = None,
        user: str | None = None,
        tags: str | Iterable[str] = (),
        source: str | None = None,
        since: MemoryTime | None = None,
        until: MemoryTime | None = None,
        as_of: MemoryTime | None = None,
        known_at: MemoryTime | None = None,
        min_trust: float | str = 0.0,
        around: int = 0,
    ) -> builtins.list[Recalled]:
        """Return the `k` memories that answer a question best, best first, each with `.score` and `.why`.

        `.confidence` (0 to 1) is how much of the question a memory covers; it is low if there is no answer. `since` and
        `until` filter by the time that a memory is about. `as_of` returns what was valid at a time, `known_at` what had
        been recorded by then. `min_trust` leaves out less trusted memories. With `around=2`, `.around` of each result
        has the two memories before and after it in the same conversation.

        >>> (await agent.memory.recall("which seat does Alice like?", k=3))[0].text
        """
        asked = _query(kind, about, user, tags, source, since, until, as_of, known_at, min_trust)
        found = await self._do(recall(self._engine, given.to_question(asked, query, k, around)))
        usage.note(self._engine, found)
        return found

    async def get(self, id: str | Memory) -> Memory:
        """Return a memory by id, even if superseded. Raises `MemoryNotFound` if it does not exist or was forgotten."""
        return await self._do(visible.get(self._engine, given.check_id(id)))

    async def list(
        self,
        *,
        kind: str | None = None,
        about: str | None = None,
        user: str | None = None,
        tags: str | Iterable[str] = (),
        source: str | None = None,
        since: MemoryTime | None = None,
        until: MemoryTime | None = None,
        as_of: MemoryTime | None = None,
        known_at: MemoryTime | None = None,
        min_trust: float | str = 0.0,
        all: bool = False,
        limit: int | None = None,
    ) -> builtins.list[Memory]:
        """Return the memories that match a filter, newest first; with `all`, also those that are no longer valid."""
        asked = _query(kind, about, user, tags, source, since, until, as_of, known_at, min_trust, all)
        count = EVER if limit is None else given.check_count(limit, "limit")
        return await self._do(visible.list_memories(self._engine, asked, count))

    async def history(self, about: str, *, user: str | None = None) -> builtins.list[Memory]:
        """Return every memory about a subject, ordered by the time it is valid from, with what superseded it.

        >>> for fact in await agent.memory.history("alice.city"):
        ...     print(fact.valid_from.date(), fact.text, fact.superseded_by)
        """
        names = given.check_name(about, "about"), given.check_name(user, "user")
        return await self._read(lambda: read.history(self._engine, *names))

    async def forget(
        self,
        id: MemoryIds | None = None,
        *,
        about: str | None = None,
        user: str | None = None,
        source: str | None = None,
        tags: str | Iterable[str] = (),
        text: str | None = None,
        everywhere: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> ForgetResult:
        """Erase memories for good: by id, subject, user, source or text.

        >>> print(await agent.memory.forget(user="alice"))
        forgot 3 memories; the text is still in 2 other places

        When it returns, text, index, vectors, large values and journal content are gone, and the chain still verifies.
        It takes effect at once, even inside a step, and cannot be undone. `.elsewhere` lists other places that contain
        the text: messages, step results, state. `everywhere=True` erases those too, unless an unfinished run needs
        them, and reports what is left and why. Finished runs whose steps contained the text can no longer be replayed.
        Erase what was left later, by `text`.
        """
        from perdure.presence.workspace.redact import DocumentRedaction

        ids = None if id is None else given.collect_ids(id, "id")
        which = given.select_to_forget(ids, about=about, user=user, source=source, tags=tags, text=text)
        protocol = forgetting.forget(
            self._engine, which, everywhere=everywhere, redactor=DocumentRedaction(self._engine), reason=reason, by=by
        )
        return await self._do(protocol)

    async def rollback(
        self,
        *,
        source: str | None = None,
        since: MemoryTime | None = None,
        run: str | None = None,
        writer: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> RollbackResult:
        """Withdraw all memories from a bad source, run or writer, or those recorded since a time.

        >>> print(await agent.memory.rollback(source="web", since="2026-05-01"))
        withdrew 2 memories; 1 count again

        These memories and those derived from them are no longer recalled; the memories that they superseded are valid
        again. They stay readable with `list(all=True)` and `history`; `forget` erases them.
        """
        bad = RollbackSelection(
            given.check_name(source, "source"),
            given.check_name(run, "run"),
            given.check_name(writer, "writer"),
            given.parse_time(since, "since"),
        )
        if not (bad.source or bad.run or bad.writer):
            raise WrongType("rollback needs source=, run= or writer=")
        return await self._do(rollback(self._engine, bad, reason, by))

    async def contradictions(
        self, *, about: str | None = None, user: str | None = None
    ) -> builtins.list[tuple[Memory, Memory]]:
        """Return pairs of valid memories that may contradict each other, the older one first."""
        names = given.check_name(about, "about"), given.check_name(user, "user")
        return await self._read(lambda: read.contradictions(self._engine, *names))

    async def consolidate(
        self,
        summarise: consolidation.EpisodeSummarizer | None = None,
        *,
        older_than: Duration = "7d",
        user: str | None = None,
        about: str | None = None,
    ) -> builtins.list[Memory]:
        """Summarise older episodic memories into semantic ones, week by week, and return the new memories.

        >>> await agent.memory.consolidate(summarise=ask_the_model, older_than="14d")

        `summarise` receives the texts of a week in order and returns a text, a list of texts, or None. Call models
        in a step of the surrounding run. Without `summarise`, the most representative texts are kept. Each new memory
        links to its sources and is trusted no more than they are. The sources stay and are consolidated only once:
        after an interrupt, the next call continues.
        """
        names = given.check_name(user, "user"), given.check_name(about, "about")
        seconds = seconds_of(older_than, "older_than")
        if summarise is not None and not callable(summarise):
            raise WrongType(f"summarise={summarise!r}: pass a function that summarises a list of texts")
        made = list[Memory]()
        for group in await self._read(lambda: consolidation.groups(self._engine, seconds, *names)):
            said = (summarise or consolidation.extractive_summary)(group.texts)
            # unasync: async-only
            if inspect.isawaitable(said):
                said = await said
            # unasync: end
            said = require_plain(said, summarise or consolidation.extractive_summary)
            made += await self._do(remembering.remember(self._engine, consolidation.wishes(group, said)))
        return made

    async def retain(self, kind: str = "*", *, keep_days: float | None = None, max_items: int | None = None) -> None:
        """Set how long memories of one kind, or of all, are kept. `agent.gc()` archives and removes the others.

        >>> await agent.memory.retain("episodic", keep_days=90, max_items=10_000)

        Days count from when a memory was recorded or last recalled. Beyond `max_items` the least valuable are removed:
        value is importance and use, halved for every month without a recall. Importance 1 is always kept. Without
        limits the rule is removed.
        """
        which = kind if kind == ALL else given.check_kind(kind)
        days = None if keep_days is None else given.check_days(keep_days)
        count = None if max_items is None else given.check_count(max_items, "max_items")
        await self._do(retaining.retain(self._engine, which, days, count))

    async def retention(self) -> builtins.list[MemoryRetention]:
        """Return the rules that `retain` has set, sorted by kind."""
        return await self._read(lambda: retaining.retention(self._engine))

    @property
    def embedder(self) -> Embedder | None:
        """The embedder: by default the best one installed. None means recall by words alone.

        >>> agent.memory.embedder = my_function     # takes a list of texts, returns a vector for each
        """
        return embedders.embedder_in(self._engine)

    @embedder.setter
    def embedder(self, given: Any) -> None:
        embedders.use(self._engine, given)

    @property
    def vectors(self) -> VectorIndex | None:
        """An external vector database for search by meaning. None uses the store itself."""
        return index_choice.vectors_of(self._engine)

    @vectors.setter
    def vectors(self, given: VectorIndex | None) -> None:
        index_choice.use(self._engine, given)

    async def reembed(self, progress: Callable[[int, int], None] | None = None) -> ReembedResult:
        """Embed every memory that lacks a vector of the current embedder, and drop the vectors of others.

        After a change of the embedder this also happens in the background. `progress(done, total)` counts pieces.
        """
        return await self._do(reembedding.reembed(self._engine, progress))


def _query(
    kind: str | None,
    about: str | None,
    user: str | None,
    tags: str | Iterable[str],
    source: str | None,
    since: MemoryTime | None,
    until: MemoryTime | None,
    as_of: MemoryTime | None,
    known_at: MemoryTime | None,
    min_trust: float | str,
    all: bool = False,
) -> MemoryQuery:
    return MemoryQuery(
        kind=given.check_kind(kind, empty=True),
        about=given.check_name(about, "about"),
        user=given.check_name(user, "user"),
        source=given.check_name(source, "source"),
        tags=given.check_tags(tags),
        since=given.parse_time(since, "since") or -EVER,
        until=given.parse_end(until, "until") or EVER,
        as_of=given.parse_point(as_of, "as_of"),
        known_at=given.parse_point(known_at, "known_at"),
        min_trust=given.parse_trust(min_trust, "min_trust"),
        all=all,
    )
