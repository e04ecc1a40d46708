"""Every statement declares whose rows it touches."""

from __future__ import annotations

import re

from perdure.server.remote.read_rules import AGENT_COLUMN, READS, STREAM_COLUMN
from perdure.server.remote.rules import PARAMETERS, RULES
from perdure.store import sql

WRITES = re.compile(r"\b(INSERT|DELETE|UPDATE|CREATE|DROP|LOCK TABLE)\b")
LOCKS = re.compile(r"FOR (NO KEY )?UPDATE|DO UPDATE")
STANDS_FOR_NOBODY = {"store", "holder", "id", "upload", "key", "what"}


def _writes(text: str) -> bool:
    return WRITES.search(LOCKS.sub("", text)) is not None


def test_every_write_has_a_rule() -> None:
    dialects = sql.load("sqlite"), sql.load("postgres")
    writes = {name for queries in dialects for name, named in queries.items() if _writes(named.text)}
    assert len(writes) > 100
    assert writes - set(RULES) == set()


def test_a_rule_names_a_parameter() -> None:
    for name, rule in RULES.items():
        assert rule.whose in PARAMETERS[name] or rule.whose in STANDS_FOR_NOBODY, name


def test_every_read_has_a_rule() -> None:
    assert set(PARAMETERS) - set(RULES) == set(READS)


def test_a_rule_of_a_read_names_a_parameter() -> None:
    for name, whose in READS.items():
        assert whose in PARAMETERS[name] or whose in {"listed", "open", "tenant", "whole"}, name
    assert {name for name, whose in READS.items() if whose == "listed"} <= {*AGENT_COLUMN, *STREAM_COLUMN}


def test_an_open_read_takes_no_stream() -> None:
    for name, whose in READS.items():
        if whose == "open":
            assert {"owner", "stream", "agent"}.isdisjoint(PARAMETERS[name]), name
