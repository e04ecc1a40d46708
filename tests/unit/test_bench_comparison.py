"""The benchmark beside peers: what counts, what is drawn, and that a killed contender is found again."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench import report as reports
from bench.comparison import environment, race
from bench.comparison.arena import Arena
from bench.comparison.companion import Block
from bench.comparison.crashes import CELLS, crashes
from bench.comparison.proxy import Messages, Proxy
from bench.comparison.standings import POSTGRES, SQLITE, Costs, Crash, Entrant, Return, Speed, Standing
from bench.failures import Killed
from bench.lab import ROOT, Lab, run
from bench.pages import svg, words, write_pages
from bench.report import COMPARED, Report, format_contender
from bench.rows import Row, at_most
from bench.syncs import SHARED_BYTES, read_shared_count
from tests.tidy.project_rules import PIN

PERDURE = Entrant("perdure", SQLITE)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(quick=True, base=tmp_path, peers=False)
    yield lab
    lab.close()


# -- contenders in processes -----------------------------------------------------------------------------------


def test_a_killed_contender_goes_on_where_it_was(lab: Lab) -> None:
    arena = Arena(lab, None, None)
    place = arena.place(PERDURE)
    with arena.companion(PERDURE, place) as companion:
        companion.wait_opened()
        assert companion.calls(4).bodies == 4
        companion.kill()
    with arena.companion(PERDURE, place) as companion:
        companion.wait_opened()
        assert companion.calls(4).bodies == 0
        assert companion.calls(1).bodies == 1
        assert "synchronous=full" in companion.facts()["durability"]
        companion.end()


def test_what_a_step_costs_is_what_is_counted_elsewhere(lab: Lab) -> None:
    costs = race.costs(Arena(lab, None, None), PERDURE, 40)
    # On a slow machine the ear for orders, which looks every 0.2 s, is heard in it too.
    assert 3 <= costs.statements < 4
    assert costs.syncs in (1, None)
    assert costs.trips is None
    assert 1024 < costs.bytes < 2048


def test_an_effect_is_never_repeated_and_a_step_is(lab: Lab) -> None:
    """The matrix can tell the difference: it is no matrix that always says one."""
    found = {(one.system, one.cell): one for one in crashes(Arena(lab, None, None), 1, 1)}
    effects = [one for (system, _), one in found.items() if system.startswith("Perdure effect")]
    assert len(effects) == 2 * len(CELLS)
    assert max(times for one in effects for times in one.happened) == 1
    assert found["Perdure effect", "after"].noticed == "RunWaiting"
    assert found["Perdure effect with a check", "after"].noticed == "finished"
    assert found["Perdure step", "after"].happened == [2]


def test_a_payment_without_a_crash_is_made_once(tmp_path: Path) -> None:
    """The program of the matrix dies where it is told to, and nowhere else."""
    outside = tmp_path / "outside.txt"
    spec = {"system": "perdure", "url": f"sqlite:///{tmp_path / 'store.db'}", "outside": str(outside)}
    spec |= {"effect": True, "check": False, "dies": ""}
    said = run([sys.executable, "-m", "bench.peers.crash", json.dumps(spec)])
    assert json.loads(said) == {"ended": "finished"}
    assert outside.read_text("utf-8") == "PAY\n"


def test_a_killed_process_is_told_from_a_failed_one() -> None:
    with pytest.raises(Killed):
        run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])


def test_syncs_of_several_processes_add_up(lab: Lab, tmp_path: Path) -> None:
    if lab.probe.name != "preload":
        pytest.skip("no C compiler")
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(SHARED_BYTES))
    code = "import os, sys; file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); os.fsync(file); os.fdatasync(file)"
    for number in range(2):
        command = [sys.executable, "-c", code, str(tmp_path / str(number))]
        subprocess.run(command, env={**os.environ, **lab.probe.shared_environment(shared)}, check=True)
    assert read_shared_count(shared) == 4


# -- the proxy that counts -------------------------------------------------------------------------------------


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + (len(body) + 4).to_bytes(4, "big") + body


START = (8).to_bytes(4, "big") + b"\0\3\0\0"
PIPELINE = message("P", b"x") + message("B") + message("E") + message("S")
ANSWER = message("1") + message("2") + message("C", b"INSERT 0 1\0") + message("Z", b"I")


def test_messages_are_found_wherever_they_are_cut() -> None:
    data = START + PIPELINE
    for size in (1, 3, len(data)):
        messages, found = Messages(starts=True), []
        for begin in range(0, len(data), size):
            found += messages.types_in(data[begin : begin + size])
        assert bytes(found) == b"\0PBES"


class Wire:
    """A client and a server, both ours, with the proxy in between."""

    def __init__(self, folder: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / ".s.PGSQL.1"))
        listener.listen()
        self.proxy = Proxy(folder, "1")
        self.client = socket.socket(socket.AF_UNIX)
        self.client.connect(str(self.proxy.folder / ".s.PGSQL.1"))
        self.server, _ = listener.accept()
        listener.close()

    def ask(self, data: bytes) -> None:
        self.client.sendall(data)
        self._arrive(self.server, len(data))

    def answer(self, data: bytes) -> None:
        self.server.sendall(data)
        self._arrive(self.client, len(data))

    def _arrive(self, side: socket.socket, size: int) -> None:
        while size:
            size -= len(side.recv(size))

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.proxy.close()


@pytest.fixture
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    wire = Wire(tmp_path_factory.mktemp("s"))
    wire.ask(START)
    wire.answer(message("R", bytes(4)) + message("Z", b"I"))
    yield wire
    wire.close()


def test_a_pipeline_is_one_round_trip(wire: Wire) -> None:
    before = wire.proxy.trips
    wire.ask(PIPELINE[:7])
    wire.ask(PIPELINE[7:] + PIPELINE)
    wire.answer(ANSWER + ANSWER)
    assert wire.proxy.trips - before == 1
    assert wire.proxy.statements == 2


def test_asking_after_each_answer_is_a_round_trip_each(wire: Wire) -> None:
    before = wire.proxy.trips
    for _ in range(3):
        wire.ask(message("Q", b"BEGIN\0"))
        wire.answer(message("C", b"BEGIN\0") + message("Z", b"T"))
    assert wire.proxy.trips - before == 3
    assert wire.proxy.statements == 3


def test_waiting_for_a_flush_is_a_round_trip_too(wire: Wire) -> None:
    before = wire.proxy.trips
    wire.ask(message("P", b"x") + message("B") + message("E") + message("H"))
    wire.answer(message("1") + message("2") + message("C", b"INSERT 0 1\0"))
    wire.ask(message("S"))
    wire.answer(message("Z", b"I"))
    assert wire.proxy.trips - before == 2


# -- figures, pages and pictures -------------------------------------------------------------------------------


def block(*milliseconds: float) -> Block:
    return Block([int(one * 1e6) for one in milliseconds], 0, 0, 0, None)


def test_a_ratio_is_that_of_blocks_of_the_same_round() -> None:
    ours = race.Finish(PERDURE, {}, [block(1), block(10), block(1)], [])
    theirs = race.Finish(Entrant("dbos", SQLITE), {}, [block(6), block(60), block(5)], [])
    assert ours.times(theirs) == 6


def test_how_often_an_effect_happened_is_told_with_its_trials() -> None:
    assert Crash("a", SQLITE, "after", [2, 2], "finished").times == "2"
    assert Crash("a", SQLITE, "after", [1, 2, 1], "finished").times == "1 in 2 of 3, 2 in 1 of 3"


def a_report() -> Report:
    speed, costs, back = Speed(1900, 0.5, 1.5, 0.3, 0.2), Costs(3, 1, 1, 1400), Return(200, 40, 8, 2)
    standings = [
        Standing(Entrant(system, store), "1.0", "full", speed, costs, back if system != "floor" else None)
        for store in (SQLITE, POSTGRES)
        for system in ("floor", "perdure", "dbos", "langgraph")
    ]
    machine = dict.fromkeys(("cores", "processor", "system", "file_system", "python", "sqlite", "postgres"), "x")
    found = [Crash("DBOS step", SQLITE, "after", [2], "finished"), Crash("DBOS step", SQLITE, "raises", [1], "Lost")]
    return Report("2026-01-01", machine, 0, 0, False, True, [Row("step", "x", 1, "", at_most(2))], standings, found)


def test_pages_have_no_empty_slots_and_link_to_pictures_that_are_there(tmp_path: Path) -> None:
    written = write_pages(a_report(), tmp_path)
    page = (tmp_path / "about" / "comparison.md").read_text("utf-8")
    assert not words.SLOT.search(page)
    assert "| DBOS step | SQLite |  | **2**: finished |  | 1: the error again |" in page
    pictures = re.findall(r"\(\.\./(img/\w+\.svg)\)", page + (tmp_path / "about" / "performance.md").read_text("utf-8"))
    assert pictures
    assert {tmp_path / picture for picture in pictures} <= set(written)


def test_a_section_that_is_measured_again_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "RESULTS", tmp_path / "latest.json")
    whole = a_report()
    whole.rows.append(Row("state", "get", 47))
    reports.save(whole)
    once_more = Report(whole.date, whole.machine, 0, 0, False, False, [Row("step", "x", 3), Row("step", "y", 4)])
    reports.save_again(once_more)
    now = reports.load_saved()
    assert (
        now is not None
        and now.complete
        and now.again == ["step"]
        and "once more on that day: step" in words.describe_machine(now)
    )
    assert [(row.section, row.what, row.measured) for row in now.rows] == [
        ("step", "x", 3),
        ("step", "y", 4),
        ("state", "get", 47),
    ]
    reports.save_again(msgspec.structs.replace(once_more, date="2026-01-02"))
    assert reports.load_saved() == now


def test_a_report_survives_its_file() -> None:
    report = a_report()
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    assert len(format_contender(report.standings[0])) == len(COMPARED)


def test_words_and_figures_must_fit() -> None:
    with pytest.raises(AssertionError, match="do not fit"):
        words.fill_page("performance.md", {"measured_on": ["x"]})


def test_pictures_are_well_formed_and_stay_inside_their_frame() -> None:
    bars = [svg.Bar("a < b & c", 3, "3", "ours", whisker=300), svg.Bar("none", 0, "0", "peer")]
    for logarithmic in (False, True):
        picture = svg.picture('so "it" is', [svg.Panel("<title>", bars, logarithmic)])
        root = xml.etree.ElementTree.fromstring(picture)
        assert "prefers-color-scheme: dark" in picture
        rectangles = [node for node in root.iter() if node.tag.endswith("rect")]
        assert all(float(r.get("x", 0)) + float(r.get("width", 0)) <= svg.WIDTH for r in rectangles)


# -- the peers' environment ------------------------------------------------------------------------------------


def test_peers_are_pinned_by_name_and_version() -> None:
    lines = [line for line in environment.CONSTRAINTS.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not PIN.match(line)] == []
    pinned = {line.partition("==")[0] for line in lines}
    assert {package.partition("[")[0] for package in (*environment.PACKAGES, *environment.CHROMA)} <= pinned


def test_what_runs_among_the_peers_needs_nothing_of_ours() -> None:
    """`.venv-peers` has neither Perdure nor its dependencies."""
    own = {"dbos_workflow": "dbos", "langgraph_entrypoint": "langgraph", "ours": "perdure", "floor": "apsw"}
    own |= {"dbos_crowd": "dbos", "our_crowd": "perdure", "chroma": "chromadb"}
    for path in [*(ROOT / "bench" / "peers").glob("*.py"), ROOT / "bench" / "syncs.py"]:
        tree = ast.parse(path.read_text("utf-8"))
        needed = {name.partition(".")[0] for node in tree.body for name in _find_imports(node)}
        foreign = needed - sys.stdlib_module_names - {"bench", own.get(path.stem, "")}
        assert not foreign, f"{path.name} imports {foreign}"


def _find_imports(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
