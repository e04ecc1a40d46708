"""Clean: what runs can do, each in the right place."""

from pathlib import Path

from perdure import Agent, Done, NotDone

agent = Agent("nouns")
WORLD = Path("world.txt")


def is_sent(to, *, key):
    return Done(to) if WORLD.exists() and key in WORLD.read_text() else NotDone


@agent.effect(check=is_sent, timeout=2)
def send(to, *, key):
    with WORLD.open("a") as world:
        world.write(f"{key} sent {to}\n")
    return to


@agent.step
def think(topic):
    agent.events.append("thought", {"topic": topic})
    agent.state.incr("all", "thoughts")
    agent.artifacts.save(f"page-{topic}", topic.encode())
    return topic.upper()


with agent.run("all") as run:
    run.state["thoughts"] = run.map(think, ["a", "b", "c"], max_concurrency=2)
    for to in run.each(["ann", "bob"]):
        run.messages.append({"role": "user", "content": send(to)})
    run.sleep(0.01)
    mood = run.ask("How do you feel?", choices=["good", "bad"])
    payment = run.wait_event("paid")
    if run.approve("Go on?"):
        run.checkpoint("half", {"mood": mood, "payment": payment})
        run.event("DECIDED", {"mood": mood})
    run.result = [mood, payment, run.state["thoughts"]]

agent.workflows.create("plan", [{"action": "think", "args": ["d"]}]).resume()
