"""Identifies processes, to tell a dead one from a slow one.

A pid alone is reused; (boot id, pid namespace, pid, start time) is not. A process of the same boot and pid namespace
can be examined; of any other only the lease can expire.
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

import msgspec

STAT_BYTES_MAX = 4096
PASSES_MAX = 20
"""How often a list of threads or processes is reread because some ended meanwhile."""

MOVED, COPIED = "moved ", "copied "
"""Prefixes of the boot id of a process that wrote to a run before it was moved or copied here."""

CLIENT = "client "
"""Prefix of the boot id in the identity of a client: a program that drives a run through a process of that boot."""

REMOTE = "remote "
"""The prefix of the boot id of a process on another machine, in a store that `perdure serve` has on this one."""

KEY = "key "
"""The prefix of the boot id of a process behind a server; the id of its key and a space follow."""


class Holder(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The identity of a process that holds leases."""

    boot: str
    namespace: str
    pid: int
    started: int
    host: str

    def __str__(self) -> str:
        return f"client {self.host}" if self.is_client else f"process {self.pid} on {self.host}"

    @property
    def is_client(self) -> bool:
        """Whether it is a program behind a server: only its lease tells whether it is alive."""
        return CLIENT in self.boot


def host_name() -> str:
    """The name of this machine."""
    return os.uname().nodename


def identify_this_process() -> Holder:
    """The identity of the calling process."""
    return identify_process(os.getpid())


def identify_process(pid: int) -> Holder:
    """The identity of another process of this machine and pid namespace."""
    return Holder(boot_id(), _namespace("self"), pid, _start_time(pid) or 0, host_name())


def identify_client(client: str, label: str) -> Holder:
    """The identity of a program behind a server: the id that it gave itself, and a label for people."""
    return Holder(CLIENT + boot_id(), client, 0, 0, label)


def proven_dead(holder: Holder, one_host: bool = True) -> bool:
    """Whether `holder` has certainly ended; False if it lives or cannot be examined.

    With `one_host`, all holders run on this machine.
    """
    if strip_boot_prefix(holder.boot) != boot_id() or holder.boot.startswith(COPIED):
        # A store file is on one host (network file systems are refused), so another boot id is a past boot. With a
        # server, or if it wrote to another store, it may be another machine.
        return one_host and strip_boot_prefix(holder.boot) == holder.boot
    if not one_host and holder.host != host_name():
        return False  # two machines restored from one snapshot have the same boot id
    if holder.namespace != _namespace("self"):
        return False
    started = _start_time(holder.pid)
    if started is None:
        return not _exists(holder.pid)
    return started != holder.started


def strip_boot_prefix(boot: str) -> str:
    """Return a boot id without the prefixes of a key, a move, a copy, another machine and a client."""
    if boot.startswith(KEY):
        boot = boot.removeprefix(KEY).partition(" ")[2]
    return boot.removeprefix(MOVED).removeprefix(COPIED).removeprefix(REMOTE).removeprefix(CLIENT)


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
    """Return the start time in clock ticks after boot; None if unreadable, -1 if the process has ended."""
    seen = read_stat(f"/proc/{pid}")
    if seen is None:
        return None
    return seen.started if find_living_thread(pid, seen) else -1


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat for a process or a thread."""

    ended: bool
    """Whether it is a zombie; for a process, whether its main thread is."""
    group: int
    session: int
    started: int
    """In clock ticks after boot."""


def read_stat(folder: str) -> ProcessStat | None:
    """Read the stat of a process or a thread by its folder in /proc; None if unreadable."""
    try:
        opened = os.open(f"{folder}/stat", os.O_RDONLY | os.O_CLOEXEC)  # a file object takes twice the time
        try:
            fields = os.read(opened, STAT_BYTES_MAX).rpartition(b")")[2].split()
        finally:
            os.close(opened)
    except OSError:
        return None
    return ProcessStat(fields[0] in (b"Z", b"X"), int(fields[2]), int(fields[3]), int(fields[19]))


def find_living_thread(pid: int, seen: ProcessStat) -> str | None:
    """Return the folder of a thread that still runs; None if all have ended.

    If the main thread exits before others, the kernel shows the process as a zombie, and its memory and files only in
    the folders of the other threads.
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
        # A thread that ended after the list was read may have started another: read the list again.
        if None not in stats:
            return None
    return folder


def _exists(pid: int) -> bool:
    # Even if /proc is missing or hides processes of other users, the kernel tells whether a pid is in use.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
