"""A store that cannot be written here can be looked at: on read-only media, in a folder or a file of somebody else."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure import Agent, AsyncAgent
from perdure.cli.main import main
from perdure.errors import StoreReadOnly
from perdure.store import open_store, sql, versions_of
from perdure.store.sqlite import read_only
from tests.unit import child

NOBODY = 65534
LIBC = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP, CAPABILITIES = 24, (1, 2, 3)
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER."""
LOOKS = [
    *("runs", "show r-1", "verify", "doctor", "timeline r-1", "events", "state", "state s k", "usage", "memory list"),
    *("checkpoints", "workflows", "queues", "memory recall anything", "context r-1"),
]
WRITES = ["gc --vacuum --yes", "rebuild", "adopt", "memory remember something"]

WRITER = """
import os, signal, sys
from perdure import Agent
agent = Agent("keeper", store=sys.argv[1])
with agent.run("r-1"):
    agent.state.set("s", "k", "in the file")
agent.close()
agent = Agent("keeper", store=sys.argv[1])
agent.state.set("s", "k", "in the log")
os.kill(os.getpid(), signal.SIGKILL)
"""

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose last commit is in its log only."""
    path = tmp_path_factory.mktemp("killed") / "perdure.db"
    assert child.run(WRITER, path).returncode == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size > read_only.LOG_HEADER_BYTES
    return path


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory, killed: Path) -> Path:
    """The same, closed in order: without a log."""
    path = tmp_path_factory.mktemp("closed") / "perdure.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{killed}{suffix}", f"{path}{suffix}")
    open_store(f"sqlite:///{path}").close()
    assert not Path(f"{path}-wal").exists()
    return path


@pytest.fixture
def media(tmp_path: Path) -> Iterator[Any]:
    """A file system that is made read-only after a store was copied to it."""
    folder = tmp_path / "media"
    folder.mkdir()
    is_root = os.geteuid() == 0
    if is_root:
        subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)

    def filled(source: Path, *suffixes: str) -> Path:
        for suffix in ("", *suffixes):
            shutil.copy(f"{source}{suffix}", f"{folder / 'perdure.db'}{suffix}")
        if is_root:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        else:  # the next best thing: permissions hold for who is not root
            for path in (*folder.iterdir(), folder):
                path.chmod(0o500 if path.is_dir() else 0o400)
        return folder / "perdure.db"

    yield filled
    if is_root:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    else:
        folder.chmod(0o700)


LOGS = {"closed": (), "killed": ("-wal",), "killed with shm": ("-wal", "-shm")}


@pytest.fixture(params=LOGS)
def path(request: pytest.FixtureRequest, media: Any, killed: Path, closed: Path) -> Path:
    path: Path = media(closed if request.param == "closed" else killed, *LOGS[request.param])
    return path


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files, in which a store is copied to be read."""
    folder = tmp_path / "copies"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_commands_that_look_work_and_say_that_it_is_read_only(
    path: Path, copies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in LOOKS:
        assert main([*command.split(), "--store", str(path)]) == 0, command
        said = capsys.readouterr()
        assert "is read-only here" in said.err, command
        if command == "state s k":
            assert "in the log" in said.out, "the log is not ignored"
    assert not any(copies.iterdir())


def test_commands_that_write_say_why_they_do_not(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in WRITES:
        assert main([*command.split(), "--store", str(path)]) == 2, command
        assert "error[PD222]" in capsys.readouterr().err, command


def test_an_agent_reads_and_is_refused_when_it_writes(path: Path, copies: Path) -> None:
    with closing(Agent("keeper", store=path)) as agent:
        assert agent.state.get("s", "k") == "in the log"
        assert [run.id for run in agent.runs.list()] == ["r-1"]
        with pytest.raises(StoreReadOnly, match="nothing was written") as refusal:
            agent.state.set("s", "k", 1)
        assert isinstance(refusal.value, OSError)
        with pytest.raises(StoreReadOnly), agent.run("r-2"):
            pass
        assert agent.state.get("s", "k") == "in the log"
    assert not any(copies.iterdir())


async def test_an_async_agent_does_the_same(path: Path) -> None:
    agent = AsyncAgent("keeper", store=path)
    assert await agent.state.get("s", "k") == "in the log"
    with pytest.raises(StoreReadOnly):
        await agent.state.set("s", "k", 1)
    await agent.close()


def test_a_backup_of_it_can_be_used(path: Path, tmp_path: Path) -> None:
    assert main(["backup", str(tmp_path / "copy.db"), "--store", str(path)]) == 0
    with closing(Agent("keeper", store=tmp_path / "copy.db")) as agent:
        assert agent.state.get("s", "k") == "in the log"
        agent.state.set("s", "k", 1)


def test_doctor_notes_it(media: Any, closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = media(closed)
    assert main(["doctor", "--store", str(path)]) == 0
    assert "is read-only here: commands can read it" in capsys.readouterr().out


def test_a_log_that_is_too_large_to_be_copied_is_not_ignored(
    media: Any, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = media(killed, "-wal")
    monkeypatch.setattr(read_only, "READ_ONLY_COPY_BYTES_MAX", 1000)
    with pytest.raises(StoreReadOnly, match="its log has newer commits than the file") as refusal:
        open_store(f"sqlite:///{path}")
    assert f"copy {path} and {path}-wal" in refusal.value.hint


def test_an_old_store_is_not_brought_forward(media: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store(f"sqlite:///{tmp_path / 'old.db'}").close()
    path = media(tmp_path / "old.db")
    assert versions_of(f"sqlite:///{path}").found == 1
    history = (*sql.migrations("sqlite"), "CREATE TABLE made_up (id INTEGER)")
    monkeypatch.setattr(sql, "migrations", lambda dialect: history)
    with pytest.raises(StoreReadOnly, match="migrated"):
        open_store(f"sqlite:///{path}")


# -- without the permission to write ----------------------------------------------------------------------------------


@pytest.fixture
def shared(killed: Path, closed: Path) -> Iterator[Path]:
    """A folder that everybody can read, and only its owner can write, with stores in it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    folder = Path(tempfile.mkdtemp(prefix="perdure-shared-"))
    for source, suffixes in ((killed, ("", "-wal")), (closed, ("",))):
        (folder / source.parent.name).mkdir()
        for suffix in suffixes:
            shutil.copy(f"{source}{suffix}", folder / source.parent.name / f"perdure.db{suffix}")
    give_away(folder, *folder.rglob("*"))
    yield folder
    shutil.rmtree(folder)


def give_away(*paths: Path) -> None:
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, NOBODY, NOBODY)


def as_somebody_else(*command: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "perdure.cli", *command]
    environment = child.environment()
    return subprocess.run(
        program, env=environment, preexec_fn=_drop_capabilities, capture_output=True, text=True, check=False
    )


def _drop_capabilities() -> None:
    """Root without the capabilities to go past permissions is like anybody else, and can still start Python."""
    for capability in CAPABILITIES:
        assert LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0


def test_another_user_can_read_a_store(shared: Path) -> None:
    for path in sorted(shared.glob("*/perdure.db")):
        before = sorted(path.parent.iterdir())
        for command in ("state s k", "runs", "verify"):
            done = as_somebody_else(*command.split(), "--store", str(path))
            assert done.returncode == 0, done.stderr
            assert "is read-only here" in done.stderr
            assert command != "state s k" or "in the log" in done.stdout
        refused = as_somebody_else("rebuild", "--store", str(path))
        assert (refused.returncode, "error[PD222]" in refused.stderr) == (2, True)
        assert sorted(path.parent.iterdir()) == before


def test_another_user_sees_what_a_live_process_writes(shared: Path) -> None:
    path = shared / "live.db"
    with closing(Agent("keeper", store=path)) as agent:
        agent.state.set("s", "k", "live")
        give_away(*shared.glob("live.db*"))
        done = as_somebody_else("state", "s", "k", "--store", str(path))
        assert (done.returncode, "live" in done.stdout) == (0, True), done.stderr


def test_a_file_that_may_not_be_written_in_a_folder_that_may(shared: Path) -> None:
    folder = shared / "theirs"
    folder.mkdir()
    for source in shared.glob("killed*/perdure.db*"):
        shutil.copy(source, folder / source.name)
        (folder / source.name).chmod(0o444)
    done = as_somebody_else("state", "s", "k", "--store", str(folder / "perdure.db"))
    assert (done.returncode, "in the log" in done.stdout) == (0, True), done.stderr
    assert sorted(file.name for file in folder.iterdir()) == ["perdure.db", "perdure.db-wal"]


def test_a_store_that_may_not_be_read_says_so(shared: Path) -> None:
    path = next(shared.glob("closed*/perdure.db"))
    path.chmod(0o600)
    done = as_somebody_else("runs", "--store", str(path))
    assert (done.returncode, "cannot be read by this user" in done.stderr) == (2, True), done.stderr


def test_what_is_planted_is_refused_on_read_only_media_too(
    media: Any, closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = tmp_path / "planted.db"
    shutil.copy(closed, planted)
    with closing(apsw.Connection(str(planted))) as behind:
        behind.execute("CREATE VIEW harmless AS SELECT 1").fetchall()
    assert main(["runs", "--store", str(media(planted))]) == 2
    assert "view 'harmless'" in capsys.readouterr().err
