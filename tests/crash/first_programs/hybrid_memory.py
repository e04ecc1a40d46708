"""Short-term list, key-value facts and long-term recall. Promise: the context has what belongs to the query."""

from perdure import Agent

agent = Agent("helper")


class HybridMemory:
    def __init__(self, user, short_term_size=6):
        self.user = user
        self.size = short_term_size
        self.short_term = agent.state.get(f"short:{user}", "messages", [])

    def add(self, role, content):
        self.short_term.append({"role": role, "content": content})
        if len(self.short_term) > self.size:
            oldest = self.short_term.pop(0)
            agent.memory.remember(f"{oldest['role']}: {oldest['content']}", kind="episodic", user=self.user)
        agent.state.set(f"short:{self.user}", "messages", self.short_term)

    def set_fact(self, key, value):
        agent.state.set(f"facts:{self.user}", key, value)

    def build_context(self, query):
        facts = [f"{key} = {value}" for key, value in agent.state.items(f"facts:{self.user}")]
        recalled = [memory.text for memory in agent.memory.recall(query, k=2, user=self.user)]
        return {"facts": facts, "recalled": recalled, "recent": [m["content"] for m in self.short_term]}


memory = HybridMemory("dana")
begin = agent.state.get("session", "messages", 0)
print(f"continue at message {begin + 1}")
topics = ["my cat is called Miso", "the printer is broken again", "I moved to Lisbon", "lunch was late"]
for number in range(begin, 16):
    memory.add("user", f"message {number + 1}: {topics[number % 4] if number < 4 else 'small talk'}")
    memory.set_fact("last message", number + 1)
    agent.state.set("session", "messages", number + 1)

context = memory.build_context("what is the cat's name?")
print(context["facts"], len(context["recent"]))
print(context["recalled"][0])
