"""Semantics, section 2: steps."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from perdure import Agent, PerdureError
from perdure.errors import (
    Abandoned,
    EffectInsideStep,
    NotDurable,
    NotDurableWarning,
    NotStorable,
    RunFinished,
    StepTimeout,
    WrongAgent,
)
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, die, kill_at, run_in_child


def test_a_step_runs_once_and_is_remembered(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def search(city: str) -> list[str]:
        calls.append(city)
        return [city, "9:00"]

    for _ in range(2):
        with agent.run("trip") as run:
            assert search("NYC") == ["NYC", "9:00"]
            run.result = "done"
    assert calls == ["NYC"]
    assert agent.runs.result("trip") == "done"


def test_after_a_kill_finished_steps_are_not_repeated(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def work(n: int) -> int:
            world.do(f"work {n}")
            return n * n

        with agent.run("r") as run:
            run.result = [work(n) for n in range(5)]

    kill_at(program, Site.STEP_DONE, CommitMoment.AFTER, nth=3)
    assert world.read_all() == ["work 0", "work 1", "work 2"]
    program()
    assert world.read_all() == [f"work {n}" for n in range(5)]
    assert agent_at(store_url).runs.result("r") == [0, 1, 4, 9, 16]


def test_the_same_call_made_again_is_another_step_and_remembered_too(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step
        def roll() -> int:
            world.do("roll")
            return len(world.read_all())

        with agent.run("r") as run:
            run.result = [roll() for _ in range(5)]

    kill_at(program, Site.STEP_DONE, CommitMoment.AFTER, nth=3)
    program()
    assert world.read_all() == ["roll"] * 5
    assert agent_at(store_url).runs.result("r") == [1, 2, 3, 4, 5]


def test_what_a_step_writes_lands_with_it_or_not_at_all(store_url: str) -> None:
    agent = agent_at(store_url)
    fail = True

    def work(run: Any) -> str:
        run.state["seen"] = 1
        run.messages.append("hello")
        run.event("NOTED", 1)
        if fail:
            raise ValueError("no")
        return "ok"

    with pytest.raises(ValueError, match="no"), agent.run("r") as run:
        run.step(work, run, ignore=("run",))
    info = agent.runs.get("r")
    assert (info.state, info.messages) == ({}, [])

    fail = False
    with agent.run("r") as run:
        assert run.step(work, run, ignore=("run",)) == "ok"
    info = agent.runs.get("r")
    assert (info.state, info.messages) == ({"seen": 1}, ["hello"])


def test_a_kill_before_completion_drops_the_writes_of_the_step(store_url: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        with agent.run("r") as run:

            def work() -> None:
                run.state["n"] = run.state.get("n", 0) + 1

            run.step(work)

    kill_at(program, Site.STEP_DONE, CommitMoment.WRITTEN)
    assert agent_at(store_url).runs.get("r").state == {}
    program()
    assert agent_at(store_url).runs.get("r").state == {"n": 1}


def test_retries_are_counted_across_a_crash(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)

        @agent.step(retries=3, backoff=0.001)
        def flaky() -> str:
            world.do("attempt")
            raise ConnectionError("down")

        with agent.run("r"):
            flaky()

    kill_at(program, Site.ATTEMPT_FAILED, CommitMoment.AFTER, nth=2)
    assert world.count("attempt") == 2
    assert run_in_child(program) != 0
    assert world.count("attempt") == 4


def test_an_exhausted_step_raises_and_runs_again_with_fresh_attempts(store_url: str) -> None:
    agent, attempts = agent_at(store_url), []

    @agent.step(retries=1, backoff=0)
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) < 4:
            raise ConnectionError("down")
        return "up"

    for expected in (2, 4):
        if expected == 2:
            with pytest.raises(ConnectionError, match="down"), agent.run("r"):
                flaky()
            assert agent.runs.get("r").status == "failed"
        else:
            with agent.run("r"):
                assert flaky() == "up"
        assert len(attempts) == expected


def test_a_failure_that_the_run_went_past_is_raised_again(store_url: str) -> None:
    agent, attempts = agent_at(store_url), []

    @agent.step
    def flaky() -> str:
        attempts.append(1)
        raise ValueError("no")

    @agent.step
    def after() -> str:
        return "went on"

    def program(stop: bool) -> None:
        with agent.run("r"):
            with pytest.raises(ValueError, match="no"):
                flaky()
            after()
            if stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(stop=True)
    program(stop=False)
    assert len(attempts) == 1


def test_a_registered_exception_comes_back_as_itself(store_url: str) -> None:
    class Declined(Exception):
        pass

    agent = agent_at(store_url)

    @agent.step(raises=(Declined,))
    def pay() -> None:
        raise Declined("no money", 3)

    seen = []
    for _ in range(2):
        with agent.run("r"):
            try:
                pay()
            except Declined as error:
                seen.append(error.args)
    assert seen == [("no money", 3), ("no money", 3)]


def test_a_step_inside_a_step_is_a_plain_call(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def inner(n: int) -> int:
        calls.append(n)
        return n

    @agent.step
    def outer() -> int:
        return inner(1) + inner(2)

    for _ in range(2):
        with agent.run("r"):
            assert outer() == 3
    assert calls == [1, 2]
    steps = [event for event in agent.runs.get("r").events if event.kind == "StepDone"]
    assert len(steps) == 1


def test_an_effect_inside_a_step_is_refused(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay() -> None: ...

    @agent.step
    def outer() -> None:
        pay()

    with pytest.raises(EffectInsideStep), agent.run("r"):
        outer()


def test_a_step_outside_a_run_warns_once(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work() -> int:
        return 1

    with pytest.warns(NotDurableWarning, match="outside of a run"):
        assert work() == 1
    assert work() == 1  # a second warning would be an error here


def test_a_step_outside_a_run_is_refused_in_strict_mode(store_url: str) -> None:
    agent = Agent("strict", store=store_url, strict=True)

    @agent.step
    def work() -> int:
        return 1

    with pytest.raises(NotDurable):
        work()


def test_a_thread_without_the_context_is_refused_and_bind_helps(store_url: str) -> None:
    agent, results = agent_at(store_url), []

    @agent.step
    def work(n: int) -> int:
        return n

    def call(n: int) -> None:
        try:
            results.append(work(n))
        except NotDurable as error:
            results.append(type(error))

    with agent.run("r") as run:
        for target in (call, run.bind(call)):
            thread = threading.Thread(target=target, args=(1,))
            thread.start()
            thread.join()
    assert results == [NotDurable, 1]


def test_the_executor_carries_the_run(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def work(n: int) -> int:
        calls.append(n)
        return n * n

    for _ in range(2):
        with agent.run("r") as run, run.executor(4) as pool:
            assert list(pool.map(work, range(20))) == [n * n for n in range(20)]
    assert sorted(calls) == list(range(20))


def test_a_step_of_another_agent_is_refused(store_url: str) -> None:
    mine, other = agent_at(store_url, "mine"), agent_at(store_url, "other")

    @other.step
    def work() -> int:
        return 1

    with pytest.raises(WrongAgent), mine.run("r"):
        work()


def test_a_timed_out_body_cannot_write(store_url: str) -> None:
    agent, go, late = agent_at(store_url), threading.Event(), threading.Event()
    caught: list[type[BaseException]] = []

    with agent.run("r") as run:

        def slow() -> None:
            go.wait()
            try:
                run.state["late"] = 1
            except Abandoned as error:
                caught.append(type(error))
            late.set()

        with pytest.raises(StepTimeout):
            run.step(slow, timeout=0.02)
        go.set()
        late.wait()
    assert caught == [Abandoned]
    assert agent.runs.get("r").state == {}


def test_an_argument_that_cannot_be_stored_is_named(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def ask(client: Any, question: str) -> str:
        return question

    with pytest.raises(NotStorable, match=r"ask.*client.*ignore="), agent.run("r"):
        ask(object(), "hi")

    @agent.step(name="ask_ignoring", ignore=("client",))
    def ask_again(client: Any, question: str) -> str:
        return question

    with agent.run("r2"):
        assert ask_again(object(), "hi") == "hi"


def test_a_result_that_cannot_be_stored_is_named(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work() -> Any:
        return {"ok": 1, "bad": [1, object()]}

    with pytest.raises(NotStorable, match=r"work\(\)\.bad\[1\]"), agent.run("r"):
        work()


def test_methods_leave_self_out(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    class Tool:
        @agent.step
        def use(self, n: int) -> int:
            calls.append(n)
            return n + 1

    for _ in range(2):
        with agent.run("r"):
            assert Tool().use(1) == 2
            assert Tool().use.options(id="other")(1) == 2
    assert calls == [1, 1]


def test_methods_of_builtins_are_told_apart_by_what_they_work_on(store_url: str) -> None:
    agent = agent_at(store_url)
    for _ in range(2):
        with agent.run("r") as run:
            assert [run.step(str.upper, "a"), run.step(str.upper, "b"), run.step(int.__add__, 1, 2)] == ["A", "B", 3]


def test_keyword_and_positional_calls_are_the_same_call(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def work(a: int, b: int = 2, *rest: int, **more: int) -> int:
        calls.append(a)
        return a + b

    with pytest.raises(KeyboardInterrupt), agent.run("r"):
        work(1)
        raise KeyboardInterrupt
    with agent.run("r"):
        work(b=2, a=1)
    assert calls == [1]


def test_steps_match_when_added_removed_and_reordered(store_url: str) -> None:
    agent, calls = agent_at(store_url), []

    @agent.step
    def work(n: int) -> int:
        calls.append(n)
        return n

    with pytest.raises(KeyboardInterrupt), agent.run("r"):
        for n in (1, 2, 3):
            work(n)
        raise KeyboardInterrupt
    with agent.run("r"):
        for n in (3, 4, 1):
            work(n)
    assert calls == [1, 2, 3, 4]


def test_a_new_version_of_a_step_runs_again(store_url: str) -> None:
    agent, calls = agent_at(store_url), []
    for version in (1, 1, 2):

        @agent.step(name="work", version=version)
        def work() -> int:
            calls.append(1)
            return len(calls)

        with pytest.raises(KeyboardInterrupt), agent.run("r"):
            work()
            raise KeyboardInterrupt
    assert len(calls) == 2


def test_a_finished_run_does_nothing_new(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.step
    def work(n: int) -> int:
        return n

    with agent.run("r") as run:
        work(1)
        run.state["a"] = 1
        run.result = {"x": (1, 2)}
    with agent.run("r") as run:
        assert run.finished
        assert work(1) == 1
        run.state["a"] = 1
        assert run.result == {"x": (1, 2)}
        with pytest.raises(RunFinished):
            work(2)
        with pytest.raises(RunFinished):
            run.state["b"] = 1
    assert agent.runs.get("r").state == {"a": 1}


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_an_async_function_is_refused_where_nobody_would_await_it(store_url: str, kind: str) -> None:
    async def fetch(url: str) -> str:
        return url

    agent = agent_at(store_url)
    with pytest.raises(TypeError, match="fetch is async: use AsyncAgent"):
        getattr(agent, kind)(fetch)
    with pytest.raises(TypeError, match="get is async: use AsyncAgent"):
        getattr(agent, kind)(name="get")(fetch)
    with pytest.raises(TypeError, match="fetch is async: use AsyncAgent"), agent.run("r") as run:
        getattr(run, kind)(fetch, "https://example.com")
    assert not agent.runs.get("r").in_doubt


def test_every_error_is_a_perdure_error_with_a_code_and_a_hint() -> None:
    from perdure import errors

    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PerdureError)]
    codes = [kind.code for kind in kinds if kind.code != "PD000"]
    assert len(codes) == len(set(codes)) > 20
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_the_package_has_few_names_and_every_error_can_be_imported_from_it() -> None:
    import perdure
    from perdure import errors

    assert len(perdure.__all__) <= 25
    named = [name for name in perdure.__all__ if getattr(errors, name, None) is getattr(perdure, name)]
    assert named == ["InDoubt", "NotDone", "PerdureError", "RunBusy", "RunWaiting"]
    defined = {name for name, kind in vars(errors).items() if getattr(kind, "__module__", "") == errors.__name__}
    assert len(defined) > 30
    assert all(getattr(perdure, name) is getattr(errors, name) for name in defined)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        perdure.Nonsense  # noqa: B018


def test_die_helper_really_kills() -> None:
    assert run_in_child(die) == 9
