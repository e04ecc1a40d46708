"""Loads the names of an adapter on first use: frameworks take seconds to import, and a program needs few names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from perdure.errors import ExtraMissing


def lazy_names(
    package: str, modules: Mapping[str, str], extra: str, extras: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of an adapter's package.

    `modules` has the relative module of each name. A missing dependency is reported with the extra that installs it:
    `extras` has the extra of a dependency where this is not `extra`.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f".{modules[name]}", package)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing == "perdure":
                raise
            wanted = (extras or {}).get(missing, extra)
            raise ExtraMissing(
                f"{name} needs the package {missing}", hint=f'pip install "perdure[{wanted}]"'
            ) from error
        return getattr(module, name)

    return load
