"""A dict that came out of a checkpoint."""

from __future__ import annotations

from typing import Any


class Restored(dict[str, Any]):
    """A restored dict whose keys are attributes too: `agent.checkpoint.restore("30pct").next_action`.

    An attribute that is set is a key too. Stored again, it is a plain dict.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            had = ", ".join(map(repr, self)) or "nothing"
            raise AttributeError(f"there is no {name!r} in it; it has {had}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(dict, name):
            raise AttributeError(f"every dict has a {name!r} of its own: set [{name!r}]")
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise AttributeError(f"there is no {name!r} in it")
        del self[name]
