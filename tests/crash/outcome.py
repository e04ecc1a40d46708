"""What the victim leaves in the end, for the harness to compare."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure import records
from perdure.journal import rebuild
from perdure.journal.verify import verify
from perdure.store.base import Store
from tests.crash.colours import settle

if TYPE_CHECKING:
    from tests.crash.victim import Cast

WEIGHTS = random.Random(8).randbytes(1_200_000)
"""Too much for the commit of its version, so that it is uploaded before."""


def is_certain(name: str) -> bool:
    """Whether a key of state must be there after every crash."""
    return not name.startswith("inside ")


def _find_torn_keys(info: Any) -> list[str]:
    """Keys written inside an effect that are there without its body's own outcome, or the other way round."""
    written = {name for name in info.state if not is_certain(name)}
    landed = set()
    for event in info.events:
        if isinstance(event.record, records.EffectDone) and event.record.how == "body":
            landed |= {write.key for write in event.record.writes}
    return sorted(written ^ landed)


def _list_landed_usage(info: Any) -> list[int]:
    """What steps, items and the open have used; an interrupted body has used more, and is not in it."""
    landed = [event.record for event in info.events if not isinstance(event.record, records.Spent)]
    usage = [one for record in landed for one in getattr(record, "usage", ())]
    return [len(usage), sum(one.input_tokens for one in usage), sum(one.cost for one in usage)]


async def report(cast: Cast) -> None:
    """Leave the outcome where the harness finds it, whole or not at all, and go in order."""
    found: dict[str, Any] = {}
    for run_id in ("journey", "errand"):
        info = await settle(cast.agent.runs.get(run_id))
        state = {name: value for name, value in info.state.items() if name != "token" and is_certain(name)}
        found[run_id] = {
            "status": info.status,
            "input": info.input,
            "result": info.result,
            "state": state,
            "messages": info.messages,
            "usage": _list_landed_usage(info),
            "in doubt": [effect.name for effect in info.in_doubt],
            "torn": _find_torn_keys(info),
        }
    store = cast.agent._engine.store
    agents = await settle(cast.agent.state.items("trip"))
    found["state of the agent"] = [[key, value] for key, value in agents if key not in ("left", "right")]
    made = await settle(cast.agent.checkpoint.list())
    found["checkpoints"] = [[stored.name, stored.version] for stored in made]
    found["restored"] = [await settle(cast.agent.checkpoint.restore(stored.name, stored.version)) for stored in made]
    # The short program has neither artifacts nor a workflow.
    saved = await settle(cast.agent.artifacts.list())
    found["artifacts"] = [[stored.name, stored.version, stored.digest] for stored in saved]
    found["loaded"] = not saved or await settle(cast.agent.artifacts.load("plan")) == WEIGHTS
    known = await settle(cast.agent.memory.list(all=True))
    found["memories"] = sorted([stored.text, stored.step, len(stored.meta), stored.place] for stored in known)
    flows = await settle(cast.agent.workflows.list())
    found["workflow"] = [[stored.step, stored.status, stored.claimed_by] for flow in flows for stored in flow.steps]
    found["views that differ from the journal"] = [str(one) for one in rebuild.check(store)]
    found["damage"] = [str(one) for one in verify(store).findings if one.severity == "damage"]
    folder = Path(cast.world.folder)
    (folder / "outcome.new").write_text(json.dumps(found, default=list))
    (folder / "outcome.new").rename(folder / "outcome.json")
    await settle(cast.agent.close())


def find_damage(store: Store) -> list[str]:
    """Damaged entries, and views that differ from the journal."""
    damage = [f"damage: {one}" for one in verify(store).findings if one.severity == "damage"]
    return [*damage, *(f"view: {one}" for one in rebuild.check(store))]
