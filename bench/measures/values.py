"""The codec: values to bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

from perdure import stored
from perdure.values import codec

from ..workload import text


@stored("bench.seat")
@dataclass(frozen=True)
class Seat:
    """A class of a user."""

    row: int
    letter: str


def values(folder: Path, rounds: int) -> dict[str, float]:
    """Nanoseconds per element of a plain and of a mixed value, and for one text of 1 KB."""
    plain = [{"role": "user", "content": f"message {number}", "tokens": number} for number in range(1000)]
    seen = datetime(2026, 1, 1, tzinfo=UTC)
    mixed = [{"seat": Seat(number, "A"), "at": seen, "range": (number, number + 1)} for number in range(1000)]
    return {
        **_measure_both("plain", plain, elements=4 * len(plain) + 1, rounds=rounds),
        **_measure_both("mixed", mixed, elements=8 * len(mixed) + 1, rounds=rounds),
        **_measure_both("text", text(1), elements=1, rounds=rounds * 100),
    }


def _measure_both(name: str, value: Any, *, elements: int, rounds: int) -> dict[str, float]:
    data = codec.encode(value)
    return {
        f"{name}_encode_ns": _median_ns(lambda: codec.encode(value), rounds) / elements,
        f"{name}_decode_ns": _median_ns(lambda: codec.decode(data), rounds) / elements,
    }


def _median_ns(call: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        begun = perf_counter_ns()
        call()
        taken.append(perf_counter_ns() - begun)
    return median(taken)
