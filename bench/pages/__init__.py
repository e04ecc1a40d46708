"""The pages of docs/ that are made from results: words are here, figures come from the last complete session."""

from __future__ import annotations

from pathlib import Path

from ..lab import ROOT
from ..report import Report
from . import comparison, performance, plots

DOCS = ROOT / "docs"


def write_pages(report: Report, docs: Path = DOCS) -> list[Path]:
    """docs/performance.md, docs/comparison.md and their plots; says what it wrote."""
    images = docs / "img"
    images.mkdir(exist_ok=True)
    pictures = plots.pictures(report.standings)
    written = {docs / "performance.md": performance.page(report)}
    if report.standings:
        written[docs / "comparison.md"] = comparison.page(report)
        written |= {images / f"{name}.svg": picture for name, picture in pictures.items()}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)
