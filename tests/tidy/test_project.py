"""Dependencies are argued for and pinned, no file names a package source, public names are documented."""

from __future__ import annotations

import types
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.budget import SUITE_SECONDS_MAX
from tests.tidy import project_rules
from tests.tidy.source import ROOT, expect_none, texts

PYPROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8")


def test_every_dependency_is_argued_for() -> None:
    page = (ROOT / "docs" / "about" / "dependencies.md").read_text("utf-8")
    expect_none(project_rules.find_unexplained(PYPROJECT, page))


def test_every_dependency_is_pinned() -> None:
    expect_none(project_rules.badly_pinned(PYPROJECT, CONSTRAINTS))


def test_what_dependencies_pull_in_is_pinned_too() -> None:
    direct = {name for group in project_rules.dependencies(PYPROJECT).values() for name in group}
    needed = project_rules.find_needed(direct)
    assert {"apsw", "iniconfig", "cffi"} <= needed
    assert needed - project_rules.pins(CONSTRAINTS).keys() == set()


def test_no_file_names_a_package_source() -> None:
    expect_none(c for path, text in texts() for c in project_rules.names_a_registry(path, text))


def test_public_names_are_importable_sorted_and_documented() -> None:
    import perdure

    expect_none(project_rules.badly_public(perdure))


def test_every_suite_has_a_time_budget() -> None:
    suites = {path.relative_to(ROOT / "tests").parts for path in (ROOT / "tests").rglob("test_*.py")}
    assert {parts[0] for parts in suites} <= SUITE_SECONDS_MAX.keys()


SMALL = """
[build-system]
requires = ["builder>=1"]
[project]
dependencies = ["Some_Thing>=2"]
[project.optional-dependencies]
test = ["tester>=3"]
"""
PAGE = "| `some-thing` | it has been debugged for ten years |\n| `builder` | makes wheels that install |\n"


def test_unexplained_dependencies_are_noticed() -> None:
    assert project_rules.find_unexplained(SMALL, PAGE + "| `tester` | finds failures quicker than we |") == []
    assert project_rules.find_unexplained(SMALL, PAGE) == [
        "docs/about/dependencies.md: say why tester beats our own code"
    ]
    too_short = project_rules.find_unexplained(SMALL, PAGE + "| `tester` | useful |")
    assert len(too_short) == 1
    gone = project_rules.find_unexplained(SMALL, PAGE + PAGE.replace("builder", "tester").replace("some", "other"))
    assert gone == ["docs/about/dependencies.md: other-thing is not a dependency"]


@pytest.mark.parametrize(
    ("constraints", "complaint"),
    [
        ("builder==1.0\ntester==3", "some-thing is not pinned"),
        ("builder==1.0\ntester==3\nsome-thing==1.9", "some-thing==1.9 is not"),
        ("builder==1.0\ntester==3\nsome-thing>=2", "a line is name==version"),
        ("builder==1.0\ntester==3\nsome-thing==2 --hash=sha256:00", "a line is name==version"),
        ("builder==1.0\ntester==3\nsome-thing @ file:///tmp/x.whl", "a line is name==version"),
    ],
)
def test_bad_constraints_are_noticed(constraints: str, complaint: str) -> None:
    assert complaint in "\n".join(project_rules.badly_pinned(SMALL, constraints))


def test_good_constraints_are_fine() -> None:
    text = "# a comment\n\nbuilder==1.0\nsome-thing==2.0.post1\ntester==3\n"
    assert list(project_rules.badly_pinned(SMALL, text)) == []


@pytest.mark.parametrize(
    "line",
    [
        "see https://py" + "pi.org/project/x",
        "https://files.python" + "hosted.org/packages/x.whl",
        "pip install --index" + "-url=https://mirror.example x",
        "pip install --extra-index" + "-url https://mirror.example x",
        "index = https://mirror.example/root/simp" + "le/",
        "pip install --find" + "-links wheels x",
    ],
)
def test_package_sources_are_noticed(line: str) -> None:
    assert len(list(project_rules.names_a_registry("a.md", f"fine\n{line}\n"))) == 1
    assert (
        list(project_rules.names_a_registry("a.md", "pip install perdure\nhttps://example.com/simp" + "le-answers\n"))
        == []
    )


def public(**names: object) -> types.ModuleType:
    module = types.ModuleType("sample")
    vars(module).update(names)
    return module


class Documented:
    """Says what it is."""


class Heir(Documented):
    pass


@dataclass
class Bare:
    x: int


def silent() -> None:
    pass


def spoken() -> None:
    """Says what it does."""


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        (public(), "no __all__"),
        (public(__all__=["b", "a"], a=spoken, b=spoken), "not sorted"),
        (public(__all__=["a", "a"], a=spoken), "not sorted"),
        (public(__all__=["a"]), "sample.a cannot be imported"),
        (public(__all__=["a"], a=silent), "sample.a has no docstring"),
        (public(__all__=["a"], a=Bare), "sample.a has no docstring"),
        (public(__all__=["a"], a=Heir), "sample.a has no docstring"),
        (public(__all__=["a"], a=3), "sample.a has no docstring"),
    ],
)
def test_bad_public_names_are_noticed(module: types.ModuleType, complaint: str) -> None:
    (found,) = project_rules.badly_public(module)
    assert complaint in found


def test_good_public_names_are_fine() -> None:
    names = {"A": Documented, "B": Documented(), "__version__": "1", "c": spoken}
    assert list(project_rules.badly_public(public(__all__=sorted(names), **names))) == []


def test_the_walk_over_the_repository_skips_what_tools_made(tmp_path: Path) -> None:
    for name in ("a.md", ".venv/b.md", "src/__pycache__/c.md", ".ci/run", ".gitignore"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert {path for path, _ in texts(tmp_path)} == {"a.md", ".ci/run", ".gitignore"}
