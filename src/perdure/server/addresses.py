"""Where the stores of a server lie: one for keys, and one per tenant beside the default tenant's."""

from __future__ import annotations

import os
import re

from perdure.errors import WrongValue
from perdure.store import file_of, is_embedded, is_postgres, locate
from perdure.store.postgres.url import SCHEMA_BYTES_MAX, parse

DEFAULT_TENANT = "default"
CONNECTIONS_MAX = 40
"""Connections that a server opens to PostgreSQL, for all tenants together: two servers fit into its default of 100."""

_TENANT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_SCHEMA_PARAMETER = re.compile(r"([?&])schema=[^&]*(?:&|$)")


def check_tenant(name: str) -> str:
    """Return the name of a tenant, which becomes part of a file name or of a schema's."""
    if not _TENANT.fullmatch(name):
        raise WrongValue(
            f"tenant {name!r}: use 1 to 32 lower-case letters, digits and hyphens, with no hyphen at an end"
        )
    return name


def tenant_url(store: str, tenant: str) -> str:
    """Return the store of a tenant: the server's own, a file in a folder beside it, or a schema."""
    if tenant == DEFAULT_TENANT:
        return locate(store)
    return _beside(store, os.path.join("tenants", f"{check_tenant(tenant)}.db"), f"tenant_{tenant}")


def key_store_url(store: str) -> str:
    """Return the store of keys. It is not a tenant's, so that no tenant can write keys."""
    return _beside(store, "keys.db", "keys")


def limit_connections(store: str) -> str:
    """Return the store with a limit for the connections of all tenants, unless its URL sets one."""
    url = locate(store)
    if not is_postgres(url) or parse(url).process_connections:
        return url
    return f"{url}{'&' if '?' in url else '?'}process_connections={CONNECTIONS_MAX}"


def make_folder(url: str) -> str:
    """Create the folder of a store, for this user only, and return the URL."""
    path = file_of(url) if is_embedded(url) else None
    if path is not None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return url


def is_missing(url: str) -> bool:
    """Whether a store is a file that does not exist yet."""
    path = file_of(url) if is_embedded(url) else None
    return path is not None and not os.path.exists(path)


def _beside(store: str, file: str, schema: str) -> str:
    url = locate(store)
    if is_postgres(url):
        return _with_schema(url, f"{parse(url).schema}_{schema}")
    path = file_of(url) if is_embedded(url) else None
    if path is None:
        raise WrongValue(
            "a server needs a store in a file or on PostgreSQL", hint="give --store a path or postgresql://..."
        )
    return f"sqlite:///{os.path.splitext(path)[0]}.server/{file}"


def _with_schema(url: str, schema: str) -> str:
    if len(schema) > SCHEMA_BYTES_MAX:
        raise WrongValue(f"schema {schema!r} has more than {SCHEMA_BYTES_MAX} characters: choose a shorter tenant")
    bare = _SCHEMA_PARAMETER.sub(r"\1", url).rstrip("?&")
    return f"{bare}{'&' if '?' in bare else '?'}schema={schema}"
