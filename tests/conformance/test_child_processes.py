"""What an effect has started outlives the process: child processes, forks, threads beside a main thread that ended."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import Agent, AsyncAgent, Done, InDoubt, NotDone, PerdureError, RunBusy, RunWaiting
from perdure.platform.descendants import find_living_descendant
from perdure.platform.process import Holder, read_stat
from perdure.records import RunStarted
from perdure.run import doubt
from perdure.values.clock import SYSTEM_CLOCK

from .kit import IN_SOAK, PATIENCE, World, agent_at, die, fork_program, run_in_child, wait_until

SYS_EXIT = {"x86_64": 60}.get(os.uname().machine, 93)
"""The system call that ends one thread: this number on x86, the other one on what came after it."""

Colour = Literal["sync", "async"]
Start = Callable[["Scene", str], None]


class Scene:
    """An effect whose body leaves its work to another process, which waits for a sign before it does it."""

    def __init__(self, store_url: str, world: World, folder: Path) -> None:
        self.store_url = store_url
        self.world = world
        self.go, self.begun, self.pid_file = folder / "go", folder / "begun", folder / "pid"

    def script(self, key: str) -> str:
        """A shell that tells who it is, waits, and then acts."""
        go, begun, pid, world = (
            shlex.quote(str(path)) for path in (self.go, self.begun, self.pid_file, self.world.path)
        )
        act = f"[ -s {go} ] || echo {shlex.quote(key)} >> {world}"
        return f"echo $$ > {pid}; : > {begun}; while [ ! -e {go} ]; do sleep 0.02; done; {act}"

    def work(self, key: str) -> None:
        """The same in a fork of this process."""
        self.pid_file.write_text(str(os.getpid()))
        self.begun.touch()
        while not self.go.exists():
            time.sleep(0.02)
        if not self.go.read_text():
            self.world.do(key)
        os._exit(0)

    @property
    def pid(self) -> int:
        return int(self.pid_file.read_text())

    def has_ended(self) -> bool:
        seen = read_stat(f"/proc/{self.pid}")
        return seen is None or seen.ended

    @property
    def holder(self) -> Holder:
        """Who has begun the effect."""
        records = [event.record for event in agent_at(self.store_url).runs.get("r").events]
        [started] = [record for record in records if isinstance(record, RunStarted)]
        return started.holder

    def let_act(self) -> None:
        self.go.touch()

    def call_off(self) -> None:
        """It ends without having done anything."""
        staged = self.go.with_suffix(".staged")
        staged.write_text("no")
        staged.rename(self.go)

    def check(self, amount: int, *, key: str) -> object:
        return Done(f"found {amount}") if self.world.count(key) else NotDone

    def die_in_the_effect(self, start: Start, before: Callable[[], object] = lambda: None) -> None:
        """A process begins the effect, hands the work on, and is killed."""

        def program() -> None:
            before()
            self.play(self.handing_on(start))

        assert run_in_child(program) == signal.SIGKILL

    def handing_on(self, start: Start) -> Callable[[str], object]:
        """A body that does not live to see the end of what it has started."""

        def body(key: str) -> None:
            start(self, key)
            wait_until(self.begun.exists)
            die()

        return body

    def play(self, body: Callable[[str], object], **how: Any) -> Any:
        agent = agent_at(self.store_url)

        @agent.effect(check=self.check)
        def pay(amount: int, *, key: str) -> str:
            body(key)
            return f"paid {amount}"

        with agent.run("r", **how) as run:
            run.result = pay(5)
        return run.result

    async def play_async(self, body: Callable[[str], object], **how: Any) -> Any:
        async with AsyncAgent("tester", store=self.store_url) as agent:

            @agent.effect(check=self.check)
            async def pay(amount: int, *, key: str) -> str:
                body(key)
                return f"paid {amount}"

            async with agent.run("r", **how) as run:
                run.result = await pay(5)
            return run.result

    def resume(self, colour: Colour, **how: Any) -> Any:
        """In this process, whose body does what there is to do."""
        if colour == "async":
            return asyncio.run(self.play_async(self.world.do, **how))
        return self.play(self.world.do, **how)


@pytest.fixture
def scene(store_url: str, world: World, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(store_url, world, tmp_path)
    # This process holds runs too: what others start that it has started must not count as its own.
    with agent_at(store_url, "bystander").run("here"):
        yield made
    if not made.go.exists():
        made.call_off()
    if made.pid_file.exists():
        wait_until(made.has_ended)  # or it would wait for ever, for a file in a folder that is gone


def executed(scene: Scene, key: str) -> None:
    subprocess.Popen(["sh", "-c", scene.script(key)])


def executed_by_another(scene: Scene, key: str) -> None:
    """The one in between has ended long before anybody looks."""
    subprocess.run(["sh", "-c", f"setsid sh -c {shlex.quote(scene.script(key))} & exit 0"], check=True)


def forked_only(scene: Scene, key: str) -> None:
    if os.fork() == 0:
        scene.work(key)


def turned_into_a_daemon(scene: Scene, key: str) -> None:
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            scene.work(key)
        os._exit(0)
    os.waitpid(first, 0)


def spawned(scene: Scene, key: str) -> None:
    os.posix_spawn("/bin/sh", ["sh", "-c", scene.script(key)], os.environ)


STARTS = [executed, executed_by_another, forked_only, turned_into_a_daemon, spawned]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
def test_not_done_is_not_believed_while_a_child_of_the_body_lives(scene: Scene, start: Start, colour: Colour) -> None:
    scene.die_in_the_effect(start)
    with pytest.raises(
        RunWaiting, match=rf"child process {scene.pid} \(.+\) of process \d+ on .+ may still be running"
    ):
        scene.resume(colour, wait=0)
    assert scene.world.read_all() == []
    scene.let_act()
    assert scene.resume(colour, wait=PATIENCE) == "found 5"
    assert len(scene.world.read_all()) == 1


def test_a_child_that_ends_while_the_check_is_asked_may_have_acted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is older than its last act."""
    look = scene.check

    def slow(amount: int, *, key: str) -> object:
        answer = look(amount, key=key)
        if not scene.go.exists():
            scene.let_act()
            wait_until(lambda: scene.world.read_all())
            wait_until(lambda: find_living_descendant(identity, 0) is None)
        return answer

    scene.die_in_the_effect(executed)
    identity = scene.holder
    monkeypatch.setattr(scene, "check", slow)
    assert scene.resume("sync", wait=PATIENCE) == "found 5"
    assert len(scene.world.read_all()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("start", [executed, forked_only], ids=lambda start: start.__name__)
def test_when_the_child_has_ended_the_run_goes_on_by_itself(
    scene: Scene, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "CHECK_AGAIN_SECONDS", PATIENCE)  # nobody asks again but for the end of the child
    scene.die_in_the_effect(start)
    results: list[str] = []
    waiting = threading.Thread(target=lambda: results.append(scene.resume("sync", wait=PATIENCE * 2)))
    waiting.start()
    wait_until(lambda: results or agent_at(scene.store_url).runs.get("r").questions)
    assert results == [], "it did not wait for the child"
    scene.call_off()
    waiting.join(PATIENCE)
    assert results == ["paid 5"]
    assert len(scene.world.read_all()) == 1


def test_a_parked_run_comes_back_for_the_end_of_a_child(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "PARKED_CHILD_SECONDS", 0.5)
    asked: list[str] = []

    def check(amount: int, *, key: str) -> object:
        asked.append(key)
        return scene.check(amount, key=key)

    def worker_at(body: Callable[[str], object]) -> tuple[Agent, Any]:
        agent = agent_at(scene.store_url)

        @agent.effect(check=check)
        def pay(amount: int, *, key: str) -> str:
            body(key)
            return f"paid {amount}"

        @agent.task
        def shop(amount: int) -> str:
            return pay(amount)

        return agent, shop

    def doomed() -> None:
        agent, shop = worker_at(scene.handing_on(executed))
        shop.start("t", 5)
        agent.worker().run()

    assert run_in_child(doomed) == signal.SIGKILL
    agent, shop = worker_at(scene.world.do)
    worker = agent.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: len(asked) >= 2)  # it was parked, and came back while the child was at work
        assert scene.world.read_all() == []
        scene.call_off()
        assert shop.result("t", timeout=PATIENCE) == "paid 5"
    finally:
        worker.drain()
        thread.join(PATIENCE)
    assert len(scene.world.read_all()) == 1


def test_a_process_that_was_started_before_the_effect_is_not_waited_for(scene: Scene) -> None:
    def start_a_server() -> None:
        agent_at(scene.store_url).run("first").__enter__()  # from here on this process leaves its traces
        scene.pid_file.write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        scene.begun.touch()
        started = SYSTEM_CLOCK.boot_ms()
        wait_until(lambda: SYSTEM_CLOCK.boot_ms() > started + 50)  # start times are known to a hundredth of a second

    scene.die_in_the_effect(lambda scene, key: None, before=start_a_server)
    try:
        assert scene.resume("sync", wait=0) == "paid 5"
    finally:
        os.kill(scene.pid, signal.SIGKILL)


@pytest.mark.soak  # the fork of a worker that has run a thousand tests did not come to its end; alone it does
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_successor_may_be_a_child_of_the_body_itself(scene: Scene, tmp_path: Path) -> None:
    """It does not wait for itself, nor for what it has started."""
    ended = tmp_path / "ended"

    def go_on(parent: int) -> None:
        scene.begun.touch()
        wait_until(lambda: os.getppid() != parent)
        with agent_at(scene.store_url, "other").run("own"):
            helper = subprocess.Popen(["sleep", "600"])
        try:
            ended.write_text(scene.resume("sync", wait=0))
        except PerdureError as error:
            ended.write_text(f"{type(error).__name__}: {error}")
        finally:
            helper.kill()

    def succeed(scene: Scene, key: str) -> None:
        parent = os.getpid()
        if os.fork() == 0:
            try:
                Context().run(go_on, parent)  # which is not inside of the effect any more
            finally:
                os._exit(0)

    scene.die_in_the_effect(succeed)
    wait_until(lambda: ended.exists() and ended.read_text())
    assert ended.read_text() == "paid 5"
    assert len(scene.world.read_all()) == 1


def test_a_child_with_an_empty_environment_is_known_by_its_group(scene: Scene) -> None:
    def start(scene: Scene, key: str) -> None:
        subprocess.Popen(["/bin/sh", "-c", scene.script(key)], env={})

    scene.die_in_the_effect(start, before=lambda: os.setpgid(0, 0))
    with pytest.raises(RunWaiting, match=f"child process {scene.pid} "):
        scene.resume("sync", wait=0)
    scene.call_off()
    assert scene.resume("sync", wait=PATIENCE) == "paid 5"


@pytest.mark.stores("sqlite", *(["postgres"] if IN_SOAK else []))  # it waits ten seconds, and asks the kernel
@pytest.mark.sampled
async def test_a_child_of_a_body_that_timed_out_is_at_work(scene: Scene) -> None:
    """The body was cancelled and has ended; what it started has not, and a retry would be the second time."""
    started: list[asyncio.subprocess.Process] = []
    async with AsyncAgent("tester", store=scene.store_url) as agent:

        @agent.effect(check=scene.check, timeout=10.0, retries=2, backoff=0)
        async def pay(amount: int, *, key: str) -> str:
            started.append(await asyncio.create_subprocess_exec("sh", "-c", scene.script(key)))
            await started[-1].wait()
            return f"paid {amount}"

        with pytest.raises(InDoubt):
            async with agent.run("r"):
                await pay(5)
        with pytest.raises(RunWaiting, match="child process"):
            async with agent.run("r", wait=0):
                await pay(5)
        scene.let_act()
        async with agent.run("r", wait=PATIENCE):
            assert await pay(5) == "found 5"
        for one in started:
            await one.wait()
    assert len(started) == len(scene.world.read_all()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_whose_main_thread_has_ended_is_alive(scene: Scene) -> None:
    """The kernel shows it as a zombie; its other threads are in the middle of the effect."""

    def act(key: str) -> None:
        scene.begun.touch()
        wait_until(scene.go.exists)
        scene.world.do(key)

    def headless() -> None:
        def work() -> None:
            try:
                assert scene.play(act) == "paid 5"
                os._exit(0)
            except BaseException:  # told by the exit code
                os._exit(1)

        threading.Thread(target=work).start()
        wait_until(scene.begun.exists)
        ctypes.CDLL(None).syscall(SYS_EXIT, 0)

    pid = fork_program(headless)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    with pytest.raises(RunBusy, match=f"process {pid}"):
        scene.resume("sync", wait=0)
    scene.let_act()
    assert os.waitpid(pid, 0)[1] == 0
    assert scene.resume("sync") == "paid 5"
    assert len(scene.world.read_all()) == 1


def test_a_taker_that_started_the_holder_looks_for_its_children_too(scene: Scene) -> None:
    """The child carries the marks of both, and that of the holder decides."""
    with agent_at(scene.store_url, "supervisor").run("s"):
        assert in_program(scene, "be_killed") == -signal.SIGKILL
        with pytest.raises(RunWaiting, match=f"child process {scene.pid} "):
            scene.resume("sync", wait=0)


def test_a_supervisor_may_be_an_agent_and_restart_its_program_inside_an_effect(scene: Scene) -> None:
    """Programs that it starts carry its mark too: they must not wait for each other, nor for it."""
    agent = agent_at(scene.store_url, "supervisor")

    @agent.effect
    def supervise() -> list[int]:
        return [in_program(scene, "be_killed"), in_program(scene, "go_on")]

    scene.call_off()
    with agent.run("s"):
        assert supervise() == [-signal.SIGKILL, 0]
    assert len(scene.world.read_all()) == 1


def in_program(scene: Scene, name: str) -> int:
    """Run one of the functions below in an interpreter of its own; returns its exit code."""
    code = f"import sys; from {__name__} import {name}; {name}(*sys.argv[1:])"
    command = [sys.executable, "-c", code, scene.store_url, str(scene.go.parent)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[__name__.count(".")])}
    return subprocess.run(command, env=env, check=False).returncode


def be_killed(store_url: str, folder: str) -> None:
    scene = Scene(store_url, World(Path(folder)), Path(folder))
    scene.play(scene.handing_on(executed))


def go_on(store_url: str, folder: str) -> None:
    scene = Scene(store_url, World(Path(folder)), Path(folder))
    assert scene.resume("sync", wait=PATIENCE) == "paid 5"
