"""The steps and effects that an agent has declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.run.durable import Durable


class Declarations(dict[str, "Durable[..., Any]"]):
    """The steps and effects that an agent has declared, by name."""

    def find(self, name: str) -> Durable[..., Any] | None:
        """Return the step or effect with this current or earlier name."""
        return self.get(name) or next((one for one in self.values() if name in one.was), None)
