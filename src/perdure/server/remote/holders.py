"""Ties holders of leases to the key that registered them: no key renews or releases the leases of another one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from perdure.errors import NotAllowed
from perdure.platform.process import KEY
from perdure.server.access import Principal
from perdure.server.remote.rules import PARAMETERS, RULES
from perdure.store.base import Store

KNOWN_MAX = 20_000
"""Holders whose key is remembered."""

_HOLDER = {name: PARAMETERS[name].index("holder") for name in RULES if "holder" in PARAMETERS[name]}
"""Writes that name a holder, and the place of its number."""


class HolderKeys:
    """The keys of one store's holders. The boot id of a remote holder begins with its key (`use_server_clock`)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: OrderedDict[int, str] = OrderedDict()

    def check(self, principal: Principal, name: str, args: tuple[Any, ...]) -> None:
        """Raise `NotAllowed` if a write is about a holder of another key, or of a process beside the server."""
        if name in _HOLDER:
            holder = args[_HOLDER[name]]
            if holder is not None and self._find_key(holder) not in (None, principal.key_id):
                raise _foreign(name)
        elif name == "release_lease":
            stream, fence = args
            for held, holder, boot, *_ in self._store.read("read_lease", (stream, 0)):
                # Under another fence, the release changes nothing, or the unit takes the lease itself.
                if held == fence and holder is not None and boot is not None and key_in(boot) != principal.key_id:
                    raise _foreign(name)

    def _find_key(self, holder: int) -> str | None:
        """Return the key of a holder, empty for a process beside the server; None if there is no such holder."""
        key = self._keys.get(holder)
        if key is None:
            for boot, *_ in self._store.read("get_holder", (holder, 0)):
                key = self._keys[holder] = key_in(boot)
            while len(self._keys) > KNOWN_MAX:
                self._keys.popitem(last=False)
        return key


def key_in(boot: str) -> str:
    """Return the key id in the boot id of a holder; empty if there is none."""
    return boot.removeprefix(KEY).partition(" ")[0] if boot.startswith(KEY) else ""


def _foreign(name: str) -> NotAllowed:
    return NotAllowed(
        f"{name} is about a process of another key; nothing was changed",
        hint="a process renews and releases its own leases; others take over when it is dead",
    )
