"""Does `confidence` tell questions that have an answer from those that have none?

    python -m bench.recall.answers locomo-dev.json words table minilm

Each conversation is asked its own questions, and as many about others in which the names are exchanged for its own, so
that not even these give them away. AUC is how often one of the first kind has more than one of the second.
"""

from __future__ import annotations

import bisect
import random
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.recall.corpus import Corpus, conversations
from perdure import Agent
from perdure.memory.results import Recalled

BARS = (0.3, 0.4, 0.5, 0.6, 0.7)


def auc(more: Sequence[float], less: Sequence[float]) -> float:
    """How often the first are larger than the second; the same counts half."""
    low = sorted(less)
    wins = sum(bisect.bisect_left(low, value) + bisect.bisect_right(low, value) for value in more) / 2
    return wins / (len(more) * len(less))


def foreign(here: Corpus, all_of_them: Sequence[Corpus], chance: random.Random) -> list[str]:
    """Questions that have no answer here."""
    texts = [
        _rename_speakers(question.text, there, here)
        for there in all_of_them
        if there is not here
        for question in there.questions
    ]
    return chance.sample(texts, len(here.questions))


def _rename_speakers(text: str, there: Corpus, here: Corpus) -> str:
    for old, new in zip(_names(there), _names(here), strict=True):
        text = text.replace(old, new)
    return text


def _names(corpus: Corpus) -> list[str]:
    return sorted({memory.text.partition(":")[0] for memory in corpus.memories})


def _agent(corpus: Corpus, folder: str, embedder: str) -> Agent:
    agent = Agent(corpus.name, store=f"sqlite:///{folder}/{corpus.name}.db", embedder=embedder)
    said = [
        {
            "text": memory.text,
            "valid_from": datetime.combine(memory.day, datetime.min.time(), UTC),
            "thread": f"s{memory.thread}",
        }
        for memory in corpus.memories
    ]
    agent.memory.remember_all([{**item, "meta": {"at": at}} for at, item in enumerate(said)], kind="episodic")
    return agent


def measure(corpora: Sequence[Corpus], embedder: str) -> None:
    """Print what one level comes to."""
    chance, with_answer, right, without = random.Random(3), list[Recalled](), list[bool](), list[Recalled]()
    with tempfile.TemporaryDirectory() as folder:
        for corpus in corpora:
            agent = _agent(corpus, folder, embedder)
            for asked in corpus.questions:
                for memory in agent.memory.recall(asked.text, k=1):
                    with_answer.append(memory)
                    right.append(memory.meta["at"] in asked.evidence)
            for text in foreign(corpus, corpora, chance):
                without += agent.memory.recall(text, k=1)
            agent.close()
    for name in ("score", "confidence"):
        there, none = ([float(getattr(recalled, name)) for recalled in found] for found in (with_answer, without))
        good = [value for value, is_right in zip(there, right, strict=True) if is_right]
        bad = [value for value, is_right in zip(there, right, strict=True) if not is_right]
        print(f"{embedder:7} {name:10}  an answer or none {auc(there, none):.3f}  right or wrong {auc(good, bad):.3f}")
    for bar in BARS:
        passed = [
            sum(recalled.confidence >= bar for recalled in found) / len(found) for found in (with_answer, without)
        ]
        print(f"        at least {bar:.1f}: {passed[0]:.0%} with an answer, {passed[1]:.0%} without")


if __name__ == "__main__":
    read = conversations(Path(sys.argv[1]))
    for level in sys.argv[2:] or ("words", "table"):
        measure(read, level)
