"""A checkpoint manager. Promise: it restores the last checkpoint and repeats at most the work since then."""

from dataclasses import dataclass
from datetime import datetime

from perdure import Agent

agent = Agent("analyst")


@dataclass
class Document:
    number: int
    score: float


class CheckpointManager:
    def save(self, name, state):
        state["saved_at"] = datetime.now()
        agent.checkpoint.create(name, state)

    def load_latest(self, default):
        return agent.checkpoint.restore("analysis", default=default)


class AnalysisAgent:
    def __init__(self):
        self.checkpoints = CheckpointManager()
        self.state = self.checkpoints.load_latest(default={"documents": [], "progress": 0, "next_action": "read 1"})

    def analyze(self, number):
        with open("analyzed.txt", "a") as log:
            log.write(f"{number}\n")
        return Document(number, number / 7)

    def run(self):
        print(f"{self.state.progress}% done, next: {self.state.next_action}")
        while self.state.progress < 100:
            number = len(self.state.documents) + 1
            self.state.documents.append(self.analyze(number))
            self.state.progress = number * 2
            self.state.next_action = f"read {number + 1}"
            if self.state.progress % 10 == 0:
                self.checkpoints.save("analysis", self.state)


worker = AnalysisAgent()
worker.run()
print(f"Done: {len(worker.state.documents)} documents, the last is {worker.state.documents[-1].number}")
