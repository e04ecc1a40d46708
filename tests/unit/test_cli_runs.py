"""`runs`, `show` and `answer`: what a person on call sees, and can say."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, InDoubt, RunWaiting
from perdure.cli.main import main
from perdure.errors import NotStorable
from tests.conformance.rich_store import LARGE, behind, copy_to, open_copy

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")

KEY = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


class Cli:
    """Runs commands on one store in this process."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        assert main([*arguments, "--store", str(self.path)]) == code
        told = self._capsys.readouterr()
        self.err = told.err
        return told.out

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))


@pytest.fixture
def cli(path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(path, capsys)


# -- runs -----------------------------------------------------------------------------------------------------


def test_runs_are_listed_with_status_and_what_they_wait_for(cli: Cli) -> None:
    header, *lines = cli("runs").splitlines()
    assert header.split() == ["RUN", "AGENT", "STATUS", "DONE", "LAST", "ENTRY", "WAITS", "FOR"]
    rows = {line.split()[0]: line for line in lines}
    assert rows.keys() == {
        "finished",
        "child",
        "failed",
        "interrupted",
        "answered",
        "parked",
        "tomorrow",
        "waiting",
        "in-doubt",
        "finished-fork",
        "paused",
        "cancelled",
    }
    assert rows["finished"].split()[1:4] == ["travel", "finished", "3"]
    assert "Did book happen?" in rows["waiting"]
    assert rows["in-doubt"].endswith("in doubt: book")
    assert rows["failed"].endswith("RuntimeError: no money")


def test_runs_as_json(cli: Cli) -> None:
    rows = {row["id"]: row for row in cli.json("runs")}
    assert rows["finished"]["done"] == 3
    assert rows["in-doubt"]["in_doubt"] == ["book"]
    assert len(rows["waiting"]["waits_for"]) == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", rows["failed"]["changed_at"])
    assert rows.pop("tomorrow")["status"] == "queued"
    for row in rows.values():
        assert row["last_entry_at"] == cli.json("show", row["id"])["entries"][-1]["at"]


def test_runs_can_be_chosen(cli: Cli) -> None:
    assert {row["id"] for row in cli.json("runs", "--status", "failed")} == {"failed", "in-doubt"}
    assert cli.json("runs", "--agent", "nobody") == []
    assert cli("runs", "--agent", "nobody") == "no such runs\n"
    assert len(cli.json("runs", "--limit", "2")) == 2
    assert cli("runs", "--limit", "2").splitlines()[-1] == "10 more; --limit 0 shows all"
    assert len(cli.json("runs", "--limit", "0")) == 12


def test_a_damaged_run_does_not_hide_the_others(cli: Cli) -> None:
    with closing(behind(cli.path)) as raw:
        raw.execute("UPDATE journal SET at = at + 1 WHERE id = (8 << 32 | 2)")
    rows = {row["id"]: row for row in cli.json("runs")}
    assert len(rows) == 12
    assert "its journal is damaged" in rows["in-doubt"]["note"]
    cli("show", "in-doubt", code=2)
    assert "error[PD209]" in cli.err


def test_reading_registers_nobody(cli: Cli) -> None:
    for command in (["runs"], ["show", "finished"], ["verify"], ["rebuild", "--check"], ["doctor"]):
        cli(*command, code=1 if command == ["doctor"] else 0)  # the copy has another home
    store = open_copy(cli.path)
    assert store.read("holders_at_work", (0,)) == []
    assert len(store.read("all_streams")) == 13
    store.close()


VICTIM = """
import os, signal, sys, time
from perdure import Agent
agent = Agent("victim", store=sys.argv[1])
@agent.effect
def charge(amount):
    os.kill(os.getpid(), signal.SIGKILL)
with agent.run("charged") as run:
    run.state["large"] = "x" * 9000
    time.sleep(0.01)
    charge(5)
"""


def crash(path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", VICTIM, str(path)], check=False)
    assert done.returncode == -9


def test_a_killed_run_is_crashed_and_in_doubt(cli: Cli) -> None:
    crash(cli.path)
    [row] = cli.json("runs", "--status", "crashed")
    assert (row["id"], row["agent"], row["in_doubt"]) == ("charged", "victim", ["charge"])
    seen = cli.json("show", "charged")
    assert row["last_entry_at"] == seen["last_entry_at"] == seen["entries"][-1]["at"]
    assert row["changed_at"] == seen["entries"][0]["at"] < row["last_entry_at"]  # it was only ever started
    told = cli("show", "charged")
    assert re.search(r"status +crashed", told)
    assert "arguments  {'amount': 5}" in told
    assert told.index("Start the program again: a check") < told.index("perdure answer charged")
    assert "Start the program again" not in cli("show", "waiting")


# -- show -----------------------------------------------------------------------------------------------------


def test_show_tells_the_story(cli: Cli) -> None:
    told = cli("show", "finished")
    in_order = [
        r"run finished of agent travel",
        r"input +\{'to': 'NYC'\}",
        r"messages +2",
        r"kept +\{'twice': True\}",
        r"1 .* started in process \d+ on .*, input \{'to': 'NYC'\}",
        r"step search -> \{'city': 'NYC'.* with agent's state\['trip'\]\['searches'\] = 1",
        r"flaky: attempt 1 failed: ValueError\('not yet'\)",
        r"step flaky -> 2 in",
        r"effect book begins, key [0-9a-f]{32}, arguments \{'flight': 'AA1'\}",
        r"effect book -> 'booked AA1' in",
        r"state\['dropped'\] deleted",
        r"item 1:a done, with state\['a'\] = 'a'; message \{'role': 'user', 'content': 'a'\}; ",
        r"checkpoint 'seen', version 1",
        r"event DECISION \{'why': 'cheapest'\}",
        r"14 .* finished, result 'a page",
    ]
    assert re.search(".*".join(in_order), told, re.DOTALL)
    assert max(map(len, told.splitlines())) < 300  # large values are shortened


def test_show_tells_of_an_artifact_and_of_one_that_was_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("a", store=tmp_path / "perdure.db")
    with agent.run("r") as run:
        run.step(lambda: agent.artifacts.save("model", bytes(5000)), name="train")
        run.step(lambda: agent.artifacts.delete("model"), name="tidy")
    assert main(["show", "r", "--store", str(tmp_path / "perdure.db")]) == 0
    text = capsys.readouterr().out
    assert re.search(r"step train -> 0 in .*, with artifact 'model', version 1, 5.0 kB\n", text)
    assert re.search(r"step tidy -> 1 in .*, with artifact 'model', version 1, deleted\n", text)


def test_show_tells_of_a_checkpoint_and_of_one_that_was_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("travel", store=tmp_path / "perdure.db")
    with agent.run("trip") as run:
        run.checkpoint("half", {"done": 1})
        run.step(lambda: agent.checkpoint.delete("half"), name="tidy")
        run.step(lambda: agent.state.set("a", "k", 1), name="note")
        run.step(lambda: agent.state.delete("a", "k"), name="forget")
    agent.close()
    text = Cli(tmp_path / "perdure.db", capsys)("show", "trip")
    assert re.search(r"2 .* checkpoint 'half', version 1\n", text)
    assert re.search(r"step tidy -> 1 in .*, with checkpoint 'half', version 1, deleted\n", text)
    assert re.search(r"step forget -> True in .*, with agent's state\['a'\]\['k'\] deleted\n", text)


def test_show_tells_how_a_run_ended_otherwise(cli: Cli) -> None:
    assert "failed: RuntimeError: no money" in cli("show", "failed")
    assert "interrupted: KeyboardInterrupt" in cli("show", "interrupted")
    answered = cli("show", "answered")
    assert "effect book in doubt: TimeoutError: the line went dead" in answered
    assert "effect book -> 'AB12' according to ann" in answered
    assert "in doubt: did" not in answered


def test_show_as_json_has_everything(cli: Cli) -> None:
    told = cli.json("show", "finished")
    assert told["result"] == LARGE
    assert told["state"] == {"a": "a", "b": "b", "kept": {"twice": True}}
    assert told["messages"] == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert [entry["seq"] for entry in told["entries"]] == list(range(1, 15))
    assert (told["entries"][0]["kind"], told["in_doubt"], told["questions"]) == ("RunStarted", [], [])


def test_show_shows_the_last_entries(cli: Cli) -> None:
    told = cli("show", "finished", "--last", "3")
    assert "journal, the last 3 of 14 entries" in told
    assert "step search" not in told
    assert [entry["seq"] for entry in cli.json("show", "finished", "--last", "2")["entries"]] == [13, 14]
    assert cli("show", "finished", "--last", "0").count("\n") == cli("show", "finished").count("\n")


def test_show_says_how_to_answer(cli: Cli) -> None:
    told = cli("show", "waiting")
    [doubt] = cli.json("show", "waiting")["in_doubt"]
    assert KEY.fullmatch(doubt["key"])
    assert (doubt["name"], doubt["arguments"], doubt["answered"]) == ("book", {"flight": "lost"}, None)
    assert f"key        {doubt['key']}" in told
    for option in ("--done RESULT", "--retry", "--fail"):
        assert f"perdure answer waiting --store {cli.path} {option}\n" in told


def test_what_show_prints_can_be_copied(cli: Cli) -> None:
    other = Agent("other", store=cli.path)
    with other.run("waiting"):
        pass
    other.close()
    told = cli("show", "waiting", "--agent", "travel")
    [command] = [line.split("it did not ")[1] for line in told.splitlines() if line.startswith("it did not ")]
    assert command == f"perdure answer waiting --agent travel --store {cli.path} --retry"
    assert main(shlex.split(command)[1:]) == 0


def test_of_two_agents_with_one_run_id_the_named_one_is_shown(cli: Cli) -> None:
    agent = Agent("other", store=cli.path)
    with agent.run("finished") as run:
        run.result = "other"
    agent.close()
    cli("show", "finished", code=2)
    assert "several agents have a run with that id: other, travel" in cli.err
    assert cli.json("show", "finished", "--agent", "other")["result"] == "other"
    cli("show", "finished", "--agent", "third", code=2)
    assert "error[PD303]" in cli.err


STRANGER = """
import sys
from dataclasses import dataclass
from perdure import Agent, stored
@stored("flight-of-a-stranger")
@dataclass
class Flight:
    number: str
agent = Agent("stranger", store=sys.argv[1])
@agent.effect
def book(flight):
    raise TimeoutError
try:
    with agent.run("strange", input=Flight("AA1")) as run:
        run.state["flight"] = Flight("AA2")
        run.messages.append(Flight("AA3"))
        book(Flight("AA4"))
except Exception:
    pass
"""


def test_values_of_unknown_types_are_named_and_can_be_answered_about(cli: Cli) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", STRANGER, str(cli.path)], check=True)
    told = cli("show", "strange")
    assert told.count("flight-of-a-stranger") >= 3
    assert cli.json("show", "strange")["in_doubt"][0]["name"] == "book"
    cli("answer", "strange", "--done", '"AB12"')


# -- answer ---------------------------------------------------------------------------------------------------


def resume_program(path: Path, run_id: str) -> Any:
    """Start the program again; returns what `book` came to."""
    agent = Agent("travel", store=path)

    @agent.effect
    def book(flight: str, *, key: str) -> str:
        return f"booked again with {key}"

    try:
        with agent.run(run_id, wait=0):
            return book("lost")
    finally:
        agent.close()


def test_answer_alone_lists_the_open_questions(cli: Cli) -> None:
    asked = cli.json("answer")
    assert asked and all(one["text"] and one["run"] for one in asked)
    header, *lines = cli("answer").splitlines()
    assert header.split("  ")[0] == "AGENT" and len(lines) == len(asked)
    assert all("perdure answer " in line for line in lines)
    assert cli("answer", "--agent", "nobody") == "no open questions\n"
    cli("answer", "--yes", code=2)


@pytest.mark.parametrize("run_id", ["waiting", "in-doubt"])
def test_done_gives_the_result(cli: Cli, run_id: str) -> None:
    told = cli("answer", run_id, "--done", '{"booking": "AB12"}', "--by", "ann")
    assert told.splitlines()[0] == "answered: done with result {'booking': 'AB12'}, by ann"
    assert resume_program(cli.path, run_id) == {"booking": "AB12"}
    assert "according to ann" in cli("show", run_id)


def test_retry_runs_it_again_with_the_same_key(cli: Cli) -> None:
    key = cli.json("show", "waiting")["in_doubt"][0]["key"]
    told = cli.json("answer", "waiting", "--retry", "--key", key)
    assert (told["run"], told["verdict"]) == ("waiting", "retry")
    assert "@" in told["by"]
    assert resume_program(cli.path, "waiting") == f"booked again with {key}"


def test_fail_gives_up(cli: Cli) -> None:
    cli("answer", "waiting", "--fail")
    with pytest.raises(Exception, match="gave up on book"):
        resume_program(cli.path, "waiting")


def test_the_first_answer_counts_and_is_shown(cli: Cli) -> None:
    cli("answer", "in-doubt", "--done", "1", "--by", "ann")
    cli("answer", "in-doubt", "--retry", code=2)
    assert "error[PD309]" in cli.err
    assert "answered   done, by ann" in cli("show", "in-doubt")
    assert cli.json("show", "in-doubt")["in_doubt"][0]["answered"] == {"verdict": "done", "by": "ann"}
    [row] = [row for row in cli.json("runs") if row["id"] == "in-doubt"]
    assert (row["in_doubt"], row["note"]) == ([], "answered; start its program again")


def test_there_must_be_something_to_answer(cli: Cli) -> None:
    cli("answer", "finished", "--retry", code=2)
    assert "error[PD308]" in cli.err
    cli("answer", "waiting", "--retry", "--key", "another", code=2)
    [doubt] = cli.json("show", "waiting")["in_doubt"]
    cli("answer", "waiting", "--retry", "--key", "another", code=2)
    listed = f"book (key {doubt['key']})"
    assert f"error[PD308]: no effect in doubt has the key 'another'; effects in doubt: {listed}" in cli.err
    cli("answer", "nope", "--retry", code=2)
    assert "error[PD303]" in cli.err


def test_of_several_effects_in_doubt_one_must_be_named(cli: Cli) -> None:
    def lost() -> None:
        raise TimeoutError

    agent = Agent("travel", store=cli.path)
    with pytest.raises(ConnectionError), agent.run("two") as run:
        for name in ("book", "pay"):
            with pytest.raises(InDoubt):
                run.effect(lost, name=name)
        raise ConnectionError
    agent.close()
    cli("answer", "two", "--retry", code=2)
    assert "several effects are in doubt: book (key " in cli.err
    assert "choose one with key= (--key)" in cli.err
    told = cli("show", "two")
    [command] = [line.split("it did not ")[1] for line in told.splitlines() if line.startswith("it did not ")][1:]
    assert main(shlex.split(command)[1:]) == 0


@pytest.mark.parametrize("options", [[], ["--retry", "--fail"], ["--done", "1", "--retry"]])
def test_exactly_one_answer_is_given(cli: Cli, options: list[str]) -> None:
    cli("answer", "waiting", *options, code=2)
    assert "give one of VALUE, --yes, --no" in cli.err


def test_a_result_is_json(cli: Cli) -> None:
    cli("answer", "waiting", "--done", "AB12", code=2)
    assert "'AB12' is not JSON; quote text twice: --done '\"AB12\"'" in cli.err
    assert cli.json("show", "waiting")["in_doubt"][0]["answered"] is None


def test_a_run_that_waits_goes_on_when_it_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perdure.db"
    script = (
        "import sys\nfrom perdure import Agent\nagent = Agent('travel', store=sys.argv[1])\n"
        "@agent.effect\ndef book():\n    raise TimeoutError\n"
        "try:\n    with agent.run('trip'): book()\nexcept Exception: pass\n"
        "with agent.run('trip', wait=30):\n    print(book())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        assert "waits" in waiting.stderr.readline()  # it has said how to answer
        told = Cli(path, capsys)("answer", "trip", "--done", '"AB12"')
        assert told.splitlines()[1] == "The run continues."
        assert waiting.communicate()[0] == "AB12\n"


def test_a_question_is_shown_and_answered(cli: Cli, path: Path) -> None:
    agent = Agent("travel", store=path)
    with pytest.raises(RunWaiting), agent.run("seat", wait=0) as run:
        run.ask("Window or aisle?", choices=["window", "aisle"])
    assert "Window or aisle?" in cli("runs")
    assert "one of 'window', 'aisle'" in cli("show", "seat")
    cli("answer", "seat", "middle", code=2)
    assert "one of 'window', 'aisle'" in cli.err
    assert cli("answer", "seat", "aisle", "--by", "ann").startswith("answered: 'aisle', by ann")
    [row] = [row for row in cli.json("runs") if row["id"] == "seat"]
    assert (row["waits_for"], row["note"]) == ([], "answered; start its program again")
    assert "answered; start its program again" in cli("show", "seat")
    cli("send", "seat", "paid", '{"euro": 7}')
    with agent.run("seat") as run:
        assert run.ask("Window or aisle?", choices=["window", "aisle"]) == "aisle"
        assert run.wait_event("paid") == {"euro": 7}
    assert "answer 'aisle', by ann" in cli("show", "seat")


def test_retry_lets_a_step_run_again_whose_result_could_not_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    where = tmp_path / "unstorable.db"

    def attempt() -> None:
        with Agent("ann", store=where) as agent, pytest.raises(NotStorable), agent.run("r") as run:
            run.step(lambda: calls.append(1) or object(), name="ask")

    attempt()
    attempt()
    assert main(["show", "r", "--store", str(where)]) == 0
    assert "kept of its result" in capsys.readouterr().out
    assert main(["retry", "r", "--by", "ann", "--json", "--store", str(where)]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": "r", "agent": "ann", "queued": False, "by": "ann"}
    assert main(["retry", "r", "--store", str(where)]) == 2
    attempt()
    assert len(calls) == 2
