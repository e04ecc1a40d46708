"""A dict that came out of a checkpoint."""

from __future__ import annotations

from typing import Any


class Restored(dict[str, Any]):
    """A restored dict whose keys are attributes too: `agent.checkpoint.restore("30pct").next_action`.

    Stored again, it is a plain dict.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            had = ", ".join(map(repr, self)) or "nothing"
            raise AttributeError(f"there is no {name!r} in it; it has {had}") from None
