"""Rules about the project as a whole: dependencies, package sources, public names."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import tomllib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

# With brackets, so that this file does not hold what it looks for.
REGISTRY = re.compile(
    r"\bpyp[i]\.(org|python\.org)|pythonhoste[d]\.org|\banacond[a]\.(org|com)"
    r"|https?://[^\s\"'<>)]*/simpl[e](/|$|\s)"
    r"|--(extra-)?index-ur[l]|\bPIP_(EXTRA_)?INDEX_UR[L]|--find-link[s]|--trusted-hos[t]"
)
PIN = re.compile(r"^[a-z0-9][a-z0-9.-]*==[a-z0-9.!+]+$")
EXPLAINED = re.compile(r"^\| `([A-Za-z0-9._-]+)` \| *(\S.{19,}?) *\|$", re.MULTILINE)


def dependencies(pyproject: str) -> dict[str, dict[str, Requirement]]:
    """Requirements by group (`core`, `build`, the name of an extra) and name."""
    data = tomllib.loads(pyproject)
    groups = {"core": data["project"]["dependencies"], "build": data["build-system"]["requires"]}
    groups |= data["project"].get("optional-dependencies", {})
    return {
        group: {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, texts)}
        for group, texts in groups.items()
    }


def find_unexplained(pyproject: str, page: str) -> list[str]:
    """Dependencies without a line `| name | why it beats our own code |`, and lines without a dependency."""
    wanted = {name for group in dependencies(pyproject).values() for name in group}
    explained = {canonicalize_name(name) for name, _ in EXPLAINED.findall(page)}
    missing = [f"docs/about/dependencies.md: say why {name} beats our own code" for name in wanted - explained]
    gone = [f"docs/about/dependencies.md: {name} is not a dependency" for name in explained - wanted]
    return sorted(missing + gone)


def pins(constraints: str) -> dict[str, Version]:
    """The versions of constraints.txt by name."""
    lines = [line for line in constraints.splitlines() if PIN.match(line)]
    return {canonicalize_name(name): Version(version) for name, _, version in (s.partition("==") for s in lines)}


def badly_pinned(pyproject: str, constraints: str) -> Iterator[str]:
    """Constraints that are more than a name and a version, are missing, or contradict pyproject.toml."""
    for number, line in enumerate(constraints.splitlines(), start=1):
        if line and not line.startswith("#") and not PIN.match(line):
            yield f"constraints.txt:{number}: a line is name==version, in lower case: {line!r}"
    pinned = pins(constraints)
    for group in dependencies(pyproject).values():
        for name, requirement in group.items():
            if name not in pinned:
                yield f"constraints.txt: {name} is not pinned"
            elif not requirement.specifier.contains(pinned[name], prereleases=True):
                yield f"constraints.txt: {name}=={pinned[name]} is not {requirement}"


def find_needed(names: set[str]) -> set[str]:
    """These packages and everything that they pull in on this machine; those not installed are left out."""
    found: set[str] = set()
    todo = {str(canonicalize_name(name)) for name in names}
    while todo:
        name = todo.pop()
        try:
            wanted = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        for requirement in map(Requirement, wanted):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo |= {str(canonicalize_name(requirement.name))} - found
    return found


def names_a_registry(path: str, text: str) -> Iterator[str]:
    """Where packages come from is the affair of the machine, not of the repository."""
    for number, line in enumerate(text.splitlines(), start=1):
        if REGISTRY.search(line):
            yield f"{path}:{number}: names a package source: {line.strip()[:80]}"


def badly_public(module: ModuleType) -> Iterator[str]:
    """What is wrong with the names in `__all__`."""
    public: list[str] = list(getattr(module, "__all__", ()))
    if not public:
        yield f"{module.__name__} has no __all__"
    if public != sorted(set(public)):
        yield f"{module.__name__}.__all__ is not sorted, or has a name twice"
    for name in public:
        if not hasattr(module, name):
            yield f"{module.__name__}.{name} cannot be imported"
        elif not name.startswith("__") and not _is_documented(getattr(module, name)):
            yield f"{module.__name__}.{name} has no docstring"


def _is_documented(value: Any) -> bool:
    if isinstance(value, type):
        # Dataclasses and tuples get a signature as docstring, which says nothing.
        text = vars(value).get("__doc__") or ""
        return bool(text) and not text.startswith(f"{value.__name__}(")
    if inspect.isroutine(value) or inspect.ismodule(value):
        return bool(value.__doc__)
    # A constant is as documented as its class, if that is ours.
    return type(value).__module__ != "builtins" and _is_documented(type(value))
