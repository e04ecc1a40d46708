"""Write the table of docs/guides/frameworks.md: each framework killed, with its own means and with Perdure.

Usage: python tools/framework_table.py [NAME ...]

Without names, all frameworks of this environment are measured. Rows that are not measured stay: CrewAI has an
environment of its own. LangGraph needs langgraph-checkpoint-sqlite for its row without Perdure.

Each cell is measured: the program of tests/adapters/frameworks.py is killed in a real process and started again. What
model calls and tools did is counted outside.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.adapters.frameworks import ANSWER, MOMENTS, PLAYS, TOOLS, play, warm_up  # noqa: E402
from tests.conformance.kit import World, run_in_child  # noqa: E402

PAGE = ROOT / "docs/guides/frameworks.md"
BEGIN, END = "<!-- table: tools/framework_table.py -->", "<!-- end of table -->"
HEADS = ("before tool 2 acts", "after tool 2 acted", "after its result", "in a model call", "in a stream")


def main() -> int:
    """Measure the cells and write the page."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    before, after = rest.split(END)
    rows = {tuple(line.split(" | ")[:2]): line for line in before.strip().splitlines()[2:]}
    for name in sys.argv[1:] or PLAYS:
        warm_up(name)
        for ours in (False, True):
            cells = [measure(name, moment, ours) for moment in MOMENTS]
            start = (f"| {name}", "with" if ours else "without")
            rows[start] = f"{' | '.join([*start, *cells])} |"
    lines = [f"| framework | | {' | '.join(HEADS)} |", "|---" * (len(HEADS) + 2) + "|", *rows.values()]
    PAGE.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}")
    return 0


def measure(name: str, moment: str, ours: bool) -> str:
    """Kill the program at a moment, start it again, and say what was repeated or lost."""
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / ("stream" if moment == "stream" else "whole")
        folder.mkdir()
        url = f"sqlite:///{folder}/shop.db"
        run_in_child(partial(play, name, folder, url, moment, ours=ours))
        status = os.waitstatus_to_exitcode(run_in_child(partial(play, name, folder, url, ours=ours)))
        done = World(folder).read_all()
        if status or done[-1:] != [f"answer {ANSWER}"]:
            return "does not finish"
        return judge(Counter(what.split()[0] for what in done), 5 if moment in ("model", "stream") else 4)


def judge(seen: Counter[str], calls: int) -> str:
    """Say what is wrong with the counts of a program that has finished."""
    counts = {number: seen[f"tool{number}"] for number in TOOLS}
    again = sum(count - 1 for count in counts.values() if count)
    wrong = [f"{again} tool{'s' if again > 1 else ''} again"] if again else []
    wrong += [f"tool {number} never" for number, count in counts.items() if not count]
    if paid := seen["model"] - calls:
        wrong.append(f"{paid} paid again")
    return ", ".join(wrong) or "right"


if __name__ == "__main__":
    raise SystemExit(main())
