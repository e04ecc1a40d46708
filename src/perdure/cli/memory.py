"""`perdure memory list|recall|show|history|remember|forget|rollback|consolidate|reembed`: what agents know."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from ..memory import archived, consolidating, embedders, forgetting, given, keeping, reading, reembedding, rolling
from ..memory.found import EVER, Memory, Query, Recalled
from ..memory.recalling import recall as recalling
from ..run.requests import drive_sync
from .output import Output, ago, clean, counted, is_terminal, shown
from .stores import acting_as, agent_option, common, existing_store, one_agent, said_again, url_of

if TYPE_CHECKING:
    from ..engine import Engine

F = TypeVar("F", bound=Callable[..., Any])
KINDS = ["semantic", "episodic", "procedural"]
SHOWN = 20
TEXT_CHARACTERS = 70


def whose(command: F) -> F:
    """The options that choose memories."""
    for name, told in reversed(
        [("about", "Only what is about this."), ("user", "Only of this user."), ("source", "Only from this source.")]
    ):
        command = click.option(f"--{name}", help=told)(command)
    return command


def narrowed(command: F) -> F:
    """The options of a question, as the filters of `agent.memory.recall`."""
    for name, kind, told in reversed(
        [
            ("kind", click.Choice(KINDS), "Only of this kind."),
            ("since", None, "Only what was so or happened from then on."),
            ("until", None, "Only what was so or happened until then, the day included."),
            ("as-of", None, 'What held then, such as "2026-05-31".'),
            ("known-at", None, "What was recorded by then."),
        ]
    ):
        command = click.option(f"--{name}", type=kind, metavar=None if kind else "TIME", help=told)(command)
    command = click.option("--min-trust", default="0", help="Only what is believed so far: 0 to 1, or a word.")(command)
    return click.option("--tag", "tags", multiple=True, help="Only with this tag; more than once for more.")(command)


@click.group()
def memory() -> None:
    """Show, find, add and forget what agents know."""


@contextmanager
def _agent(url: str | None, agent: str | None) -> Iterator[Engine | None]:
    with existing_store(url) as store:
        found = one_agent(store, agent)
    if found is None:
        yield None
        return
    with acting_as(found[0], url_of(url)) as engine:
        yield engine


@memory.command("list")
@whose
@click.option("--kind", type=click.Choice(KINDS), help="Only of this kind.")
@click.option("--all", "everything", is_flag=True, help="Also what was superseded, withdrawn, or is out of date.")
@click.option("--limit", type=click.IntRange(min=0), default=SHOWN, show_default=True, help="How many; 0: all.")
@agent_option
@common
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
    """List memories, the newest first."""
    out = Output(as_json)
    query = Query(about=about or "", user=user or "", source=source or "", kind=kind or "", all=everything)
    with _agent(url, agent) as engine:
        found = reading.listed(engine, query, limit or EVER) if engine is not None else []
        _print(out, found, engine)
    return 0


@memory.command()
@click.argument("question")
@click.option("-k", type=click.IntRange(min=1), default=5, show_default=True, help="How many.")
@click.option("--around", type=click.IntRange(0, 20), default=0, help="With so many said just before and after each.")
@whose
@narrowed
@agent_option
@common
def recall(
    question: str, k: int, around: int, agent: str | None, url: str | None, as_json: bool, **filters: Any
) -> int:
    """Find the memories that answer a question best, and say why each was found."""
    out = Output(as_json)
    query = msgspec.structs.replace(_query(filters), text=question, k=k, around=around)
    with _agent(url, agent) as engine:
        found = drive_sync(engine.store, recalling(engine, query)) if engine is not None else []
        _print(out, found, engine)
    return 0


@memory.command()
@click.argument("id")
@agent_option
@common
def show(id: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show one memory with all that is known of it."""
    out = Output(as_json)
    with _agent(url, agent) as engine:
        found = reading.get(_must(engine), id)
    if as_json:
        out.json(_as_json(found))
        return 0
    out.line(clean(found.text), style="bold")
    told = {
        name: value for name, value in _as_json(found).items() if name != "text" and value not in ("", [], None, {})
    }
    out.table(("", ""), [(name, shown(value)) for name, value in told.items()])
    return 0


@memory.command()
@click.argument("about")
@click.option("--user", help="Only of this user.")
@agent_option
@common
def history(about: str, user: str | None, agent: str | None, url: str | None, as_json: bool) -> int:
    """Show all that was ever known about something, and what took its place."""
    out = Output(as_json)
    with _agent(url, agent) as engine:
        found = reading.history(engine, about, user or "") if engine is not None else []
    if as_json:
        out.json([_as_json(it) for it in found])
        return 0
    rows = [(f"{it.valid_from:%Y-%m-%d}", _until(it), clean(it.text), _standing(it)) for it in found]
    out.table(("FROM", "TO", "TEXT", ""), rows) if rows else out.line("nothing is known about it")
    return 0


@memory.command()
@click.argument("text")
@whose
@click.option("--kind", type=click.Choice(KINDS), default="semantic", show_default=True)
@click.option(
    "--trust", default="1", show_default=True, help='How far it is believed: 0 to 1, "trusted", "unsure", "untrusted".'
)
@click.option("--importance", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="1 is never let go.")
@click.option("--tag", "tags", multiple=True, help="A tag; more than once for more.")
@click.option("--valid-from", metavar="TIME", help='Since when it holds, such as "2026-05-31"; else from now on.')
@click.option("--ttl", metavar="AGE", help='For how long, such as "30d"; else for ever.')
@click.option("--supersedes", metavar="ID", multiple=True, help="What it takes the place of.")
@agent_option
@common
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
    """Keep something that an agent is to know."""
    out = Output(as_json)
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
        [made] = drive_sync(_must(engine).store, keeping.remember(_must(engine), [wish]))
    out.json(_as_json(made)) if as_json else out.line(
        f"{made.id}" + (f", {made.count} times" if made.count > 1 else "")
    )
    for other in made.contradicts if not as_json else ():
        out.line(f"may contradict {other}: perdure memory show {other}")
    return 0


@memory.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@whose
@click.option("--tag", "tags", multiple=True, help="All with this tag; more than once for more.")
@click.option("--text", metavar="TEXT", help="What has this text, also if no memory has it any more.")
@click.option("--everywhere", is_flag=True, help="Erase also messages, results and state that have the text.")
@click.option("--yes", is_flag=True, help="Forget without asking.")
@agent_option
@common
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
    """Erase memories for good: by ID, or all about something, of a user, from a source or with a tag.

    Shows what would go, and asks. Where there is nobody to ask, it only shows, unless you say --yes.
    """
    from ..workspace.redacting import Redaction

    out = Output(as_json)
    which = _chosen(tuple(ids), about=about, user=user, source=source, tags=tags, text=text)
    with _agent(url, agent) as maybe:
        engine = _must(maybe)
        going, seen = forgetting.meant(engine, which)
        archives = [trace.what for trace in archived.traces_of(archived.archived(engine, which.query))]
        if not as_json:
            _print(out, going, engine)
            for path in archives:
                out.line(clean(f"also in archive {path}"))
        if (going or seen or archives or which.text) and not yes and not _agreed(out, "forget", url, agent):
            if as_json:
                out.json({"done": False, "memories": [_as_json(it) for it in going], "archives": archives})
            return 0
        report = drive_sync(
            engine.store,
            forgetting.forget(engine, which, everywhere=everywhere, redactor=Redaction(engine), reason="cli", by=None),
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
@click.option("--source", help="What came from this source.")
@click.option("--run", help="What a run has written.")
@click.option("--since", metavar="TIME", help="Recorded since then; else ever.")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@agent_option
@common
def rollback(
    source: str | None, run: str | None, since: str | None, yes: bool, agent: str | None, url: str | None, as_json: bool
) -> int:
    """Undo what came from a bad source or run. It can still be read; what it had replaced counts again."""
    if not source and not run:
        raise click.UsageError("say whose: --source or --run")
    out = Output(as_json)
    bad = rolling.Bad(source or "", run or "", "", _when(since, "--since"))
    with _agent(url, agent) as maybe:
        engine = _must(maybe)
        going = rolling.preview(engine, bad)
        if not as_json:
            _print(out, list(reading.by_id(engine, going.withdrawn).values()), engine)
        if not yes and not _agreed(out, "roll back", url, agent):
            if as_json:
                out.json({"done": False, **msgspec.to_builtins(going)})
            return 0
        report = drive_sync(engine.store, rolling.rollback(engine, bad, "", None))
    out.json({"done": True, **msgspec.to_builtins(report)}) if as_json else out.line(str(report))
    return 0


@memory.command()
@click.option("--older-than", metavar="AGE", default="7d", show_default=True, help="What happened that long ago.")
@agent_option
@common
def consolidate(older_than: str, agent: str | None, url: str | None, as_json: bool) -> int:
    """Make facts of what happened, week by week, without a model: what says most of all that was said."""
    from ..durations import seconds_of

    out, made = Output(as_json), list[Memory]()
    with _agent(url, agent) as maybe:
        engine = _must(maybe)
        groups = consolidating.groups(engine, seconds_of(older_than, "--older-than"), "", "")
        with out.progress("consolidating") as bar:
            for number, group in enumerate(groups, start=1):
                wishes = consolidating.wishes(group, consolidating.essence(group.texts))
                made += drive_sync(engine.store, keeping.remember(engine, wishes))
                bar(number, len(groups))
        _print(out, made, engine)
    return 0


@memory.command()
@click.option("--yes", is_flag=True, help="Drop what other models have made without asking.")
@agent_option
@common
def reembed(yes: bool, agent: str | None, url: str | None, as_json: bool) -> int:
    """Have the model that is installed read every memory that it has not read yet, and drop what others have made.

    PERDURE_EMBEDDER=words, table or minilm says which one. An agent that has a model of its own does it in its program,
    with agent.memory.reembed(). What was read stays when this is interrupted, and the next time goes on.
    """
    out = Output(as_json)
    with _agent(url, agent) as maybe:
        engine = _must(maybe)
        model = embedders.embedder_in(engine)
        others = reembedding.others(engine, model) if model is not None else {}
        for name, count in others.items() if not as_json else ():
            out.line(clean(f"{name} has made {counted(count, 'vector')}, which will be dropped"))
        if others and not yes and not _agreed(out, "read them anew", url, agent):
            if as_json:
                out.json({"done": False, "embedder": model.id if model else "", "others": others})
            return 0
        done = _reembedded(out, engine)
    if as_json:
        out.json({"done": True, **msgspec.to_builtins(done), "others": others})
        return 0
    out.line(clean(f"{done.embedder or 'words alone'}: {counted(done.memories, 'memory', 'memories')} read"))
    out.line(f"{counted(done.pieces, 'piece')} in all{', found by an index' if done.indexed else ''}")
    return 0


def _reembedded(out: Output, engine: Engine) -> reembedding.Reembedded:
    reached = (0, 0)
    with out.progress("reading") as bar:

        def tell(done: int, total: int) -> None:
            nonlocal reached
            reached = (done, total)
            bar(done, total)

        try:
            return drive_sync(engine.store, reembedding.reembed(engine, tell))
        except KeyboardInterrupt:
            print("{} of {} pieces are read; the same command goes on".format(*reached), file=sys.stderr)
            raise


# -- printing ---------------------------------------------------------------------------------------------------------


def _must(engine: Engine | None) -> Engine:
    if engine is None:
        raise click.UsageError("there is no agent in this store yet")
    return engine


def _chosen(ids: tuple[str, ...], **options: Any) -> given.Which:
    try:
        return given.chosen(ids or None, **options)
    except (TypeError, ValueError) as error:
        names = "--about, --user, --source, --tag or --text"
        raise click.UsageError(f"{error}".replace("about=, user=, source=, tags=, or text=", names)) from error


def _query(filters: dict[str, Any]) -> Query:
    """What options say, read as the arguments of `recall` are."""
    try:
        return Query(
            about=filters["about"] or "",
            user=filters["user"] or "",
            source=filters["source"] or "",
            kind=filters["kind"] or "",
            tags=given.read_tags(filters["tags"]),
            since=_when(filters["since"], "--since") or -EVER,
            until=_when(filters["until"], "--until", given.read_until) or EVER,
            as_of=_when(filters["as_of"], "--as-of", given.read_at),
            known_at=_when(filters["known_at"], "--known-at", given.read_at),
            min_trust=given.read_trust(_number(filters["min_trust"]), "--min-trust"),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _number(trust: str) -> float | str:
    """How far something is believed: a number, or a word for one."""
    try:
        return float(trust)
    except ValueError:
        return trust


def _wish(text: str, **options: Any) -> given.Wish:
    try:
        return given.wish_of(text, **options, writer="cli")
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _when(text: str | None, option: str, read: Callable[[object, str], int] = given.read_when) -> int:
    try:
        return read(text, option)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _agreed(out: Output, what: str, url: str | None, agent: str | None) -> bool:
    if out.as_json or not (is_terminal(sys.stdout) and sys.stdin.isatty()):
        if not out.as_json:
            out.line(clean(f"nothing was done; add --yes{said_again(url, agent)} to {what}"))
        return False
    return click.confirm(f"{what}?", default=False)


def _print(out: Output, found: Sequence[Memory], engine: Engine | None) -> None:
    if out.as_json:
        out.json([_as_json(it) for it in found])
        return
    if not found or engine is None:
        out.line("no memories")
        return
    now = engine.store.clock.wall_ms()
    for it in found:
        said = [it.kind, *(f"{name} {value}" for name, value in _facts(it) if value), ago(_ms(it), now), _standing(it)]
        out.line(f"{it.id}  {_shortened(it.text)}", style="bold")
        out.line(clean("    " + ", ".join(part for part in said if part)))
        if isinstance(it, Recalled):
            out.line(clean(f"    score {it.score:.2f}, confidence {it.confidence:.2f}: {it.why}"))
            for one in it.around:
                out.line(clean(f"    beside it: {_shortened(one.text)}"))
    out.line(counted(len(found), "memory", "memories"))


def _shortened(text: str) -> str:
    line = clean(" ".join(text.split()))
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1] + "…"


def _facts(it: Memory) -> Iterator[tuple[str, object]]:
    yield "about", it.about
    yield "user", it.user
    yield "source", it.source
    yield "trust", "" if it.trust == 1 else f"{it.trust:g}"
    yield "seen", "" if it.count == 1 else f"{it.count} times"


def _ms(it: Memory) -> int:
    return int(it.recorded.timestamp() * 1000)


def _standing(it: Memory) -> str:
    if it.withdrawn:
        return "withdrawn"
    if it.superseded_by:
        return f"superseded by {it.superseded_by}"
    return f"may contradict {', '.join(it.contradicts)}" if it.contradicts else ""


def _until(it: Memory) -> str:
    return f"{it.valid_to:%Y-%m-%d}" if it.valid_to is not None else ""


def _as_json(it: Memory) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(it, enc_hook=repr)
    return told
