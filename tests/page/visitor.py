"""A browser without anything to see: it keeps cookies and sends forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from tests.server.harness import Client, Reply


class Visitor(Client):
    """Follows no redirects, so that tests see them."""

    def __init__(self, origin: str) -> None:
        super().__init__(origin)
        self.cookies: dict[str, str] = {}

    def request(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = super().request(method, path, body, {"cookie": cookies, **(headers or {})})
        self.close()
        if (set_cookie := answer.headers.get("set-cookie")) is not None:
            name, _, value = set_cookie.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return answer

    def post(self, path: str, headers: Mapping[str, str] | None = None, /, **fields: str) -> Reply:  # type: ignore[override]
        sent = {"content-type": "application/x-www-form-urlencoded", **(headers or {})}
        return self.request("POST", path, urlencode(fields).encode(), sent)

    def form_token(self, path: str) -> str:
        """Return the token that the forms of a page carry."""
        [token, *_] = re.findall(r'name="form_token" value="(\w+)"', self.get(path).body.decode())
        return token

    def sign_in(self, key: str, then: str = "/") -> Reply:
        """Fill in the form to sign in."""
        path = f"/login?next={quote(then, safe='')}"
        return self.post(path, key=key, form_token=self.form_token(path))
