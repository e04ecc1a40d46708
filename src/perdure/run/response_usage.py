"""Reads the usage of a model call from the response of an SDK, by its fields: no SDK is imported."""

from __future__ import annotations

from typing import Any

from perdure.errors import PerdureError
from perdure.records import ModelUsage
from perdure.run.usage import check_report


def usage_in(answer: Any) -> ModelUsage | None:
    """Return the usage that a response of OpenAI, Anthropic or LangChain carries; None for anything else."""
    model = _text(answer, "model")
    counts = getattr(answer, "usage", None)
    if counts is None and isinstance(getattr(answer, "usage_metadata", None), dict):
        counts = answer.usage_metadata
        model = str(answer.response_metadata.get("model_name") or answer.response_metadata.get("model") or "")
    if counts is None or not model:
        return None
    cached, written = _read_cache(counts)
    fresh = _number(counts, "prompt_tokens") or _number(counts, "input_tokens")
    if _number(counts, "cache_read_input_tokens") or _number(counts, "cache_creation_input_tokens"):
        fresh += cached + written  # Anthropic counts cached tokens apart from the others
    try:
        return check_report(
            model,
            "",
            fresh,
            _number(counts, "completion_tokens") or _number(counts, "output_tokens"),
            min(cached, fresh),
            written,
        )
    except PerdureError:
        return None


def _read_cache(counts: Any) -> tuple[int, int]:
    """Return the input tokens that were read from the provider's cache, and those written to it."""
    details = _field(counts, "prompt_tokens_details") or _field(counts, "input_tokens_details")
    details = details or _field(counts, "input_token_details")
    read = _number(counts, "cache_read_input_tokens") or _number(details, "cached_tokens")
    return read or _number(details, "cache_read"), _number(counts, "cache_creation_input_tokens")


def _field(of: Any, name: str) -> Any:
    return of.get(name) if isinstance(of, dict) else getattr(of, name, None)


def _number(of: Any, name: str) -> int:
    value = _field(of, name)
    return value if type(value) is int and value > 0 else 0


def _text(of: Any, name: str) -> str:
    value = getattr(of, name, None)
    return value if isinstance(value, str) else ""
