"""Prices of model calls, from the price list in the `genai-prices` package.

It makes no network requests. Without the package, or for a model that it does not list, the price is unknown, not 0.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from perdure.records import ModelUsage
from perdure.values.clock import moment

NANOS = 1_000_000_000
"""Billionths per dollar."""


def add_cost(usage: ModelUsage, at: int) -> ModelUsage:
    """Return usage with its cost at a time in milliseconds since 1970; unchanged if the price is unknown."""
    for model, provider in _readings(usage):
        found = _price(usage, model, provider, at)
        if found is not None:
            return found
    return usage


def _readings(usage: ModelUsage) -> list[tuple[str, str | None]]:
    """Return possible meanings of a name: "openai:gpt-4o" and "openai/gpt-4o" include the provider."""
    readings: list[tuple[str, str | None]] = [(usage.model, usage.provider or None)]
    for mark in ":/":
        provider, found, model = usage.model.partition(mark)
        if found and provider and model and not usage.provider:
            readings.append((model, provider))
    return readings


def _price(usage: ModelUsage, model: str, provider: str | None, at: int) -> ModelUsage | None:
    try:
        import genai_prices
    except ImportError:
        return None
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
    tokens = genai_prices.Usage(**{name: count for name, count in counts.items() if count})
    try:
        found = genai_prices.calc_price(tokens, model, provider_id=provider, genai_request_timestamp=moment(at))
    except (LookupError, ValueError):
        return None
    if not _covers(found.model_price, usage):
        return None
    return msgspec.structs.replace(usage, cost=nanos_of(found.total_price), unpriced=0)


def _covers(price: Any, usage: ModelUsage) -> bool:
    """Return whether a price covers the tokens. Some entries have none and would cost 0."""
    no_input = usage.input_tokens > 0 and getattr(price, "input_mtok", None) is None
    no_output = usage.output_tokens > 0 and getattr(price, "output_mtok", None) is None
    return not no_input and not no_output and (usage.input_tokens > 0 or usage.output_tokens > 0)


def nanos_of(dollars: float | Decimal) -> int:
    """Convert dollars to whole billionths, by their decimal text: 0.1 is exactly 100,000,000."""
    return int((Decimal(str(dollars)) * NANOS).to_integral_value())
