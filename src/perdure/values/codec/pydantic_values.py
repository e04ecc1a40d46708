"""URLs, sizes and validation errors of pydantic, which keep their data in compiled code.

pydantic is imported only if the program uses it. A URL is stored as an object with the field `url`, so that its text
can be read without pydantic.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perdure.errors import CorruptValue
from perdure.values.codec.fields import Shape
from perdure.values.codec.refusals import type_name

_PARTS: Final = ("type", "loc", "msg", "input", "ctx")
"""What is stored of each line of a ValidationError. Permanent: the arguments of a stored one are in this order."""


def shape_of_value(cls: type) -> Shape | None:
    """Return the shape of a class of pydantic that declares no fields; None for any other class."""
    if any(cls is one for one in (_loaded("pydantic_core", "Url"), _loaded("pydantic_core", "MultiHostUrl"))):
        return CoreUrl()
    if cls is _loaded("pydantic.types", "ByteSize"):
        return SizeObject()
    return UrlObject() if url_base(cls) is not None else None


def _loaded(module: str, name: str) -> Any:
    """Return a class of a module that the program has imported, or None: pydantic imports its parts when asked."""
    return getattr(sys.modules.get(module), name, None)


def url_base(cls: type) -> type | None:
    """Return the class of pydantic that a URL type derives from."""
    bases = (_loaded("pydantic.networks", "_BaseUrl"), _loaded("pydantic.networks", "_BaseMultiHostUrl"))
    return next((base for base in cls.__mro__ if any(base is one for one in bases)), None)


class CoreUrl(Shape):
    """The URLs of pydantic_core, parsed by its own parser. No validator of a program runs."""

    def names(self, cls: type) -> Iterable[str]:
        return ("url",)

    def take(self, value: Any) -> dict[str, Any]:
        return {"url": str(value)}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        text = fields["url"]
        made = cls(text)
        if str(made) != text:  # it was parsed with `url_preserve_empty_path`
            made = cls(text, preserve_empty_path=True)
        if str(made) != text:
            raise CorruptValue(f"the stored {type_name(cls)} is not in the form that Perdure writes")
        return made


class UrlObject(CoreUrl):
    """`HttpUrl` and its siblings, which wrap a URL of pydantic_core."""

    def take(self, value: Any) -> dict[str, Any]:
        return {"url": str(value._url)}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        import pydantic_core
        from pydantic.networks import _BaseUrl

        parser = pydantic_core.Url if issubclass(cls, _BaseUrl) else pydantic_core.MultiHostUrl
        made = object.__new__(cls)
        object.__setattr__(made, "_url", super().make(parser, fields, aside))
        return made


class SizeObject(Shape):
    """`ByteSize`, an int with methods."""

    def names(self, cls: type) -> Iterable[str]:
        return ("bytes",)

    def take(self, value: Any) -> dict[str, Any]:
        return {"bytes": int(value)}

    def make(self, cls: Any, fields: dict[str, Any], aside: dict[str, Any]) -> Any:
        if type(fields["bytes"]) is not int:
            raise CorruptValue("a stored ByteSize is not a number")
        return int.__new__(cls, fields["bytes"])


def is_validation_error(kind: type) -> bool:
    """Return whether this is the error that pydantic raises for wrong data."""
    return kind is _loaded("pydantic_core", "ValidationError")


def validation_parts(error: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the lines of a ValidationError, five arguments each, and its other attributes.

    Each part is an argument of its own, so that an input which cannot be stored does not take the others with it.
    Inputs that the model hides (`hide_input_in_errors`) are not stored.
    """
    lines = error.errors(include_url=False)
    hidden = bool(lines) and ", input_value=" not in str(error) and "[type=" in str(error)
    given = [line | {"input": None} if hidden else line for line in lines]
    args = tuple(line.get(part) for line in given for part in _PARTS)
    return args, {**vars(error), "title": error.title, "hide_input": hidden}


def rebuild_validation_error(kind: Any, args: tuple[Any, ...], attributes: dict[str, Any]) -> Exception:
    """Create a ValidationError whose lines have the stored types, places, messages and inputs."""
    left = {name: value for name, value in attributes.items() if name not in ("title", "hide_input")}
    if len(args) % len(_PARTS):
        raise CorruptValue("a stored ValidationError has the wrong number of parts")
    lines = [_line(kind, *line) for line in _chunks(args)]
    title, hidden = attributes.get("title", ""), attributes.get("hide_input") is True
    made: Exception = kind.from_exception_data(title, lines, hide_input=hidden)
    made.__dict__.update(left)
    return made


def _chunks(args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    return (args[start : start + len(_PARTS)] for start in range(0, len(args), len(_PARTS)))


def _line(kind: Any, code: Any, loc: Any, message: Any, given: Any, context: Any) -> Any:
    """Return one line: of pydantic's own error type if that gives the same message, else with the stored message."""
    from pydantic_core import PydanticCustomError

    more = {"ctx": context} if type(context) is dict else {}
    line = {"type": code, "loc": loc, "input": given, **more}
    try:
        if kind.from_exception_data("", [line]).errors()[0]["msg"] == message:
            return line
    except (KeyError, TypeError, ValueError):
        pass  # not a type of this version of pydantic, or a context that could not be stored
    return {"type": PydanticCustomError(code, message), "loc": loc, "input": given}
