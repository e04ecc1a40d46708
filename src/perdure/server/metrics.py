"""Counters in the text format of Prometheus. They name no tenant, no key and no agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Metrics:
    """What one server process has done since it started."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self.under_way = 0

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[operation, status] += 1
        self._seconds += seconds
        for bound in BUCKETS:
            if seconds <= bound:
                self._buckets[bound] += 1

    def render(self, gauges: Mapping[str, Mapping[str, float] | float]) -> str:
        """Return all counters, and numbers that were read just now, some of them by `status`."""
        lines = ["# TYPE perdure_http_requests_total counter"]
        for (operation, status), count in sorted(self._requests.items()):
            lines.append(f'perdure_http_requests_total{{operation="{operation}",status="{status}"}} {count}')
        lines += self._histogram()
        for name, value in gauges.items():
            lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            if isinstance(value, Mapping):
                lines += [f'{name}{{status="{label}"}} {number:g}' for label, number in sorted(value.items())]
            else:
                lines.append(f"{name} {value:g}")
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterable[str]:
        name, total = "perdure_http_request_seconds", sum(self._requests.values())
        yield f"# TYPE {name} histogram"
        for bound in BUCKETS:
            yield f'{name}_bucket{{le="{bound:g}"}} {self._buckets[bound]}'
        yield f'{name}_bucket{{le="+Inf"}} {total}'
        yield f"{name}_sum {self._seconds:.6f}"
        yield f"{name}_count {total}"
