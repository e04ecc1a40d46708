"""Names that people try first, by class, and the name that each has here. Only error messages use them."""

from __future__ import annotations

from typing import Final


def _table(**names: str) -> dict[str, str]:
    """Turn `name="other words"` around, so that each other word leads to the name. `__` stands for a dot."""
    return {word: name.replace("__", ".") for name, words in names.items() for word in words.split()}


_RUN: Final = _table(
    event="log emit record",
    messages="history chat add_message",
    checkpoint="save save_checkpoint",
    step="call tool",
    state="memory data",
    uuid="uuid4",
)

SYNONYMS: Final[dict[str, dict[str, str]]] = {
    "Agent": _table(
        memory__remember="remember store",
        memory__recall="recall retrieve search",
        memory__forget="forget",
        state__get="get",
        state__set="set",
        checkpoint__create="save save_checkpoint save_state",
        checkpoint__restore="load load_checkpoint load_state restore",
        events__append="emit record",
        thread="messages chat conversation session",
        import_from="import_agent",
        handoff="hand_off hand_over",
    ),
    "AgentState": _table(
        get="load read fetch exists",
        set="save write put store",
        items="keys values list all",
        delete="remove pop clear",
        incr="increment add",
    ),
    "Artifacts": _table(save="put write store create", load="get read restore"),
    "Checkpoints": _table(
        create="save store write put add",
        restore="load read get latest resume rollback",
        list="exists names history versions all",
        delete="remove",
    ),
    "Events": _table(
        append="log emit add record publish write",
        read="all list get history query",
        follow="subscribe listen stream watch",
        replay="reduce fold",
    ),
    "Memories": _table(
        remember="store save add write insert put memorize memorise",
        recall="retrieve search query find lookup",
        list="all get_all",
        forget="delete remove clear erase",
        history="versions",
    ),
    "Messages": _table(append="add push"),
    "Run": _RUN,
    "Thread": _table(turn="send chat ask message append add_message", messages="history"),
    "Turn": {**_RUN, **_table(reply="answer respond send say")},
    "Workflow": _table(
        next_incomplete_step="next_step next current_step get_next_step",
        complete="complete_step mark_complete mark_completed mark_done done finish update update_step set_status save",
        start="start_step begin",
        fail="fail_step",
        resume="run execute",
    ),
    "Workflows": _table(get="load find open", create="add new define start"),
    "Workspace": _table(write="save put", read="load get open", files="list", log="note"),
}
