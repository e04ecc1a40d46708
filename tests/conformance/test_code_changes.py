"""docs/guides/code-changes.md: the code has changed since the run began. Each line of its table, and its traps.

A program of one version leaves a run; that of the next version opens it with a new agent, as after a deploy.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from perdure import Agent, Done, NotDone, RunWaiting, stored
from perdure.errors import Diverged, InputChanged, UnknownType
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, kill_at, run_in_child


class Left(Exception):
    """The first version is left here."""


class Deploy:
    """Steps and effects that are counted, declared anew by each version of the program."""

    def __init__(self, url: str, world: World) -> None:
        self._url = url
        self.world = world
        self.agent = agent_at(url)

    def deploy_next(self) -> Deploy:
        """The next version: nothing of the old program is left but the store."""
        self.agent.close()
        return Deploy(self._url, self.world)

    def step(self, name: str, body: Callable[..., Any] | None = None, **options: Any) -> Any:
        return self.agent.step(name=name, **options)(body or self._body(name))

    def effect(self, name: str, body: Callable[..., Any] | None = None, **options: Any) -> Any:
        return self.agent.effect(name=name, **options)(body or self._body(name))

    def _body(self, name: str) -> Callable[..., Any]:
        def body(*given: Any) -> Any:
            self.world.do(f"{name}{given}".replace(",)", ")"))
            return f"{name}{len(self.world.read_all())}"

        return body

    def wider(self, name: str) -> Callable[..., Any]:
        """A body with more parameters than it had."""
        body = self._body(name)
        return lambda *given, limit=10, sort=None: body(*given)

    def run(self, program: Callable[[Any], Any], leave: bool = False, **options: Any) -> Any:
        """Open the run, and leave it when the program has ended, or let it finish."""
        try:
            with self.agent.run("r", **{"wait": 0, **options}) as run:
                run.result = program(run)
                if leave:
                    raise Left
        except Left:
            pass
        return None if leave else self.agent.runs.result("r")


@pytest.fixture
def deploy(store_url: str, world: World) -> Deploy:
    return Deploy(store_url, world)


Program = Callable[[Deploy], Callable[[Any], Any]]

# What the first version did: two steps, an effect, an effect. What the next one does, and what of it is new.


def first(d: Deploy) -> Callable[[Any], Any]:
    search, book, mail = d.step("search"), d.effect("book"), d.effect("mail")
    return lambda run: [search(1), search(2), book(1), mail(2)]


CHANGES: dict[str, tuple[Program, list[str]]] = {
    "nothing": (first, []),
    "a step added in front": (
        lambda d: lambda run, look=d.step("look"): [look(0), *first(d)(run)],
        ["look(0)"],
    ),
    "an effect added in front": (
        lambda d: lambda run, pack=d.effect("pack"), rest=first(d): [pack(0), *rest(run)],
        ["pack(0)"],
    ),
    "a step and an effect removed": (
        lambda d: lambda run, book=d.effect("book"): [book(1)],
        [],
    ),
    "all in another order": (
        lambda d: lambda run, s=d.step("search"), b=d.effect("book"), m=d.effect("mail"): [m(2), s(2), b(1), s(1)],
        [],
    ),
    "a step renamed": (
        lambda d: lambda run, find=d.step("find"): [find(1), find(2)],
        ["find(1)", "find(2)"],
    ),
    "a step renamed, with was": (
        lambda d: lambda run, find=d.step("find", was="search"): [find(1), find(2), find(3)],
        ["find(3)"],
    ),
    "an effect renamed, with was": (
        lambda d: lambda run, pay=d.effect("pay", was=["reserve", "book"]): [pay(1), pay.options(on_change="rerun")(1)],
        ["pay(1)"],
    ),
    "one split in two": (
        lambda d: lambda run, a=d.step("one", was="search"), b=d.step("two", was="search"): [a(1), b(2), a(2)],
        ["one(2)"],
    ),
    "two joined in one": (
        lambda d: lambda run, act=d.effect("act", was=("book", "mail")): [act(1), act(2)],
        [],
    ),
    "the new name of one is the old name of another": (
        lambda d: lambda run, m=d.effect("mail"), b=d.effect("letter", was="mail"): [m(2), b(9)],
        ["letter(9)"],
    ),
    "a new version of a step": (
        lambda d: lambda run, s=d.step("search", version=2), b=d.effect("book"): [s(1), b(1)],
        ["search(1)"],
    ),
    "parameters added with defaults": (
        lambda d: (
            lambda run, s=d.step("search", d.wider("search")), b=d.effect("pay", d.wider("pay"), was="book"): [
                *(s(1), s(2), s(3), s(1, limit=5)),
                *(b(1), b.options(on_change="rerun")(1)),
            ]
        ),
        ["search(3)", "search(1)", "pay(1)"],
    ),
    "other arguments of a step": (
        lambda d: lambda run, s=d.step("search"), b=d.effect("book"): [s(1, "cheap"), b(1)],
        ["search(1, 'cheap')"],
    ),
    "a step has become an effect": (
        lambda d: lambda run, s=d.effect("search"), b=d.effect("book"): [s(1), b(1)],
        [],
    ),
    "a done effect has become a step": (
        lambda d: lambda run, b=d.step("book"): [b(1)],
        [],
    ),
    "an effect in place of another, which is said to be new": (
        lambda d: lambda run, fax=d.effect("fax", was=()): [fax(2)],
        ["fax(2)"],
    ),
    "an effect in place of another, with other arguments": (
        lambda d: lambda run, fax=d.effect("fax"): [fax(7)],
        ["fax(7)"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_change_runs_again(deploy: Deploy, change: str) -> None:
    program, new = CHANGES[change]
    deploy.run(first(deploy), leave=True)
    done = deploy.world.read_all()
    assert done == ["search(1)", "search(2)", "book(1)", "mail(2)"]
    for _ in range(2):  # the second time it is left in the middle of what was new, and all of it is recorded
        deploy = deploy.deploy_next()
        deploy.run(program(deploy), leave=True)
        assert deploy.world.read_all() == done + new
    deploy = deploy.deploy_next()
    result = deploy.run(program(deploy))
    assert deploy.run(program(deploy)) == result  # finished: replayed
    assert deploy.world.read_all() == done + new


REFUSED: dict[str, tuple[Program, str, str]] = {
    "other arguments of an effect": (
        lambda d: lambda run, book=d.effect("book"): book(5),
        r"book\(given=\(5,\)\) is new, but book\(given=\(1,\)\) is recorded, and the code has not called it",
        'on_change="rerun"',
    ),
    "an effect renamed": (
        lambda d: lambda run, pay=d.effect("pay"): pay(1),
        r"pay\(given=\(1,\)\) is new, but book\(given=\(1,\)\) is recorded with the same arguments",
        'was="book"',
    ),
    "an effect renamed, with was, and other arguments": (
        lambda d: lambda run, pay=d.effect("pay", was="book"): pay(5),
        r"pay\(given=\(5,\)\) is new, but book\(given=\(1,\)\) is recorded",
        'on_change="rerun"',
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_an_effect_that_may_have_happened_is_refused_and_says_why(deploy: Deploy, change: str) -> None:
    program, message, hint = REFUSED[change]
    deploy.run(first(deploy), leave=True)
    done = deploy.world.read_all()
    deploy = deploy.deploy_next()
    with pytest.raises(Diverged, match=message) as refused:
        deploy.run(program(deploy))
    told = str(refused.value)
    assert hint in told and "run 'r', entry" in told and "nothing was executed, and everything recorded is kept" in told
    assert re.search(r"called at \S*test_code_changes\.py:\d+", told)
    assert deploy.world.read_all() == done
    deploy = deploy.deploy_next()
    deploy.run(program(deploy), on_change="rerun")  # who says so has it run
    assert len(deploy.world.read_all()) == len(done) + 1


def test_a_renamed_effect_in_doubt_is_settled_under_its_new_name(store_url: str, world: World) -> None:
    def old() -> None:
        Deploy(store_url, world).run(first(Deploy(store_url, world)))

    kill_at(old, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)  # booked, and nobody has heard
    assert world.read_all() == ["search(1)", "search(2)", "book(1)"]
    deploy = Deploy(store_url, world)

    def truth(*given: Any, key: str) -> Any:
        return Done("as found") if deploy.world.count(f"book({given[0]})") else NotDone

    pay = deploy.effect("pay", was="book")
    with pytest.raises(Diverged, match=r"pay\(given=\(3,\)\) is new, but book\(given=\(1,\)\) is in doubt"):
        deploy.run(lambda run: pay.options(on_change="rerun")(3))
    deploy = deploy.deploy_next()
    as_step = deploy.step("book")
    with pytest.raises(Diverged, match="is a step now, but was an effect"):
        deploy.run(lambda run: as_step(1))
    deploy = deploy.deploy_next()
    pay = deploy.effect("pay", was="book", check=truth)
    assert deploy.run(lambda run: pay(1)) == "as found"
    assert world.count("book(1)") == 1 and not world.count("pay(1)")


def test_a_failed_attempt_goes_on_counting_under_the_new_name(deploy: Deploy) -> None:
    def declined(n: int) -> Any:
        deploy.world.do("declined")
        raise NotDone("not today")

    for name, was in (("book", None), ("pay", "book"), ("pay", "book")):
        deploy = deploy.deploy_next()
        pay = deploy.effect(name, declined, was=was, retries=1, backoff=0.001)
        with pytest.raises(NotDone):
            deploy.run(lambda run, pay=pay: pay(1))
    assert deploy.world.count("declined") == 6
    deploy = deploy.deploy_next()
    pay = deploy.effect("pay", lambda n: deploy.world.do("paid"), was="book")
    deploy.run(lambda run: [pay(1), pay.options(id="second")(1)], on_change="rerun")
    deploy = deploy.deploy_next()
    again = deploy.effect("pay", lambda n: deploy.world.do("paid"), was="book")
    deploy.run(lambda run: [again(1), None])
    assert deploy.world.count("paid") == 2


def test_a_step_by_its_id_is_found_under_its_old_name(deploy: Deploy) -> None:
    think = deploy.step("think")
    deploy.run(lambda run: [think.options(id="plan")(1), run.step(deploy._body("ask"), 1, name="ask")], leave=True)
    deploy = deploy.deploy_next()
    plan = deploy.step("plan", was="think").options(id="plan")
    ask = deploy._body("question")
    result = deploy.run(lambda run: [plan(2), plan(3), run.step(ask, 1, name="question", was="ask")])
    assert result == ["think1", "think1", "ask2"]
    assert deploy.world.read_all() == ["think(1)", "ask(1)"]


# -- loops -----------------------------------------------------------------------------------------------------------


def loop(d: Deploy, effect: str = "post", stop: int = 0, **loops: Any) -> Callable[[Any], Any]:
    post = d.effect(effect, was=None if effect == "post" else "post")

    def program(run: Any) -> Any:
        for n in run.each([1, 2, 3], **loops):
            run.state["seen"] = run.state.get("seen", 0) + 1
            post(n)
            run.event("posted", n)
            if n == stop:
                raise Left
        return run.state["seen"]

    return program


LOOPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same": ({}, {}),
    "a name given to it": ({}, {"name": "posts", "was": 1}),
    "its name changed": ({"name": "all"}, {"name": "posts", "was": "all"}),
    "its name and that of its effect changed": ({"name": "all"}, {"name": "posts", "was": "all", "effect": "send"}),
}


@pytest.mark.parametrize("change", LOOPS)
def test_a_loop_that_is_called_otherwise_goes_on_at_the_same_item(deploy: Deploy, change: str) -> None:
    before, after = LOOPS[change]
    after = dict(after)
    effect = after.pop("effect", "post")
    deploy.run(loop(deploy, stop=2, **before), leave=True)
    deploy = deploy.deploy_next()
    deploy.run(loop(deploy, effect, stop=3, **after), leave=True)
    deploy = deploy.deploy_next()
    assert deploy.run(loop(deploy, effect, **after)) == 3
    assert deploy.world.read_all() == ["post(1)", "post(2)", f"{effect}(3)"]
    assert [event.payload for event in deploy.agent.events.read("posted")] == [1, 2, 3]


def test_what_loops_without_was_come_to(deploy: Deploy) -> None:
    """The traps of the table: they are what is documented, and not worse."""
    deploy.run(loop(deploy, stop=2), leave=True)
    deploy = deploy.deploy_next()
    deploy.run(loop(deploy, name="posts", stop=1), leave=True)  # a name without was: another loop
    assert deploy.world.read_all() == ["post(1)", "post(2)", "post(1)"]
    deploy = deploy.deploy_next()
    note = deploy.effect("note")

    def with_another_in_front(run: Any) -> None:
        for n in run.each([1, 5]):  # the first without a name: taken for the old one, whose first item is done
            note(n)

    deploy.run(with_another_in_front, leave=True)
    assert deploy.world.read_all()[3:] == ["note(5)"]


def test_items_are_found_wherever_they_stand(deploy: Deploy) -> None:
    post = deploy.effect("post")
    deploy.run(lambda run: [post(n) for n in run.each([1, 2, 3])], leave=True)
    deploy = deploy.deploy_next()
    post = deploy.effect("post")
    deploy.run(lambda run: [post(n) for n in run.each([4, 3, 1])])
    assert deploy.world.read_all() == ["post(1)", "post(2)", "post(3)", "post(4)"]


def test_run_map_finds_its_items_when_its_effect_is_renamed(deploy: Deploy) -> None:
    send = deploy.effect("send")
    deploy.run(lambda run: run.map(send, [1, 2], max_concurrency=1), leave=True)
    for _ in range(2):
        deploy = deploy.deploy_next()
        post = deploy.effect("post", was="send")
        result = deploy.run(lambda run, post=post: run.map(post, [2, 1, 3], max_concurrency=1))
    assert result == ["send2", "send1", "post3"]
    assert deploy.world.read_all() == ["send(1)", "send(2)", "post(3)"]


# -- questions -------------------------------------------------------------------------------------------------------


def asks(deploy: Deploy, *questions: str, **options: Any) -> None:
    with pytest.raises(RunWaiting):
        deploy.run(lambda run: [run.ask(question, **options) for question in questions])


def test_a_question_with_other_words_is_another_question(deploy: Deploy) -> None:
    asks(deploy, "Which seat?")
    deploy = deploy.deploy_next()
    asks(deploy, "Window or aisle?")
    assert [one.text for one in deploy.agent.runs.get("r").questions] == ["Window or aisle?"]
    deploy = deploy.deploy_next()
    asks(deploy, "Which seat?")  # the old version is back
    assert [one.text for one in deploy.agent.runs.get("r").questions] == ["Which seat?"]
    deploy.agent.runs.answer("r", "12A")
    deploy = deploy.deploy_next()
    assert deploy.run(lambda run: run.ask("Which seat?")) == "12A"


def test_a_question_with_an_id_may_change_its_words(deploy: Deploy) -> None:
    asks(deploy, "Which seat?", id="seat")
    deploy.agent.runs.answer("r", "12A")
    deploy = deploy.deploy_next()
    assert deploy.run(lambda run: run.ask("Window or aisle?", id="seat", choices=["12A"])) == "12A"


def test_sleeps_and_events_that_changed(deploy: Deploy) -> None:
    deploy.run(lambda run: run.sleep(0.001), leave=True)
    deploy = deploy.deploy_next()
    with pytest.raises(RunWaiting):  # a second one: the first is done, whatever its length is now
        deploy.run(lambda run: [run.sleep("9h"), run.sleep("9h")])
    deploy = deploy.deploy_next()
    deploy.run(lambda run: [run.sleep(0.001, id="new"), run.sleep(0.001)], leave=True)
    deploy.agent.send_event("r", "paid", 5)
    deploy = deploy.deploy_next()
    with pytest.raises(RunWaiting):
        deploy.run(lambda run: run.wait_event("payment"))
    deploy = deploy.deploy_next()
    assert deploy.run(lambda run: run.wait_event("paid")) == 5  # what was sent is there as long as nobody takes it
    assert deploy.agent.runs.get("r").questions == []


def test_a_question_that_was_removed_is_closed_when_the_run_ends(deploy: Deploy) -> None:
    asks(deploy, "Which seat?")
    deploy = deploy.deploy_next()
    assert deploy.run(lambda run: "any") == "any"
    info = deploy.agent.runs.get("r")
    assert info.status == "finished" and info.questions == []


# -- the rest --------------------------------------------------------------------------------------------------------


def test_another_input_says_what_it_was(deploy: Deploy) -> None:
    deploy.run(lambda run: None, leave=True, input={"to": "NYC"})
    with pytest.raises(InputChanged, match=r"started with \{'to': 'NYC'\}, not with \{'to': 'LON'\}"):
        deploy.run(lambda run: None, input={"to": "LON"})


def test_parameters_are_known_by_their_names(deploy: Deploy) -> None:
    send = deploy.effect("send", lambda to, text: deploy.world.do(f"{text} to {to}"))
    deploy.run(lambda run: send("Ada", text="hello"), leave=True)
    deploy = deploy.deploy_next()
    send = deploy.effect("send", lambda text, to: deploy.world.do(f"{text} to {to}, again"))
    deploy.run(lambda run: send(to="Ada", text="hello"))
    assert deploy.world.read_all() == ["hello to Ada"]


def test_a_result_that_cannot_be_read_says_whose_it_is(store_url: str, world: World) -> None:
    def old() -> None:
        @stored("a seat of old")
        @dataclass
        class Seat:
            row: int

        deploy = Deploy(store_url, world)
        choose = deploy.step("choose", lambda: Seat(12))
        deploy.run(lambda run: choose().row, leave=True)

    assert run_in_child(old) == 0
    deploy = Deploy(store_url, world)
    choose = deploy.step("choose", lambda: None)
    with pytest.raises(UnknownType, match=r"the result of choose in run 'r' \(entry 2\) cannot be read at ") as told:
        deploy.run(lambda run: choose())
    assert "a seat of old" in str(told.value) and "@perdure.stored" in str(told.value)


def test_earlier_names_are_names(store_url: str) -> None:
    agent = Agent("a", store=store_url)
    wrong: tuple[Any, ...] = (5, "", ["a", 1], [""])
    with agent.run("r") as run:
        for was in wrong:
            with pytest.raises(TypeError, match="pass the earlier name"):
                agent.step(was=was)
            with pytest.raises(TypeError, match="pass the earlier name"):
                run.step(len, "abc", was=was)
        for was in (0, "", [None], 1.5):
            with pytest.raises(TypeError, match="pass the earlier name"):
                run.each([1], was=was)  # type: ignore[arg-type]


def test_a_task_that_was_renamed_does_what_is_queued_under_its_old_name(deploy: Deploy) -> None:
    deploy.agent.task(name="report")(lambda topic: topic).start("q3", "rain")
    deploy = deploy.deploy_next()
    summary = deploy.agent.task(name="summary", was="report")(lambda topic: f"all about {topic}")
    worker = deploy.agent.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert summary.result("q3", timeout=100) == "all about rain"
    worker.drain()
    thread.join()


def test_a_crashed_run_is_gone_on_with_by_the_next_version(store_url: str, world: World) -> None:
    """For real: killed under the old code inside of an effect, and finished by a process that has the new one."""

    def old() -> None:
        deploy = Deploy(store_url, world)
        deploy.run(first(deploy))

    def new() -> None:
        deploy = Deploy(store_url, world)
        find, look = deploy.step("find", was="search"), deploy.step("look")
        pay = deploy.effect("pay", was="book", check=lambda *given, key: Done("found"))
        mail = deploy.effect("mail")
        deploy.run(lambda run: [look(0), find(1), pay(1), find(2), mail(2)])

    kill_at(old, Site.EFFECT_OUTCOME, CommitMoment.BEFORE)
    assert run_in_child(new) == 0
    assert world.read_all() == ["search(1)", "search(2)", "book(1)", "look(0)", "mail(2)"]
    assert agent_at(store_url).runs.result("r") == ["look4", "search1", "found", "search2", "mail5"]
