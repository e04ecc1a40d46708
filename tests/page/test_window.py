"""Parts of runs: a window has exactly the entries of the whole, and costs only what it shows."""

from __future__ import annotations

from perdure import Agent
from perdure.run.listing import require_run
from perdure.run.search import RunFilter, search_runs
from perdure.run.usage import money_by_day
from perdure.run.window import last_entry, read_moment, read_window
from perdure.server.page.waterfall import draw_waterfall


def fill(agent: Agent, run_id: str = "whole", steps: int = 12) -> None:
    @agent.step
    def look(number: int) -> int:
        return number

    @agent.effect
    def book(number: int) -> int:
        return number

    with agent.run(run_id) as run:
        for number in range(steps):
            look(number)
            run.state["number"] = number
            run.messages.append(f"message {number}")
        run.undo(1)
        book(1)
        run.state["booked"] = True


def test_a_window_has_the_entries_of_the_whole_also_in_a_fork(store_url: str) -> None:
    with Agent("a", store=store_url) as agent:
        fill(agent)
        agent.runs.fork("whole", at=9, to="fork")
        with agent.run("fork") as run:
            run.state["forked"] = True
        store = agent._engine.store
        for run_id in ("whole", "fork"):
            events = agent.runs.get(run_id).events
            row = require_run(store, "a", run_id)
            assert last_entry(store, row) == events[-1].seq
            for first in range(1, len(events) + 1, 3):
                window = read_window(store, row, first, 5)
                shown = [entry for entry in window.entries if entry.seq >= first]
                assert shown == [entry for entry in events if first <= entry.seq < first + 5]


def test_a_moment_is_what_the_library_says_of_it(store_url: str) -> None:
    with Agent("a", store=store_url) as agent:
        fill(agent)
        agent.runs.fork("whole", at=9, to="fork")
        store = agent._engine.store
        for run_id in ("whole", "fork"):
            row, last = require_run(store, "a", run_id), agent.runs.get(run_id).events[-1].seq
            for at in range(1, last + 1):
                info = agent.runs.get(run_id, at=at)
                moment = read_moment(store, row, at)
                assert set(moment.state) == set(info.state), (run_id, at)
                assert len(moment.messages) == len(info.messages), (run_id, at)


def test_a_window_of_a_long_run_is_as_small_as_one_of_a_short_run(store_url: str) -> None:
    """Opening a run must not depend on its length: 100,000 steps open like 100."""
    with Agent("a", store=store_url) as agent:
        fill(agent, "short", 40)
        fill(agent, "long", 400)
        store, sizes = agent._engine.store, []
        for run_id in ("short", "long"):
            row = require_run(store, "a", run_id)
            window = read_window(store, row, 60, 30)
            sizes.append(len(window.entries))
            assert len(draw_waterfall(window.entries, "finished", 0).bars) <= 30
        assert sizes == [30, 30]


def test_a_search_finds_by_name_text_and_time_and_pages_on(store_url: str) -> None:
    with Agent("a", store=store_url) as agent:
        for number in range(7):
            with agent.run(f"trip-{number}") as run:
                run.result = number
        with agent.run("other") as run:
            run.result = 1
        store = agent._engine.store
        found = search_runs(store, RunFilter(name="TRIP"), limit=4)
        assert [run.id for run in found.runs] == ["trip-6", "trip-5", "trip-4", "trip-3"]
        assert found.next is not None
        rest = search_runs(store, RunFilter(name="trip"), limit=4, after=found.next)
        assert [run.id for run in rest.runs] == ["trip-2", "trip-1", "trip-0"]
        assert rest.next is None
        assert [run.id for run in search_runs(store, RunFilter(text="othe"), limit=4).runs] == ["other"]
        middle = found.runs[1].changed_at
        assert all(run.changed_at >= middle for run in search_runs(store, RunFilter(since=middle), limit=9).runs)
        assert all(run.changed_at <= middle for run in search_runs(store, RunFilter(until=middle), limit=9).runs)


def test_money_is_counted_by_day(store_url: str) -> None:
    with Agent("a", store=store_url) as agent:
        with agent.run("paid") as run:
            run.usage(model="m", input_tokens=10, output_tokens=10, cost_usd=0.25)
        days = money_by_day(agent._engine.store, "", 3)
        assert len(days) == 3
        assert sum(day.spent for day in days) == 0.25
        assert sum(day.spent for day in money_by_day(agent._engine.store, "other")) == 0
