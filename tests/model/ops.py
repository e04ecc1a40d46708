"""The small language in which programs and what happens to them are written; values only, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from perdure.errors import EffectInsideStep, InDoubt, NotDone

StepError = ArithmeticError
"""What the body of a failing step raises: a builtin, so that it comes back as itself after a resume."""
EffectError = ConnectionError
"""What the body of an effect raises when it does not know whether it happened."""
CodeError = RuntimeError
"""What plain code between the calls raises (`Stop("raise", ...)`); no `Catch` catches it."""
CAUGHT = (StepError, EffectError, NotDone, InDoubt, EffectInsideStep)
"""What `Catch` catches: the failures of bodies, never a problem of the run such as RunWaiting or Diverged."""

Arg: TypeAlias = str | int


@dataclass(frozen=True, slots=True)
class SetState:
    key: str
    value: int


@dataclass(frozen=True, slots=True)
class Incr:
    """`run.state[key] = run.state.get(key, 0) + 1`: shows a write that is applied twice, or not seen."""

    key: str


@dataclass(frozen=True, slots=True)
class Delete:
    """`del run.state[key]`, when it is there."""

    key: str


@dataclass(frozen=True, slots=True)
class SetResult:
    """`run.result = value`."""

    value: int


@dataclass(frozen=True, slots=True)
class AppendMessage:
    text: str


@dataclass(frozen=True, slots=True)
class Emit:
    kind: str


WriteOp: TypeAlias = SetState | Incr | Delete | SetResult | AppendMessage | Emit


@dataclass(frozen=True, slots=True)
class Step:
    """The first `fails` executions of (name, arg) in the whole world raise StepError, after their writes."""

    name: str
    arg: Arg = 0
    writes: tuple[WriteOp, ...] = ()
    fails: int = 0
    retries: int = 0
    id: str | None = None
    inside: tuple[Step | Effect, ...] = ()
    """Called by the body before its writes."""


Check: TypeAlias = Literal["done", "not_done", "unknown", "raises", "truth"]
Outcome: TypeAlias = Literal["ok", "raises_not_done", "raises_after_doing", "raises_before_doing"]


@dataclass(frozen=True, slots=True)
class Effect:
    """The n-th execution of (name, arg) in the world has the n-th of `outcomes`; the last one repeats."""

    name: str
    arg: Arg = 0
    writes: tuple[WriteOp, ...] = ()
    check: Check | None = None
    in_doubt: Literal["ask", "retry", "fail"] = "ask"
    outcomes: tuple[Outcome, ...] = ("ok",)
    retries: int = 0
    id: str | None = None
    timeout: float | None = None
    on_change: Literal["error", "rerun"] = "error"


@dataclass(frozen=True, slots=True)
class Each:
    """`for item in run.each(items, key=key, name=name): body`; `key` is an index into the item."""

    items: tuple[Arg | tuple[Arg, Arg], ...]
    body: tuple[Op | Break, ...]
    name: str | None = None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """`run.item_done()`; what follows in the body belongs to the scope around the loop."""


@dataclass(frozen=True, slots=True)
class Break:
    """`break`, directly in the body of an Each."""


@dataclass(frozen=True, slots=True)
class Catch:
    """`try: op` / `except CAUGHT: then`, and `raise` when `again`."""

    op: Op
    then: WriteOp | None = None
    again: bool = False


Op: TypeAlias = WriteOp | Step | Effect | Each | ItemDone | Catch
Program: TypeAlias = tuple[Op, ...]

IN_THE_CODE = ("before", "after", "item-body-done")
IN_A_BODY = ("step-body-done", "effect-body-done")
SITES = (
    *("run.write", "step.done", "step.failed", "attempt.failed", "item.done"),
    *("effect.intent", "effect.again", "effect.outcome", "effect.failed", "effect.doubt", "run.question"),
)
COMMITS = tuple(f"{site}:{when}" for site in SITES for when in ("before", "after"))
POINTS = (*IN_THE_CODE, *IN_A_BODY, *COMMITS, "waiting")
MAY_HAPPEN_AT = {
    "crash": POINTS,
    "freeze": POINTS,
    "interrupt": (*IN_THE_CODE, *IN_A_BODY),
    "raise": IN_THE_CODE,
}


@dataclass(frozen=True, slots=True)
class Stop:
    """Something befalls the process at the `nth` time that it comes to a point in this attempt.

    `at` is one of POINTS, or one with the path of an operation: "before@2", "effect.intent:after@1[a]/0".
    crash: it dies. freeze: SIGSTOP, it holds its lease until that runs out. interrupt: KeyboardInterrupt.
    raise: CodeError in the code of the run.
    """

    kind: Literal["crash", "freeze", "interrupt", "raise"]
    at: str
    nth: int = 1

    def __post_init__(self) -> None:
        if self.at.partition("@")[0] not in MAY_HAPPEN_AT[self.kind]:
            raise ValueError(f"{self.kind} cannot happen at {self.at!r}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody says about an effect in doubt."""

    verdict: Literal["done", "retry", "fail"]
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A process opens the run with this program; `answers` arrive, one each time that it waits."""

    program: Program
    stop: Stop | None = None
    answers: tuple[Answer, ...] = ()
    input: Arg | None = None


@dataclass(frozen=True, slots=True)
class PassTime:
    seconds: float


@dataclass(frozen=True, slots=True)
class Wake:
    """SIGCONT to the frozen process of the `which`-th Start."""

    which: int
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL to the frozen process of the `which`-th Start."""

    which: int


Move: TypeAlias = Start | Answer | PassTime | Wake | Kill
