"""Where notices go, and how they are sent: one attempt, blocking."""

from __future__ import annotations

import base64
import hmac
import http.client
import smtplib
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from hashlib import blake2b, sha256
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import msgspec

from perdure.errors import WrongValue

SECRET_PREFIX = "whsec_"
SECRET_BYTES = (24, 64)
"""The lengths that Standard Webhooks allows."""

SEND_SECONDS_MAX = 10.0
ERROR_CHARACTERS_MAX = 300

_KINDS = {
    "http": "webhook",
    "https": "webhook",
    "slack+http": "slack",
    "slack+https": "slack",
    "smtp": "mail",
    "smtps": "mail",
}


class DeliveryFailed(Exception):
    """The notice was not accepted. It is sent again later."""


class Notice(msgspec.Struct, frozen=True):
    """What somebody is told about a question."""

    id: str
    """The same in every attempt, so that a receiver can drop repeated ones."""
    tenant: str
    agent: str
    run: str
    question: str
    kind: str
    text: str
    choices: Any
    asked_at: int
    link: str

    def webhook_body(self) -> bytes:
        """Return the JSON body of a webhook."""
        at = datetime.fromtimestamp(self.asked_at / 1000, UTC).isoformat()
        data = {name: getattr(self, name) for name in ("tenant", "agent", "run", "question", "kind", "text", "choices")}
        return msgspec.json.encode({"type": "question.asked", "timestamp": at, "data": {**data, "url": self.link}})

    def plain_text(self) -> str:
        """Return the text of a mail."""
        return f"Run {self.run} of agent {self.agent} asks:\n\n{self.text}\n\nAnswer here, once:\n{self.link}\n"


class NotifyTarget(msgspec.Struct, frozen=True):
    """A receiver. Its URL may contain secrets: only `id` and `label` are stored or shown."""

    kind: str
    url: str

    @property
    def id(self) -> str:
        """A short name that does not reveal the URL."""
        return blake2b(self.url.encode(), digest_size=6).hexdigest()

    @property
    def label(self) -> str:
        """The kind and the host, for people."""
        return f"{self.kind} {urlsplit(self.url).hostname}"


def parse_target(url: str, secret: str) -> NotifyTarget:
    """Return the target of a `--notify` URL. Raises `WrongValue` for one that could never work."""
    parts = urlsplit(url)
    kind = _KINDS.get(parts.scheme)
    if kind is None or not parts.hostname:
        raise WrongValue(
            "--notify takes https://..., slack+https://... or smtp://HOST/?from=...&to=...",
            hint=f"this one begins with {parts.scheme + ':'!r}",
        )
    if kind == "webhook":
        read_secret(secret)
    if kind == "mail" and not all(_mail_addresses(parts, name) for name in ("from", "to")):
        raise WrongValue("--notify smtp://... needs ?from=ADDRESS&to=ADDRESS")
    return NotifyTarget(kind, url)


def read_secret(secret: str) -> bytes:
    """Return the bytes of a `whsec_` secret."""
    try:
        found = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        found = b""
    if not secret.startswith(SECRET_PREFIX) or not SECRET_BYTES[0] <= len(found) <= SECRET_BYTES[1]:
        raise WrongValue(
            "webhooks are signed, and PERDURE_NOTIFY_SECRET is no secret of the form whsec_...",
            hint="make one with `perdure notify secret`, and give it to the receiver too",
        )
    return found


def sign(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """Return the `webhook-signature` of Standard Webhooks."""
    signed = f"{id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(read_secret(secret), signed, sha256)).decode()}"


def send(target: NotifyTarget, notice: Notice, secret: str, timestamp: int) -> None:
    """Send a notice once. Raises `DeliveryFailed` unless the receiver has accepted it."""
    try:
        if target.kind == "webhook":
            body = notice.webhook_body()
            signed = {"webhook-id": notice.id, "webhook-timestamp": str(timestamp)}
            _post(target.url, body, {**signed, "webhook-signature": sign(secret, notice.id, timestamp, body)})
        elif target.kind == "slack":
            text = f"*{_for_slack(notice.agent)}* asks in run {_for_slack(notice.run)}: {_for_slack(notice.text)}"
            body = msgspec.json.encode({"text": f"{text}\n<{notice.link}|Answer>"})
            _post(target.url.removeprefix("slack+"), body, {})
        else:
            _mail(target.url, notice)
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]) from error


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _connect(parts)
    try:
        connection.request("POST", path, body, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        if not 200 <= answer.status < 300:  # a redirect too: a notice goes where the operator said, or nowhere
            raise DeliveryFailed(f"the receiver answered {answer.status}")
    finally:
        connection.close()


def _connect(parts: SplitResult) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if parts.scheme == "https":
        return http.client.HTTPSConnection(
            host, parts.port, timeout=SEND_SECONDS_MAX, context=ssl.create_default_context()
        )
    return http.client.HTTPConnection(host, parts.port, timeout=SEND_SECONDS_MAX)


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _mail_addresses(parts: SplitResult, name: str) -> str:
    return ", ".join(parse_qs(parts.query).get(name, ()))


def _mail(url: str, notice: Notice) -> None:
    parts = urlsplit(url)
    message = EmailMessage()
    # A subject is one line: the text of a question may have more, and the header would be refused.
    message["Subject"] = f"{notice.agent} asks: {' '.join(notice.text.split())}"[:200]
    message["From"], message["To"] = _mail_addresses(parts, "from"), _mail_addresses(parts, "to")
    message["Message-ID"] = f"<{notice.id}@perdure>"
    message.set_content(notice.plain_text())
    kind = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    with kind(parts.hostname or "", parts.port or 0, timeout=SEND_SECONDS_MAX) as server:
        if parts.username:
            if parts.scheme == "smtp":
                server.starttls(context=ssl.create_default_context())
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(message)
