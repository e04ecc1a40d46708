"""Where a proxy sends a request: the provider that it means, and the address of that provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from perdure.errors import WrongValue
from perdure.http_capture.hosts import PROVIDERS

ROOTS = {"openai": "/v1", "anthropic": "", "google": ""}
"""The path that the SDK of a provider expects in its base URL."""

VARIABLES = {
    "OPENAI_BASE_URL": "openai",
    "OPENAI_API_BASE": "openai",
    "ANTHROPIC_BASE_URL": "anthropic",
    "GOOGLE_GEMINI_BASE_URL": "google",
}
"""The variables that SDKs read their base URL from."""


class Target(msgspec.Struct, frozen=True):
    """The address that a request is sent to."""

    provider: str
    secure: bool
    host: str
    port: int | None
    path: str
    query: str


class Upstreams:
    """The base URL of each provider."""

    def __init__(self, given: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        """Take `NAME=URL` for each provider that is not at its usual address, else what its variable says."""
        self._bases = {
            name: f"https://{host}{ROOTS.get(name, '')}" for host, name in PROVIDERS.items() if not host.startswith(".")
        }
        for variable, name in VARIABLES.items():
            if url := (environment or {}).get(variable):
                self._bases[name] = _check_base(name, url)
        for one in given:
            name, _, url = one.partition("=")
            self._bases[name.strip()] = _check_base(name.strip(), url.strip())

    def locate(self, url: str, headers: Mapping[str, str]) -> Target:
        """Return where the request for this path of the proxy goes."""
        asked = urlsplit(url)
        first, _, rest = asked.path.lstrip("/").partition("/")
        if first in self._bases:
            name, path = first, f"/{rest}"
        else:
            name, path = _guess_provider(asked.path, headers), asked.path
        root = ROOTS.get(name, "")
        if root and (path == root or path.startswith(f"{root}/")):
            path = path[len(root) :]
        base = urlsplit(self._bases[name])
        secure = base.scheme == "https"
        return Target(name, secure, base.hostname or "", base.port, base.path.rstrip("/") + path, asked.query)


def make_variables(origin: str) -> dict[str, str]:
    """Return the variables that send the SDKs of a program to the proxy at this address."""
    return {variable: origin + ROOTS[name] for variable, name in VARIABLES.items()}


def _check_base(name: str, url: str) -> str:
    parts = urlsplit(url)
    if not name or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise WrongValue(
            f"{name or 'a provider'}: its address is not an http or https URL",
            hint="write it as --upstream openai=https://gateway.example/v1",
        )
    return url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + ROOTS.get(name, "")


def _guess_provider(path: str, headers: Mapping[str, str]) -> str:
    """Tell providers apart that SDKs address by the same host: this proxy."""
    if "anthropic-version" in headers or path.startswith(("/v1/messages", "/v1/complete")):
        return "anthropic"
    if "x-goog-api-key" in headers or path.startswith(("/v1beta/", "/v1alpha/", "/v1beta1/")):
        return "google"
    return "openai"
