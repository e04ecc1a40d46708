"""Extractive summary without a model: selects a few texts that cover most of what all of them say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from perdure.memory.recall.terms import terms


def select_texts(texts: Sequence[str], most: int) -> list[int]:
    """Return the positions of the texts to keep. Deterministic.

    >>> extracted(["checked the mail", "the hotel in Oslo is full in May", "checked the mail", "chose the train"], 2)
    [0, 1]

    Selects greedily: each time the text that adds most to the chosen ones. A subject of many texts counts more, but
    only once, so that repetitions do not crowd out the rest. Length alone is no advantage.
    """
    found = [{*terms(text)} for text in texts]
    common = Counter(term for one in found for term in one)
    left = {term: math.log1p(count) for term, count in common.items()}
    chosen = list[int]()
    while len(chosen) < most:
        gains = [sum(left[term] for term in one) / math.sqrt(len(one) + 1) for one in found]
        best = max(range(len(gains)), key=gains.__getitem__, default=0)
        if not gains or gains[best] <= 0:
            break
        chosen.append(best)
        left |= dict.fromkeys(found[best], 0.0)
    return sorted(chosen)
