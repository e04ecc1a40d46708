"""The dict that `agent.checkpoint.restore` returns."""

from __future__ import annotations

from typing import Any


class Restored(dict[str, Any]):
    """A restored dict whose keys are attributes too: `agent.checkpoint.restore("30pct").next_action`.

    Setting an attribute sets a key. It is stored again as a plain dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            had = ", ".join(map(repr, self)) or "nothing"
            raise AttributeError(f"no key {name!r}; the keys are {had}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(dict, name):
            raise AttributeError(f"{name!r} is an attribute of every dict: set [{name!r}] instead")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise AttributeError(f"no key {name!r}")
        del self[name]
