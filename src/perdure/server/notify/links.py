"""Links that open one question. The token is signed, ends with the question, and opens nothing else."""

from __future__ import annotations

import base64
import hmac
import re
from hashlib import sha256

import msgspec

from perdure.errors import ResourceNotFound
from perdure.store.base import Store

ANSWER_PATH = "/answer/"
LINK_SECONDS_MAX = 30 * 24 * 60 * 60
_TOKEN = re.compile(r"([a-z0-9-]{1,32})\.(\d{1,18}-\d{1,18})\.(\d{1,12})\.([\w-]{43})", re.ASCII)


class AnswerLink(msgspec.Struct, frozen=True):
    """Which question a link opens, and until when."""

    tenant: str
    question: str
    until: int
    """In seconds since 1970."""


def make_token(store: Store, tenant: str, question: str, now_ms: int) -> str:
    """Return the token of a link. `store` is the server's own, whose secret no tenant knows."""
    claim = f"{tenant}.{question}.{now_ms // 1000 + LINK_SECONDS_MAX}"
    return f"{claim}.{_sign(store, claim)}"


def read_token(store: Store, token: str, now_ms: int) -> AnswerLink:
    """Return what a token opens. Wrong and expired ones are told apart from nothing."""
    found = _TOKEN.fullmatch(token)
    claim = token.rpartition(".")[0]
    if found is None or not hmac.compare_digest(found[4], _sign(store, claim)) or int(found[3]) * 1000 < now_ms:
        raise ResourceNotFound("this link opens no question", hint="ask for a new one, or use the command line")
    return AnswerLink(found[1], found[2], int(found[3]))


def _sign(store: Store, claim: str) -> str:
    made = hmac.digest(store.secret, b"perdure answer link\0" + claim.encode(), sha256)
    return base64.urlsafe_b64encode(made).decode().rstrip("=")
