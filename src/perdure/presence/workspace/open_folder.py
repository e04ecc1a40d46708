"""The folder that is open with an agent, and what a run asks of it.

Every run imports this module. The rest of the workspace is imported when an agent has a folder: few have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from perdure.kernel.protocol import Protocol
from perdure.kernel.scope import FRAME
from perdure.run.item import ItemLoop, finish_current_item

if TYPE_CHECKING:
    from perdure import records as r
    from perdure.kernel.engine import Engine
    from perdure.presence.workspace.workspace import WorkspaceFolder
    from perdure.run.core import RunCore


class OpenFolder:
    """The folder that is synced with an agent, if one was named."""

    home: WorkspaceFolder | None = None


def home_of(engine: Engine) -> WorkspaceFolder | None:
    """Return the open workspace of an agent, if there is one."""
    return engine.parts.get(OpenFolder).home


def next_item(loop: ItemLoop) -> Protocol[Any]:
    """Finish the open item of a loop, show what it reported, and open the next item."""
    writes = yield from loop.finish()
    yield from _show_item(loop.run, writes)
    return (yield from loop.advance())


def item_done(run: RunCore) -> Protocol[None]:
    """`run.item_done()`: finish the item, and show what it reported."""
    yield from _show_item(run, (yield from finish_current_item(run)))


def _show_item(run: RunCore, writes: Sequence[r.RunWrite]) -> Protocol[None]:
    """The files show an item that has landed, even where an outer item is still open."""
    home = home_of(run.engine)
    if home is None or not writes:
        return
    from perdure.presence.workspace.workspace import show_item

    frame = FRAME.get()
    FRAME.set(run.root)  # what people have edited must not wait in the buffer of an item
    try:
        yield from show_item(run, home, writes)
    finally:
        FRAME.set(frame)
