"""What people try first and Perdure calls otherwise: the error names what they want."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, AsyncAgent
from perdure.api import aio, sync
from perdure.errors import NotStorable, UnknownAttribute, WrongType, WrongValue
from perdure.values.synonyms import SYNONYMS


class Core:
    def __init__(self) -> None:
        self.memory: list[str] = []


@pytest.fixture
def agent(tmp_path: Any) -> Agent:
    return Agent("novice", store=tmp_path / "perdure.db")


@pytest.mark.parametrize(
    ("mistake", "wanted"),
    [
        (lambda agent: agent.memory.store("Ann likes tea"), "did you mean 'remember'?"),
        (lambda agent: agent.memory.retrieve("tea", top_k=3), "did you mean 'recall'?"),
        (lambda agent: agent.checkpoint.load("core"), "did you mean 'restore'?"),
        (lambda agent: agent.checkpoint.save("core", {}), "did you mean 'create'?"),
        (lambda agent: agent.checkpoint("core", {}), "agent.checkpoint.create(name, data)"),
        (lambda agent: agent.remember("Ann likes tea"), "did you mean 'memory.remember'?"),
        (lambda agent: agent.workflows.create("w", ["a"]).next_step(), "did you mean 'next_incomplete_step'?"),
        (lambda agent: agent.workflows.create("w", ["a"]).steps[0].__setitem__("status", "x"), "workflow.complete(1)"),
        (lambda agent: agent.events.emit("K"), "did you mean 'append'?"),
        (lambda agent: agent.state["page"], "agent.state.get(namespace, key, default)"),
        (lambda agent: agent.state.__setitem__("page", 31), "agent.state.set(namespace, key, value)"),
        (lambda agent: agent.state.get("page", 0), "the namespace comes first"),
        (lambda agent: agent.checkpoint.create("core", Core()), "make it a dataclass, store its data (vars(value))"),
        (lambda agent: agent.no_such_thing, "known: "),
    ],
)
def test_the_error_names_what_is_wanted(agent: Agent, mistake: Callable[[Any], Any], wanted: str) -> None:
    with pytest.raises((UnknownAttribute, WrongType, NotStorable)) as raised:
        mistake(agent)
    assert wanted in str(raised.value)


@pytest.mark.parametrize("name", SYNONYMS)
def test_each_synonym_leads_to_something(agent: Agent, name: str) -> None:
    for module, prefix in ((sync, ""), (aio, "Async")):
        cls = _class(module, prefix + name)
        for word, real in SYNONYMS[name].items():
            assert not hasattr(cls, word), f"{word} exists: it needs no hint"
            first, _, more = real.partition(".")
            found = getattr(cls, first) if hasattr(cls, first) else getattr(agent, first)
            assert not more or hasattr(getattr(agent, first), more), real
            assert found is not None


def _class(module: Any, name: str) -> type:
    import importlib
    import pkgutil

    for info in pkgutil.iter_modules(module.__path__, module.__name__ + "."):
        found = vars(importlib.import_module(info.name)).get(name)
        if found is not None and found.__module__ == info.name:
            return found
    raise AssertionError(f"{name} is not in {module.__name__}")


def test_those_who_probe_hear_a_plain_attribute_error(agent: Agent) -> None:
    assert not hasattr(agent, "_repr_html_") and not hasattr(agent.memory, "store")
    with pytest.raises(AttributeError, match="_ipython_display_") as raised:
        _ = agent._ipython_display_
    assert not isinstance(raised.value, perdure.PerdureError)
    assert copy.copy(agent.state) is not None


def test_an_error_inside_a_known_attribute_is_told_as_it_is() -> None:
    class Mine(AsyncAgent):
        @property
        def broken(self) -> Any:
            return [].no_such_thing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'list' object"):
        _ = Mine("mine", store="sqlite:///unused.db").broken


@pytest.mark.parametrize("item", [{"a": 1}, 1])
def test_a_loop_refuses_items_without_the_key(agent: Agent, item: object) -> None:
    with agent.run("r") as run, pytest.raises(WrongValue, match=r"run.each\(key='id'\): .* has no 'id'"):
        next(iter(run.each([item], key="id")))
