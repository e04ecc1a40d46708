"""Edits JSON with comments as text: comments, order, spacing and everything else stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec

from perdure.errors import ConfigurationBroken

DEPTH_MAX = 100

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class JsonMember(msgspec.Struct, frozen=True):
    """A key and its value in an object."""

    key: str
    start: int
    value: JsonNode
    comma: int = -1
    """The place of the comma after it; -1 if there is none."""


class JsonNode(msgspec.Struct, frozen=True):
    """A value and where it is in the text."""

    start: int
    end: int
    data: Any
    members: tuple[JsonMember, ...] = ()
    items: tuple[JsonNode, ...] = ()
    """The values of an array."""

    def find(self, key: str) -> JsonMember | None:
        """Return a member. If a key is there twice, the last one counts."""
        return next((member for member in reversed(self.members) if member.key == key), None)


class _JsonReader:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> JsonNode:
        node = self._value(0)
        self._skip()
        if self._at != len(self._text):
            self._fail("something follows the end")
        return node

    def _skip(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found is not None else self._at

    def _fail(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise ConfigurationBroken(f"line {line}: {what}")

    def _value(self, depth: int) -> JsonNode:
        self._skip()
        if depth > DEPTH_MAX:
            self._fail("it is nested too deeply")
        start = self._at
        if self._text.startswith("{", start):
            return self._object(start, depth)
        if self._text.startswith("[", start):
            return self._array(start, depth)
        found = _STRING.match(self._text, start) or _WORD.match(self._text, start)
        if found is None:
            self._fail("a value is missing" if start < len(self._text) else "the file ends too early")
        self._at = found.end()
        return JsonNode(start, self._at, self._decode(found.group()))

    def _decode(self, token: str) -> Any:
        try:
            return json.loads(token)
        except ValueError:
            self._fail("a value cannot be read")

    def _object(self, start: int, depth: int) -> JsonNode:
        self._at += 1
        members: list[JsonMember] = []
        while not self._ends("}"):
            if members and members[-1].comma < 0:
                self._fail("a comma is missing")
            member = self._member(depth)
            members.append(msgspec.structs.replace(member, comma=self._comma()))
        data = {member.key: member.value.data for member in members}
        return JsonNode(start, self._at, data, tuple(members))

    def _member(self, depth: int) -> JsonMember:
        start = self._at
        key = _STRING.match(self._text, start)
        if key is None:
            self._fail("a key in double quotes is missing")
        self._at = key.end()
        self._skip()
        if not self._text.startswith(":", self._at):
            self._fail("a colon is missing")
        self._at += 1
        return JsonMember(str(self._decode(key.group())), start, self._value(depth + 1))

    def _array(self, start: int, depth: int) -> JsonNode:
        self._at += 1
        items: list[JsonNode] = []
        comma = 0
        while not self._ends("]"):
            if items and comma < 0:
                self._fail("a comma is missing")
            items.append(self._value(depth + 1))
            comma = self._comma()
        return JsonNode(start, self._at, [item.data for item in items], items=tuple(items))

    def _ends(self, bracket: str) -> bool:
        self._skip()
        if self._at >= len(self._text):
            self._fail("the file ends too early")
        if not self._text.startswith(bracket, self._at):
            return False
        self._at += 1
        return True

    def _comma(self) -> int:
        self._skip()
        if not self._text.startswith(",", self._at):
            return -1
        self._at += 1
        return self._at - 1


def read_json(text: str) -> JsonNode:
    """Parse a text. Raises `ConfigurationBroken` with the line."""
    return _JsonReader(text).read()


def set_entry(text: str, path: Sequence[str], entry: Any) -> str:
    """Return the text with an entry at a path of keys. An equal entry changes nothing."""
    if not text.strip():
        return json.dumps(_nest(path, entry), indent=2) + "\n"
    node = read_json(text)
    for depth, key in enumerate(path):
        if not isinstance(node.data, dict):
            raise ConfigurationBroken(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        member = node.find(key)
        if member is None:
            return _insert(text, node, key, _nest(path[depth + 1 :], entry))
        node = member.value
    if node.data == entry:
        return text
    shown = _indented(entry, _indent_at(text, node.start), _unit(text))
    return text[: node.start] + shown + text[node.end :]


def remove_entry(text: str, path: Sequence[str]) -> str:
    """Return the text without the entry at a path of keys."""
    if not text.strip():
        return text
    parent, node = None, read_json(text)
    member: JsonMember | None = None
    for key in path:
        parent, member = node, node.find(key)
        if member is None:
            return text
        node = member.value
    assert parent is not None
    assert member is not None
    return _cut(text, parent, member)


def append_item(text: str, path: Sequence[str], item: Any) -> str:
    """Return the text with an item at the end of the array at a path of keys."""
    node = read_json(text) if text.strip() else None
    for key in path:
        member = node.find(key) if node is not None else None
        node = member.value if member is not None else None
    if node is None or not node.data:
        return set_entry(text, path, [item])
    if not isinstance(node.data, list):
        raise ConfigurationBroken(f"{'.'.join(path)} is not an array")
    last = node.items[-1]
    indent = _indent_at(text, last.start)
    return f"{text[: last.end]},\n{indent}{_indented(item, indent, _unit(text))}{text[last.end :]}"


def remove_items(text: str, path: Sequence[str], ours: Callable[[Any], bool]) -> str:
    """Return the text without some items of the array at a path of keys. An array that is empty then is removed."""
    while True:
        node = read_json(text)
        for key in path:
            member = node.find(key)
            if member is None:
                return text
            node = member.value
        found = [index for index, item in enumerate(node.items) if ours(item.data)]
        if not found:
            return text
        if len(node.items) == 1:
            return remove_entry(text, path)
        index = found[-1]
        start = node.items[index - 1].end if index else node.items[0].start
        end = node.items[index].end if index else node.items[1].start
        text = text[:start] + text[end:]


def _nest(path: Sequence[str], entry: Any) -> Any:
    for key in reversed(path):
        entry = {key: entry}
    return entry


def _insert(text: str, parent: JsonNode, key: str, entry: Any) -> str:
    """Add a member at the end of an object."""
    unit = _unit(text)
    outer = _indent_at(text, parent.start)
    inner = _indent_at(text, parent.members[-1].start) if parent.members else outer + unit
    if inner == outer:  # all on one line
        inner = outer + unit
    member = f"{json.dumps(key)}: {_indented(entry, inner, unit)}"
    close = parent.end - 1
    if not parent.members:
        body = text[parent.start + 1 : close].strip()
        before = f"\n{inner}{body}" if body else ""
        return f"{text[: parent.start + 1]}{before}\n{inner}{member}\n{outer}{text[close:]}"
    last = parent.members[-1]
    ends_with_comma = last.comma >= 0
    rest = text[last.value.end : close].rstrip()
    before = f"{text[: last.value.end]}{'' if ends_with_comma else ','}{rest}"
    return f"{before}\n{inner}{member}{',' if ends_with_comma else ''}\n{outer}{text[close:]}"


def _cut(text: str, parent: JsonNode, member: JsonMember) -> str:
    """Remove a member with the comma that belongs to it."""
    index = parent.members.index(member)
    if index + 1 < len(parent.members):
        return text[: member.start] + text[parent.members[index + 1].start :]
    tail = text[max(member.comma + 1, member.value.end) :]
    if not index:
        return text[: member.start].rstrip() + tail.lstrip()
    before = parent.members[index - 1]
    comma = before.comma + (member.comma >= 0)  # a file with a comma after its last entry keeps that
    return (text[:comma] + text[before.comma + 1 : member.start]).rstrip() + tail


def _indented(entry: Any, indent: str, unit: str) -> str:
    return json.dumps(entry, indent=unit).replace("\n", f"\n{indent}")


def _indent_at(text: str, at: int) -> str:
    """Return the white space at the beginning of the line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    """Return one level of indentation, as the file has it."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found.group(1) if found is not None else "  "
