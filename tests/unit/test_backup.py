"""A backup is a verified copy of one moment, made while the store is in use."""

from __future__ import annotations

import json
import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from perdure.cli.main import main
from perdure.journal.rebuild import check
from perdure.journal.verify import verify
from tests.conformance.rich_store import behind, copy_to, open_copy
from tests.unit import child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def backup(path: Path, target: Path, *options: str) -> int:
    return main(["backup", str(target), "--store", str(path), *options])


def test_a_backup_has_everything(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "copy.db"
    assert backup(path, target, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verified"] is True
    with closing(open_copy(path)) as store, closing(open_copy(target)) as copy:
        report = verify(copy)
        assert report == verify(store)
        assert (told["entries"], told["objects"]) == (report.entries, report.objects)
        assert check(copy) == []


def test_only_the_copy_is_left_and_only_for_its_owner(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    assert backup(path, folder / "copy.db") == 0
    assert [file.name for file in folder.iterdir()] == ["copy.db"]
    assert stat.S_IMODE((folder / "copy.db").stat().st_mode) == 0o600


def test_keys_are_copied_only_when_asked_for(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backup(path, tmp_path / "without.db") == 0
    assert not (tmp_path / "without.db.keys").exists()
    assert "private keys are not included" in capsys.readouterr().out
    assert backup(path, tmp_path / "with.db", "--with-keys") == 0
    keys = tmp_path / "with.db.keys"
    assert (keys / "travel.key").read_bytes() == Path(f"{path}.keys/travel.key").read_bytes()
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert stat.S_IMODE((keys / "travel.key").stat().st_mode) == 0o600


@pytest.mark.parametrize("options", [(), ("--with-keys",)])
def test_nothing_is_overwritten(path: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    taken = tmp_path / ("copy.db.keys" if options else "copy.db")
    taken.write_text("precious")
    assert backup(path, tmp_path / "copy.db", *options) == 2
    assert taken.read_text() == "precious"
    assert (tmp_path / "copy.db").exists() == (not options)


def test_a_folder_that_is_not_there_is_an_error(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backup(path, tmp_path / "nowhere" / "copy.db") == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_damaged_store_is_not_backed_up(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(behind(path)) as raw:
        raw.execute("UPDATE journal SET at = at + 1 WHERE id = (2 << 32 | 3)")
    before = set(os.listdir(tmp_path))
    assert backup(path, tmp_path / "copy.db") == 2
    assert "error[PD209]" in capsys.readouterr().err
    assert set(os.listdir(tmp_path)) - {"perdure.db.lock"} == before - {"perdure.db.lock"}


def test_a_store_in_use_is_copied_as_of_one_moment(path: Path, tmp_path: Path) -> None:
    with child.run_busy_agent(path):
        codes = [backup(path, tmp_path / f"copy{turn}.db") for turn in range(5)]
    assert codes == [0] * 5
    for turn in range(5):
        with closing(open_copy(tmp_path / f"copy{turn}.db")) as copy:
            assert check(copy) == []


def test_a_large_store_is_copied_although_it_changes_all_the_time(path: Path, tmp_path: Path) -> None:
    with closing(behind(path)) as raw:  # more pages than one piece of the copy has
        raw.execute("CREATE TABLE ballast (data)").fetchall()
        raw.execute("INSERT INTO ballast VALUES (zeroblob(20000000))").fetchall()
    told: list[tuple[int, int]] = []
    with child.run_busy_agent(path):
        with closing(open_copy(path)) as store:
            store.backup(str(tmp_path / "copy.db"), lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted({done for done, _ in told})  # never from the beginning again
    assert len({total for _, total in told}) == 1
    assert told[-1][0] == told[-1][1] > 4000
