"""`migrate` brings threads of another saver along: every checkpoint, branch and pending write, and they go on."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from perdure.adapters.langgraph import Migrated, migrate
from tests.adapters.feature_graphs import SCENES, asks, chain, says
from tests.adapters.saver_comparison import play_scene
from tests.adapters.savers import saver_at


def test_every_thread_comes_along(store_url: str) -> None:
    source = InMemorySaver()
    for scene in SCENES:
        play_scene(scene, source, "sync", scene.__name__)
    with saver_at(store_url) as saver:
        copied = migrate(source, saver)
        # As after an interruption: what is there is put to the same place again.
        assert migrate(source, saver, threads=["time_travel"]).threads == 1
        there, here = read_everything(source), read_everything(saver)
    assert here == there
    assert copied == Migrated(
        len({place[0] for place in there}), len(there), sum(len(found[3]) for found in there.values())
    )


def read_everything(saver: Any) -> dict[Any, Any]:
    return {
        tuple(one.config["configurable"].values()): (
            one.checkpoint,
            one.metadata,
            one.parent_config and one.parent_config["configurable"]["checkpoint_id"],
            # InMemorySaver has them as they came; other savers have interrupts and errors first.
            sorted(one.pending_writes, key=lambda write: write[:2]),
        )
        for one in saver.list(None)
    }


def test_a_thread_that_waits_goes_on(store_url: str) -> None:
    source, config = InMemorySaver(), {"configurable": {"thread_id": "waiting"}}
    builder = chain(("a", says("a")), ("ask", asks("what")), ("b", says("b")))
    builder.compile(checkpointer=source).invoke({"log": ["in"], "n": 0}, config)
    with saver_at(store_url) as saver:
        assert migrate(source, saver).threads == 1
        graph = builder.compile(checkpointer=saver)
        assert graph.get_state(config).next == ("ask",)
        assert graph.invoke(Command(resume="this"), config)["log"] == ["in", "a", "what=this", "b"]
