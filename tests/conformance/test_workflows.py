"""`agent.workflows`: plans whose steps are claimed, done once, and kept through crashes and new versions."""

from __future__ import annotations

import contextvars
from typing import Any

import msgspec
import pytest

from perdure import AsyncAgent, records
from perdure.errors import StepClaimed, StepNotReady, StoreTooNew, WorkflowChanged, WorkflowInvalid, WorkflowNotFound

from .kit import Behind, World, agent_at, check_views, die, run_in_child

PLAN: list[Any] = [
    {"step": 1, "action": "scrape", "status": "completed"},
    {"step": 2, "action": "analyse", "args": {"pages": [1, 2]}},
    {"step": 3, "action": "write"},
    {"step": 4, "action": "send"},
]


def statuses(wf: Any) -> list[str]:
    return [str(step.status) for step in wf.steps]


def test_a_program_that_was_killed_goes_on_at_its_next_incomplete_step(store_url: str, world: World) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        wf = agent.workflows.create(name="report", steps=PLAN)
        while (step := wf.next_incomplete_step()) is not None:
            wf.start(step.step)
            if step.step == 3 and not world.count("3"):
                world.do("3")
                die()
            world.do(f"{step['action']}")
            wf.complete(step.step, result=f"{step.action} done")

    run_in_child(program)
    wf = agent_at(store_url).workflows.get("report")
    left = wf.next_incomplete_step()
    assert left is not None and (left.step, left.status, left.claimed_by) == (3, "in_progress", "")
    assert [step.step for step in wf.ready_steps()] == [3]
    assert wf.progress == 50
    assert run_in_child(program) == 0
    assert world.read_all() == ["analyse", "3", "write", "send"]
    assert (wf.progress, wf.status, wf.next_incomplete_step()) == (100, "completed", None)
    assert wf.results == {1: None, 2: "analyse done", 3: "write done", 4: "send done"}
    check_views(store_url)


def test_the_same_steps_are_the_same_workflow_and_others_its_next_version(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("report", PLAN)
    wf.complete(2, result={"mean": 0.5}, note="by hand")
    wf.fail(3, note="no disk")
    again = agent.workflows.create("report", PLAN)
    assert (again.version, statuses(again)) == (1, ["completed", "completed", "failed", "pending"])
    # One in front, one removed, arguments of one changed.
    later = agent.workflows.create("report", ["login", *PLAN[1:], {"step": 9, "action": "analyse", "args": {}}][:5])
    assert [(step.step, step.action, str(step.status)) for step in later.steps] == [
        (1, "login", "pending"),
        (2, "analyse", "completed"),
        (3, "write", "failed"),
        (4, "send", "pending"),
        (9, "analyse", "pending"),
    ]
    moved = agent.workflows.create("report", ["login", "scrape", {"action": "analyse", "args": {"pages": [1, 2]}}])
    assert [(step.step, str(step.status), step.result) for step in moved.steps] == [
        (1, "pending", None),
        (2, "pending", None),  # was not in the version before this one
        (3, "completed", {"mean": 0.5}),
    ]
    assert [(workflow.version, workflow.progress) for workflow in agent.workflows.versions("report")] == [
        (1, 50),
        (2, 20),
        (3, 33),
    ]
    assert agent.workflows.get("report", version=1).step(3).note == "no disk"
    with pytest.raises(WorkflowChanged, match="newest is 3"):
        agent.workflows.get("report", version=1).complete(4)
    assert [workflow.name for workflow in agent.workflows.list()] == ["report"]
    assert agent_at(store_url, "other").workflows.list() == []
    check_views(store_url)


def test_steps_depend_on_each_other(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create(
        "site",
        [
            {"step": "publish", "depends_on": ["build", "review"]},
            {"step": "build", "depends_on": "fetch"},
            {"step": "fetch"},
            {"step": "review", "title": 'Ask [Ann] & "Bob"'},
        ],
    )
    assert [step.step for step in wf.ready_steps()] == ["fetch", "review"]
    with pytest.raises(StepNotReady, match=r"publish \(publish\) waits for build \(pending\), review \(pending\)"):
        wf.start("publish")
    wf.complete("fetch")
    wf.block("review", note="Ann is away")
    assert [step.step for step in wf.ready_steps()] == ["build"]
    wf.start("build")
    wf.complete("build")
    assert wf.ready_steps() == []
    following = wf.next_incomplete_step()
    assert following is not None and (following.step, following.status) == ("review", "blocked")
    wf.skip("review")
    assert [step.step for step in wf.ready_steps()] == ["publish"]
    with pytest.raises(StepNotReady, match="completed already"):
        wf.start("build")
    wf.reset("build")
    assert [step.step for step in wf.ready_steps()] == ["build"]
    assert str(wf) == (
        "site, version 1: 2 of 4 steps done, 50%\n"
        "  ✓ fetch\n"
        "    · build  (after fetch)\n"
        '  - review Ask [Ann] & "Bob"  (skipped)\n'
        "    · publish  (after build, review)"
    )
    assert wf.markdown().splitlines()[4:] == [
        "- [ ] **publish** (after build, review)",
        "- [ ] **build** (after fetch)",
        "- [x] **fetch**",
        '- [x] ~~review Ask \\[Ann\\] & "Bob"~~ (skipped)',
    ]
    assert wf.mermaid().splitlines()[:8] == [
        "flowchart TD",
        '    s1["publish"]:::pending',
        '    s2["build"]:::pending',
        '    s3["fetch"]:::completed',
        '    s4["review Ask [Ann] & #quot;Bob#quot;"]:::skipped',
        "    s2 --> s1",
        "    s4 --> s1",
        "    s3 --> s2",
    ]


NO_PLANS: list[tuple[Any, str]] = [
    ([], "has 0 steps"),
    ("scrape", "pass a list"),
    ([{"step": 1}], "no action"),
    ([3], "pass the name of an action"),
    (["a", {"step": 1, "action": "b"}], "two steps '1'"),
    ([{"step": "a", "depends_on": "a"}], "cycle: a -> a"),
    (
        [
            {"step": 1, "action": "a", "depends_on": 3},
            {"action": "b", "depends_on": 1},
            {"action": "c", "depends_on": 2},
        ],
        "cycle: 1 -> 3 -> 2 -> 1|cycle: 2 -> 1 -> 3 -> 2|cycle: 3 -> 2 -> 1 -> 3",
    ),
    (
        [{"step": "build"}, {"step": "push", "depends_on": ["biuld"]}],
        "did you mean 'build'",
    ),
    ([{"step": "a", "depend_on": []}], "did you mean 'depends_on'"),
    ([{"step": "a", "status": "complete"}], "did you mean 'completed'"),
    ([{"step": "a", "id": "b"}], "has 'step' twice"),
    (None, "pass a list of steps"),
]


@pytest.mark.parametrize("verb", ["fail", "block", "skip", "start"])
def test_what_is_completed_keeps_its_result_until_it_is_reset(store_url: str, verb: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["pay", "send"])
    wf.complete(1, result={"receipt": 17})
    with pytest.raises(StepNotReady, match=r"step 1 \(pay\) is completed already .*wf.reset"):
        getattr(wf, verb)(1)
    with agent.run("r") as run, pytest.raises(StepNotReady):
        run.step(lambda: getattr(wf, verb)(1), name="body")
    assert wf.complete(1, result={"receipt": 18}).result == {"receipt": 18}
    wf.skip(2)
    wf.skip(2, note="really")
    with pytest.raises(StepNotReady, match="skipped already"):
        wf.fail(2)
    wf.reset(1)
    assert (getattr(wf, verb)(1).result, wf.complete(2, result="after all").result) == (None, "after all")


def test_what_makes_no_plan_is_told(store_url: str) -> None:
    agent = agent_at(store_url)
    for steps, said in NO_PLANS:
        with pytest.raises(WorkflowInvalid, match=said):
            agent.workflows.create("w", steps)
    with pytest.raises(WorkflowNotFound, match=r"workflows\.create"):
        agent.workflows.get("w")


def test_names_that_are_not_there_say_which_are(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("deploy", [{"step": "build"}, {"step": "push"}])
    with pytest.raises(WorkflowNotFound, match="did you mean 'deploy'"):
        agent.workflows.get("depoly")
    with pytest.raises(WorkflowNotFound, match="did you mean 'push'"):
        wf.start("psuh")
    for call in (agent.workflows.create("numbered", ["scrape", "send"]).start, agent.workflows.get("numbered").step):
        with pytest.raises(WorkflowNotFound, match="that is the action of step 2"):
            call("send")
    with pytest.raises(WorkflowNotFound, match="newest version is 1"):
        agent.workflows.get("deploy", version=2)


def test_a_status_of_a_later_version_is_refused_as_that() -> None:
    later: Any = "paused"
    moved = records.WorkflowMoved(1, "w", 1, 2, "1", records.StepState(later))
    body = bytes(records.SALT_BYTES) + msgspec.msgpack.encode(records.Landed((moved,)))
    with pytest.raises(StoreTooNew):
        records.decode(records.EntryKind.LANDED, body)


# -- claims -----------------------------------------------------------------------------------------------------------


def test_a_step_is_started_by_one_and_its_holder_is_named(store_url: str, world: World) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    wf = agent.workflows.create("w", ["a", "b"])
    theirs = other.workflows.get("w", of="tester")
    assert wf.start(1).claimed_by == "agent 'tester' in this process"
    with pytest.raises(StepClaimed, match="already, in this process"):
        wf.start(1)
    for refused in (theirs.start, theirs.complete, theirs.fail, theirs.block, theirs.skip, theirs.reset):
        with pytest.raises(StepClaimed, match="agent 'tester' is at it, in process"):
            refused(1)
    wf.complete(1)
    theirs.start(2)

    def elsewhere() -> None:
        mine = agent_at(store_url).workflows.get("w")
        world.do(str(mine.step(2).claimed_by))
        try:
            mine.start(2)
        except StepClaimed as error:
            world.do(error.message)

    assert run_in_child(elsewhere) == 0
    assert (
        all("agent 'other'" in line and "process " in line for line in world.read_all()) and len(world.read_all()) == 2
    )
    theirs.complete(2, result="theirs")
    assert wf.results == {1: None, 2: "theirs"}
    check_views(store_url)


def test_a_claim_ends_with_its_process(store_url: str) -> None:
    def elsewhere() -> None:
        agent_at(store_url).workflows.create("w", ["a", "b"]).start(1)
        die()

    run_in_child(elsewhere)
    wf = agent_at(store_url).workflows.get("w")
    assert "not claimed" in str(wf)
    assert wf.start(1).ours


def test_a_worker_that_was_replaced_cannot_complete_the_step(store_url: str) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    wf = agent.workflows.create("w", ["a", "b"])
    wf.start(1)
    with Behind(store_url) as store:  # as if it had slept past its deadline
        store.execute("UPDATE holders SET deadline = 0")
    theirs = other.workflows.get("w", of="tester")
    theirs.start(1)
    theirs.complete(1, result="theirs")
    with pytest.raises(StepClaimed, match="taken over by agent 'other'"):
        wf.complete(1, result="ours")
    assert wf.step(1).result == "theirs"


def test_a_claim_goes_on_in_the_next_version(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("w", ["a", "b"])
    wf.start(1)
    agent.workflows.create("w", ["first", "a", "b"])
    wf.complete(1, result="of a, which is number 2 now")
    assert statuses(wf) == ["pending", "completed", "pending"]
    agent.workflows.create("v", ["a", "b"])
    old = agent.workflows.get("v").step(1)
    agent.workflows.create("v", ["x", "b"])
    with pytest.raises(StepNotReady):
        agent.workflows.get("v").start(2)
    assert old.action == "a"


# -- with what is around ----------------------------------------------------------------------------------------------


def test_it_lands_with_the_step_or_not_at_all(store_url: str) -> None:
    agent = agent_at(store_url)
    large = "x" * 20_000

    @agent.step
    def work(fails: bool) -> list[str]:
        wf = agent.workflows.create("w", ["a", "b", "c"])
        wf.start(1)
        wf.complete(1, result=large)
        assert wf.results == {1: large}
        if fails:
            raise ValueError("no")
        return statuses(wf)

    with pytest.raises(ValueError, match="no"), agent.run("r1"):
        work(True)
    assert agent.workflows.list() == []
    with agent.run("r2") as run:
        assert work(False) == ["completed", "pending", "pending"]
        for step in run.each([2]):
            agent.workflows.get("w").complete(step, result="in an item")
            assert agent_status(store_url, step) == "pending"
    assert agent.workflows.get("w").results == {1: large, 2: "in an item"}
    check_views(store_url)


def agent_status(store_url: str, step: int) -> str:
    """As somebody sees it who is not in the body."""

    def look() -> str:
        return str(agent_at(store_url).workflows.get("w").step(step).status)

    return contextvars.Context().run(look)


def test_a_claim_lost_at_the_end_of_a_body_keeps_its_cost(store_url: str) -> None:
    agent, other = agent_at(store_url), agent_at(store_url, "other")
    wf = agent.workflows.create("w", ["a", "b"])

    def late() -> str:
        wf.complete(1, result="ours")
        contextvars.Context().run(other.workflows.get("w", of="tester").start, 1)  # from outside of this body
        return "paid for"

    with pytest.raises(StepClaimed, match="agent 'other' is at it"), agent.run("thinks") as run:
        run.step(late)
    kept = [
        item.record.result
        for item in agent.runs.get("thinks").events
        if isinstance(item.record, records.StepFailedEntry)
    ]
    assert [b"paid for" in result for result in kept] == [True]
    other.workflows.get("w", of="tester").reset(1)
    with pytest.raises(StepClaimed, match="agent 'other' is at it"), agent.run("acts") as run:
        run.effect(late)
    assert agent.runs.get("acts").in_doubt == [], "it happened, whatever became of the workflow"
    assert wf.step(1).status == "in_progress"
    check_views(store_url)


async def test_all_of_it_can_be_awaited(store_url: str) -> None:
    agent = AsyncAgent("tester", store=store_url)
    wf = await agent.workflows.create(name="w", steps=["a", {"step": 2, "action": "b"}, "c"])
    await wf.start(1)
    with pytest.raises(StepClaimed):
        await wf.start(1)
    await wf.complete(1, result=1)
    step = await wf.next_incomplete_step()
    assert step is not None and step.step == 2 and [planned.step for planned in await wf.ready_steps()] == [2]

    @agent.step
    async def b(results: dict[Any, Any]) -> Any:
        await agent.state.incr("n", "b")
        return results[1] + 1

    def c(results: dict[Any, Any], step: Any) -> Any:
        return results[2] + 1, step.action

    assert await wf.resume(handlers={"c": c}) == {1: 1, 2: 2, 3: (3, "c")}
    assert wf.progress == 100 and "- [x] **3 c**" in await wf.markdown() and "s1 --> s2" in await wf.mermaid()
    assert [workflow.version for workflow in await agent.workflows.versions("w")] == [1]
    await agent.close()
    check_views(store_url)
