"""What is worth keeping of many texts, without a model: a few of them that say most of what all of them say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from .terms import terms


def extracted(texts: Sequence[str], most: int) -> list[int]:
    """Which of the texts to keep, as places in their order; the same for the same texts.

    >>> extracted(["checked the mail", "the hotel in Oslo is full in May", "checked the mail", "chose the train"], 2)
    [0, 1]

    One after the other, each time the one with most that the chosen ones do not say yet. What many of them speak of
    counts more, so that a subject of the whole is there; but once only, so that what is repeated does not crowd out the
    rest. Long ones are not better for being long.
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
