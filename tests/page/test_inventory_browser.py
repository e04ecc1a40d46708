"""The pages about what agents have, in a real browser: no complaint, no barrier, nothing wider than the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.page.browser import NEEDED, Eye, axe_source, launch_browser
from tests.page.things import fill
from tests.page.visitor import Visitor
from tests.server.harness import Server

pytestmark = [NEEDED, pytest.mark.timeout(300)]

LONG = "a" * 120
PATHS = (
    "/agents",
    "/agents/ours",
    "/threads?agent=ours",
    "/threads/ours/thread%20here",
    f"/threads/other/thread%20{LONG}",
    "/memory?agent=ours",
    "/memory?agent=other&q=where+does+Ann+live",
    "/memory/ours/subject?about=ann.city%20here",
    "/memory/ours/contradictions",
    "/workflows?agent=other",
    f"/workflows/other/flow%20{LONG}",
    "/checkpoints?agent=other",
    "/checkpoints/ours/point%20here",
    "/workspace?agent=ours",
    "/workspace/ours/MEMORY.md",
    "/playbooks?agent=ours",
    "/playbooks/ours/book",
    "/tasks",
    "/usage",
    "/integrity",
    "/keys",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_browser() as found:
        yield found


@pytest.fixture(scope="module")
def full_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("inventory")
    running = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    fill(running.store, "ours", "here")
    fill(running.store, "other", LONG)
    yield running
    running.kill()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_every_page_is_whole_in_both_themes(browser: Browser, full_server: Server, theme: str, width: int) -> None:
    visitor, axe = Visitor(full_server.origin), axe_source()
    visitor.sign_in(full_server.make_key("ann", "--role", "admin"))
    [memory, *_] = re.findall(r"/memory/ours/id/\w+", visitor.get("/memory?agent=ours").body.decode())
    eye = Eye(browser, full_server.origin, visitor.cookies, theme)
    eye.page.set_viewport_size({"width": width, "height": 800})
    for path in (*PATHS, memory):
        page = eye.go(path)
        expect(page.locator("h1").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        if axe is not None:
            page.evaluate(axe)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path
    eye.expect_calm()
    eye.close()


def test_a_check_of_the_journal_is_watched_to_its_end(browser: Browser, full_server: Server) -> None:
    visitor = Visitor(full_server.origin)
    visitor.sign_in(full_server.make_key("ann", "--role", "admin"))
    eye = Eye(browser, full_server.origin, visitor.cookies)
    page = eye.go("/integrity")
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("Nothing was edited, removed or reordered.")).to_be_visible()
    eye.expect_calm()
    eye.close()
