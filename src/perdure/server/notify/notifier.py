"""Watches the questions of all tenants, and sends what is due."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import PerdureError
from perdure.run.inbox import InboxQuestion, list_inbox
from perdure.server.access import OPEN_PRINCIPAL
from perdure.server.addresses import DEFAULT_TENANT
from perdure.server.notify.deliveries import Deliveries, Delivery
from perdure.server.notify.links import ANSWER_PATH, make_token
from perdure.server.notify.targets import DeliveryFailed, Notice, NotifyTarget, send
from perdure.server.values import to_json
from perdure.values.clock import SYSTEM_CLOCK
from perdure.values.log import warn

if TYPE_CHECKING:
    from perdure.server.keys import KeyRing
    from perdure.server.tenants import Tenants

LOOK_SECONDS = 1.0
LOOK_AT_CLOSED = 60
"""Every how many looks the stores are opened that this process does not use."""
AT_ONCE = 20
QUESTIONS_MAX = 1000
"""Open questions of a tenant that are looked at; the others wait until some are answered."""


class Notifier:
    """Sends notices about open questions. Several servers may do so on one store."""

    def __init__(
        self,
        tenants: Tenants,
        keys: KeyRing,
        targets: Sequence[NotifyTarget],
        secret: str,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
    ) -> None:
        self._tenants = tenants
        self._keys = keys
        self._targets = targets
        self._secret = secret
        self._now_ms = now_ms
        self._task: asyncio.Task[None] | None = None

    def start(self, origin: str) -> None:
        """Begin to look, if there is anybody to tell. Links lead to `origin`."""
        if self._targets and self._task is None:
            self._task = asyncio.create_task(self._watch(origin))

    async def stop(self) -> None:
        """End. An attempt that is under way is made again later."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _watch(self, origin: str) -> None:
        for look in itertools.count():
            for tenant in {DEFAULT_TENANT, *(key.tenant for key in await self._keys.list())}:
                if look % LOOK_AT_CLOSED and not self._tenants.is_open(tenant):
                    continue
                try:
                    await self.tend(tenant, origin)
                except PerdureError as error:  # a store that is busy or away: the next look may find it
                    warn("notices of tenant %s: %s", tenant, error.message)
            await asyncio.sleep(LOOK_SECONDS)

    async def tend(self, tenant: str, origin: str) -> None:
        """Send what is due in one tenant, and forget what is answered."""
        with self._tenants.using():
            await self._tend(tenant, origin)

    async def _tend(self, tenant: str, origin: str) -> None:
        agent = await self._tenants.server_agent(tenant)
        store = await self._tenants.store(msgspec.structs.replace(OPEN_PRINCIPAL, tenant=tenant))
        questions = {one.id: one for one in await asyncio.to_thread(list_inbox, store, "", "", QUESTIONS_MAX)}
        deliveries = Deliveries(agent)
        known = await deliveries.list()
        for key, delivery in known.items():
            if delivery.question not in questions:
                await deliveries.drop(key)
        due = [
            planned
            for question in questions.values()
            for target in self._targets
            if (planned := self._plan(question, target, known)) is not None
        ]
        # Several at a time: a receiver that does not answer must not hold up the others.
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(
                *(
                    self._deliver(deliveries, planned, tenant, questions[planned.question], origin)
                    for planned in due[start : start + AT_ONCE]
                )
            )

    async def _deliver(
        self, deliveries: Deliveries, planned: Delivery, tenant: str, question: InboxQuestion, origin: str
    ) -> None:
        claimed = await deliveries.claim(planned, self._now_ms())
        if claimed is not None:
            error = await self._send(tenant, question, planned.target, origin)
            await deliveries.settle(*claimed, error, self._now_ms())

    def _plan(self, question: InboxQuestion, target: NotifyTarget, known: dict[str, Delivery]) -> Delivery | None:
        planned = Delivery(question.id, target.id, target.label, question.agent, question.run)
        stored = known.get(planned.key)
        if stored is not None and (stored.status != "pending" or stored.next_ms > self._now_ms()):
            return None
        return planned

    async def _send(self, tenant: str, question: InboxQuestion, target_id: str, origin: str) -> str:
        """Make one attempt. Returns why it failed, or ""."""
        target = next(one for one in self._targets if one.id == target_id)
        own = await self._tenants.store(OPEN_PRINCIPAL)
        token = make_token(own, tenant, question.id, self._now_ms())
        notice = Notice(
            f"msg_{tenant}_{question.id}_{target_id}",
            tenant,
            question.agent,
            question.run,
            question.id,
            question.kind,
            question.text,
            to_json(question.choices),
            question.asked_at,
            f"{origin}{ANSWER_PATH}{token}",
        )
        try:
            await asyncio.to_thread(send, target, notice, self._secret, self._now_ms() // 1000)
        except DeliveryFailed as error:
            return str(error) or "failed"
        return ""
