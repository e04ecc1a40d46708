"""Which hosts are model providers. Calls to all other hosts are left alone."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

PROVIDERS = {
    "api.openai.com": "openai",
    ".openai.azure.com": "azure",
    ".services.ai.azure.com": "azure",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "google",
    "api.mistral.ai": "mistral",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.x.ai": "x-ai",
    "api.cohere.com": "cohere",
    "api.together.xyz": "together",
    "api.fireworks.ai": "fireworks",
    "api.perplexity.ai": "perplexity",
    "api.cerebras.ai": "cerebras",
    "openrouter.ai": "openrouter",
}
"""Providers by host. A name that begins with a dot stands for every host that ends with it."""


def parse_hosts(given: str | Iterable[str]) -> frozenset[str]:
    """Return host names: of a text, those between commas. A port is allowed: `localhost:8000`."""
    names = given.split(",") if isinstance(given, str) else given
    return frozenset(name.strip().lower() for name in names if name.strip())


def find_provider(host: str, port: int | None, more: frozenset[str], path: str) -> str | None:
    """Return the provider's name, or None for a host that is left alone. Own hosts get theirs by their API."""
    host = host.lower().strip("[]")
    for known, provider in PROVIDERS.items():
        if host == known or (known.startswith(".") and host.endswith(known)):
            return provider
    if host in more or f"{host}:{port}" in more:
        return "anthropic" if path.endswith("/messages") else "openai"
    return None


def format_host(host: str) -> str:
    """Return a host as it is named in a run, without the address of a machine that may change."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return host
    return "local"
