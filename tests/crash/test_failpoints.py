"""SIGKILL at every failpoint that the victim reaches, every time that it reaches it; and none is missing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from perdure.failpoints import Moment, Site
from tests.crash.harness import ROOT, Stage, Undisturbed, in_parallel

COLOURS = ("sync", "async")
SOURCE = ROOT / "src" / "perdure"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("site", list(Site))
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_every_failpoint_and_resumed(
    stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, site: Site
) -> None:
    """Wherever it is killed, the next start finishes with the same outcome, and each effect happens once."""
    expected = undisturbed[colour]

    def kill_and_resume(place: str) -> list[str]:
        scene = stage.scene("victim:main", colour)
        code = scene.once({"PERDURE_FAILPOINT": place})
        assert code == -9, f"it was not killed, but ended with {code}"
        scene.finish()
        return scene.judge(expected)

    places = [place for place in expected.places() if place.startswith(f"{site}:")]
    assert places, f"the victim never commits at {site}"
    assert in_parallel(kill_and_resume, places) == []


@pytest.mark.parametrize("colour", COLOURS)
def test_every_site_is_reached_at_every_moment(undisturbed: dict[str, Undisturbed], colour: str) -> None:
    wanted = {f"{site}:{moment}" for site in Site for moment in Moment}
    assert wanted - set(undisturbed[colour].reached) == set()


def test_every_unit_of_the_product_names_its_site() -> None:
    """A class that commits says where, as a class attribute or as an argument of its constructor."""
    silent = [f"{path.name}:{node.name}" for path, node in _unit_classes() if not _names_a_site(node)]
    assert silent == []
    assert len(list(_unit_classes())) >= 8, "the search for units finds too few: has the base class been renamed?"


def test_every_commit_goes_through_a_unit() -> None:
    """Whoever writes past the committer has no failpoint: COMMIT is said in two places, both with `reach` around."""
    found = [(path.name, owner) for path, owner, text in _strings() if text.split()[:1] == ["COMMIT"]]
    assert sorted(found) == [("sqlite.py", "_transact"), ("sqlite_file.py", "create_or_migrate")]


def test_every_site_has_a_place_in_the_product() -> None:
    """No name in the enum without a commit behind it."""
    used = {
        node.attr
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Site"
    }
    assert {site.name for site in Site} - used == set()


def test_a_unit_without_a_site_is_noticed() -> None:
    bad = ast.parse("class Sneaky(Unit[int]):\n    def script(self): ...").body[0]
    good = ast.parse("class Honest(Unit[int]):\n    site = Site.WRITE").body[0]
    assert isinstance(bad, ast.ClassDef)
    assert isinstance(good, ast.ClassDef)
    assert (_names_a_site(bad), _names_a_site(good)) == (False, True)


def _unit_classes() -> list[tuple[Path, ast.ClassDef]]:
    return [
        (path, node)
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(_base_name(base) == "Unit" for base in node.bases)
    ]


def _base_name(base: ast.expr) -> str:
    inner = base.value if isinstance(base, ast.Subscript) else base
    return getattr(inner, "id", getattr(inner, "attr", ""))


def _names_a_site(node: ast.ClassDef) -> bool:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "site":
            return ast.unparse(statement.value).startswith("Site.")
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            arguments = [*statement.args.args, *statement.args.kwonlyargs]
            if any(argument.arg == "site" for argument in arguments) and not statement.args.defaults:
                return True
    return False


def _strings() -> list[tuple[Path, str, str]]:
    """Every string constant with the function around it."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                constants = [node for node in ast.walk(function) if isinstance(node, ast.Constant)]
                found += [(path, function.name, node.value) for node in constants if isinstance(node.value, str)]
    return found
