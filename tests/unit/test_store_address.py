"""Which store a text or a path names: what looks like a URL is one or is refused, and no folder is made by mistake."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.cli.main import main
from perdure.errors import PerdureError, StoreTypeInvalid, StoreUnavailable, StoreUrlInvalid
from perdure.store import locate, open_store

REFUSED = {
    "postgresql:u:secret@h/db": "write postgresql://",
    "postgres:u@h/db": "write postgresql://",
    "postgresql:/u:secret@h/db": "two slashes",
    "POSTGRESQL://u:secret@h/db": "write postgresql://",
    "u:secret@h/db": "write postgresql://",
    "user:secret@h/db": "./user:...",
    "host=h dbname=d password=secret": "write postgresql://",
    "file:x.db": "sqlite:///path",
    "file:x.db?mode=ro": "sqlite:///path",
    "file:///tmp/x.db": "sqlite:///path",
    "sqlite:x.db": "sqlite:///path",
    "sqlite:/x.db": "two slashes",
    "sqlite://x.db": "three slashes",
    "SQLite:///x.db": "sqlite:///path",
    "sqlite:///": "three slashes",
    "sqlite:///x.db?mode=ro": "remove the ?",
    "x.db?mode=ro": "remove the ?",
    "x.db#part": "remove the #",
    "sqlite:///x.db#part": "remove the #",
    "x.db#": "remove the #",
    ":memory:?cache=shared": ":memory:",
    ":memory": ":memory:",
    "http://host/x": "use https://host",
    "http:host": "write http://host:8321",
    "C:\\x.db": "a POSIX path",
    "c:/x.db": "a POSIX path",
    "": "omit store=",
    " ": "omit store=",
    "\n": "omit store=",
    "x.db\n": "strip()",
    " x.db": "strip()",
    "x\x1b.db": "strip()",
    "x\0.db": "",
    "x\udcff.db": "rename the file",
    "x/": "x/perdure.db",
    "sqlite:///x/": "x/perdure.db",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize("face", [Agent, AsyncAgent])
@pytest.mark.parametrize("text", REFUSED)
def test_what_looks_like_a_url_and_is_none_is_refused(text: str, face: type[Any], here: Path) -> None:
    with pytest.raises(StoreUrlInvalid) as refusal:
        face("a", store=text)
    assert isinstance(refusal.value, PerdureError)
    assert isinstance(refusal.value, ValueError)
    assert REFUSED[text] in refusal.value.hint
    assert "secret" not in str(refusal.value)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("text", [text for text in REFUSED if "\0" not in text])
def test_the_command_line_refuses_the_same(text: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("runs", "init", "doctor"):
        assert main([command, "--store", text]) == 2
        assert "error[PD223]" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_what_works_at_the_store_only_says_so_of_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("doctor", "migrate"):
        assert main([command, "--store", "http://127.0.0.1:1"]) == 2
        told = capsys.readouterr().err
        assert "on the machine of its store only" in told and "nothing was done" in told


@pytest.mark.parametrize("text", ["postgresql:u@h/db", " ", "file:x.db", "sqlite://x.db"])
def test_the_variable_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_URL", text)
    with pytest.raises(StoreUrlInvalid, match="^PERDURE_URL: "):
        Agent("a")


@pytest.mark.parametrize("given", [5, b"x", True, 1.5, ["x.db"], object()])
def test_other_types_are_refused(given: Any, here: Path) -> None:
    with pytest.raises(StoreTypeInvalid, match="a str or a path") as refusal:
        Agent("a", store=given)
    assert isinstance(refusal.value, TypeError)
    assert list(here.iterdir()) == []


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"x.db"


def test_a_path_of_bytes_is_refused() -> None:
    with pytest.raises(StoreTypeInvalid):
        Agent("a", store=BytesPath())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a?mode=ro", "a#b.db", "a%20b.db", "a b.db", "file:x.db", "my:store.db", "host=x"])
def test_a_path_object_may_have_any_name(name: str, here: Path) -> None:
    for _ in range(2):
        with closing(Agent("a", store=here / name)) as agent, agent.run("r"):
            pass
    assert (here / name).exists()
    with closing(Agent("a", store=f"sqlite:///{here / name}")) as agent:
        assert [run.id for run in agent.runs.list()] == ["r"], "a file that is there is meant"


@pytest.mark.parametrize("text", ["a#b.db", "a%20b.db", "a b.db", "./file:x.db", "a?b.db", "sqlite:///a%20b.db"])
def test_a_text_is_taken_as_it_is_written(text: str, here: Path) -> None:
    open_store(locate(text)).close()
    assert (here / text.removeprefix("sqlite:///").removeprefix("./")).exists()


def test_the_home_folder_is_expanded_and_no_variable() -> None:
    assert locate("~/x.db") == "sqlite:///~/x.db"
    open_store(locate("~/x.db")).close()
    assert (Path.home() / "x.db").exists()
    with pytest.raises(StoreUnavailable, match="does not exist") as refusal:
        open_store(locate("$HOME/x.db"))
    assert "not expanded" in refusal.value.hint


@pytest.mark.parametrize("text", ["new/x.db", "sqlite:///new/x.db", "new/deep/x.db"])
def test_a_folder_that_is_not_there_is_not_made(text: str, here: Path) -> None:
    with pytest.raises(StoreUnavailable, match="the folder .*/new.* does not exist") as refusal:
        Agent("a", store=text).runs.list()
    assert "perdure init --store" in refusal.value.hint
    assert list(here.iterdir()) == []


def test_init_makes_the_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--store", "new/deep/x.db"]) == 0
    assert main(["runs", "--store", "new/deep/x.db"]) == 0
    assert (here / "new").stat().st_mode & 0o077 == 0


def test_the_default_folder_is_made() -> None:
    with closing(Agent("a")) as agent:
        agent.runs.list()
    assert (Path.home() / ".perdure/perdure.db").exists()


def test_a_folder_is_no_store(here: Path) -> None:
    (here / "x").mkdir()
    with pytest.raises(StoreUnavailable, match="is a folder; a store is a file") as refusal:
        Agent("a", store="x").runs.list()
    assert "x/perdure.db" in refusal.value.hint


def test_what_is_no_file_is_no_store(here: Path) -> None:
    os.mkfifo(here / "pipe")
    for path in ("pipe", "/dev/null"):
        with pytest.raises(StoreUnavailable, match="is not a regular file"):
            Agent("a", store=path).runs.list()


def test_a_file_of_something_else_is_refused_and_an_empty_one_used(here: Path) -> None:
    (here / "text").write_text("no database at all")
    with pytest.raises(StoreUnavailable, match="is not a database"):
        Agent("a", store="text").runs.list()
    assert (here / "text").read_text() == "no database at all"
    (here / "empty").touch()
    with closing(Agent("a", store="empty")) as agent:
        assert agent.runs.list() == []
