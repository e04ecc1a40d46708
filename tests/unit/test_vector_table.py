"""The table of vectors in memory: among many rows, sketches choose what is compared."""

from __future__ import annotations

from time import process_time, sleep, thread_time

import numpy as np
import pytest

from perdure.data.search import vectors
from perdure.data.search.vectors import NumpyVectorTable, PlainVectorTable, packed_rows

ROWS, DIMS, QUESTIONS, NEAREST = 6000, 96, 40, 10


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketches for few rows, and few of them compared, as if there were a hundred times as many."""
    monkeypatch.setattr(vectors, "SKETCHES_FROM", ROWS // 2)
    monkeypatch.setattr(vectors, "SKETCHED_ROWS", 500)


def texts_of(seed: int, count: int) -> list[bytes]:
    """Vectors in clusters, as those of texts are."""
    chance = np.random.default_rng(seed)
    middles = np.random.default_rng(0).standard_normal((200, DIMS))
    return packed_rows(middles[chance.integers(0, 200, count)] + 0.9 * chance.standard_normal((count, DIMS)) + 0.5)


def recalled(table: NumpyVectorTable) -> float:
    """The share of the ten nearest that are found."""
    shares = []
    for question in texts_of(2, QUESTIONS):
        exact = np.sort(table.products(question))[-NEAREST]
        found = table.products(question, table.nearest(question, NEAREST))
        assert list(found) == sorted(found, reverse=True)
        shares.append(float((found >= exact - 1e-6).mean()))
    return sum(shares) / len(shares)


def test_sketches_find_what_comparing_every_vector_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    table, rows = NumpyVectorTable(np), texts_of(1, ROWS)
    table.extend(rows[:-500])
    assert recalled(table) > 0.99
    table.extend(rows[-500:])
    table.put(ROWS, rows[0])
    assert recalled(table) > 0.99  # those that came after the sketches were made are found too
    assert table.nearest(rows[0], 2) in ([0, ROWS], [ROWS, 0])
    monkeypatch.setattr(vectors, "SKETCHED_ROWS", 0)
    monkeypatch.setattr(vectors, "SKETCHED_SHARE", ROWS)
    assert recalled(table) < 0.99  # it is the sketches that choose


def test_an_erased_row_is_not_found_by_its_sketch() -> None:
    table, rows = NumpyVectorTable(np), texts_of(1, ROWS)
    table.extend(rows)
    assert recalled(table) > 0.99
    [first, *_] = table.nearest(rows[7], 1)
    table.put(first, bytes(4 * DIMS))
    assert first == 7 not in table.nearest(rows[7], NEAREST)
    assert table.products(rows[7], [7]) == [0.0]


def test_many_rows_are_kept_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    table, rows = NumpyVectorTable(np), texts_of(1, ROWS)
    table.extend(rows[:1000])
    before = table.products(rows[0])
    monkeypatch.setattr(vectors, "HALF_FROM", 2000)
    table.extend(rows[1000:])
    assert table.products(rows[0])[:1000] == pytest.approx(before, abs=1e-3)
    assert table._rows.nbytes < 1.5 * 2 * DIMS * ROWS
    assert recalled(table) > 0.99


def test_without_numpy_it_is_the_same() -> None:
    plain, quick, rows = PlainVectorTable(), NumpyVectorTable(np), texts_of(1, 300)
    for table in (plain, quick):
        table.extend(rows)
    for question in texts_of(2, 5):
        assert plain.nearest(question, 9) == quick.nearest(question, 9)
        assert plain.products(question, [3, 5]) == pytest.approx(list(quick.products(question, [3, 5])))


def test_products_are_made_in_the_thread_that_asks() -> None:
    table = NumpyVectorTable(np)
    rows = np.random.default_rng(2).standard_normal((30_000, 192)).astype("<f4")
    table.extend([row.tobytes() for row in rows])
    whole, own = process_time(), thread_time()
    for row in rows[:20]:
        products = table.products(row.tobytes())
        sleep(0.02)
    others = process_time() - whole - (thread_time() - own)
    assert others < 0.1, "threads of the linear algebra library wait in a loop, some 10 ms after each product"
    assert np.allclose(products, rows @ row, atol=1e-3)
