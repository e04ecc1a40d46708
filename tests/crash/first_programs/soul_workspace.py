"""A workspace with SOUL.md, MEMORY.md and daily logs. Promise: it wakes up as itself and knows what it did today."""

import os
import sys

from perdure import Agent

agent = Agent("ada")


class Workspace:
    def __init__(self, path):
        new = not os.path.exists(f"{path}/SOUL.md")
        self.files = agent.workspace(path)
        if new:
            self.files.write("SOUL.md", "I am Ada. I am curious and brief.\n")
            self.files.write("USER.md", "My user is Dana. She lives in Lisbon.\n")

    def wake_up(self):
        return str(self.files.bootstrap())

    def log(self, text):
        agent.log(text)

    def learn(self, text):
        self.files.append("MEMORY.md", f"- {text}")


workspace = Workspace("home")
context = workspace.wake_up()
print("I am Ada." in context, "Lisbon" in context)
print("done today:", sum(f"finished task {number}." in context for number in range(1, 9)))
task = int(sys.argv[1])
workspace.log(f"finished task {task}.")
workspace.learn(f"Task {task} taught me something.")
