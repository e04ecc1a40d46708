"""`perdure verify` and `perdure rebuild`: is the journal as it was written, and do the views say the same?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from .. import keys
from ..files import replace_file
from ..journal import anchor as anchors
from ..journal import rebuild as views
from ..journal import verify as journal
from ..journal.findings import Finding, Report, Severity
from .output import Output, clean, counted, plain, shown, when
from .stores import common, existing_store

if TYPE_CHECKING:
    from ..store.base import Store


@click.command()
@click.option(
    "--anchor", "against", type=click.Path(path_type=Path), help="Compare with this anchor: finds a rollback."
)
@click.option("--export-anchor", "export", type=click.Path(path_type=Path), help="Write an anchor, if all is well.")
@common
def verify(against: Path | None, export: Path | None, url: str | None, as_json: bool) -> int:
    """Look for entries that were edited, removed or reordered.

    Looks at every entry, signature and large value, and names what is damaged. Exit code 1 when something is.
    Runs beside agents at work.
    """
    out = Output(as_json)
    if export is not None and export.exists() and export != against:
        raise click.UsageError(f"{export} exists; to replace an anchor, compare with it first: --anchor {export}")
    anchor = anchors.read_anchor(against.read_bytes()) if against is not None else None
    heads: list[anchors.AnchoredHead] = []
    with existing_store(url) as store:
        public = journal.agent_keys(store)
        # Refuses the anchor of another store now; compares when it is asked for its findings.
        differences = anchors.compare(store, anchor, public) if anchor is not None else ()
        with out.progress("verifying") as progress:
            report = journal.verify(
                store,
                lambda done, total, entries: progress(done, total),
                lambda stream, seq, link: heads.append(anchors.AnchoredHead(stream, seq, link.hex())),
            )
        findings = [*report.findings, *differences]
        damaged = report.left_off or any(it.severity == Severity.DAMAGE for it in findings)
        if export is not None and not damaged:
            replace_file(
                export, anchors.write_anchor(anchors.make_anchor(store, heads, _signers(keys.folder_of(store), public)))
            )
    written = str(export) if export is not None and not damaged else None
    _tell(out, report, findings, written)
    return 1 if damaged else 0


def _signers(folder: str | None, public: dict[str, bytes]) -> dict[str, keys.SigningKey]:
    found = {agent: keys.find(agent, folder, None) for agent in public}
    return {agent: key for agent, key in found.items() if key is not None and key.public_key == public[agent]}


def _tell(out: Output, report: Report, findings: list[Finding], written: str | None) -> None:
    counts = {name: getattr(report, name) for name in ("streams", "entries", "seals", "objects", "erased", "unsealed")}
    damage = report.left_off + sum(it.severity == Severity.DAMAGE for it in findings)
    if out.as_json:
        listed = [{**plain(_fields(it)), "severity": it.severity.value} for it in findings]
        arrivals = [{**msgspec.structs.asdict(it), "at": when(it.at)} for it in report.arrivals]
        more = {"findings": listed, "left_off": report.left_off, "anchor": written, "arrivals": arrivals}
        out.json({"ok": not damage, **counts, **more})
        return
    if findings:
        rows = [
            (it.severity.value, it.what.value, str(it.stream or ""), str(it.seq or ""), clean(it.run), clean(it.text))
            for it in findings
        ]
        out.table(("SEVERITY", "WHAT", "STREAM", "ENTRY", "RUN", "FINDING"), rows)
    if report.left_off:
        out.line(f"and {report.left_off} more")
    verdict = f"damaged: {counted(damage, 'finding')}" if damage else "ok"
    out.line(f"{verdict}; " + ", ".join(_in_words(name, count) for name, count in counts.items()))
    for it in report.arrivals:
        out.line(clean(f"agent {it.agent} arrived on {when(it.at)} ({it.how}): number {it.number}, file {it.file}"))
    if written is not None:
        out.line(f"anchor written to {clean(written)}: keep it on another machine")


def _in_words(name: str, count: int) -> str:
    return counted(
        count, {"streams": "stream", "entries": "entry", "seals": "seal", "objects": "object"}.get(name, name), name
    )


def _fields(finding: Finding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__ if name != "severity"}


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing: say what differs, with exit code 1.")
@common
def rebuild(only_check: bool, url: str | None, as_json: bool) -> int:
    """Make the views anew from the journal.

    The views (agents, runs, state, questions, answers) answer queries; the journal is the truth.
    """
    out = Output(as_json)
    with existing_store(url) as store:
        return _check_views(out, store) if only_check else _rebuild_views(out, store)


def _rebuild_views(out: Output, store: Store) -> int:
    entries = views.rebuild(store)
    if out.as_json:
        out.json({"rebuilt": list(views.TABLES), "entries": entries})
    else:
        out.line(f"rebuilt {', '.join(views.TABLES)} from {counted(entries, 'entry', 'entries')}")
    return 0


def _check_views(out: Output, store: Store) -> int:
    differences = views.check(store)
    if out.as_json:
        listed = [{name: getattr(it, name) for name in it.__struct_fields__} for it in differences]
        out.json({"ok": not differences, "differences": listed})
        return 1 if differences else 0
    if not differences:
        out.line("ok: every view equals the journal")
        return 0
    rows = [(it.view, ", ".join(map(shown, it.key)), it.what, _difference(it)) for it in differences]
    out.table(("VIEW", "KEY", "WHAT", "JOURNAL AND VIEW"), rows)
    count = len(differences)
    out.line(f"{counted(count, 'row')} {'differs' if count == 1 else 'differ'}; `perdure rebuild` makes the views anew")
    return 1


def _difference(it: views.Difference) -> str:
    triples = zip(it.columns, it.expected, it.found, strict=True) if it.what == "differs" else ()
    return "; ".join(f"{name}: {shown(ours, 60)}, found {shown(theirs, 60)}" for name, ours, theirs in triples)
