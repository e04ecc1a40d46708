"""Who a process is, so that a dead one can be told from a slow one.

A pid alone is reused; (boot id, pid namespace, pid, start time) is not. A process of the same boot and the
same pid namespace can be looked at; any other can only be waited for.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

import msgspec

STAT_BYTES_MAX = 4096
PASSES_MAX = 20
"""How often a list of threads or processes is read again because some of them ended meanwhile."""

MOVED, COPIED = "moved ", "copied "
"""Before the boot id of a process that wrote to a run in another store, which was moved here, or copied."""


class Holder(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The identity of a process that holds leases."""

    boot: str
    namespace: str
    pid: int
    started: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def host_name() -> str:
    """Of this machine."""
    return os.uname().nodename


def this_process() -> Holder:
    """The identity of the calling process."""
    pid = os.getpid()
    return Holder(boot_id(), _namespace("self"), pid, _start_time(pid) or 0, host_name())


def proven_dead(holder: Holder, one_host: bool = True) -> bool:
    """True only when it is certain that `holder` runs no more; False when it lives or cannot be looked at.

    With `one_host`, all processes that it may be among have run on this machine.
    """
    if at_home(holder.boot) != boot_id() or holder.boot.startswith(COPIED):
        # A store file is on one host (network file systems are refused): another boot id is a past boot. With a
        # server between us, it may as well be another machine; and so if it wrote to another store.
        return one_host and at_home(holder.boot) == holder.boot
    if not one_host and holder.host != host_name():
        return False  # two machines woken from one snapshot say that they have booted once
    if holder.namespace != _namespace("self"):
        return False
    started = _start_time(holder.pid)
    if started is None:
        return not _exists(holder.pid)
    return started != holder.started


def at_home(boot: str) -> str:
    """The boot id of a process, whatever its run has been through since."""
    return boot.removeprefix(MOVED).removeprefix(COPIED)


@cache
def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return f"host:{host_name()}"


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return "unknown"


def _start_time(pid: int) -> int | None:
    """In clock ticks after boot; None when it cannot be read, -1 when nothing of the process runs any more."""
    seen = read_stat(f"/proc/{pid}")
    if seen is None:
        return None
    return seen.started if living_thread(pid, seen) else -1


class Stat(NamedTuple):
    """What /proc/PID/stat says of a process or a thread."""

    ended: bool
    """A corpse that nobody has collected yet; of a process, its main thread is one."""
    group: int
    session: int
    started: int
    """In clock ticks after boot."""


def read_stat(folder: str) -> Stat | None:
    """Of a process or a thread, by its folder in /proc; None when it cannot be read."""
    try:
        opened = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)  # a file object takes twice the time
        try:
            fields = os.read(opened, STAT_BYTES_MAX).rpartition(b")")[2].split()
        finally:
            os.close(opened)
    except OSError:
        return None
    return Stat(fields[0] in (b"Z", b"X"), int(fields[2]), int(fields[3]), int(fields[19]))


def living_thread(pid: int, seen: Stat) -> str | None:
    """The folder of a thread that still runs; None when all of them have ended.

    When the main thread exits and others go on, the kernel shows the process as a zombie, and its memory and files only
    in the folders of the other threads.
    """
    folder = f"/proc/{pid}"
    if not seen.ended:
        return folder
    for _ in range(PASSES_MAX):
        try:
            threads = [f"{folder}/task/{thread}" for thread in os.listdir(f"{folder}/task")]
        except OSError:
            return None
        stats = [read_stat(thread) for thread in threads]
        for thread, stat in zip(threads, stats, strict=True):
            if stat is not None and not stat.ended:
                return thread
        # A thread that has ended since the list was read may have started another one: then the list is read again.
        if None not in stats:
            return None
    return folder


def _exists(pid: int) -> bool:
    # Without /proc, or when it hides the processes of other users, the kernel still says whether a pid is taken.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
