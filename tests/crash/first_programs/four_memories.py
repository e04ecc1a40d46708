"""Working, episodic, semantic and procedural memory. Promise: each turn changes all four, or none, and does so once."""

from collections import Counter, deque

from perdure import Agent

agent = Agent("companion")

TURNS = [
    "Hello, I am Dana",
    "I live in Lisbon",
    "I prefer trains to planes",
    "Book a trip to Porto",
    "My budget is 300 euros",
    "Book a hotel with a garden",
    "I am vegetarian",
    "Goodbye",
]


class FourMemories:
    def __init__(self, run):
        self.run = run

    def process_turn(self, text):
        working = self.run.state.get("working", deque(maxlen=4))
        skills = self.run.state.get("skills", Counter())
        working.append(text)
        agent.memory.remember(f"The user said: {text}", kind="episodic", source="chat")
        if text.startswith(("I ", "My ")):
            agent.memory.remember(text, kind="semantic", about="user", source="chat")
        if text.startswith("Book"):
            skills["book"] += 1
            agent.memory.remember(f"To book, ask for the budget first ({text})", kind="procedural")
        self.run.state["working"] = working
        self.run.state["skills"] = skills
        with open("turns.txt", "a") as log:
            log.write(f"{text}\n")


with agent.run("conversation-1") as run:
    memory = FourMemories(run)
    for text in run.each(TURNS):
        memory.process_turn(text)
    print(list(run.state["working"]), dict(run.state["skills"]))

for kind in ("episodic", "semantic", "procedural"):
    print(kind, len(agent.memory.list(kind=kind)))
print(agent.memory.recall("where does the user live?", kind="semantic")[0].text)
