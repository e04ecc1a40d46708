"""Bars as SVG, written by hand: no plotting library, readable in light and in dark mode."""

from __future__ import annotations

import math
from html import escape

import msgspec

WIDTH = 760
LABEL_WIDTH = 130
FIGURE_WIDTH = 130
BAR_HEIGHT = 16
BAR_STEP = 22
TITLE_HEIGHT = 34
MARGIN = 16

# The background is drawn, so that a page of another colour than the reader's system does no harm.
STYLE = """
    .ground { fill: #ffffff; } text { font: 13px system-ui, sans-serif; fill: #24292f; }
    .title { font-weight: 600; } .figure { font-variant-numeric: tabular-nums; } .axis { stroke: #8c959f; }
    .ours { fill: #0969da; } .peer { fill: #8c959f; } .floor { fill: #d0d7de; } .whisker { stroke: #57606a; }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #0d1117; } text { fill: #e6edf3; } .axis { stroke: #484f58; }
      .ours { fill: #4493f8; } .peer { fill: #6e7681; } .floor { fill: #3d444d; } .whisker { stroke: #c9d1d9; }
    }
"""


class Bar(msgspec.Struct, frozen=True):
    """One bar: `tone` is "ours", "peer" or "floor"; `whisker` ends a line that goes on from the bar's end."""

    label: str
    value: float
    figure: str
    tone: str
    whisker: float | None = None


class Panel(msgspec.Struct, frozen=True):
    """Bars under a title. A logarithmic one says so in its title; its left end is a power of ten."""

    title: str
    bars: list[Bar]
    logarithmic: bool = False

    @property
    def height(self) -> int:
        """In pixels."""
        return TITLE_HEIGHT + BAR_STEP * len(self.bars)


def picture(description: str, panels: list[Panel]) -> str:
    """The panels below each other; the description is for those who cannot see them."""
    height = 2 * MARGIN + sum(panel.height for panel in panels) + MARGIN * (len(panels) - 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"  <title>{escape(description)}</title>",
        f"  <style>{STYLE}  </style>",
        f'  <rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
    ]
    top = MARGIN
    for panel in panels:
        lines += _panel(panel, top)
        top += panel.height + MARGIN
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel, top: int) -> list[str]:
    left, scale = MARGIN + LABEL_WIDTH, Scale(panel)
    lines = [f'  <text class="title" x="{MARGIN}" y="{top + 14}">{escape(panel.title)}</text>']
    for number, bar in enumerate(panel.bars):
        y = top + TITLE_HEIGHT + number * BAR_STEP
        middle, width = y + BAR_HEIGHT // 2, scale(bar.value)
        lines.append(f'  <text x="{left - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>')
        lines.append(
            f'  <rect class="{bar.tone}" x="{left}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
        )
        end = width
        if bar.whisker is not None:
            end = scale(bar.whisker)
            lines.append(
                f'  <path class="whisker" d="M{left + width:.1f} {middle}H{left + end:.1f}m0 -4v8" fill="none"/>'
            )
        lines.append(f'  <text class="figure" x="{left + end + 8:.1f}" y="{middle + 4}">{escape(bar.figure)}</text>')
    bottom = top + panel.height - BAR_STEP + BAR_HEIGHT + 4
    lines.append(f'  <path class="axis" d="M{left} {top + TITLE_HEIGHT - 6}V{bottom}" fill="none"/>')
    return lines


class Scale:
    """From a figure to pixels."""

    def __init__(self, panel: Panel) -> None:
        values = [value for bar in panel.bars for value in (bar.value, bar.whisker) if value]
        self._most = max(values, default=1.0)
        self._least = 10 ** math.floor(math.log10(min(values, default=1.0))) if panel.logarithmic else 0.0
        self._width = WIDTH - 2 * MARGIN - LABEL_WIDTH - FIGURE_WIDTH

    def __call__(self, value: float) -> float:
        if not self._least:
            return self._width * value / self._most
        span = math.log10(self._most / self._least) or 1.0
        return max(self._width * math.log10(max(value, self._least) / self._least) / span, 1.0)
