"""A store that was put back to an earlier moment: what it cannot know, and how one finds out."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import Agent, Done, NotDone
from perdure.store import open_store


@pytest.mark.filterwarnings("ignore::perdure.errors.StoreMovedWarning")
def test_what_happened_after_the_moment_of_the_copy_happens_again_with_another_key(
    store_url: str, tmp_path: Path
) -> None:
    copy, sent, asked = tmp_path / "copy.db", [], []

    def was_sent(*, key: str) -> Done | type[NotDone]:
        asked.append(key)
        return Done() if key in sent else NotDone

    def work(url: str, broken: bool) -> None:
        agent = Agent("clerk", store=url)
        with agent.run("letter") as run:
            run.step(str.upper, "dear ada")
            if broken:
                store = open_store(url)
                store.backup(str(copy))
                store.close()
            run.effect(lambda *, key: sent.append(key), name="send", check=was_sent)
            if broken:
                raise ConnectionError
        agent.close()

    with pytest.raises(ConnectionError):
        work(store_url, broken=True)
    work(store_url, broken=False)
    assert len(sent) == 1
    work(f"sqlite:///{copy}", broken=False)
    assert len(sent) == len(set(sent)) == 2, "the copy knows nothing of the first, and nobody is in doubt"
    assert asked == []
