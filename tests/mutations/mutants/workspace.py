"""Workspaces: what people have written, and where nothing may be written."""

from __future__ import annotations

from tests.mutations.mutant import mutant

SPACE = "conformance/test_workspace.py::"
TEXT = "unit/test_workspace_text.py::"
FILES = "unit/test_workspace_files.py::"
CRASH = "crash/test_workspace.py::"

OF_WORKSPACES = (
    mutant(
        "a-file-is-written-in-place",
        "who is killed while he writes a file leaves half of it, or nothing",
        CRASH + "test_killed_at_every_system_call_that_changes_a_file",
        "files.py",
        "        with _synced(aside, PRIVATE, folder) as file:\n            file.write(data)\n",
        "        with open(os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=folder), 'wb') as file:\n"
        "            file.write(data)\n        return data\n",
    ),
    mutant(
        "a-file-gets-its-name-before-it-is-on-disk",
        "a power cut after a rename leaves an empty file under a name that people know",
        CRASH + "test_a_file_is_on_disk_before_it_gets_its_name",
        "files.py",
        "        yield file\n        file.flush()\n        os.fsync(file.fileno())\n",
        "        yield file\n",
    ),
    mutant(
        "what-is-saved-meanwhile-is-not-looked-at",
        "what a person saves while the agent writes the same file is lost",
        FILES + "test_nothing_is_lost_that_is_saved_while_files_are_written",
        "files.py",
        "            return _read_when_closed(aside, folder)\n",
        "            return None\n",
    ),
    mutant(
        "a-file-is-read-while-somebody-saves-it",
        "an editor that empties a file before it writes it makes the agent forget who it is",
        FILES + "test_a_file_that_somebody_is_saving_is_read_when_it_is_saved",
        "workspace/root.py",
        "                wait_for_writers(descriptor)\n",
        "",
    ),
    mutant(
        "links-are-followed",
        "who swaps a folder for a link has files written elsewhere",
        FILES + "test_links_lead_nowhere",
        "workspace/root.py",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY",
    ),
    mutant(
        "the-journal-wins",
        "what a person has written is lost when the agent has changed the file too",
        SPACE + "test_both_sides_may_change_everything",
        "workspace/syncing.py",
        "merged = merge(self._base(), ours.text, self._file)",
        "merged = merge(self._file, ours.text, self._file)",
    ),
    mutant(
        "without-a-base-lines-count-as-removed",
        "a folder that has forgotten what it was in step with makes lines disappear",
        TEXT + "test_what_one_side_has_added_is_there",
        "workspace/merging.py",
        "_lines(base) if base is not None else _shared(mine, yours)",
        "_lines(base) if base is not None else mine",
    ),
    mutant(
        "a-log-is-shown-twice",
        "after a crash, what was logged is in the file of the day a second time",
        SPACE + "test_a_log_lands_with_its_step",
        "workspace/syncing.py",
        "    if plan.logged.upto != plan.shelf.logged:\n",
        "    if False:\n",
    ),
    mutant(
        "an-old-log-is-not-archived",
        "a log that has become old is gone, but for what was kept of it",
        SPACE + "test_old_logs_are_consolidated_and_put_away",
        "workspace/old_logs.py",
        "    yield Read(_archive, (home, path, text))\n",
        "",
    ),
    mutant(
        "what-is-forgotten-stays-in-old-versions",
        "a text that was to be forgotten everywhere is still in versions of a log",
        SPACE + "test_what_is_forgotten_is_in_no_file_and_the_rest_stays",
        "workspace/redacting.py",
        "    asks += [ask(engine, LOGGED, shelf.logged)] if shelf.logged else []\n",
        "",
    ),
    mutant(
        "git-takes-what-is-staged",
        "a file that the user has staged is committed by the agent",
        FILES + "test_git_is_told_what_happened_and_what_is_staged_stays",
        "workspace/git.py",
        "wanted = sorted(({*there} | tracked) - his)",
        "wanted = sorted({*there} | tracked)",
    ),
    mutant(
        "a-long-memory-pushes-the-rest-out",
        "an agent with a long memory wakes up without its tasks and its progress",
        TEXT + "test_the_identity_comes_first_and_a_long_memory_pushes_nothing_out",
        "workspace/boot.py",
        "left - sum(kept[place + 1 :]) - 1, count",
        "left - 1, count",
    ),
)
