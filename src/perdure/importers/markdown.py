"""Folders of Markdown: MEMORY.md, CLAUDE.md, AGENTS.md, Obsidian vaults. A section becomes a memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.importers.items import ImportedItem, ImportedNote, clean_text
from perdure.importers.reader import ImportReader, parse_moment
from perdure.values.limits import MEMORY_TAGS_MAX

SECTION_CHARACTERS_MAX = 6000
"""Longer sections are cut at paragraphs: recall finds a passage better than a chapter."""
FRONTMATTER_LINES_MAX = 500

_HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t]*#*")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_ENTRY = re.compile(r"([A-Za-z_][\w -]*):(?:[ \t]+(.*))?")
_RULES = frozenset({"claude.md", "agents.md", "claude.local.md", "gemini.md"})
"""Files that say how to work: their sections are procedural memories."""


def read_markdown(reader: ImportReader) -> Iterator[ImportedItem]:
    """Yield the sections of all Markdown files at the path."""
    for path in reader.list_files(".md", ".markdown"):
        text = reader.read_text(path)
        if text is not None:
            yield from _read_file(path, clean_lines(text))


def clean_lines(text: str) -> list[str]:
    """Return the lines of a file, ready to be stored. Files of any size are cut into sections, so nothing is lost."""
    return text.encode("utf-8", "replace").decode().replace("\0", "").replace("\r\n", "\n").split("\n")


def _read_file(path: Path, lines: list[str]) -> Iterator[ImportedNote]:
    facts, body = parse_frontmatter(lines)
    kind = "procedural" if path.name.lower() in _RULES else "semantic"
    at = next((found for name in ("date", "created", "updated") if (found := parse_moment(facts.get(name)))), 0)
    title = str(facts.get("title") or path.stem)
    meta = {"path": str(path), "title": title}
    seen = Counter[str]()
    for headings, text in split_sections(body):
        place = " > ".join(headings)
        for part in _cut(text):
            seen[place] += 1
            key = f"{path.resolve()}#{place}#{seen[place]}"
            shown = " > ".join(dict.fromkeys([title, *headings]))
            yield ImportedNote(clean_text(key), f"{shown}\n{part}", kind, tags=_tags(facts), at=at, meta=meta)


def parse_frontmatter(lines: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of the YAML at the top of a file that are texts or lists of texts, and the other lines."""
    if not lines or lines[0].rstrip() != "---":
        return {}, lines
    end = next((n for n, line in enumerate(lines[1:FRONTMATTER_LINES_MAX], 1) if line.rstrip() in ("---", "...")), 0)
    if not end:
        return {}, lines
    facts, last = dict[str, Any](), ""
    for line in lines[1:end]:
        if (found := _ENTRY.fullmatch(line.rstrip())) is not None:
            last, value = found[1].strip().lower(), (found[2] or "").strip()
            facts[last] = _parse_value(value)
        elif last and line.strip().startswith("- "):
            items = facts[last] if isinstance(facts[last], list) else []
            facts[last] = [*items, _unquote(line.strip()[2:])]
    return facts, lines[end + 1 :]


def _parse_value(value: str) -> str | list[str]:
    if value.startswith("[") and value.endswith("]"):
        return [_unquote(part) for part in value[1:-1].split(",") if part.strip()]
    return _unquote(value)


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _tags(facts: dict[str, Any]) -> tuple[str, ...]:
    found = facts.get("tags") or facts.get("tag") or []
    names = found if isinstance(found, list) else found.replace(",", " ").split()
    return tuple(dict.fromkeys(name.lstrip("#") for name in names if name.lstrip("#")))[:MEMORY_TAGS_MAX]


def split_sections(lines: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the headings above each section, and its text. Headings in code blocks are none."""
    headings, body, fence = list[tuple[int, str]](), list[str](), ""
    for line in lines:
        mark = _FENCE.match(line)
        if mark is not None and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        found = None if fence else _HEADING.fullmatch(line)
        if found is None:
            body.append(line)
            continue
        if text := "\n".join(body).strip():
            yield tuple(name for _, name in headings), text
        level = len(found[1])
        headings, body = [*(one for one in headings if one[0] < level), (level, found[2])], []
    if text := "\n".join(body).strip():
        yield tuple(name for _, name in headings), text


def _cut(text: str) -> Iterator[str]:
    """Cut a long section at paragraphs, and a paragraph that is too long anywhere."""
    part = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if part and len(part) + len(paragraph) > SECTION_CHARACTERS_MAX:
            yield part
            part = ""
        part = f"{part}\n\n{paragraph}" if part else paragraph
        while len(part) > SECTION_CHARACTERS_MAX:
            yield part[:SECTION_CHARACTERS_MAX]
            part = part[SECTION_CHARACTERS_MAX:]
    if part.strip():
        yield part
