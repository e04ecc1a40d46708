"""Prices, figures that cannot be, and the commands `usage` and `savings`."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.errors import BudgetExceeded


def test_prices_are_those_of_the_list_unless_the_caller_knows_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_network(call: Callable[..., Any]) -> Callable[..., Any]:
        def only_elsewhere(*args: Any) -> Any:
            # A store of an earlier test may still keep its lease alive from a thread of its own.
            assert threading.current_thread() is not threading.main_thread(), "prices are at hand: no need to ask"
            return call(*args)

        return only_elsewhere

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, without_network(getattr(socket, name)))
    agent, tokens = Agent("a", store=tmp_path / "p.db"), {"input_tokens": 100_000, "output_tokens": 10_000}
    with agent.run("r") as run:
        run.usage(model="gpt-4o", **tokens)
        run.usage(model="openai:gpt-4o", cached_input_tokens=100_000, **tokens)
        run.usage(model="claude-sonnet-4-5", provider="anthropic", **tokens)
        run.usage(model="nobody-knows-it", **tokens)
        run.usage(model="gpt-4o", provider="nobody-knows-it", **tokens)
        run.usage(model="nobody-knows-it", cost_usd=7, **tokens)
        run.usage(model="gpt-4o", provider="github-copilot", **tokens)  # listed without a price of tokens
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        run.usage(model="gpt-4.1", **tokens)
    by_model = agent.usage().by_model
    assert {model: (totals.cost_usd, totals.unpriced_calls) for model, totals in by_model.items()} == {
        "gpt-4o": (0.35, 2),
        "openai:gpt-4o": (0.225, 0),
        "claude-sonnet-4-5": (0.45, 0),
        "nobody-knows-it": (7.0, 1),
        "gpt-4.1": (None, 1),
    }
    assert str(by_model["gpt-4o"]).endswith("$0.3500 + 2 of unknown cost")
    assert "cost unknown" in str(by_model["gpt-4.1"])
    agent.close()


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": ""}, ValueError, "model"),
    ({"model": None}, TypeError, "model"),
    ({"model": "m\0"}, ValueError, "model"),
    ({"provider": 1}, TypeError, "provider"),
    ({"input_tokens": -1}, ValueError, "input_tokens=-1"),
    ({"output_tokens": 1.5}, TypeError, "output_tokens"),
    ({"input_tokens": 5, "cached_input_tokens": 6}, ValueError, "add them"),
    ({"cost_usd": -0.1}, ValueError, "cost_usd"),
    ({"cost_usd": float("nan")}, ValueError, "cost_usd"),
    ({"cost_usd": "1"}, TypeError, "cost_usd"),
]


def test_figures_that_cannot_be_are_refused(tmp_path: Path) -> None:
    agent = Agent("a", store=tmp_path / "p.db")
    with agent.run("r") as run:
        for wrong, error, said in WRONG:
            with pytest.raises(error, match=said):
                run.usage(**{"model": "m", **wrong})
    assert agent.usage().calls == 0
    agent.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two agents; a run that has failed in its third step, gone on, and spent its budget."""
    path = tmp_path / "p.db"
    for name in ("ann", "bob"):
        agent = Agent(name, store=path)
        for last in ("no", "yes"):
            with contextlib.suppress(ZeroDivisionError, BudgetExceeded), agent.run("r", budget_usd=2.5) as run:

                def think(number: int) -> None:
                    run.usage(model=f"model-{number}", input_tokens=1000, output_tokens=10, cost_usd=1)

                run.step(think, 1)
                run.step(think, 2)
                run.step(lambda: 1 / (last == "yes"), name="divide")  # noqa: B023
                run.usage(model="local\x1b[2J", input_tokens=5, cost_usd=0.5)
                run.step(think, 3)
        agent.close()
    return str(path)


def test_the_commands_add_up_and_show_nothing_that_moves_the_cursor(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str, code: int = 0) -> str:
        assert main([*arguments, "--store", store]) == code
        return capsys.readouterr().out

    assert said("usage").splitlines()[-1].split() == ["in", "all", "6", "4,010", "0", "40", "$5.00"]
    assert "\x1b" not in said("usage") and "local\\x1b[2J" in said("usage")
    assert "(outside of steps)" in said("usage", "--by", "step", "--agent", "ann")
    assert "ann/r  " in said("usage", "--by", "run")
    assert json.loads(said("usage", "--by", "agent", "--json"))["rows"][1]["agent"] == "bob"
    saved = json.loads(said("savings", "--by", "model", "--run", "r", "--agent", "bob", "--json"))
    assert (saved["by"], saved["total"]["steps"], saved["total"]["calls"], saved["total"]["cost_usd"]) == (
        "model", 2, 2, 2.0,
    )  # fmt: skip
    assert [row["model"] for row in saved["rows"]] == ["model-1", "model-2"]
    assert said("savings").splitlines()[-1].startswith("in all  4      0.0 s")
    told = said("show", "r", "--agent", "ann")
    assert "3 calls, 2,005 tokens in, 20 out, $2.50" in told
    assert "2 steps not run again: 2 calls, 2,000 tokens in, 20 out, $2.00" in told
    assert "step think -> None in" in told and "1 call of model-1: 1,000 tokens in, 10 out, $1.00" in told
    assert "skipped 2 steps, which were already recorded" in told
    assert json.loads(said("show", "r", "--agent", "ann", "--json"))["savings"]["steps"] == 2
    assert "BudgetExceeded" in said("runs") and "failed" in said("runs")
    assert main(["usage", "--run", "nix", "--store", store]) == 2
    for command in ("usage", "savings"):
        assert main([command, "--agent", "nobody", "--store", store]) == 2
        assert "there is no agent 'nobody'" in capsys.readouterr().err


def test_where_nothing_is_recorded_the_commands_say_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Agent("a", store=tmp_path / "p.db").runs.list()
    for command, words in (("usage", "run.usage("), ("savings", "no savings")):
        assert main([command, "--store", str(tmp_path / "p.db")]) == 0
        assert words in capsys.readouterr().out
