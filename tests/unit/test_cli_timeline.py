"""`perdure timeline`: the picture is exact, fits every screen, and leaves nothing out that a person must know."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure import Agent, RunWaiting
from perdure import records as r
from perdure.cli.chart import fit_line, lines_of
from perdure.cli.main import main
from perdure.errors import RunPaused
from perdure.journal.leases import Lease
from perdure.platform.process import Holder
from perdure.run.timeline import TimeAxis, TimelineBuilder
from tests.conformance.kit import die, run_in_child
from tests.conformance.rich_store import copy_to

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")

T0 = 1_800_000_000_000
NYC = r.CallIdentity("", "search", b"a", 0)
BOOK = r.CallIdentity("", "book", b"b", 0)


PICTURE = """\
                 00:00:00             +1 h 0 min
▶ started by process 7 on ann
  search          ┊━━━━━━━━━━━━━━━━       ┊  ┊   1.0 s, $0.2500, 2 tries, -> 'A…
  each: 10 items  ┊               ━━━━━━━━┊  ┊   0.9 s, read
  book !          ┊                      ░░░░┊   -> 'AB12', settled by ann
✗ killed at 00:00:00, down 1 h 0 min
↻ taken over by process 9 on ben
  approve Go on?  ┊                       ┊  ┄┄  1.0 s, -> 'AB12', by eve
✓ finished at 00:00:00
"""


def holder(pid: int, host: str) -> Holder:
    return Holder("boot", "ns", pid, 1, host)


def story() -> list[r.JournalEntry]:
    """Killed inside an effect, taken over an hour later, settled by a person, and finished."""
    spent = (r.ModelUsage("m", "", "", 1, 0, 10, 10, cost=250_000_000),)
    told: list[tuple[int, r.Record]] = [
        (0, r.RunStarted("travel", "trip", b"", b"", 0, 1, holder(7, "ann"))),
        (1_000, r.AttemptFailed(NYC, 1, b"", 0)),
        (3_000, r.StepDone(NYC, 1, 1_000_000, b"r", usage=spent)),
        *(
            (3_000 + 100 * n, r.StepDone(r.CallIdentity(f"1:{n}/", "read", b"", 0), 0, 90_000, b""))
            for n in range(1, 11)
        ),
        (4_000, r.EffectIntended(BOOK, 3, "key", b"", 1)),
        (3_604_000, r.RunResumed(2, holder(9, "ben"), 0)),
        (3_604_500, r.QuestionAsked(14, "in_doubt", "Did book happen?")),
        (3_605_000, r.EffectDone(14, 0, "answer", b"r", note="ann")),
        (3_606_000, r.WaitBegan(r.CallIdentity("", "approve", b"", 0), 1, "approve", "Go on?")),
        (3_607_000, r.WaitEnded(18, "answer", b"r", "eve")),
        (3_608_000, r.RunFinishedEntry(b"")),
    ]
    return [r.JournalEntry(seq, T0 + at, record) for seq, (at, record) in enumerate(told, 1)]


def draw_timeline(
    events: list[r.JournalEntry], width: int, *, status: str = "crashed", ascii_only: bool = False
) -> list[str]:
    builder = TimelineBuilder(lambda event: event.kind)
    for event in events:
        builder.add(event)
    picture = builder.picture(status, events[-1].at, items=False)
    lines = lines_of(picture, picture.rows, width, lambda packed: "AB12")
    return ["".join(text for text, _ in fit_line(line, width, not ascii_only)).rstrip() for line in lines]


def test_the_picture_of_a_run() -> None:
    assert [re.sub(r"\d\d:\d\d:\d\d", "00:00:00", line) for line in draw_timeline(story(), 80)] == PICTURE.splitlines()


def test_what_nobody_knows_stands_out() -> None:
    killed = draw_timeline(story()[:14], 100)
    assert re.search(r"^  book !  .*\?.* in doubt", killed[-2])
    assert killed[-1].startswith("✗ killed at ")
    at_work = draw_timeline(story()[:14], 100, status="")
    assert re.search(r"^  book !  .* running", at_work[-1])
    waiting = draw_timeline(story()[:18], 100)
    assert re.search(r"approve Go on\? .* waiting", "\n".join(waiting))
    assert all(line.isascii() for line in draw_timeline(story(), 100, ascii_only=True))


def test_an_entry_of_a_kind_without_a_row_of_its_own_is_told() -> None:
    cleanup = r.JournalEntry(4, T0 + 3_500, r.CleanupBegan("too dear", "ann"))
    told = draw_timeline([*story()[:3], cleanup], 100, status="paused")
    assert any(re.match("  cleanup began .* CleanupBegan$", line) for line in told)  # and not that it was killed
    assert told[-1].startswith("‖ paused at ")


@example([(0, 1), (52, 0), (103, 0), (154, 0), (205, 0), (257, 0)], 5, [0, 1])  # more cuts than there is room for
@example([(0, 10**6), (9 * 10**8, 10**8)], 40, [9 * 10**8 - 1, 9 * 10**8 + 1])  # the end of a cut, and after it
@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**8)), max_size=20),
    st.integers(5, 200),
    st.lists(st.integers(-1000, 10**9 + 10**8), max_size=20),
)
def test_an_axis_keeps_the_order_of_time(spans: list[tuple[int, int]], width: int, times: list[int]) -> None:
    axis = TimeAxis([(begun, begun + length) for begun, length in spans], 0, 10**9, width)
    columns = [axis.column(at) for at in sorted(times)]
    assert columns == sorted(columns)
    assert all(0 <= column < width for column in columns)
    assert all(0 <= column < width for column in axis.cuts)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_run_fits_the_screen(width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(copy_to(tmp_path / "perdure.db"))
    main(["runs", "--json", "--store", path])
    begun = [run for run in json.loads(capsys.readouterr().out) if run["status"] != "queued"]
    for run in begun:
        assert main(["timeline", run["id"], "--width", str(width), "--store", path]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0][:39] == f"run {run['id']} of agent travel: {run['status']}"[:39]
        assert max(map(len, lines)) <= width, lines
        needs_somebody = run["status"] == "waiting" or bool(run["in_doubt"])
        assert (f"perdure show {run['id']}"[:38] in lines[-1]) == needs_somebody, lines


def test_the_rows_of_a_run_as_json_and_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(copy_to(tmp_path / "perdure.db"))
    assert main(["timeline", "finished", "--json", "--store", path]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = {(row["what"], row["name"]): row for row in told["rows"]}
    assert rows["step", "flaky"]["tries"] == 2
    assert rows["effect", "book"]["result"] == "booked AA1"
    assert rows["each", ""]["count"] == 2
    assert rows["child", "child"]["status"] == "done"
    assert rows["checkpoint", "seen"]["notes"] == ["version 2"]
    assert [item["how"] for item in told["processes"]] == ["finished"]
    main(["timeline", "answered", "--store", path])
    drawing = capsys.readouterr().out
    assert re.search(r"book ! .*settled by ann", drawing)
    assert re.search(r"think .* \$0\.2500", drawing)
    main(["timeline", "finished", "--last", "2", "--width", "80", "--store", path])
    assert "rows before; --last 0 shows all" in capsys.readouterr().out


def test_a_run_is_followed_until_it_ends(tmp_path: Path) -> None:
    agent = Agent("travel", store=tmp_path / "perdure.db")
    arguments = ["timeline", "live", "--follow", "--json", "--store", str(tmp_path / "perdure.db")]
    with agent.run("live") as run:
        run.step(lambda: 1, name="first")
        command = [sys.executable, "-m", "perdure.cli", *arguments]
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert following.stdout is not None
        seen = [json.loads(following.stdout.readline())["kind"] for _ in range(2)]
        run.step(lambda: 2, name="second")
        seen.append(json.loads(following.stdout.readline())["kind"])
    with following:
        seen += [json.loads(line)["kind"] for line in following.stdout]
    assert following.returncode == 0
    assert seen == ["RunStarted", "StepDone", "StepDone", "RunFinished"]
    agent.close()


def processes_of(url: str, run: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["timeline", run, "--json", "--store", url]) == 0
    return [one["how"] for one in json.loads(capsys.readouterr().out)["processes"]]


def test_how_each_process_left_the_run_is_told_apart(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("travel", store=store_url)

    def work() -> None:
        with Agent("travel", store=store_url).run("trip", wait=0) as run:
            run.step(lambda: 1, name="search")
            run.approve("Book it?")

    def killed() -> None:
        with Agent("travel", store=store_url).run("trip"):
            die()

    with pytest.raises(RunWaiting):
        work()
    assert processes_of(store_url, "trip", capsys) == ["waited"]
    run_in_child(killed)
    assert processes_of(store_url, "trip", capsys) == ["waited", "killed"]
    with pytest.raises(RunWaiting):
        work()
    agent.runs.pause("trip")
    with pytest.raises(RunPaused):
        work()
    agent.runs.resume("trip")
    with pytest.raises(RuntimeError), agent.run("trip"):
        raise RuntimeError("no seats")
    agent.runs.answer("trip", True)
    work()
    assert processes_of(store_url, "trip", capsys) == ["waited", "killed", "waited", "failed", "finished"]


def test_a_run_that_is_paused_at_work_is_told_so(store_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("travel", store=store_url)
    with pytest.raises(RunPaused), agent.run("trip") as run:
        agent.runs.pause("trip")
        run.step(lambda: 1, name="search")
    agent.runs.resume("trip")
    with agent.run("trip"):
        pass
    assert processes_of(store_url, "trip", capsys) == ["paused", "finished"]


def test_a_holder_whose_lease_ran_out_was_taken_over_and_not_killed() -> None:
    elsewhere = Holder("other boot", "other ns", 7, 1, "ann")
    assert Lease(1, 5, elsewhere, 0, left_ms=-1, one_host=False).describe_end() == "expired"
    assert Lease(1, None, None, 0, left_ms=0).describe_end() == "released"
    resumed = r.JournalEntry(15, T0 + 3_604_000, r.RunResumed(2, holder(9, "ben"), 0, None, "expired"))
    told = draw_timeline([*story()[:14], resumed], 100)
    assert any(line.startswith("‖ taken over at ") for line in told)
