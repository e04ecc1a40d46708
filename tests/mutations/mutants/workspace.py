"""Workspaces: what people have written, and where nothing may be written."""

from __future__ import annotations

from tests.mutations.edit import Edit
from tests.mutations.mutant import mutant

SPACE = "conformance/test_workspace.py::"
TEXT = "unit/test_workspace_text.py::"
FILES = "unit/test_workspace_files.py::"
CRASH = "crash/test_workspace.py::"
HOSTILE = "conformance/test_workspace_hostile.py::"
GIT = "unit/test_workspace_git.py::"
RACES = "unit/test_workspace_races.py::"
PROGRESS = "conformance/test_workspace_progress.py::"

MUTANTS = (
    mutant(
        "progress-of-an-item-not-shown",
        "after a kill PROGRESS.md lacks the finished items of a loop",
        "conformance/test_workspace_progress.py::test_the_progress_of_a_loop_is_right_after_a_kill_and_told_once",
        "perdure.presence.workspace.open_folder:next_item",
        ("yield from _show_item(loop.run, writes)", ""),
    ),
    mutant(
        "done-told-again-on-resume",
        "a resumed run commits once more that something is done",
        "conformance/test_workspace_progress.py::test_the_progress_of_a_loop_is_right_after_a_kill_and_told_once",
        "perdure.presence.handoff.progress:report",
        ("run.head.seq != before", "True"),
    ),
    mutant(
        "left-over-uncommitted",
        "progress that a killed process wrote stays without a commit",
        "conformance/test_workspace_progress.py::test_a_kill_before_the_commit_of_git_leaves_nothing_uncommitted",
        "perdure.presence.workspace.workspace:sync_folder",
        ('"Commit what an earlier process left" if at_start else ""', '""'),
    ),
    mutant(
        "a-file-is-written-in-place",
        "who is killed while he writes a file leaves half of it, or nothing",
        CRASH + "test_killed_at_every_system_call_that_changes_a_file",
        "perdure.platform.files:swap_file",
        (
            "begun, aside = temporary_name(name), temporary_name(name, tag)",
            (
                "begun, aside = temporary_name(name), temporary_name(name, tag)\n"
                "with open(os.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=folder), 'wb') as file:\n"
                "    file.write(data)"
            ),
        ),
    ),
    mutant(
        "a-file-gets-its-name-before-it-is-on-disk",
        "a power cut after a rename leaves an empty file under a name that people know",
        CRASH + "test_a_file_is_on_disk_before_it_gets_its_name",
        "perdure.platform.files:_create_synced",
        ("yield file\nfile.flush()\nos.fsync(file.fileno())", "yield file"),
    ),
    mutant(
        "what-is-saved-meanwhile-is-not-looked-at",
        "what a person saves while the agent writes the same file is lost",
        RACES + "test_what_is_saved_in_a_gap_is_there",
        "perdure.presence.workspace.replace_file:_swap_text",
        ("saved == before", "saved or True"),
    ),
    mutant(
        "a-file-is-read-while-somebody-saves-it",
        "an editor that empties a file before it writes it makes the agent forget who it is",
        FILES + "test_a_file_that_somebody_is_saving_is_read_when_it_is_saved",
        "perdure.platform.files:read_stable",
        (
            "if not busy or late:\n    before = _stamp(descriptor)\n    ...",
            "if busy or not busy:\n    busy, late = (False, True)\n    before = _stamp(descriptor)\n    ...",
        ),
    ),
    mutant(
        "a-lease-is-told-by-sigio",
        "an editor that opens a file while it is looked at kills the agent",
        RACES + "test_opening_a_file_for_writing_ends_no_process",
        "perdure.platform.files:_has_writer",
        ("signal.SIGURG", "0"),
    ),
    mutant(
        "git-opens-the-repository",
        "a repository that somebody else has prepared runs programs when an agent syncs",
        HOSTILE + "test_a_repository_runs_nothing_that_it_configures",
        "perdure.presence.workspace.repository:GitRepository._git",
        (
            '{"GIT_DIR": "git", "GIT_WORK_TREE": "tree"}',
            '{"GIT_DIR": os.path.join(self._root.path, GIT), "GIT_WORK_TREE": "tree"}',
        ),
    ),
    mutant(
        "a-killed-commit-is-not-finished",
        "who is killed while he commits leaves an index that says that everything was staged to be undone",
        GIT + "test_killed_while_it_commits",
        "perdure.presence.workspace.repository:_recover_commit",
        ("root.write(_INDEX, index)", "pass"),
    ),
    mutant(
        "a-file-with-another-name-is-read",
        "a hard link to a private key in a workspace brings the key into the journal",
        HOSTILE + "test_a_file_with_another_name_is_neither_read_nor_written",
        "perdure.presence.workspace.root:WorkspaceRoot._is_alone",
        ("now.st_nlink > 1", "now.st_nlink > 99"),
        Edit("perdure.presence.workspace.root:WorkspaceRoot._is_alone", "return now.st_nlink <= 1", "return True"),
    ),
    mutant(
        "what-stands-beside-a-file-is-anybodys",
        "a hard link under a name that a killed process leaves is read",
        HOSTILE + "test_what_stands_beside_a_file_with_another_name_is_not_read",
        "perdure.presence.workspace.root:WorkspaceRoot._find_displaced",
        (
            "not is_same or not stat.S_ISREG(now.st_mode) or now.st_nlink > 1",
            "not is_same or not stat.S_ISREG(now.st_mode)",
        ),
    ),
    mutant(
        "a-separator-begins-a-line",
        "whoever writes a mail forges a line of the agent's log with U+2028",
        HOSTILE + "test_no_text_begins_a_line_that_is_taken_for_ours",
        "perdure.values.lines:_END",
        ('"\\r\\n|[\\r\\v\\f\\x1c\\x1d\\x1e\\x85\\u2028\\u2029]"', '"\\r\\n|[\\r\\v\\f\\x1c\\x1d\\x1e\\x85\\u2029]"'),
    ),
    mutant(
        "the-source-stands-outside-of-the-mark",
        "the name of a sender is read by a model as if the agent had said it",
        HOSTILE + "test_what_others_have_chosen_stands_inside_the_mark",
        "perdure.presence.context.sources:memory_line",
        ("[*known, *doubt]", "[*known, *said, *doubt]"),
    ),
    mutant(
        "a-folder-says-whose-it-is",
        "a cloned repository becomes the workspace of an agent because it says so",
        HOSTILE + "test_a_folder_that_only_says_whose_it_is_is_left_alone",
        "perdure.presence.workspace.scan:is_sealed",
        (
            "return marker.agent == engine.name and compare_digest(marker.seal.encode(), seal_of(engine).encode())",
            "return marker.agent == engine.name",
        ),
    ),
    mutant(
        "a-folder-chooses-a-server",
        "a cloned repository names a server, which is sent the user's password",
        HOSTILE + "test_a_folder_does_not_choose_a_server",
        "perdure.cli.workspace:_store_of",
        ("marker.store and not is_embedded(marker.store)", "not marker.store"),
    ),
    mutant(
        "links-are-followed",
        "who swaps a folder for a link has files written elsewhere",
        FILES + "test_links_lead_nowhere",
        "perdure.presence.workspace.root:_FOLDER",
        ("os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW", "os.O_RDONLY | os.O_DIRECTORY"),
    ),
    mutant(
        "the-journal-wins",
        "what a person has written is lost when the agent has changed the file too",
        SPACE + "test_both_sides_may_change_everything",
        "perdure.presence.workspace.scan:_FileMerge.change",
        (
            "merge(self._base, ours.text, self.read_saved_text).text",
            "merge(self._file, ours.text, self.read_saved_text).text",
        ),
    ),
    mutant(
        "without-a-base-lines-count-as-removed",
        "a folder that has forgotten what it was in step with makes lines disappear",
        TEXT + "test_what_one_side_has_added_is_there",
        "perdure.presence.workspace.merge:merge",
        (
            "_lines(base) if base is not None else _find_common_lines(mine, yours)",
            "_lines(base) if base is not None else mine",
        ),
    ),
    mutant(
        "a-log-is-shown-twice",
        "after a crash, what was logged is in the file of the day a second time",
        SPACE + "test_a_log_lands_with_its_step",
        "perdure.presence.workspace.sync:_make_write_batches",
        ("plan.logged.upto != plan.shelf.logged", "False"),
    ),
    mutant(
        "an-old-log-is-not-archived",
        "a log that has become old is gone, but for what was kept of it",
        SPACE + "test_old_logs_are_consolidated_and_put_away",
        "perdure.presence.workspace.log_archive:_archive_log",
        ("yield Read(_archive, (home.root, archive_of(path), day.text))", ""),
    ),
    mutant(
        "what-is-forgotten-stays-in-old-versions",
        "a text that was to be forgotten everywhere is still in versions of a log",
        SPACE + "test_what_is_forgotten_is_in_no_file_and_the_rest_stays",
        "perdure.presence.workspace.redact:_PastVersions.make_values",
        ("place in tainted", "not tainted"),
    ),
    mutant(
        "a-save-goes-with-the-file-that-it-was-in",
        "who is killed after somebody has saved a file takes along what that had in it",
        RACES + "test_killed_after_somebody_has_saved",
        "perdure.presence.workspace.replace_file:_swap_text",
        ("held.append(found)", "root.let_go(found)"),
    ),
    mutant(
        "a-save-goes-before-the-journal-has-it",
        "what a person has saved is nowhere any more, when an editor that has not seen it saves the file",
        RACES + "test_killed_before_a_save_is_saved_over",
        "perdure.presence.workspace.sync:rounds",
        (
            "try:\n    yield from _commit(engine, plan, also)\nexcept VersionConflict:\n    continue",
            (
                "yield Read(let_go, (root, plan.saved))\n"
                "try:\n"
                "    yield from _commit(engine, plan, also)\n"
                "except VersionConflict:\n"
                "    continue"
            ),
        ),
    ),
    mutant(
        "nobody-looks-for-what-was-displaced",
        "what people have saved in files that somebody was killed over is never brought back",
        RACES + "test_killed_after_somebody_has_saved",
        "perdure.presence.workspace.sync:rounds",
        ("saves: SavedCopies = yield Read(_rescue, (engine, root, bases, strike))", "saves: SavedCopies = {}"),
    ),
    mutant(
        "a-file-is-removed-whatever-was-saved-in-it",
        "a file that somebody saves while the agent removes it is gone",
        RACES + "test_a_file_that_is_saved_while_it_is_removed_stays",
        "perdure.presence.workspace.replace_file:remove_unchanged",
        ("decode_text(found.data) == before", "decode_text(found.data) or True"),
    ),
    mutant(
        "what-is-saved-while-something-is-forgotten-brings-it-back",
        "a person who saves a file at that moment has the forgotten text stored again",
        RACES + "test_what_is_saved_while_something_is_forgotten",
        "perdure.presence.workspace.replace_file:_swap_text",
        (
            "before, now = now, strike(merge(strike(before), now, strike(saved)).text)",
            "before, now = now, merge(before, now, saved).text",
        ),
    ),
    mutant(
        "the-folder-is-free-before-the-journal-forgets",
        "a sync that comes between the redaction and the erasure shows again what the journal still has",
        RACES + "test_no_process_works_in_the_folder_while_something_is_erased",
        "perdure.presence.workspace.redact:DocumentRedaction.redact",
        (
            "paths = (*(yield from _redact_folder(self._engine, home, strike)), *archived)",
            "paths = (*(yield from _redact_folder(self._engine, home, strike)), *archived)\nself.release()",
        ),
    ),
    mutant(
        "a-folder-that-is-behind-brings-it-back",
        "an edited folder of another host stores what was forgotten once more",
        RACES + "test_a_folder_that_is_behind_does_not_bring_it_back",
        "perdure.presence.workspace.scan:_FileMerge._unforgotten",
        ("return remove_forgotten(self._engine.store.content_key, self._shelf.forgotten, text)", "return text"),
    ),
    mutant(
        "a-document-is-removed-because-it-has-the-text",
        "a person who saves a file while something is forgotten loses the whole document",
        RACES + "test_a_document_that_has_it_again_is_not_removed",
        "perdure.memory.erasure.erase:_CopySorter._explain_stay",
        ("self._is_written_again(record)", "False"),
    ),
    mutant(
        "what-people-add-to-progress-is-taken-for-ours",
        "a section of a person's own in PROGRESS.md becomes context, escaped and doubled",
        PROGRESS + "test_a_section_of_a_persons_own_stays_as_it_was_written",
        "perdure.presence.handoff.progress_text:_ProgressReader._take",
        ("self._names is None", "self._names is None or heading is not None"),
    ),
    mutant(
        "a-box-of-a-person-is-not-read",
        "what people write down as left to do is in nobody's progress",
        PROGRESS + "test_boxes_that_people_write_are_what_is_left",
        "perdure.presence.handoff.progress_text:_ProgressReader._take",
        ("if not self._fenced:\n    section.tick(line)", ""),
    ),
    mutant(
        "a-tick-contradicts-itself",
        "who ticks a box beside one that the agent ticks gets marks of a conflict, with the same on both sides",
        PROGRESS + "test_boxes_that_say_the_same_are_ticked_one_by_one",
        "perdure.presence.workspace.generated:ProgressFile._notes",
        ("return tick_notes(self.page(text).notes, self._found)", "return self.page(text).notes"),
    ),
    mutant(
        "a-handoff-does-not-say-what-comes-next",
        "whoever goes on does not know what the last one was about to do, and what kept him",
        PROGRESS + "test_the_handoff_tells_how_far_every_open_run_is",
        "perdure.presence.handoff.pending:AgentHandoff._describe_unfinished",
        ("progress_lines(known.get(run.id) or self.read_progress(run.id))", "()"),
    ),
    mutant(
        "what-is-written-in-place-of-a-handoff-is-torn-apart",
        "a heading of a person's stands in the middle of a handoff, and what belongs to it at its end",
        PROGRESS + "test_what_people_write_in_place_of_a_handoff_stands_behind_it",
        "perdure.presence.workspace.generated:HandoffFile._is_replaced",
        ('return title in base.split("\\n") and title not in text.split("\\n")', "return False"),
    ),
    mutant(
        "what-is-no-utf-8-is-shown-as-it-is",
        "a file with one wrong byte makes a bootstrap that no client can send to a model",
        FILES + "test_a_file_that_is_no_utf_8_stays_so_and_can_be_shown",
        "perdure.presence.workspace.bootstrap:_render_section",
        ("normalize_newlines(readable(text))", "normalize_newlines(text)"),
    ),
    mutant(
        "whatever-stands-in-a-log-is-believed",
        "a line that anybody has written into a log becomes a memory that is trusted",
        PROGRESS + "test_a_memory_of_a_log_is_trusted_no_more_than_its_writer",
        "perdure.presence.workspace.log_archive:_memories",
        (
            (
                "wish_of(_storable(known.text or said), source=known.source or path, trust=known.trust,"
                " valid_from=day.day)"
            ),
            "wish_of(_storable(known.text or said), source=known.source or path, valid_from=day.day)",
        ),
    ),
    mutant(
        "git-takes-what-is-staged",
        "a file that the user has staged is committed by the agent",
        FILES + "test_git_is_told_what_happened_and_what_is_staged_stays",
        "perdure.presence.workspace.git:_commit_changes",
        ("sorted(new | {*known} - his)", "sorted(new | {*known})"),
    ),
    mutant(
        "git-takes-what-is-the-users-own",
        "a file of the user's in a folder called tasks is committed by the agent",
        FILES + "test_what_is_the_users_in_a_repository_stays_so",
        "perdure.presence.workspace.git:_ours",
        (
            "{path: entry for path, entry in found.items() if _is_ours(path)}",
            "{path: entry for path, entry in found.items()}",
        ),
        Edit(
            "perdure.presence.workspace.git:_commit_changes",
            "{path: entry for path, entry in staged.items() if _is_ours(path)}",
            "{path: entry for path, entry in staged.items()}",
        ),
    ),
    mutant(
        "a-long-memory-pushes-the-rest-out",
        "an agent with a long memory wakes up without its tasks and its progress",
        TEXT + "test_the_identity_comes_first_and_a_long_memory_pushes_nothing_out",
        "perdure.presence.workspace.bootstrap:_fit_sections",
        ("left - sum(kept[place + 1 :])", "left"),
    ),
)
