"""What people see: every page in a real browser, in both themes, live, with hostile texts, and without barriers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from perdure import Agent
from tests.page.browser import NEEDED, Eye, axe_source, launch_browser
from tests.page.visitor import Visitor
from tests.server.harness import Server

pytestmark = [NEEDED, pytest.mark.timeout(300)]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>javascript:alert(3)"
BIDI = "abc\u202edef"
ASKING = """
import sys, time
from perdure import Agent
agent = Agent("watched", store=sys.argv[1])

@agent.step
def think(number):
    time.sleep(0.2)
    return number

with agent.run("live") as run:
    for number in range(3):
        think(number)
    run.state["mood"] = "asking"
    if run.approve("Shall I go on?"):
        run.result = "went on"
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_browser() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    running = Server(f"sqlite:///{folder / 'perdure.db'}", folder).start()
    fill(running.store)
    yield running
    running.kill()


def fill(store: str) -> None:
    """A run with ten states, and one full of hostile texts."""
    with Agent("travel", store=store) as agent:

        @agent.step
        def look(number: int) -> int:
            return number

        with agent.run("trip", input={"city": "NYC"}) as run:
            run.messages.append({"role": "user", "content": "Book a flight"})
            for number in range(10):
                look(number)
                run.state["count"] = number
            run.event("booked", {"seat": "12A"})
            run.result = "done"
    with Agent(HOSTILE[:28], store=store) as agent:
        with agent.run(f"bad {HOSTILE[:28]}", input=HOSTILE) as run:
            run.messages.append({"role": "user", "content": HOSTILE})
            run.state[HOSTILE] = f"{BIDI}\x1b[2J{HOSTILE}"
            run.event("bad", HOSTILE)
            run.result = HOSTILE


@pytest.fixture
def look(browser: Browser, server: Server) -> Iterator[Callable[..., Eye]]:
    eyes: list[Eye] = []

    def sign_in(theme: str = "light", *options: str) -> Eye:
        visitor = Visitor(server.origin)
        visitor.sign_in(server.make_key("ann", *options))
        eyes.append(Eye(browser, server.origin, visitor.cookies, theme))
        return eyes[-1]

    yield sign_in
    for eye in eyes:
        eye.close()


TRIP = "/runs/travel/trip"
PATHS = [
    "/",
    "/runs",
    "/runs?status=finished",
    "/runs?text=nothing-fits",
    "/questions",
    *(f"{TRIP}?tab={tab}" for tab in ("timeline", "messages", "state", "events", "memory", "files", "context")),
    f"{TRIP}?entry=3",
    f"{TRIP}/cancel",
    f"{TRIP}/fork?at=5",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_loads_without_a_complaint_and_without_barriers(look: Callable[..., Eye], theme: str) -> None:
    eye, axe = look(theme), axe_source()
    for path in PATHS:
        page = eye.go(path)
        expect(page.locator("h1").first).to_be_visible()
        if axe is not None:
            page.evaluate(axe)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], path
    eye.expect_calm()


def test_pages_fit_a_small_screen(look: Callable[..., Eye]) -> None:
    eye = look()
    eye.page.set_viewport_size({"width": 360, "height": 780})
    for path in PATHS:
        page = eye.go(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_the_theme_can_be_chosen_and_is_kept(look: Callable[..., Eye]) -> None:
    page = look().go("/runs")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_a_killed_agent_is_watched_its_question_answered_and_its_end_seen(
    look: Callable[..., Eye], server: Server
) -> None:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", ASKING, server.store])

    eye, process = look(), start()
    page = eye.page
    until(lambda: page_is_there(server, "/runs/watched/live"))
    page.goto("/runs/watched/live")
    expect(page.locator(".asks")).to_contain_text("Shall I go on?")  # it appears by itself
    process.send_signal(signal.SIGKILL)
    process.wait()
    expect(page.locator("#run-id .status")).to_have_text(re.compile("crashed|waiting"))
    process = start()
    expect(page.locator(".processes li")).to_have_count(2)
    expect(page.locator(".processes .lost")).to_have_text("killed")
    page.get_by_role("link", name="Answer").click()
    page.get_by_role("button", name="Approve").click()
    expect(page).to_have_url(re.compile("/runs/watched/live$"))
    expect(page.locator("#run-id .status")).to_have_text("finished")
    expect(page.locator(".replayed").first).to_be_attached()
    assert process.wait(60) == 0
    assert "ann (key" in server_journal(server, "watched", "live")
    eye.expect_calm()


def page_is_there(server: Server, path: str) -> bool:
    """Whether a page is there yet."""
    visitor = Visitor(server.origin)
    visitor.sign_in(server.make_key("peek", "--role", "reader"))
    return visitor.get(path).status == 200


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for as long as a test may take."""
    while not holds():
        time.sleep(0.2)


def server_journal(server: Server, agent: str, run_id: str) -> str:
    with Agent(agent, store=server.store) as reader:
        return repr(reader.runs.get(run_id).events)


def test_the_slider_shows_the_state_at_ten_moments(look: Callable[..., Eye], server: Server) -> None:
    with Agent("travel", store=server.store) as agent:
        last = len(agent.runs.get("trip").events)
        wanted = {at: agent.runs.get("trip", at=at).state for at in range(last - 18, last + 1, 2)}
    assert len(wanted) == 10
    page = look().go(f"{TRIP}?tab=state")
    for at, state in wanted.items():
        page.locator("input[type=range]").fill(str(at))
        if state:
            expect(page.locator("#state pre")).to_have_text(str(state["count"]))
        else:
            expect(page.locator("#moment .calm")).to_be_visible()


def test_a_fork_says_what_runs_again_and_begins_after_the_entry(look: Callable[..., Eye], server: Server) -> None:
    eye = look()
    page = eye.go(f"{TRIP}?entry=4")
    page.get_by_role("link", name="Fork from here").click()
    expect(page.locator("main")).to_contain_text("repeats 9 calls")
    page.get_by_label("Id of the new run").fill("trip-again")
    page.get_by_role("button", name="Fork").click()
    expect(page).to_have_url(re.compile("/runs/travel/trip-again$"))
    expect(page.locator(".sums")).to_contain_text("after entry 4")
    eye.expect_calm()


def test_hostile_texts_are_only_text(look: Callable[..., Eye]) -> None:
    eye = look()
    agent = HOSTILE[:28]
    run = f"/runs/{quote(agent, safe='')}/{quote(f'bad {agent}', safe='')}"
    for tab in ("timeline", "messages", "state", "events", "context"):
        page = eye.go(f"{run}?tab={tab}")
        assert page.locator("main img[src=x], main script, main a[href^=javascript]").count() == 0
        assert "\u202e" not in page.content()
        assert "\x1b" not in page.content()
    expect(eye.go(f"{run}?tab=messages").locator(".talk")).to_contain_text(HOSTILE)
    expect(eye.go(f"{run}?tab=state").locator("#state")).to_contain_text("abc\\u202edef\\x1b[2J")
    eye.go("/runs")
    eye.expect_calm()


def test_keys_lead_through_the_list(look: Callable[..., Eye]) -> None:
    page = look().go("/runs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("tr.here")).to_have_count(1)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runs/[^/]+/[^/]+$"))


def test_a_lost_connection_is_shown_and_made_up_for(look: Callable[..., Eye], server: Server) -> None:
    eye = look()
    page, second = eye.go("/runs"), eye.open()
    second.goto("/runs")
    port = server.port
    server.kill()
    expect(page.locator("#lost")).to_be_visible()
    with Agent("travel", store=server.store) as agent, agent.run("while-away") as run:
        run.result = 1
    server.start(port)
    for tab in (page, second):
        expect(tab.locator("tbody")).to_contain_text("while-away", timeout=60_000)
        expect(tab.locator("#lost")).to_be_hidden()
    eye.expect_calm(lost=True)


def test_an_expired_session_is_told(look: Callable[..., Eye], server: Server, tmp_path: Path) -> None:
    eye = look()
    page = eye.go("/runs")
    other = eye.open()
    other.goto("/questions")
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.locator("#ended")).to_be_visible(timeout=60_000)
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert os.path.exists(server.store.removeprefix("sqlite:///"))


def test_pages_can_be_read_without_javascript(browser: Browser, server: Server) -> None:
    visitor = Visitor(server.origin)
    visitor.sign_in(server.make_key("plain"))
    context = browser.new_context(base_url=server.origin, java_script_enabled=False)
    context.add_cookies(
        [{"name": name, "value": value, "url": server.origin} for name, value in visitor.cookies.items()]
    )
    page = context.new_page()
    page.goto("/runs")
    page.get_by_role("link", name="trip", exact=True).click()
    expect(page.locator(".waterfall")).to_contain_text("look")
    page.goto(f"{TRIP}?tab=state&at=6")
    expect(page.locator("#state")).to_be_visible()
    context.close()
