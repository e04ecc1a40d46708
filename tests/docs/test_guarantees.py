"""docs/about/guarantees.md keeps its word: every sentence has tests, and they exist, run, and would notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.mutations.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/about/guarantees.md"

PROMISES = (
    "Returned means on disk",
    "A step is a transaction",
    "Steps are remembered",
    "Effects are never silently repeated",
    "One writer per run",
    "Takeover is quick",
    "The journal is gap-free, ordered and tamper-evident",
    "Views equal the journal",
    "Cost grows with the change, not with the history",
    "Nothing in stored bytes can name code",
    "Never looks durable when it is not",
    "Old data opens",
)
NOT_PROMISED = (
    "without a check",
    "outside of steps",
    'durability="process"',
    "stopped inside a commit",
    "GIL",
    "without an anchor",
)
TEST = re.compile(r"tests/[\w/]+\.py::\w+")
SMALL = re.compile(r"<sub>(.*?)</sub>", re.DOTALL)
NOT_RUN = frozenset({"skip", "skipif", "xfail", "soak"})


@dataclass(frozen=True)
class Sentence:
    """One bullet: what it says, and the tests below it."""

    section: str
    text: str
    tests: tuple[str, ...]


def sentences(page: str) -> list[Sentence]:
    """Every bullet of the page with the section that it is in."""
    found = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        for bullet in re.split(r"^- ", body, flags=re.MULTILINE)[1:]:
            bullet = bullet.partition("\n\n")[0]
            tests = tuple(test for small in SMALL.findall(bullet) for test in TEST.findall(small))
            found.append(Sentence(title.strip(), " ".join(SMALL.sub("", bullet).split()), tests))
    return found


SENTENCES = sentences(PAGE.read_text("utf-8"))
PROMISED = [one for one in SENTENCES if re.match(r"\d+\. ", one.section)]
TESTS = sorted({test for one in SENTENCES for test in one.tests})


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def marks_of(decorators: list[ast.expr]) -> Iterator[str]:
    """`skip` of `@pytest.mark.skip(...)`, and so on."""
    for decorator in decorators:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Attribute):
                yield node.attr


def complaint_about(test: str, root: Path) -> str | None:
    """What is wrong with a named test, going by its source."""
    file, _, name = test.partition("::")
    path = root / file
    if not path.exists() or not path.name.startswith("test_"):
        return f"{test}: there is no such file of tests"
    tree = tree_of(path)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if name not in functions or not name.startswith("test_"):
        return f"{test}: there is no such test"
    whole_file = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets)
    ]
    if NOT_RUN & {*marks_of(functions[name].decorator_list), *marks_of(whole_file)}:
        return f"{test}: is skipped, expected to fail, or left to `make soak`"
    return None


@pytest.mark.parametrize("test", TESTS)
def test_a_named_test_exists_and_is_not_skipped(test: str) -> None:
    assert complaint_about(test, ROOT) is None


def test_every_sentence_has_a_test() -> None:
    assert len(PROMISED) > 40
    assert [one.text for one in PROMISED if not one.tests] == []


def test_no_test_is_named_outside_of_a_sentence() -> None:
    assert sorted(set(TEST.findall(PAGE.read_text("utf-8")))) == TESTS


def test_no_promise_is_missing() -> None:
    numbered = list(dict.fromkeys(one.section for one in PROMISED))
    assert numbered == [f"{number}. {title}" for number, title in enumerate(PROMISES, start=1)]


def test_what_is_not_promised_is_told() -> None:
    told = " ".join(one.text for one in SENTENCES if one.section == "What is not promised")
    assert [words for words in NOT_PROMISED if words not in told] == []


@pytest.mark.parametrize("section", list(dict.fromkeys(one.section for one in PROMISED)))
def test_every_promise_has_a_mutant_that_breaks_it(section: str) -> None:
    noticed_by = {f"tests/{one.test.partition('[')[0]}" for one in MUTANTS}
    assert noticed_by & {test for one in PROMISED if one.section == section for test in one.tests}


# -- the rules themselves -------------------------------------------------------------------------------------

BAD_PAGE = """
# Page

## 1. First

- It is so.
  And so. <sub>tests/unit/test_a.py::test_one
  tests/unit/test_b.py::test_two</sub>
- It is said, but not shown.

Text between.

## Other
- Here too. <sub>tests/unit/test_c.py::test_three</sub>
"""


def test_sentences_are_read_with_their_tests() -> None:
    assert sentences(BAD_PAGE) == [
        Sentence("1. First", "It is so. And so.", ("tests/unit/test_a.py::test_one", "tests/unit/test_b.py::test_two")),
        Sentence("1. First", "It is said, but not shown.", ()),
        Sentence("Other", "Here too.", ("tests/unit/test_c.py::test_three",)),
    ]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def test_x(): ...", None),
        ("async def test_x(): ...", None),
        ("@pytest.mark.parametrize('a', [1])\ndef test_x(): ...", None),
        ("def test_y(): ...", "no such test"),
        ("class Test:\n    def helper(self): ...", "no such test"),
        ("@pytest.mark.skip\ndef test_x(): ...", "is skipped"),
        ("@pytest.mark.skipif(True, reason='')\ndef test_x(): ...", "is skipped"),
        ("@pytest.mark.xfail(strict=True)\ndef test_x(): ...", "is skipped"),
        ("@pytest.mark.soak\ndef test_x(): ...", "is skipped"),
        ("pytestmark = [pytest.mark.soak]\ndef test_x(): ...", "is skipped"),
        ("pytestmark = pytest.mark.timeout(9)\ndef test_x(): ...", None),
    ],
)
def test_the_rule_bites(tmp_path: Path, source: str, complaint: str | None) -> None:
    (tmp_path / "test_it.py").write_text(source)
    found = complaint_about("test_it.py::test_x", tmp_path)
    assert (found is None) if complaint is None else (found is not None and complaint in found)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert "no such file" in str(complaint_about("test_it.py::test_x", tmp_path))
