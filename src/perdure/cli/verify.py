"""`perdure verify` and `perdure rebuild`: check the journal, and compare or rebuild the views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.cli.output import CommandOutput, clean, format_count, format_time, format_value, to_json_value
from perdure.cli.store_option import add_common_options, open_existing_store
from perdure.journal import anchor as anchors
from perdure.journal import keys
from perdure.journal import rebuild as views
from perdure.journal import verify as journal
from perdure.journal.verify_report import Severity, VerifyFinding, VerifyReport
from perdure.platform.files import replace_file

if TYPE_CHECKING:
    from perdure.store.base import Store


@click.command()
@click.option(
    "--anchor", "against", type=click.Path(path_type=Path), help="Compare with this anchor: finds a rollback."
)
@click.option("--export-anchor", "export", type=click.Path(path_type=Path), help="Write an anchor if all is well.")
@add_common_options
def verify(against: Path | None, export: Path | None, url: str | None, as_json: bool) -> int:
    """Detect entries that were edited, removed or reordered.

    Checks every entry, signature and large value, and reports damage with exit code 1. Agents may keep working.
    """
    out = CommandOutput(as_json)
    if export is not None and export.exists() and export != against:
        raise click.UsageError(f"{export} exists; to replace an anchor, compare with it first: --anchor {export}")
    anchor = anchors.decode_anchor(against.read_bytes()) if against is not None else None
    heads: list[anchors.AnchoredHead] = []
    with open_existing_store(url) as store:
        public = journal.agent_keys(store)
        # Refuses the anchor of another store now, but compares lazily, when the findings are read.
        differences = anchors.compare(store, anchor, public) if anchor is not None else ()
        with out.progress("verifying") as progress:
            report = journal.verify(
                store,
                lambda done, total, entries: progress(done, total),
                lambda stream, seq, link: heads.append(anchors.AnchoredHead(stream, seq, link.hex())),
            )
        findings = [*report.findings, *differences]
        damaged = report.left_off or any(finding.severity == Severity.DAMAGE for finding in findings)
        if export is not None and not damaged:
            replace_file(
                export, anchors.write_anchor(anchors.make_anchor(store, heads, _signers(keys.folder_of(store), public)))
            )
    written = str(export) if export is not None and not damaged else None
    _print_report(out, report, findings, written)
    return 1 if damaged else 0


def _signers(folder: str | None, public: dict[str, bytes]) -> dict[str, keys.SigningKey]:
    found = {agent: keys.find(agent, folder, None) for agent in public}
    return {agent: key for agent, key in found.items() if key is not None and key.public_key == public[agent]}


def _print_report(out: CommandOutput, report: VerifyReport, findings: list[VerifyFinding], written: str | None) -> None:
    counts = {name: getattr(report, name) for name in ("streams", "entries", "seals", "objects", "erased", "unsealed")}
    damage = report.left_off + sum(finding.severity == Severity.DAMAGE for finding in findings)
    if out.as_json:
        listed = [{**to_json_value(_fields(finding)), "severity": finding.severity.value} for finding in findings]
        arrivals = [{**msgspec.structs.asdict(item), "at": format_time(item.at)} for item in report.arrivals]
        more = {"findings": listed, "left_off": report.left_off, "anchor": written, "arrivals": arrivals}
        out.json({"ok": not damage, **counts, **more})
        return
    if findings:
        rows = [
            (
                finding.severity.value,
                finding.what.value,
                str(finding.stream or ""),
                str(finding.seq or ""),
                clean(finding.run),
                clean(finding.text),
            )
            for finding in findings
        ]
        out.table(("SEVERITY", "WHAT", "STREAM", "ENTRY", "RUN", "FINDING"), rows)
    if report.left_off:
        out.line(f"and {report.left_off} more")
    verdict = f"damaged: {format_count(damage, 'finding')}" if damage else "ok"
    out.line(f"{verdict}; " + ", ".join(_count_text(name, count) for name, count in counts.items()))
    for arrival in report.arrivals:
        out.line(
            clean(
                f"agent {arrival.agent} arrived on {format_time(arrival.at)} ({arrival.how}): "
                f"number {arrival.number}, file {arrival.file}"
            )
        )
    if written is not None:
        out.line(f"anchor written to {clean(written)}: keep it on another machine")


def _count_text(name: str, count: int) -> str:
    return format_count(
        count, {"streams": "stream", "entries": "entry", "seals": "seal", "objects": "object"}.get(name, name), name
    )


def _fields(finding: VerifyFinding) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__ if name != "severity"}


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Change nothing; report differences with exit code 1.")
@add_common_options
def rebuild(only_check: bool, url: str | None, as_json: bool) -> int:
    """Rebuild the views from the journal.

    Queries read the views (agents, runs, state, questions, answers); the journal is the source of truth.
    """
    out = CommandOutput(as_json)
    with open_existing_store(url) as store:
        return _check_views(out, store) if only_check else _rebuild_views(out, store)


def _rebuild_views(out: CommandOutput, store: Store) -> int:
    entries = views.rebuild(store)
    if out.as_json:
        out.json({"rebuilt": list(views.TABLES), "entries": entries})
    else:
        out.line(f"rebuilt {', '.join(views.TABLES)} from {format_count(entries, 'entry', 'entries')}")
    return 0


def _check_views(out: CommandOutput, store: Store) -> int:
    differences = views.check(store)
    if out.as_json:
        listed = [
            {name: getattr(difference, name) for name in difference.__struct_fields__} for difference in differences
        ]
        out.json({"ok": not differences, "differences": listed})
        return 1 if differences else 0
    if not differences:
        out.line("ok: every view equals the journal")
        return 0
    rows = [
        (difference.view, ", ".join(map(format_value, difference.key)), difference.what, _difference(difference))
        for difference in differences
    ]
    out.table(("VIEW", "KEY", "WHAT", "JOURNAL AND VIEW"), rows)
    count = len(differences)
    out.line(
        f"{format_count(count, 'row')} {'differs' if count == 1 else 'differ'}; `perdure rebuild` rebuilds the views"
    )
    return 1


def _difference(difference: views.ViewDifference) -> str:
    triples = (
        zip(difference.columns, difference.expected, difference.found, strict=True)
        if difference.what == "differs"
        else ()
    )
    return "; ".join(
        f"{name}: {format_value(ours, 60)}, found {format_value(theirs, 60)}" for name, ours, theirs in triples
    )
