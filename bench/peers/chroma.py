"""Chroma in a process of its own: `python -m bench.peers.chroma FILE` says what it finds for each question.

The file has texts, a vector for each, the vectors of questions, and how many results are wanted, in JSON. Vectors are
given to it, since its own model would be downloaded when it is first used; it is the same one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import chromadb  # type: ignore[import-not-found, unused-ignore]

BATCH = 500


def main() -> None:
    """A list of places for each question, as one line of JSON."""
    given = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    made: Any = chromadb.EphemeralClient().create_collection("memories")
    texts, vectors = given["texts"], given["vectors"]
    for start in range(0, len(texts), BATCH):
        numbers = [str(at) for at in range(start, min(start + BATCH, len(texts)))]
        made.add(ids=numbers, documents=texts[start : start + BATCH], embeddings=vectors[start : start + BATCH])
    answers = [made.query(query_embeddings=[asked], n_results=given["count"])["ids"][0] for asked in given["questions"]]
    print(json.dumps({"version": chromadb.__version__, "found": [[int(at) for at in ids] for ids in answers]}))


if __name__ == "__main__":
    main()
