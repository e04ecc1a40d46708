"""A research agent that remembers its page. Promise: killed after page 30, it continues at page 31."""

from perdure import Agent

agent = Agent("researcher")


def fetch(page):
    with open("fetched.txt", "a") as log:
        log.write(f"{page}\n")
    return f"finding on page {page}"


last_page = agent.state.get("research", "last_page", 0)
findings = agent.state.get("research", "findings", {})
print(f"Resuming from page {last_page + 1}")

for page in range(last_page + 1, 51):
    findings[page] = fetch(page)
    agent.state.set("research", "findings", findings)
    agent.state.set("research", "last_page", page)

print(f"Done: {len(findings)} findings, the last is {findings[50]!r}")
