"""`perdure fork`, `perdure diff` and `perdure undo`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from perdure.cli.completion_values import complete_runs
from perdure.cli.output import CommandOutput, clean, format_count
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_run,
    moment,
    open_engine,
    open_existing_store,
    repeat_options,
    run_argument,
    url_of,
)
from perdure.errors import ValueProblem
from perdure.journal.trees.diff import Change
from perdure.journal.trees.tolerant_read import Unreadable
from perdure.kernel.names import check_identifier
from perdure.kernel.protocol import drive_sync
from perdure.run.branches.compare import RunDiff, compare
from perdure.run.branches.fork import NO_INPUT, Fork
from perdure.run.branches.fork import fork as make_fork
from perdure.run.branches.undo_closed import undo as undo_run
from perdure.run.history import Stays
from perdure.run.undo import EFFECTS
from perdure.values import codec
from perdure.values.codec.decoder import decode_as_dicts


@click.command()
@run_argument
@click.option("--at", metavar="MOMENT", help="The last shared entry: its number, a step or a checkpoint.")
@click.option("--to", metavar="ID", help="The id of the fork. Default: RUN-fork.")
@click.option(
    "--override",
    metavar="STEP=JSON",
    multiple=True,
    help="Replace the result of a step; repeatable.",
)
@click.option("--input", "given", metavar="JSON", help="Replace the input.")
@agent_option
@add_common_options
def fork(
    run: str,
    at: str | None,
    to: str | None,
    override: tuple[str, ...],
    given: str | None,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Create a run that shares the beginning of another one.

    Nothing is copied or executed: start your program with the id of the fork. Without --at the fork starts after the
    last overridden step, else at the end of RUN. STEP#2 is the second call of that name.
    """
    if to is not None:
        try:
            check_identifier(to, "a run's id")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--to") from error
    located = url_of(url)
    values = dict(_override(text) for text in override)
    new = NO_INPUT if given is None else _json(given, "--input")
    with open_existing_store(located) as store:
        found = find_run(store, run, agent)
    point = None if at is None else moment(at)
    with open_engine(found.agent, located) as engine:
        made = drive_sync(engine.store, make_fork(engine, found.id, at=point, to=to, override=values, given=new))
    _print_result(CommandOutput(as_json), made, found.agent, repeat_options(url, agent), as_json)
    return 0


@click.command()
@click.argument("a", metavar="RUN", shell_complete=complete_runs)
@click.argument("b", metavar="OTHER", shell_complete=complete_runs)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if they differ.")
@agent_option
@add_common_options
def diff(a: str, b: str, exit_code: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show what differs between two runs.

    Compares steps and effects with their results, input, state, messages and the result of the run.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        first = find_run(store, a, agent)
        second = find_run(store, b, agent or first.agent)
        found = compare(store, first.agent, first.id, second.id, _decode)
    if as_json:
        out.json(_as_json(found))
    else:
        for line in str(found).rstrip("\n").split("\n"):
            out.line(clean(line))
    return 1 if exit_code and found else 0


@click.command()
@run_argument
@click.argument("steps", type=click.IntRange(min=1), default=1)
@click.option(
    "--effects",
    type=click.Choice(EFFECTS),
    default="keep",
    show_default=True,
    help="Keep effects, or run them again.",
)
@click.option("--by", metavar="NAME", help="Your name, for the record. Default: user and host name.")
@agent_option
@add_common_options
def undo(run: str, steps: int, effects: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Undo the last steps of a run that is not open.

    When started again, the run repeats them. Effects have happened: with `keep` they return their recorded result, with
    `again` they execute once more. Writes to the agent stay and are listed.
    """
    located = url_of(url)
    with open_existing_store(located) as store:
        found = find_run(store, run, agent)
    with open_engine(found.agent, located) as engine:
        made = drive_sync(engine.store, undo_run(engine, found.id, steps, effects, by))
    out = CommandOutput(as_json)
    if as_json:
        stays = [{"seq": remaining.seq, "kind": remaining.kind, "what": remaining.what} for remaining in made.stays]
        out.json({"run": found.id, "steps": made.steps, "to": made.to, "kept": list(made.kept), "stays": stays})
        return 0
    out.line(f"undone: {format_count(made.steps, 'step')}; run {clean(found.id)} is as it was after entry {made.to}")
    for name in made.kept:
        out.line(f"kept: {clean(name)} happened, or may have, and is not repeated")
    _tell_what_stays(out, made.stays, found.id)
    out.line("Start the program again to continue the run from there.")
    return 0


def _tell_what_stays(out: CommandOutput, stays: Sequence[Stays], run_id: str) -> None:
    if stays:
        out.print_heading(f"not undone: {format_count(len(stays), 'later change')} by {clean(run_id)}")
        out.table(
            ("NO", "KIND", "WHAT"), [(str(remaining.seq), remaining.kind, clean(remaining.what)) for remaining in stays]
        )


def _decode(data: bytes) -> Any:
    """Decode a value. Objects of classes that only the program has are shown as dicts."""
    try:
        with decode_as_dicts():
            return codec.decode(data)
    except ValueProblem as error:
        return Unreadable(f"<{error.message}>")


def _as_json(comparison: RunDiff) -> dict[str, Any]:
    def list_changes(changes: Sequence[Change]) -> list[dict[str, Any]]:
        return [{"path": one.path, "kind": one.kind, "before": one.before, "after": one.after} for one in changes]

    return {
        "a": comparison.a,
        "b": comparison.b,
        "differ": bool(comparison),
        "shared": comparison.shared,
        "same_steps": comparison.same_steps,
        "steps": [
            {**msgspec.structs.asdict(one), "arguments": list_changes(one.arguments)} for one in comparison.steps
        ],
        "input": list_changes(comparison.input),
        "state": list_changes(comparison.state),
        "messages": list_changes(comparison.messages),
        "status": list(comparison.status),
        "result": list_changes(comparison.result),
    }


def _print_result(out: CommandOutput, made: Fork, agent: str, options: str, as_json: bool) -> None:
    if as_json:
        out.json(
            {
                "id": made.id,
                "agent": agent,
                "origin": made.origin,
                "at": made.at,
                "overridden": list(made.overridden),
                "adopted": list(made.adopted),
                "in_doubt": list(made.in_doubt),
                "stays": [
                    {"seq": remaining.seq, "kind": remaining.kind, "what": remaining.what} for remaining in made.stays
                ],
            }
        )
        return
    out.line(f"forked: run {clean(made.id)} shares the entries of {clean(made.origin)} up to {made.at}")
    for name in made.adopted:
        out.line(f"adopted: {clean(name)} had started, and its outcome is known; the fork does not repeat it")
    for name in made.in_doubt:
        out.line(f"in doubt: {clean(name)} had started, and its outcome is unknown; the fork asks before it continues")
    _tell_what_stays(out, made.stays, made.origin)
    out.line(f"Start your program with this id; `perdure show {shlex.quote(made.id)}{clean(options)}` shows it.")


def _override(text: str) -> tuple[int | str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: use STEP=JSON", param_hint="--override")
    return moment(name), _json(value, "--override")


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON; quote text twice: '{json.dumps(text)}'", param_hint=option
        ) from error
