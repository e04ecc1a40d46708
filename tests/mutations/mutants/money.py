"""Faults in what is counted as spent, and as saved."""

from __future__ import annotations

from tests.mutations.mutant import mutant

COST = "conformance/test_cost.py::"
MODEL = "conformance/test_cost_model.py::test_savings_equal_what_a_restart_from_zero_would_have_run_again"

MUTANTS = (
    mutant(
        "finished-child-saves-nothing",
        "a restart from zero would repeat a finished child run, and nobody counts it",
        "conformance/test_cost.py::test_a_finished_child_is_credited_to_the_parent_that_resumes_past_it",
        "perdure.run.lifecycle:_link_accounts",
        ("run.account.outer = outer.account if run.head.stream not in outer.account.worked else None", "pass"),
    ),
    mutant(
        "own-work-counted-as-saved",
        "a child run that worked in this opening counts as saved when it is read again",
        "conformance/test_cost.py::test_a_child_that_works_in_this_opening_is_not_credited",
        "perdure.run.lifecycle:_link_accounts",
        ("outer.account.worked.add(run.head.stream)", "pass"),
    ),
    mutant(
        "workflow-steps-save-nothing",
        "finished workflow steps count as nothing saved",
        "conformance/test_cost.py::test_finished_steps_of_a_workflow_are_credited_when_it_goes_on",
        "perdure.work.workflows.resume:WorkflowResume.perform",
        ("run.account.credit_work(passed)", ""),
    ),
    mutant(
        "usage-of-a-handler-lost",
        "what a plain handler of a workflow spends is counted nowhere",
        "conformance/test_cost.py::test_finished_steps_of_a_workflow_are_credited_when_it_goes_on",
        "perdure.run.item:collect_final_writes",
        (
            "r.ItemDone(item.path, item.buffer.landing_writes(), (), item.buffer.usage)",
            "r.ItemDone(item.path, item.buffer.landing_writes())",
        ),
    ),
    mutant(
        "usage-is-counted-again",
        "a resumed run counts what it has reported in the open a second time",
        COST + "test_usage_is_counted_once_wherever_it_is_reported",
        "perdure.run.usage:record",
        ("run.ledger.find_write(frame.path, r.WriteOp.USAGE, usage.model, nth)", "None"),
    ),
    mutant(
        "failed-attempts-cost-nothing",
        "what a failed attempt has spent is forgotten",
        COST + "test_what_a_failed_attempt_has_spent_is_kept_and_what_it_wrote_is_not",
        "perdure.run.cost:RunAccount.record_lost",
        ("self._lost += usage", "self._lost += ()"),
    ),
    mutant(
        "credited-for-each-call",
        "a step that is asked for twice by its id is credited twice",
        COST + "test_only_what_the_code_asks_for_again_is_credited_and_once_for_each_opening",
        "perdure.run.cost:RunAccount.credit",
        ("not recorded.credited", "True"),
    ),
    mutant(
        "own-steps-are-savings",
        "a step that was run in this opening is credited when it is asked for again",
        COST + "test_only_what_the_code_asks_for_again_is_credited_and_once_for_each_opening",
        "perdure.run.ledger:Ledger.track",
        ("recorded.consumed = recorded.credited = True", "recorded.consumed = True"),
    ),
    mutant(
        "skipped-items-save-nothing",
        "the steps of finished items are not credited",
        MODEL,
        "perdure.run.item:ItemLoop._skip",
        ("self.run.skip_item(path)", ""),
    ),
    mutant(
        "credit-dies-with-the-step",
        "what an opening has saved is lost when its first new step kills the process",
        COST + "test_a_child_that_goes_on_is_new_work_of_its_parent",
        "perdure.run.step:_execute",
        ("run.account.owes_credit", "False"),
    ),
    mutant(
        "a-budget-forgets-the-crash",
        "a run that is resumed may spend its whole budget again",
        COST + "test_a_budget_stops_before_the_next_call_and_survives_a_kill",
        "perdure.run.lifecycle:open_run",
        ("(RunBudget(run_id, budget, *spent),)", "(RunBudget(run_id, budget, 0, ()),)"),
    ),
    mutant(
        "a-budget-is-looked-at-too-late",
        "the next effect is begun although the budget is spent",
        COST + "test_a_budget_stops_before_the_next_call_and_survives_a_kill",
        "perdure.run.effect:_settle_and_execute",
        ("run.account.budgets", "False"),
    ),
    mutant(
        "children-spend-for-nothing",
        "what a child spends is not counted for its parent",
        COST + "test_children_spend_the_budget_of_their_parent",
        "perdure.run.lifecycle:open_run",
        ("run.account.budgets = enclosing.account.budgets", "run.account.budgets = ()"),
    ),
    mutant(
        "unknown-is-free",
        "under a budget calls of unknown cost are counted as 0",
        COST + "test_under_a_budget_every_call_needs_a_price",
        "perdure.run.cost:RunBudget.check_budget",
        ("if self._unpriced:\n    ...", "if False:\n    ..."),
    ),
)
