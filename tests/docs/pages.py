"""Reading a Markdown page: its code blocks, the commands in them, its links.

A reader copies what stands on a page from top to bottom, and so do we: the blocks of a page run in order, in
one process, in one empty folder that is home and working directory.

    ```python                    runs in the page's process, with what earlier blocks have defined
    ```python title="agent.py"   is saved as that file; run by a command of the page, else at once as a script
    ```bash ```sh ```console     each line `$ perdure ...` or `$ python ...` runs and must succeed; in bash
                                 and sh the `$ ` may be missing; other lines are output, or not for us
    ```sql                       each statement runs, in the database `agents` of a PostgreSQL server of its own,
                                 as its superuser; libpq's variables lead every other block there too
    <!-- no-run: the reason -->  on the line before a block: it is not run
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
NO_RUN = re.compile(r"^\s*<!-- no-run:(.*)-->\s*$")
TITLE = re.compile(r"""\btitle=["']?([\w./-]+)""")
COMMAND = re.compile(r"^(perdure|python3?)(\s|$)")
INLINE_CODE = re.compile(r"`+[^`]*`+")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)|^\s{0,3}\[[^\]]+\]:\s+(\S+)|(?:src|href)=\"([^\"]+)\"")
LINE_MAX = 120
UNBREAKABLE = re.compile(r"^\s*\||https?://")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")


class BadPage(Exception):
    """The page is not what a reader could use."""


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is where its text begins, counted from 1."""

    language: str
    title: str
    text: str
    line: int
    no_run: str | None = None


@dataclass(frozen=True)
class Action:
    """Something to do on behalf of the reader: `python`, `file`, `script`, `command` or `sql`."""

    kind: str
    text: str
    line: int
    title: str = ""


def blocks_of(page: str) -> list[Block]:
    """Every fenced block of a page."""
    lines, blocks, number = page.splitlines(), [], 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence:
            end = _end_of(lines, number, fence["fence"])
            blocks.append(_block(lines, number, end, fence))
            number = end
        number += 1
    return blocks


def _end_of(lines: list[str], start: int, fence: str) -> int:
    closing = re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    for number in range(start + 1, len(lines)):
        if closing.match(lines[number]):
            return number
    raise BadPage(f"line {start + 1}: the block has no end")


def _block(lines: list[str], start: int, end: int, fence: re.Match[str]) -> Block:
    language, _, options = fence["info"].strip().partition(" ")
    indent = len(fence["indent"])
    text = "\n".join(line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[start + 1 : end])
    mark = NO_RUN.match(lines[start - 1]) if start else None
    if mark and not mark[1].strip():
        raise BadPage(f"line {start}: say why it is not run: <!-- no-run: reason -->")
    title = TITLE.search(options)
    return Block(language, title[1] if title else "", text, start + 2, mark[1].strip() if mark else None)


def actions_of(page: str) -> list[Action]:
    """What a reader who follows the page does, in order."""
    blocks = [block for block in blocks_of(page) if block.no_run is None]
    commands = " ".join(action.text for block in blocks for action in _commands(block))
    return [action for block in blocks for action in _actions(block, commands)]


def _actions(block: Block, commands: str) -> Iterator[Action]:
    if block.language == "python" and block.title:
        yield Action("file", block.text, block.line, block.title)
        if block.title not in commands:
            yield Action("script", block.title, block.line)
    elif block.language == "python":
        yield Action("python", block.text, block.line)
    elif block.language == "sql":
        yield Action("sql", block.text, block.line)
    else:
        yield from _commands(block)


def _commands(block: Block) -> Iterator[Action]:
    if block.language not in {"bash", "sh", "shell", "console"}:
        return
    lines, number = block.text.split("\n"), 0
    while number < len(lines):
        first, line = number, lines[number]
        prompted = line.startswith("$ ")
        text = line.removeprefix("$ ")
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text += "\n" + lines[number]
        if COMMAND.match(text) and (prompted or block.language != "console"):
            yield Action("command", text, block.line + first)
        number += 1


def find_long_lines(page: str) -> list[int]:
    """Lines with more than 120 characters. Only rows of tables and addresses cannot be wrapped."""
    lines = enumerate(page.splitlines(), start=1)
    return [n for n, line in lines if len(line) > LINE_MAX and not UNBREAKABLE.search(line)]


def links_of(page: str) -> list[tuple[int, str]]:
    """Line and target of each link, outside of code."""
    inside = {n for b in blocks_of(page) for n in range(b.line - 1, b.line + b.text.count("\n") + 2)}
    found = []
    for number, line in enumerate(page.splitlines(), start=1):
        if number not in inside:
            matches = LINK.finditer(INLINE_CODE.sub("", line))
            found += [(number, match[1] or match[2] or match[3]) for match in matches]
    return found


def anchors_of(page: str) -> set[str]:
    """The names of a page's headings, made as GitHub makes them."""
    inside = {n for b in blocks_of(page) for n in range(b.line - 1, b.line + b.text.count("\n") + 2)}
    names: set[str] = set()
    for number, line in enumerate(page.splitlines(), start=1):
        heading = HEADING.match(line)
        if heading and number not in inside:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = plain = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            again = 0
            while name in names:
                again += 1
                name = f"{plain}-{again}"
            names.add(name)
    return names


def broken_links(path: Path, root: Path) -> Iterator[str]:
    """Relative links that lead nowhere: no such file in the repository, no such heading in it."""
    where = path.relative_to(root)
    for line, link in links_of(path.read_text("utf-8")):
        if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_relative_to(root.resolve()) or not target.exists():
            yield f"{where}:{line}: {link} does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text("utf-8")):
            yield f"{where}:{line}: {link} has no such heading"
