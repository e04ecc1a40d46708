"""The table of word vectors, and its tokeniser."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from perdure.errors import BadEmbedder
from perdure.memory.recall import lexical, ranking
from perdure.memory.recall.embedders import FunctionEmbedder, embed_texts, embedder_of, table
from perdure.memory.recall.embedding import StaticEmbedder, WordPieces


def test_texts_that_mean_the_same_lie_close_together() -> None:
    dog, puppy, invoice, nothing = StaticEmbedder().embed(["a dog", "a puppy", "an invoice", "\u2603"])
    assert dog @ puppy > 0.6 > 0.4 > dog @ invoice
    assert np.linalg.norm(dog) == pytest.approx(1, abs=1e-5) and not nothing.any()


def test_words_that_mean_the_same_stand_in_for_each_other() -> None:
    near = dict(StaticEmbedder().find_similar_terms("trip"))
    assert near["travel"] > 0.5 > near.get("invoic", 0)
    assert StaticEmbedder().find_similar_terms("qqqq") == ()


def test_the_stored_forms_of_each_term_are_those_of_the_stemmer() -> None:
    """If this fails, `terms.stem` has changed: run `python tools/build_embeddings.py --stems`."""
    table = StaticEmbedder()
    forms = table.forms_by_term()
    known, vectors = table._group_by_stem
    assert list(known) == list(forms)
    for term in ("travel", "child", "hous"):
        mean = sum(table._rows[number] * table._scale[number] for number in forms[term])
        assert vectors[known[term]] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_words_are_cut_into_the_longest_pieces_that_are_known() -> None:
    pieces = WordPieces(["[CLS]", "[SEP]", "[UNK]", "un", "##believ", "##able", "!", "cafe", "中"])
    assert pieces.split_text("Unbelievable! Café中\x00 xyz") == [3, 4, 5, 6, 7, 8]
    assert pieces.frame_text("xyz") == [0, 2, 1]


def test_names_and_common_words_are_not_embedded() -> None:
    scope = lexical.IndexStatistics(100, 5.0, {"carolin": 60, "pot": 1})
    asked = ranking.question("When did caroline make pots with Melanie?", date(2026, 11, 16))
    assert ranking.make_embedding_query(asked, scope) == "When did make pots with ?"
    assert ranking.make_embedding_query(ranking.question("Melanie", date(2026, 11, 16)), scope) == "Melanie"


def test_any_function_is_an_embedder_and_what_it_gives_is_checked() -> None:
    [row] = embed_texts(FunctionEmbedder(lambda texts: [[0, 3, 4]], id="mine"), ["a"])
    assert row.numbers == pytest.approx([0, 0.6, 0.8])
    with pytest.raises(BadEmbedder, match="1 rows of .3. numbers for 2 texts"):
        embed_texts(FunctionEmbedder(lambda texts: [[1.0, 2.0, 3.0]], id="mine", dims=3), ["a", "b"])
    named = embedder_of(lengths)
    assert named is not None and (named.id, named.dims) == ("lengths", 2)
    for strange in (lambda texts: [[1.0]], 3, "bert"):
        with pytest.raises(BadEmbedder):
            embedder_of(strange)
    assert embedder_of(False) is None and embedder_of("words") is None
    assert embedder_of("table") is table()


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), 1.0] for text in texts]


def test_the_network_reads_what_the_table_cannot() -> None:
    embedder = embedder_of("minilm")
    assert embedder is not None
    bank, river, money = (
        np.array(row.numbers) for row in embed_texts(embedder, ["a bank", "a river", "a place for money"])
    )
    assert bank @ money > bank @ river
