"""A process as if on a machine of its own: `python -m perdure.demo.host NAME PROGRAM ARGUMENT...`

Namespaces of Linux give it a host name and a process table. From any other such host, and from outside, nobody can
tell by looking whether it is alive: as with a machine at the other end of a network.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x0002_0000, 0x0400_0000, 0x1000_0000, 0x2000_0000
MS_REC, MS_PRIVATE = 0x4000, 0x4_0000
PR_SET_PDEATHSIG = 1

INNER_PID = 2
"""Of the program, as it sees itself. The first process of a process table ignores its own SIGKILL, so it waits."""


def command_on(host: str, *command: str) -> list[str]:
    """What starts a program there. It ends as the program ends, by the same signal; killed, it takes that along."""
    return [sys.executable, "-m", __name__, host, *command]


def why_not() -> str:
    """The reason why there can be no hosts here; empty if there can."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    probe = subprocess.run(
        command_on("host", sys.executable, "-c", ""), capture_output=True, text=True, timeout=20, check=False
    )
    return (probe.stderr.strip().splitlines() or ["no reason given"])[-1] if probe.returncode else ""


def main(host: str, *command: str) -> None:
    """Leave this machine, run the program, end as it ended."""
    _leave()
    socket.sethostname(host)
    first = os.fork()
    if first == 0:
        _be_first(command)
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    if code > 128:
        os.kill(os.getpid(), code - 128)
    sys.exit(code)


def _leave() -> None:
    user, group = os.geteuid(), os.getegid()
    flags = CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWNS
    try:
        _call("unshare", flags)
    except PermissionError:
        # Whoever is not root may do so as the root of a user namespace, in which he keeps his number.
        _call("unshare", flags | CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="utf-8") as file:
                file.write(text)


def _be_first(command: tuple[str, ...]) -> None:
    """The first process of the new table: when it ends, the kernel ends all others in it."""
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        _call("mount", b"proc", b"/proc", b"proc", 0, None)
    except OSError:
        pass  # a container may hide parts of /proc and forbid this; then `ps` shows the outer table, and that is all
    code = subprocess.call(command)
    os._exit(code if code >= 0 else 128 - code)


def _call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


if __name__ == "__main__":
    main(*sys.argv[1:])
