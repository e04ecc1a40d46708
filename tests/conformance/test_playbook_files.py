"""`playbooks/NAME.md`: an edit by a person is the next version, and a new version is written to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.errors import PathRefused, ValueTooLarge
from perdure.platform.failpoints import CommitMoment, Site
from perdure.values.limits import WORKSPACE_FILE_BYTES_MAX

from .kit import agent_at, check_views, kill_at

PITFALL = "\n**Pitfalls**\n\n- the cache is stale\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "home" / "playbooks" / "analysis.md"


def test_files_and_playbooks_follow_each_other(store_url: str, page: Path) -> None:
    agent = agent_at(store_url)
    workspace = agent.workspace(page.parents[1])
    book = agent.playbooks.learn("analysis", steps=["search", "write"])
    assert page.read_text() == book.text
    page.write_text(book.text.replace("## 2", "Look twice.\n\n## 2") + PITFALL)
    assert workspace.sync().read == ("playbooks/analysis.md",)
    edited = agent.playbooks.get("analysis")
    assert (edited.version, edited.steps[0].purpose) == (2, "Look twice.")
    assert edited.steps[1].pitfalls == ("the cache is stale",)
    assert workspace.sync().changed == () and agent.playbooks.get("analysis").version == 2
    assert agent.playbooks.edit("analysis", purpose="Find out.").text == page.read_text()
    page.unlink()
    workspace.sync()
    assert "Find out." in page.read_text(), "a removed file deletes no statistics: it is written again"
    agent.playbooks.delete("analysis")
    assert not page.exists()
    page.write_text("# Mine\n\n## 1. think\n")
    workspace.sync()
    assert [step.name for step in agent.playbooks.get("analysis").steps] == ["think"]
    check_views(store_url)


def test_edits_of_both_sides_are_merged_and_conflicts_wait_for_a_person(store_url: str, page: Path) -> None:
    agent = agent_at(store_url)
    workspace = agent.workspace(page.parents[1])
    page.write_text(agent.playbooks.learn("analysis", purpose="One.", steps=["search", "write"]).text + PITFALL)
    agent.playbooks.edit("analysis", purpose="Two.")
    merged = agent.playbooks.get("analysis")
    assert (merged.purpose, merged.steps[1].pitfalls) == ("Two.", ("the cache is stale",))
    page.write_text(page.read_text().replace("Two.", "Three."))
    version = agent.playbooks.edit("analysis", purpose="Four.").version
    assert workspace.sync().conflicts == ("playbooks/analysis.md",)
    assert "<<<<<<<" in page.read_text() and agent.playbooks.get("analysis").version == version
    page.write_text(merged.text.replace("Two.", "Five."))
    workspace.sync()
    assert (agent.playbooks.get("analysis").purpose, agent.playbooks.get("analysis").version) == ("Five.", version + 1)


def test_the_workspace_of_a_program_writes_playbooks_too(store_url: str, page: Path) -> None:
    agent = agent_at(store_url)
    workspace = agent.workspace(page.parents[1])
    text = agent.playbooks.learn("analysis", steps=["search"]).text
    workspace.append("playbooks/analysis.md", PITFALL)
    assert agent.playbooks.get("analysis").steps[0].pitfalls == ("the cache is stale",)
    workspace.write("playbooks/analysis.md", text)
    assert agent.playbooks.get("analysis").text == page.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no steps",
        b"## 1. a\n## 2. a\n",
        b"## 1. a\n\xff\n",
        b"## 1. " + b"a" * 200,
        b"".join(b"## %d. s%d\n" % (number, number) for number in range(201)),
        b"## 1. a\n**Pitfalls**\n- x\n" + b"y\n" * 600_000,
    ],
    ids=["empty", "no steps", "twice", "not UTF-8", "long name", "many steps", "large"],
)
def test_a_page_that_is_no_playbook_stays_and_changes_nothing(store_url: str, page: Path, text: bytes) -> None:
    agent = agent_at(store_url)
    workspace = agent.workspace(page.parents[1])
    agent.playbooks.learn("analysis", steps=["search"])
    page.write_bytes(text)
    page.with_name("other.md").write_bytes(text)
    notes = [note for note in workspace.sync().notes if "cannot be read as a playbook" in note]
    assert ["stays at version 1" in note for note in notes] == [True, False]
    assert page.read_bytes() == text
    assert [book.name for book in agent.playbooks.list()] == ["analysis"]


def test_links_and_pipes_and_large_files_are_refused(store_url: str, page: Path) -> None:
    agent = agent_at(store_url)
    workspace = agent.workspace(page.parents[1])
    agent.playbooks.learn("analysis", steps=["search"])
    secret = page.parents[2] / "secret.md"
    secret.write_text("## 1. secret\n")
    page.with_name("link.md").symlink_to(secret)
    with pytest.raises(PathRefused):
        workspace.sync()
    page.with_name("link.md").unlink()
    os.mkfifo(page.with_name("pipe.md"))
    with pytest.raises(PathRefused):
        workspace.sync()
    page.with_name("pipe.md").unlink()
    page.with_name("huge.md").write_bytes(b"## 1. a\n" * (WORKSPACE_FILE_BYTES_MAX // 8 + 1))
    with pytest.raises(ValueTooLarge):
        workspace.sync()
    page.with_name("huge.md").unlink()
    page.with_name(".hidden.md").write_text("## 1. hidden\n")
    workspace.sync()
    assert [book.name for book in agent.playbooks.list()] == ["analysis"]


@pytest.mark.parametrize("moment", [CommitMoment.BEFORE, CommitMoment.AFTER])
def test_an_edit_is_one_version_when_the_sync_is_killed(store_url: str, page: Path, moment: CommitMoment) -> None:
    agent = agent_at(store_url)
    agent.workspace(page.parents[1])
    page.write_text(agent.playbooks.learn("analysis", steps=["search"]).text + PITFALL)
    agent.close()

    kill_at(lambda: agent_at(store_url).workspace(page.parents[1]), Site.STATE, moment)
    agent = agent_at(store_url)
    agent.workspace(page.parents[1]).sync()
    assert agent.playbooks.get("analysis").version == 2
    assert "cache" in page.read_text()
