"""Who a process is, so that a dead one can be told from a slow one.

A pid alone is reused; (boot id, pid namespace, pid, start time) is not. A process of the same boot and the
same pid namespace can be looked at; any other can only be waited for.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec

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
    return Holder(_boot_id(), _namespace("self"), pid, _start_time(pid) or 0, host_name())


def proven_dead(holder: Holder, one_host: bool = True) -> bool:
    """True only when it is certain that `holder` runs no more; False when it lives or cannot be looked at.

    With `one_host`, all processes that it may be among have run on this machine.
    """
    if at_home(holder.boot) != _boot_id() or holder.boot.startswith(COPIED):
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
def _boot_id() -> str:
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
    """Field 22 of /proc/PID/stat in clock ticks after boot; None when it cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    # A zombie (Z) or dead (X) entry is a corpse that nobody has collected yet: it writes nothing any more.
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])


def _exists(pid: int) -> bool:
    # Without /proc, or when it hides the processes of other users, the kernel still says whether a pid is taken.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
