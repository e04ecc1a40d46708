"""`wf.resume()`: the rest of a workflow, done durably, by one process or by several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perdure import Agent, Done, InDoubt, NotDone, RunWaiting
from perdure.errors import (
    EffectInsideStep,
    NothingToAnswer,
    StepClaimed,
    UnknownAction,
    WorkflowBlocked,
    WorkflowInvalid,
    WorkflowNotFound,
    WrongAgent,
)
from perdure.platform.failpoints import CommitMoment, Site

from .kit import IN_SOAK, World, agent_at, check_views, die, kill_at, run_children, run_in_child
from .test_workflows import statuses

DEPLOY = [
    {"step": "test", "args": {"suite": "all"}},
    {"step": "build"},
    {"step": "push", "args": {"to": "registry"}},
    {"step": "announce"},
]


def make_deployer(store_url: str, world: World, *, dies_in: str = "") -> Agent:
    """An agent that knows how to deploy: steps, an effect with a check, and a state of its own."""
    agent = agent_at(store_url)

    def reach(place: str) -> None:
        if place == dies_in:
            die()

    @agent.step
    def test(suite: str) -> str:
        world.do(f"test {suite}")
        reach("test")
        agent.state.incr("deploy", "tests")
        return "42 passed"

    @agent.step(name="build")
    def make_image(results: dict[Any, Any]) -> dict[str, str]:
        assert results == {"test": "42 passed"}
        world.do("build")
        return {"image": "app:1", "log": "x" * 10_000}

    def pushed(to: str, results: dict[Any, Any], *, key: str) -> Any:
        return Done(f"found {key}") if world.count(f"push {key}") else NotDone

    @agent.effect(check=pushed)
    def push(to: str, results: dict[Any, Any], *, key: str) -> str:
        assert (to, results["build"]["image"]) == ("registry", "app:1")
        reach("before the push")
        world.do(f"push {key}")
        reach("after the push")
        return "pushed"

    return agent


def announce(world: World, agent: Agent) -> Callable[..., Any]:
    """A plain function, which uses steps and effects of its own."""

    def tell(step: Any) -> str:
        for who in ("ann", "bob"):
            agent.effect(name=f"mail {who}")(lambda *, key, who=who: world.do(f"mail {who}"))()
        agent.state.set("deploy", "told", step["action"])
        return "told"

    return tell


def deploy(store_url: str, world: World, dies_in: str = "") -> dict[Any, Any]:
    agent = make_deployer(store_url, world, dies_in=dies_in)
    wf = agent.workflows.create(name="deploy", steps=DEPLOY)
    return wf.resume(handlers={"announce": announce(world, agent)})


@pytest.mark.parametrize("dies_in", ["before the push", "after the push"])
def test_a_deployment_that_was_killed_does_not_run_its_tests_again(store_url: str, world: World, dies_in: str) -> None:
    assert os.WIFSIGNALED(run_in_child(lambda: deploy(store_url, world, dies_in)))
    agent = make_deployer(store_url, world)
    wf = agent.workflows.get("deploy")
    assert statuses(wf) == ["completed", "completed", "in_progress", "pending"]
    assert agent.runs.get("deploy@1/push").status == "crashed"
    results = deploy(store_url, world)
    acts = [line.split()[0] for line in world.read_all()]
    assert acts == ["test", "build", "push", "mail", "mail"]
    assert results["announce"] == "told"
    assert results["push"] == ("pushed" if dies_in == "before the push" else results["push"]) != ""
    assert results["push"].startswith("found") == (dies_in == "after the push")
    assert agent.state.get("deploy", "tests") == 1 and agent.state.get("deploy", "told") == "announce"
    assert deploy(store_url, world) == results, "nothing is left to do"
    assert len(world.read_all()) == 5
    check_views(store_url)


COMMITS = [
    (Site.WORKFLOW, 2),
    (Site.RUN_CLAIM, 1),
    (Site.STEP_DONE, 1),
    (Site.EFFECT_INTENT, 1),
    (Site.EFFECT_OUTCOME, 2),
    (Site.RUN_END, 1),
    (Site.RUN_END, 4),
]
MOMENTS = (CommitMoment.WRITTEN, CommitMoment.AFTER)


@pytest.mark.sampled
def test_killed_at_any_commit_it_does_everything_once(store_url: str, tmp_path: Any) -> None:
    # All on one store: each deployment is a workflow of its own. Files and servers share the moments.
    first = store_url.startswith("sqlite")
    cases = [(*commit, moment) for commit in COMMITS for moment in MOMENTS]
    for number, (site, nth, moment) in enumerate(cases):
        if not IN_SOAK and (number // 2 + first) % 2 != number % 2:
            continue
        folder = tmp_path / f"{number}"
        folder.mkdir()
        world, name = World(folder), f"deploy {number}"

        def program(world: World = world, name: str = name) -> None:
            agent = make_deployer(store_url, world)
            wf = agent.workflows.create(name, DEPLOY)
            wf.resume(handlers={"announce": announce(world, agent)}, wait=0)

        kill_at(program, site, moment, nth)
        finish_all(program, agent_at(store_url))
        acts = [line.split()[0] for line in world.read_all()]
        again = (site, nth, moment) in UNRECORDED
        assert len(acts) == 5 + again and acts.count("push") == 1 and acts.count("mail") == 2, (site, nth, moment)
        assert agent_at(store_url).workflows.get(name).progress == 100
    check_views(store_url)


UNRECORDED = [(Site.STEP_DONE, 1, CommitMoment.WRITTEN)]
"""A step is safe to repeat: killed before its completion was committed, it runs again."""


def finish_all(program: Callable[[], Any], agent: Agent) -> None:
    """Until nothing waits: a mail in doubt is looked up by a person."""
    for _ in range(5):
        try:
            return program()
        except RunWaiting:
            for run in agent.runs.list(status="waiting"):
                agent.runs.answer(run.id, done="arrived", by="ann")
    raise AssertionError("it waits for ever")


def test_an_effect_in_doubt_waits_for_a_person_and_holds_nobody(store_url: str, world: World) -> None:
    def program(wait: float | None = None, dies: bool = True) -> Any:
        agent = agent_at(store_url)

        @agent.effect
        def pay(amount: int) -> str:
            world.do("paid")
            if dies:
                die()
            return "paid"

        wf = agent.workflows.create("w", [{"step": "pay", "args": [100]}, {"step": "thank"}])
        return wf.resume(handlers={"thank": lambda results: results["pay"]}, wait=wait)

    run_in_child(program)
    with pytest.raises(RunWaiting):
        program(wait=0, dies=False)
    agent = agent_at(store_url)
    wf = agent.workflows.get("w")
    assert (statuses(wf), wf.step("pay").claimed_by) == (["in_progress", "pending"], "")
    agent.runs.answer("w@1/pay", done="receipt 7")
    assert program(dies=False) == {"pay": "receipt 7", "thank": "receipt 7"}
    assert world.read_all() == ["paid"]


@pytest.mark.parametrize("verb", ["complete", "skip", "reset"])
def test_a_step_that_is_settled_by_hand_leaves_no_run_that_waits(store_url: str, verb: str) -> None:
    run_in_child(lambda: make_doubtful_bill(store_url, dies=True))
    with pytest.raises(RunWaiting):
        make_doubtful_bill(store_url)
    agent = agent_at(store_url)
    wf = agent.workflows.get("bill")
    getattr(wf, verb)(1)
    [run] = agent.runs.list()
    assert (run.id, run.status) == ("bill@1/1", "cancelled")
    info = agent.runs.get(run.id)
    assert ([effect.name for effect in info.in_doubt], info.questions) == (["charge"], [])
    with pytest.raises(NothingToAnswer, match="step 1 of workflow 'bill' was .*it needs no answer"):
        agent.runs.answer(run.id, retry=True)
    if verb != "reset":
        assert make_doubtful_bill(store_url) == ({1: None} if verb == "complete" else {})
    check_views(store_url)


def test_what_is_in_doubt_is_told_with_the_run_that_is_to_be_answered(store_url: str) -> None:
    agent = agent_at(store_url)

    @agent.effect
    def charge() -> str:
        raise TimeoutError("net")

    wf = agent.workflows.create("bill it", ["charge", "again"])
    with pytest.raises(InDoubt, match=r"perdure answer 'bill it@1/1' --store \S+ --done RESULT`"):
        wf.resume({"again": charge})
    wf.complete(1)
    with pytest.raises(InDoubt, match="perdure answer 'bill it@1/2' "):
        wf.resume({"again": lambda: charge()})


def test_a_step_that_is_failed_by_hand_still_asks_about_its_effect(store_url: str) -> None:
    run_in_child(lambda: make_doubtful_bill(store_url, dies=True))
    agent = agent_at(store_url)
    agent.workflows.get("bill").fail(1, note="who knows")
    with pytest.raises(RunWaiting):
        make_doubtful_bill(store_url)
    agent.runs.answer("bill@1/1", done="paid")
    assert make_doubtful_bill(store_url) == {1: "paid"}


def test_killed_as_a_step_is_settled_by_hand_both_have_happened_or_neither(store_url: str) -> None:
    run_in_child(lambda: make_doubtful_bill(store_url, dies=True))
    with pytest.raises(RunWaiting):
        make_doubtful_bill(store_url)

    def settle() -> None:
        agent_at(store_url).workflows.get("bill").complete(1, result="by hand")

    for moment, status, run in (
        (CommitMoment.WRITTEN, "in_progress", "waiting"),
        (CommitMoment.AFTER, "completed", "cancelled"),
    ):
        kill_at(settle, Site.WORKFLOW, moment, 1)
        agent = agent_at(store_url)
        assert statuses(agent.workflows.get("bill")) == [status]
        assert [summary.status for summary in agent.runs.list()] == [run]


def test_settled_by_hand_in_a_body_its_run_ends_with_the_body(store_url: str) -> None:
    run_in_child(lambda: make_doubtful_bill(store_url, dies=True))
    agent = agent_at(store_url)
    wf = agent.workflows.get("bill")
    with agent.run("by hand") as run:
        run.step(lambda: str(wf.complete(1, result="paid")), name="settle")
    assert agent.runs.get("bill@1/1").status == "cancelled"
    check_views(store_url)


def test_what_has_failed_and_is_done_by_hand_has_no_run_that_is_left(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["sum"])
    with pytest.raises(ZeroDivisionError):
        wf.resume(handlers={"sum": lambda run: run.step(lambda: 1 / 0, name="divide")})
    wf.complete(1, result=3)
    assert [(run.id, run.status) for run in agent.runs.list()] == [("w@1/1", "cancelled")]


def test_a_handler_that_completes_its_own_step_ends_as_every_other(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["own"])
    assert wf.resume(handlers={"own": lambda: wf.complete(1, result="early") and "late"}) == {1: "late"}
    assert [run.status for run in agent.runs.list()] == ["finished"]


def make_doubtful_bill(store_url: str, dies: bool = False) -> Any:
    """A bill whose effect may have happened, as far as it gets."""
    agent = agent_at(store_url)

    @agent.effect
    def charge() -> str:
        if dies:
            die()
        return "charged"

    return agent.workflows.create("bill", ["charge"]).resume(wait=0)


def test_a_failure_is_noted_and_tried_again_by_the_next_resume(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["a", "b", "c"])

    def b() -> str:
        world.do("b")
        if world.count("b") < 2:
            raise ConnectionError("the line broke")
        return "b"

    handlers = {"a": lambda: "a", "b": b, "c": lambda step: step.step}
    with pytest.raises(ConnectionError, match="line broke"):
        wf.resume(handlers)
    failed = wf.step(2)
    assert (failed.status, failed.note, failed.claimed_by) == ("failed", "ConnectionError: the line broke", "")
    assert wf.ready_steps() == [] and agent.runs.get("w@1/2").status == "failed"
    assert wf.resume(handlers) == {1: "a", 2: "b", 3: 3}
    wf.reset(3)
    wf.block(3, note="the shop is closed")
    with pytest.raises(WorkflowBlocked, match=r"step 3: c \(blocked\): the shop is closed"):
        wf.resume(handlers)
    wf.reset(3)
    assert wf.resume({"c": lambda: "done again"})[3] == "done again"
    assert agent.runs.list()[0].id == "w@1/3.2", "what is done again is another run"
    check_views(store_url)


def test_what_cannot_be_called_is_told_before_anything_runs(store_url: str, world: World) -> None:
    agent = agent_at(store_url)

    @agent.step
    def publish(where: str) -> None:
        world.do("published")

    @agent.step
    def first() -> None:
        world.do("first")

    with pytest.raises(UnknownAction, match=r"did you mean 'publish'\?; declare it with"):
        agent.workflows.create("w", ["first", "pubilsh"]).resume()
    with pytest.raises(WorkflowInvalid, match=r"missing a required argument: 'where'"):
        agent.workflows.create("w", ["first", "publish"]).resume()
    with pytest.raises(WorkflowInvalid, match="unexpected keyword argument 'were'"):
        agent.workflows.create("w", ["first", {"action": "publish", "args": {"where": "x", "were": 1}}]).resume()
    wf = agent.workflows.create("w", ["first", {"action": "publish", "args": "here"}])
    assert world.read_all() == []
    wf.start(1)
    with pytest.raises(StepClaimed, match="by hand in this process"):
        wf.resume()
    wf.complete(1)
    wf.resume()
    assert world.read_all() == ["published"]


def test_a_plan_can_be_followed_beside_a_step_and_not_inside(store_url: str) -> None:
    agent = agent_at(store_url)
    handlers = {"a": lambda: agent.state.incr("n", "a"), "b": lambda results: results[1] + 1}

    def follow(name: str) -> Any:
        return agent.workflows.create(name, ["a", "b"]).resume(handlers)

    with agent.run("outer") as run:
        assert follow("w") == {1: 1, 2: 2}
        with pytest.raises(EffectInsideStep, match="inside a step"):
            run.step(follow, "v")
        for _ in run.each(["item"]):
            assert follow("w") == {1: 1, 2: 2}, "what is done is not done again"
            with pytest.raises(WorkflowNotFound, match="created in this item"):
                follow("u")
    assert agent.runs.get("w@1/1").summary.parent == agent.runs.get("outer").summary.stream
    assert agent.state.get("n", "a") == 1


def test_a_plain_handler_may_use_its_run_and_a_person_may_have_a_step(store_url: str, world: World) -> None:
    agent = agent_at(store_url)
    plan = [{"step": "read", "args": [3]}, {"step": "sign", "status": "blocked", "note": "by Ann"}, {"step": "file"}]
    wf = agent.workflows.create("w", plan)

    def read(count: int, run: Any) -> int:
        for page in run.each(range(count)):
            run.step(world.do, f"page {page}")
            run.state["pages"] = run.state.get("pages", 0) + 1
            if page == 1 and world.count("crash") == 0:
                world.do("crash")
                raise ConnectionError
        return run.state["pages"]

    handlers = {"read": read, "file": lambda results: f"{results['read']} pages, {results['sign']}"}
    with pytest.raises(ConnectionError):
        wf.resume(handlers)
    with pytest.raises(WorkflowBlocked, match="sign .*: by Ann"):
        wf.resume(handlers)
    wf.complete("sign", result="signed")
    assert wf.resume(handlers)["file"] == "3 pages, signed"
    assert world.read_all() == ["page 0", "page 1", "crash", "page 2"]


def test_an_interrupted_process_lets_others_go_on(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["a"])

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wf.resume({"a": interrupted})
    assert (wf.step(1).status, wf.step(1).claimed_by) == ("in_progress", "")
    assert agent.runs.get("w@1/1").status == "interrupted"
    other = agent_at(store_url, "other").workflows.get("w", of="tester")
    assert other.resume({"a": lambda: "theirs"}) == {1: "theirs"}


# -- several processes ------------------------------------------------------------------------------------------------

WIDE: list[Any] = [
    *({"step": f"part {number}", "action": "part", "depends_on": []} for number in range(6)),
    {"step": "join", "depends_on": [f"part {number}" for number in range(6)]},
]


def make_sharing_agent(store_url: str, world: World, name: str) -> Any:
    agent = agent_at(store_url, name)

    @agent.effect
    def part(step: Any, *, key: str) -> str:
        world.do(f"{name} {step.step}")
        while len({line.split()[0] for line in world.read_all()}) < 2:
            time.sleep(0.01)  # until both are at work
        return name

    @agent.step
    def join(results: dict[str, str]) -> list[str]:
        world.do(f"{name} join")
        return sorted(set(results.values()))

    return agent.workflows.get("wide", of="a").resume()


def test_two_processes_share_a_workflow_and_no_step_is_done_twice(store_url: str, world: World) -> None:
    agent = agent_at(store_url, "a")
    wf = agent.workflows.create("wide", WIDE)
    agent.close()
    with run_children(*(partial(make_sharing_agent, store_url, world, name) for name in "ab")) as both:
        assert [os.waitpid(pid, 0)[1] for pid in both] == [0, 0]
    done = [line.split(" ", 1)[1] for line in world.read_all()]
    assert sorted(done) == sorted(item["step"] for item in WIDE)
    assert wf.results["join"] == ["a", "b"], "both have worked"
    check_views(store_url)


def test_what_a_dead_one_has_begun_is_taken_over_unless_its_effects_are_another_agents(
    store_url: str, world: World
) -> None:
    def beginning(name: str, effect: bool) -> None:
        agent = agent_at(store_url, name)
        wf = agent_at(store_url, "a").workflows.create(f"effect {effect}", ["part"])

        def part() -> None:
            world.do(f"{name} part")
            die()

        (agent.effect if effect else agent.step)(part)
        agent.workflows.get(wf.name, of="a").resume()

    for effect in (False, True):
        run_in_child(lambda effect=effect: beginning("b", effect))
    agent = agent_at(store_url, "a")
    parts = {"part": lambda: world.do("a part")}
    agent.workflows.get("effect False").resume(parts)
    with pytest.raises(WrongAgent, match="started by agent 'b'"):
        agent.workflows.get("effect True").resume(parts)
    wf = agent.workflows.get("effect True")
    wf.reset(1)
    wf.resume(parts)
    assert world.read_all() == ["b part", "b part", "a part", "a part"]
    check_views(store_url)
