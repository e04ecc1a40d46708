"""The key of an agent: made once, kept beside the store, signs what nobody else can."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from perdure import Agent
from perdure.errors import StoreUnavailable
from perdure.journal import keys
from tests.unit import child

SEED = bytes(range(32))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "perdure.db.keys")


def test_a_key_signs_and_its_public_half_verifies() -> None:
    key = keys.SigningKey(SEED)
    signature = key.sign(b"message")
    assert len(key.public_key) == 32
    assert keys.is_signed_by(key.public_key, b"message", signature)
    assert not keys.is_signed_by(key.public_key, b"another", signature)
    assert not keys.is_signed_by(keys.SigningKey(bytes(32)).public_key, b"message", signature)
    assert not keys.is_signed_by(key.public_key, b"message", signature[:-1] + b"\0")
    assert not keys.is_signed_by(b"too short", b"message", signature)
    assert not keys.is_signed_by(key.public_key, b"message", b"")


def test_a_key_is_made_once_and_found_again(folder: str) -> None:
    assert keys.find("a", folder, None) is None
    made = keys.create("a", folder)
    found = keys.find("a", folder, None)
    assert found is not None
    assert found.public_key == made.public_key
    assert keys.create("a", folder).public_key == made.public_key, "a second key would make the first one's seals void"
    assert keys.create("b", folder).public_key != made.public_key


def test_only_the_owner_can_read_it(folder: str) -> None:
    before = os.umask(0)
    try:
        keys.create("a", folder)
    finally:
        os.umask(before)
    [file] = os.listdir(folder)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(folder, file)).st_mode) == 0o600


def test_nothing_else_is_left_in_the_folder(folder: str) -> None:
    keys.create("a", folder)
    keys.create("a", folder)
    assert os.listdir(folder) == ["a.key"]


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".", "ünï", "a b", "x" * 512, "/" * 512, "%2F", "\n"])
def test_any_name_of_an_agent_is_a_file_in_the_folder(folder: str, name: str) -> None:
    made = keys.create(name, folder)
    found = keys.find(name, folder, None)
    assert found is not None
    assert found.public_key == made.public_key
    [file] = os.listdir(folder)
    assert os.path.dirname(os.path.realpath(os.path.join(folder, file))) == os.path.realpath(folder)


def test_long_names_that_begin_alike_have_keys_of_their_own(folder: str) -> None:
    one, other = keys.create("x" * 500, folder), keys.create("x" * 501, folder)
    assert one.public_key != other.public_key


def test_a_store_in_memory_keeps_its_key_there() -> None:
    assert keys.create("a", None).public_key != keys.create("a", None).public_key
    assert keys.find("a", None, None) is None


def test_the_callable_comes_before_the_environment_and_that_before_the_file(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file = keys.create("a", folder).public_key
    monkeypatch.setenv("PERDURE_KEY", bytes(32).hex())

    def public(source: keys.KeySource | None) -> bytes | None:
        key = keys.find("a", folder, source)
        return key.public_key if key else None

    assert public(lambda name: SEED) == keys.SigningKey(SEED).public_key
    assert public(lambda name: None) is None, "who gives a callable does not want another key"
    assert public(None) == keys.SigningKey(bytes(32)).public_key
    monkeypatch.delenv("PERDURE_KEY")
    assert public(None) == in_file


def test_the_callable_is_told_whose_key_it_is(folder: str) -> None:
    asked: list[str] = []
    keys.find("someone", folder, lambda name: asked.append(name))
    assert asked == ["someone"]


@pytest.mark.parametrize("text", ["zz", "00", "00" * 31, "00" * 33, "hello world"])
def test_a_bad_key_is_told_and_not_repeated(folder: str, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PERDURE_KEY", text)
    with pytest.raises(StoreUnavailable) as refusal:
        keys.find("a", folder, None)
    assert text not in str(refusal.value).split(), "a key does not belong in a log"


def test_a_damaged_key_file_is_told(folder: str) -> None:
    keys.create("a", folder)
    Path(folder, "a.key").write_text("not a key")
    with pytest.raises(StoreUnavailable, match="key file of agent 'a'"):
        keys.find("a", folder, None)


@pytest.mark.parametrize("way", ["link", "folder", "device", "pipe", "long"])
def test_a_key_file_that_leads_elsewhere_is_refused(tmp_path: Path, way: str) -> None:
    """In a folder from somewhere else: what is signed there must not be signed by another agent's key."""
    mine, theirs = str(tmp_path / "mine.db.keys"), tmp_path / "theirs.db.keys"
    keys.create("travel", mine)
    if way == "folder":
        theirs.symlink_to(mine)
    else:
        theirs.mkdir()
    if way in ("link", "device"):
        (theirs / "travel.key").symlink_to(f"{mine}/travel.key" if way == "link" else "/dev/zero")
    elif way == "pipe":
        os.mkfifo(theirs / "travel.key")
    elif way == "long":
        (theirs / "travel.key").write_bytes(b"0" * 10_000_000)
    with pytest.raises(StoreUnavailable):
        keys.find("travel", str(theirs), None)
    assert keys.find("travel", mine, None) is not None


def test_keys_that_are_mounted_may_be_links(tmp_path: Path) -> None:
    keys.create("travel", str(tmp_path / "data"))
    (tmp_path / "mounted").symlink_to(tmp_path / "data")
    assert keys.find("travel", str(tmp_path / "mounted"), None) is not None


def test_two_threads_make_one_key(folder: str) -> None:
    start = threading.Barrier(8)
    made: list[bytes] = []

    def make() -> None:
        start.wait()
        made.append(keys.create("a", folder).public_key)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert len(set(made)) == 1
    assert os.listdir(folder) == ["a.key"]


MAKE = """
import sys
from perdure.journal import keys
print("ready", flush=True)
sys.stdin.readline()
print(*[keys.create(f"agent {n}", sys.argv[1]).public_key.hex() for n in range(30)], flush=True)
"""


def test_two_processes_make_one_key(folder: str) -> None:
    """Thirty agents in a row, so that the two meet."""
    makers = [child.start(MAKE, folder) for _ in range(2)]
    try:
        for maker in makers:
            assert maker.stdout is not None
            assert maker.stdout.readline() == "ready\n"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("go\n")
            maker.stdin.flush()
        made = {maker.communicate()[0] for maker in makers}
    finally:
        for maker in makers:
            if maker.poll() is None:
                child.end(maker)
    assert len(made) == 1
    found = [keys.find(f"agent {n}", folder, None) for n in range(30)]
    assert made.pop().split() == [key.public_key.hex() for key in found if key is not None]


def test_a_machine_without_the_key_runs_and_leaves_its_heads_unsigned(store_url: str) -> None:
    signed = Agent("a", store=store_url, key=lambda name: SEED)
    with signed.run("one"):
        pass
    assert {row[4] for row in signed._engine.store.read("all_seals")} == {keys.SigningKey(SEED).public_key}
    count = len(signed._engine.store.read("all_seals"))
    signed.close()
    keyless = Agent("a", store=store_url, key=lambda name: None)
    with keyless.run("two"):
        pass
    assert len(keyless._engine.store.read("all_seals")) == count
    assert keyless.runs.get("two").finished
    keyless.close()
