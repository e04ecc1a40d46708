"""Records of rows: their fields are the columns of every query that they name, in both dialects."""

from __future__ import annotations

import re

import msgspec
import pytest

from perdure.store import rows, sql

RECORDS = [kind for kind in vars(rows).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
CASES = [(kind, name) for kind in RECORDS for name in re.findall("`(.+?)`", kind.__doc__ or "")]


def columns(text: str) -> list[str]:
    """The selected columns; "" for one that is computed."""
    selected = re.search(r"SELECT (.+?)\s+FROM ", text, re.DOTALL)
    assert selected is not None, text
    parts = re.split(r",\s*(?![^(]*\))", selected[1])
    return [part.rpartition(".")[2] if re.fullmatch(r"[\w.]+", part) else "" for part in parts]


def test_every_record_names_its_queries() -> None:
    assert {kind for kind, _ in CASES} == set(RECORDS)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize(("kind", "query"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_fields_are_the_columns(kind: type[msgspec.Struct], query: str, dialect: str) -> None:
    fields = kind.__struct_fields__
    found = columns(sql.load(dialect)[query].text)
    assert [name or field for name, field in zip(found, fields, strict=True)] == list(fields)
