"""The settings of a server, from the options of `perdure serve`."""

from __future__ import annotations

import ipaddress

import msgspec

from perdure.errors import ListenRefused

HOST = "127.0.0.1"
PORT = 8321
OPEN_TENANTS = 64


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server listens on, which store it serves, and its limits."""

    store: str
    """The URL of the default tenant's store. The stores of keys and of other tenants lie beside it."""
    host: str = HOST
    port: int = PORT
    auth: bool = True
    behind_proxy: bool = False
    """A proxy in front ends TLS, and its forwarded addresses are trusted."""
    tls_certificate: str = ""
    tls_key: str = ""
    body_bytes_max: int = 8 * 1024 * 1024
    """Of a JSON body. Artifacts are streamed and have their own limit."""
    depth_max: int = 64
    """The nesting of a JSON body."""
    header_bytes_max: int = 32 * 1024
    """The request line and all headers."""
    header_seconds_max: float = 10.0
    """How long a connection may take to send its headers."""
    body_seconds_max: float = 30.0
    """How long the next part of a body may take to arrive."""
    request_seconds_max: float = 60.0
    """How long a request may take until its answer begins."""
    stop_seconds_max: float = 10.0
    """How long a stopping server waits for requests that are under way."""
    requests_per_second: float = 1000.0
    """The quota of a key that has no rate of its own."""
    bytes_per_second: float = 64 * 1024 * 1024
    """Bytes of bodies that a key may send, on average over a few seconds."""
    streams_max: int = 100
    """Streams that a key may hold open."""
    connections_max: int = 2000
    open_tenants: int = OPEN_TENANTS
    """Stores of tenants that stay open while nobody uses them."""
    notify: tuple[str, ...] = ()
    """Who is told about open questions: webhooks, Slack, mail. The URLs may contain secrets."""
    notify_secret: str = ""
    """Signs webhooks: `whsec_...`."""
    otlp: str = ""
    """The collector that takes the traces of runs; empty for none."""
    otlp_headers: str = ""
    page_only: bool = False
    """Serve nothing but the page: `perdure ui`."""
    page_token: str = ""
    """Opens the first session of `perdure ui`, once."""
    public_url: str = ""
    """The address under which people reach the server, for links; by default the one that it listens on."""

    @property
    def tls(self) -> bool:
        """Whether the server itself speaks TLS."""
        return bool(self.tls_certificate)

    @property
    def origin(self) -> str:
        """The address that people use."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(settings: ServerSettings) -> None:
    """Refuse an address on which strangers could read keys, or would need none."""
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise ListenRefused("TLS needs a certificate and its key", hint="give both --tls-cert and --tls-key")
    if is_loopback(settings.host):
        return
    if not settings.auth:
        raise ListenRefused(
            f"--no-auth is for this machine only, and {settings.host} can be reached from others",
            hint="leave out --no-auth and make a key with `perdure keys create NAME`, or listen on 127.0.0.1",
        )
    if not (settings.tls or settings.behind_proxy):
        raise ListenRefused(
            f"{settings.host} can be reached from other machines, and keys would travel unencrypted",
            hint="give --tls-cert and --tls-key, or --behind-proxy if a proxy in front ends TLS",
        )
