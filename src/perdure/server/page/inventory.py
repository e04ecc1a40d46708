"""The pages about what agents have, as `pages.py` lists them. A new one is one line here."""

from __future__ import annotations

from perdure.server.page import agents, checkpoints, memory, threads, workflows

PAGES = (
    agents.PAGE,
    agents.ONE,
    threads.PAGE,
    threads.ONE,
    memory.PAGE,
    memory.SUBJECT,
    memory.CONTRADICTIONS,
    memory.ONE,
    workflows.PAGE,
    workflows.ONE,
    checkpoints.PAGE,
    checkpoints.ONE,
)

MENU = (
    ("Agents", "/agents"),
    ("Threads", "/threads"),
    ("Memory", "/memory"),
    ("Workflows", "/workflows"),
    ("Checkpoints", "/checkpoints"),
)
