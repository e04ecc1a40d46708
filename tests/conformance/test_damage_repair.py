"""What is written again over damage can be read: nothing is left out because its id is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent
from perdure.errors import ArtifactDamaged, PerdureError
from perdure.journal import objects

from .kit import Behind, agent_at, check_views
from .test_artifacts import MB, count_new_objects, noise

VALUE = [noise(1000, seed) for seed in range(50)]
LARGE = noise(30_000)

Try = Callable[[Agent], Any]


def hurt(store_url: str) -> None:
    """Flip a bit of every object."""
    with Behind(store_url) as raw:
        for identity, data in raw.execute("SELECT id, data FROM objects"):
            middle = len(data) // 2
            flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
            raw.execute("UPDATE objects SET data = ? WHERE id = ?", (flipped, identity))


def save_small(agent: Agent) -> None:
    agent.artifacts.save("a", noise(500_000))


def save_large(agent: Agent) -> None:
    agent.artifacts.save("a", noise(6 * MB))


def create(agent: Agent) -> None:
    agent.checkpoint.create("c", VALUE)


def put(agent: Agent) -> None:
    agent.state.set("s", "k", LARGE)


WAYS: list[tuple[Try, Try, Any]] = [
    (save_small, lambda agent: agent.artifacts.load("a"), noise(500_000)),
    (save_large, lambda agent: agent.artifacts.load("a"), noise(6 * MB)),
    (create, lambda agent: agent.checkpoint.restore("c"), VALUE),
    (put, lambda agent: agent.state.get("s", "k"), LARGE),
]


@pytest.mark.parametrize("anew", [False, True], ids=["by-who-has-seen-it", "by-another-process"])
@pytest.mark.parametrize(("write", "read", "value"), WAYS, ids=["small", "large", "checkpoint", "state"])
def test_written_again_over_damage_it_can_be_read(
    store_url: str, write: Try, read: Try, value: Any, anew: bool
) -> None:
    agent = agent_at(store_url)
    write(agent)
    hurt(store_url)
    if not anew:
        with pytest.raises(PerdureError, match=r"again$|changed|corrupt|unknown form"):
            read(agent)
    else:
        agent.close()
        agent = agent_at(store_url)  # which does not know what this process has written, nor that it is damaged
        objects._suspects.clear()
    write(agent)
    assert read(agent) == value
    check_views(store_url)


def test_older_versions_are_mended_too_and_what_is_sound_is_not_written(store_url: str) -> None:
    agent, data = agent_at(store_url), noise(6 * MB)
    agent.artifacts.save("a", data)
    with Behind(store_url) as raw:
        [(largest,)] = raw.execute("SELECT id FROM objects ORDER BY length(data) DESC, id LIMIT 1")
        raw.execute("UPDATE objects SET data = ? WHERE id = ?", (b"\1", largest))
    with pytest.raises(ArtifactDamaged, match=r"save it again"):
        agent.artifacts.load("a", 1)
    assert count_new_objects(agent, "a", data) == 0, "it is replaced, and not new"
    assert agent.artifacts.load("a", 1) == agent.artifacts.load("a", 2) == data


def test_the_next_checkpoint_does_not_rely_on_what_was_found_damaged(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.checkpoint.create("c", VALUE)
    hurt(store_url)
    with pytest.raises(PerdureError):
        agent.checkpoint.restore("c")
    assert objects.has_suspects()
    agent.checkpoint.create("c", VALUE)
    assert agent.checkpoint.restore("c") == VALUE
    assert not objects.has_suspects()
