"""Playbooks: learned from runs, followed by cheap models, each attempt paid and counted once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perdure import Agent, AsyncAgent
from perdure.errors import InputChanged, PlaybookFailed, PlaybookNotFound, RunNotFinished, WrongType, WrongValue
from perdure.platform.failpoints import CommitMoment, Site

from .kit import World, agent_at, check_views, die, kill_at, run_in_child

TIERS = ["cheap", "strong"]
PRICES = {"cheap": 0.001, "strong": 0.06}


def learn_from_two_runs(agent: Agent) -> Any:
    @agent.step
    def search(company: str) -> list[str]:
        """Find pages about the company."""
        return [f"{company} news"]

    @agent.effect(not_done=(ConnectionError,), retries=1, backoff=0)
    def mail(to: str, *, key: str) -> str:
        return "sent"

    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError("the site is slow")
        return 7

    for company in ("Acme Ltd", "Globex"):
        with agent.run(f"r-{company}", input={"goal": "Analyse", "company": company, "lang": "en"}) as run:
            run.event("DECISION_MADE", {"what": "use the news", "why": f"{company} has no site"})
            for page in run.each(search(company)):
                run.step(len, page, name="read")
            run.step(flaky, name="count", retries=1, backoff=0)
            mail("bob")
    return agent.playbooks.learn("analysis", run=["r-Acme Ltd", "r-Globex"])


def play(agent: Agent, id: str, works: Any = lambda tier: True, **options: Any) -> Any:
    with agent.playbooks.run("analysis", id, inputs={"company": "X"}, tiers=TIERS, **options) as play:
        for step in play.steps():

            def ask(tier: str, name: str = step.name) -> str:
                play.usage(model=tier, cost_usd=PRICES[tier])
                return f"{name} by {tier}"

            answer = step.attempt(ask, verify=lambda answer: works(answer.rpartition(" ")[2]))
        play.result = answer
    return play.result


def test_a_playbook_is_learned_from_what_runs_did(store_url: str) -> None:
    agent = agent_at(store_url)
    book = learn_from_two_runs(agent)
    assert (book.version, book.inputs, book.purpose) == (1, ("company",), "Analyse")
    assert [step.name for step in book.steps] == ["search", "read", "count", "mail"]
    search, read, count, mail = book.steps
    assert (search.purpose, search.inputs) == ("Find pages about the company.", ("company",))
    assert search.decisions == ("use the news: {company} has no site",)
    assert search.examples == ("['{company} news']",)
    assert read.purpose == "read, for each item" and mail.tools == ("mail",)
    assert count.pitfalls == ("the site is slow: trying again helped",)
    assert learn_from_two_runs(agent).version == 1, "the same content is the same version"
    check_views(store_url)


def test_checks_are_learned_from_effects_and_from_steps_that_verify(store_url: str) -> None:
    agent = agent_at(store_url)

    def is_in_the_outbox(to: str, *, key: str) -> Any:
        return None

    def is_paid(to: str, *, key: str) -> Any:
        """The bank lists the payment.

        It needs a day.
        """

    pay = agent.effect(lambda to, *, key: 1, name="pay", check=is_paid)
    mail = agent.effect(lambda to, *, key: "sent", name="mail", check=is_in_the_outbox)
    with agent.run("r", input={"company": "Acme Ltd"}) as run:
        run.step(lambda: 1, name="check_alone")
        run.step(lambda: "total", name="write")
        run.step(lambda: False, name="verify_total")
        run.step(lambda: "12 pages about Acme Ltd", name="verify pages")
        run.step(lambda: None, name="tests")
        run.step(lambda: 1, name="checkout")
        mail("bob")
        pay("bob")
    checks = {step.name: step.checks for step in agent.playbooks.learn("analysis", run="r").steps}
    assert checks.pop("write") == ("verify pages gives 12 pages about {company}", "tests passes")
    assert checks.pop("mail") == ("is in the outbox finds it",)
    assert checks.pop("pay") == ("The bank lists the payment.",)
    assert set(checks.values()) == {()}


def test_versions_are_kept_compared_and_start_their_statistics_anew(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["search", {"name": "write", "checks": ["cites"]}])
    play(agent, "one")
    assert agent.playbooks.report("analysis").steps[0].tiers
    page = agent.playbooks.get("analysis").text
    assert agent.playbooks.edit("analysis", text=page).version == 1
    edited = agent.playbooks.edit("analysis", text=page + "\n**Pitfalls**\n\n- too long\n")
    assert (edited.version, edited.steps[1].pitfalls) == (2, ("too long",))
    assert "+- too long" in agent.playbooks.diff("analysis", 1, 2)
    assert [book.version for book in agent.playbooks.versions("analysis")] == [1, 2]
    assert agent.playbooks.get("analysis", 1).steps[1].pitfalls == ()
    report = agent.playbooks.report("analysis")
    assert (report.plays, report.steps[0].tiers) == (0, {})
    agent.playbooks.delete("analysis")
    assert agent.playbooks.list() == [] and agent.playbooks.report() == []
    with pytest.raises(PlaybookNotFound):
        agent.playbooks.get("analysis")


def test_a_play_of_a_deleted_playbook_does_not_count_for_the_next_one_of_its_name(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["search"])
    agent.playbooks.edit("analysis", steps=["search", "write"])
    with (
        pytest.raises(RuntimeError),
        agent.playbooks.run("analysis", "one", inputs={"company": "X"}, tiers=TIERS) as old,
    ):
        old.choose_model("search")
        raise RuntimeError
    agent.playbooks.delete("analysis")
    with pytest.raises(PlaybookNotFound):
        agent.playbooks.delete("analysis")
    assert agent.playbooks.learn("analysis", steps=["search", "write"]).version == 3
    assert [book.version for book in agent.playbooks.versions("analysis")] == [3]
    play(agent, "one")
    report = agent.playbooks.report("analysis")
    assert (report.plays, report.steps[0].tiers) == (0, {})
    play(agent, "two")
    assert agent.playbooks.report("analysis").plays == 1
    check_views(store_url)


def test_a_refused_answer_goes_one_tier_up_and_is_offered_as_a_lesson(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["search"])
    assert play(agent, "one", lambda tier: tier == "strong", tier="cheap") == "search by strong"
    tiers = agent.playbooks.report("analysis").steps[0].tiers
    assert {tier: (one.tries, one.successes, one.cost) for tier, one in tiers.items()} == {
        "cheap": (1, 0, 0.001),
        "strong": (1, 1, 0.06),
    }
    (lesson,) = agent.playbooks.lessons("analysis")
    assert lesson.step == "search" and "search by cheap, which was refused" in lesson.text
    assert agent.playbooks.accept("analysis").steps[0].pitfalls == (lesson.text,)
    assert agent.playbooks.lessons("analysis") == []


def test_when_the_strongest_is_refused_the_play_fails_and_pays_nothing_again(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["search"])
    for _ in range(2):
        with pytest.raises(PlaybookFailed, match="search by strong"):
            play(agent, "one", lambda tier: False, tier="cheap")
    assert agent.usage().calls == 2
    assert agent.playbooks.report("analysis").steps[0].tiers["strong"].tries == 1


@pytest.mark.parametrize("place", ["in", "after"])
def test_a_killed_play_pays_and_counts_each_attempt_once(store_url: str, world: World, place: str) -> None:
    def program() -> None:
        agent = agent_at(store_url)
        agent.playbooks.learn("analysis", steps=["a", "b", "c"])
        with agent.playbooks.run("analysis", "one", inputs={"n": 1}, tiers=TIERS, tier="cheap") as play:
            for step in play.steps():

                def ask(tier: str, name: str = step.name) -> str:
                    play.usage(model=tier, cost_usd=PRICES[tier])
                    world.do(f"{name} {tier}")
                    if place == "in" and world.count(f"{name} {tier}") == 1:
                        die()
                    return f"{name} {tier}"

                answer = step.attempt(ask, verify=lambda answer: answer != "b cheap")
                if place == "after" and not world.count(f"killed {step.name}"):
                    world.do(f"killed {step.name}")
                    die()
            play.result = answer

    for _ in range(6):
        if run_in_child(program) == 0:
            break
    agent = agent_at(store_url)
    assert agent.runs.result("one") == "c cheap"
    report = agent.playbooks.report("analysis")
    tries = {step.step: {tier: one.tries for tier, one in step.tiers.items()} for step in report.steps}
    assert tries == {"a": {"cheap": 1}, "b": {"cheap": 1, "strong": 1}, "c": {"cheap": 1}}
    assert report.plays == 1 and report.cost == pytest.approx(0.063)
    asked = [line for line in world.read_all() if not line.startswith("killed")]
    assert len(asked) == (8 if place == "in" else 4), "an attempt that was killed inside runs again"
    check_views(store_url)


def test_a_resumed_play_keeps_its_version_and_its_choice(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["a"])
    with pytest.raises(RuntimeError), agent.playbooks.run("analysis", "one", tiers=TIERS) as play:
        chosen = play.choose_model("a")
        raise RuntimeError
    agent.playbooks.edit("analysis", steps=["a", "b"])
    with agent.playbooks.run("analysis", "one", tiers=TIERS) as play:
        assert play.choose_model("a") == chosen
        assert [step.name for step in play.steps()] == ["a"]
        assert play.plan().playbook.version == 1
    with pytest.raises(InputChanged):
        agent.playbooks.run("analysis", "one", inputs={"n": 2}, tiers=TIERS).__enter__()


def test_a_plan_that_was_lost_in_a_crash_is_drawn_the_same_again(store_url: str, file_url: str) -> None:
    def program(url: str = store_url) -> None:
        with Agent("tester", store=url) as agent:
            agent.playbooks.learn("analysis", steps=["a", "b"])
            with agent.playbooks.run("analysis", "one", tiers=TIERS) as play:
                play.result = {name: choice.draws for name, choice in play.plan().choices.items()}

    kill_at(program, Site.STEP_DONE, CommitMoment.BEFORE)
    results = []
    for url in (store_url, file_url + ".calm"):
        assert run_in_child(partial(program, url)) == 0
        with Agent("tester", store=url) as agent:
            results.append(agent.runs.result("one"))
    assert results[0] == results[1] and results[0]["a"] != results[0]["b"]


def test_the_cost_is_read_from_the_response_of_an_sdk(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["a"])
    with agent.playbooks.run("analysis", "one", tiers=["gpt-4o"]) as play:
        for step in play.steps():
            step.attempt(lambda tier: _completion(tier), verify=lambda answer: True)
    tier = agent.playbooks.report("analysis").steps[0].tiers["gpt-4o"]
    assert (tier.tries, tier.unpriced) == (1, 0) and tier.cost > 0
    assert agent.usage().input_tokens == 1000


def _completion(model: str) -> Any:
    from openai.types.chat import ChatCompletion

    counts = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    return ChatCompletion.model_validate(
        {"id": "c", "object": "chat.completion", "created": 1, "model": model, "choices": [], "usage": counts}
    )


def test_attempts_have_prompts_with_a_beginning_that_providers_can_cache(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=[{"name": "a", "pitfalls": ["mind the gap"] * 5}])
    for number in range(3):
        with agent.playbooks.run("analysis", f"p{number}", inputs={"n": number}, tiers=["gpt-4o"]) as play:
            for step in play.steps():
                assert "mind the gap" in (prompt := step.render(budget=500)) and f"n: {number}" in prompt
                step.attempt(lambda tier: _completion(tier))
    report = agent.playbooks.report("analysis")
    known = report.steps[0].tiers["gpt-4o"]
    assert 0 < known.stable_tokens < known.prompt_tokens
    assert report.cacheable is not None and report.cacheable > 0


async def test_the_async_face_learns_distils_plays_and_reports(store_url: str) -> None:
    async with AsyncAgent("async", store=store_url) as agent:

        async def distil(book: Any) -> str:
            return str(book.text) + "\n**Checks**\n\n- cites a page\n"

        book = await agent.playbooks.learn("analysis", steps=["a"], distil=distil)
        assert book.steps[0].checks == ("cites a page [distilled]",)

        async def ask(tier: str) -> str:
            return tier

        async def good(answer: str) -> bool:
            return answer == "strong"

        async with agent.playbooks.run("analysis", "one", tiers=TIERS, tier="cheap") as play:
            async for step in play.steps():
                play.result = await step.attempt(ask, verify=good)
        report = await agent.playbooks.report("analysis")
        assert {tier: one.tries for tier, one in report.steps[0].tiers.items()} == {"cheap": 1, "strong": 1}
        assert "analysis" in str(report)


def test_a_playbook_can_be_learned_from_a_workflow(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("report", [{"step": 1, "action": "scrape", "title": "Get pages"}, "write"])
    wf.complete(1, result=["p"], note="the sitemap has all")
    book = agent.playbooks.learn("reports", workflow="report")
    assert [(step.name, step.tools) for step in book.steps] == [("scrape", ("scrape",)), ("write", ("write",))]
    assert book.steps[0].decisions == ("the sitemap has all",) and book.steps[0].purpose == "Get pages"


def test_a_workflow_tells_the_checks_of_its_steps(store_url: str) -> None:
    agent = agent_at(store_url)
    wf = agent.workflows.create("report", ["write", "verify_total", "test_links", "send", "check_inbox"])
    wf.complete(1)
    wf.complete(2, result=42)
    wf.complete(3, result=False)
    wf.complete(4)
    book = agent.playbooks.learn("reports", workflow="report")
    assert [step.checks for step in book.steps] == [("verify total gives 42",), (), (), (), ()]


def test_wrong_arguments_are_named(store_url: str) -> None:
    agent = agent_at(store_url)
    with agent.run("open") as run:
        with pytest.raises(RunNotFinished):
            agent.playbooks.learn("analysis", run="open")
        run.result = 1
    with pytest.raises(WrongValue, match="one kind of source"):
        agent.playbooks.learn("analysis")
    for steps in ([], ["a", "a"], [{"name": "a", "pitfall": "x"}]):
        with pytest.raises(WrongValue):
            agent.playbooks.learn("analysis", steps=steps)
    agent.playbooks.learn("analysis", steps=["a"])
    for wrong in (
        {"tiers": []},
        {"tiers": ["x", "x"]},
        {"tiers": TIERS, "tier": "strog"},
        {"tiers": TIERS, "target": 2},
    ):
        with pytest.raises(WrongValue):
            agent.playbooks.run("analysis", "one", **wrong)
    with pytest.raises(WrongType):
        agent.playbooks.run("analysis", "one", tiers="cheap")
    with pytest.raises(PlaybookNotFound), agent.playbooks.run("analisys", "two", tiers=TIERS) as play:
        list(play.steps())
    with pytest.raises(PlaybookNotFound, match="version 9"):
        agent.playbooks.get("analysis", 9)


def test_a_program_makes_the_call_itself_and_tells_the_outcome(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["a"])
    for _ in range(2):  # the second time, everything is replayed
        with agent.playbooks.run("analysis", "one", tiers=TIERS, tier="cheap") as play:
            assert play.choose_model("a") == "cheap"
            play.record_attempt("a", "poor", accepted=False, cost_usd=0.001)
            assert play.choose_model("a") == "strong"
            assert play.record_attempt("a", "bad", accepted=False, cost_usd=0.06) == "bad"
            with pytest.raises(PlaybookFailed, match="strong, which answered bad"):
                play.choose_model("a")
    report = agent.playbooks.report("analysis")
    assert {tier: one.tries for tier, one in report.steps[0].tiers.items()} == {"cheap": 1, "strong": 1}
    assert report.cost == pytest.approx(0.061) and report.steps[0].escalations == 1
    assert [bar.tier for bar in report.chart.success] == TIERS
    assert report.chart.cost_per_play["playbook"] == pytest.approx(0.061)


def test_an_attempt_that_reports_no_usage_has_an_unknown_cost(store_url: str) -> None:
    agent = agent_at(store_url)
    agent.playbooks.learn("analysis", steps=["a"])
    with agent.playbooks.run("analysis", "one", tiers=TIERS, tier="cheap") as play:
        for step in play.steps():
            step.attempt(lambda tier: tier)
    tier = agent.playbooks.report("analysis").steps[0].tiers["cheap"]
    assert (tier.unpriced, tier.cost_per_try) == (1, None)
