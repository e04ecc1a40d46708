"""The semantics as a program: what a store must do, computed in memory.

`Model` is docs/about/semantics.md, sections 1-7, for runs, steps, effects, items and leases, with no I/O and nothing of
Perdure but its errors and limits. Hypothesis makes a story (`strategies.stories`), the model plays it, a
runner plays it on a real store, and both must tell the same.

    program = (Step("search", 1), Effect("book", 2))
    model = Model()
    assert model.attempt(program, stop=Stop("crash", "effect-body-done")).ending == "crashed"
    assert model.attempt(program).error == "RunWaiting"
    model.answer(Answer("done", "seat 3"))
    assert model.attempt(program).ending == "finished"
    assert model.summary().outside == (("book", 2, 1),)

`ops.py` is the language, `journal.py` what is remembered, `process.py` one attempt and `effects.py` its
effects (each rule beside the line that it implements), `machine.py` the store, the lease and the world
outside.

How a real runner maps it, with one process (or a simulated one) for each Start:

Start           `with agent.run("r", input=input, wait=0) as run:` in a new process; the operations in order.
path            "2" is the third operation, "2[a]/0" the first in the body of item a, "2[a#1]/0" of the
                second a, "3/0" what is in a Catch, and "3/1" its `then`.
Step            `agent.step(name=, retries=, backoff=0)` of a function of `(arg)`; `.options(id=)`.
Effect          `agent.effect(check=, in_doubt=, retries=, timeout=, on_change=)` of one of `(arg, *, key)`.
a body          counts its execution in a file by (name, arg), calls what is `inside`, makes its `writes`,
                then does or raises what it must. An effect that happens appends (name, arg, key, result) to
                a file. The result is f"{name}({arg})#{nth}", nth by that counter.
check           "truth" looks the key up in that file: `Done(result)` or `NotDone`. "done" is
                `Done("adopted")`, "raises" raises.
SetState, Incr  `run.state[key] = value`, `run.state[key] = run.state.get(key, 0) + 1`.
Delete          `del run.state[key]`, if it is there.
AppendMessage   `run.messages.append(text)`; Emit: `run.event(kind, None)`.
Each, ItemDone  `for item in run.each(items, key=itemgetter(key), name=name):`, `run.item_done()`.
Catch           `try: op`, `except CAUGHT: then`, and `raise` when `again`.
SetResult       `run.result = value`.
Answer          `agent.runs.answer("r", key=key, done=result)`, `retry=True`, `fail=True`, of the oldest effect in
                doubt that has no answer: as a Move NothingToAnswer unless `model.answerable()`, as one of
                `Start.answers` while the run waits.
PassTime        the store's clock moves.
Wake, Kill      SIGCONT, SIGKILL.

Points, at which Stop(kind, at, nth) happens the nth time in an attempt:

before, after   called around every operation, also those in bodies, a Catch and an Each; "after" only when it
                returned.
step-body-done, effect-body-done
                last in every execution of a body, raising or not; not of a step `inside` another.
item-body-done  last statement of the loop's body, unless the loop was left.
step.done:after and so on: a Site and Moment of perdure.platform.failpoints. BEGUN and WRITTEN must do as BEFORE does.
waiting         while it waits for an answer.

A crash is SIGKILL, or, cheaper, a BaseException that nothing catches with the store's handles dropped and its
holder declared dead; freeze is SIGSTOP; interrupt and raise throw KeyboardInterrupt and CodeError there.

What to compare:

Trace.observations
                after each operation its path; "returned" and its result (None for writes and loops, "passed"
                or "caught X" for Catch), or "raised" and the name of the type, at every level that it leaves;
                "entered" at the start of an item's body, path "2[a]". Each with `dict(run.state)`, sorted,
                `list(run.messages)` and `run.result` as the code sees them there.
Trace.ending    how the `with` block was left, .error by which type; "refused" when `agent.run` itself raised.
Model.summary() after every move: `agent.runs.get("r")` from elsewhere, and the two files, with keys numbered
                by first appearance. `events` without order: a journal cannot put one before another. Not after
                `model.reordered`: a store may show the order of landing where the code sees program order.
"""

from .machine import Model, Observation, Summary, Trace
from .ops import Answer, Catch, Each, Effect, Start, Step, Stop

__all__ = [
    "Answer",
    "Catch",
    "Each",
    "Effect",
    "Model",
    "Observation",
    "Start",
    "Step",
    "Stop",
    "Summary",
    "Trace",
]
