"""The real thing against the pure model of the semantics: the same stories, the same account after every move.

Compared: what the code saw at every operation (results, errors, state, messages, `run.result`), how each attempt
ended, what others see (status, error, result, state, messages in order, events, open questions), how often
each body ran, and which effects happened under which key. Every attempt is a process of its own, and a crash
is SIGKILL, at a point in the code or before, in and after a commit.

Not compared, and a story ends there: what is seen after a write has come before recorded ones, because the code
has changed or a step that failed has run again, or after recorded messages have changed places. The model has
program order; others see the order of landing (`Model.reordered`).

Not told here: stopped processes, which are the matter of tests/crash, and answers that come while a run waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from perdure.kernel.scope import WriteBuffer
from perdure.run.ledger import Ledger, RecordedCall
from perdure.testing.plugin import STORES

from ..model.ops import COMMITS, IN_A_BODY, IN_THE_CODE, Move, Start
from ..model.strategies import stories
from .model_comparison import Stage, Told, expected, stage
from .model_regressions import STORIES, crash_everywhere

REACHED = (*IN_THE_CODE, *IN_A_BODY, *COMMITS)
"""All but "waiting": with wait=0 it is over before it can be met."""

KILLED_EVERYWHERE = crash_everywhere((*IN_A_BODY, *COMMITS))

UNCHANGED = stories(while_waiting=False, points=REACHED)
EDITED = stories(while_waiting=False, points=REACHED, edited=True)

SHARES = {"sqlite-sync": 6, "sqlite-async": 16}
POSTGRES_SHARE = 40
"""One of so many stories in CI: the colours have one protocol, and a server takes its time; `make soak` tells more."""

SOAK = settings.get_current_profile_name() == "soak"

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(scope="module", params=[f"{store}-{colour}" for store in STORES for colour in ("sync", "async")])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    store, _, colour = request.param.partition("-")
    folder = tmp_path_factory.mktemp(request.param)
    with stage(folder, STORES[store](folder), colour) as made:
        yield made


def compare(scene: Stage, moves: tuple[Move, ...]) -> None:
    told = expected(moves)
    for number, (said, seen) in enumerate(zip(told, scene.play(moves[: len(told)]), strict=True)):
        why = seen.pop("why", "")
        if said != seen:
            raise AssertionError(difference(moves[: number + 1], said, seen) + why)


def difference(moves: tuple[Move, ...], said: Told, seen: Told) -> str:
    lines = ["the model and the store do not agree after:", *(f"    {move!r}," for move in moves)]
    for what in sorted(said.keys() | seen.keys()):
        if said.get(what) != seen.get(what):
            lines += [f"{what}:", f"    model {said.get(what)}", f"    real  {seen.get(what)}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", STORIES)
def test_a_story_that_was_once_told_differently(scene: Stage, name: str) -> None:
    assert len(expected(STORIES[name])) == len(STORIES[name]), "it must be compared to its end"
    compare(scene, STORIES[name])


@pytest.mark.timeout(900)
def test_killed_at_every_commit_it_goes_on_as_the_model_says(scene: Stage) -> None:
    for moves in list(KILLED_EVERYWHERE.values())[:: share_of(scene)]:
        compare(scene, moves)


def share_of(scene: Stage) -> int:
    """One of how many is told."""
    if scene.url.startswith("sqlite"):
        return 1 if SOAK else SHARES[f"sqlite-{scene.colour}"]
    return POSTGRES_SHARE


def tell(scene: Stage, told: SearchStrategy[tuple[Move, ...]]) -> None:
    """As many stories as the profile says; fewer where each process has to connect to a server first."""

    @settings(SLOW, max_examples=max(1, settings.default.max_examples // share_of(scene)))
    @given(moves=told)
    def stories_agree(moves: tuple[Move, ...]) -> None:
        compare(scene, moves)

    stories_agree()


@pytest.mark.timeout(900)
def test_stories_of_one_program(scene: Stage) -> None:
    tell(scene, UNCHANGED)


@pytest.mark.timeout(900)
def test_stories_of_a_program_that_changes(scene: Stage) -> None:
    tell(scene, EDITED)


@pytest.mark.soak
def test_thousands_of_stories(scene: Stage) -> None:
    tell(scene, UNCHANGED | EDITED)


SABOTAGE = {
    "program order wins": (WriteBuffer, "supersede", lambda buffer, writes: None),
    "a killed attempt did not go past its failure": (Ledger, "has_continued_after", lambda ledger, failure: True),
    "an id that is called twice writes once": (RecordedCall, "take_writes", lambda recorded: recorded.writes),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_broken_rule_is_noticed(scene: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempts are forks of this process, and have what is broken here."""
    owner, method, broken = SABOTAGE[name]
    monkeypatch.setattr(owner, method, broken)
    with pytest.raises(AssertionError, match="do not agree"):
        compare(scene, STORIES[name])


def test_every_commit_is_met() -> None:
    met = {name.split()[1] for name in KILLED_EVERYWHERE}
    assert met == {*IN_A_BODY, *COMMITS}


def test_the_stories_are_compared_nearly_to_their_ends() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=100, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(moves=EDITED)
    def look(moves: tuple[Move, ...]) -> None:
        told = expected(moves)
        seen.update({"moves": len(moves), "compared": len(told)})
        seen.update(move.stop.kind for move in moves[: len(told)] if isinstance(move, Start) and move.stop)
        seen.update(str(said["status"]) for said in told)

    look()
    assert seen["compared"] > 0.9 * seen["moves"]
    wanted = ("crashed", "failed", "finished", "interrupted", "waiting", "crash", "interrupt", "raise")
    assert not [name for name in wanted if not seen[name]], seen
