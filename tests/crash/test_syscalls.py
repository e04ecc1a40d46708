"""SIGKILL, and errors, at every system call of an unmodified process that writes or syncs."""

from __future__ import annotations

import pytest

from tests.budget import sample
from tests.crash.harness import Scene, Stage, Undisturbed, run_cases, spread
from tests.crash.tracer import Call, Tracer, calls_in

pytestmark = pytest.mark.stores("sqlite")
KILLED, REPORTED, UNHARMED = -9, 3, 0
COLOURS = ("sync", "async")
ASYNC_KILLS = 15
"""Of the other colour a part: it makes the same calls from another thread."""

WRITE_ERRORS = 10
"""Points per kind of error in CI; `make soak` takes all."""


@pytest.fixture(scope="module")
def tracer(strace: str) -> Tracer:
    return Tracer(strace)


@pytest.fixture(scope="module")
def clean(stage: Stage, tracer: Tracer) -> dict[str, tuple[Undisturbed, list[Call]]]:
    """The short run in peace, and its system calls."""
    found = {}
    for colour in COLOURS:
        scene = stage.scene("short_program:main", colour)
        code, trace = tracer.run(scene)
        assert code == UNHARMED
        found[colour] = (Undisturbed(scene.outcome(), scene.world.effects(), []), calls_in(trace))
    return found


Clean = dict[str, tuple[Undisturbed, list[Call]]]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_every_write_and_sync(stage: Stage, tracer: Tracer, clean: Clean, colour: str) -> None:
    """What was acknowledged is there, and the next start finishes the run."""
    expected, calls = clean[colour]

    def kill_and_resume(call: Call) -> list[str]:
        scene = stage.scene("short_program:main", colour)
        code, _ = tracer.run(scene, inject=f"{call.name}:signal=KILL:when={call.nth}")
        assert code == KILLED, f"it was not killed, but ended with {code}"
        scene.finish()
        return scene.judge(expected)

    assert len(calls) > 100, "the trace misses most of what SQLite does"
    assert run_cases(kill_and_resume, sample(calls, 5) if colour == "sync" else spread(calls, ASYNC_KILLS)) == []


def fail_and_resume(
    stage: Stage, tracer: Tracer, expected: Undisturbed, call: Call, error: str, colour: str = "sync"
) -> list[str]:
    """Let one call fail; the program hears a typed error, acknowledges nothing false, and recovers on reopening."""
    scene = stage.scene("short_program:main", colour)
    code, trace = tracer.run(scene, inject=f"{call.name}:error={error}:when={call.nth}")
    assert "(INJECTED)" in trace, "nothing was made to fail"
    assert code in (REPORTED, UNHARMED), f"it ended with {code}"
    found = _unheard(scene, code, call)
    scene.finish()
    return found + scene.judge(expected)


def _unheard(scene: Scene, code: int, call: Call) -> list[str]:
    """What is wrong about what the program heard."""
    heard = {line[0]: line[1] for line in scene.world.lines() if line[0] in ("error", "reads", "writes")}
    if code == UNHARMED:
        # Nothing depends on a sync of the folder by SQLite, nor on what is done after the last promise.
        of_a_folder = call.name == "fdatasync" and "store.db" not in call.line
        # A line that is missing in the mark weakens a second line of defence: the commit itself has landed.
        of_the_mark = "store.db-mark" in call.line
        return [] if call.late or of_a_folder or of_the_mark else ["the program was told that all is well"]
    found = []
    if heard["error"] not in ("StoreFenced", "StorageFull", "StoreUnavailable"):
        found.append(f"the error was {heard['error']}")
    if heard.get("reads") != "work":
        found.append(f"reading afterwards: {heard.get('reads')}")
    in_a_run = any(line[0] in ("ack", "body") for line in scene.world.lines())
    if heard["error"] == "StoreFenced" and in_a_run and heard["writes"] != "StoreFenced":
        found.append(f"after an I/O error the process goes on writing: {heard['writes']}")
    if heard["error"] == "StorageFull" and heard["writes"] != "work":
        found.append(f"with space again, writing raises {heard['writes']}")
    return found


def points(calls: list[Call], *names: str) -> list[Call]:
    """The calls of that name that concern the store, and not the victim's own files."""
    ours = [call for call in calls if "world.log" not in call.line and "outcome" not in call.line]
    return [call for call in ours if call.name in names]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["fdatasync", "fsync"])
def test_eio_at_every_sync(stage: Stage, tracer: Tracer, clean: Clean, name: str) -> None:
    expected, calls = clean["sync"]
    chosen = points(calls, name)
    assert chosen
    assert run_cases(lambda call: fail_and_resume(stage, tracer, expected, call, "EIO"), chosen) == []


@pytest.mark.timeout(900)
def test_eio_at_a_sync_of_the_commit_thread(stage: Stage, tracer: Tracer, clean: Clean) -> None:
    """Under asyncio another thread commits: its errors reach the awaiting caller all the same."""
    expected, calls = clean["async"]
    chosen = spread(points(calls, "fdatasync"), 8)
    assert chosen
    assert run_cases(lambda call: fail_and_resume(stage, tracer, expected, call, "EIO", "async"), chosen) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_error_at_writes(stage: Stage, tracer: Tracer, clean: Clean, error: str) -> None:
    expected, calls = clean["sync"]
    chosen = spread(points(calls, "pwrite64"), WRITE_ERRORS) + points(calls, "write", "ftruncate", "link")
    assert run_cases(lambda call: fail_and_resume(stage, tracer, expected, call, error), chosen) == []


@pytest.mark.soak
@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EROFS"])
def test_error_at_every_write(stage: Stage, tracer: Tracer, clean: Clean, error: str) -> None:
    expected, calls = clean["sync"]
    chosen = points(calls, "pwrite64", "write", "ftruncate", "link")
    assert run_cases(lambda call: fail_and_resume(stage, tracer, expected, call, error), chosen) == []
