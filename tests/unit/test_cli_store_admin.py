"""`init`, `adopt`, `verify`, `rebuild` and `doctor` as commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli import doctor_environment
from perdure.cli.main import main
from perdure.errors import StoreMoved
from perdure.journal.project import VIEWS
from perdure.store import locate, open_store
from perdure.store.sqlite import store as sqlite
from perdure.store.sqlite.turnstile import Turnstile
from tests.conformance.rich_store import behind, copy_to, open_copy

from . import child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that must end with that code; gives its output, or its JSON."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments]) == code
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in arguments else out

    return run


# -- init and adopt -------------------------------------------------------------------------------------------


def test_init_makes_a_store_that_programs_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Any
) -> None:
    below = tmp_path / "deep" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    text = run_command("init")
    store = tmp_path / ".perdure" / "perdure.db"
    assert text.startswith(f"created {store}\n")
    assert "from perdure import Agent" in text
    assert (tmp_path / ".perdure" / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    monkeypatch.chdir(below)
    assert locate(None) == f"sqlite:///{store}"
    assert run_command("runs") == "no runs\n"


def test_what_init_says_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Any) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line[4:] for line in run_command("init").splitlines() if line.startswith("    ") or not line]
    program = "\n".join(line for line in lines if not line.startswith("perdure "))
    subprocess.run([sys.executable, "-c", program], check=True)
    assert "result" in run_command("show", "first")


def test_init_twice_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command("init", "--json")["created"] is True
    before = (tmp_path / ".perdure" / "perdure.db").read_bytes()
    assert run_command("init", "--json")["created"] is False
    assert "already exists" in run_command("init")
    assert (tmp_path / ".perdure" / "perdure.db").read_bytes() == before


def test_init_elsewhere(tmp_path: Path, run_command: Any) -> None:
    run_command("init", "--store", str(tmp_path / "elsewhere.db"))
    assert sorted(item.name for item in tmp_path.iterdir()) == ["elsewhere.db", "elsewhere.db.lock"]


def test_init_makes_the_store_that_programs_will_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_URL", "named.db")
    assert run_command("init", "--json") == {"store": f"sqlite:///{tmp_path}/named.db", "created": True}
    assert run_command("init").startswith(f"{tmp_path}/named.db already exists, as PERDURE_URL says")
    assert not (tmp_path / ".perdure").exists()


@pytest.mark.stores("postgres")
@pytest.mark.parametrize("way", ["option", "variable"])
def test_init_on_a_server_prints_a_program_that_uses_it(
    way: str, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    url = store_url.replace("://postgres@", "://postgres:secret@")
    if way == "variable":
        monkeypatch.setenv("PERDURE_URL", url)
    options = ["--store", url] if way == "option" else []
    text = run_command("init", *options)
    assert ":secret@" in url
    assert "secret" not in text
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ") or not line]
    program = "\n".join(line for line in lines if not line.startswith("perdure "))
    subprocess.run([sys.executable, "-c", program], check=True)
    assert "result" in run_command("show", "first", "--store", url)
    shown = url.replace(":secret", "")
    assert run_command("init", *options, "--json") == {"store": shown, "created": False}
    assert list(tmp_path.iterdir()) == []


def test_a_copy_goes_on_after_it_was_adopted(path: Path, run_command: Any) -> None:
    def work() -> None:
        with closing(Agent("travel", store=path, single_home=True)) as agent, agent.run("after"):
            pass

    with pytest.raises(StoreMoved):
        work()
    assert run_command("adopt", "--store", str(path), "--json")["adopted"] is True
    work()
    assert "nothing to adopt" in run_command("adopt", "--store", str(path))


def test_a_damaged_copy_is_not_adopted_unless_somebody_insists(path: Path, run_command: Any) -> None:
    with closing(behind(path)) as raw:
        raw.execute("UPDATE journal SET at = at + 1 WHERE id = (2 << 32 | 3)")
    before = path.read_bytes()
    text = run_command("adopt", "--store", str(path), code=1)
    assert "is damaged: it does not fit the chain" in text and "perdure verify" in text
    assert run_command("adopt", "--store", str(path), "--json", code=1)["adopted"] is False
    assert path.read_bytes() == before
    with pytest.raises(StoreMoved):
        Agent("travel", store=path, single_home=True).run("after").__enter__()
    report = run_command("adopt", "--store", str(path), "--accept-damage", "--json", code=1)
    assert (report["adopted"], len(report["damage"])) == (True, 1)
    with closing(Agent("travel", store=path, single_home=True)) as agent, agent.run("after"):
        pass


# -- verify and rebuild ---------------------------------------------------------------------------------------


def test_verify_names_the_entry(path: Path, run_command: Any) -> None:
    assert run_command("verify", "--store", str(path)).startswith("ok; 13 streams, 102 entries")
    with closing(behind(path)) as raw:
        raw.execute("UPDATE journal SET at = at + 1 WHERE id = (2 << 32 | 3)")
    text = run_command("verify", "--store", str(path), code=1)
    assert "damage    edited  2       3      finished  it does not fit the chain" in text
    assert "damaged: 1 finding;" in text
    report = run_command("verify", "--store", str(path), "--json", code=1)
    assert report["ok"] is False
    [finding] = report["findings"]
    assert (finding["stream"], finding["seq"], finding["run"], finding["what"]) == (2, 3, "finished", "edited")


def test_an_anchor_finds_a_rollback(path: Path, tmp_path: Path, run_command: Any) -> None:
    store, anchor = ["--store", str(path)], str(tmp_path / "anchor.json")
    old = shutil.copy(path, tmp_path / "old.db")
    run_command("adopt", *store)
    with closing(Agent("travel", store=path)) as agent, agent.run("later"):
        pass
    assert f"anchor written to {anchor}" in run_command("verify", *store, "--export-anchor", anchor)
    assert json.loads(Path(anchor).read_text())["signatures"][0]["agent"] == "travel"
    run_command("verify", *store, "--anchor", anchor)
    shutil.copy(old, path)
    assert "rolled back" in run_command("verify", *store, code=1), "the mark beside it knows better"
    Path(f"{path}-mark").unlink()
    assert "rolled back" in run_command("verify", *store, "--anchor", anchor, code=1)
    run_command("verify", *store)  # by itself the old copy is sound


def test_an_anchor_of_another_store_is_an_error_and_no_damage(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchor, other = str(tmp_path / "anchor.json"), str(tmp_path / "other.db")
    assert main(["verify", "--store", str(path), "--export-anchor", anchor]) == 0
    assert main(["init", "--store", other]) == 0
    before = Path(anchor).read_bytes()
    capsys.readouterr()
    assert main(["verify", "--store", other, "--anchor", anchor, "--export-anchor", anchor]) == 2
    said = capsys.readouterr()
    assert "error[PD210]: the anchor was made of another store" in said.err
    assert "hint: name the anchor's store with --store" in said.err
    assert said.out == ""
    assert Path(anchor).read_bytes() == before


def test_an_anchor_is_replaced_only_after_a_look_at_it(path: Path, tmp_path: Path, run_command: Any) -> None:
    store, anchor = ["--store", str(path)], str(tmp_path / "anchor.json")
    run_command("verify", *store, "--export-anchor", anchor)
    first = Path(anchor).read_bytes()
    run_command("verify", *store, "--export-anchor", anchor, code=2)
    assert Path(anchor).read_bytes() == first
    assert run_command("verify", *store, "--anchor", anchor, "--export-anchor", anchor, "--json")["anchor"] == anchor
    assert Path(anchor).read_bytes() != first
    with closing(behind(path)) as raw:
        raw.execute("UPDATE journal SET at = at + 1 WHERE id = (2 << 32 | 3)")
    second = Path(anchor).read_bytes()
    run_command("verify", *store, "--anchor", anchor, "--export-anchor", anchor, code=1)
    assert Path(anchor).read_bytes() == second  # nobody vouches for a damaged store


def test_rebuild_check_says_what_differs_and_rebuild_mends_it(path: Path, run_command: Any) -> None:
    store = ["--store", str(path)]
    assert run_command("rebuild", "--check", *store) == "ok: every view equals the journal\n"
    with closing(behind(path)) as raw:
        raw.execute("UPDATE runs SET status = 'finished' WHERE id = 'failed'")
        raw.execute("DELETE FROM run_state WHERE key = 'a'")
    text = run_command("rebuild", "--check", *store, code=1)
    assert "status: 'failed', found 'finished'" in text
    assert "missing" in text
    report = run_command("rebuild", "--check", *store, "--json", code=1)
    assert {(item["view"], item["what"]) for item in report["differences"]} == {
        ("runs", "differs"),
        ("run_state", "missing"),
    }
    views = ", ".join(VIEWS)
    assert run_command("rebuild", *store).startswith(f"rebuilt {views} from 102 entries")
    assert run_command("rebuild", "--check", *store, "--json")["ok"] is True


# -- doctor ---------------------------------------------------------------------------------------------------


def problems(run_command: Any, path: Path) -> dict[str, str]:
    report = run_command("doctor", "--store", str(path), "--json", code=1)
    assert report["ok"] is False
    found = {item["about"]: item for item in report["checks"] if item["level"] == "problem"}
    assert all(item["fix"] for item in found.values())
    return {about: item["text"] for about, item in found.items()}


@pytest.fixture
def make_home_store(path: Path, run_command: Any) -> Path:
    run_command("adopt", "--store", str(path))
    return path


def test_a_healthy_store_has_no_problems(make_home_store: Path, run_command: Any) -> None:
    report = run_command("doctor", "--store", str(make_home_store), "--json")
    assert report["ok"] is True
    levels = {item["about"]: item["level"] for item in report["checks"] if item["level"] == "ok"}
    assert levels.keys() >= {"sqlite", "store", "disk", "writable", "permissions", "wal", "write lock", "home", "keys"}
    assert run_command("doctor", "--store", str(make_home_store)).splitlines()[-1] == "no problems"


def test_no_store_is_a_problem_with_a_fix(tmp_path: Path, run_command: Any) -> None:
    assert "there is no store" in problems(run_command, tmp_path / "none.db")["store"]
    assert list(tmp_path.iterdir()) == []


def test_what_others_could_read_is_a_problem(make_home_store: Path, run_command: Any) -> None:
    make_home_store.chmod(0o644)
    assert "mode 644" in problems(run_command, make_home_store)["permissions"]
    make_home_store.chmod(0o600)
    Path(f"{make_home_store}.keys/travel.key").chmod(0o640)
    assert "travel.key" in problems(run_command, make_home_store)["permissions"]


def test_a_copy_is_a_problem(path: Path, run_command: Any) -> None:
    assert problems(run_command, path).keys() == {"home"}


def test_keys_are_compared(make_home_store: Path, run_command: Any) -> None:
    key = Path(f"{make_home_store}.keys/travel.key")
    key.write_text("00" * 32)
    assert "not the one of travel" in problems(run_command, make_home_store)["keys"]
    key.write_text("no key")
    assert "cannot be read" in problems(run_command, make_home_store)["keys"]
    key.unlink()
    notes = [
        item
        for item in run_command("doctor", "--store", str(make_home_store), "--json")["checks"]
        if item["level"] == "note"
    ]
    assert "stay unsigned" in next(item["text"] for item in notes if item["about"] == "keys")


def test_crashed_runs_and_dead_holders_are_found(make_home_store: Path, run_command: Any) -> None:
    script = (
        "import os, sys\nfrom perdure import Agent\nagent = Agent('travel', store=sys.argv[1])\n"
        "with agent.run('cut off'): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(make_home_store)], check=False)
    found = problems(run_command, make_home_store)
    assert found.keys() == {"runs"}
    assert re.fullmatch("cut off of travel crashed . s ago and was not resumed", found["runs"])
    notes = [
        item["text"] for item in run_command("doctor", "--store", str(make_home_store), "--json", code=1)["checks"]
    ]
    assert any("died and left 1 run open" in text for text in notes)
    with closing(behind(make_home_store)) as raw:  # other streams were once held too: they wait for nobody
        raw.execute("UPDATE leases SET holder = (SELECT max(id) FROM holders) WHERE holder IS NULL").fetchall()
        raw.execute(
            "UPDATE leases SET holder = NULL WHERE stream IN (SELECT stream FROM runs WHERE id != 'cut off')"
        ).fetchall()
    notes = [
        item["text"] for item in run_command("doctor", "--store", str(make_home_store), "--json", code=1)["checks"]
    ]
    assert any("died and left 1 run open" in text for text in notes)


def test_a_dead_process_that_only_answered_has_left_no_run(store_url: str, run_command: Any) -> None:
    script = """
        import os, sys
        from perdure import Agent, InDoubt
        agent = Agent("travel", store=sys.argv[1])
        def lost(): raise TimeoutError
        try:
            with agent.run("lost") as run: run.effect(lost)
        except InDoubt:
            agent.runs.answer("lost", retry=True)
            os.kill(os.getpid(), 9)
    """
    assert child.run(script, store_url).returncode == -signal.SIGKILL
    with closing(open_store(store_url)) as store:
        assert store.read("holders_at_work", (store.clock.boot_ms(),)) == []
    assert "died and left" not in run_command("doctor", "--store", store_url)


def test_doctor_prints_commands_that_lead_to_the_store(make_home_store: Path, run_command: Any) -> None:
    report = run_command("doctor", "--store", str(make_home_store), "--json")
    [_, fix] = [item["fix"] for item in report["checks"] if "for an answer: " in item["text"]]
    assert fix == f"perdure show waiting --agent travel --store {make_home_store}"
    run_command(*shlex.split(fix)[1:])
    make_home_store.chmod(0o644)
    assert run_command("doctor", "--store", str(make_home_store), code=1).splitlines()[-1] == "1 problem"


def test_runs_that_need_somebody_are_named(make_home_store: Path, run_command: Any) -> None:
    hour = 3_600_000
    with closing(behind(make_home_store)) as raw:
        raw.execute(
            f"UPDATE runs SET changed_at = changed_at - {50 * hour} WHERE id IN ('waiting', 'in-doubt')"
        ).fetchall()
    texts = [
        item["text"]
        for item in run_command("doctor", "--store", str(make_home_store), "--json")["checks"]
        if item["about"] == "runs"
    ]
    assert texts[0] == "in-doubt of travel has been in doubt for 2 d: did book happen?"
    assert any(text.startswith("waiting of travel has waited 2 d for an answer: ") for text in texts)
    assert re.fullmatch(r"\d+ runs, \d+ of them over", texts[-1])


def test_a_clock_that_was_set_back_is_a_problem(make_home_store: Path, run_command: Any) -> None:
    with closing(behind(make_home_store)) as raw:
        tomorrow = (int(time.time()) + 86_400) * 1000  # from now: the store of the fixture may be old by now
        raw.execute("UPDATE runs SET changed_at = ? WHERE id = 'finished'", (tomorrow,)).fetchall()
    assert re.search(r"clock is \d+ s behind the newest entry", problems(run_command, make_home_store)["clock"])


def test_other_stores_with_the_same_agent_are_named(
    make_home_store: Path, tmp_path: Path, run_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PERDURE_URL", raising=False)
    (tmp_path / "here" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "deep")
    for folder in ("home", "here"):
        (tmp_path / folder / ".perdure").mkdir(parents=True)
        agent = Agent("travel", store=tmp_path / folder / ".perdure" / "perdure.db")
        agent.state.set("a", "b", 1)
        agent.close()
    shutil.copy(make_home_store, tmp_path / "copy.db")
    monkeypatch.setenv("PERDURE_URL", str(tmp_path / "copy.db"))
    checks = run_command("doctor", "--store", str(make_home_store), "--json")["checks"]
    found = [item["text"] for item in checks if item["about"] == "other stores"]
    assert [text.partition(": ")[0] for text in found] == [
        f"agent travel is also in a copy of this store, {tmp_path}/copy.db",
        f"agent travel is also in another store, {tmp_path}/here/.perdure/perdure.db",
        f"agent travel is also in another store, {tmp_path}/home/.perdure/perdure.db",
    ]
    [usual] = [item for item in checks if "use another store" in item["text"]]
    assert usual["fix"] == f"export PERDURE_URL={make_home_store}"
    assert "other stores" not in run_command("doctor", "--store", str(tmp_path / "nothing.db"), code=1)


STOPPED_IN_A_COMMIT = """
import apsw, fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1] + ".lock", os.O_RDWR), fcntl.LOCK_EX)
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
connection.execute("DELETE FROM leases")
os.kill(os.getpid(), signal.SIGSTOP)
"""

LOOKING = (
    "runs", "queues", "show finished", "show finished --at 1", "timeline finished", "handoff finished",
    "context finished", "diff finished finished-fork", "state", "checkpoints", "threads", "memory list",
    "memory recall ann", "artifacts ls", "events", "workflows", "usage", "savings", "verify", "gc",
)  # fmt: skip


def test_a_stopped_process_with_the_write_lock_is_named_and_keeps_nobody_from_looking(
    make_home_store: Path, run_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_environment, "LOCK_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(sqlite, "LOCK_SECONDS_MAX", 0.0)
    with subprocess.Popen([sys.executable, "-c", STOPPED_IN_A_COMMIT, str(make_home_store)]) as holder:
        try:
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
            run_command("pause", "waiting", "--store", str(make_home_store), code=2)  # who writes is kept out
            for command in LOOKING:
                assert run_command(*command.split(), "--store", str(make_home_store)), command
            checks = run_command("doctor", "--store", str(make_home_store), "--json", code=1)["checks"]
            found = {item["about"]: item["text"] for item in checks}
            assert f"process {holder.pid} (stopped) has held the write lock" in found["write lock"]
            assert found["home"] == "this is the file that was last used"  # it looks at the rest all the same
        finally:
            holder.kill()
    with closing(Turnstile(f"{make_home_store}.lock")) as turnstile:
        assert turnstile.enter(20)  # the doctor lets it go, as soon as its own turn comes that it waits for no more


def test_what_is_no_store_is_a_problem(tmp_path: Path, run_command: Any) -> None:
    path = tmp_path / "text.db"
    path.write_text("hello, this is a text and not a database " * 100)
    path.chmod(0o600)
    assert "is not a SQLite file" in problems(run_command, path)["file"]


def test_a_store_that_cannot_be_read_is_a_problem(make_home_store: Path, run_command: Any) -> None:
    with closing(behind(make_home_store)) as raw:
        raw.execute("DROP TABLE store_locations").fetchall()
    assert "no table 'store_locations'" in problems(run_command, make_home_store)["store"]


def test_a_failpoint_in_the_environment_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {item.level.value for item in doctor_environment.library()} == {"ok"}
    monkeypatch.setenv("PERDURE_FAILPOINT", "run.answer:before")  # opening a store here would arm it
    assert "kills your programs on purpose" in [item.text for item in doctor_environment.library()][-1]


def test_places_that_do_not_keep_a_store_are_named(make_home_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def levels(kind: str, free: int) -> dict[str, str]:
        monkeypatch.setattr(doctor_environment, "file_system_of", lambda folder: kind)
        usage = shutil.disk_usage("/")._replace(free=free)
        monkeypatch.setattr(doctor_environment.shutil, "disk_usage", lambda folder: usage)
        return {item.about: item.level.value for item in doctor_environment.place(str(make_home_store))}

    assert levels("ext4", 10**12) == {"file system": "ok", "disk": "ok", "writable": "ok"}
    assert levels("nfs4", 10**9) == {"file system": "problem", "disk": "note", "writable": "ok"}
    assert levels("tmpfs", 10**6) == {"file system": "note", "disk": "problem", "writable": "ok"}


def test_the_store_is_left_as_it_was(make_home_store: Path, run_command: Any) -> None:
    def content() -> list[Any]:
        with closing(open_copy(make_home_store)) as store:
            return [store.read(name) for name in ("all_streams", "all_runs", "all_agents", "last_location")]

    before = content()
    run_command("doctor", "--store", str(make_home_store))
    assert content() == before
