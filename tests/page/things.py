"""Fills an agent with one of everything that the page shows."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from perdure import Agent


def fill(store: str, agent_name: str, text: str) -> None:
    """Store a thread, memories, a workflow, checkpoints, files, a playbook, a queued task and costs. All say `text`."""
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
        learn_and_play(agent, text)
        agent.task(name=f"task {text}", queue=f"queue {text}")(str).start(f"queued {text}", text)
        with TemporaryDirectory() as folder:
            files = agent.workspace(folder, git=False)
            files.write("MEMORY.md", f"first {text}\n")
            files.write("MEMORY.md", f"second {text}\n")


def learn_and_play(agent: Agent, text: str) -> None:
    """Learn a playbook and play it once. Its model costs half a dollar."""
    agent.playbooks.learn("book", steps=[f"look at {text}"], purpose=text)
    with agent.playbooks.run("book", f"play {text}", tiers=[f"cheap {text}", "strong"]) as play:
        for step in play.steps():
            step.attempt(
                lambda tier: play.usage(model=f"model {text}", input_tokens=7, cost_usd=0.5) or tier, verify=bool
            )
        play.result = text
