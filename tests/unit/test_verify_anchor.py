"""An old copy of a store is genuine in itself: only an anchor kept elsewhere tells that it is not the newest."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure import Agent
from perdure.errors import CorruptValue, WrongStore
from perdure.journal.anchor import Anchor, AnchoredHead, compare, decode_anchor, make_anchor, write_anchor
from perdure.journal.keys import find
from perdure.journal.verify import agent_keys, verify
from perdure.journal.verify_report import FindingKind, Severity, VerifyFinding
from tests.conformance.rich_store import copy_to, open_copy

pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return copy_to(tmp_path / "perdure.db")


def anchor_of(path: Path) -> Anchor:
    heads: list[AnchoredHead] = []
    key = find("travel", f"{path}.keys", None)
    assert key is not None
    with closing(open_copy(path)) as store:
        report = verify(store, on_head=lambda stream, seq, link: heads.append(AnchoredHead(stream, seq, link.hex())))
        assert report.ok
        return make_anchor(store, heads, {"travel": key})


def compare_anchor(path: Path, anchor: Anchor) -> list[VerifyFinding]:
    with closing(open_copy(path)) as store:
        assert verify(store).ok  # the copy is sound in itself
        return list(compare(store, anchor, agent_keys(store)))


def work(path: Path, *run_ids: str) -> None:
    agent = Agent("travel", store=path)
    for run_id in run_ids:
        with agent.run(run_id) as run:
            run.state["done"] = run_id
    agent.close()


def test_a_store_that_only_grew_fits_its_anchor(path: Path) -> None:
    anchor = anchor_of(path)
    assert len(anchor.heads) == 13
    assert compare_anchor(path, anchor) == []
    work(path, "later")
    assert compare_anchor(path, anchor) == []


def put_back(old: str, path: Path) -> None:
    """An attacker takes the mark away as well."""
    shutil.copy(old, path)
    Path(f"{path}-mark").unlink()


def test_a_rollback_of_the_whole_file_is_found(path: Path, tmp_path: Path) -> None:
    old = shutil.copy(path, tmp_path / "old.db")
    work(path, "later", "last")
    anchor = anchor_of(path)
    put_back(old, path)
    found = compare_anchor(path, anchor)
    assert {(finding.what, finding.stream, finding.seq) for finding in found} == {
        (FindingKind.ROLLED_BACK, 14, 1),
        (FindingKind.ROLLED_BACK, 15, 1),
    }


def test_a_fork_is_found(path: Path, tmp_path: Path) -> None:
    old = shutil.copy(path, tmp_path / "old.db")
    work(path, "later")
    anchor = anchor_of(path)
    put_back(old, path)
    work(path, "something else", "and more")
    assert [(finding.what, finding.stream) for finding in compare_anchor(path, anchor)] == [(FindingKind.FORKED, 14)]


def test_an_anchor_of_another_store_says_nothing_about_this_one(path: Path, tmp_path: Path) -> None:
    anchor = anchor_of(path)
    work(tmp_path / "other.db", "one")
    with pytest.raises(WrongStore, match=f"another store: '{anchor.store}'"):
        compare_anchor(tmp_path / "other.db", anchor)


def test_an_agent_that_has_another_key_now_is_found(path: Path) -> None:
    anchor = anchor_of(path)
    with closing(open_copy(path)) as store:
        [finding] = compare(store, anchor, {"travel": b"another"})
    assert (finding.what, finding.stream) == (FindingKind.FORKED, 0)


def test_an_edited_anchor_is_found(path: Path) -> None:
    anchor = anchor_of(path)
    shorter = msgspec.structs.replace(anchor, heads=anchor.heads[:3])
    assert [finding.what for finding in compare_anchor(path, shorter)] == [FindingKind.ANCHOR]
    garbage = msgspec.structs.replace(anchor.signatures[0], signature="zz")
    assert [
        finding.what for finding in compare_anchor(path, msgspec.structs.replace(anchor, signatures=(garbage,)))
    ] == [FindingKind.ANCHOR]


def test_an_unsigned_anchor_says_so_and_still_serves(path: Path) -> None:
    anchor = msgspec.structs.replace(anchor_of(path), signatures=())
    [finding] = compare_anchor(path, anchor)
    assert (finding.what, finding.severity) == (FindingKind.ANCHOR, Severity.UNSIGNED)


def test_an_anchor_survives_its_file(path: Path) -> None:
    anchor = anchor_of(path)
    assert decode_anchor(write_anchor(anchor)) == anchor


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\xff\xfe", b'{"format": "perdure anchor 9", "store": "", "at": 0, "heads": []}', b"[" * 9999]
)
def test_what_is_no_anchor_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptValue):
        decode_anchor(data)
