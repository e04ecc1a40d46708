"""Serialization of thread values: by Perdure's codec, or by a serializer that the user passes."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from perdure.errors import CorruptValue, UnknownType
from perdure.values import codec
from perdure.work.threads.write import ForeignValue

OWN = "perdure"


class CodecForm:
    """Perdure's codec: exact, readable without LangGraph, and stored bytes never name code."""

    def dump(self, value: Any) -> Any:
        """Return the value to store."""
        return value

    def load(self, value: Any) -> Any:
        """Return the value that was stored."""
        if isinstance(value, ForeignValue):
            raise UnknownType(
                f"the value was written by another serializer, as {value.form!r}",
                hint="pass the same serializer: PerdureSaver(serde=...)",
            )
        return value


class SerdeForm:
    """The user's serializer, applied to every value and to the metadata."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._secret = isinstance(serde, EncryptedSerializer)

    def dump(self, value: Any) -> ForeignValue:
        """Return the serialized bytes with their type name."""
        return ForeignValue(*self._serde.dumps_typed(value))

    def load(self, value: Any) -> Any:
        """Return the stored value. With an encrypting serializer, unencrypted values are refused."""
        if not isinstance(value, ForeignValue):
            if self._secret:
                raise _unencrypted_error()
            return value
        if self._secret and "+" not in value.form:
            raise _unencrypted_error()
        return self._serde.loads_typed((value.form, value.data))


def _unencrypted_error() -> CorruptValue:
    return CorruptValue(
        "a stored value is not encrypted, but the serializer encrypts",
        hint="it was written without encryption or by another party, so it is not trusted",
    )


class CodecSerializer:
    """Perdure's codec as a LangGraph serializer, for callers that read `saver.serde`."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a value."""
        return OWN, codec.encode(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value."""
        if data[0] != OWN:
            raise UnknownType(f"these bytes have the format {data[0]!r}, not Perdure's")
        return codec.decode(data[1])
