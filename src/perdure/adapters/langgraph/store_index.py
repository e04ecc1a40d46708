"""The search index of a store: which texts of a value are indexed, by words or by vectors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings, get_text_at_path, tokenize_path

from perdure.data.search.key_ranking import SearchQuery
from perdure.data.search.vectors import pack_vector
from perdure.errors import WrongValue
from perdure.journal.documents import IndexedDocument
from perdure.store.base import is_storable_name
from perdure.values.hints import name_hint

KEYS = ("dims", "embed", "fields", "words", "embedder")
_NO_VECTORS: dict[str, bytes] = {}


class StoreIndex:
    """LangGraph's `IndexConfig` with two additional keys: `words`, and `embedder`, a name for the model."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        for key in given:
            if key not in KEYS:
                raise WrongValue(f"index has no {key!r}; {name_hint(key, KEYS)}")
        embed = given.get("embed")
        self.words = bool(given.get("words", True))
        self._embeddings: Embeddings | None = None if embed is None else ensure_embeddings(embed)
        if embed is None and not self.words:
            raise WrongValue("index has neither embed= nor words=True, so nothing could be found")
        self._dims = 0 if embed is None else _dims_of(given)
        self._embedder = "" if embed is None else f"{given.get('embedder') or _name_of(embed)} ({self._dims})"
        self._fields = [_field(path) for path in given.get("fields") or ["$"]]

    # -- putting ------------------------------------------------------------------------------------------------------

    def texts(self, value: Mapping[str, Any], index: Any) -> list[tuple[str, str]]:
        """Return the texts of a value with their paths. `index` is the argument of a put."""
        if index is False:
            return []
        found = list[tuple[str, str]]()
        for path, tokens in self._fields if index is None else [_field(path) for path in index]:
            texts = [_to_json_text(value)] if path == "$" else get_text_at_path(dict(value), tokens)
            for place, text in enumerate(texts):
                found.append((f"{path}.{place}" if len(texts) > 1 else path, text))
        return list(dict(found).items())  # a path that is named twice counts once

    def documents(self, texts: Iterable[tuple[str, str]], vectors: Mapping[str, bytes]) -> list[IndexedDocument]:
        """Return the documents to store with a value."""
        return [IndexedDocument(part, text, self._embedder, vectors.get(text, b""), self.words) for part, text in texts]

    def vectors(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Embed texts with the model."""
        wanted = list(dict.fromkeys(texts))
        if self._embeddings is None or not wanted:
            return _NO_VECTORS
        return self._pack_vectors(wanted, self._embeddings.embed_documents(wanted))

    async def vectors_async(self, texts: Iterable[str]) -> dict[str, bytes]:
        """Embed texts under asyncio. See `vectors`."""
        wanted = list(dict.fromkeys(texts))
        if self._embeddings is None or not wanted:
            return _NO_VECTORS
        return self._pack_vectors(wanted, await self._embeddings.aembed_documents(wanted))

    # -- searching ----------------------------------------------------------------------------------------------------

    def questions(self, texts: Iterable[str]) -> dict[str, SearchQuery]:
        """Return the search questions by their text."""
        wanted = list(dict.fromkeys(texts))
        embeddings = self._embeddings
        made = [] if embeddings is None else [embeddings.embed_query(text) for text in wanted]
        return self._build_queries(wanted, made)

    async def questions_async(self, texts: Iterable[str]) -> dict[str, SearchQuery]:
        """Return the search questions under asyncio. See `questions`."""
        wanted = list(dict.fromkeys(texts))
        embeddings = self._embeddings
        made = [] if embeddings is None else await asyncio.gather(*(embeddings.aembed_query(text) for text in wanted))
        return self._build_queries(wanted, made)

    def _build_queries(self, texts: Sequence[str], made: Sequence[Sequence[float]]) -> dict[str, SearchQuery]:
        vectors = self._pack_vectors(texts, made) if self._embeddings is not None else _NO_VECTORS
        words = {text: text if self.words else "" for text in texts}
        return {text: SearchQuery(words[text], self._embedder, vectors.get(text, b"")) for text in texts}

    def _pack_vectors(self, texts: Sequence[str], made: Sequence[Sequence[float]]) -> dict[str, bytes]:
        if len(made) != len(texts):
            raise WrongValue(f"embed returned {len(made)} vectors for {len(texts)} texts")
        return {text: pack_vector(vector, self._dims) for text, vector in zip(texts, made, strict=True)}


def _field(path: Any) -> tuple[str, list[str]]:
    if not isinstance(path, str) or not path or not is_storable_name(path):
        raise WrongValue(f"a field to index must be a path such as 'text' or 'messages[*].content', not {path!r}")
    return path, tokenize_path(path)


def _to_json_text(value: Mapping[str, Any]) -> str:
    """Return a value as JSON text, as LangGraph writes it. Other types become text."""
    return json.dumps(dict(value), sort_keys=True, ensure_ascii=False, default=str)


def _dims_of(given: Mapping[str, Any]) -> int:
    dims = given.get("dims")
    if type(dims) is not int or dims < 1:
        raise WrongValue(f"index with embed= needs dims=, the length of its vectors, not {dims!r}")
    return dims


def _name_of(embed: Any) -> str:
    """Return a name for a model, so that vectors of two models are never compared."""
    if isinstance(embed, str):
        return embed
    kind = embed if hasattr(embed, "__qualname__") else type(embed)
    model = getattr(embed, "model", None) or getattr(embed, "model_name", None)
    return f"{kind.__module__}.{kind.__qualname__}" + (f":{model}" if isinstance(model, str) else "")
