"""What pydantic models contain besides plain data: URLs, addresses, sizes; and the error that pydantic raises."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pydantic_core
import pytest

from perdure.errors import CorruptValue, NotStorable, StepFailed, UnknownType
from perdure.values import codec
from perdure.values.codec import exceptions
from perdure.values.codec.decoder import decode_as_dicts
from tests.unit.test_codec_tempting import forge_bytes


class ApiUrl(pydantic.AnyUrl):
    """A URL type of a program, as pydantic documents them."""

    _constraints = pydantic.UrlConstraints(allowed_schemes=["https"])


class Source(pydantic.BaseModel):
    page: pydantic.HttpUrl
    api: ApiUrl
    database: pydantic.PostgresDsn
    raw: pydantic_core.Url
    host: ipaddress.IPv4Address | ipaddress.IPv6Address
    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    interface: ipaddress.IPv4Interface
    size: pydantic.ByteSize
    file: Path


SOURCE = Source(
    page="https://münchen.example/a?q=1#top",
    api="https://api.example",
    database="postgres://user:word@h1:1,h2:2/db",
    raw=pydantic_core.Url("ftp://h/x"),
    host="fe80::1%eth0",
    network="10.0.0.0/8",
    interface="10.0.0.1/8",
    size="3MiB",
    file="/tmp/x",
)


def test_a_model_with_urls_addresses_and_sizes_comes_back() -> None:
    read = codec.decode(codec.encode(SOURCE))
    assert read == SOURCE
    assert {name: type(value) for name, value in vars(read).items()} == {n: type(v) for n, v in vars(SOURCE).items()}
    assert read.size.human_readable() == "3.0MiB"
    assert read.page.host == "xn--mnchen-3ya.example"


def test_a_url_without_a_path_stays_without_one() -> None:
    url = pydantic_core.Url("https://a.example", preserve_empty_path=True)
    assert str(codec.decode(codec.encode(url))) == "https://a.example"


def test_a_url_is_readable_without_pydantic() -> None:
    script = f"""
import sys
from perdure.values import codec
from perdure.values.codec.decoder import decode_as_dicts
with decode_as_dicts():
    print(codec.decode(bytes.fromhex("{codec.encode(SOURCE.page).hex()}")))
assert "pydantic" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=True)
    assert "'url': 'https://xn--mnchen-3ya.example/a?q=1#top'" in found.stdout
    with decode_as_dicts():
        assert codec.decode(codec.encode(SOURCE.size)) == {"class": "pydantic.types:ByteSize", "bytes": 3 * 2**20}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("pydantic.networks:HttpUrl", {"url": 5}),
        ("pydantic.networks:HttpUrl", {"url": "no url"}),
        ("pydantic.networks:HttpUrl", {"url": "HTTPS://A.example"}),
        ("pydantic.networks:HttpUrl", {"url": "https://a.example/", "_url": None}),
        ("pydantic.types:ByteSize", {"bytes": "5"}),
    ],
)
def test_forged_ones_are_refused(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises((UnknownType, CorruptValue)):
        codec.decode(forge_bytes(name, fields))


def test_a_secret_is_refused_with_what_to_do() -> None:
    with pytest.raises(NotStorable, match=r"leave it out: stores are not encrypted.*get_secret_value"):
        codec.encode(pydantic.SecretStr("key"))


class Order(pydantic.BaseModel):
    count: Annotated[int, pydantic.Field(gt=5)]
    name: str = pydantic.Field("x", max_length=3)

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        if value == "v":
            raise ValueError("not {v}")
        if value == "c":
            raise pydantic_core.PydanticCustomError("no_c", "no {what}", {"what": "c"})
        return value


class Discreet(Order, hide_input_in_errors=True):
    pass


def error_of(kind: type[pydantic.BaseModel], **given: Any) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        kind(**given)
    return caught.value


@pytest.mark.parametrize(
    "given", [{}, {"count": "x", "name": "long"}, {"count": 1}, {"count": 9, "name": "v"}, {"count": 9, "name": "c"}]
)
def test_a_validation_error_comes_back_with_its_lines(given: dict[str, Any]) -> None:
    error = error_of(Order, **given)
    error.add_note("noted")
    read: Any = codec.decode(codec.encode(error))
    assert type(read) is pydantic.ValidationError
    assert (read.title, read.__notes__) == ("Order", ["noted"])
    parts = ("type", "loc", "msg", "input")
    assert [[line[part] for part in parts] for line in read.errors()] == [
        [line[part] for part in parts] for line in error.errors()
    ]


def test_an_input_that_cannot_be_stored_is_its_repr() -> None:
    read: Any = codec.decode(codec.encode(error_of(Order, count=print, name="long")))
    assert [line["input"] for line in read.errors()] == ["<built-in function print>", "long"]


def test_hidden_inputs_are_not_stored() -> None:
    encoded = codec.encode(error_of(Discreet, count="hunter2"))
    assert b"hunter2" not in encoded
    assert "input_value" not in str(codec.decode(encoded))


def test_one_that_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exceptions, "BYTES_MAX", 100)
    read = codec.decode(codec.encode(error_of(Order, count="x" * 200)))
    assert type(read) is StepFailed
    assert read.type_name.endswith("ValidationError")
