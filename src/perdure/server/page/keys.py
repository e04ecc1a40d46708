"""Keys of a server, for admins: list, create, rotate, revoke. A secret is shown once."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from perdure.errors import KeyNotFound, NotAllowed, RequestInvalid
from perdure.server.access import Role
from perdure.server.page.page import Page, PageCall, Shown
from perdure.server.page.render import render_page
from perdure.server.routes.keys import CreatedKey, CreateKey, create_key, list_keys, revoke_key, rotate_key

ROWS = 100
ROLES = [role.value for role in Role]


class KeysQuery(msgspec.Struct, frozen=True):
    """Keys after this one."""

    after: str = ""


async def show_keys(call: PageCall) -> Shown:
    """Show the keys that this one manages, the oldest first."""
    if call.services.settings.page_only:
        return {"title": "API keys", "rows": [], "next": "", "roles": ROLES, "bound": ""}
    found = (await list_keys(call)).keys
    begin = next((place + 1 for place, one in enumerate(found) if one.id == call.query.after), 0)
    rows = found[begin : begin + ROWS]
    more = f"/keys?after={rows[-1].id}" if len(found) > begin + ROWS else ""
    return {"title": "API keys", "rows": rows, "next": more, "roles": ROLES, "bound": call.principal.agent or ""}


async def create(call: PageCall) -> Response:
    """Create a key and show its secret."""
    _require_server(call)
    given = {name: call.body.get(name, "").strip() or None for name in ("agent", "expires", "rate")}
    role = call.body.get("role", "")
    if role not in ROLES:
        raise RequestInvalid(f"there is no role {role[:40]!r}", hint=f"one of {', '.join(ROLES)}")
    agent = given["agent"] or call.principal.agent
    wanted = CreateKey(call.body.get("name", "").strip(), agent, Role(role), given["expires"], given["rate"])
    return _show_secret(await create_key(msgspec.structs.replace(call, body=wanted)))


async def show_key(call: PageCall) -> Shown:
    """Show one key with what can be done to it."""
    _require_server(call)
    found = next((one for one in (await list_keys(call)).keys if one.id == call.path["key"]), None)
    if found is None:
        raise KeyNotFound("there is no such key")
    return {"title": found.name, "key": found, "own_key": found.id == call.principal.key_id}


async def change(call: PageCall) -> str | Response:
    """Rotate or revoke a key."""
    _require_server(call)
    if call.body.get("do") == "rotate":
        return _show_secret(await rotate_key(call))
    if call.body.get("do") != "revoke":
        raise RequestInvalid("choose whether to rotate or to revoke the key")
    await revoke_key(call)
    return "/keys"


def _show_secret(made: CreatedKey) -> Response:
    return render_page("key_made.html", {"title": "Copy the key now", "made": made})


def _require_server(call: PageCall) -> None:
    if call.services.settings.page_only:
        raise NotAllowed("keys are for servers: this page is open to you alone", hint="`perdure serve` begins one")


PAGE = Page(
    path="/keys",
    show=show_keys,
    act=create,
    template="keys.html",
    query=KeysQuery,
    role=Role.ADMIN,
    act_role=Role.ADMIN,
    section="API keys",
)
ONE = Page(
    path="/keys/{key}",
    show=show_key,
    act=change,
    template="key.html",
    role=Role.ADMIN,
    act_role=Role.ADMIN,
    section="API keys",
)
