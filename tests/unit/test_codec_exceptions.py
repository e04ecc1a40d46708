"""Exceptions are values: they come back as themselves, or as StepFailed that tells what they were."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import errors
from perdure.errors import CorruptValue, NotStorable, StepFailed, UnknownType
from perdure.values import codec
from perdure.values.codec import exceptions
from perdure.values.codec.tags import ENCODE, STRUCTURES, ExtensionTag
from tests.unit.test_codec_values import is_same, texts, values

CALLS: list[str] = []


class Registered(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class Derived(Registered):
    pass


class Plain(Exception):
    def __init__(self, code: int) -> None:
        super().__init__("plain")
        self.code = code
        CALLS.append("init")


class Moved(OSError):
    def __init__(self, place: str) -> None:
        super().__init__(5, "moved", place)
        self.place = place


@codec.stored("t-error", version=2)
class Named(ValueError):
    pass


@codec.stored("t-error-data")
@dataclass
class DataError(Exception):
    code: int


class Mixed(LookupError, errors.StoreBusy):
    pass


class Shadowed(ImportError):
    """Its own idea of an attribute that the builtin has too."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return "shadow"


class Group(ExceptionGroup[Exception]):
    def derive(self, excs: Any) -> Group:
        return Group(self.message, excs)


codec.register_exception(Registered, Moved, Mixed, Shadowed, Group, json.JSONDecodeError)


def round_trip(error: Any) -> Any:
    return codec.decode(codec.encode(error))


def state(error: BaseException) -> Any:
    inner = [state(one) for one in error.exceptions] if isinstance(error, ExceptionGroup) else []
    args = error.args[:1] if inner else error.args
    return type(error), args, str(error), vars(error), inner


def _catch(code: str) -> Exception:
    try:
        compile(code, "<test>", "exec")
        exec(code, {})
    except Exception as error:
        return error
    raise AssertionError(code)


EXACT = [
    ValueError(), ValueError("x", 1, (2,)), KeyError("k"), KeyError(("a", 1)), StopIteration(5), TimeoutError(),
    NotImplementedError("n"), UserWarning("w"), ConnectionResetError(104, "reset"),
    OSError("plain"), OSError(5, "io"), FileNotFoundError(2, "gone", "a.txt"), OSError(18, "cross", "a", None, "b"),
    _catch("import nothing_of_this_name"), _catch("from sys import nothing"), _catch("x +"), _catch("undefined"),
    _catch("[].nothing"), _catch("b'\\xff'.decode()"), _catch("'\\ud800'.encode()"), _catch("1/0"),
    UnicodeTranslateError("x", 0, 1, "why"), _catch("import json; json.loads('{')"),
    ExceptionGroup("many", [ValueError(1), ExceptionGroup("x", [KeyError("k")])]), Group("g", [ValueError(3)]),
    errors.NotDone("no"), errors.RunBusy("busy", hint="wait"), errors.RunBusy(), errors.StoreBusy("b"),
    StepFailed("text", type_name="a.B", args=(1,)),
    Registered(404, "gone"), Derived(1, "x"), Moved("here"), Named("n", 2), DataError(7), Mixed("m"),
    Shadowed("s", name="real"), Plain(3), subprocess.CalledProcessError(1, ["ls"]), ExceptionGroup("g", [Plain(4)]),
]  # fmt: skip


@pytest.mark.parametrize("error", EXACT, ids=lambda error: repr(error)[:40])
def test_known_exceptions_come_back_as_themselves(error: Exception) -> None:
    made = round_trip({"error": [error]})["error"][0]
    assert state(made) == state(error)


def test_builtin_exceptions_keep_what_is_not_in_args() -> None:
    gone = round_trip(FileNotFoundError(2, "gone", "a.txt"))
    assert (gone.errno, gone.strerror, gone.filename) == (2, "gone", "a.txt")
    assert round_trip(_catch("import nothing_of_this_name")).name == "nothing_of_this_name"
    syntax = round_trip(_catch("x +"))
    assert (syntax.lineno, syntax.filename) == (1, "<test>")
    assert round_trip(_catch("b'a\\xff'.decode()")).start == 1
    assert round_trip(StopIteration(5)).value == 5
    assert round_trip(_catch("[].nothing")).name == "nothing"


def test_every_builtin_exception_is_decided_about() -> None:
    """The list is written out; this one fails when a Python brings a new exception, which then needs a decision."""
    found = {
        kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, Exception)
    }  # fmt: skip
    missing = {kind.__name__ for kind in found - exceptions.CLOSED_NAMES.keys()}
    assert missing == ({"PythonFinalizationError"} if sys.version_info >= (3, 13) else set())


def test_every_error_of_perdure_comes_back() -> None:
    kinds = [kind for kind in exceptions.CLOSED_NAMES if kind.__module__ == "perdure.errors"]
    assert len(kinds) > 30
    for kind in kinds:
        error = kind("what happened")
        assert state(round_trip(error)) == state(error)


def test_a_plain_one_of_an_imported_module_comes_back_and_none_of_its_code_runs() -> None:
    data = codec.encode(Plain(3))
    assert f"{__name__}:Plain".encode() in data
    CALLS.clear()
    assert codec.decode(data).code == 3
    assert CALLS == []


def _note(*_: Any) -> Any:
    CALLS.append("ran")
    return Exception.__new__(Exception)


class HasNew(Exception):
    __new__ = _note  # type: ignore[assignment]


class HasDel(Exception):
    __del__ = _note


class HasSetattr(Exception):
    __setattr__ = _note


class HasGetattribute(Exception):
    __getattribute__ = _note


class HasSlots(Exception):
    __slots__ = ("code",)


class HasMetaclass(Exception, metaclass=type("Meta", (type,), {"__call__": _note})):  # type: ignore[misc]
    pass


class HasArgs(Exception):
    args = property(_note, _note)  # type: ignore[assignment]


HOOKED = [HasNew, HasDel, HasSetattr, HasGetattribute, HasSlots, HasMetaclass, KeyboardInterrupt, str, Plain.__init__]


@pytest.mark.parametrize("kind", HOOKED, ids=lambda kind: kind.__name__)
def test_one_whose_code_would_run_is_not_built(kind: Any) -> None:
    CALLS.clear()
    assert type(codec.decode(_forge(f"{kind.__module__}:{kind.__qualname__}"))) is StepFailed
    assert CALLS == []


def test_an_argument_is_set_past_the_class() -> None:
    CALLS.clear()
    assert type(codec.decode(_forge(f"{__name__}:HasArgs"))) is HasArgs
    assert CALLS == []


def _forge(name: str) -> bytes:
    """What a hostile store holds."""
    return ENCODE([STRUCTURES[ExtensionTag.ERROR], name, 1, "text", [1], {"code": 3}])


def test_an_unregistered_one_tells_what_it_was() -> None:
    class Unregistered(Exception):
        pass

    error = Unregistered("boom", 7)
    error.add_note("a note")
    made = round_trip(error)
    assert type(made) is StepFailed
    assert made.type_name == f"{__name__}.{Unregistered.__qualname__}"
    assert made.message == str(error)
    assert made.original_args == ("boom", 7)
    assert made.__notes__ == ["a note"]
    assert "raises=(...)" in str(made)


def test_an_exception_comes_back_as_its_class_once_registered() -> None:
    class Late(Exception):
        pass

    data = codec.encode(Late("x"))
    assert type(codec.decode(data)) is StepFailed
    codec.register_exception(Late)
    assert type(codec.decode(data)) is Late


def test_types_derived_from_a_registered_one_are_registered() -> None:
    class MuchLater(Derived):
        pass

    error = MuchLater(1, "x")
    data = codec.encode(error)
    assert type(codec.decode(data)) is MuchLater
    assert codec.decode(data).status == 1


def test_attributes_and_notes_come_back_but_marks_of_this_process_do_not() -> None:
    error = Registered(404, "gone")
    error.more = {"a": (1,)}  # type: ignore[attr-defined]
    error._perdure_failure = object()  # type: ignore[attr-defined]
    error.add_note("n")
    made = round_trip(error)
    assert vars(made) == {"status": 404, "body": "gone", "more": {"a": (1,)}, "__notes__": ["n"]}


def test_no_init_is_called() -> None:
    calls = []

    class Noisy(Exception):
        def __new__(cls, *args: Any) -> Any:
            calls.append("new")
            return super().__new__(cls, *args)

        def __init__(self, *args: Any) -> None:
            calls.append("init")

    codec.register_exception(Noisy)
    data = codec.encode(Noisy(1))
    calls.clear()
    assert type(codec.decode(data)) is Noisy
    assert calls == []


class Rude:
    def __repr__(self) -> str:
        raise SystemError("no repr")


class RudeError(Exception):
    def __str__(self) -> str:
        raise KeyError("no str")


def test_arguments_that_cannot_be_stored_become_their_repr() -> None:
    plain = object()
    made = round_trip(ValueError("x", plain, [plain], 5))
    assert made.args == ("x", repr(plain), repr([plain]), 5)
    assert len(round_trip(ValueError([object()] * 1000)).args[0]) < 2000


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> Any:
    value: Any = 1
    for _ in range(300):
        value = [value]
    return value


@pytest.mark.parametrize(
    "argument",
    [
        Rude(),
        RudeError(),
        _circle(),
        _deep(),
        1 << 5_000_000,
        "x" * 3_000_000,
        [Rude()],
        {Rude(): 1},
        "\ud800",
        lambda: 1,
    ],
    ids=["rude", "rude error", "circle", "deep", "huge int", "huge text", "in list", "key", "surrogate", "lambda"],
)
def test_encoding_an_exception_never_fails(argument: Any) -> None:
    holder = Registered(1, "x")
    holder.body = argument
    for error in (ValueError(argument), Plain(argument), holder, RudeError(argument)):
        data = codec.encode([error])
        assert len(data) < 4_000_000
        (made,) = codec.decode(data)
        assert type(made) in (type(error), StepFailed)
        codec.encode(made)


def test_many_large_arguments_together() -> None:
    error = ValueError(*["x" * 1_000_000] * 100)
    assert len(codec.encode(error)) < 200_000
    assert len(round_trip(error).args) == 1


def test_a_group_that_lost_a_member_is_told() -> None:
    assert type(round_trip(ExceptionGroup("many", [ValueError(1), ValueError(_deep())]))) is ExceptionGroup
    error: Any = ValueError(1)
    for _ in range(120):
        error = ExceptionGroup("g", [error])
    made = round_trip(error)
    depth = 0
    while type(made) is ExceptionGroup:
        (made,) = made.exceptions
        depth += 1
    assert type(made) is StepFailed
    assert made.type_name == "ExceptionGroup"
    assert depth > 40


def test_odd_unicode_errors_are_told_and_not_rebuilt() -> None:
    """str() of a UnicodeError trusts its numbers, so only sound ones are rebuilt."""
    odd = UnicodeDecodeError("utf-8", b"abc", -5, -4, "odd")
    assert type(round_trip(odd)) is StepFailed
    forged = codec.encode(UnicodeDecodeError("utf-8", b"abc", 5, 6, "odd")).replace(b"\x05\x06", b"\xfb\xfc")
    with pytest.raises(CorruptValue):
        codec.decode(forged)


def test_what_is_no_exception_of_a_step_is_told() -> None:
    for error in (KeyboardInterrupt("x"), SystemExit(1), BaseExceptionGroup("g", [KeyboardInterrupt()])):
        assert type(round_trip(error)) is StepFailed


def test_one_that_cannot_be_rebuilt_is_left_out_and_told() -> None:
    codec.register_exception(pydantic_core.SchemaError, KeyboardInterrupt, ValueError)
    with pytest.raises(pydantic_core.SchemaError) as caught:
        pydantic_core.SchemaValidator({"type": "no such type"})  # type: ignore[typeddict-item]
    made = round_trip(caught.value)
    assert type(made) is StepFailed
    assert made.type_name.endswith("SchemaError")
    assert "cannot be rebuilt" in str(made)


def test_only_exceptions_can_be_registered_as_such() -> None:
    with pytest.raises(NotStorable):
        codec.register_exception(int)  # type: ignore[arg-type]


def test_versions_of_named_exceptions() -> None:
    data = codec.encode(Named("n", 2))
    assert b"t-error" in data
    older = data.replace(b"t-error\x02", b"t-error\x01")
    with pytest.raises(UnknownType, match="from version 1 to 2"):
        codec.decode(older)
    codec.upcaster("t-error", 1)(lambda fields: {"args": ["up", *fields["args"]], "attributes": {"a": 1}})
    made = codec.decode(older)
    assert (made.args, made.a) == (("up", "n", 2), 1)
    with pytest.raises(UnknownType, match="version 3"):
        codec.decode(data.replace(b"t-error\x02", b"t-error\x03"))


@given(st.lists(values, max_size=3), st.dictionaries(texts, values, max_size=3))
def test_any_arguments_and_attributes(args: list[Any], attributes: dict[str, Any]) -> None:
    error = Registered.__new__(Registered)
    error.args = tuple(args)
    error.__dict__.update(attributes)
    made = round_trip(error)
    storable = {name: value for name, value in attributes.items() if name.isprintable()}
    assert type(made) is Registered
    assert is_same(made.args, error.args)
    assert is_same({name: vars(made)[name] for name in storable}, storable)
