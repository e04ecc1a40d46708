"""The public API of `agent.playbooks`: arguments and documentation. The logic is in `perdure.work.playbooks`."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, overload

from perdure.api.aio.base import AsyncFacade
from perdure.api.aio.run import AsyncRun
from perdure.errors import WrongType, WrongValue
from perdure.kernel.awaitables import is_awaitable, require_settled
from perdure.kernel.engine import Engine
from perdure.kernel.names import check_identifier
from perdure.kernel.protocol import Protocol
from perdure.presence.workspace.layout import PLAYBOOKS
from perdure.presence.workspace.open_folder import home_of
from perdure.presence.workspace.workspace import update_files
from perdure.values.attributes import KnownAttributes
from perdure.work.playbooks import definition, learn, page, play, report, shelf
from perdure.work.playbooks.choice import ChoiceRules
from perdure.work.playbooks.definition import Playbook, PlaybookStep
from perdure.work.playbooks.page import RenderedStep
from perdure.work.playbooks.play import FinishedAttempt, PlayAttempt, PlayPlan, RefusedAnswer
from perdure.work.playbooks.report import PlaybookReport
from perdure.work.playbooks.shelf import Lesson


class AsyncPlaybooks(AsyncFacade):
    """`agent.playbooks`: what a strong model worked out, kept so that a cheap one can follow it.

    >>> await agent.playbooks.learn("analysis", run="r-17")
    >>> async with agent.playbooks.run("analysis", "cust-9", inputs={"company": "X"}, tiers=["haiku", "opus"]) as play:
    ...     async for step in play.steps():
    ...         answer = await step.attempt(lambda tier: ask(tier, step.render()), verify=good)
    ...     play.result = answer
    """

    __slots__ = ()

    async def learn(
        self,
        name: str,
        *,
        run: str | Sequence[str] | None = None,
        workflow: str | None = None,
        steps: Sequence[str | Mapping[str, Any]] | None = None,
        purpose: str | None = None,
        inputs: Sequence[str] | None = None,
        distil: Callable[[Playbook], Any] | None = None,
    ) -> Playbook:
        """Save a playbook: from one or several finished runs, from a workflow, or from steps that you write.

        From runs it takes the steps, the tools, recorded decisions with their reasons, failures and what helped, and a
        few results. Inputs that differ between runs are its parameters. No model is asked. `distil(playbook)`, a call
        of a strong model, may return a better playbook or page; the lines that it adds are marked. Learning again
        makes the next version; the same content stays the same version. Raises `RunNotFinished`.
        """
        learn.check_sources(run, workflow, steps)
        book = await self._learn(definition.check_name(name), run, workflow, steps)
        if purpose is not None or inputs is not None:
            book = definition.describe(book, purpose, inputs)
        if distil is not None:
            told = distil(book)
            # unasync: async-only
            if is_awaitable(told):
                told = await told
            # unasync: end
            better = page.from_markdown(book, told) if isinstance(told, str) else told
            if not isinstance(better, Playbook):
                raise WrongType(f"distil must return a playbook or the text of its page, not {type(better).__name__}")
            book = definition.mark_added(book, better)
        return await self._save(shelf.save(self._engine, book))

    async def _save(self, saving: Protocol[Playbook]) -> Playbook:
        """Save a version, and write it to its file if the agent has a workspace."""
        made = await self._do(saving)
        await self._update_files()
        return made

    async def _update_files(self) -> None:
        await self._do(update_files(self._engine, home_of(self._engine), under=f"{PLAYBOOKS}/"))

    async def _learn(self, name: str, run: Any, workflow: str | None, steps: Any) -> Playbook:
        if steps is not None:
            return Playbook(name, steps=definition.read_steps(steps))
        if workflow is not None:
            return await self._do(learn.from_workflow(self._engine, name, workflow))
        runs = [run] if isinstance(run, str) else builtins.list(run)
        if not runs:
            raise WrongValue("run=[] names no run to learn from")
        return await self._do(learn.from_runs(self._engine, name, runs))

    async def get(self, name: str, version: int | None = None) -> Playbook:
        """Return a playbook, by default its newest version. Raises `PlaybookNotFound`."""
        return await self._do(shelf.get(self._engine, name, version))

    async def list(self) -> builtins.list[Playbook]:
        """Return the newest version of every playbook, sorted by name."""
        return await self._do(shelf.list_playbooks(self._engine))

    async def versions(self, name: str) -> builtins.list[Playbook]:
        """Return every version of a playbook, oldest first."""
        return await self._do(shelf.versions(self._engine, name))

    async def diff(self, name: str, a: int, b: int) -> str:
        """Return the difference between two versions of a playbook's page, as a unified diff."""
        old, new = await self.get(name, a), await self.get(name, b)
        lines = difflib.unified_diff(old.text.splitlines(), new.text.splitlines(), f"{name} v{a}", f"{name} v{b}")
        return "\n".join(line.rstrip("\n") for line in lines)

    async def edit(
        self,
        name: str,
        *,
        text: str | None = None,
        steps: Sequence[str | Mapping[str, Any]] | None = None,
        purpose: str | None = None,
        inputs: Sequence[str] | None = None,
    ) -> Playbook:
        """Change a playbook: its whole page as Markdown, or its steps, purpose or inputs. It is the next version.

        The statistics of a new version start anew.
        """
        book = await self.get(name)
        if text is not None:
            book = page.from_markdown(book, text)
        if steps is not None:
            book = definition.describe(book, None, None, definition.read_steps(steps))
        return await self._save(shelf.save(self._engine, definition.describe(book, purpose, inputs)))

    async def delete(self, name: str) -> None:
        """Delete a playbook with its statistics. Plays in progress go on. Raises `PlaybookNotFound`."""
        await self._do(shelf.delete(self._engine, name))
        await self._update_files()

    async def skill(self, name: str) -> str:
        """Return a playbook as the text of a SKILL.md, which coding agents can load."""
        return page.to_skill(await self.get(name))

    async def lessons(self, name: str) -> builtins.list[Lesson]:
        """Return the corrections of stronger tiers, which are offered as pitfalls."""
        return await self._do(shelf.lessons(self._engine, name))

    async def accept(self, name: str, lesson: str | None = None) -> Playbook:
        """Make one offered lesson, or all of them, pitfalls of the playbook: its next version."""
        return await self._save(shelf.accept(self._engine, name, lesson))

    @overload
    async def report(self, name: str) -> PlaybookReport: ...

    @overload
    async def report(self, name: None = None) -> builtins.list[PlaybookReport]: ...

    async def report(self, name: str | None = None) -> PlaybookReport | builtins.list[PlaybookReport]:
        """Return what a playbook has done: success, cost and escalations by step and tier, and what it saved.

        Without a name, return the reports of all playbooks.

        >>> (await agent.playbooks.report("analysis")).steps[0].tiers["haiku"].successes
        """
        if name is not None:
            return await self._do(report.read_report(self._engine, name))
        return [await self._do(report.read_report(self._engine, book.name)) for book in await self.list()]

    def run(
        self,
        name: str,
        id: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        tiers: Sequence[str],
        target: float = 0.95,
        explore: bool = True,
        tier: str | None = None,
        wait: float | None = None,
    ) -> AsyncPlay:
        """Start or resume a run that follows a playbook.

        `tiers` are models from cheap to strong. Each step starts with the tier of the lowest expected cost, escalation
        included, and goes one tier up when `verify` refuses the answer. `target` is the share of steps that should
        succeed in the end. `explore=False` uses what is known and tries nothing new; `tier` fixes where steps start.
        """
        rules = play.check_rules(tiers, target, explore, tier)
        return AsyncPlay(
            self._engine, definition.check_name(name), check_identifier(id, "a run's id"), inputs, rules, wait
        )


class AsyncPlay(AsyncRun):
    """A run that follows a playbook."""

    __slots__ = ("_name", "_plan", "_refused", "_rules", "inputs")

    def __init__(
        self,
        engine: Engine,
        name: str,
        id: str,
        inputs: Mapping[str, Any] | None,
        rules: ChoiceRules,
        wait: float | None,
    ) -> None:
        self.inputs = dict(inputs or {})
        given = {"playbook": name, "inputs": self.inputs}
        super().__init__(engine, id, given, wait=wait, on_change="error", parallel=False, budget=None)
        self._name = name
        self._rules = rules
        self._plan: PlayPlan | None = None
        self._refused: dict[str, tuple[RefusedAnswer, ...]] = {}

    async def plan(self) -> PlayPlan:
        """Return what the play has recorded first: the version that it follows, and the tiers of each step."""
        if self._plan is None:

            async def make() -> dict[str, Any]:
                made: dict[str, Any] = await self._do(play.make_plan(self._core, self._name, self._rules))
                return made

            recorded = await self.step(make, name=f"playbook {self._name}: plan", id="playbook-plan")
            self._plan = play.read_plan(recorded)
            play.warn_of_drift(self._plan)
        return self._plan

    async def steps(self) -> AsyncIterator[AsyncPlayStep]:
        """Loop over the steps. In a resumed play, finished attempts return their recorded answers."""
        plan = await self.plan()
        for step in plan.playbook.steps:
            yield AsyncPlayStep(self, plan, step)

    async def choose_model(self, step: str) -> str:
        """Return the tier to use for a step now, for programs and frameworks that make the call themselves.

        Tell the outcome with `record_attempt`. After a refused answer this is the next tier. Raises `PlaybookFailed`
        when the answer of the strongest tier was refused.

        >>> reply = framework_agent.run(prompt, model=await play.choose_model("search"))
        >>> await play.record_attempt("search", reply.text, accepted=good(reply), cost_usd=reply.cost)
        """
        plan = await self.plan()
        order, refused = plan.choices[plan.playbook.step(step).name].order, self._refused.get(step, ())
        if len(refused) == len(order):
            raise play.explain_failure(plan.playbook, step, refused)
        return order[len(refused)]

    async def record_attempt(
        self, step: str, answer: Any, *, accepted: bool = True, cost_usd: float | None = None
    ) -> Any:
        """Count an attempt whose call was made elsewhere, with the tier of `choose_model`; return its answer.

        It is a step of the run: a resumed play returns the recorded answer and counts nothing again. The call itself
        is not recorded here. `cost_usd` is counted in the report and not in the run's usage.
        """
        tier, plan = await self.choose_model(step), await self.plan()
        refused = self._refused.get(step, ())
        following = AsyncPlayStep(self, plan, plan.playbook.step(step))
        told = FinishedAttempt(step, tier, PlayAttempt(answer, bool(accepted)), refused, None, True, cost_usd)
        made = await following._record(told)
        if not made.accepted:
            self._refused[step] = (*refused, RefusedAnswer(tier, play.show_answer(made.answer)))
        return made.answer


class AsyncPlayStep(KnownAttributes):
    """One step of a play."""

    __slots__ = ("_plan", "_play", "_rendered", "_step")

    def __init__(self, play: AsyncPlay, plan: PlayPlan, step: PlaybookStep) -> None:
        self._play = play
        self._plan = plan
        self._step = step
        self._rendered: RenderedStep | None = None

    @property
    def name(self) -> str:
        """The name of the step."""
        return self._step.name

    @property
    def purpose(self) -> str:
        """What the step is for."""
        return self._step.purpose

    @property
    def tier(self) -> str:
        """The tier that tries it first."""
        return self._plan.choices[self.name].order[0]

    @property
    def reason(self) -> str:
        """Why that tier was chosen."""
        return self._plan.choices[self.name].reason

    def render(self, budget: int = 2000) -> str:
        """Return the prompt of this step: what the playbook says about it, then the inputs of this play."""
        self._rendered = page.render_step(self._plan.playbook, self._step, budget, self._play.inputs)
        return self._rendered.text

    async def attempt(self, function: Callable[[str], Any], *, verify: Callable[[Any], Any] | None = None) -> Any:
        """Call `function(tier)` and return the first answer that `verify` accepts, going up one tier at a time.

        Each attempt is a step of the run: after a crash it is neither paid nor counted again. Raises `PlaybookFailed`
        when the answer of the strongest tier is refused.
        """
        refused: tuple[RefusedAnswer, ...] = ()
        for tier in self._plan.choices[self.name].order:
            made = await self._try(tier, function, verify, refused)
            if made.accepted:
                return made.answer
            refused = (*refused, RefusedAnswer(tier, play.show_answer(made.answer)))
        raise play.explain_failure(self._plan.playbook, self.name, refused)

    async def _try(
        self,
        tier: str,
        function: Callable[[str], Any],
        verify: Callable[[Any], Any] | None,
        refused: tuple[RefusedAnswer, ...],
    ) -> PlayAttempt:
        async def body(tier: str) -> dict[str, Any]:
            answer = await _settle(function(tier), function)
            accepted = verify is None or bool(await _settle(verify(answer), verify))
            result = PlayAttempt(answer, accepted)
            done = FinishedAttempt(self.name, tier, result, refused, self._rendered)
            return await self._count(done)

        return await self._run_step(body, tier)

    async def _record(self, told: FinishedAttempt) -> PlayAttempt:
        async def body(tier: str) -> dict[str, Any]:
            return await self._count(told)

        return await self._run_step(body, told.tier)

    async def _count(self, attempt: FinishedAttempt) -> dict[str, Any]:
        kept: dict[str, Any] = await self._play._do(play.record_attempt(self._play._core, self._plan, attempt))
        return kept

    async def _run_step(self, body: Callable[[str], Any], tier: str) -> PlayAttempt:
        recorded = await self._play.step(body, tier, name=f"{self._plan.playbook.name}: {self.name}")
        return PlayAttempt(recorded["answer"], recorded["accepted"])


async def _settle(value: Any, call: Callable[..., Any]) -> Any:
    # unasync: async-only
    while is_awaitable(value):
        value = await value
    # unasync: end
    return require_settled(value, call)
