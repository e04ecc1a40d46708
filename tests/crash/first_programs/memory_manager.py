"""A memory manager. Promise: what was stored is retrieved by its meaning in the next session, and is there once."""

from perdure import Agent

agent = Agent("assistant")

FACTS = [
    "Alice prefers aisle seats on long flights",
    "Alice is allergic to peanuts",
    "Bob runs the Berlin office",
    "The quarterly report is due on the first Monday",
    "Bob drinks his coffee black",
    "The staging server is restarted every night",
    "Alice's manager is Carol",
    "Invoices above 5000 euros need two signatures",
]


class MemoryManager:
    def store(self, content, metadata=None):
        return agent.memory.remember(content, meta=metadata)

    def retrieve(self, query, top_k=3):
        return [memory.text for memory in agent.memory.recall(query, k=top_k)]


memory = MemoryManager()
print(f"{len(agent.memory.list())} memories")
for number, fact in enumerate(FACTS):
    memory.store(fact, metadata={"number": number})  # every session begins with all of them

print(memory.retrieve("what can Alice not eat?")[0])
print(memory.retrieve("who signs large invoices?")[0])
print(f"{len(agent.memory.list())} memories")
