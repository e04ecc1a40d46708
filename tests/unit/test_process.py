"""Who a process is, and when it is certainly dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import pytest

from perdure.platform import process
from perdure.platform.process import Holder, identify_this_process, proven_dead
from tests.unit import child

SECONDS = 100
SYS_EXIT = {"x86_64": 60}.get(os.uname().machine, 93)
"""The system call that ends one thread: this number on x86, the other one on what came after it."""


_PRINT_IDENTITY = (
    "import msgspec; from perdure.platform.process import identify_this_process; "
    "print(msgspec.json.encode(identify_this_process()).decode())"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A child that waits to be killed."""
    item = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield item
    item.kill()
    item.communicate()


def identity_of(pid: int) -> Holder:
    started = process._start_time(pid)
    assert started is not None
    return msgspec.structs.replace(identify_this_process(), pid=pid, started=started)


def test_this_process_is_alive_and_the_same_every_time() -> None:
    assert identify_this_process() == identify_this_process()
    assert identify_this_process().pid == os.getpid()
    assert not proven_dead(identify_this_process())
    assert str(os.getpid()) in str(identify_this_process())


def test_a_process_sees_its_own_identity_as_others_see_it(sleeper: subprocess.Popen[bytes]) -> None:
    code = _PRINT_IDENTITY
    seen = msgspec.json.decode(child.output(code), type=Holder)
    assert (seen.boot, seen.namespace, seen.host) == (
        identify_this_process().boot,
        identify_this_process().namespace,
        identify_this_process().host,
    )
    assert seen.pid != os.getpid()
    assert proven_dead(seen), "it has ended"


def test_a_living_child_is_alive_and_a_dead_one_dead(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identity_of(sleeper.pid)
    assert not proven_dead(holder)
    sleeper.kill()
    sleeper.wait(SECONDS)
    assert proven_dead(holder)


def test_a_stopped_process_is_alive(sleeper: subprocess.Popen[bytes]) -> None:
    import signal

    holder = identity_of(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        os.waitpid(sleeper.pid, os.WUNTRACED)
        assert not proven_dead(holder)
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)


def test_a_corpse_that_nobody_has_collected_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    holder = identity_of(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    with open(f"/proc/{sleeper.pid}/stat", "rb") as file:
        assert file.read().rpartition(b")")[2].split()[0] == b"Z"
    assert proven_dead(holder)


def test_a_process_whose_main_thread_has_ended_lives_as_long_as_its_other_threads() -> None:
    code = """
        import ctypes, os, sys, threading
        def work():
            sys.stdin.read()
            os._exit(0)
        threading.Thread(target=work).start()
        print("begun", flush=True)
        ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
    """
    headless = child.start(code, SYS_EXIT)
    try:
        assert headless.stdout is not None and headless.stdout.readline() == "begun\n"
        while (seen := process.read_stat(f"/proc/{headless.pid}")) and not seen.ended:
            time.sleep(0.005)
        holder = identity_of(headless.pid)
        assert seen is not None and holder.started == seen.started
        assert not proven_dead(holder)
    finally:
        child.end(headless)
    assert proven_dead(holder)


def test_a_number_that_another_process_has_now_is_no_sign_of_life() -> None:
    me = identify_this_process()
    assert proven_dead(msgspec.structs.replace(me, started=me.started - 1))


def test_another_boot_is_the_past() -> None:
    assert proven_dead(msgspec.structs.replace(identify_this_process(), boot="another"))


def test_what_is_in_another_namespace_cannot_be_looked_at(sleeper: subprocess.Popen[bytes]) -> None:
    elsewhere = msgspec.structs.replace(identity_of(sleeper.pid), namespace="pid:[1]")
    assert not proven_dead(elsewhere)
    sleeper.kill()
    sleeper.wait(SECONDS)
    assert not proven_dead(elsewhere)


def test_names_with_brackets_and_spaces_do_not_confuse(tmp_path_factory: pytest.TempPathFactory) -> None:
    code = """
        import ctypes
        ctypes.CDLL(None).prctl(15, b") S (x 1", 0, 0, 0)
        from perdure.platform import process
        print(process._start_time(process.os.getpid()) == process.identify_this_process().started)
        with open("/proc/self/stat") as file:
            text = file.read()
        print(") S (x 1" in text, text.rpartition(")")[2].split()[19] == str(process.identify_this_process().started))
    """
    assert child.output(code).split() == ["True"] * 3


def test_where_proc_is_missing_the_kernel_is_asked(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(process, "_start_time", lambda pid: None)
    holder = msgspec.structs.replace(identify_this_process(), pid=sleeper.pid, started=0)
    assert not proven_dead(holder)
    sleeper.kill()
    sleeper.wait(SECONDS)
    assert proven_dead(holder)


def test_a_process_that_may_not_be_signalled_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(process, "_start_time", lambda pid: None)
    monkeypatch.setattr(os, "kill", refuse)
    assert not proven_dead(identify_this_process())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a pid namespace here")
def test_a_process_of_a_real_other_namespace_is_not_judged(tmp_path_factory: pytest.TempPathFactory) -> None:
    code = _PRINT_IDENTITY
    inner = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *child.command(code)],
        env=child.environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if inner.returncode != 0:
        pytest.skip(f"unshare does not work here: {inner.stderr.strip()}")
    seen = msgspec.json.decode(inner.stdout, type=Holder)
    assert seen.namespace != identify_this_process().namespace
    assert not proven_dead(seen)
