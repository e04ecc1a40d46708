"""Qdrant as the index of an agent's memories: in a folder, in memory, or a server.

    from perdure.adapters.qdrant import QdrantVectors

    agent.memory.vectors = QdrantVectors("./vectors")

Needs `pip install perdure[qdrant]`. What the agent knows stays in its store; see docs/reference/recall.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import ExtraMissing

try:
    from qdrant_client import QdrantClient, models
except ModuleNotFoundError as missing:
    raise ExtraMissing("QdrantVectors needs qdrant-client", hint='pip install "perdure[qdrant]"') from missing

_MARK = (1 << 63) - 1
"""The id of the point that stores the mark. No vector ever gets it."""

_PAGE = 1000
"""How many ids are read at once."""


class QdrantVectors:
    """A vector index in Qdrant: a folder, `:memory:`, a URL, or a client that you created.

    Only one process at a time may use a folder. Use a server for several processes.
    """

    def __init__(self, where: str | os.PathLike[str] | QdrantClient) -> None:
        self._client = where if isinstance(where, QdrantClient) else _open_client(os.fspath(where))

    def __repr__(self) -> str:
        return f"QdrantVectors({self._client!r})"

    def put(self, space: str, vectors: Sequence[tuple[int, Sequence[float]]], mark: int) -> None:
        """Store vectors and a mark. See `perdure.memory.recall.vector_index.VectorIndex`."""
        if not vectors:
            return
        dims = len(vectors[0][1])
        if not self._client.collection_exists(space):
            params = models.VectorParams(size=dims, distance=models.Distance.DOT)
            self._client.create_collection(space, vectors_config=params)
        points = [models.PointStruct(id=number, vector=list(vector)) for number, vector in vectors]
        # The mark comes last, so that it never covers vectors that are not stored.
        points.append(models.PointStruct(id=_MARK, vector=[0.0] * dims, payload={"mark": mark}))
        self._client.upsert(space, points, wait=True)

    def mark(self, space: str) -> int:
        """Return the last mark. See `perdure.memory.recall.vector_index.VectorIndex`."""
        if not self._client.collection_exists(space):
            return 0
        found = self._client.retrieve(space, [_MARK], with_payload=True)
        return int(found[0].payload["mark"]) if found and found[0].payload else 0

    def nearest(self, space: str, vector: Sequence[float], count: int) -> list[int]:
        """Return the nearest vectors. See `perdure.memory.recall.vector_index.VectorIndex`."""
        if not self._client.collection_exists(space):
            return []
        found = self._client.query_points(space, query=list(vector), limit=count + 1, with_payload=False).points
        return [int(hit.id) for hit in found if hit.id != _MARK][:count]

    def drop(self, space: str, numbers: Sequence[int]) -> None:
        """Delete vectors. See `perdure.memory.recall.vector_index.VectorIndex`."""
        if numbers and self._client.collection_exists(space):
            self._client.delete(space, points_selector=models.PointIdsList(points=list(numbers)), wait=True)

    def count(self, space: str) -> int:
        """Return the number of vectors. See `perdure.memory.recall.vector_index.VectorIndex`."""
        if not self._client.collection_exists(space):
            return 0
        return max(0, int(self._client.count(space, exact=True).count) - 1)  # without the mark

    def numbers(self, space: str) -> Iterator[int]:
        """Yield the ids of all vectors. See `perdure.memory.recall.vector_index.VectorIndex`."""
        after: Any = None
        while self._client.collection_exists(space):
            found, after = self._client.scroll(space, limit=_PAGE, offset=after, with_payload=False, with_vectors=False)
            yield from (int(point.id) for point in found if point.id != _MARK)
            if after is None:
                return

    def close(self) -> None:
        """Release the folder or the connection."""
        self._client.close()


def _open_client(where: str) -> QdrantClient:
    if where == ":memory:":
        return QdrantClient(location=where)
    if "://" in where:
        return QdrantClient(url=where)
    return QdrantClient(path=where)
