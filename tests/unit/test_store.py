"""Where a store may be, how its file is set up, and what is refused."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from perdure import Agent
from perdure.errors import NotDurableWarning, StoreClosed, StoreMoved, StoreMovedWarning, StoreTooNew, StoreUnavailable
from perdure.kernel.engine import AddStoreLocation
from perdure.store import locate, open_store, sqlite_path
from perdure.store.sqlite import file as sqlite_file
from perdure.store.sqlite.file import APPLICATION_ID, connect, file_system_of
from perdure.store.sqlite.fork_safety import disconnect
from tests.unit import child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The most careless of settings."""
    before = os.umask(0)
    yield
    os.umask(before)


def make_store(path: Path) -> Path:
    """An empty store."""
    open_store(f"sqlite:///{path}").close()
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- URLs and the default location ----------------------------------------------------------------------------------


def test_three_slashes_are_relative_and_four_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_path("sqlite:///some/where.db") == str(tmp_path / "some" / "where.db")
    assert sqlite_path("sqlite:////some/where.db") == "/some/where.db"
    assert sqlite_path("sqlite:///~/where.db") == str(Path.home() / "where.db")


@pytest.mark.parametrize("url", ["sqlite://:memory:", "sqlite:///:memory:"])
def test_a_store_in_memory(url: str) -> None:
    assert sqlite_path(url) == ":memory:"
    store = open_store(url)
    assert store.read("all_streams") == []
    store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://where.db", "mysql://host/db", "postgresql://h/d"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreUnavailable) as refusal:
        open_store(url)
    assert refusal.value.hint


def test_what_is_given_comes_first_then_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_URL", "sqlite:////from/environment.db")
    assert locate(path) == f"sqlite:///{path}"
    assert locate(str(path)) == f"sqlite:///{path}"
    assert locate("sqlite:////given.db") == "sqlite:////given.db"
    assert locate(None) == "sqlite:////from/environment.db"
    monkeypatch.setenv("PERDURE_URL", "plain.db")
    assert locate(None) == "sqlite:///plain.db"


@pytest.mark.parametrize("given", ["postgresql:/ann:secret@host/agents", Path("postgresql://ann:secret@host/agents")])
def test_a_url_that_lost_a_slash_is_no_path(given: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnavailable, match="one slash") as refusal:
        Agent("a", store=given).runs.list()
    assert "two slashes" in refusal.value.hint
    assert "secret" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_then_the_nearest_folder_above_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "project" / "src" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert locate(None) == f"sqlite:///{Path.home()}/.perdure/perdure.db"
    (tmp_path / ".perdure").mkdir()
    assert locate(None) == f"sqlite:///{tmp_path}/.perdure/perdure.db"
    (tmp_path / "project" / ".perdure").mkdir()
    assert locate(None) == f"sqlite:///{tmp_path}/project/.perdure/perdure.db"
    (inner / ".perdure").write_text("a file is not a folder")
    assert locate(None) == f"sqlite:///{tmp_path}/project/.perdure/perdure.db"


def test_a_folder_of_another_user_is_not_stumbled_upon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".perdure").mkdir()
    monkeypatch.chdir(tmp_path)
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        locate(None)
    named = f"sqlite:///{tmp_path}/.perdure/perdure.db"
    assert locate(named) == named, "who names it, means it"
    monkeypatch.setenv("SUDO_UID", str(us))
    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        locate(None)
    monkeypatch.setattr(os, "lstat", lambda path: SimpleNamespace(st_uid=us + 1))
    monkeypatch.setenv("SUDO_UID", str(us + 1))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert locate(None) == named, "root works for whoever has called sudo"


def test_memory_warns_where_no_test_runs() -> None:
    code = """
        import warnings
        from perdure import Agent
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Agent("a", store="sqlite://:memory:").run("r"):
                pass
        print(*[warning.category.__name__ for warning in caught])
    """
    assert child.output(code) == NotDurableWarning.__name__


def test_durability_is_one_of_two(path: Path) -> None:
    with pytest.raises(ValueError, match="durability='fast'"):
        open_store(f"sqlite:///{path}", durability="fast")
    assert not path.exists()


# -- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("open_umask")
def test_only_the_owner_can_read_any_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    folder = tmp_path / "new" / ".perdure"
    agent = Agent("a")
    with agent.run("r") as run:
        run.state["k"] = 1
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert {mode(file) for file in files} == {0o600}
        assert {"perdure.db", "perdure.db-wal", "perdure.db-shm", "perdure.db.lock"} < {file.name for file in files}
    assert [mode(part) for part in (folder.parent, folder, folder / "perdure.db.keys")] == [0o700] * 3
    agent._engine.store.backup(str(tmp_path / "copies" / "copy.db"))
    assert mode(tmp_path / "copies" / "copy.db") == 0o600
    agent.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("process", 1)])
def test_settings_that_durability_depends_on_are_in_force(path: Path, durability: str, synchronous: int) -> None:
    store: Any = open_store(f"sqlite:///{path}", durability=durability)
    store.read("all_streams")
    store.changes()
    connections = store._connections()
    assert len(connections) == 3
    for connection in connections:
        assert connection.pragma("synchronous") == synchronous
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("trusted_schema") == 0
    store.close()


def test_a_search_is_prepared_once_whatever_is_bound() -> None:
    """SQLite can plan anew for every value, which takes several times as long as the search itself."""
    connection = connect(":memory:", "full", None)
    connection.execute("CREATE TABLE t (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID")
    seen: list[str] = []

    def note(*what: Any) -> int:
        seen.append(str(what))
        return int(apsw.SQLITE_OK)

    connection.set_authorizer(note)  # asked whenever something is prepared
    prepared = []
    for value in (1, 2, 3):
        connection.execute("SELECT b FROM t WHERE a = ?1 ORDER BY b DESC LIMIT 1", (value,)).fetchall()
        prepared.append(len(seen))
    assert prepared[0] == prepared[2] > 0
    disconnect(connection)


def test_a_setting_that_sqlite_ignores_is_noticed() -> None:
    connection = apsw.Connection(":memory:")
    with pytest.raises(StoreUnavailable, match="refused to set journal_mode to wal"):
        sqlite_file._pragma(connection, "journal_mode", "wal")
    connection.close()


@pytest.mark.parametrize(
    ("version", "fine"), [("3.51.2", False), ("3.7.0", False), ("3.51.3", True), ("3.100.0", True)]
)
def test_a_sqlite_that_may_corrupt_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fine: bool
) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    if fine:
        make_store(path)
        return
    with pytest.raises(StoreUnavailable, match=version) as refusal:
        make_store(path)
    assert "pip install" in refusal.value.hint


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("version", [0, 1, 99])
def test_a_file_of_another_program_is_refused_and_left_as_it_was(path: Path, version: int, mode: str) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", mode)
    connection.execute("CREATE TABLE theirs (a)").fetchall()
    connection.pragma("user_version", version)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="another program"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, " * 1000)
    with pytest.raises(StoreUnavailable, match="not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == b"not a database, " * 1000
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_of_zeros_is_left_to_sqlite(path: Path) -> None:
    """A power cut may leave the first page without its contents; the journal beside it makes it good."""
    path.write_bytes(bytes(4096))
    sqlite_file.prepare_file(str(path))


def test_a_second_store_of_a_process_does_not_take_the_first_ones_locks(path: Path) -> None:
    """Closing any descriptor of a file drops the locks that its process has on it."""
    take_all = """
        import fcntl, sys
        with open(sys.argv[1], "r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
                print("free")
            except OSError:
                print("locked")
    """
    first = open_store(f"sqlite:///{path}")
    assert child.output(take_all, path) == "locked"
    open_store(f"sqlite:///{path}").close()
    assert child.output(take_all, path) == "locked"
    first.close()
    assert child.output(take_all, path) == "free"


def test_a_store_of_a_later_version_is_refused(path: Path) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    assert connection.pragma("application_id") == APPLICATION_ID
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(StoreTooNew, match=r"schema 99; this version of Perdure knows schema \d+ \(upgrade"):
        open_store(f"sqlite:///{path}")


def test_a_path_through_a_file_is_told(path: Path) -> None:
    path.write_text("in the way")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        open_store(f"sqlite:///{path}/perdure.db")


def test_nothing_works_after_closing_and_closing_twice_is_fine(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.read("all_streams")
    with pytest.raises(StoreClosed):
        store.changes()


def test_the_way_to_a_new_store_is_synced(tmp_path: Path, strace: str) -> None:
    """A file is only as durable as the names of the folders that lead to it."""
    path, log = tmp_path / "one" / ".perdure" / "perdure.db", tmp_path / "log"
    code = "import sys; from perdure.store import open_store; open_store('sqlite:///' + sys.argv[1]).close()"
    traced = [
        strace,
        "-f",
        "-y",
        "-e",
        "trace=fsync,fdatasync,mkdir,mkdirat",
        "-o",
        str(log),
        *child.command(code, path),
    ]
    environment = child.environment(HOME=str(tmp_path / "one"))
    subprocess.run(traced, env=environment, check=True, capture_output=True)
    lines = log.read_text().splitlines()
    for folder in (tmp_path / "one", tmp_path / "one" / ".perdure"):
        made_at = next(n for n, line in enumerate(lines) if "mkdir" in line and f'"{folder}"' in line)
        assert any("sync(" in line and f"<{folder.parent}>" in line for line in lines[made_at:]), lines
    # SQLite syncs the folder of the file together with its log.
    assert any("sync(" in line and f"<{path.parent}>" in line for line in lines), lines


# -- network file systems -------------------------------------------------------------------------------------------

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /srv rw,relatime shared:2 - nfs4 server:/export rw
31 30 8:2 / /srv/local rw,relatime - xfs /dev/sdb1 rw
32 22 0:41 / /mnt/with\\040space rw - fuse.sshfs host:/ rw
33 22 0:42 / /srvlike rw shared:7 master:3 - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/agents/a", "nfs4"),
        ("/srv/local/a", "xfs"),
        ("/srvlike/a", "tmpfs"),
        ("/srvlikely", "ext4"),
        ("/mnt/with space/a", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_folder(tmp_path: Path, folder: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system_of(folder, str(mounts)) == kind


def test_a_system_that_does_not_tell_is_believed(tmp_path: Path) -> None:
    assert file_system_of("/srv", str(tmp_path / "missing")) == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs"])
def test_network_file_systems_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sqlite_file, "file_system_of", lambda folder: kind)
    with pytest.raises(StoreUnavailable, match=rf"network file system \({kind}\)"):
        open_store(f"sqlite:///{path}")


# -- copies and moves -----------------------------------------------------------------------------------------------


def use(path: Path, **options: Any) -> None:
    agent = Agent("a", store=path, **options)
    try:
        agent.runs.list()
    finally:
        agent.close()


def test_a_copy_is_noticed_once(path: Path, tmp_path: Path) -> None:
    use(path)
    use(path)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    with pytest.warns(StoreMovedWarning, match="as another file"):
        use(copy)
    use(copy)
    use(path)


def test_a_single_home_refuses_a_copy_until_it_is_adopted(path: Path, tmp_path: Path) -> None:
    use(path, single_home=True)
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    for _ in range(2):
        with pytest.raises(StoreMoved, match="as another file"):
            use(copy, single_home=True)
    with pytest.warns(StoreMovedWarning):
        use(copy)
    use(copy, single_home=True)


def test_another_host_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perdure.kernel import engine

    use(path)
    inode = str(path.stat().st_ino)
    monkeypatch.setattr(engine, "home_of", lambda path: ("another host", inode))
    with pytest.warns(StoreMovedWarning, match="on another host"):
        use(path)


def test_a_renamed_file_is_the_same(path: Path) -> None:
    use(path)
    path.rename(path.with_name("renamed.db"))
    use(path.with_name("renamed.db"), single_home=True)


def test_connections_do_not_leak_when_opening_fails(path: Path) -> None:
    path.write_bytes(b"not a database, " * 1000)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            open_store(f"sqlite:///{path}")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_a_connection_of_a_missing_folder_is_told() -> None:
    with pytest.raises(apsw.CantOpenError):
        connect("/nowhere/at/all.db", "full", None)


def test_in_memory_a_look_for_changes_does_not_disturb_who_commits() -> None:
    """There one connection serves all threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store: Any = open_store("sqlite://:memory:")
    problems: list[BaseException] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                store.changes()
        except BaseException as error:  # told by the thread that waits
            problems.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(2000):
        store.submit(AddStoreLocation(store, "host", str(number)))
    stop.set()
    looking.join(20)
    store.close()
    assert problems == []
