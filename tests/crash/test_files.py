"""SQLite: somebody lays hands on the files of a store, while a process has it open or after it was killed."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from perdure.store.sqlite.mark import MAGIC
from tests.crash.billing_program import BILLS, HALF, find_log_end
from tests.crash.harness import Scene, Stage
from tests.crash.stores import FILE

pytestmark = pytest.mark.stores("sqlite")
COLOURS = ("sync", "async")
KILLED, FENCED = -9, 3
ONCE = {f"bill-{number}": 1 for number in range(BILLS)}


def pay(scene: Scene, **arguments: object) -> int:
    return scene.fork_server.run("tests.crash.billing_program:main", scene.folder, **arguments)


def resume(scene: Scene, **arguments: object) -> None:
    assert scene.fork_server.run("tests.crash.billing_program:resume", scene.folder, **arguments) == 0


def say(scene: Scene, *words: str) -> int:
    """A command; a finding is no failure of this test."""
    child = scene.fork_server.start("tests.crash.billing_program:say", scene.folder, words=list(words))
    code = child.wait()
    (scene.folder / "said.txt").write_text(child.output())
    return code


def read_output(scene: Scene) -> str:
    return (scene.folder / "said.txt").read_text()


def keep_backup(scene: Scene, colour: str) -> None:
    """A backup of the store, which goes on after that."""
    assert scene.fork_server.run("tests.crash.child_programs:statuses", scene.folder) == 0
    assert say(scene, "backup", f"{scene.folder}/backup.db") == 0
    assert scene.fork_server.run("tests.crash.billing_program:earlier", scene.folder) == 0


# -- under a process that goes on -------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    "hurt", ["standard_library", "standard_library_twice", "plain_file", "log_removed", "index_removed"]
)
def test_nothing_is_lost_when_the_log_is_taken_from_a_process(stage: Stage, colour: str, hurt: str) -> None:
    scene = stage.scene("billing_program:main", colour)
    assert pay(scene, colour=colour, hurt=hurt, die=True) == KILLED
    assert scene.world.effects() == ONCE
    assert say(scene, "verify") == 0, read_output(scene)
    resume(scene, colour=colour)
    assert scene.world.effects() == ONCE
    assert not scene.world.broken_promises()


@pytest.mark.parametrize("colour", COLOURS)
def test_the_standard_library_cannot_take_the_log_away(stage: Stage, colour: str) -> None:
    """Not even together with a second process, which closes the store after our locks are gone."""
    scene = stage.scene("billing_program:main", colour)
    assert pay(scene, colour=colour, hurt="standard_library_twice", die=True) == KILLED
    assert os.path.getsize(scene.folder / f"{FILE}-wal") > 0


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("hurt", ["all_removed", "backup_copied_over", "backup_moved_over", "other_log"])
def test_a_process_whose_files_are_gone_acknowledges_nothing_more(stage: Stage, colour: str, hurt: str) -> None:
    scene = stage.scene("billing_program:main", colour)
    keep_backup(scene, colour)
    assert pay(scene, colour=colour, hurt=hurt) == FENCED
    assert scene.world.acks() == {f"bill-{number}": 1 for number in range(HALF)}
    [(_, bill, *words)] = [line for line in scene.world.lines() if line[0] == "fenced"]
    assert bill == f"bill-{HALF}" and "was not acknowledged" in " ".join(words)
    assert scene.world.effects() == {f"bill-{number}": 1 for number in range(HALF)}, "its body has not begun"


def test_processes_with_different_indexes_of_the_log_lose_nothing_of_each_other(stage: Stage) -> None:
    scene = stage.scene("billing_program:main")
    assert pay(scene, hurt="index_of_another") == FENCED
    assert scene.world.acks() == {f"bill-{number}": 1 for number in range(HALF)}
    assert say(scene, "verify") == 0, read_output(scene)
    assert say(scene, "show", "earlier") == 0, read_output(scene)
    resume(scene)
    assert scene.world.effects() == ONCE


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("hurt", ["log_emptied", "log_cut"])
def test_a_log_that_is_cut_short_stops_its_process_at_once(stage: Stage, colour: str, hurt: str) -> None:
    scene = stage.scene("billing_program:main", colour)
    assert pay(scene, colour=colour, hurt=hurt) == FENCED
    assert scene.world.acks() == {f"bill-{number}": 1 for number in range(HALF)}
    [(_, bill, *words)] = [line for line in scene.world.lines() if line[0] == "fenced"]
    assert bill == f"bill-{HALF}" and "was cut short" in " ".join(words)
    assert say(scene, "verify") == 1 and "rolled back" in read_output(scene), "the mark knows what is lost"
    assert say(scene, "adopt") == 0
    resume(scene, colour=colour)
    assert all(count == 1 for count in scene.world.effects().values()), "the check knows what was paid"


# -- after a process was killed ---------------------------------------------------------------------------------


def flip_a_bit(log: Path, chance: random.Random) -> None:
    data = bytearray(log.read_bytes())
    data[chance.randrange(find_log_end(data))] ^= 1 << chance.randrange(8)
    log.write_bytes(data)


def cut_off(log: Path, chance: random.Random) -> None:
    os.truncate(log, chance.randrange(find_log_end(log.read_bytes()) - 1))


DAMAGE = {"flipped": flip_a_bit, "cut": cut_off, "removed": lambda log, chance: os.unlink(log)}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("number", range(3))
def test_damage_in_the_log_is_found_and_nothing_is_paid_again(stage: Stage, damage: str, number: int) -> None:
    colour = COLOURS[number % 2]
    scene = stage.scene("billing_program:main", colour)
    assert pay(scene, colour=colour, die=True) == KILLED
    DAMAGE[damage](scene.folder / f"{FILE}-wal", random.Random(f"{damage} {number}"))
    assert say(scene, "verify") == 1, read_output(scene)
    assert "rolled back" in read_output(scene)
    assert say(scene, "runs") == 0, "reading is allowed"
    child = scene.fork_server.start("tests.crash.billing_program:resume", scene.folder, colour=colour)
    assert child.wait() == 1 and "StoreRolledBack" in child.output() and "perdure adopt" in child.output()
    assert say(scene, "adopt") == 0, read_output(scene)
    assert say(scene, "verify") == 0, read_output(scene)
    resume(scene, colour=colour)
    assert scene.world.effects() == ONCE, "the check has found each of them by its key"
    assert say(scene, "verify") == 0, read_output(scene)


@pytest.mark.parametrize("policy", ["retry", "check"])
def test_where_the_key_is_lost_a_person_is_asked(stage: Stage, policy: str) -> None:
    """The mark has lost lines as well: which effects had begun is not known, so that none begins by itself."""
    scene = stage.scene("billing_program:main")
    assert pay(scene, die=True, policy=policy) == KILLED
    os.unlink(scene.folder / f"{FILE}-wal")
    mark = scene.folder / f"{FILE}-mark"
    lines = mark.read_bytes().split(MAGIC)
    mark.write_bytes(MAGIC.join([*lines[:3], lines[-1]]))
    assert say(scene, "adopt") == 0 and "are unknown" in read_output(scene), read_output(scene)
    resume(scene, policy=policy)
    resume(scene, policy=policy)
    waits = [line for line in scene.world.lines() if line[0] == "waits"]
    assert [line[1] for line in waits] == ["pay", "pay"]
    assert scene.world.effects() == ONCE
    assert not [line for line in scene.world.lines() if line[0] == "asked"], "a check without the key knows nothing"
    for _ in range(BILLS):
        assert say(scene, "answer", "bills", "--done", '"seen"') == 0, read_output(scene)
        resume(scene, policy=policy)
    assert scene.world.effects() == ONCE
    assert say(scene, "verify") == 0, read_output(scene)


def test_an_effect_that_had_begun_again_is_in_doubt_too(stage: Stage) -> None:
    """Its intent is there, and says that nothing had happened; that it began once more is lost."""
    scene = stage.scene("billing_program:pay_again")
    assert scene.fork_server.run("tests.crash.billing_program:pay_again", scene.folder, die=True) == KILLED
    os.replace(scene.folder / f"{FILE}-older", scene.folder / f"{FILE}-wal")
    assert say(scene, "adopt") == 0 and "lost: " in read_output(scene), read_output(scene)
    assert scene.fork_server.run("tests.crash.billing_program:pay_again", scene.folder, die=False) == 0
    assert scene.world.effects() == {"bill-0": 1}


def test_a_backup_put_in_place_of_a_store_is_found(stage: Stage) -> None:
    scene = stage.scene("billing_program:main")
    keep_backup(scene, "sync")
    assert pay(scene) == 0
    for suffix in ("-wal", "-shm"):
        (scene.folder / f"{FILE}{suffix}").unlink(missing_ok=True)
    os.replace(scene.folder / "backup.db", scene.folder / FILE)
    assert say(scene, "doctor") == 1 and "perdure adopt" in read_output(scene)
    assert say(scene, "adopt") == 0, read_output(scene)
    resume(scene)
    assert scene.world.effects() == ONCE


def test_a_backup_next_to_the_log_of_another_store_is_refused_unharmed(stage: Stage) -> None:
    scene = stage.scene("billing_program:main")
    keep_backup(scene, "sync")
    assert pay(scene, die=True) == KILLED
    shutil.copyfile(scene.folder / "backup.db", scene.folder / FILE)
    before = (scene.folder / FILE).read_bytes()
    assert say(scene, "adopt") == 2 and f"{FILE}-wal" in read_output(scene), read_output(scene)
    assert (scene.folder / FILE).read_bytes() == before
    for suffix in ("-wal", "-shm"):
        (scene.folder / f"{FILE}{suffix}").unlink()
    assert say(scene, "adopt") == 0 and "lost: " in read_output(scene), read_output(scene)
    assert say(scene, "verify") == 0, read_output(scene)
    resume(scene)
    assert scene.world.effects() == ONCE


def test_without_its_mark_a_store_opens(stage: Stage) -> None:
    scene = stage.scene("billing_program:main")
    assert pay(scene, die=True) == KILLED
    os.unlink(scene.folder / f"{FILE}-mark")
    resume(scene)
    assert scene.world.effects() == ONCE
    assert say(scene, "verify") == 0, read_output(scene)


@pytest.mark.parametrize("number", range(12))
def test_a_torn_mark_accuses_nobody(stage: Stage, number: int) -> None:
    scene = stage.scene("billing_program:main")
    assert pay(scene, die=True) == KILLED
    chance, mark = random.Random(number), scene.folder / f"{FILE}-mark"
    data = bytearray(mark.read_bytes())
    for _ in range(number):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    mark.write_bytes(data[: len(data) - chance.randrange(200)])
    assert say(scene, "verify") == 0, read_output(scene)
    resume(scene)
    assert scene.world.effects() == ONCE
