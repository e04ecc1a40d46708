"""Faults in what is counted as spent, and as saved."""

from __future__ import annotations

from tests.mutations.mutant import mutant

COST = "conformance/test_cost.py::"
MODEL = "conformance/test_cost_model.py::test_savings_equal_what_a_restart_from_zero_would_have_run_again"

MONEY = (
    mutant(
        "usage-is-counted-again",
        "a resumed run counts what it has reported in the open a second time",
        COST + "test_usage_is_counted_once_wherever_it_is_reported",
        "usage.py",
        "if run.ledger.recorded_write(frame.path, r.Op.USAGE, usage.model, nth) is not None:",
        "if False:",
    ),
    mutant(
        "failed-attempts-cost-nothing",
        "what a failed attempt has spent is forgotten",
        COST + "test_what_a_failed_attempt_has_spent_is_kept_and_what_it_wrote_is_not",
        "run/account.py",
        "            self._lost += usage\n",
        "            self._lost += ()\n",
    ),
    mutant(
        "credited-for-each-call",
        "a step that is asked for twice by its id is credited twice",
        COST + "test_only_what_the_code_asks_for_again_is_credited_and_once_for_each_opening",
        "run/account.py",
        "                if not recorded.credited:",
        "                if True:",
    ),
    mutant(
        "own-steps-are-savings",
        "a step that was run in this opening is credited when it is asked for again",
        COST + "test_only_what_the_code_asks_for_again_is_credited_and_once_for_each_opening",
        "run/ledger.py",
        "recorded.consumed = recorded.credited = True",
        "recorded.consumed = True",
    ),
    mutant(
        "skipped-items-save-nothing",
        "the steps of finished items are not credited",
        MODEL,
        "run/items.py",
        "        self.run.pass_item(path)\n",
        "",
    ),
    mutant(
        "credit-dies-with-the-step",
        "what an opening has saved is lost when its first new step kills the process",
        COST + "test_a_child_that_goes_on_is_new_work_of_its_parent",
        "run/steps.py",
        "    if run.account.owes_credit:\n",
        "    if False:\n",
    ),
    mutant(
        "a-budget-forgets-the-crash",
        "a run that is resumed may spend its whole budget again",
        COST + "test_a_budget_stops_before_the_next_call_and_survives_a_kill",
        "run/lifecycle.py",
        "(Budget(run_id, budget, *spent),)",
        "(Budget(run_id, budget, 0, ()),)",
    ),
    mutant(
        "a-budget-is-looked-at-too-late",
        "the next effect is begun although the budget is spent",
        COST + "test_a_budget_stops_before_the_next_call_and_survives_a_kill",
        "run/effects.py",
        "        must_afford(run)\n",
        "",
    ),
    mutant(
        "children-spend-for-nothing",
        "what a child spends is not counted for its parent",
        COST + "test_children_spend_the_budget_of_their_parent",
        "run/lifecycle.py",
        "        run.account.budgets = outer.run.account.budgets",
        "        run.account.budgets = ()",
    ),
    mutant(
        "unknown-is-free",
        "under a budget calls of unknown cost are counted as 0",
        COST + "test_under_a_budget_every_call_needs_a_price",
        "run/account.py",
        "        if self._unpriced:",
        "        if False:",
    ),
)
