"""`perdure memory`: what would go is shown before it goes, and the installed model reads everything."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent
from perdure.cli.main import main
from perdure.memory.lifecycle import reembed as reembedding
from perdure.memory.recall.embedders import FunctionEmbedder

SHORT = FunctionEmbedder(lambda texts: [[float(len(text)), 1.0] for text in texts], id="lengths-1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "perdure.db"
    with closing(Agent("guide", store=f"sqlite:///{where}", embedder=SHORT)) as agent:
        agent.memory.remember_all([f"Number {number}" for number in range(200)])
    return where


def models(path: Path) -> dict[str, int]:
    with closing(Agent("guide", store=f"sqlite:///{path}", embedder=False)) as agent:
        return dict(agent._engine.store.read("vectors_by_model", (agent._engine.stream,)))


def test_the_installed_model_reads_everything_when_one_agrees(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_EMBEDDER", "table")

    def told(*more: str) -> Any:
        assert main(["memory", "reembed", "--store", str(path), *more]) == 0
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in more else out

    asked = told()
    assert "200 vectors of lengths-1 will be dropped" in asked and "add --yes" in asked
    assert told("--json") == {"done": False, "embedder": "perdure-static-minilm-192-1", "others": {"lengths-1": 200}}
    assert models(path) == {"lengths-1": 200}
    done = told("--json", "--yes")
    assert (done["done"], done["embedder"], done["memories"]) == (True, "perdure-static-minilm-192-1", 200)
    assert models(path) == {"perdure-static-minilm-192-1": 200}
    assert "0 memories embedded" in told()


def test_what_was_read_stays_when_it_is_interrupted(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_EMBEDDER", "table")
    write, count = reembedding._write, [0]

    def interrupted(*args: Any) -> int:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(reembedding, "_write", interrupted)
        assert main(["memory", "reembed", "--yes", "--store", str(path)]) == 130
    assert "128 of 200 pieces embedded; the same command continues" in capsys.readouterr().err
    assert models(path) == {"lengths-1": 200, "perdure-static-minilm-192-1": 128}, "nothing is dropped before the end"
    assert main(["memory", "reembed", "--yes", "--store", str(path)]) == 0
    assert "72 memories embedded" in capsys.readouterr().out
    assert models(path) == {"perdure-static-minilm-192-1": 200}


@pytest.fixture
def make_known_store(tmp_path: Path) -> Path:
    where = tmp_path / "perdure.db"
    with closing(Agent("guide", store=f"sqlite:///{where}", embedder=False)) as agent:
        agent.memory.remember("Dan drinks tea", about="dan", source="web")
        agent.memory.remember_all(["Dan came early", "Dan left late"], about="dan", source="mail", kind="episodic")
        agent.memory.retain("episodic", max_items=1)
        agent.gc()
    return where


def run_json(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> Any:
    assert main(["memory", *arguments, "--json", "--store", str(path)]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_says_that_nothing_was_done_and_what_would_go(
    make_known_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run_json(capsys, make_known_store, "list", "--all")
    asked = run_json(capsys, make_known_store, "forget", "--about", "dan")
    assert (asked["done"], asked["memories"]) == (False, before)
    [path] = asked["archives"]
    assert run_json(capsys, make_known_store, "forget", "--text", "No such text") == {
        "done": False,
        "memories": [],
        "archives": [],
    }
    [tea] = [row["id"] for row in before if row["source"] == "web"]
    undone = run_json(capsys, make_known_store, "rollback", "--source", "web")
    assert undone == {"done": False, "withdrawn": [tea], "derived": [], "restored": [], "kept": []}
    assert run_json(capsys, make_known_store, "list", "--all") == before
    assert main(["memory", "rollback", "--source", "web", "--store", str(make_known_store)]) == 0
    assert "Dan drinks tea" in (told := capsys.readouterr().out) and "nothing was done" in told
    assert run_json(capsys, make_known_store, "rollback", "--source", "web", "--yes")["withdrawn"] == [tea]
    done = run_json(capsys, make_known_store, "forget", "--about", "dan", "--yes")
    assert (done["done"], len(done["ids"]), [row["what"] for row in done["elsewhere"]]) == (True, 2, [path])
    # What is only in an archive is asked about as well.
    again = run_json(capsys, make_known_store, "forget", "--about", "dan", "--everywhere")
    assert (again, Path(path).exists()) == ({"done": False, "memories": [], "archives": [path]}, True)
    assert run_json(capsys, make_known_store, "forget", "--about", "dan", "--everywhere", "--yes")["erased"]
    assert not Path(path).exists()


def test_all_that_can_be_said_of_a_memory(make_known_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = ("--tag", "a", "--tag", "b", "--importance", "0.9", "--ttl", "30d", "--valid-from", "2026-05-31")
    made = run_json(capsys, make_known_store, "remember", "Dan moved to Oslo", *said)
    assert (made["tags"], made["importance"], made["valid_from"]) == (["a", "b"], 0.9, "2026-05-31T00:00:00.000Z")
    assert made["expires"]
    for wrong in (("--ttl", "soon"), ("--valid-from", "soon")):
        assert main(["memory", "remember", "Dan moved to Oslo", *wrong, "--store", str(make_known_store)]) == 2
        assert "soon" in capsys.readouterr().err


def test_a_question_has_the_filters_of_the_library(make_known_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day = ("--valid-from", "2026-05-31", "--kind", "episodic")
    for text, more in (
        ("Fay sings in Rome", ("--tag", "a", "--trust", "untrusted", *day)),
        ("Fay sings in Oslo", ("--tag", "a", "--tag", "b", "--trust", "0.9", "--kind", "episodic")),
    ):
        run_json(capsys, make_known_store, "remember", text, *more)

    def found(*options: str) -> list[str]:
        said = run_json(capsys, make_known_store, "recall", "where does Fay sing?", "-k", "2", *options)
        return sorted(row["text"].split()[-1] for row in said if "Fay" in row["text"])

    assert found() == ["Oslo", "Rome"]
    assert found("--tag", "b") == found("--min-trust", "0.5") == found("--since", "2026-06-01") == ["Oslo"]
    assert found("--until", "2026-05-31") == found("--as-of", "2026-05-31") == ["Rome"]
    assert found("--kind", "semantic") == found("--known-at", "2026-01-01") == []
    assert main(["memory", "recall", "Fay", "--around", "1", "--store", str(make_known_store)]) == 0
    assert "neighbour: " in capsys.readouterr().out
    assert main(["memory", "recall", "Fay", "--min-trust", "much", "--store", str(make_known_store)]) == 2
    assert "--min-trust" in capsys.readouterr().err
    assert len(run_json(capsys, make_known_store, "forget", "--tag", "a", "--yes")["ids"]) == 2
