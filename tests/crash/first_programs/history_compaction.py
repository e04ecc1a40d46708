"""A conversation that is summarized when it grows. Promise: summaries are paid for once, and no message is lost."""

from perdure import Agent

agent = Agent("talker")
MAX_MESSAGES = 12


def summarize(messages):
    with open("summaries.txt", "a") as paid:
        paid.write(f"{len(messages)}\n")
    return f"Summary of {len(messages)} messages."


class ConversationManager:
    def __init__(self, run):
        self.run = run

    def add(self, role, content):
        self.run.messages.append({"role": role, "content": content})
        if len(self.run.messages) > MAX_MESSAGES:
            self.run.compact(keep=4, summarise=summarize)


with agent.run("long-talk") as run:
    conversation = ConversationManager(run)
    for number in range(1, 21):
        conversation.add("user", f"question {number}")
        conversation.add("assistant", f"answer {number}")
    print(f"{len(run.messages)} shown, {len(run.messages.raw)} kept")
    print(run.messages[-1]["content"])
