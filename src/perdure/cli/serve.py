"""`perdure serve` starts the server."""

from __future__ import annotations

import os

import click

from perdure.cli.output import CommandOutput
from perdure.cli.store_option import add_common_options, repeat_options
from perdure.errors import ExtraMissing
from perdure.server.settings import HOST, OPEN_TENANTS, PORT, ServerSettings
from perdure.store import file_of, hide_password, locate
from perdure.values.durations import seconds_of


@click.command()
@click.option("--host", default=HOST, show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: any free port.")
@click.option("--tls-cert", metavar="FILE", default="", help="The certificate chain, in PEM.")
@click.option("--tls-key", metavar="FILE", default="", help="The private key of the certificate, in PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front ends TLS; trust its forwarded addresses.")
@click.option("--no-auth", is_flag=True, help="Ask for no keys. On a loopback address only.")
@click.option(
    "--notify",
    metavar="URL",
    multiple=True,
    envvar="PERDURE_NOTIFY",
    help="Tell somebody about open questions: https://..., slack+https://... or smtp://HOST/?from=...&to=...",
)
@click.option(
    "--otlp",
    metavar="URL",
    default="",
    envvar=["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    help="Send traces of runs to this OpenTelemetry collector: http://HOST:4318",
)
@click.option("--public-url", metavar="URL", default="", help="The address of this server in links to people.")
@click.option("--header-timeout", metavar="DURATION", default="10s", show_default=True, help="Cut slower connections.")
@click.option(
    "--open-tenants",
    type=click.IntRange(1),
    default=OPEN_TENANTS,
    show_default=True,
    help="Stores that stay open while nobody uses them.",
)
@add_common_options
def serve(
    host: str,
    port: int,
    tls_cert: str,
    tls_key: str,
    behind_proxy: bool,
    no_auth: bool,
    notify: tuple[str, ...],
    otlp: str,
    public_url: str,
    header_timeout: str,
    open_tenants: int,
    url: str | None,
    as_json: bool,
) -> int:
    """Serve a store over HTTP: for any process, in any language, with a key.

    Ctrl-C or SIGTERM stops it after the requests that are under way.
    """
    try:
        from perdure.server import serve as server  # late: it needs perdure[server]
    except ImportError as error:
        raise ExtraMissing(
            "`perdure serve` needs starlette and uvicorn", hint='pip install "perdure[server]"'
        ) from error
    settings = ServerSettings(
        store=locate(url),
        host=host,
        port=port,
        auth=not no_auth,
        behind_proxy=behind_proxy,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        notify=notify,
        notify_secret=os.environ.get("PERDURE_NOTIFY_SECRET", ""),
        otlp=otlp,
        otlp_headers=os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""),
        public_url=public_url,
        header_seconds_max=seconds_of(header_timeout, "--header-timeout"),
        open_tenants=open_tenants,
    )
    out = CommandOutput(as_json)
    server.serve(settings, lambda bound: _announce(out, bound, url))
    return 0


def _announce(out: CommandOutput, settings: ServerSettings, url: str | None) -> None:
    store = file_of(settings.store) or hide_password(settings.store)
    if out.as_json:
        out.json({"url": settings.origin, "store": store, "auth": settings.auth})
    else:
        out.line(f"Perdure serves at {settings.origin}")
        out.line(f"the store:   {store}")
        if settings.auth:
            out.line(f"make a key:  export PERDURE_API_KEY=$(perdure keys create me{repeat_options(url)})")
        key = ' -H "Authorization: Bearer $PERDURE_API_KEY"' if settings.auth else ""
        out.line(f"try it:      curl{key} {settings.origin}/v1/agents")
    out.flush()
