"""`agent.memory`: what an agent knows beyond a run."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..durations import Duration, seconds_of
from ..memory import (
    consolidating,
    embedders,
    forgetting,
    given,
    keeping,
    reading,
    reembedding,
    retaining,
    seeing,
    using,
)
from ..memory.embedders import Embedder
from ..memory.forgetting import Forgotten
from ..memory.found import EVER, Memory, Query, Recalled
from ..memory.given import When
from ..memory.outside import VectorIndex
from ..memory.recalling import recall
from ..memory.reembedding import Reembedded
from ..memory.retaining import ALL, MemoryRetention
from ..memory.rolling import Bad, RolledBack, rollback
from ..run.awaitables import plain
from .face import AsyncFace

Ids = str | Memory | Iterable[str | Memory]


class AsyncMemories(AsyncFace):
    """What an agent knows: kept, found again by words, meaning and time, replaced, forgotten.

    >>> await agent.memory.remember("Alice prefers aisle seats", about="alice", user="alice")
    >>> (await agent.memory.recall("which seat does Alice like?"))[0].text
    'Alice prefers aisle seats'

    Remembered inside a step, an effect or an item, it lands with it, once; in the open it is durable when the call
    returns. What a step remembers it finds itself at once, and everybody else from its end on.
    """

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
        valid_from: When | None = None,
        valid_to: When | None = None,
        supersedes: Ids = (),
        ttl: Duration | None = None,
        meta: Mapping[str, Any] | None = None,
        thread: str | None = None,
        derived_from: Ids = (),
        writer: str | None = None,
    ) -> Memory:
        """Keep something, and return it with its id.

        `kind` is "semantic" (what is so), "episodic" (what happened) or "procedural" (how to do something). `about`
        and `user` say what and whom it is about, `source` where it comes from, and `trust`, from 0 to 1, how far that
        is to be believed. It holds from `valid_from` to `valid_to`; what it `supersedes` holds until then, and can
        still be read. After `ttl` it is not found any more. What is `derived_from` others is trusted no more than they
        are. What was said together in one `thread` is found together.

        The same fact again makes no second memory: the first one is counted.
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
        return (await self._do(keeping.remember(self._engine, [wished])))[0]

    async def remember_all(self, memories: Iterable[str | Mapping[str, Any]], **common: Any) -> builtins.list[Memory]:
        """Keep many in one commit, all or none: texts, or dicts with `text` and what `remember` takes.

        >>> await agent.memory.remember_all(["Hi!", {"text": "Hello Alice", "user": "alice"}], kind="episodic")
        """
        return await self._do(keeping.remember(self._engine, given.wishes_of(memories, common)))

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
        since: When | None = None,
        until: When | None = None,
        as_of: When | None = None,
        known_at: When | None = None,
        min_trust: float | str = 0.0,
        around: int = 0,
    ) -> builtins.list[Recalled]:
        """The `k` memories that answer a question best, the best first; each says its `.score` and `.why`.

        `.confidence`, from 0 to 1, is how much of the question a memory speaks of: when there is no answer, it is low.
        `since` and `until` are about the memory's own time. `as_of` looks at what held then, and `known_at` only at
        what was recorded by then. `min_trust` leaves out what is trusted less. With `around=2` each result also has
        the two memories that were said before it and after it, in `.around`.
        """
        asked = _query(kind, about, user, tags, source, since, until, as_of, known_at, min_trust)
        found = await self._do(recall(self._engine, given.asking(asked, query, k, around)))
        using.note(self._engine, found)
        return found

    async def get(self, id: str | Memory) -> Memory:
        """One memory, also one that was superseded; `MemoryNotFound` when there is none, or it was forgotten."""
        return await self._do(seeing.get(self._engine, given.read_id(id)))

    async def list(
        self,
        *,
        kind: str | None = None,
        about: str | None = None,
        user: str | None = None,
        tags: str | Iterable[str] = (),
        source: str | None = None,
        since: When | None = None,
        until: When | None = None,
        as_of: When | None = None,
        known_at: When | None = None,
        min_trust: float | str = 0.0,
        all: bool = False,
        limit: int | None = None,
    ) -> builtins.list[Memory]:
        """Memories that pass a filter, the newest first; with `all`, also what does not count any more."""
        asked = _query(kind, about, user, tags, source, since, until, as_of, known_at, min_trust, all)
        count = EVER if limit is None else given.read_count(limit, "limit")
        return await self._do(seeing.listed(self._engine, asked, count))

    async def history(self, about: str, *, user: str | None = None) -> builtins.list[Memory]:
        """All that was ever known about something, in the order of its own time, with what took its place.

        >>> for fact in await agent.memory.history("alice.city"):
        ...     print(fact.valid_from.date(), fact.text, fact.superseded_by)
        """
        names = given.read_name(about, "about"), given.read_name(user, "user")
        return await self._read(lambda: reading.history(self._engine, *names))

    async def forget(
        self,
        id: Ids | None = None,
        *,
        about: str | None = None,
        user: str | None = None,
        source: str | None = None,
        tags: str | Iterable[str] = (),
        text: str | None = None,
        everywhere: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> Forgotten:
        """Erase memories for good: by id, or all about something, of a user, from a source, or that have a text.

        >>> print(await agent.memory.forget(user="alice"))
        forgot 3 memories; the text is still in 2 other places

        Text, index, vectors, large values and what the journal had are gone when it returns; the chain still
        verifies. It is done at once, also inside a step, and cannot be undone. `.elsewhere` lists where the text
        stands too: messages, results of steps, state. `everywhere=True` erases those as well, as far as nobody needs
        them, and lists what is left and why: steps of finished runs that had it cannot be replayed any more. What was
        left because a run was not over can be erased later, by the `text`: the memories are gone then.
        """
        from ..workspace.redacting import Redaction

        ids = None if id is None else given.read_ids(id, "id")
        which = given.chosen(ids, about=about, user=user, source=source, tags=tags, text=text)
        protocol = forgetting.forget(
            self._engine, which, everywhere=everywhere, redactor=Redaction(self._engine), reason=reason, by=by
        )
        return await self._do(protocol)

    async def rollback(
        self,
        *,
        source: str | None = None,
        since: When | None = None,
        run: str | None = None,
        writer: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> RolledBack:
        """Undo what came from a bad source, run or writer, recorded since a time, or ever.

        >>> print(await agent.memory.rollback(source="web", since="2026-05-01"))
        withdrew 2 memories; 1 count again

        These memories, and what was made of them, do not count any more; what they had replaced does again. They can
        still be read, with `list(all=True)` and `history`: `forget` erases.
        """
        bad = Bad(
            given.read_name(source, "source"),
            given.read_name(run, "run"),
            given.read_name(writer, "writer"),
            given.read_when(since, "since"),
        )
        if not (bad.source or bad.run or bad.writer):
            raise TypeError("say whose: source=, run= or writer=")
        return await self._do(rollback(self._engine, bad, reason, by))

    async def contradictions(
        self, *, about: str | None = None, user: str | None = None
    ) -> builtins.list[tuple[Memory, Memory]]:
        """Pairs of memories that count and may say the opposite of each other, the older one first."""
        names = given.read_name(about, "about"), given.read_name(user, "user")
        return await self._read(lambda: reading.contradictions(self._engine, *names))

    async def consolidate(
        self,
        summarise: consolidating.Summarise | None = None,
        *,
        older_than: Duration = "7d",
        user: str | None = None,
        about: str | None = None,
    ) -> builtins.list[Memory]:
        """Make semantic memories of what happened long enough ago, week by week; returns them.

        >>> await agent.memory.consolidate(summarise=ask_the_model, older_than="14d")

        `summarise` gets the texts of a week, in their order, and gives a text, a list of texts, or None for nothing.
        A call of a model is best a step of the run around it. Without one, the few texts are kept that say most of
        what all of them say. Each new memory links to what it came from, and is trusted no more than that. What
        happened stays, and is not taken twice: interrupted, the next call goes on.
        """
        names = given.read_name(user, "user"), given.read_name(about, "about")
        seconds = seconds_of(older_than, "older_than")
        if summarise is not None and not callable(summarise):
            raise TypeError(f"summarise={summarise!r}: give a function that makes a text of texts")
        made = list[Memory]()
        for group in await self._read(lambda: consolidating.groups(self._engine, seconds, *names)):
            said = (summarise or consolidating.essence)(group.texts)
            # unasync: async-only
            if inspect.isawaitable(said):
                said = await said
            # unasync: end
            said = plain(said, summarise or consolidating.essence)
            made += await self._do(keeping.remember(self._engine, consolidating.wishes(group, said)))
        return made

    async def retain(self, kind: str = "*", *, keep_days: float | None = None, max_items: int | None = None) -> None:
        """How long memories are kept, of one kind or of all; `agent.gc()` applies it, and archives what goes.

        >>> await agent.memory.retain("episodic", keep_days=90, max_items=10_000)

        Days count from when it was recorded or last recalled. Beyond `max_items` those of least worth go: importance
        and use, halved with every month that nobody asks. What has importance 1 stays. Without days and number the
        rule is taken back.
        """
        which = kind if kind == ALL else given.read_kind(kind)
        days = None if keep_days is None else given.read_days(keep_days)
        count = None if max_items is None else given.read_count(max_items, "max_items")
        await self._do(retaining.retain(self._engine, which, days, count))

    async def retention(self) -> builtins.list[MemoryRetention]:
        """The rules, by kind."""
        return await self._read(lambda: retaining.retention(self._engine))

    @property
    def embedder(self) -> Embedder | None:
        """What reads memories and questions: the best that is installed, unless you set another; None is words alone.

        >>> agent.memory.embedder = my_function     # from a list of texts to a row of numbers for each
        """
        return embedders.embedder_in(self._engine)

    @embedder.setter
    def embedder(self, given: Any) -> None:
        embedders.use(self._engine, given)

    @property
    def vectors(self) -> VectorIndex | None:
        """A vector database beside the store that finds memories by their meaning; None is the store itself."""
        return self._engine.vectors

    @vectors.setter
    def vectors(self, given: VectorIndex | None) -> None:
        self._engine.vectors = given

    async def reembed(self, progress: Callable[[int, int], None] | None = None) -> Reembedded:
        """Have the embedder read every memory that it has not read yet, and drop the vectors of others.

        It happens by itself, in the background, after the embedder has changed. `progress` is told how many pieces of
        memory are done, and how many there are.
        """
        return await self._do(reembedding.reembed(self._engine, progress))


def _query(
    kind: str | None,
    about: str | None,
    user: str | None,
    tags: str | Iterable[str],
    source: str | None,
    since: When | None,
    until: When | None,
    as_of: When | None,
    known_at: When | None,
    min_trust: float | str,
    all: bool = False,
) -> Query:
    return Query(
        kind=given.read_kind(kind, empty=True),
        about=given.read_name(about, "about"),
        user=given.read_name(user, "user"),
        source=given.read_name(source, "source"),
        tags=given.read_tags(tags),
        since=given.read_when(since, "since") or -EVER,
        until=given.read_until(until, "until") or EVER,
        as_of=given.read_at(as_of, "as_of"),
        known_at=given.read_at(known_at, "known_at"),
        min_trust=given.read_trust(min_trust, "min_trust"),
        all=all,
    )
