"""Which outside vector database an agent has chosen for its memories."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.memory.recall.vector_index import VectorIndex


class _Chosen:
    index: VectorIndex | None = None


def vectors_of(engine: Engine) -> VectorIndex | None:
    """Return the outside vector database that finds the memories of an agent, if there is one."""
    return engine.parts.get(_Chosen).index


def use(engine: Engine, index: VectorIndex | None) -> None:
    """Set the outside vector database of an agent; None is the store itself."""
    engine.parts.get(_Chosen).index = index
