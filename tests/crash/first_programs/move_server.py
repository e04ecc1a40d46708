"""An agent that moves to another server. Promise: it continues there at the next item, and the old one cannot act."""

import os
import sys

from perdure import Agent


def crawl(agent):
    with agent.run("crawl") as run:
        for page in run.each(list(range(1, 21))):
            with open("pages.txt", "a") as log:
                log.write(f"{page}\n")
            run.state["pages"] = run.state.get("pages", 0) + 1
            agent.state.incr("totals", "pages")
        run.result = run.state["pages"]
    print(run.result, agent.state.get("totals", "pages"))


def leave():
    Agent("crawler").export("crawler.perdure", move=True, private_key=True, passphrase="secret")


def arrive():
    if not os.path.exists("server-2.db"):
        Agent.import_from("crawler.perdure", store="server-2.db", passphrase="secret")
    crawl(Agent("crawler", store="server-2.db"))


{"work": lambda: crawl(Agent("crawler")), "leave": leave, "arrive": arrive}[sys.argv[1]]()
