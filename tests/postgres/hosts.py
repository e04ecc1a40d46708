"""Three machines and a cable each to the server: network namespaces, whose links a test can unplug.

A program on a host has a network, a host name, a boot id and a process table of its own, as on another machine; it
shares the files, so that the outside world of the crash tests is still one.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.crash.harness import CHILD_SECONDS_MAX, environment

COMMAND_SECONDS_MAX = 100
_numbers = itertools.count()

# Runs as the first process of its pid namespace, with its own view of /proc and a boot id that nobody else has.
ENTER = """
mount -t proc proc /proc
mount --bind "$1" /proc/sys/kernel/random/boot_id
hostname "$2"
shift 2
exec "$@"
"""


def explain_missing() -> str:
    """The reason why there can be no hosts here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for name in ("ip", "unshare", "nsenter"):
        if shutil.which(name) is None:
            return f"{name} is not installed (.ci/run installs iproute2)"
    probe = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount", "--uts", "ip", "link", "set", "lo", "up"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if probe.returncode != 0:
        return f"namespaces cannot be made here: {probe.stderr.strip()}"
    name = f"pd{os.getpid()}"
    probe = subprocess.run(
        ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if probe.returncode == 0:
        _ip("link", "del", name)
    return f"links cannot be made here: {probe.stderr.strip()}" if probe.returncode else ""


class Host:
    """One machine. Its namespace lives as long as a process that waits for the end of this one."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._number = (os.getpid() * 8 + next(_numbers)) % 2**14
        self._link = f"pdh{self._number}"
        self._boot = folder / f"boot-{name}"
        self._boot.write_text(f"{uuid.uuid4()}\n")
        net = self._number * 4
        self.gateway, self._address = (f"10.{200 + (net >> 16)}.{(net >> 8) & 255}.{(net & 255) + n}" for n in (1, 2))
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; cat >/dev/null"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._keeper.stdout is not None
        self._keeper.stdout.readline()  # the namespace is there
        keeper = str(self._keeper.pid)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", keeper)
        _ip("addr", "add", f"{self.gateway}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for command in (("addr", "add", f"{self._address}/30", "dev", "eth0"), ("link", "set", "eth0", "up")):
            self._run("ip", *command)
        self._run("ip", "link", "set", "lo", "up")

    def unplug(self) -> None:
        """Nothing passes any more, in either direction; nobody is told."""
        _ip("link", "set", self._link, "down")

    def plug(self) -> None:
        _ip("link", "set", self._link, "up")

    def url(self, port: int, schema: str, **parameters: str) -> str:
        """A store in the server at the other end of the cable."""
        return f"postgresql://postgres@{self.gateway}:{port}/postgres?" + urlencode({"schema": schema, **parameters})

    def start(self, *arguments: str, output: Path, env: dict[str, str] | None = None) -> Program:
        """Run Python here."""
        enter = ["nsenter", "--net", f"--target={self._keeper.pid}"]
        unshare = ["unshare", "--pid", "--fork", "--kill-child=KILL", "--mount", "--uts"]
        shell = ["sh", "-ec", ENTER, "enter", str(self._boot), self.name]
        with output.open("ab") as file:
            process = subprocess.Popen(
                [*enter, *unshare, *shell, sys.executable, *arguments],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment(**(env or {})),
            )  # fmt: skip
        return Program(process, output)

    def close(self) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        _ip("link", "del", self._link)
        self._keeper.stdin.close()
        self._keeper.stdout.close()
        self._keeper.wait(COMMAND_SECONDS_MAX)

    def _run(self, *command: str) -> None:
        enter = ["nsenter", "--net", f"--target={self._keeper.pid}"]
        subprocess.run([*enter, *command], check=True)


class Program:
    """A process on a host."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output

    def send(self, number: int) -> None:
        """To the program itself, not to what has started it."""
        for pid in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
            os.kill(int(pid), number)

    def wait(self, seconds: float = CHILD_SECONDS_MAX) -> int:
        """The exit code; a program that does not end is killed, and fails the test."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self._process.wait(COMMAND_SECONDS_MAX)
            raise AssertionError(f"it did not end within {seconds:g} s:\n{self.output()}") from None

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Whatever it does; for the end of a test."""
        self._process.kill()
        self._process.wait(COMMAND_SECONDS_MAX)

    def output(self) -> str:
        return self._output.read_text()


def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    """That many machines, for a fixture; skips where there can be none."""
    reason = explain_missing()
    if reason:
        pytest.skip(reason)
    with ExitStack() as stack:
        made = []
        for number in range(1, count + 1):
            made.append(Host(f"host-{number}", folder))
            stack.callback(made[-1].close)
        yield made


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
