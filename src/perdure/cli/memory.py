"""`perdure memory list|recall|show|history|remember|forget|rollback|consolidate|reembed`: memories of agents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_age, format_count, format_value, is_terminal, to_json_record
from perdure.cli.store_option import (
    add_common_options,
    agent_option,
    find_agent,
    open_engine,
    open_existing_store,
    repeat_options,
    url_of,
)
from perdure.kernel.protocol import drive_sync
from perdure.memory import archive, arguments
from perdure.memory import read as reading
from perdure.memory import remember as remembering
from perdure.memory.erasure import forget as forgetting
from perdure.memory.lifecycle import consolidation
from perdure.memory.lifecycle import reembed as reembedding
from perdure.memory.lifecycle import rollback as rolling
from perdure.memory.recall import embedders
from perdure.memory.recall.search import recall as recalling
from perdure.memory.results import EVER, Memory, MemoryQuery, Recalled

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine

F = TypeVar("F", bound=Callable[..., Any])
KINDS = ["semantic", "episodic", "procedural"]
SHOWN = 20
TEXT_CHARACTERS = 70


def memory_filters(command: F) -> F:
    """Add the options that select memories."""
    for name, told in reversed(
        [("about", "Only with this subject."), ("user", "Only of this user."), ("source", "Only from this source.")]
    ):
        command = click.option(f"--{name}", help=told)(command)
    return command


def add_filter_options(command: F) -> F:
    """Add the options for the filters of `agent.memory.recall`."""
    for name, kind, told in reversed(
        [
            ("kind", click.Choice(KINDS), "Only of this kind."),
            ("since", None, "Only about this time or later."),
            ("until", None, "Only about this time or earlier; a date includes the whole day."),
            ("as-of", None, 'Only what was valid then, such as "2026-05-31".'),
            ("known-at", None, "Only what had been recorded by then."),
        ]
    ):
        command = click.option(f"--{name}", type=kind, metavar=None if kind else "TIME", help=told)(command)
    command = click.option("--min-trust", default="0", help="Only at least this trusted: 0 to 1, or a word.")(command)
    return click.option("--tag", "tags", multiple=True, help="Only with this tag; repeatable.")(command)


@click.group()
def memory() -> None:
    """Show, search, add and erase memories of agents."""


@contextmanager
def _agent(url: str | None, agent: str | None) -> Iterator[Engine | None]:
    with open_existing_store(url) as store:
        found = find_agent(store, agent)
    if found is None:
        yield None
        return
    with open_engine(found[0], url_of(url)) as engine:
        yield engine


@memory.command("list")
@memory_filters
@click.option("--kind", type=click.Choice(KINDS), help="Only of this kind.")
@click.option("--all", "everything", is_flag=True, help="Include superseded, withdrawn and expired memories.")
@click.option("--limit", type=click.IntRange(min=0), default=SHOWN, show_default=True, help="How many; 0: all.")
@agent_option
@add_common_options
def list_(
    about: str | None,
    user: str | None,
    source: str | None,
    kind: str | None,
    everything: bool,
    limit: int,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """List memories, newest first."""
    out = CommandOutput(as_json)
    query = MemoryQuery(about=about or "", user=user or "", source=source or "", kind=kind or "", all=everything)
    with _agent(url, agent) as engine:
        found = reading.list_memories(engine, query, limit or EVER) if engine is not None else []
        _print(out, found, engine)
    return 0


@memory.command()
@click.argument("question")
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="How many.")
@click.option("--around", type=click.IntRange(0, 20), default=0, help="Neighbours to show before and after each.")
@memory_filters
@add_filter_options
@agent_option
@add_common_options
def recall(
    question: str, k: int, around: int, agent: str | None, url: str | None, as_json: bool, **filters: Any
) -> int:
    """Find the memories that answer a question best, and why each was found."""
    out = CommandOutput(as_json)
    query = msgspec.structs.replace(_query(filters), text=question, k=k, around=around)
    with _agent(url, agent) as engine:
        found = drive_sync(engine.store, recalling(engine, query)) if engine is not None else []
        _print(out, found, engine)
    return 0


@memory.command()
@click.argument("id")
@agent_option
@add_common_options
def show(id: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show one memory with all of its fields."""
    out = CommandOutput(as_json)
    with _agent(url, agent) as engine:
        found = reading.get(_require_agent(engine), id)
    if as_json:
        out.json(_as_json(found))
        return 0
    out.line(clean(found.text), style="bold")
    told = {
        name: value for name, value in _as_json(found).items() if name != "text" and value not in ("", [], None, {})
    }
    out.table(("", ""), [(name, format_value(value)) for name, value in told.items()])
    return 0


@memory.command()
@click.argument("about")
@click.option("--user", help="Only of this user.")
@agent_option
@add_common_options
def history(about: str, user: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show every memory about a subject, and what superseded it."""
    out = CommandOutput(as_json)
    with _agent(url, agent) as engine:
        found = reading.history(engine, about, user or "") if engine is not None else []
    if as_json:
        out.json([_as_json(recalled) for recalled in found])
        return 0
    rows = [
        (f"{recalled.valid_from:%Y-%m-%d}", _format_end(recalled), clean(recalled.text), _describe_status(recalled))
        for recalled in found
    ]
    out.table(("FROM", "TO", "TEXT", ""), rows) if rows else out.line("nothing is known about it")
    return 0


@memory.command()
@click.argument("text")
@memory_filters
@click.option("--kind", type=click.Choice(KINDS), default="semantic", show_default=True)
@click.option(
    "--trust", default="1", show_default=True, help='How reliable it is: 0 to 1, "trusted", "unsure", "untrusted".'
)
@click.option("--importance", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="1 is always kept.")
@click.option("--tag", "tags", multiple=True, help="A tag; repeatable.")
@click.option("--valid-from", metavar="TIME", help='When it became valid, such as "2026-05-31". Default: now.')
@click.option("--ttl", metavar="AGE", help='When it expires, such as "30d". Default: never.')
@click.option("--supersedes", metavar="ID", multiple=True, help="The memory that it replaces; repeatable.")
@agent_option
@add_common_options
def remember(
    text: str,
    about: str | None,
    user: str | None,
    source: str | None,
    kind: str,
    trust: str,
    importance: float,
    tags: Sequence[str],
    valid_from: str | None,
    ttl: str | None,
    supersedes: Sequence[str],
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Store a memory for an agent."""
    out = CommandOutput(as_json)
    wish = _wish(
        text,
        about=about,
        user=user,
        source=source,
        kind=kind,
        trust=_number(trust),
        importance=importance,
        tags=tags,
        valid_from=valid_from,
        ttl=ttl,
        supersedes=supersedes,
    )
    with _agent(url, agent) as engine:
        [made] = drive_sync(_require_agent(engine).store, remembering.remember(_require_agent(engine), [wish]))
    out.json(_as_json(made)) if as_json else out.line(
        f"{made.id}" + (f", {made.count} times" if made.count > 1 else "")
    )
    for other in made.contradicts if not as_json else ():
        out.line(f"may contradict {other}: perdure memory show {other}")
    return 0


@memory.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@memory_filters
@click.option("--tag", "tags", multiple=True, help="All with this tag; repeatable.")
@click.option("--text", metavar="TEXT", help="All that contain this text, even if no memory has it any more.")
@click.option("--everywhere", is_flag=True, help="Also erase messages, results and state that contain the text.")
@click.option("--yes", is_flag=True, help="Erase without asking.")
@agent_option
@add_common_options
def forget(
    ids: Sequence[str],
    about: str | None,
    user: str | None,
    source: str | None,
    tags: Sequence[str],
    text: str | None,
    everywhere: bool,
    yes: bool,
    agent: str | None,
    url: str | None,
    as_json: bool,
) -> int:
    """Erase memories for good: by ID, subject, user, source, tag or text.

    Shows what would be erased and asks. Without a terminal nothing is erased unless you pass --yes.
    """
    from perdure.presence.workspace.redact import DocumentRedaction

    out = CommandOutput(as_json)
    which = _select_ids(tuple(ids), about=about, user=user, source=source, tags=tags, text=text)
    with _agent(url, agent) as maybe:
        engine = _require_agent(maybe)
        going, seen = forgetting.select_memories(engine, which)
        archives = [trace.what for trace in archive.traces_of(archive.find_archived(engine, which.query))]
        if not as_json:
            _print(out, going, engine)
            for path in archives:
                out.line(clean(f"also in archive {path}"))
        if (going or seen or archives or which.text) and not yes and not _confirm(out, "forget", url, agent):
            if as_json:
                out.json({"done": False, "memories": [_as_json(recalled) for recalled in going], "archives": archives})
            return 0
        report = drive_sync(
            engine.store,
            forgetting.forget(
                engine, which, everywhere=everywhere, redactor=DocumentRedaction(engine), reason="cli", by=None
            ),
        )
    if as_json:
        out.json({"done": True, **msgspec.to_builtins(report)})
        return 0
    out.line(str(report))
    for trace in (*report.erased, *report.elsewhere):
        out.line(clean(f"  {'erased' if trace in report.erased else 'also in'} {trace}"))
    for note in report.notes:
        out.line(clean(note))
    return 0


@memory.command()
@click.option("--source", help="All from this source.")
@click.option("--run", help="All written by this run.")
@click.option("--since", metavar="TIME", help="Only recorded since then. Default: all.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@agent_option
@add_common_options
def rollback(
    source: str | None, run: str | None, since: str | None, yes: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Withdraw all memories from a bad source or run. They stay readable; what they superseded is valid again."""
    if not source and not run:
        raise click.UsageError("rollback needs --source or --run")
    out = CommandOutput(as_json)
    bad = rolling.RollbackSelection(source or "", run or "", "", _parse_time(since, "--since"))
    with _agent(url, agent) as maybe:
        engine = _require_agent(maybe)
        going = rolling.preview(engine, bad)
        if not as_json:
            _print(out, list(reading.find_by_id(engine, going.withdrawn).values()), engine)
        if not yes and not _confirm(out, "roll back", url, agent):
            if as_json:
                out.json({"done": False, **msgspec.to_builtins(going)})
            return 0
        report = drive_sync(engine.store, rolling.rollback(engine, bad, "", None))
    out.json({"done": True, **msgspec.to_builtins(report)}) if as_json else out.line(str(report))
    return 0


@memory.command()
@click.option("--older-than", metavar="AGE", default="7d", show_default=True, help="Only episodes older than this.")
@agent_option
@add_common_options
def consolidate(older_than: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Summarise older episodic memories week by week, without a model, by their most representative texts."""
    from perdure.values.durations import seconds_of

    out, made = CommandOutput(as_json), list[Memory]()
    with _agent(url, agent) as maybe:
        engine = _require_agent(maybe)
        groups = consolidation.groups(engine, seconds_of(older_than, "--older-than"), "", "")
        with out.progress("consolidating") as bar:
            for number, group in enumerate(groups, start=1):
                wishes = consolidation.wishes(group, consolidation.extractive_summary(group.texts))
                made += drive_sync(engine.store, remembering.remember(engine, wishes))
                bar(number, len(groups))
        _print(out, made, engine)
    return 0


@memory.command()
@click.option("--yes", is_flag=True, help="Drop the vectors of other models without asking.")
@agent_option
@add_common_options
def reembed(yes: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Embed every memory that lacks a vector of the installed model, and drop the vectors of other models.

    PERDURE_EMBEDDER=words, table or minilm chooses the model. An agent with its own model calls agent.memory.reembed()
    in its program instead. After an interrupt, the next call continues.
    """
    out = CommandOutput(as_json)
    with _agent(url, agent) as maybe:
        engine = _require_agent(maybe)
        model = embedders.embedder_in(engine)
        others = reembedding.count_other_vectors(engine, model) if model is not None else {}
        for name, count in others.items() if not as_json else ():
            out.line(clean(f"{format_count(count, 'vector')} of {name} will be dropped"))
        if others and not yes and not _confirm(out, "reembed", url, agent):
            if as_json:
                out.json({"done": False, "embedder": model.id if model else "", "others": others})
            return 0
        done = _reembed_all(out, engine)
    if as_json:
        out.json({"done": True, **msgspec.to_builtins(done), "others": others})
        return 0
    out.line(clean(f"{done.embedder or 'words alone'}: {format_count(done.memories, 'memory', 'memories')} embedded"))
    out.line(f"{format_count(done.pieces, 'piece')} in all{', found by an index' if done.indexed else ''}")
    return 0


def _reembed_all(out: CommandOutput, engine: Engine) -> reembedding.ReembedResult:
    reached = (0, 0)
    with out.progress("reading") as bar:

        def tell(done: int, total: int) -> None:
            nonlocal reached
            reached = (done, total)
            bar(done, total)

        try:
            return drive_sync(engine.store, reembedding.reembed(engine, tell))
        except KeyboardInterrupt:
            print("{} of {} pieces embedded; the same command continues".format(*reached), file=sys.stderr)
            raise


# -- printing ---------------------------------------------------------------------------------------------------------


def _require_agent(engine: Engine | None) -> Engine:
    if engine is None:
        raise click.UsageError("there is no agent in this store yet")
    return engine


def _select_ids(ids: tuple[str, ...], **options: Any) -> arguments.ForgetSelection:
    try:
        return arguments.select_to_forget(ids or None, **options)
    except (TypeError, ValueError) as error:
        names = "--about, --user, --source, --tag or --text"
        raise click.UsageError(f"{error}".replace("about=, user=, source=, tags=, or text=", names)) from error


def _query(filters: dict[str, Any]) -> MemoryQuery:
    """Read options in the same way as the arguments of `recall`."""
    try:
        return MemoryQuery(
            about=filters["about"] or "",
            user=filters["user"] or "",
            source=filters["source"] or "",
            kind=filters["kind"] or "",
            tags=arguments.check_tags(filters["tags"]),
            since=_parse_time(filters["since"], "--since") or -EVER,
            until=_parse_time(filters["until"], "--until", arguments.parse_end) or EVER,
            as_of=_parse_time(filters["as_of"], "--as-of", arguments.parse_point),
            known_at=_parse_time(filters["known_at"], "--known-at", arguments.parse_point),
            min_trust=arguments.parse_trust(_number(filters["min_trust"]), "--min-trust"),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _number(trust: str) -> float | str:
    """Parse a trust: a number, or a word for one."""
    try:
        return float(trust)
    except ValueError:
        return trust


def _wish(text: str, **options: Any) -> arguments.MemoryRequest:
    try:
        return arguments.wish_of(text, **options, writer="cli")
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _parse_time(text: str | None, option: str, read: Callable[[object, str], int] = arguments.parse_time) -> int:
    try:
        return read(text, option)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _confirm(out: CommandOutput, what: str, url: str | None, agent: str | None) -> bool:
    if out.as_json or not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        if not out.as_json:
            out.line(clean(f"nothing was done; add --yes{repeat_options(url, agent)} to {what}"))
        return False
    return click.confirm(f"{what}?", default=False)


def _print(out: CommandOutput, found: Sequence[Memory], engine: Engine | None) -> None:
    if out.as_json:
        out.json([_as_json(stored_memory) for stored_memory in found])
        return
    if not found or engine is None:
        out.line("no memories")
        return
    now = engine.store.clock.wall_ms()
    for recalled in found:
        said = [
            recalled.kind,
            *(f"{name} {value}" for name, value in _facts(recalled) if value),
            format_age(int(recalled.recorded.timestamp() * 1000), now),
            _describe_status(recalled),
        ]
        out.line(f"{recalled.id}  {_shorten(recalled.text)}", style="bold")
        out.line(clean("    " + ", ".join(part for part in said if part)))
        if isinstance(recalled, Recalled):
            out.line(clean(f"    score {recalled.score:.2f}, confidence {recalled.confidence:.2f}: {recalled.why}"))
            for one in recalled.around:
                out.line(clean(f"    neighbour: {_shorten(one.text)}"))
    out.line(format_count(len(found), "memory", "memories"))


def _shorten(text: str) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1] + "…"


def _facts(recalled: Memory) -> Iterator[tuple[str, object]]:
    yield "about", recalled.about
    yield "user", recalled.user
    yield "source", recalled.source
    yield "trust", "" if recalled.trust == 1 else f"{recalled.trust:g}"
    yield "seen", "" if recalled.count == 1 else f"{recalled.count} times"


def _describe_status(recalled: Memory) -> str:
    if recalled.withdrawn:
        return "withdrawn"
    if recalled.superseded_by:
        return f"superseded by {recalled.superseded_by}"
    return f"may contradict {', '.join(recalled.contradicts)}" if recalled.contradicts else ""


def _format_end(recalled: Memory) -> str:
    return f"{recalled.valid_to:%Y-%m-%d}" if recalled.valid_to is not None else ""


def _as_json(recalled: Memory) -> dict[str, Any]:
    return to_json_record(recalled)
