"""`agent.checkpoint`: named snapshots that share what they have in common, and are never touched again."""

from __future__ import annotations

import contextvars
import copy
import random
from typing import Any

import pytest

from perdure import AsyncAgent
from perdure.errors import CheckpointNotFound, NotStorable
from perdure.journal.object_gc import collect
from perdure.journal.trees.split import TreeBuilder
from perdure.platform.failpoints import CommitMoment, Site

from .kit import Behind, agent_at, check_views, die, kill_at, run_in_child


def noise(number: int, size: int = 1024) -> str:
    """Text that does not compress much."""
    return random.Random(number).randbytes(size * 3 // 4).hex()[:size]


def count_stored_bytes(agent: Any) -> int:
    """What all objects and entries of a store take."""
    store = agent._engine.store
    streams = [store.read("journal_of", (stream, 0)) for stream, *_ in store.read("all_streams")]
    entries = sum(len(body or b"") + 80 for rows in streams for _, _, _, body, _, _ in rows)
    return entries + sum(size + 60 for _, _, size in store.read("all_objects"))


def test_what_was_kept_comes_back_in_another_process(store_url: str) -> None:
    data = {"progress": 0.3, "next_action": "read page 31", "pages": [(n, noise(n)) for n in range(30)], 1.5: {2}}

    def program() -> None:
        agent = agent_at(store_url)
        agent.checkpoint.create("analysis-30pct", data)

    assert run_in_child(program) == 0
    found = agent_at(store_url).checkpoint.restore("analysis-30pct")
    assert found == data
    check_views(store_url)


def test_the_keys_of_a_dict_are_attributes(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("c", {"next_action": "read", "items": 3})
    found = agent.checkpoint.restore("c")
    assert found.next_action == found["next_action"] == "read"
    assert found["items"] == 3
    with pytest.raises(AttributeError, match="'next_action'"):
        found.next_step  # noqa: B018
    agent.checkpoint.create("again", found)
    agent.state.set("a", "k", [found])
    assert type(agent.state.get("a", "k")[0]) is dict
    assert agent.checkpoint.restore("again") == found
    found.next_action, found.page = "write", 31
    agent.checkpoint.create("again", found)
    assert agent.checkpoint.restore("again") == {"next_action": "write", "items": 3, "page": 31}
    del found.page
    assert "page" not in found
    for wrong in (lambda: setattr(found, "items", 4), lambda: delattr(found, "page")):
        with pytest.raises(AttributeError, match=r"attribute of every dict|no key"):
            wrong()
    agent.checkpoint.create("list", [1, (2,)])
    assert agent.checkpoint.restore("list") == [1, (2,)]


def test_a_body_sees_what_it_has_made_and_deleted(store_url: str) -> None:
    agent = agent_at(store_url)
    kept = {"pages": [noise(n) for n in range(30)], "n": 1}
    agent.checkpoint.create("c", kept)
    other = agent_at(store_url)

    def body() -> list[Any]:
        data = {**kept, "n": 2}
        assert agent.checkpoint.create("c", data, labels=["new"], meta={"by": "body"}) == 0
        data["n"] = 3
        assert agent.checkpoint.restore("c") == {**kept, "n": 2}, "a copy, as always"
        assert agent.checkpoint.restore("c", version=1) == kept and agent.checkpoint.restore("c", version=0).n == 2
        assert [str(change) for change in agent.checkpoint.diff(("c", 1), "c")] == ["~ .n: 1 -> 2"]
        [found] = agent.checkpoint.list(label="new")
        assert (found.name, found.version, found.meta) == ("c", 0, {"by": "body"})
        agent.checkpoint.delete("c", version=1)
        with pytest.raises(CheckpointNotFound, match="'c'"):
            agent.checkpoint.restore("c", version=1)
        return [[checkpoint.version for checkpoint in agent.checkpoint.list()], agent.checkpoint.restore("c").n]

    with agent.run("r") as run:
        assert run.step(body, name="body") == [[0], 2]
    assert [(checkpoint.name, checkpoint.version, checkpoint.labels) for checkpoint in other.checkpoint.list()] == [
        ("c", 2, ("new",))
    ]
    with agent.run("s") as run:
        for _ in run.each([1]):
            agent.checkpoint.delete("c")
            with pytest.raises(CheckpointNotFound, match="has no checkpoint 'c'"):
                agent.checkpoint.restore("c")
            run.checkpoint("c", "again")
            assert (
                agent.checkpoint.restore("c") == run.step(lambda: agent.checkpoint.restore("c"), name="in") == "again"
            )
            assert contextvars.Context().run(other.checkpoint.restore, "c").n == 2, "nobody else does"
    assert [checkpoint.version for checkpoint in agent.checkpoint.list()] == [3]
    check_views(store_url)


def test_what_cannot_be_meant_is_told(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("x", 1)
    with pytest.raises(CheckpointNotFound, match=r"checkpoint 'x' has no version 0 \(existing versions: 1\)"):
        agent.checkpoint.restore("x", version=0)
    with pytest.raises(CheckpointNotFound, match="has no version 1000"):
        agent.checkpoint.restore("x", version=10**30)
    with pytest.raises(TypeError, match=r"by a str or by \(name, version\), not by \('x', 1, 2\)"):
        agent.checkpoint.diff(("x", 1, 2), "x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the name of a checkpoint must not be empty"):
        agent.checkpoint.create("", 1)


def test_a_key_that_is_no_text_takes_nothing_from_the_others(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("m", {"a": 1, 7: "x"})
    found = agent.checkpoint.restore("m")
    assert (found.a, found[7]) == (1, "x")
    with pytest.raises(AttributeError, match="the keys are 'a', 7"):
        found.b  # noqa: B018
    del found[7]
    agent.checkpoint.create("m", found)
    assert [str(change) for change in agent.checkpoint.diff(("m", 1), "m")] == ["- [7]: 'x'"]
    assert [str(change) for change in agent.checkpoint.diff("m", ("m", 1))] == ["+ [7]: 'x'"]


def test_older_versions_are_not_touched(store_url: str) -> None:
    agent, value, kept = agent_at(store_url), {"log": list[str]()}, []
    for number in range(12):
        value["log"].append(noise(number, 700))
        if number % 3 == 2:
            value["log"][number // 2] = "edited in place"
        kept.append(copy.deepcopy(value))
        assert agent.checkpoint.create("c", value) == number + 1
    for version, then in enumerate(kept, start=1):
        assert agent.checkpoint.restore("c", version) == agent.checkpoint.restore(("c", version)) == then
    assert agent.checkpoint.restore("c") == kept[-1]
    check_views(store_url)


def test_a_name_that_is_not_there_says_which_are(store_url: str) -> None:
    agent = agent_at(store_url)
    with pytest.raises(CheckpointNotFound, match=r"checkpoint\.create"):
        agent.checkpoint.restore("analysis")
    agent.checkpoint.create("analysis-30pct", 1)
    with pytest.raises(CheckpointNotFound, match="'analysis-30pct'"):
        agent.checkpoint.restore("analysis-3pct")
    with pytest.raises(CheckpointNotFound, match=r"version 2 \(existing versions: 1\)"):
        agent.checkpoint.restore("analysis-30pct", 2)
    with pytest.raises(NotStorable, match=r"checkpoint 'c'\.a\[1\]"):
        agent.checkpoint.create("c", {"a": [1, object()]})


def test_a_default_stands_for_a_checkpoint_that_is_not_there(store_url: str) -> None:
    agent = agent_at(store_url)
    begin = {"page": 0, "next_action": "read page 1"}
    work = agent.checkpoint.restore("crawl", default=begin)
    work.page += 1
    assert (work.page, work.next_action, begin["page"]) == (1, "read page 1", 0)
    assert agent.checkpoint.restore("crawl", default=None) is None
    agent.checkpoint.create("crawl", work)
    assert agent.checkpoint.restore("crawl", default=begin).page == 1
    assert agent.checkpoint.restore("crawl", version=7, default=begin).page == 0
    with pytest.raises(CheckpointNotFound):
        agent.checkpoint.restore("crawl", version=7)


def test_they_are_listed_with_labels_and_notes(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("a", 1, labels=["good", "tested"], meta={"cost": 1.5})
    agent.checkpoint.create("b", 2)
    agent.checkpoint.create("a", 3, meta=list(range(9000)))
    assert [
        (checkpoint.name, checkpoint.version, checkpoint.labels, checkpoint.meta)
        for checkpoint in agent.checkpoint.list()
    ] == [
        ("a", 1, ("good", "tested"), {"cost": 1.5}),
        ("b", 1, (), None),
        ("a", 2, (), list(range(9000))),
    ]
    assert [checkpoint.version for checkpoint in agent.checkpoint.list(label="good")] == [1]
    assert agent_at(store_url, "other").checkpoint.list() == []
    check_views(store_url)


def test_what_is_deleted_is_gone_and_frees_its_place(store_url: str) -> None:
    agent = agent_at(store_url)
    value = [noise(number) for number in range(50)]
    agent.checkpoint.create("c", value)
    agent.checkpoint.create("c", [*value, noise(99)])
    agent.checkpoint.create("d", [noise(7_000 + number) for number in range(50)])
    store: Any = agent._engine.store
    assert collect(store).bytes == 0
    assert agent.checkpoint.delete("d") == 1
    assert agent.checkpoint.delete("d") == 0
    assert collect(store).bytes > 20_000
    assert agent.checkpoint.delete("c", version=1) == 1
    collect(store)
    assert agent.checkpoint.restore("c") == [*value, noise(99)]
    with pytest.raises(CheckpointNotFound):
        agent.checkpoint.restore("c", 1)
    assert agent.checkpoint.create("d", 1) == 2, "a number is not given again"
    check_views(store_url)


def test_the_next_one_does_not_rely_on_what_was_deleted_elsewhere(store_url: str) -> None:
    agent = agent_at(store_url)
    value = [noise(number) for number in range(50)]
    agent.checkpoint.create("c", value)

    def elsewhere() -> None:
        other = agent_at(store_url)
        assert other.checkpoint.delete("c") == 1
        store: Any = other._engine.store
        assert collect(store).bytes > 0

    assert run_in_child(elsewhere) == 0
    value.append("more")
    assert agent.checkpoint.create("c", value) == 2
    assert agent.checkpoint.restore("c") == value
    check_views(store_url)


def test_a_difference_is_told_path_by_path(store_url: str) -> None:
    agent = agent_at(store_url)
    value: dict[str, Any] = {"pages": [noise(n) for n in range(40)], "status": {"done": 3, "failed": 0}, "old": 1}
    agent.checkpoint.create("c", value)
    value["status"]["done"] = 4
    value["pages"].insert(0, "new first page")
    del value["old"]
    agent.checkpoint.create("c", value)
    found = {
        (change.path, change.kind): (change.before, change.after) for change in agent.checkpoint.diff(("c", 1), "c")
    }
    assert found == {
        (".status.done", "changed"): (3, 4),
        (".pages[0]", "added"): (None, "new first page"),
        (".old", "removed"): (1, None),
    }
    lines = sorted(map(str, agent.checkpoint.diff(("c", 1), "c")))
    assert lines == ["+ .pages[0]: 'new first page'", "- .old: 1", "~ .status.done: 3 -> 4"]
    assert agent.checkpoint.diff("c", "c") == []


# -- in a run ---------------------------------------------------------------------------------------------------------


def test_in_a_run_it_is_made_once(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:
            for share in (1, 2):
                run.checkpoint("half", {"done": [noise(share)] * 10})
            run.step(lambda: None, name="after")

    kill_at(program, Site.STEP_DONE, CommitMoment.BEFORE)
    program()
    program()
    agent = agent_at(store_url)
    assert [checkpoint.version for checkpoint in agent.checkpoint.list()] == [1, 2]
    assert agent.checkpoint.restore("half", 2) == {"done": [noise(2)] * 10}
    check_views(store_url)


def test_it_lands_with_the_step_or_the_item_or_not_at_all(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(fails: bool) -> None:
        assert agent.checkpoint.create("in a step", {"large": [noise(n) for n in range(20)]}) == 0
        agent.state.set("a", "k", 1)
        if fails:
            raise ValueError

    with agent.run("r") as run:
        with pytest.raises(ValueError):  # noqa: PT011
            work(True)
        assert agent.checkpoint.list() == []
        work(False)
        assert agent.checkpoint.restore("in a step").large[19] == noise(19)
        for item in run.each(["a", "b"]):
            run.checkpoint("in an item", item)
            if item == "b":
                break
    assert agent.checkpoint.restore("in an item") == "a"
    check_views(store_url)


def test_killed_around_it_is_there_or_not(store_url: str) -> None:
    def program() -> None:
        agent_at(store_url).checkpoint.create("c", [noise(n) for n in range(20)])

    expected = 0
    for moment in CommitMoment:
        kill_at(program, Site.CHECKPOINT, moment)
        expected += moment is CommitMoment.AFTER
        assert len(agent_at(store_url).checkpoint.list()) == expected
    check_views(store_url)


def test_a_state_object_of_ones_own_is_saved_now_and_then(store_url: str) -> None:
    def program(stop: int) -> None:
        agent = agent_at(store_url)
        try:
            state = dict(agent.checkpoint.restore("crawl"))
        except CheckpointNotFound:
            state = {"page": 0, "seen": []}
        with agent.autosave(lambda: state, every=10, name="crawl") as saver:
            while state["page"] < 47:
                state["page"] += 1
                state["seen"].append(state["page"])
                saver.tick()
                if state["page"] == stop:
                    die()

    assert run_in_child(lambda: program(stop=34)) != 0
    assert agent_at(store_url).checkpoint.restore("crawl").page == 30
    program(stop=0)
    agent = agent_at(store_url)
    assert agent.checkpoint.restore("crawl").seen == list(range(1, 48))
    assert len(agent.checkpoint.list()) == 5
    with pytest.raises(ValueError, match="half"), agent.autosave(lambda: {"half": True}, every="5m") as saver:
        assert not saver.tick()
        raise ValueError("half way")
    assert len(agent.checkpoint.list()) == 5, "a state that may be half changed is not saved"
    with pytest.raises(ValueError, match="every"):
        agent.autosave(dict, every=0)
    with pytest.raises(TypeError, match='every=2.0: pass an int for ticks, or a duration such as "2s"'):
        agent.autosave(dict, every=2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="autosave needs a function that returns the state"):
        agent.autosave({"page": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        agent.autosave(dict, name="")


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_a_growing_conversation_is_stored_once(store_url: str) -> None:
    """A tenth of the bar of the design: 1,000 checkpoints of 1 KB more each in 3 MB."""
    agent, messages = agent_at(store_url), list[dict[str, str]]()
    for number in range(100):
        messages.append({"role": "user", "content": noise(number)})
        agent.checkpoint.create("conversation", messages)
    assert count_stored_bytes(agent) < 300_000
    assert agent.checkpoint.restore("conversation", 50) == messages[:50]


def test_a_conversation_is_stored_once_under_any_name(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving under a new name looks at the new message only, as saving again under the same name does."""
    put, hashed = TreeBuilder.put, list[bytes]()
    monkeypatch.setattr(TreeBuilder, "put", lambda split, data: hashed.append(put(split, data)) or hashed[-1])
    agent, messages = agent_at(store_url), list[dict[str, str]]()
    for number in range(100):
        messages.append({"role": "user", "content": noise(number)})
        hashed.clear()
        agent.checkpoint.create(f"c{number}", messages)
        assert len(hashed) < 20
    assert count_stored_bytes(agent) < 300_000
    messages[3]["content"] = "edited in place"
    agent.checkpoint.create("edited", messages)
    assert agent.checkpoint.restore("edited") == messages
    assert len(agent.checkpoint.restore("c50")) == 51
    check_views(store_url)


def test_another_name_does_not_rely_on_what_was_deleted_elsewhere(store_url: str) -> None:
    agent = agent_at(store_url)
    value = [noise(number) for number in range(50)]
    agent.checkpoint.create("d", [noise(number) for number in range(100, 120)])
    agent.checkpoint.create("c", value)

    def elsewhere() -> None:
        other = agent_at(store_url)
        assert other.checkpoint.delete("c") == 1
        assert collect(other._engine.store).bytes > 0

    assert run_in_child(elsewhere) == 0
    value.append("more")
    assert agent.checkpoint.create("d", value) == 2
    other = agent_at(store_url)
    assert other.checkpoint.restore("d") == value
    other.close()
    check_views(store_url)


def test_a_small_change_adds_little(store_url: str) -> None:
    agent = agent_at(store_url)
    table = {f"key-{number}": noise(number, 100) for number in range(5000)}
    pages = [noise(number) for number in range(300)]
    agent.checkpoint.create("table", table)
    agent.checkpoint.create("pages", pages)

    def added(name: str, value: Any) -> int:
        before = count_stored_bytes(agent)
        agent.checkpoint.create(name, value)
        return count_stored_bytes(agent) - before

    taken = []
    for number in range(100, 5000, 490):
        table[f"key-{number}"] = noise(9_000 + number, 100)
        taken.append(added("table", table))
    assert max(taken) <= 4 * 1024
    pages[150] = noise(1234)
    assert added("pages", pages) <= 12 * 1024
    pages.insert(0, noise(4321))
    assert added("pages", pages) <= 12 * 1024
    assert added("pages", pages) <= 1024, "the same again"
    assert agent.checkpoint.restore("table") == table
    assert agent.checkpoint.restore("pages") == pages
    check_views(store_url)


async def test_the_asynchronous_side_is_the_same(store_url: str) -> None:
    agent = AsyncAgent("async", store=store_url)
    assert await agent.checkpoint.create("c", {"a": 1}) == 1
    async with agent.run("r") as run:
        await run.checkpoint("c", {"a": 2})
    assert (await agent.checkpoint.restore("c")).a == 2
    assert [change.path for change in await agent.checkpoint.diff(("c", 1), "c")] == [".a"]
    assert await agent.checkpoint.delete("c", version=1) == 1
    assert [checkpoint.version for checkpoint in await agent.checkpoint.list()] == [2]
    await agent.close()


def test_checkpoints_of_one_millisecond_are_listed_in_the_order_that_they_were_made(store_url: str) -> None:
    agent = agent_at(store_url)
    for name in ("analysis-90pct", "analysis-100pct"):
        agent.checkpoint.create(name, 1)
    with Behind(store_url) as store:
        store.execute("UPDATE checkpoints SET at = 5")
    assert [checkpoint.name for checkpoint in agent.checkpoint.list()] == ["analysis-90pct", "analysis-100pct"]
    agent.close()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 30))])
def test_a_list_that_grows_and_shrinks_while_its_past_is_collected(store_url: str, seed: int) -> None:
    """The next checkpoint relies on the last version of some name, and on nothing before it: that may be gone."""
    chance, agent = random.Random(seed), agent_at(store_url)
    items: list[Any] = []
    for number in range(60):
        change = chance.random()
        if change < 0.6 or not items:
            sizes = [chance.choice([5, 300, 3_000, 40_000]) for _ in range(chance.choice([1, 1, 9]))]
            items += [chance.randbytes(size).hex() for size in sizes]
        elif change < 0.75:
            del items[chance.randrange(len(items)) :]
        elif change < 0.9:
            items[chance.randrange(len(items))] = {"at": number, "text": chance.randbytes(700).hex()}
        else:
            items.insert(0, number)
        name = f"list-{chance.randrange(3)}"
        agent.checkpoint.create(name, items, keep_last=1)
        if number % 4 == 0:
            agent.checkpoint.delete(f"list-{(int(name[-1]) + 1) % 3}")
        if number % 3 == 0:
            agent.gc()
            collect(agent._engine.store)
        other = agent_at(store_url)
        assert other.checkpoint.restore(name) == items
        other.close()
    check_views(store_url)


def test_an_element_that_comes_back_is_stored_again_when_its_old_version_is_gone(store_url: str) -> None:
    """A version may rely on objects of the version before it only: a collector takes those of older ones."""
    agent = agent_at(store_url)
    messages = [noise(number) for number in range(20)]
    for count in (18, 19, 20, 17, 18):  # the list shrinks, so that message 19 is in no stored version
        agent.checkpoint.create("list", messages[:count], keep_last=1)
    agent.gc()
    collect(agent._engine.store)
    agent.checkpoint.create("list", messages, keep_last=1)
    other = agent_at(store_url)
    assert other.checkpoint.restore("list") == messages
    other.close()
    check_views(store_url)
