"""The pages about what agents and servers have, as `pages.py` lists them. A new one is one line here."""

from __future__ import annotations

from perdure.server.page import (
    agents,
    checkpoints,
    files,
    integrity,
    keys,
    memory,
    playbooks,
    tasks,
    threads,
    usage,
    workflows,
)

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
    files.PAGE,
    files.ONE,
    playbooks.PAGE,
    playbooks.ONE,
    tasks.PAGE,
    usage.PAGE,
    integrity.PAGE,
    keys.PAGE,
    keys.ONE,
)

MENU = (
    ("Agents", "/agents"),
    ("Threads", "/threads"),
    ("Memory", "/memory"),
    ("Workflows", "/workflows"),
    ("Checkpoints", "/checkpoints"),
    ("Workspace", "/workspace"),
    ("Playbooks", "/playbooks"),
    ("Tasks", "/tasks"),
    ("Usage", "/usage"),
    ("Integrity", "/integrity"),
    ("API keys", "/keys"),
)
