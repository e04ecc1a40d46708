"""All pages. A new one is a module here, its template, and one line below; `MENU` lists those that people go to."""

from __future__ import annotations

from starlette.responses import Response

from perdure.errors import PerdureError, ResourceNotFound
from perdure.server.page import home, inventory, questions, run, run_actions, runs, sign_in
from perdure.server.page.assets import FOLDER, load_assets
from perdure.server.page.page import Page, PageCall
from perdure.server.page.render import render_page
from perdure.server.problems import status_of

YEAR_SECONDS = 365 * 24 * 60 * 60


async def show_asset(call: PageCall) -> Response:
    """Answer with a file of this package."""
    return _file(call, call.path["name"])


async def show_icon(call: PageCall) -> Response:
    """Answer with the icon, which browsers ask for by themselves."""
    return _file(call, "favicon.svg")


def _file(call: PageCall, name: str) -> Response:
    asset = load_assets().get(name)
    if asset is None:
        raise ResourceNotFound("there is no such file")
    tag = f'"{asset.hash}"'
    lasting = call.request.url.query == f"v={asset.hash}"
    headers = {
        "etag": tag,
        "cache-control": f"public, max-age={YEAR_SECONDS}, immutable" if lasting else "no-cache",
        "x-content-type-options": "nosniff",
    }
    if call.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, 200, headers, asset.media_type)


def is_page(path: str) -> bool:
    """Whether a path belongs to the page, not to the API."""
    return path.removesuffix(":live").split("/")[1] in _SEGMENTS


def problem_page(error: PerdureError) -> Response:
    """Return the page that tells of an error."""
    status = status_of(error)
    return render_page("problem.html", {"title": "This did not work", "problem": error, "status": status}, status)


PAGES = (
    home.PAGE,
    runs.PAGE,
    run.PAGE,
    *run_actions.PAGES,
    questions.PAGE,
    questions.ANSWER,
    *inventory.PAGES,
    sign_in.SIGN_IN,
    sign_in.ENTER,
    sign_in.SIGN_OUT,
    Page(path=f"/{FOLDER}/{{name}}", show=show_asset, query=None, public=True),
    Page(path="/favicon.ico", show=show_icon, query=None, public=True),
)

MENU = (("Home", "/"), ("Runs", "/runs"), ("Questions", "/questions"), *inventory.MENU)
"""The name and the address of every entry of the menu, in order."""

_SEGMENTS = frozenset(page.path.split("/")[1] for page in PAGES)
