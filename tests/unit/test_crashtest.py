"""`perdure crashtest`: it finds planted bugs, names them and their lines, and lets clean programs pass."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from perdure.cli.main import main
from perdure.testing.crashtest import CrashtestProblem, CrashtestReport
from perdure.testing.crashtest.carried_values import find_carried, find_changed_copies
from perdure.testing.crashtest.outside import choose_normalizer
from perdure.testing.crashtest.places import CrashPoint, select_points
from perdure.testing.plugin_crashtest import crashtest

ROOT = Path(__file__).parents[2]
AGENTS = Path(__file__).with_name("crashing")

__all__ = ["crashtest"]

Crashtest = Callable[..., CrashtestReport]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in AGENTS.glob("*.py"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


BUGS = {
    "bug_plain_effect": ("effect outside of a step", 'with open("world.txt", "a") as world:', "step.done:before#2"),
    "bug_random_argument": ("arguments change", "order(random.randint(1, 10**9))", "step.done:before#1"),
    "bug_state_in_the_open": ("state written in the open", 'agent.state.incr("site", "visits")', "step.done:before#1"),
    "bug_live_read": ("live state read in a run", 'if not agent.state.get("guests", "ann"):', "effect.intent:before#1"),
    "bug_wrong_check": ("wrong check", "def is_paid(amount, *, key):", "effect.outcome:before#2"),
    "bug_check_argument": ("wrong check", "def is_paid(amount, *, key):", "effect.intent:after#2"),
    "bug_not_done": (
        "an error taken for proof",
        "@agent.effect(not_done=(OSError,), retries=2, backoff=0.001)",
        "raise:send#1",
    ),
    "bug_variable": ("variable changed in a body", 'found.append(f"something in {place}")', "step.done:before#2"),
    "bug_carried": ("variable carried from item to item", "failed.append(name)", "effect.outcome:before#2"),
    "bug_carried_global": ("variable carried from item to item", "spent += amount", "item.done:after#2"),
    "bug_world_read": ("world looked at in a run", "if not REPORT.exists():", "step.done:after#1"),
    "bug_time": ("time or chance decides", "late = time.monotonic() - began > 0.2", "step.done:after#1"),
    "bug_doubt": ("doubt passed over", "except Exception:", "effect.outcome:before#1"),
    "bug_effect_write": (
        "write in the body of an effect",
        'run.state["spent"] = run.state.get("spent", 0) + 10',
        "effect.outcome:before#1",
    ),
    "bug_step_with_effect": ("effect in a step", 'with open("world.txt", "a") as world:', "step.done:before#1"),
    "bug_check_result": ("a check gives another result", "def is_booked(seat, *, key):", "effect.outcome:before#1"),
    "bug_new_run": (
        "a new run at every start",
        'with agent.run(f"trip-{uuid.uuid4()}") as run:',
        "effect.intent:before#2",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_named(name: str, folder: Path, crashtest: Crashtest) -> None:
    kind, line, place = BUGS[name]
    # At the beginning there is nothing to repeat yet.
    harmless = "run.claim:before#1"
    world = "world.txt" if "world.txt" in Path(f"{name}.py").read_text() else ""
    report = crashtest(f"{name}.py", count_effects=world, only=[harmless, place])
    [(finding, trials)] = report.findings()
    assert (finding.kind, finding.line) == (kind, line)
    assert [trial.name for trial in trials] == [place]
    with pytest.raises(AssertionError, match=f"--only {place.partition('#')[0]}|--only '{place.partition('#')[0]}"):
        report.assert_survives()


LOGGING = """
print("working", file=open("agent.log", "a"))
with agent.run("again") as run:
    charge("tea")
"""


def test_a_right_check_is_not_blamed_for_lines_of_others(folder: Path, crashtest: Crashtest) -> None:
    text = Path("clean_shop.py").read_text()
    Path("logging_shop.py").write_text(text.partition("with agent.run")[0] + LOGGING)
    report = crashtest("logging_shop.py", count_effects="cat world.txt agent.log", only=["effect.intent:after#1"])
    assert [finding.kind for finding, _ in report.findings()] == ["effect outside of a step"]


EACH = "for one in run.each(many):\n    "


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"total = 0\n{EACH}total += one\nrun.result = total", [("total", "a.py:3")]),
        (f"best = 0\n{EACH}best = max(best, one)\nagent.checkpoint.create('best', best)", [("best", "a.py:3")]),
        (f"{EACH}last = one\nrun.result = last", [("last", "a.py:2")]),
        (f"def note(one):\n    seen.add(one)\nseen = set()\n{EACH}note(one)\nsend(seen)", [("seen", "a.py:2")]),
        (f"{EACH}self.spent += self.price(one)\nself.pay(self.spent)", [("self.spent", "a.py:2")]),
        (f"def note(self):\n    self.seen.append(1)\n{EACH}self.note()\nsend(self.seen)", [("self.seen", "a.py:2")]),
        (f"{EACH}self.pay(one, self.limit)\n    self.name = one\n    self.send(self.name)", []),
        (f"number = 0\n{EACH}number += 1\n    print(number)", []),
        (f"{EACH}total = 0\n    for part in one:\n        total += part\n    pay(total)", []),
        (f"{EACH}words = [word for word in one]\n    pay(words)\nrun.result = [word for word in many]", []),
        (f"failed = run.state['failed']\n{EACH}failed.append(one)\n    run.state['failed'] = failed", []),
        (f"{EACH}run.state['total'] = run.state.get('total', 0) + one\n    agent.events.append('seen', one)", []),
    ],
)
def test_what_is_carried_from_item_to_item_is_read_in_the_text(text: str, found: list[tuple[str, str]]) -> None:
    assert [(one.variable, one.at) for one in find_carried("a.py", ast.parse(text))] == found


def test_a_copy_that_is_changed_and_dropped_is_read_in_the_text() -> None:
    lost = ["run.state['l'].append(1)", "run.state['d']['k'] += 1", "agent.state.get('ns', 'l').append(1)"]
    kept = ["run.state['l'] = []", "run.state.update(a=1)", "run.state['n'] += 1", "last = run.state['l'].pop()"]
    assert find_changed_copies(ast.parse("\n".join([*kept, *lost]))) == [5, 6, 7]


def test_bugs_are_found_without_being_told_where(folder: Path, crashtest: Crashtest) -> None:
    report = crashtest("bug_wrong_check.py", count_effects="world.txt", limit=12)
    assert [finding.kind for finding, _ in report.findings()] == ["wrong check"]
    assert len(report.trials) == 12


def test_a_clean_program_survives_even_two_kills(folder: Path, crashtest: Crashtest) -> None:
    report = crashtest("clean_shop.py", count_effects="world.txt", limit=12, depth=2)
    report.assert_survives()
    assert sum(trial.reached for trial in report.trials) > 9, "hardly anything was killed"
    assert {len(trial.places) for trial in report.trials} == {1, 2}
    assert {trial.verdict for trial in report.trials if trial.places[0].manner != "stop"} == {"survived"}


def test_an_effect_that_nobody_can_check_is_asked_about(folder: Path, crashtest: Crashtest) -> None:
    places = ["effect.outcome:before#1", "line:clean_asks.py:11#1", "effect.outcome:after#1"]
    report = crashtest("clean_asks.py", count_effects="cat world.txt", only=places)
    report.assert_survives()
    assert [trial.verdict for trial in report.trials] == ["asked", "asked", "survived"]
    assert report.notes[0].startswith("asked: the outcome of pay is unknown")
    strict = ["crashtest", "clean_asks.py", "--strict", "--only", places[0]]
    assert main(strict) == 1


def test_an_effect_that_raises_after_it_happened_is_not_repeated_unseen(folder: Path, crashtest: Crashtest) -> None:
    report = crashtest("bug_wrong_check.py", count_effects="world.txt", only=["raise:pay#2"])
    assert [finding.kind for finding, _ in report.findings()] == ["wrong check"]
    report = crashtest("clean_asks.py", count_effects="world.txt", only=["raise:pay#1"])
    assert [trial.verdict for trial in report.trials] == ["asked"]


def test_every_kind_of_disturbance_is_tried_and_a_program_that_does_everything_survives(
    folder: Path, crashtest: Crashtest
) -> None:
    told = {"answers": ["feel=good", "yes"], "events": ['paid={"sum": 5}']}
    report = crashtest("clean_nouns.py", count_effects="world.txt", limit=20, **told)
    report.assert_survives()
    reached = {trial.places[0].manner for trial in report.trials if trial.reached}
    # A random instant may come too late on a busy machine.
    assert reached | {"after"} >= {"kill", "after", "beat", "stop", "term", "int", "full", "raise"}
    assert not [words for words, tries, *_ in report.matrix() if not tries and "again" not in words]


def test_an_effect_that_is_a_coroutine_raises_after_it_happened(folder: Path, crashtest: Crashtest) -> None:
    places = ["raise:send#2", "int:line:clean_async.py:20#1", "term:effect.outcome:before#1"]
    report = crashtest("clean_async.py", count_effects="world.txt", only=places)
    report.assert_survives()
    assert [trial.reached for trial in report.trials] == [True, True, True]


def test_a_task_and_its_worker_survive(folder: Path, crashtest: Crashtest) -> None:
    places = ["effect.outcome:before#1", "task.queue:after#1", "stop:effect.outcome:before#1"]
    report = crashtest("clean_tasks.py", count_effects="world.txt", only=places)
    report.assert_survives()
    assert [trial.reached for trial in report.trials] == [True, True, True]


def test_a_paused_process_that_was_replaced_does_nothing_more(folder: Path, crashtest: Crashtest) -> None:
    places = ["stop:effect.intent:after#1", "stop:effect.outcome:before#2"]
    report = crashtest("clean_shop.py", count_effects="world.txt", only=places)
    report.assert_survives()
    assert [trial.verdict for trial in report.trials] == ["asked", "survived"]
    assert "charge says NotDone, but the process that started it is only paused" in report.notes[0]
    assert "Add timeout= to @agent.effect" in report.notes[0]
    assert report.notes[0].endswith("[stop:effect.intent:after#1]")
    # The same in plain code, which nobody can hold back: so it really was paused, replaced and woken up.
    report = crashtest("bug_plain_effect.py", count_effects="world.txt", only=["stop:line:bug_plain_effect.py:15#1"])
    assert [finding.kind for finding, _ in report.findings()] == ["effect outside of a step"]


def test_a_program_that_asks_is_told_how_to_be_answered(folder: Path, crashtest: Crashtest) -> None:
    with pytest.raises(CrashtestProblem, match="it waits: run all: How do you feel") as problem:
        crashtest("clean_nouns.py", timeout=1.0)
    assert "--answer" in str(problem.value.hint)


def test_a_budget_of_time_is_kept_and_told(folder: Path, crashtest: Crashtest) -> None:
    report = crashtest("clean_asks.py", limit=10, budget=0)
    assert report.trials == ()
    assert any("tries were left out: 0 minutes have passed" in note for note in report.notes)


@pytest.mark.stores("postgres")
def test_on_a_server_each_round_has_a_schema_that_is_dropped(
    store_url: str, folder: Path, crashtest: Crashtest
) -> None:
    import psycopg

    server = re.sub(r"[?&]schema=\w+", "", store_url)
    places = ["effect.outcome:before#2", "run.claim:before#1", "full:effect.intent:written#1", "stop:run.end:before#1"]
    report = crashtest("bug_wrong_check.py", count_effects="world.txt", store=server, only=places)
    assert [trial.verdict for trial in report.trials] == ["FAILED", "survived", "survived", "survived"]
    assert [trial.starts for trial in report.trials] == [2, 2, 2, 2]
    assert [finding.kind for finding, _ in report.findings()] == ["wrong check"]
    with psycopg.connect(server) as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'crashtest%'").fetchall()
    assert left == []


def test_ctrl_c_shows_what_was_found_so_far(folder: Path) -> None:
    command = [sys.executable, "-m", "perdure.cli", "crashtest", "bug_plain_effect.py", "--count-effects", "world.txt"]
    places = ["step.done:before#2"] + ["run.claim:before#1"] * 500
    more = ["--jobs", "1", "--keep", *(word for place in places for word in ("--only", place))]
    with subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": "."}
    ) as process:
        # The first round has failed and was kept, and a later one is under way.
        while not list(folder.glob("perdure-crashtest-*/round-5")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        told, errors = process.communicate()
    assert process.returncode == 1, errors
    assert told.splitlines()[-1].startswith("interrupted; so far: FAILED: 1 of "), told


@pytest.mark.parametrize(
    ("example", "world"),
    [("state_pages", ""), ("workflow", ""), ("cron_job", "outbox.txt")],
)
def test_the_examples_survive(example: str, world: str, tmp_path: Path, crashtest: Crashtest) -> None:
    shutil.copy(ROOT / "examples" / f"{example}.py", tmp_path)
    report = crashtest(tmp_path / f"{example}.py", count_effects=world, limit=5)
    report.assert_survives()
    assert ("going by the store alone" in report.summary()) == (not world)


def test_the_command_tells_people_programs_and_ci(folder: Path) -> None:
    command = [sys.executable, "-m", "perdure.cli", "crashtest", "bug_wrong_check.py", "--count-effects", "world.txt"]
    more = ["--only", "effect.outcome:before#1", "--junit", "report.xml", "--keep"]
    told = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
    assert told.returncode == 1, told.stderr
    assert "is_paid says NotDone of pay, although it had happened" in told.stdout
    assert "  after an effect, before its outcome is recorded      1     .      .       1" in told.stdout
    assert told.stdout.rstrip().endswith("FAILED: 1 of 1 try, 1 thing to change")
    assert max(len(line) for line in told.stdout.splitlines() if " again " not in line and " kept " not in line) <= 80
    kept = Path(told.stdout.partition("kept ")[2].split()[0])
    assert (kept / "crashtest.db").exists()
    assert (kept / "world.txt").read_text().count("paid 100") == 2
    shutil.rmtree(kept.parent)
    suite = ElementTree.parse("report.xml").getroot()
    assert [suite.get("tests"), suite.get("failures")] == ["1", "1"]
    assert not (folder / "world.txt").exists(), "the folder itself is left alone"
    as_json = subprocess.run(
        [*command, "--json", "--only", "effect.intent:before#1"],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert as_json.returncode == 0, as_json.stderr
    shown = json.loads(as_json.stdout)
    assert (shown["survived"], [one["place"] for one in shown["rounds"]]) == (True, ["effect.intent:before#1"])


def test_a_round_can_be_repeated_with_the_arguments_of_the_program(folder: Path, crashtest: Crashtest) -> None:
    place = "step.done:before#2"
    report = crashtest("bug_step_with_effect.py", "-v", "to Ann", count_effects="world.txt", only=[place])
    again = report.make_reproduce_command(*report.findings()[0])
    head, _, tail = again.partition(" --only ")
    assert head == "perdure crashtest bug_step_with_effect.py --count-effects world.txt"
    assert shlex.split(tail) == [place, "--", "-v", "to Ann"]
    command = [sys.executable, "-m", "perdure.cli", *shlex.split(again)[1:]]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_a_program_without_a_store_is_refused(folder: Path, crashtest: Crashtest) -> None:
    (folder / "empty.py").write_text("print('hello')")
    with pytest.raises(CrashtestProblem, match="ended with exit code 0 and left nothing in a store"):
        crashtest("empty.py")
    (folder / "broken.py").write_text("import nowhere")
    with pytest.raises(CrashtestProblem, match="ended with exit code 1 and") as problem:
        crashtest("broken.py")
    assert problem.value.message.splitlines()[-1] == "ModuleNotFoundError: No module named 'nowhere'"
    assert problem.value.hint.startswith("it fails without any disturbance")
    with pytest.raises(CrashtestProblem, match=r"nothing was counted there .*did you mean 'world\.txt'"):
        crashtest("clean_asks.py", count_effects="wrold.txt")
    with pytest.raises(CrashtestProblem, match=r"no program missing\.py"):
        crashtest("missing.py")


def test_a_place_that_is_not_passed_is_not_survived(folder: Path, crashtest: Crashtest) -> None:
    with pytest.raises(CrashtestProblem, match=r"does not pass there .did you mean 'effect\.outcome:before#1'"):
        crashtest("clean_asks.py", only=["effect.outcome:before#3"])
    report = crashtest("clean_asks.py", only=["after:20s"])
    assert [trial.reached for trial in report.trials] == [False]
    assert "1 tries came too late (it had ended, or took another path): their ok says little" in report.notes


def test_places_are_spread_evenly_and_every_kind_comes_first() -> None:
    places = [
        CrashPoint(f"{site}:{moment}#{n}", f"{moment} {site}", f"a.py:{n % 3}")
        for n in range(1, 31)
        for site in ("step.done", "effect.outcome")
        for moment in ("before", "written", "after")
    ]
    taken = select_points(places, 30)
    assert len(taken) == len(set(taken)) == 30
    assert {(place.words, place.at) for place in taken} >= {(p.words, p.at) for p in places if "written" not in p.name}
    assert select_points(places, 0) == places
    assert [place for place in places if place in taken] == taken


def test_what_differs_by_itself_does_not_count() -> None:
    same = choose_normalizer([["order 17 of 0f8a2b3c4d", "paid 5"], ["paid 5", "order 17 of 99ffee0011"]])
    assert same("order 17 of 0f8a2b3c4d") == same("order 17 of 1234567890")
    assert same("paid 5") != same("paid 6")
