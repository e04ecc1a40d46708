"""The capture of a process: begun by `perdure.capture()`, or by the environment that `perdure run --capture` sets."""

from __future__ import annotations

import atexit
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from perdure.adapters.session_calls import OpenTurn
from perdure.errors import WrongValue
from perdure.http_capture.hosts import parse_hosts
from perdure.http_capture.import_hook import install
from perdure.http_capture.recorder import ACTIVE, OWNER, CaptureSettings, Recorder, find_next_id
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_identifier
from perdure.records import RunStatus
from perdure.store.rows import read_run

RUN, HOSTS, MISMATCH = "PERDURE_CAPTURE_ID", "PERDURE_CAPTURE_HOSTS", "PERDURE_CAPTURE_MISMATCH"
MISMATCHES = ("warn", "strict", "force")
AGENT = "capture"
"""The agent that the runs belong to, unless the program names another."""


class ProcessCapture:
    """A capture that works until it is closed, or until the process ends."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._recorder = Recorder(settings)
        install()
        ACTIVE.append(self._recorder)
        atexit.register(self._close_at_exit)

    def __enter__(self) -> ProcessCapture:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(finish=error is None)

    def close(self, *, finish: bool = True) -> None:
        """Stop recording. The run is finished, or left for the next start of the program."""
        atexit.unregister(self._close_at_exit)
        if self._recorder in ACTIVE:
            ACTIVE.remove(self._recorder)
            self._recorder.close(finish=finish)

    def _close_at_exit(self) -> None:
        self.close(finish=RUN not in os.environ and getattr(sys, "last_value", None) is None)


def begin_capture(
    id: str | None, store: str | os.PathLike[str] | None, agent: str, hosts: Iterable[str], on_mismatch: str
) -> ProcessCapture:
    """Begin to record the model calls of this process."""
    if on_mismatch not in MISMATCHES:
        raise WrongValue(f'on_mismatch={on_mismatch!r}: choose "warn", "strict" or "force"')
    run = check_identifier(id, "a run's id") if id is not None else os.environ.get(RUN, "")
    more = parse_hosts(hosts) | parse_hosts(os.environ.get(HOSTS, ""))
    return ProcessCapture(CaptureSettings(run, name_program(sys.argv), store, agent, more, on_mismatch))


def begin_from_environment() -> None:
    """Begin to record, if `perdure run --capture` has started this process and no parent of it records."""
    if RUN in os.environ and OWNER not in os.environ:
        begin_capture(None, None, AGENT, (), os.environ.get(MISMATCH, "warn"))


def name_program(command: Iterable[str]) -> str:
    """Return what the ids of a program's runs begin with: its name, and a digest of its command and folder."""
    words = list(command)
    told = "\0".join([str(Path.cwd()), *words])
    named = next((Path(word).stem for word in words if word.endswith(".py")), Path(words[0]).stem if words else "")
    return f"{named or 'program'}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


# -- for the process that supervises it ------------------------------------------------------------------------------


def choose_run(url: str, command: Iterable[str]) -> str:
    """Return the unfinished run of a program, or the id of its next one."""
    engine = Engine(AGENT, store=url)
    try:
        return find_next_id(engine, name_program(command))
    finally:
        engine.close()


def make_environment(run: str, hosts: Iterable[str], on_mismatch: str) -> dict[str, str]:
    """Return the variables by which a Python program records its calls, in the run with this id."""
    site = str(Path(__file__).parent / "site")
    path = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH", "")]))
    more = ",".join(sorted(parse_hosts(hosts) | parse_hosts(os.environ.get(HOSTS, ""))))
    return {"PYTHONPATH": path, RUN: run, HOSTS: more, MISMATCH: on_mismatch}


def finish_run(url: str, run: str) -> None:
    """Finish the run of a program that has succeeded. A program without model calls has none."""
    engine = Engine(AGENT, store=url)
    try:
        found = read_run(engine.store, AGENT, run)
        if found is not None and not RunStatus(found.status).over:
            turn = OpenTurn(engine)
            turn.enter(run)
            turn.finish(None)
    finally:
        engine.close()
