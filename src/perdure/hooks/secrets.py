"""Removes passwords, tokens and keys from text before it is stored."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_BLOCKS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_TOKENS = re.compile(
    r"""
    \b(?:
        sk-[A-Za-z0-9_-]{16,}                              # OpenAI, Anthropic
      | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}         # Stripe
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}     # GitHub
      | glpat-[\w-]{16,}                                    # GitLab
      | xox[abeprs]-[\w-]{10,}                              # Slack
      | (?:AKIA|ASIA)[A-Z0-9]{16}                           # AWS
      | AIza[\w-]{30,} | ya29\.[\w-]{20,}                   # Google
      | npm_[A-Za-z0-9]{30,} | pypi-[\w-]{30,} | hf_[A-Za-z0-9]{30,}
      | pdk_[\w-]{16,}
      | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*                     # JSON Web Token
    )""",
    re.VERBOSE,
)
_NAMED = re.compile(
    r"""
    (?P<name>[\w.-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential
        |authorization|PGPASSWORD|pwd)[\w-]*)
    (?P<mark>["']?\s*(?:=|:|\s(?=["']))\s*)
    (?P<value>(?:(?:bearer|basic|token)\s+)?(?:"[^"\n]*"|'[^'\n]*'|[^\s"',;&|)}\]]+))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPTIONS = re.compile(
    r"(?P<name>--?(?:password|passwd|token|secret|api-key|access-key|user|u|key))(?P<mark>[ =])(?P<value>[^\s-]\S*)",
    re.IGNORECASE,
)
_USER_OPTIONS = ("-u", "-user", "--user", "-key", "--key")
_BEARER = re.compile(r"\b(?P<name>bearer|basic)(?P<mark>\s+)(?P<value>[A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE)
_URL = re.compile(r"(?P<name>[a-z][a-z0-9+.-]*://[^\s/:@]*:)(?P<mark>)(?P<value>[^\s/@]+)(?=@)", re.IGNORECASE)


def redact(text: str) -> str:
    """Return the text without what looks like a secret. The names of secrets stay."""
    text = _BLOCKS.sub(REDACTED, text)
    text = _URL.sub(_keep_name, text)
    text = _BEARER.sub(_keep_name, text)
    text = _NAMED.sub(_keep_name, text)
    text = _OPTIONS.sub(_redact_option, text)
    return _TOKENS.sub(REDACTED, text)


def _keep_name(found: re.Match[str]) -> str:
    if found["value"].startswith(("$", REDACTED)):  # a variable, or already redacted
        return found[0]
    return f"{found['name']}{found['mark']}{REDACTED}"


def _redact_option(found: re.Match[str]) -> str:
    """Redact the value of an option. `-u name` is a secret only with a password behind a colon."""
    if found["name"].lower() in _USER_OPTIONS and ":" not in found["value"]:
        return found[0]
    return _keep_name(found)
