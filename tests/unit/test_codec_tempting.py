"""A hostile store names tempting classes: nothing is imported, called or built but plain data classes."""

from __future__ import annotations

import abc
import enum
import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest

from perdure.errors import NotStorable, UnknownType
from perdure.values import codec
from perdure.values.codec.tags import ENCODE, STRUCTURES, ExtensionTag

CALLS: list[str] = []


def forge_bytes(name: str, fields: dict[str, Any], version: int = 1) -> bytes:
    """What a hostile store holds."""
    return ENCODE([STRUCTURES[ExtensionTag.OBJECT], name, version, fields])


def _note(what: str) -> Callable[..., Any]:
    def called(*_: Any, **__: Any) -> Any:
        CALLS.append(what)

    return called


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        CALLS.append(f"metaclass {name}")
        return super().__getattribute__(name)

    __call__ = _note("metaclass call")
    __instancecheck__ = _note("instancecheck")


class MetaModel(type(pydantic.BaseModel)):  # type: ignore[misc]
    def __getattr__(cls, name: str) -> Any:
        CALLS.append("metaclass")
        raise AttributeError(name)


class MetaEnum(enum.EnumMeta):
    __getitem__ = _note("getitem")
    __call__ = _note("call")


@dataclass
class OwnMetaclass(metaclass=Meta):
    x: int = 1


class OwnModelMetaclass(pydantic.BaseModel, metaclass=MetaModel):
    x: int = 1


class OwnEnumMetaclass(enum.Enum, metaclass=MetaEnum):
    A = 1


@dataclass
class OwnNew:
    x: int = 1

    def __new__(cls, *_: Any) -> OwnNew:
        CALLS.append("new")
        return object.__new__(cls)


@dataclass
class OwnDel:
    x: int = 1

    def __del__(self) -> None:
        CALLS.append("del")


@dataclass
class InheritsDel(OwnDel):
    y: int = 1


@dataclass
class OwnSetattr:
    x: int = 1
    __setattr__ = _note("setattr")


@dataclass
class Setter:
    x: int

    @property  # type: ignore[no-redef]
    def x(self) -> int:
        return 1

    @x.setter
    def x(self, value: int) -> None:
        CALLS.append("setter")


class Descriptor:
    __get__ = __set__ = _note("descriptor")


@dataclass
class Described:
    x: int = 1


Described.x = Descriptor()  # type: ignore[assignment]


@dataclass
class OwnDict:
    x: int = 1
    __dict__ = property(_note("dict"), _note("dict"))  # type: ignore[assignment]


class Resource:
    def __init__(self) -> None:
        CALLS.append("init")


@dataclass
class OfAResource(Resource):
    x: int = 1


@dataclass
class Abstract(abc.ABC):
    x: int = 1

    @abc.abstractmethod
    def run(self) -> None: ...


class ModelSetattr(pydantic.BaseModel):
    x: int = 1
    __setattr__ = _note("setattr")


class ModelNew(pydantic.BaseModel):
    x: int = 1

    def __new__(cls, **_: Any) -> ModelNew:
        CALLS.append("new")
        return super().__new__(cls)


class ModelSlots(pydantic.BaseModel):
    x: int = 1


type.__setattr__(ModelSlots, "__pydantic_fields_set__", Descriptor())


class PostInit(msgspec.Struct):
    x: int = 1

    def __post_init__(self) -> None:
        CALLS.append("post_init")


@attrs.define
class AttrsSetattr:
    x: int = 1

    def __setattr__(self, name: str, value: Any) -> None:
        CALLS.append("setattr")


class Point(NamedTuple):
    x: int = 1


class PointNew(Point):
    def __new__(cls, *_: Any) -> PointNew:
        CALLS.append("new")
        return tuple.__new__(cls, (1,))


class FlagMissing(enum.Flag):
    A = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        CALLS.append("missing")
        return cls.A


class Hooked:
    def __perdure_store__(self) -> dict[str, Any]:
        return {}

    @classmethod
    def __perdure_load__(cls, fields: dict[str, Any]) -> Hooked:
        CALLS.append("load")
        return cls()


class Reduced:
    __reduce__ = __setstate__ = _note("reduce")  # type: ignore[assignment]


class Callable_:
    __call__ = _note("call")


class Undecorated(Point):
    extra = 1


class UrlNew(pydantic.AnyUrl):
    __new__ = _note("url new")  # type: ignore[assignment]


class UrlSetter(pydantic.AnyUrl):
    _url = property(lambda self: None, _note("url setter"))  # type: ignore[assignment]


NOT_PLAIN = [
    OwnMetaclass, OwnModelMetaclass, OwnEnumMetaclass, OwnNew, OwnDel, InheritsDel, OwnSetattr, Setter, Described,
    OwnDict, OfAResource, Abstract, ModelSetattr, ModelNew, ModelSlots, PostInit, AttrsSetattr, PointNew, FlagMissing,
    Hooked, Reduced, Callable_, Resource, Descriptor, Meta, UrlNew, UrlSetter,
]  # fmt: skip


@pytest.mark.parametrize("cls", NOT_PLAIN, ids=lambda cls: type.__dict__["__name__"].__get__(cls))
@pytest.mark.parametrize(
    "fields", [{}, {"x": 1}, {"name": "A"}, {"url": "a://b"}, {"value": 3}, {"args": ["sh"], "y": 2}]
)
def test_a_class_that_is_not_plain_data_is_neither_built_nor_run(cls: type, fields: dict[str, Any]) -> None:
    name = type.__dict__["__qualname__"].__get__(cls)
    CALLS.clear()
    with pytest.raises(UnknownType):
        codec.decode(forge_bytes(f"{__name__}:{name}", fields))
    assert CALLS == []


@pytest.mark.parametrize("make", [OwnNew, OwnSetattr, PostInit, AttrsSetattr, ModelNew], ids=lambda cls: cls.__name__)
def test_storing_one_says_that_it_needs_a_name(make: Callable[[], Any]) -> None:
    with pytest.raises(NotStorable, match=r"cannot be stored by itself: .* \(register it with @perdure\.stored\("):
        codec.encode(make())


TEMPTING = [
    "subprocess:Popen", "subprocess:CompletedProcess", "os:system", "os:_Environ", "os:path", "builtins:eval",
    "builtins:type", "builtins:object", "builtins:int", "pathlib:PosixPath", "pathlib:Path", "functools:partial",
    "types:FunctionType", "types:CodeType", "types:SimpleNamespace", "threading:Thread", "tempfile:TemporaryDirectory",
    "socket:socket", "io:FileIO", "_io:FileIO", "collections:Counter", "weakref:finalize", "contextlib:ExitStack",
    "importlib:import_module", "logging:FileHandler", "sqlite3:Connection", "ctypes:CDLL", "operator:attrgetter",
    "unittest.mock:Mock", "shutil:rmtree", "pickle:loads", "typing:Any", "enum:Enum", "pydantic.main:BaseModel",
    "perdure.values.codec.registry:RegisteredClass.__new__", "msgspec:Struct", "sys:modules", "sys:modules.os",
    "pydantic.root_model:RootModel", "enum:Flag", "enum:IntFlag", "typing:Generic", "abc:ABC", "typing:Protocol",
    f"{__name__}:Point.__new__", f"{__name__}:Point.__class__", f"{__name__}:CALLS.append", f"{__name__}:codec.encode",
    f"{__name__}:sys", f"{__name__}:Path", f"{__name__}:", ":Point", f"{__name__}", "", ":", "a:b:c", "..:x",
]  # fmt: skip


@pytest.mark.parametrize("name", TEMPTING)
@pytest.mark.parametrize("fields", [{}, {"args": ["touch", "owned"]}, {"name": "x"}, {"value": 1}])
def test_tempting_names_lead_nowhere(
    name: str, fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with pytest.raises(UnknownType):
        codec.decode(forge_bytes(name, fields))
    assert set(sys.modules) == before
    assert not list(tmp_path.iterdir())


def test_a_module_is_not_asked_for_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    class Eager(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            CALLS.append(name)
            return super().__getattribute__(name)

    lazy = types.ModuleType("t_lazy")
    lazy.__getattr__ = _note("module getattr")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "t_lazy", lazy)
    monkeypatch.setitem(sys.modules, "t_eager", Eager("t_eager"))
    monkeypatch.setitem(sys.modules, "t_object", OwnSetattr())  # type: ignore[arg-type]
    CALLS.clear()
    for module in ("t_lazy", "t_eager", "t_object"):
        with pytest.raises(UnknownType):
            codec.decode(forge_bytes(f"{module}:Flight", {"x": 1}))
    assert CALLS == []


def test_a_module_that_loads_lazily_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t_later.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nboom = 1/0"
    )
    spec = importlib.util.spec_from_file_location("t_later", tmp_path / "t_later.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "t_later", module)
    spec.loader.exec_module(module)
    with pytest.raises(UnknownType, match="no class with the stored name"):
        codec.decode(forge_bytes("t_later:A", {"x": 1}))


def test_forged_fields_of_a_plain_class_are_refused() -> None:
    for fields in ({"x": 1, "__class__": 1}, {"x": 1, "y": 2}, {"__dict__": {}}, {"__setstate__": 1}):
        with pytest.raises(UnknownType, match="was stored with"):
            codec.decode(forge_bytes(f"{__name__}:Point", fields))
