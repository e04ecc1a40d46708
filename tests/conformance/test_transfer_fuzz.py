"""Agent files with random damage, and with random forgeries that fit together again: refused, or the same content.

The seeds are fixed, so that the same cases run everywhere. A forger knows the format: after each change it makes
chains, digests and counts anew and signs the file, so that only what is said in the file can be wrong.
"""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from perdure import Agent, PerdureError
from perdure import records as r
from perdure.errors import StoreMovedWarning
from perdure.journal.keys import SigningKey
from perdure.kernel.engine import Engine
from perdure.transfer.export import contents_of

from . import rich_store
from .forged_files import Forger, dump, replace
from .kit import IN_SOAK
from .test_transfer import sound

STRANGER = SigningKey(bytes(range(32)))
BYTES_SEEDS = range(40)
LINES_SEEDS = range(40)
FORGED_SEEDS = range(40)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of an agent in which everything has happened."""
    folder = tmp_path_factory.mktemp("rich")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        agent = Agent("travel", store=rich_store.copy_to(folder / "rich.db"))
        return Path(agent.export(folder / "travel.perdure").path)


class Target:
    """A store in which somebody lives, and into which files are imported until one gets in."""

    def __init__(self, url: str, folder: Path, contents: str) -> None:
        self._url = url
        self._folder = folder
        self._contents = contents
        other = Agent("victim", store=url)
        other.state.set("a", "b", rich_store.LARGE)
        other.close()
        self._before = dump(url, folder)
        self._arrived = 0

    def takes(self, path: Path, *, same: bool) -> bool:
        """Whether a file gets in, with the same content if need be; refused, it leaves nothing."""
        name = f"arrived {self._arrived}"
        try:
            agent = Agent.import_from(path, store=self._url, name=name)
        except PerdureError:
            assert dump(self._url, self._folder) == self._before
            return False
        assert not same or contents_of(agent._engine).contents.hex() == self._contents
        agent.close()
        self._arrived += 1
        self._before = dump(self._url, self._folder)
        return True


@pytest.fixture
def target(honest: Path, store_url: str, tmp_path: Path) -> Target:
    """A new one."""
    return Target(store_url, tmp_path, Forger(honest).end.contents.hex())


def test_damaged_bytes_are_refused(honest: Path, target: Target, tmp_path_factory: pytest.TempPathFactory) -> None:
    whole, path = honest.read_bytes(), tmp_path_factory.mktemp("fuzz") / "damaged"
    for seed in BYTES_SEEDS:
        chance, data = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place = chance.randrange(len(data))
            how = chance.randrange(4)
            if how == 0:
                data[place] ^= 1 << chance.randrange(8)
            elif how == 1:
                del data[place : place + chance.randrange(1, 100)]
            elif how == 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 100))
            else:
                data[place : place + 50] = data[place // 2 : place // 2 + 50]
        path.write_bytes(data)
        target.takes(path, same=True)


def test_damaged_lines_are_refused(honest: Path, target: Target, tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = zstandard.ZstdDecompressor().stream_reader(honest.read_bytes()).read()
    path = tmp_path_factory.mktemp("fuzz") / "damaged"
    for seed in LINES_SEEDS:
        chance, found = random.Random(seed), plain.splitlines(keepends=True)
        one, two = chance.randrange(len(found)), chance.randrange(len(found))
        how = chance.randrange(5)
        if how == 0:
            found[one], found[two] = found[two], found[one]
        elif how == 1:
            found.insert(one, found[two])
        elif how == 2:
            del found[one]
        elif how == 3:
            place = chance.randrange(len(found[one]))
            found[one] = found[one][:place] + chance.randbytes(1) + found[one][place + 1 :]
        else:
            found[one] = found[one].replace(b":1,", b":%d," % chance.choice((0, -1, 1 << 32, 1 << 63, 1 << 64)))
        path.write_bytes(zstandard.ZstdCompressor().compress(b"".join(found)))
        target.takes(path, same=True)


@pytest.mark.sampled
def test_what_is_forged_and_fits_together_is_refused_or_harmless(honest: Path, target: Target, store_url: str) -> None:
    victim = Engine("victim", store=store_url)
    before = contents_of(victim)
    arrived, seeds = 0, FORGED_SEEDS if IN_SOAK or store_url.startswith("sqlite") else FORGED_SEEDS[::4]
    for seed in seeds:
        forger = Forger(honest)
        _forge(forger, random.Random(seed))
        arrived += target.takes(forger.write_file(f"forged {seed}", signer=STRANGER), same=False)
    assert 0 < arrived < len(seeds), "what only changes the forger's own agent gets in"
    assert contents_of(victim) == before
    assert [name for name, *_ in victim.store.read("all_agents")] == [
        *sorted(f"arrived {number}" for number in range(arrived)),
        "victim",
    ]
    victim.close()
    sound(store_url)


def _forge(forger: Forger, chance: random.Random) -> None:
    how = chance.randrange(4)
    if how == 0:  # a field of an entry
        place, _, record = chance.choice(list(forger.records())[1:])
        forger.put(place, _twisted(record, chance))
    elif how == 1:  # an entry of another stream
        found = list(forger.records())
        forger.put(chance.choice(found[1:])[0], chance.choice(found)[2])
    elif how == 2:  # a field of a line
        place = chance.randrange(len(forger.lines))
        forger.lines[place] = _twisted(forger.lines[place], chance)
    else:  # a line left out, twice, or elsewhere
        place = chance.randrange(1, len(forger.lines))
        line = forger.lines.pop(place)
        for _ in range(chance.randrange(3)):
            forger.lines.insert(chance.randrange(1, len(forger.lines)), line)


def _twisted(record: Any, chance: random.Random) -> Any:
    """A record with one field that says something else, of the same type."""
    names = [name for name in record.__struct_fields__ if name != "compaction"]
    name = chance.choice(names)
    value = getattr(record, name)
    if isinstance(value, bool):
        new: Any = not value
    elif type(value) is int:
        new = chance.choice((0, 1, 2, 3, value + 1, 1 << 31, 1 << 32, (1 << 63) - 1))
    elif type(value) is str:
        new = chance.choice(("", "victim", value + "x", "a\0b", "x" * 5000))
    elif type(value) is bytes:
        new = chance.choice((b"", value[:-1], value + b"\0", b"\x01" + bytes(32), b"\x02\x90", chance.randbytes(20)))
    elif isinstance(value, tuple) and value:
        part = chance.choice(value)
        twisted = _twisted(part, chance) if isinstance(part, r.Record) else part
        new = chance.choice(((), (*value, part), tuple(twisted if item is part else item for item in value)))
    elif isinstance(value, msgspec.Struct):
        new = _twisted(value, chance)
    else:
        return record
    return replace(record, **{name: new})
