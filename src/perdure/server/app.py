"""The ASGI application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from perdure.errors import ResourceNotFound
from perdure.server.admission import Admission
from perdure.server.page.page import PageRoute
from perdure.server.page.pages import MENU, PAGES
from perdure.server.routes import ROUTES
from perdure.server.routing import ApiRoute
from perdure.server.services import Services


def create_app(services: Services) -> Starlette:
    """Return the application for one server process. Its caller opens and closes the services."""
    # Each pattern before the right one costs time: the busiest routes are among those without parameters.
    routes: list[BaseRoute] = []
    if not services.settings.page_only:
        routes += [ApiRoute(route, services) for route in sorted(ROUTES, key=lambda route: len(route.parameters))]
    routes += [PageRoute(page, services, MENU) for page in PAGES]
    app = Starlette(routes=routes, middleware=[Middleware(Admission, services=services)])
    app.router.redirect_slashes = False
    app.router.default = _refuse_unknown_path
    return app


async def _refuse_unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise ResourceNotFound("there is nothing at this path")
