"""Fills an agent with one of everything that the page shows."""

from __future__ import annotations

from perdure import Agent


def fill(store: str, agent_name: str, text: str) -> None:
    """Store a thread, memories, a workflow and checkpoints. All of them say `text`."""
    with Agent(agent_name, store=store) as agent:
        thread = agent.thread(f"thread {text}")
        with thread.turn(f"question {text}") as turn:
            turn.reply(f"answer {text}")
        thread.state["mood"] = text
        agent.memory.remember(f"Ann lives in Paris {text}", about=f"ann.city {text}", source=text, user=text)
        agent.memory.remember(f"Ann lives in Rome {text}", about=f"ann.city {text}", tags=[text], meta={"from": text})
        flow = agent.workflows.create(
            f"flow {text}",
            [
                {"step": "search", "action": "search", "title": f"search {text}"},
                {"step": "book", "action": "book", "depends_on": ["search"]},
                {"step": "pay", "action": "pay", "depends_on": ["search"]},
                {"step": "report", "action": "report", "depends_on": ["book", "pay"]},
            ],
        )
        flow.complete("search", result={"found": text})
        flow.block("pay", note=text)
        for progress in (1, 2):
            agent.checkpoint.create(f"point {text}", {"progress": progress, "note": text}, labels=[f"label {text}"])
