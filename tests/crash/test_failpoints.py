"""SIGKILL at every failpoint that the victim reaches, in `make soak` every time that it does; and none is missing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from perdure.platform.failpoints import CommitMoment, Site
from tests.crash.harness import ROOT, Stage, Undisturbed, run_cases, spread

COLOURS = ("sync", "async")
SOURCE = ROOT / "src" / "perdure"

ABSENT = {"sqlite": {Site.BACKUP}, "postgres": {Site.STORE_HOME, Site.SHRINK}}
"""A file is copied by SQLite itself, page by page; a server has its own ways to be copied, so its store has no
home, and it sees to its empty pages itself."""

TIMES_MAX = {("sqlite", "sync"): 1, ("sqlite", "async"): 1, ("postgres", "sync"): 1, ("postgres", "async"): 1}
"""How many of the times that a failpoint is reached, evenly, in CI; `make soak` takes all."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("site", list(Site))
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_every_failpoint_and_resumed(
    stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, site: Site
) -> None:
    """Wherever it is killed, the next start finishes with the same outcome, and each effect happens once."""
    places = places_of(undisturbed[colour], site)
    assert bool(places) == (site in sites_of(stage)), f"the victim never commits at {site}"
    most = TIMES_MAX[stage.kind, colour]
    chosen = [place for moment in moments_of(stage, colour, site) for place in spread(places.get(moment, []), most)]
    assert run_cases(partial(kill_and_resume, stage, colour, undisturbed[colour]), chosen) == []


def moments_of(stage: Stage, colour: str, site: Site) -> list[str]:
    """One of the four moments around a commit; the sites take turns, so that each moment has its share.

    Every site on SQLite, every second one on PostgreSQL. Asyncio only drives the same protocols: every fourth one, and
    others on each store.
    """
    turn = list(Site).index(site)
    step, first = {
        ("sqlite", "sync"): (1, 0),
        ("postgres", "sync"): (2, 1),
        ("sqlite", "async"): (4, 0),
        ("postgres", "async"): (4, 2),
    }[stage.kind, colour]
    if turn % step != first:
        return []
    moments = list(CommitMoment)
    return [f"{site}:{moments[turn // step % len(moments)]}"]


@pytest.mark.soak
@pytest.mark.parametrize("site", list(Site))
@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_every_failpoint_every_time(
    stage: Stage, undisturbed: dict[str, Undisturbed], colour: str, site: Site
) -> None:
    chosen = [place for times in places_of(undisturbed[colour], site).values() for place in times]
    assert run_cases(partial(kill_and_resume, stage, colour, undisturbed[colour]), chosen) == []


def kill_and_resume(stage: Stage, colour: str, expected: Undisturbed, place: str) -> list[str]:
    """What is wrong after a kill there."""
    scene = stage.scene("victim:main", colour)
    code = scene.once({"PERDURE_FAILPOINT": place})
    assert code == -9, f"it was not killed, but ended with {code}"
    scene.finish()
    return scene.judge(expected)


def places_of(expected: Undisturbed, site: Site) -> dict[str, list[str]]:
    """By moment, each time that the victim comes there."""
    found: dict[str, list[str]] = {}
    for place in expected.places():
        name, _, _ = place.partition("#")
        if name.partition(":")[0] == site:
            found.setdefault(name, []).append(place)
    return found


def sites_of(stage: Stage) -> set[Site]:
    """Where the victim commits in such a store."""
    return {*Site} - ABSENT[stage.kind]


@pytest.mark.parametrize("colour", COLOURS)
def test_every_site_is_reached_at_every_moment(stage: Stage, undisturbed: dict[str, Undisturbed], colour: str) -> None:
    wanted = {f"{site}:{moment}" for site in sites_of(stage) for moment in CommitMoment}
    assert wanted - set(undisturbed[colour].reached) == set()


def test_every_unit_of_the_product_names_its_site() -> None:
    """A class that commits says where: as a class attribute, as an argument of its constructor, or as others do."""
    silent = [f"{path.name}:{node.name}" for path, node in _unit_classes() if not _names_a_site(node)]
    assert silent == []
    assert len(list(_unit_classes())) >= 8, "the search for units finds too few: has the base class been renamed?"


def test_every_commit_goes_through_a_unit() -> None:
    """Whoever writes past `submit` has no failpoint: COMMIT is said in few places, each with `reach` around it."""
    found = {
        (path.relative_to(SOURCE).as_posix(), owner)
        for path, owner, text in _constants()
        if text.split()[:1] == ["COMMIT"]
    }
    assert found == {
        ("store/postgres/commit.py", ""),
        ("store/postgres/backup.py", "script"),  # into the file of a backup, which is nobody's store yet
        ("store/postgres/schema.py", ""),
        ("store/sqlite/store.py", "_transact"),
        ("store/sqlite/file.py", "create_or_migrate"),
    }


def test_only_these_modules_send_statements_to_a_server() -> None:
    """A single statement commits without saying so: units send it, readers, and who makes a connection or listens."""
    talking = {
        path.relative_to(SOURCE).as_posix()
        for path, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "send_batch"
    }
    assert talking == {
        "store/postgres/commit.py",
        "store/postgres/listen.py",
        "store/postgres/pool.py",
        "store/postgres/schema.py",
    }


def test_every_site_has_a_place_in_the_product() -> None:
    """No name in the enum without a commit behind it."""
    used = {
        node.attr
        for _, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Site"
    }
    assert {site.name for site in Site} - used == set()


def test_a_unit_without_a_site_is_noticed() -> None:
    bad = ast.parse("class Sneaky(UnitOfWork[int]):\n    def script(self): ...").body[0]
    good = ast.parse("class Honest(UnitOfWork[int]):\n    site = Site.WRITE").body[0]
    like_others = ast.parse("class Joint(UnitOfWork[int]):\n    def __init__(self, one): self.site = one.site").body[0]
    assert isinstance(bad, ast.ClassDef)
    assert isinstance(good, ast.ClassDef)
    assert isinstance(like_others, ast.ClassDef)
    assert (_names_a_site(bad), _names_a_site(good), _names_a_site(like_others)) == (False, True, True)


@cache
def _modules() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(SOURCE.rglob("*.py"))]


def _unit_classes() -> list[tuple[Path, ast.ClassDef]]:
    return [
        (path, node)
        for path, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(_base_name(base) == "UnitOfWork" for base in node.bases)
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
            return any(ast.unparse(line).startswith("self.site = ") for line in statement.body)
    return False


def _constants() -> list[tuple[Path, str, str]]:
    """Every text in the product with the name of the function around it; without one, the name is empty."""
    return [(path, owner, text) for path, tree in _modules() for owner, text in _texts(tree)]


def _texts(node: ast.AST, owner: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        owner = node.name
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield owner, node.value
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        yield owner, node.value.decode("latin-1")
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, owner)
