"""`PerdureStore` against LangGraph's own store, and what that one does not have."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.config import get_store
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from typing_extensions import TypedDict

from perdure import Agent, AsyncAgent
from perdure.adapters.langgraph import PerdureStore
from perdure.data import namespaces, state
from perdure.data.search import vectors
from perdure.errors import VersionConflict
from perdure.journal import rebuild
from perdure.kernel.engine import Engine
from perdure.kernel.protocol import drive_sync
from perdure.platform.failpoints import CommitMoment, Site
from perdure.values.clock import SystemClock
from tests.conformance.kit import Behind, agent_at, kill_at

ANIMALS = ("fish", "cat", "dog", "bird")


def embed(texts: Any) -> list[list[float]]:
    """A model that knows four animals, by whatever name."""
    other = {"salmon": "fish", "kitten": "cat", "puppy": "dog", "sparrow": "bird"}
    plain = [" ".join(other.get(word, word) for word in text.lower().split()) for text in texts]
    return [[float(text.count(animal)) for animal in ANIMALS] for text in plain]


async def embed_later(texts: Any) -> list[list[float]]:
    return embed(texts)


BY_MEANING: dict[str, Any] = {"embed": embed, "dims": 4, "fields": ["text"]}


def search_keys(store: PerdureStore, query: str, prefix: tuple[str, ...] = (), **options: Any) -> list[str]:
    return [item.key for item in store.search(prefix, query=query, **options)]


def check_views(agent: Agent) -> None:
    """The views are what the journal says, and what can be found is what is there."""
    store = agent._engine.store
    assert rebuild.check(store) == []
    entries = {row[1:3]: row[4] for row in store.read("all_agent_state") if row[3]}
    documents = store.read("documents_page", (0, 1000))
    assert all(entries.get(tuple(row[3:5])) == row[6] for row in documents)
    with Behind(store.url if store.one_host else agent._engine.url) as behind:
        column = "rowid" if store.one_host else "document"
        words = {number for (number,) in behind.execute(f"SELECT {column} FROM document_words")}
    assert words == {row[0] for row in documents if row[-1]}


# -- as LangGraph has it ----------------------------------------------------------------------------------------------

LABELS = st.sampled_from(
    ["a", "b", "a_b", "aXb", "a%", "user-1", "user-10", "*", "é", "a/b", " ", "A", "-", "\U0010ffff"]
)
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "K", "k%", "k_", "kk", ""])
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3), "s": st.sampled_from(["x", "y", "%", "' OR 1=1 --"])},
    optional={"d": st.fixed_dictionaries({"e": st.integers(0, 2)}), "l": st.lists(st.integers(0, 1), max_size=2)},
)
FILTERS = st.none() | st.sampled_from(
    [
        {"n": 1},
        {"s": "%"},
        {"s": {"$ne": "x"}, "n": {"$gte": 0}},
        {"n": {"$gt": -2, "$lt": 2}},
        {"n": {"$lte": "1"}},
        {"d": {"e": 1}},
        {"d": {"e": {"$gte": 0, "$ne": None}}, "n": {"$eq": 2}},
        {"d": {"$eq": {"e": 1}}},
        {"l": [0, 1]},
        {"l": None},
        {"' OR 1=1 --": 1},
    ]
)
CONDITIONS = st.tuples(st.sampled_from(["prefix", "suffix"]), st.lists(LABELS, max_size=2).map(tuple)).map(
    lambda arguments: MatchCondition(*arguments)
)
LISTS = st.tuples(st.lists(CONDITIONS, max_size=2).map(tuple), st.none() | st.integers(1, 3), st.integers(0, 9))
OPS = st.one_of(
    st.tuples(NAMESPACES, KEYS, VALUES | st.none()).map(lambda arguments: PutOp(*arguments)),
    st.tuples(NAMESPACES, KEYS, VALUES).map(lambda arguments: PutOp(*arguments)),
    st.tuples(NAMESPACES, KEYS).map(lambda arguments: GetOp(*arguments)),
    st.tuples(NAMESPACES | st.just(()), FILTERS, st.just(1000)).map(lambda arguments: SearchOp(*arguments)),
    LISTS.map(lambda arguments: ListNamespacesOp(*arguments)),
)
_names = itertools.count()


def strip_times(result: Any) -> Any:
    if isinstance(result, list):
        return sorted(map(strip_times, result), key=repr)
    return (result.namespace, result.key, result.value) if hasattr(result, "namespace") else result


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=12))
def test_batches_do_what_they_do_in_langgraphs_own_store(store_url: str, batches: list[list[Any]]) -> None:
    model = InMemoryStore()
    engine = Engine(f"model-{next(_names)}", store=store_url)
    store = PerdureStore(Agent("unused", store=store_url))
    store._engine = engine
    for batch in batches:
        # It lists namespaces in which nothing is any more, and those that somebody has only asked for.
        model._data = defaultdict(dict, {name: items for name, items in model._data.items() if items})
        listed = {place: model.batch([op])[0] for place, op in enumerate(batch) if isinstance(op, ListNamespacesOp)}
        theirs, ours = model.batch(batch), store.batch(batch)
        for place, op in enumerate(batch):
            if isinstance(op, ListNamespacesOp):
                assert ours[place] == listed[place]
            else:
                assert strip_times(ours[place]) == strip_times(theirs[place])
    everything = SearchOp((), None, 10_000)
    assert strip_times(store.batch([everything])) == strip_times(model.batch([everything]))


def test_the_langgraph_store_is_the_state_of_the_agent(store_url: str) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent)
    store.put(("users", "ann"), "diet", {"text": "no fish", "since": (1, 2)})
    assert agent.state.get("users.ann", "diet") == {"text": "no fish", "since": (1, 2)}
    agent.state.set("crawl", "page", 3)
    assert store.get(("crawl",), "page").value == {"value": 3}
    first = store.get(("users", "ann"), "diet")
    while datetime.now(UTC) < first.updated_at + timedelta(milliseconds=1):
        pass  # times are kept to the millisecond
    store.put(("users", "ann"), "diet", {"text": "fish"})
    second = store.get(("users", "ann"), "diet")
    assert first.created_at == first.updated_at == second.created_at < second.updated_at
    before = agent.state.revision("users.ann")
    store.batch([PutOp(("users", "ann"), str(n), {"n": n}) for n in range(5)])
    assert [item.key for item in store.search(("users",), limit=2)] == ["0", "1"]
    assert [item.key for item in store.search(("users",), limit=2, offset=5)] == ["diet"]
    entries = {row[2:4] for row in agent._engine.store.read("all_state_history")}
    assert agent.state.revision("users.ann") == before + 5 and len(entries) == 8
    agent.gc()  # what Perdure keeps for itself is nobody's memory
    agent.checkpoint.retain("c", keep_last=3)
    assert store.list_namespaces() == [("crawl",), ("users", "ann")]
    for call in (lambda: store.get(("perdure:retention",), "c"), lambda: store.put(("perdure:x",), "k", {})):
        with pytest.raises(InvalidNamespaceError, match="reserved"):
            call()
    check_views(agent)


@pytest.mark.parametrize("index", [None, {"words": True}, {**BY_MEANING, "words": False}])
def test_namespaces_that_begin_alike_are_others(store_url: str, index: Any) -> None:
    store = PerdureStore(agent_at(store_url), index=index)
    labels = ("a", "a%", "a b", "a-b", "a_b", "aXb", "A", "ab", "a/", "user-1", "user-10")
    store.batch([PutOp((label, "x"), label, {"text": "a fish"}) for label in labels])
    query = "fish" if index else None
    for label in labels:
        assert [item.key for item in store.search((label,), query=query)] == [label]
        assert store.list_namespaces(prefix=(label,)) == [(label, "x")]


def test_versions_history_and_compare_and_set(store_url: str) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent)
    at = ("jobs",), "leader"
    assert store.version(*at) == 0
    assert store.put_if(*at, {"who": "a"}, 0) == 1
    with pytest.raises(VersionConflict):
        store.put(*at, {"who": "b"}, if_version=0)
    assert asyncio.run(store.aput_if(*at, {"who": "b"}, 1)) == 2
    store.delete(*at)
    assert store.version(*at) == 0 and store.put_if(*at, {"who": "c"}, 0) == 4
    assert [(version.version, version.value, version.deleted) for version in store.history(*at)] == [
        (1, {"who": "a"}, False),
        (2, {"who": "b"}, False),
        (3, None, True),
        (4, {"who": "c"}, False),
    ]
    assert asyncio.run(store.ahistory(*at)) == store.history(*at)


def test_what_is_wrong_is_told(store_url: str) -> None:
    store = PerdureStore(agent_at(store_url))
    store.put(("a",), "k", {"n": 1, "when": None})
    assert store.search((), filter={"when": {"$gt": 1}}) == []
    for wrong, told in (
        ({"n": {"$gtt": 1}}, r"'\$gtt'; did you mean '\$gt'\? \(supported: \$eq, \$ne, \$gt, \$gte, \$lt, \$lte\)"),
        ({"$gt": 1}, "where a key is expected"),
        ({"n": {"$lt": [1]}}, "a number, a str or a date"),
        ({"n": {"$eq": 1, "x": 2}}, "unknown operator 'x'"),
        ("n", "a dict of keys"),
    ):
        with pytest.raises(ValueError, match=told):
            store.search((), filter=wrong)
    with pytest.raises(ValueError, match="'field'; did you mean 'fields'"):
        PerdureStore(store_url, index={"field": ["x"]})
    with pytest.raises(ValueError, match="dims"):
        PerdureStore(store_url, index={"embed": embed})
    with pytest.raises(ValueError, match="did you mean 'default_ttl'"):
        PerdureStore(store_url, ttl={"defaultttl": 1})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match="4 numbers, but the index has dims=3"):
        PerdureStore(store_url, index={"embed": embed, "dims": 3}).put(("a",), "k", {"text": "fish"})
    with pytest.raises(TypeError, match="a dict, not list"):
        store.put(("a",), "k", [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive number"):
        store.put(("a",), "k", {}, ttl=-1)
    with pytest.warns(UserWarning, match="no index"):
        assert search_keys(store, "anything") == ["k"]


# -- time to live -----------------------------------------------------------------------------------------------------


class Later(SystemClock):
    """A clock that tests move."""

    minutes = 0.0

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + int(self.minutes * 60_000)


def test_items_live_as_long_as_somebody_reads_them(store_url: str) -> None:
    clock = Later()
    agent = Agent("tester", store=store_url)
    agent._engine = engine = Engine("tester", store=store_url, clock=clock)
    agent.state._engine = engine
    store = PerdureStore(agent, ttl={"default_ttl": 10, "refresh_on_read": True}, index={"words": True})
    with closing(engine):
        store.put(("a",), "read", {"text": "one"})
        store.put(("a",), "left", {"text": "one"})
        store.put(("a",), "ever", {"text": "one"}, ttl=None)
        store.put(("a",), "looked", {"text": "one"}, ttl=20)
        for clock.minutes in (6.0, 12.0):
            assert store.get(("a",), "read") is not None
            assert store.get(("a",), "looked", refresh_ttl=False) is not None
        assert store.get(("a",), "left") is None
        assert {item.key for item in store.search(("a",), refresh_ttl=False)} == {"read", "ever", "looked"}
        assert set(search_keys(store, "one", refresh_ttl=False)) == {"read", "ever", "looked"}
        revision = agent.state.revision("a")
        assert store.get(("a",), "read") is not None and agent.state.revision("a") == revision  # just prolonged
        assert (store.version(("a",), "read"), len(store.history(("a",), "read"))) == (1, 1)
        assert store.get(("a",), "read").updated_at.timestamp() * 1000 == clock.wall_ms() - 12 * 60_000
        assert agent.state.at(store.history(("a",), "read")[0].at).get("a", "read") == {"text": "one"}
        check_views(agent)
        clock.minutes = 21.0
        assert store.get(("a",), "looked") is None and store.get(("a",), "read") is not None
        clock.minutes = 31.5
        assert store.list_namespaces() == [("a",)] and [item.key for item in store.search(())] == ["ever"]
        assert store.start_ttl_sweeper().result() is None and store.stop_ttl_sweeper()
        assert store.sweep_ttl() == 3 and len(engine.store.read("documents_page", (0, 100))) == 1
        check_views(agent)


def test_a_reader_takes_nothing_back(store_url: str) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent)
    store.put(("a",), "k", {"n": 1}, ttl=60)
    read = namespaces.read_keys(agent._engine, [("a", "k")])["a", "k"]
    [ask] = namespaces.extend_expiries(agent._engine, [msgspec.structs.replace(read, expires=read.expires - 10**6)])
    store.put(("a",), "k", {"n": 2}, ttl=60)
    assert drive_sync(agent._engine.store, state.change(agent._engine, [ask])) == []
    assert store.get(("a",), "k").value == {"n": 2} and store.version(("a",), "k") == 2
    check_views(agent)


# -- searching --------------------------------------------------------------------------------------------------------


def test_what_has_changed_is_found_by_what_it_is_now(store_url: str) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent, index=BY_MEANING)
    for user, text in (("ann", "likes fish"), ("bob", "has a dog"), ("cy", "feeds a bird")):
        store.put(("users", user), user, {"text": text, "n": len(text)})
    store.put(("users_x",), "leak", {"text": "salmon salmon"})
    store.put(("users", "dan"), "hidden", {"text": "salmon"}, index=False)
    store.put(("users", "eve"), "parts", {"pets": [{"is": "kitten"}, {"is": "puppy"}]}, index=["pets[*].is"])
    assert search_keys(store, "salmon", ("users",))[0] == "ann"
    assert search_keys(store, "puppy", ("users",))[:2] in (["parts", "bob"], ["bob", "parts"])
    assert store.search(("users",), query="dog")[0].score == pytest.approx(1.0)
    assert (
        search_keys(store, "a salmon", ("users",), filter={"n": {"$gt": 10}})[0] == "cy"
    )  # the only one with the word
    store.put(("users", "ann"), "ann", {"text": "likes a dog"})
    store.delete(("users", "bob"), "bob")
    agent.state.set("users.cy", "cy", {"text": "plain Python was here"})
    hits = store.search(("users",), query="bird dog fish")
    assert {item.key for item in hits} == {"ann", "parts"} and hits[0].value == {"text": "likes a dog"}
    agent.state.revert(1, ns="users.ann")
    assert "ann" not in search_keys(store, "dog", ("users",)), (
        "what was brought back has no index, rather than a wrong one"
    )
    other = PerdureStore(agent, index={"embed": embed_later, "dims": 4, "fields": ["text"], "embedder": "another"})
    assert {item.key for item in asyncio.run(other.asearch((), query="puppy"))} == {"parts"}, "found by words alone"
    asyncio.run(other.aput(("users", "ann"), "ann", {"text": "a sparrow"}))
    assert asyncio.run(other.asearch((), query="bird"))[0].key == "ann"
    check_views(agent)


def test_words_alone_rank_by_rarity_and_survive_a_copy(store_url: str, tmp_path: Any) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent, index={"words": True, "fields": ["text"]})
    texts = {n: f"the report of day {n} is about the weather" for n in range(12)}
    texts[7] = "the report of Zürich is about Zurich's 天気"
    store.batch([PutOp(("logs",), str(n), {"text": text}) for n, text in texts.items()])
    assert search_keys(store, "the ZURICH report")[0] == "7" and search_keys(store, "天気") == ["7"]
    assert len(search_keys(store, "weather", limit=5, offset=9)) == 2 and search_keys(store, "'\" OR * NEAR(") == []
    rebuild.rebuild(agent._engine.store)
    path = str(tmp_path / "copy.db")
    agent._engine.store.backup(path)
    with pytest.warns(UserWarning, match="copy"), PerdureStore(path, agent="tester", index={"words": True}) as copy:
        assert search_keys(copy, "zürich") == ["7"]
    check_views(agent)


@pytest.mark.stores("sqlite")
def test_vectors_need_no_numpy(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "make_table", vectors.PlainVectorTable)
    test_what_has_changed_is_found_by_what_it_is_now(store_url)


@pytest.mark.parametrize(
    ("site", "moment"),
    [(Site.STATE, CommitMoment.WRITTEN), (Site.STATE, CommitMoment.AFTER), (Site.STEP_DONE, CommitMoment.WRITTEN)],
)
def test_a_killed_put_leaves_value_and_index_together(store_url: str, site: Site, moment: CommitMoment) -> None:
    store = PerdureStore(agent_at(store_url), index=BY_MEANING)
    store.put(("a",), "k", {"text": "a fish"})

    def program() -> None:
        agent = agent_at(store_url)
        doomed = PerdureStore(agent, index=BY_MEANING)
        if site is Site.STATE:
            doomed.put(("a",), "k", {"text": "a dog"})
            return
        with agent.run("r"):
            agent.step(lambda: doomed.put(("a",), "k", {"text": "a dog"}), name="put")()

    store._engine.close()
    kill_at(program, site, moment)
    agent = agent_at(store_url)
    store = PerdureStore(agent, index=BY_MEANING)
    text = store.get(("a",), "k").value["text"]
    assert text == ("a dog" if moment is CommitMoment.AFTER else "a fish")
    for word in ("fish", "dog"):
        assert store.search((), query=word)[0].score == pytest.approx(1.0 if word in text else 0.0)
    check_views(agent)


def test_a_put_lands_with_its_step_and_is_found_inside_it(store_url: str) -> None:
    agent = agent_at(store_url)
    store = PerdureStore(agent, index=BY_MEANING)
    store.put(("a",), "old", {"text": "a cat"})

    @agent.step(retries=0)
    def work(fails: bool) -> None:
        store.put(("b",), "new", {"text": "a dog"})
        store.put(("a",), "old", {"text": "two birds, bird"})
        assert search_keys(store, "dog")[0] == "new" and search_keys(store, "bird")[0] == "old"
        assert not any(item.score for item in store.search((), query="cat"))
        assert store.list_namespaces() == [("a",), ("b",)] and store.version(("b",), "new") == 1
        assert [item.key for item in store.search((), filter={"text": {"$ne": "x"}})] == ["old", "new"]
        store.delete(("a",), "old")
        assert store.list_namespaces() == [("b",)]
        if fails:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError), agent.run("r"):
        work(fails=True)
    assert search_keys(store, "cat") == ["old"] and store.list_namespaces() == [("a",)]
    with agent.run("s"):
        work(fails=False)
    assert store.list_namespaces() == [("b",)] and search_keys(store, "dog") == ["new"]
    check_views(agent)


# -- in a graph -------------------------------------------------------------------------------------------------------


class Visits(TypedDict):
    user: str
    seen: int


def test_a_graph_remembers_over_threads_and_processes(store_url: str) -> None:
    def visit(state: Visits, runtime: Runtime[Any]) -> dict[str, int]:
        assert runtime.store is get_store()
        before = get_store().get(("visits", state["user"]), "count")
        seen = (before.value["n"] if before else 0) + 1
        runtime.store.put(("visits", state["user"]), "count", {"n": seen})
        return {"seen": seen}

    async def visit_later(state: Visits, runtime: Runtime[Any]) -> dict[str, int]:
        before = await runtime.store.aget(("visits", state["user"]), "count")
        await runtime.store.aput(("visits", state["user"]), "count", {"n": before.value["n"] + 1})
        return {"seen": before.value["n"] + 1}

    def graph(node: Any, store: PerdureStore) -> Any:
        builder = StateGraph(Visits)
        builder.add_node("visit", node)
        builder.add_edge(START, "visit").add_edge("visit", END)
        return builder.compile(store=store)

    with PerdureStore(store_url) as store:
        compiled = graph(visit, store)
        assert [compiled.invoke({"user": "ann", "seen": 0})["seen"] for _ in range(3)] == [1, 2, 3]
    agent = AsyncAgent("langgraph", store=store_url)
    later = graph(visit_later, PerdureStore(agent))

    async def main() -> list[int]:
        users = [f"u{n}" for n in range(4)]
        async_store = PerdureStore(agent)
        await async_store.abatch([PutOp(("visits", user), "count", {"n": 0}) for user in users])
        results = await asyncio.gather(*(later.ainvoke({"user": user, "seen": 0}) for user in users))
        results.append(await later.ainvoke({"user": "ann", "seen": 0}))
        return [result["seen"] for result in results]

    assert asyncio.run(main()) == [1, 1, 1, 1, 4]
    assert Agent("langgraph", store=store_url).state.get("visits.ann", "count") == {"n": 4}
