"""A crawler of 40 pages that keeps its place in `agent.state`. No run, no steps: read where you were, go on from there.

Kill it after page 30 and start it again: it continues at page 31, with 30 findings. To see it again: rm -r crawler.db*
"""

from __future__ import annotations

import os

from perdure import Agent

agent = Agent("crawler", store=os.environ.get("PERDURE_URL", "crawler.db"))


def read(page: int) -> str:
    with open("pages.txt", "a") as seen:  # what really happens: a request, a model call
        seen.write(f"{page}\n")
    return f"finding on page {page}"


def keep(page: int, finding: str) -> None:
    with agent.state.transaction() as t:  # both, or none
        t.set("crawl", "page", page)
        t.update("crawl", "findings", lambda seen: [*(seen or []), finding])


if __name__ == "__main__":
    page = agent.state.get("crawl", "page", 0)  # 0 the first time
    print(f"begin at page {page + 1}", flush=True)
    while page < 40:
        page += 1
        keep(page, read(page))
    print(f"{len(agent.state.get('crawl', 'findings'))} findings")
