"""Semantics, sections 2-4: effects, in doubt, divergence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from perdure import Agent, Done, InDoubt, Key, NotDone, RunWaiting, Unknown
from perdure.errors import AlreadyAnswered, Diverged, NotDurable, NothingToAnswer, StepTimeout
from perdure.platform.failpoints import CommitMoment, Site
from perdure.records import EffectAgain, EffectDone
from perdure.values.clock import SystemClock

from .kit import World, agent_at, die, kill_at, kill_on_other_host


def make_payment(
    store_url: str, world: World, body: Callable[[], str] | None = None, **options: Any
) -> tuple[Agent, Callable[[], Any]]:
    """An agent with one effect that leaves its key in the world, and the program that calls it."""
    agent = agent_at(store_url)

    @agent.effect(**options)
    def pay(amount: int, *, key: str) -> str:
        world.do(key)
        return body() if body is not None else f"paid {amount}"

    def program(**how: Any) -> Any:
        with agent.run("r", **how) as run:
            run.result = pay(5)
        return run.result

    return agent, program


def make_world_check(world: World) -> Callable[..., object]:
    """A check that asks the world itself."""
    return lambda amount, *, key: Done(f"paid {amount}") if world.count(key) else NotDone


def test_an_effect_happens_once_and_is_remembered(store_url: str, world: World) -> None:
    _, program = make_payment(store_url, world)
    assert [program(), program()] == ["paid 5", "paid 5"]
    assert len(world.read_all()) == 1


def test_the_intent_is_durable_before_the_body_starts(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(*, key: str) -> str:
        [effect] = [e for e in agent.runs.get("r").events if e.kind == "EffectIntended"]
        assert effect.record.key == key  # type: ignore[attr-defined]
        return "ok"

    with agent.run("r"):
        assert pay() == "ok"


@pytest.mark.parametrize("moment", list(CommitMoment))
@pytest.mark.parametrize("site", [Site.EFFECT_INTENT, Site.EFFECT_OUTCOME])
def test_killed_around_an_effect_the_check_settles_it(
    store_url: str, world: World, site: Site, moment: CommitMoment
) -> None:
    def program() -> None:
        make_payment(store_url, world, check=make_world_check(world))[1]()

    kill_at(program, site, moment)
    program()
    assert len(world.read_all()) == 1
    assert agent_at(store_url).runs.result("r") == "paid 5"


def test_killed_after_the_effect_without_check_the_run_waits_for_a_person(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)
    with pytest.raises(RunWaiting):
        program(wait=0)
    info = agent.runs.get("r")
    assert info.status == "waiting"
    assert [(e.name, e.key, e.arguments) for e in info.in_doubt] == [("pay", world.read_all()[0], {"amount": 5})]
    agent.runs.answer("r", done="paid by hand", by="ann")
    with pytest.raises(NothingToAnswer if agent.runs.get("r").status != "waiting" else AlreadyAnswered):
        agent.runs.answer("r", done="twice")
    assert program(wait=0) == "paid by hand"
    assert len(world.read_all()) == 1
    [done] = [e.record for e in agent.runs.get("r").events if isinstance(e.record, EffectDone)]
    assert (done.how, done.note) == ("answer", "ann")


def test_an_answer_may_come_before_anybody_asked(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)
    assert agent.runs.get("r").status == "crashed"
    agent.runs.answer("r", Done("early"))
    assert program(wait=0) == "early"


def test_the_answer_retry_runs_it_again_with_the_same_key(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)
    agent.runs.answer("r", retry=True)
    assert program() == "paid 5"
    assert len(world.read_all()) == 2
    assert len(set(world.read_all())) == 1


def test_an_answer_settles_one_doubt_only(store_url: str, world: World) -> None:
    def program() -> None:
        make_payment(store_url, world)[1](wait=0)

    kill_at(program, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent_at(store_url).runs.answer("r", "retry")
    kill_at(program, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    with pytest.raises(RunWaiting):
        program()
    assert len(world.read_all()) == 2


def test_the_answer_fail_fails_the_run_for_good(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)
    agent.runs.answer("r", fail=True)
    for _ in range(2):
        with pytest.raises(InDoubt):
            program()
    assert agent.runs.get("r").status == "failed"
    assert len(world.read_all()) == 1


def test_a_waiting_run_goes_on_when_somebody_answers(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world)

    def answer() -> None:
        while agent.runs.get("r").status != "waiting":
            time.sleep(0.01)
        agent.runs.answer("r", done="answered")

    thread = threading.Thread(target=answer)
    thread.start()
    assert program(wait=20) == "answered"
    thread.join()
    assert agent.runs.get("r").status == "finished"


def test_policy_retry_repeats_with_the_same_key_and_says_so(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world, in_doubt="retry")[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world, in_doubt="retry")
    assert program() == "paid 5"
    assert len(world.read_all()) == 2
    assert len(set(world.read_all())) == 1
    assert any(isinstance(event.record, EffectAgain) for event in agent.runs.get("r").events)


def test_policy_fail_fails_with_in_doubt(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world, in_doubt="fail")[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    agent, program = make_payment(store_url, world, in_doubt="fail")
    with pytest.raises(InDoubt):
        program()
    assert agent.runs.get("r").status == "failed"
    assert len(world.read_all()) == 1


def raise_unknown(*args: object, **kwargs: object) -> None:
    raise OSError("the bank does not answer")


@pytest.mark.parametrize("check", [lambda amount, key: Unknown, raise_unknown])
def test_a_check_that_does_not_know_leaves_it_to_the_policy(
    store_url: str, world: World, check: Callable[..., object]
) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    _, program = make_payment(store_url, world, check=check)
    with pytest.raises(RunWaiting):
        program(wait=0)
    assert len(world.read_all()) == 1


def test_a_check_that_answers_nonsense_is_an_error(store_url: str, world: World) -> None:
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    with pytest.raises(TypeError, match="Done"):
        make_payment(store_url, world, check=lambda amount, key: True)[1]()


def test_a_waiting_run_asks_its_check_again(store_url: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.run.doubt.CHECK_AGAIN_SECONDS", 0.01)
    kill_at(lambda: make_payment(store_url, world)[1](), Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    asked = []

    def check(amount: int, *, key: str) -> object:
        asked.append(key)
        return Unknown if len(asked) < 4 else Done("known at last")

    assert make_payment(store_url, world, check=check)[1](wait=20) == "known at last"
    assert len(world.read_all()) == 1


def test_not_done_is_a_failure_that_may_be_retried(store_url: str, world: World) -> None:
    tries = []

    def body() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise NotDone("no seat")
        return "ok"

    _, program = make_payment(store_url, world, body, retries=2, backoff=0)
    assert program() == "ok"
    assert len(set(world.read_all())) == 1
    assert len(tries) == 3


def test_not_done_without_retries_fails_and_runs_again_on_resume(store_url: str, world: World) -> None:
    tries = []

    def body() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionRefusedError("nobody there")
        return "ok"

    agent, program = make_payment(store_url, world, body, not_done=(ConnectionRefusedError,))
    with pytest.raises(ConnectionRefusedError):
        program()
    assert agent.runs.get("r").status == "failed"
    assert program() == "ok"
    assert len(set(world.read_all())) == 1


def test_another_exception_is_in_doubt_and_the_check_is_asked_at_once(store_url: str, world: World) -> None:
    def body() -> str:
        raise TimeoutError("after the charge")

    agent, program = make_payment(store_url, world, body, check=make_world_check(world))
    assert program() == "paid 5"
    [done] = [e.record for e in agent.runs.get("r").events if isinstance(e.record, EffectDone)]
    assert done.how == "check"
    assert "after the charge" in done.note


def test_proven_absent_after_an_exception_raises_the_original(store_url: str, world: World) -> None:
    def body() -> str:
        raise TimeoutError("before the charge")

    agent, program = make_payment(store_url, world, body, check=lambda amount, key: NotDone)
    with pytest.raises(TimeoutError, match="before the charge"):
        program()
    assert agent.runs.get("r").in_doubt == []


def test_unknown_after_an_exception_is_in_doubt_and_holds_the_run(store_url: str, world: World) -> None:
    def body() -> str:
        raise TimeoutError("who knows")

    agent, program = make_payment(store_url, world, body)
    with pytest.raises(InDoubt) as caught:
        program()
    assert isinstance(caught.value.__cause__, TimeoutError)
    with pytest.raises(RunWaiting):
        program(wait=0)
    agent.runs.answer("r", done="it went through")
    assert program() == "it went through"
    assert len(world.read_all()) == 1


def test_while_in_doubt_no_other_call_of_that_name_starts(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(amount: int, *, key: str) -> str:
        world.do(key)
        raise TimeoutError("who knows")

    with pytest.raises(Diverged, match="amount=5.*is in doubt"), agent.run("r"):
        with pytest.raises(InDoubt):
            pay(5)
        pay(6)
    assert len(world.read_all()) == 1


def test_not_done_is_not_believed_while_a_timed_out_body_runs(store_url: str, world: World) -> None:
    go = threading.Event()

    def body() -> str:
        go.wait()
        return "late"

    agent, program = make_payment(store_url, world, body, timeout=0.05, check=lambda amount, key: NotDone)
    with pytest.raises(InDoubt) as caught:
        program()
    assert isinstance(caught.value.__cause__, StepTimeout)
    with pytest.raises(RunWaiting):
        program(wait=0)
    assert agent.runs.get("r").in_doubt
    go.set()
    assert len(world.read_all()) == 1


def die_while_paying(store_url: str, timeout: float | None = None) -> None:
    agent = agent_at(store_url)

    @agent.effect(name="pay", timeout=timeout)
    def pay(amount: int, *, key: str) -> None:
        die()

    with agent.run("r"):
        pay(5)


def test_not_done_is_not_believed_while_the_old_holder_may_live(store_url: str, world: World) -> None:
    kill_on_other_host(store_url, lambda: die_while_paying(store_url))
    _, program = make_payment(store_url, world, check=lambda amount, key: NotDone)
    with pytest.raises(RunWaiting):
        program(wait=0)
    assert world.read_all() == []


def test_not_done_is_believed_after_lease_and_timeout_have_passed(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_on_other_host(store_url, lambda: die_while_paying(store_url, 0.05))
    monkeypatch.setattr("perdure.run.doubt.LEASE_MS", 50)
    _, program = make_payment(store_url, world, timeout=60, check=lambda amount, key: NotDone)
    assert program(wait=60) == "paid 5"
    assert len(world.read_all()) == 1


@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "back"])
def test_a_wall_clock_that_was_set_changes_no_timeout(
    store_url: str, world: World, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Ahead, it must not end a timeout that has just begun; back, it must not keep one from ending."""
    kill_on_other_host(store_url, lambda: die_while_paying(store_url, 6000.0 if hours > 0 else 0.05))
    right = SystemClock.wall_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: right(self) + hours * 7_200_000)
    monkeypatch.setattr("perdure.run.doubt.LEASE_MS", 50)
    _, program = make_payment(store_url, world, timeout=60, check=lambda amount, key: NotDone)
    if hours > 0:
        with pytest.raises(RunWaiting, match=r"believed in (5\d{3}|6000) s"):
            program(wait=0)
        assert world.read_all() == []
    else:
        assert program(wait=60) == "paid 5"
        assert len(world.read_all()) == 1


def test_an_effect_outside_a_run_is_refused_unless_allowed(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay() -> None: ...

    @agent.effect(outside="allow")
    def note(*, key: str) -> str:
        return key

    with pytest.raises(NotDurable):
        pay()
    with pytest.warns(UserWarning, match="outside of a run"):
        assert note()


def test_the_key_goes_where_it_is_asked_for(store_url: str) -> None:
    agent, keys = agent_at(store_url), []

    @agent.effect
    def annotated(token: Key = Key("")) -> None:
        keys.append(token)

    @agent.effect
    def not_asked(key: str) -> None:
        keys.append(key)

    @agent.effect
    def given(*, key: str) -> None:
        keys.append(key)

    with agent.run("r"):
        annotated()
        not_asked("mine")
        given(key="own")
    assert len(keys[0]) == 32
    assert keys[1:] == ["mine", "own"]


def test_equal_calls_have_different_keys(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(amount: int, *, key: str) -> None:
        world.do(key)

    for _ in range(2):
        with agent.run("r"):
            pay(5)
            pay(5)
    assert len(world.read_all()) == len(set(world.read_all())) == 2


def check_changed_arguments(store_url: str, world: World, amounts: list[int], again: list[int], **how: Any) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(amount: int) -> None:
        world.do(str(amount))

    with pytest.raises(KeyboardInterrupt), agent.run("r"):
        for amount in amounts:
            pay(amount)
        raise KeyboardInterrupt
    with agent.run("r", **how):
        for amount in again:
            pay(amount)


def test_a_changed_argument_of_an_effect_diverges(store_url: str, world: World) -> None:
    with pytest.raises(Diverged, match=r"pay\(amount=6\) is new, but pay\(amount=5\)"):
        check_changed_arguments(store_url, world, [5], [6])
    assert world.read_all() == ["5"]


def test_on_change_rerun_overrides(store_url: str, world: World) -> None:
    check_changed_arguments(store_url, world, [5], [6], on_change="rerun")
    assert world.read_all() == ["5", "6"]


def test_effects_may_be_reordered_added_and_removed(store_url: str, world: World) -> None:
    check_changed_arguments(store_url, world, [1, 2], [2, 1, 3])
    assert world.read_all() == ["1", "2", "3"]


def test_an_explicit_id_replaces_the_arguments(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(amount: int) -> int:
        world.do(str(amount))
        return amount

    with pytest.raises(KeyboardInterrupt), agent.run("r"):
        assert pay.options(id="leg-1")(5) == 5
        raise KeyboardInterrupt
    with agent.run("r") as run:
        assert pay.options(id="leg-1")(6) == 5
        assert run.effect(lambda: world.do("adhoc"), id="leg-2", name="adhoc") is None
    assert world.read_all() == ["5", "adhoc"]


def test_a_result_that_cannot_be_stored_leaves_the_effect_in_doubt_not_forgotten(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def pay(*, key: str) -> object:
        world.do(key)
        return object()

    with pytest.raises(InDoubt), agent.run("r"):
        pay()
    assert [effect.name for effect in agent.runs.get("r").in_doubt] == ["pay"]
