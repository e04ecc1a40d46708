"""Files that are small on disk and large in memory: refused before they take either memory or disk."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard

from perdure import Agent
from perdure import records as r
from perdure.cli.main import main
from perdure.errors import ArchiveDamaged, ExportDamaged, PerdureError
from perdure.platform.bounded_lines import ExpansionGauge, make_padding
from perdure.records.tasks import decode_awaited_run
from perdure.transfer import file_format
from perdure.transfer.check import check
from perdure.values import limits

from . import rich_store
from .forged_files import Forger, replace
from .kit import run_in_child
from .test_transfer import sound
from .test_transfer_archives import compact, finish

MB = 1 << 20
MEMORY_MAX = 96 * MB
"""How much a process may grow while it finds out that a file is a bomb. Each of them expands to a gigabyte."""
DISK_MAX = 8 * MB
GIGABYTE = 1 << 30


def write_compressed(path: Path, pieces: Iterator[bytes], **more: int) -> Path:
    """A file of some pieces, which need not fit into memory."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, **more)
    with path.open("wb") as file, zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file) as out:
        for piece in pieces:
            out.write(piece)
    return path


def make_plain_file(*found: object) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in found)


def repeat_piece(before: bytes, piece: bytes, size: int) -> Iterator[bytes]:
    """Something, and then the same piece again and again."""
    yield before
    block = piece * max(1, MB // len(piece))
    for _ in range(size // len(block)):
        yield block


def harmless(refused: Callable[[], object], *errors: type[BaseException]) -> None:
    """In a process of its own: it is refused, within little memory, and writes no large file anywhere."""

    def program() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_MAX, DISK_MAX))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(errors):
            refused()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < MEMORY_MAX, f"it took {grown / MB:.0f} MB"

    assert run_in_child(program) == 0


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    """The lines of an honest file."""
    agent = Agent("agent", store=tmp_path / "home.db")
    agent.state.set("a", "b", 1)
    with agent.run("r") as run:
        run.step(lambda: 1, name="one")
    forger = Forger(Path(agent.export(tmp_path / "honest").path))
    agent.close()
    return forger


def bombs(forger: Forger, path: Path) -> Iterator[tuple[str, Path]]:
    """One kind after the other, at the same place."""
    header = make_plain_file(forger.header)
    first = make_plain_file(forger.header, *forger.lines)
    absent, part, entry = (
        make_plain_file(file_format.ExportAbsentArchive("a", "b", "c")),
        make_plain_file(file_format.ExportArchivePart(bytes(1 << 18))),
        b"",
    )
    yield "one endless line", write_compressed(path, repeat_piece(b"", b"a", GIGABYTE))
    yield "an endless line behind the first", write_compressed(path, repeat_piece(header, b" ", GIGABYTE))
    yield (
        "an endless text in a line",
        write_compressed(path, repeat_piece(header + b'{"line":"object","id":"', b"A", GIGABYTE)),
    )
    yield "an endless list", write_compressed(path, repeat_piece(header + b'{"line":"stream","more":', b"[", GIGABYTE))
    yield "empty lines", write_compressed(path, repeat_piece(header, b"\n", GIGABYTE))
    yield "lines of what has stayed behind", write_compressed(path, repeat_piece(first, absent, GIGABYTE))
    yield (
        "an archive",
        write_compressed(
            path,
            repeat_piece(
                first + make_plain_file(file_format.ExportArchive(f"{'a' * 32}.memories.jsonl", GIGABYTE)),
                part,
                GIGABYTE,
            ),
        ),
    )
    stream = make_plain_file(file_format.ExportStream(0, "process", "agent/process of others", 0))
    yield "streams", write_compressed(path, repeat_piece(first, stream, GIGABYTE))
    many = msgspec.msgpack.encode(r.Landed(tuple(r.CheckpointDropped(1, "", 1) for _ in range(200_000))))
    entry = make_plain_file(file_format.ExportEntry(1, r.EntryKind.LANDED, 0, bytes(16) + many, b""))
    yield "entries of many parts", write_compressed(path, repeat_piece(first + stream, entry, GIGABYTE // 4))
    packed = zstandard.ZstdCompressor().compress(bytes(limits.VALUE_BYTES_MAX))
    large = make_plain_file(file_format.ExportObject(bytes(32), False, limits.VALUE_BYTES_MAX, b"\x01" + packed))
    yield "large values", write_compressed(path, repeat_piece(first, large, 64 * len(large)))
    yield "a large window", write_compressed(path, repeat_piece(header, b"a", 300 * MB), window_log=28)
    path.write_bytes(zstandard.ZstdCompressor().compress(bytes(MB)) * 1000)
    yield "many frames", path
    path.write_bytes(b"\x50\x2a\x4d\x18" + (0xFFFFFFFF).to_bytes(4, "little") + b"x")
    yield "a frame to be skipped that is not there", path


def test_a_bomb_is_refused_before_it_goes_off(forger: Forger, tmp_path: Path) -> None:
    for what, path in bombs(forger, tmp_path / "bomb"):
        print(what, path.stat().st_size)
        harmless(lambda path=path: Agent.import_from(path, store=tmp_path / "there.db", name="x"), ExportDamaged)  # type: ignore[misc]
        harmless(lambda path=path: check(path), ExportDamaged)  # type: ignore[misc]
    assert not (tmp_path / "there.db").exists()


def test_an_archive_that_is_a_bomb_is_refused_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = Agent("agent", store=tmp_path / "home.db")
    finish(agent, "old")
    [name] = compact(agent)
    whole = zstandard.ZstdDecompressor().stream_reader((tmp_path / "home.db.archive" / name).read_bytes()).read()
    for before, piece in ((b"", b"a"), (whole[: whole.index(b"\n") + 1], b" "), (whole, b"\n")):
        path = write_compressed(tmp_path / "bomb.jsonl.zst", repeat_piece(before, piece, GIGABYTE))

        def tried(path: Path = path) -> None:
            assert main(["archive", "verify", str(path), "--store", str(tmp_path / "home.db")]) == 1
            assert main(["archive", "show", str(path), "--store", str(tmp_path / "home.db")]) == 2
            raise ArchiveDamaged

        harmless(tried, ArchiveDamaged)
    capsys.readouterr()


def test_a_value_in_a_file_is_expanded_only_as_far_as_the_file_is_large(forger: Forger, tmp_path: Path) -> None:
    """Each of these values is one that Perdure would keep; all of them together are not in a file of this size."""
    packed = b"\x01" + zstandard.ZstdCompressor().compress(bytes(limits.VALUE_BYTES_MAX))
    place = next(n for n, line in enumerate(forger.lines) if isinstance(line, file_format.ExportEntry))
    values = [file_format.ExportObject(bytes([n]) * 32, False, limits.VALUE_BYTES_MAX, packed) for n in range(1, 40)]
    forger.lines[place:place] = values
    path = forger.as_file("bomb", make_plain_file(forger.header, *forger.lines, forger.end))
    harmless(lambda: check(path), ExportDamaged)


def test_an_agent_whose_values_compress_very_well_still_moves(store_url: str, tmp_path: Path) -> None:
    agent = Agent("agent", store=tmp_path / "home.db")
    with agent.run("r") as run:

        def talk() -> None:
            for _ in range(1500):
                run.messages.append({"role": "user", "content": "x" * 3000})

        run.step(talk, name="talk")
    for number in range(3):
        agent.state.set("large", str(number), chr(97 + number) * 30 * MB)
    agent.artifacts.save("noise", rich_store.NOISE * 1000)
    agent.artifacts.save("zeros", bytes(20 * MB))
    path = Path(agent.export(tmp_path / "x").path)
    assert path.stat().st_size < 4 * MB
    there = Agent.import_from(path, store=store_url, name="child")
    assert there.state.get("large", "2") == "c" * 30 * MB
    assert there.artifacts.load("noise") == rich_store.NOISE * 1000
    assert there.artifacts.load("zeros") == bytes(20 * MB)
    assert len(there.runs.get("r").messages) == 1500
    sound(store_url)


def test_an_archive_of_what_compresses_very_well_can_be_read(tmp_path: Path) -> None:
    agent = Agent("agent", store=tmp_path / "home.db")
    with agent.run("old") as run:
        for number in range(2000):
            run.step(lambda: "x" * 4000, name=f"step {number}")
    [name] = compact(agent)
    agent.export(tmp_path / "x.perdure")
    there = Agent.import_from(tmp_path / "x.perdure", store=tmp_path / "there.db", name="child")
    assert there.runs.get("old").archive
    assert (
        main(["archive", "verify", str(tmp_path / "home.db.archive" / name), "--store", str(tmp_path / "home.db")]) == 0
    )


@pytest.mark.parametrize("needed", [1, 7, 8, 9, 5000, 3 * MB])
def test_padding_is_as_long_as_it_is_needed_and_no_reader_sees_it(needed: int) -> None:
    frame = zstandard.ZstdCompressor().compress(b"content\n")
    data = frame + b"".join(make_padding(len(frame), len(frame) + needed))
    assert len(frame) + needed <= len(data) <= len(frame) + needed + 8
    assert zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read() == b"content\n"


def test_a_gauge_asks_for_a_file_that_is_large_enough() -> None:
    gauge = ExpansionGauge()
    assert gauge.needed <= 0
    gauge.count_line(limits.FILE_PLAIN_BYTES + 20 * 1000)
    assert gauge.needed >= 1000
    gauge.value(limits.FILE_VALUE_BYTES + 1000 * 10 * MB)
    assert gauge.needed == 10 * MB


def test_a_wait_for_a_run_is_not_looked_for_among_a_million_words() -> None:
    assert decode_awaited_run(b" " * MB, "run ''") is None
    assert decode_awaited_run(b"agent run", "run 'run'") == ("agent", "run")


def test_a_memory_longer_than_any_is_not_unpacked_in_the_commit(tmp_path: Path) -> None:
    agent = Agent("agent", store=tmp_path / "home.db")
    agent.memory.remember("Ann lives in Oslo " * 1000, about="ann")
    forger = Forger(Path(agent.export(tmp_path / "x").path))
    packed = b"\x01" + zstandard.ZstdCompressor().compress(bytes(limits.VALUE_BYTES_MAX))
    forger.lines = [
        replace(line, size=limits.VALUE_BYTES_MAX, data=packed) if isinstance(line, file_format.ExportObject) else line
        for line in forger.lines
    ]
    path = forger.write_file()
    harmless(lambda: Agent.import_from(path, store=tmp_path / "there.db", accept_unsigned=True), PerdureError)
    assert os.listdir(tmp_path / "there.db.keys") == []
