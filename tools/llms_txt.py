"""Writes docs/llms.txt (the index for models) and build/llms-full.txt (every page in one file) from docs/README.md.

    python tools/llms_txt.py            writes both files
    python tools/llms_txt.py --check    exit code 1 if docs/llms.txt is not current

The format is that of https://llmstxt.org: a title, a summary, and lists of links by section. The index is committed:
it changes only with docs/README.md. The full text is built: a committed copy of every page would conflict with every
change of a page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_SECTION = re.compile(r"## (.+)")
_ROW = re.compile(r"\| (?P<task>[^|]+) \| (?P<links>[^|]+) \|")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+\.md)\)")

HEADING = """# Perdure

> Durable execution and memory for AI agents, as a Python library: kill the process anywhere, and the run continues.
> Steps are recorded and replayed, effects happen once, memories survive, on SQLite, PostgreSQL or a server.
"""


def find_pages() -> Iterator[tuple[str, str, str, str]]:
    """Yield section, task, title and path of every page that docs/README.md names, in its order."""
    section, seen = "", set[str]()
    for line in (DOCS / "README.md").read_text("utf-8").splitlines():
        if (found := _SECTION.fullmatch(line)) is not None:
            section = found[1]
        elif (row := _ROW.fullmatch(line)) is not None:
            for title, path in _LINK.findall(row["links"]):
                if path not in seen and not path.startswith(".."):
                    seen.add(path)
                    yield section, row["task"].strip(), title, path


def make_index() -> str:
    """Return the text of llms.txt."""
    lines, last = [HEADING], ""
    for section, task, title, path in find_pages():
        if section != last:
            lines += [f"## {section}\n"] if not last else [f"\n## {section}\n"]
            last = section
        lines.append(f"- [{title}]({path}): {task}")
    return "\n".join(lines) + "\n"


def make_full() -> str:
    """Return the text of llms-full.txt: every page, headed by its path."""
    pages = [f'<page path="{path}">\n{(DOCS / path).read_text("utf-8").strip()}\n</page>' for *_, path in find_pages()]
    return "\n\n".join([HEADING.strip(), *pages]) + "\n"


INDEX = DOCS / "llms.txt"
FULL = ROOT / "build" / "llms-full.txt"


def main() -> int:
    """Write both files, or check the index."""
    if "--check" in sys.argv[1:]:
        current = INDEX.exists() and INDEX.read_text("utf-8") == make_index()
        if not current:
            print("docs/llms.txt is not current: run make docs", file=sys.stderr)
        return int(not current)
    FULL.parent.mkdir(exist_ok=True)
    INDEX.write_text(make_index(), "utf-8")
    FULL.write_text(make_full(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
