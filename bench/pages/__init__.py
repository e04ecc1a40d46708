"""The pages of docs/ that are made from results: words are here, figures come from the last complete session."""

from __future__ import annotations

from pathlib import Path

from ..lab import ROOT
from ..report import Report
from . import comparison, langgraph, performance, plots

DOCS = ROOT / "docs"


def write_pages(report: Report | None, docs: Path = DOCS, savers: Report | None = None) -> list[Path]:
    """Write the pages on performance, comparison and LangGraph with their plots; return their paths."""
    written: dict[Path, str] = {}
    if report is not None:
        written[docs / "about" / "performance.md"] = performance.page(report)
    if report is not None and report.standings:
        written[docs / "about" / "comparison.md"] = comparison.page(report)
        images = docs / "img"
        written |= {images / f"{name}.svg": picture for name, picture in plots.pictures(report.standings).items()}
    if savers is not None:
        written[docs / "guides" / "langgraph.md"] = langgraph.page(savers)
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)
