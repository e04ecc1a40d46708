"""`perdure proxy`: records the paid model calls of a program in any language."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from perdure.cli.output import CommandOutput, clean
from perdure.cli.store_option import add_common_options
from perdure.cli.supervise import CapturedRun, Supervisor, add_mismatch_option, add_restart_options
from perdure.http_capture.process import AGENT, name_program
from perdure.http_capture.program_starts import ProgramStarts
from perdure.http_capture.proxy_server import ProxyServer
from perdure.http_capture.recorder import CaptureSettings, Recorder
from perdure.http_capture.upstreams import Upstreams, make_variables
from perdure.kernel.names import check_identifier
from perdure.store import locate
from perdure.values.durations import seconds_of

PORT = 8322


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--id", "run_id", help="The run. Default: the unfinished run of this command and folder, or a new one.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"0: any free port. Default: {PORT}; with a command, any free port."
)
@click.option(
    "--upstream",
    "upstreams",
    metavar="NAME=URL",
    multiple=True,
    help="The base URL of a provider, as its SDK takes it: openai=https://gateway.example/v1.",
)
@add_mismatch_option
@add_restart_options
@add_common_options
def proxy(
    command: tuple[str, ...],
    run_id: str | None,
    port: int | None,
    upstreams: tuple[str, ...],
    on_mismatch: str,
    restarts: int,
    same_place: int,
    backoff: str,
    url: str | None,
    as_json: bool,
) -> int:
    """Record the paid model calls of a program in any language, and never pay one twice.

    \b
    perdure proxy -- node agent.mjs
    perdure proxy --id report-7 --port 8322

    With a command, it sets OPENAI_BASE_URL, ANTHROPIC_BASE_URL and the like, runs the command, and restarts it after a
    crash. The exit code is the command's. Without one, it serves until Ctrl-C or SIGTERM.
    """  # noqa: D301 - the literal \b tells click not to rewrap these lines
    out, located = CommandOutput(as_json), locate(url)
    chosen = "" if run_id is None else check_identifier(run_id, "a run's id")
    named = name_program(command or ("proxy",))
    recorder = Recorder(CaptureSettings(chosen, named, located, AGENT, frozenset(), on_mismatch))
    chosen_port = port if port is not None else (0 if command else PORT)
    with _serving(recorder, chosen_port, Upstreams(upstreams, os.environ), bool(command)) as (server, opened):
        _announce(out, server.origin, opened, bool(command))
        if not command:
            _wait_for_signal()
            return 0
        captured = CapturedRun(
            opened, make_variables(server.origin), lambda url, run: recorder.close(finish=True), server.starts.begin
        )
        pause = seconds_of(backoff, "backoff")
        supervisor = Supervisor(out, located, command, restarts, same_place, pause, captured)
        code = supervisor.run()
        if code == 0:
            captured.finish(located, opened)
    if as_json:
        out.json({"command": list(command), "starts": supervisor.starts, "exit_code": code, "why": supervisor.why})
    return code


@contextmanager
def _serving(
    recorder: Recorder, port: int, upstreams: Upstreams, has_command: bool
) -> Iterator[tuple[ProxyServer, str]]:
    """Serve with an open run, and leave the run at the end, unless it is finished by then."""
    starts = ProgramStarts(recorder, examine=not has_command)
    try:
        server = ProxyServer(port, recorder, starts, upstreams)
    except OSError as error:
        raise click.UsageError(f"port {port} of 127.0.0.1 cannot be used: {error.strerror}") from error
    try:
        opened = recorder.open()
        with server.serving():
            yield server, opened
    finally:
        starts.close(finish=False)
        server.server_close()


def _announce(out: CommandOutput, origin: str, run: str, has_command: bool) -> None:
    if has_command:
        click.echo(f"perdure: model calls are recorded in run {clean(run)}", err=True)
        return
    variables = make_variables(origin)
    if out.as_json:
        out.json({"url": origin, "run": run, "environment": variables})
    else:
        out.line(f"Perdure records model calls in run {clean(run)}, at {origin}")
        for name, value in variables.items():
            out.line(f"export {name}={value}")
    out.flush()


def _wait_for_signal() -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
