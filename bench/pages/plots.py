"""Which figures become pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..comparison.standings import POSTGRES, SQLITE, Standing
from ..rows import number
from .svg import Bar, Panel, picture

TONES = {"perdure": "ours", "floor": "floor"}


def pictures(standings: Sequence[Standing]) -> dict[str, str]:
    """The pictures by name."""
    return {
        "speed": picture("Calls per second of Perdure and its peers", _panels(standings, "Calls per second", _speed)),
        "latency": picture(
            "Time of one call of Perdure and its peers",
            _panels(standings, "Time of one call: p50, and up to p99 (ms, logarithmic)", _latency, logarithmic=True),
        ),
        "costs": picture("Costs of one call of Perdure and its peers", _costs(standings)),
        "return": picture(
            "Time from a kill to the first new step of Perdure and its peers",
            [
                *_panels(standings, "From SIGKILL to the first new step, after 10 (ms)", _plot_short),
                *_panels(standings, "From the end of imports to the first new step, after 1,000 (ms)", _plot_long),
            ],
        ),
    }


def _panels(
    standings: Sequence[Standing], title: str, bar: Callable[[Standing], Bar | None], *, logarithmic: bool = False
) -> list[Panel]:
    """One panel for each store."""
    found = []
    for store in (SQLITE, POSTGRES):
        bars = [bar(one) for one in standings if one.entrant.store == store]
        shown = [one for one in bars if one is not None]
        if shown:
            found.append(Panel(f"{store}: {title[0].lower()}{title[1:]}", shown, logarithmic))
    return found


def _bar(one: Standing, value: float | None, unit: str = "", whisker: float | None = None) -> Bar | None:
    if value is None:
        return None
    figure = number(value, unit) if whisker is None else f"{number(value)} to {number(whisker, unit)}"
    return Bar(one.entrant.title, value, figure, TONES.get(one.entrant.system, "peer"), whisker)


def _speed(one: Standing) -> Bar | None:
    return _bar(one, one.speed.per_second)


def _latency(one: Standing) -> Bar | None:
    return _bar(one, one.speed.p50_ms, "ms", one.speed.p99_ms)


def _plot_short(one: Standing) -> Bar | None:
    return _bar(one, one.back.short_ms if one.back is not None else None, "ms")


def _plot_long(one: Standing) -> Bar | None:
    return _bar(one, one.back.long_ms if one.back is not None else None, "ms")


def _costs(standings: Sequence[Standing]) -> list[Panel]:
    return [
        *_panels(standings, "Processor time of the client (ms)", lambda one: _bar(one, one.speed.cpu_ms, "ms")),
        *_panels(standings, "Round trips", lambda one: _bar(one, one.costs.trips if one.costs else None)),
        *_panels(standings, "Syncs of the disk", lambda one: _bar(one, one.costs.syncs if one.costs else None)),
        *_panels(standings, "Bytes on disk", lambda one: _bar(one, one.costs.bytes if one.costs else None, "B")),
    ]
