"""Patches HTTP libraries when the program imports them, so that a program pays only for those that it uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

LIBRARIES = ("aiohttp", "httpx", "httpx2", "urllib3")
"""The libraries that are patched. `requests` stands on `urllib3`."""

BEFORE_FIRST: list[Callable[[], None]] = []
"""Called before the first library is patched."""

_PATCHED: set[str] = set()


def install() -> None:
    """Patch the libraries that are imported, and the others when they are. Once in a process."""
    if not any(isinstance(finder, LibraryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, LibraryFinder())
    for name in LIBRARIES:
        if name in sys.modules:
            patch_once(sys.modules[name])


def patch_once(module: ModuleType) -> None:
    """Patch a library."""
    if module.__name__ not in _PATCHED:
        _PATCHED.add(module.__name__)
        while BEFORE_FIRST:
            BEFORE_FIRST.pop()()
        if module.__name__ == "urllib3":
            from perdure.http_capture.urllib3_patch import patch
        elif module.__name__ == "aiohttp":
            from perdure.http_capture.aiohttp_patch import patch
        else:
            from perdure.http_capture.httpx_patch import patch
        patch(module)


class LibraryFinder(MetaPathFinder):
    """Finds the libraries as the other finders do, and patches them after their import."""

    def __init__(self) -> None:
        self._searched: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in LIBRARIES or name in self._searched:
            return None
        self._searched.add(name)  # the search below comes here again
        try:
            spec = find_spec(name)
        finally:
            self._searched.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = PatchingLoader(spec.loader)
        return spec


class PatchingLoader(Loader):
    """Loads a library as another loader does, and patches it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # it also knows the library's data files
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        patch_once(module)
