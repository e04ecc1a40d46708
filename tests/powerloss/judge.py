"""Opens an image with an ordinary SQLite and an ordinary Perdure, and says what is wrong with it."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import apsw

from perdure import PerdureError
from perdure.errors import StoreMovedWarning
from perdure.journal.append import read_events
from perdure.journal.project import VIEWS, project
from perdure.journal.rebuild import check
from perdure.journal.verify import verify
from perdure.journal.verify_report import Severity
from perdure.store import sql

from .disk import Image
from .workload import FILE, JOURNAL, Heads, Program, Recording, Row, Setup, World, heads_in, ignore_ack, make_agent

OK, CORRUPT, LOST, GAP, VIEW, STUCK = "ok", "corrupt", "lost", "gap", "view", "stuck"
"""Verdicts: unreadable or contradictory; less than was acknowledged; not what stood after any call; a view that
is not the projection of the journal; a run that could not be taken up, or repeats what was done."""

_TEXT = {name: sql.number_parameters(named, "?") for name, named in sql.load("sqlite").items()}
_EVENTS = "SELECT id >> 32, id & 4294967295, kind, at, body, chain, digest FROM journal ORDER BY id"


class Bad(Exception):
    """The image is not what it must be."""

    def __init__(self, verdict: str, why: str) -> None:
        super().__init__(f"{verdict}: {why}")
        self.verdict = verdict


@contextmanager
def lay_out_image(image: Image) -> Iterator[str]:
    """The image as files in memory."""
    folder = new_folder()
    try:
        lay_out(folder, image)
        yield folder
    finally:
        shutil.rmtree(folder)


def new_folder() -> str:
    return tempfile.mkdtemp(prefix="perdure-power-")


def lay_out(folder: str, image: Image) -> None:
    """Make the folder hold exactly this image. Writes over what is there, which is twice as fast as making it anew."""
    for name in set(os.listdir(folder)) - set(image):
        os.unlink(os.path.join(folder, name))
    for name, content in image.items():
        descriptor = os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(descriptor, content)
        os.ftruncate(descriptor, len(content))
        os.close(descriptor)


class Judge:
    """Knows what a workload wrote, and compares images with it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._rows = {row[0]: row for row in recording.journal}
        self._needs = dict(zip(self._rows, map(set, recording.references), strict=True))

    def __enter__(self) -> Judge:
        self._folder = new_folder()
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder)

    def judge(self, image: Image, acked: int, *, closely: bool) -> tuple[str, str]:
        """Whether the image holds what was acknowledged, nothing else, and nothing torn. Returns (verdict, why).

        Every entry is compared with what was written. `closely`: the chains are computed anew too, and the views
        compared with the journal.
        """
        lay_out(self._folder, image)
        connection = apsw.Connection(os.path.join(self._folder, FILE))
        # Nobody else looks at the image, and nobody looks again: spares the shared memory and the clearing up.
        connection.pragma("locking_mode", "exclusive")
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            rows = self._read(connection)
            _compare(heads_in(rows), self._recording, acked)
            if closely and rows:
                _compare_views(connection)
        except Bad as bad:
            return bad.verdict, str(bad)
        except (apsw.Error, PerdureError) as error:
            return CORRUPT, f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        return OK, ""

    def _read(self, connection: Any) -> list[Row]:
        """The journal, when every page is sound, and there is nothing in it but what was written."""
        [(verdict,), *_] = connection.execute("PRAGMA integrity_check").fetchall()
        if verdict != "ok":
            raise Bad(CORRUPT, str(verdict))
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return []
        if "answers" not in tables or connection.pragma("user_version") != len(sql.migrations("sqlite")):
            raise Bad(CORRUPT, "the schema is half there")
        rows: list[Row] = connection.execute(JOURNAL).fetchall()
        objects = {row[0] for row in connection.execute("SELECT id FROM objects")}
        before = 0
        for row in rows:
            place = f"{row[0] >> 32}/{row[0] & 0xFFFFFFFF}"
            if row != self._rows.get(row[0]):
                raise Bad(CORRUPT, f"entry {place} is not the one that was written")
            if not self._needs[row[0]] <= objects:
                raise Bad(CORRUPT, f"entry {place} refers to an object that is not there")
            if row[0] != before + 1 and row[0] & 0xFFFFFFFF != 1:
                raise Bad(GAP, f"the entry before {place} is not there")
            before = row[0]
        return rows


def _compare(found: Heads, recording: Recording, acked: int) -> None:
    """Everything acknowledged is there; beyond it only what the call under way may have written."""
    history = recording.history
    if not _covers(found, history[acked]):
        kept = max((n for n in range(acked) if _covers(found, history[n])), default=-1)
        if kept < 0 or not _covers(history[kept + 1], found):
            raise Bad(GAP, f"{found} stood after no call of {history[: acked + 1]}")
        raise Bad(LOST, f"only {kept} of {acked} acknowledged calls are there")
    if acked + 1 < len(history) and not _covers(history[acked + 1], found):
        raise Bad(GAP, f"{found} goes further than {history[acked + 1]}")


def _covers(more: Heads, less: Heads) -> bool:
    return all(more.get(stream, 0) >= seq for stream, seq in less.items())


def _compare_views(connection: Any) -> None:
    """Project the journal into an empty database and compare every view, row by row."""
    fresh = apsw.Connection(":memory:")
    for text in sql.migrations("sqlite"):
        fresh.execute(text).fetchall()
    [(identity,)] = connection.execute(_TEXT["get_meta"], ("identity",)).fetchall()
    # read_events computes the chains. In the order of time: an answer is in another stream than its question.
    entries = [
        (event.at, stream, event.seq, event.record)
        for stream, rows in groupby(connection.execute(_EVENTS).fetchall(), key=lambda row: int(row[0]))
        for event in read_events(identity.hex(), stream, [row[1:] for row in rows])[0]
    ]
    for at, stream, seq, entry in sorted(entries, key=lambda row: row[:3]):
        for statement in project(stream, seq, at, entry):
            if text := _TEXT[statement.name]:  # a file needs no locks of rows
                fresh.execute(text, statement.args).fetchall()
    for view in VIEWS:
        ours, theirs = (sorted(map(repr, one.execute(f"SELECT * FROM {view}"))) for one in (connection, fresh))
        if ours != theirs:
            raise Bad(VIEW, f"{view} is not the projection of the journal")
    fresh.close()


def take_up(image: Image, setup: Setup, recording: Recording, known: set[str], happened: set[str]) -> tuple[str, str]:
    """Let an agent go on from the image: to the same end, running nothing again that had returned, no effect twice."""
    world = World(happened=happened)
    with lay_out_image(image) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreMovedWarning)
        agent = make_agent(folder)
        try:
            outcome = Program(agent, setup, world, ignore_ack).outcome()
            damage = [
                finding for finding in verify(agent._engine.store).findings if finding.severity == Severity.DAMAGE
            ]
            differences = check(agent._engine.store)
        except PerdureError as error:
            return STUCK, f"{type(error).__name__}: {error}"
        finally:
            agent.close()
    if outcome != recording.outcome:
        return STUCK, f"came to {_shorten(outcome)} instead of {_shorten(recording.outcome)}"
    if damage or differences:
        return STUCK, f"not whole afterwards: {damage} {differences}"
    again = known & set(world.ran)
    if again or world.twice:
        return STUCK, f"ran again: {sorted(again)}; happened twice: {world.twice}"
    return OK, ""


def _shorten(outcome: dict[str, Any]) -> str:
    return str({run: result["total"] for run, result in outcome.items()})
