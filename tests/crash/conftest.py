"""One zygote and one folder in memory for the whole suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.harness import Stage, Undisturbed, Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """The process that all victims are forked from."""
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def stage(zygote: Zygote) -> Iterator[Stage]:
    """Where scenes are played."""
    stage = Stage(zygote)
    yield stage
    stage.clear()


@pytest.fixture(scope="session")
def undisturbed(stage: Stage) -> dict[str, Undisturbed]:
    """The victim's run in peace, in both colours."""
    return {colour: stage.scene("victim:main", colour).undisturbed() for colour in ("sync", "async")}
