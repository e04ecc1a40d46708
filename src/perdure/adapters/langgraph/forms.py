"""How values are written: by Perdure's own codec, or by a serializer that the user has given."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from ... import codec
from ...errors import CorruptValue, NotStorable, UnknownType
from ...threads.writing import Sealed

OWN = "perdure"


class OwnForm:
    """Perdure's codec: exact, readable without LangGraph, and nothing in stored bytes names code."""

    def dump(self, value: Any) -> Any:
        """What is stored."""
        return value

    def load(self, value: Any) -> Any:
        """And back."""
        if isinstance(value, Sealed):
            raise UnknownType(
                f"this was written by a serializer, as {value.form!r}",
                hint="give the same one: PerdureSaver(serde=...)",
            )
        return value


class SerdeForm:
    """The user's serializer, for every value and for the metadata."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._secret = isinstance(serde, EncryptedSerializer)

    def dump(self, value: Any) -> Sealed:
        """What is stored: its bytes, and what it calls them."""
        return Sealed(*self._serde.dumps_typed(value))

    def load(self, value: Any) -> Any:
        """And back. What should be encrypted and is not was written by somebody else."""
        if not isinstance(value, Sealed):
            if self._secret:
                raise _in_clear()
            return value
        if self._secret and "+" not in value.form:
            raise _in_clear()
        return self._serde.loads_typed((value.form, value.data))


def _in_clear() -> CorruptValue:
    return CorruptValue(
        "a value is stored in clear, and not by the serializer that encrypts",
        hint="it was written without encryption, or by somebody else: it is not taken for yours",
    )


class OwnSerializer:
    """The codec as LangGraph knows serializers, for who asks a saver for its `serde`."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The bytes of a value."""
        return OWN, codec.encode(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """And back."""
        if data[0] != OWN:
            raise UnknownType(f"these bytes are {data[0]!r}, and not Perdure's")
        return codec.decode(data[1])


def with_hint(error: NotStorable) -> NotStorable:
    """The same refusal, with what a user of LangGraph can do about it."""
    return NotStorable(error.message, hint="or let the saver know the class: PerdureSaver(..., allow=[TheClass])")
