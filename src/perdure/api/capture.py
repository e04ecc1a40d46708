"""`perdure.capture()`: its arguments and documentation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any


def capture(
    id: str | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    agent: str = "capture",
    hosts: Iterable[str] = (),
    on_mismatch: str = "warn",
) -> AbstractContextManager[Any]:
    """Record this process's paid model calls over HTTP; after a crash, answer them from the journal.

    It works from here to the end of the process, or of a `with` block. Without an `id`, the unfinished run of this
    program is continued. `hosts` are recorded besides the known providers: `"localhost:8000"`. If a resumed program
    asks something else than recorded, `on_mismatch` decides: "warn" and pay, raise `Diverged` ("strict"), or use the
    recorded answer ("force").

    >>> with perdure.capture("report-7"):
    ...     client.responses.create(model="gpt-5.5", input="hi")
    """
    # It stands on the adapters, which stand on the public names: so it is imported when it is called.
    process = import_module("perdure.http_capture.process")
    begun: AbstractContextManager[Any] = process.begin_capture(id, store, agent, hosts, on_mismatch)
    return begun
