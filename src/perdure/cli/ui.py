"""`perdure ui` shows the page of a store in a browser on this machine."""

from __future__ import annotations

import secrets
import webbrowser

import click

from perdure.cli.output import CommandOutput
from perdure.cli.store_option import add_common_options, open_existing_store
from perdure.errors import ExtraMissing, StoreUnavailable
from perdure.server.settings import HOST, ServerSettings
from perdure.store import locate


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="By default any free port.")
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@add_common_options
def ui(port: int, no_browser: bool, url: str | None, as_json: bool) -> int:
    """Look at the runs of a store in a browser, and answer their questions.

    The page listens on this machine only. Its link works once, for one browser. Ctrl-C stops it.
    """
    store = locate(url)
    if store.startswith(("http://", "https://")):
        raise StoreUnavailable(
            "a server has a page of its own", hint=f"open {store} in a browser, and sign in with a key"
        )
    try:
        from perdure.server import serve as server  # late: it needs perdure[server]
    except ImportError as error:
        raise ExtraMissing(
            "`perdure ui` needs starlette, uvicorn and jinja2", hint='pip install "perdure[server]"'
        ) from error
    with open_existing_store(url):
        pass  # a store that is not there is refused before a browser opens
    out, token = CommandOutput(as_json), secrets.token_urlsafe(32)
    settings = ServerSettings(store=store, host=HOST, port=port, page_only=True, page_token=token)
    server.serve(settings, lambda bound: _announce(out, f"{bound.origin}/enter?token={token}", no_browser))
    return 0


def _announce(out: CommandOutput, link: str, no_browser: bool) -> None:
    if out.as_json:
        out.json({"url": link})
    else:
        out.line(f"Open {link}")
        out.line("The link works once, in one browser on this machine. Ctrl-C stops the page.")
    out.flush()
    if not no_browser:
        webbrowser.open(link)
