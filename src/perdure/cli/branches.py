"""`perdure fork`, `perdure diff` and `perdure undo`: runs that branch off others, and that go back."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from .. import codec
from ..branches.comparing import RunDiff, compare
from ..branches.forks import NO_INPUT, Fork
from ..branches.forks import fork as make_fork
from ..branches.undoing import undo as undo_run
from ..engine import checked_name
from ..errors import ValueProblem
from ..run.history import Stays
from ..run.requests import drive_sync
from ..run.undoing import EFFECTS
from ..trees.diff import Change
from ..trees.tolerant import Unreadable
from .completed import completed_runs
from .output import Output, clean, counted
from .stores import acting_as, agent_option, common, existing_store, moment, one_run, run_argument, said_again, url_of


@click.command()
@run_argument
@click.option("--at", metavar="MOMENT", help="The last entry that both have, by its number, step or checkpoint.")
@click.option("--to", metavar="ID", help="The id of the fork. Default: RUN-fork.")
@click.option(
    "--override",
    metavar="STEP=JSON",
    multiple=True,
    help="What a step is to have returned; once for each step.",
)
@click.option("--input", "given", metavar="JSON", help="Another input.")
@agent_option
@common
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
    """Make a run that begins as another one did, and goes its own way.

    Nothing is copied, and nothing runs yet: start your program with the id of the fork. Without --at both have all
    up to the last step that is overridden, else all that RUN has done. STEP#2 is the second call of that name.
    """
    if to is not None:
        try:
            checked_name(to, "a run's id")
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--to") from error
    located = url_of(url)
    values = dict(_override(text) for text in override)
    new = NO_INPUT if given is None else _json(given, "--input")
    with existing_store(located) as store:
        found = one_run(store, run, agent)
    point = None if at is None else moment(at)
    with acting_as(found.agent, located) as engine:
        made = drive_sync(engine.store, make_fork(engine, found.id, at=point, to=to, override=values, given=new))
    _tell(Output(as_json), made, found.agent, said_again(url, agent), as_json)
    return 0


@click.command()
@click.argument("a", metavar="RUN", shell_complete=completed_runs)
@click.argument("b", metavar="OTHER", shell_complete=completed_runs)
@click.option("--exit-code", is_flag=True, help="Exit with 1 when they differ.")
@agent_option
@common
def diff(a: str, b: str, exit_code: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show what differs between two runs.

    Steps and effects that only one of them has, or that came to something else; input, state, messages and result.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        first = one_run(store, a, agent)
        second = one_run(store, b, agent or first.agent)
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
    "--effects", type=click.Choice(EFFECTS), default="keep", show_default=True, help="What becomes of effects."
)
@click.option("--by", metavar="NAME", help="Who says so. Default: your user and host name.")
@agent_option
@common
def undo(run: str, steps: int, effects: str, by: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Take back the last steps of a run that is not open.

    Started again, it does them anew. Effects have happened: with `keep` they return what they did and are not repeated,
    with `again` they are done once more. What was written to the agent stays, and is listed.
    """
    located = url_of(url)
    with existing_store(located) as store:
        found = one_run(store, run, agent)
    with acting_as(found.agent, located) as engine:
        made = drive_sync(engine.store, undo_run(engine, found.id, steps, effects, by))
    out = Output(as_json)
    if as_json:
        stays = [{"seq": it.seq, "kind": it.kind, "what": it.what} for it in made.stays]
        out.json({"run": found.id, "steps": made.steps, "to": made.to, "kept": list(made.kept), "stays": stays})
        return 0
    out.line(f"undone: {counted(made.steps, 'step')}; run {clean(found.id)} is as it was after entry {made.to}")
    for name in made.kept:
        out.line(f"kept: {clean(name)} has happened, or may have, and is not repeated")
    _tell_what_stays(out, made.stays, found.id)
    out.line("Start the program again, and the run goes on from there.")
    return 0


def _tell_what_stays(out: Output, stays: Sequence[Stays], run_id: str) -> None:
    if stays:
        out.heading(f"not taken back: {counted(len(stays), 'thing')} that {clean(run_id)} did after that")
        out.table(("NO", "KIND", "WHAT"), [(str(it.seq), it.kind, clean(it.what)) for it in stays])


def _decode(data: bytes) -> Any:
    """Types of the program are registered there, not here."""
    try:
        return codec.decode(data)
    except ValueProblem as error:
        return Unreadable(f"<{error.message}>")


def _as_json(it: RunDiff) -> dict[str, Any]:
    def listed(changes: Sequence[Change]) -> list[dict[str, Any]]:
        return [{"path": one.path, "kind": one.kind, "before": one.before, "after": one.after} for one in changes]

    return {
        "a": it.a,
        "b": it.b,
        "differ": bool(it),
        "shared": it.shared,
        "same_steps": it.same_steps,
        "steps": [{**msgspec.structs.asdict(one), "arguments": listed(one.arguments)} for one in it.steps],
        "input": listed(it.input),
        "state": listed(it.state),
        "messages": listed(it.messages),
        "status": list(it.status),
        "result": listed(it.result),
    }


def _tell(out: Output, made: Fork, agent: str, options: str, as_json: bool) -> None:
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
                "stays": [{"seq": it.seq, "kind": it.kind, "what": it.what} for it in made.stays],
            }
        )
        return
    out.line(f"forked: run {clean(made.id)} begins as {clean(made.origin)} did, up to entry {made.at}")
    for name in made.adopted:
        out.line(f"adopted: {clean(name)} had begun, and its outcome is known; the fork does not repeat it")
    for name in made.in_doubt:
        out.line(f"in doubt: {clean(name)} had begun, and nobody knows how it ended; the fork asks before it goes on")
    _tell_what_stays(out, made.stays, made.origin)
    out.line(f"Start your program with this id; `perdure show {shlex.quote(made.id)}{clean(options)}` shows it.")


def _override(text: str) -> tuple[int | str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r}: say STEP=JSON", param_hint="--override")
    return moment(name), _json(value, "--override")


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not JSON; text needs quotes of its own: '{json.dumps(text)}'", param_hint=option
        ) from error
