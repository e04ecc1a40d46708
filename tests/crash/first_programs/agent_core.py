"""An agent object that is saved and loaded. Promise: the loaded one is the saved one, with every type in it."""

from collections import Counter, defaultdict, deque
from datetime import datetime

from perdure import Agent

store = Agent("core")


class AgentCore:
    def __init__(self, name):
        self.name = name
        self.created = datetime(2026, 11, 18, 9, 30)
        self.goals = {"ship", "learn"}
        self.history = deque(maxlen=5)
        self.tool_counts = Counter()
        self.notes = defaultdict(list)
        self.position = (0, 0)
        self.turns = 0

    def act(self):
        self.turns += 1
        self.history.append(f"turn {self.turns}")
        self.tool_counts["search" if self.turns % 3 else "write"] += 1
        self.notes[self.turns % 2].append(self.turns)
        self.position = (self.turns, self.turns * 2)
        with open("turns.txt", "a") as log:
            log.write(f"{self.turns}\n")

    def save(self):
        store.checkpoint.create(f"agent-{self.name}", self.__dict__)

    @classmethod
    def load(cls, name):
        agent = cls(name)
        agent.__dict__.update(store.checkpoint.restore(f"agent-{name}", default={}))
        return agent


agent = AgentCore.load("ada")
print(f"loaded at turn {agent.turns}")
while agent.turns < 20:
    agent.act()
    agent.save()

again = AgentCore.load("ada")
assert again.__dict__ == agent.__dict__
assert type(again.history) is deque and again.history.maxlen == 5
again.tool_counts["new"] += 1
again.notes["new"].append(1)
print(f"{again.turns} turns, {dict(agent.tool_counts)}, {list(agent.history)}")
