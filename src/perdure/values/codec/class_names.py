"""The stored name of a class that nobody named with `@stored`: `module:Qualified.Name`.

The name is only a key. It is looked up in the modules that the program has imported, past `__getattr__`, and imports
nothing. Reading values of the openai, anthropic and langchain_core packages may import them (`sdk_types.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from perdure.values.codec.plain_classes import is_class, namespace_of

_MAIN: Final = ("__main__", "__mp_main__")
_module_namespace: Final[Any] = vars(ModuleType)["__dict__"].__get__
_subclasses: Final[Any] = type.__dict__["__subclasses__"]
_module: Final[Any] = type.__dict__["__module__"].__get__
_qualified: Final[Any] = type.__dict__["__qualname__"].__get__


def class_name(cls: type) -> str:
    """Return the stored name of a class. Classes of the main program get the name under which others import it."""
    module = str(_module(cls))
    return f"{_main_name() if module in _MAIN else module}:{_qualified(cls)}"


def _main_name() -> str:
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return os.path.splitext(os.path.basename(file))[0] if file else "__main__"


def find_class(name: str) -> type | None:
    """Return the class with a stored name, if a module that the program has imported defines it."""
    module, _, qualified = name.partition(":")
    for namespace in _namespaces(module):
        found = _find_in_namespace(namespace, qualified)
        if found is not None and class_name(found).partition("[")[0] == name.partition("[")[0]:
            return found
    return None


def _namespaces(module: str) -> Iterator[Mapping[str, Any]]:
    wanted = [name for name in _MAIN if module == _main_name()] + [module]
    for name in wanted:
        found = sys.modules.get(name)
        if found is not None and ModuleType in type(found).__mro__:
            yield _module_namespace(found)


def _find_in_namespace(namespace: Mapping[str, Any], qualified: str) -> type | None:
    path, bracket, _ = qualified.partition("[")
    found: Any = None
    for part in path.split("."):
        found = namespace.get(part)
        if not is_class(found):
            return None
        namespace = namespace_of(found)
    return _find_parametrized(found, qualified) if bracket else found


def _find_parametrized(generic: type, qualified: str) -> type:
    """Return the form of a generic model that the program has made, such as `Page[Flight]`; else the generic class."""
    made = [cls for cls in _subclasses(generic) if _qualified(cls) == qualified]
    return made[-1] if made else generic


def find_local_class(name: str) -> type | None:
    """Return the newest class of that name which a function of the program has defined.

    No module has such a class, so this searches all classes of the process: some milliseconds.
    """
    if "<locals>" not in name:
        return None
    found, seen, left = None, set[int](), [object]
    while left:
        derived = [cls for cls in _subclasses(left.pop()) if id(cls) not in seen]
        seen.update(map(id, derived))  # not the classes: their metaclass may have a __hash__
        left += derived
        found = next((cls for cls in reversed(derived) if class_name(cls) == name), found)
    return found
