"""Values: nothing names code, nothing is lost in silence, every refusal says where."""

from __future__ import annotations

from tests.mutations.mutant import mutant

STEPS = "conformance/test_steps.py::"
LATER = "conformance/test_versions.py::test_an_entry_of_a_later_version_is_refused_and_not_skipped"

VALUES = (
    mutant(
        "path-missing-in-refusals",
        "a refusal does not say which part of a value it means",
        STEPS + "test_a_result_that_cannot_be_stored_is_named",
        "codec/refusals.py",
        'return self.error(f"{path}{_shown(self.trail)}: {self.reason}")',
        'return self.error(f"{path}: {self.reason}")',
    ),
    mutant(
        "unknown-kind-accepted",
        "bytes that no version of Perdure has written become a value",
        "unit/test_codec_forged.py::test_types_that_nobody_registered",
        "codec/read.py",
        "    if leaf is None:\n        raise _unknown_tag(node.code)\n",
        "    if leaf is None:\n        return node.data\n",
    ),
    mutant(
        "unregistered-name-accepted",
        "a value of a type that nobody registered comes back as a dict",
        "unit/test_codec_stored.py::test_an_unknown_name",
        "codec/read.py",
        '        raise UnknownType(f"nothing is registered here under the stored name {name!r}")\n',
        "        return fields\n",
    ),
    mutant(
        "any-form-accepted",
        "two different byte strings are the same value, so that a digest proves nothing",
        "unit/test_codec_forged.py::test_bytes_that_perdure_never_writes",
        "codec/read.py",
        "        if not ours and ENCODE(value) != data:",
        "        if False:",
    ),
    mutant(
        "no-upcaster-needed",
        "an old value is read as if it were a new one",
        "unit/test_codec_versions.py::test_a_gap_between_versions_is_named",
        "codec/registry.py",
        "    for step in range(version, entry.version):\n",
        "    for step in range(0):\n",
    ),
    mutant(
        "newer-data-accepted",
        "old code reads what newer code has written, and misunderstands it",
        "unit/test_codec_versions.py::test_data_newer_than_the_code",
        "codec/registry.py",
        "    if version > entry.version:\n",
        "    if False:\n",
    ),
    mutant(
        "later-fields-left-out",
        "an entry that a later version has written is read without what it does not know",
        LATER,
        "plan_records.py",
        ', gc=False, forbid_unknown_fields=True):\n    """The content of a journal entry.\n',
        ', gc=False):\n    """The content of a journal entry.\n',
    ),
    mutant(
        "later-entries-called-damage",
        "who has an old program is told to restore a backup",
        LATER,
        "records.py",
        "        if isinstance(error, msgspec.ValidationError) and _NEWER.match(str(error)):\n",
        "        if False:\n",
    ),
    mutant(
        "newer-store-opened",
        "an old program works on a store whose tables it does not know",
        "releases/test_releases.py::test_migrate_refuses_a_newer_store",
        "store/versions.py",
        "        if self.oldest > self.known:\n",
        "        if False:\n",
    ),
    mutant(
        "check-migrates",
        "`migrate --check` changes the store that it was to look at",
        "releases/test_releases.py::test_migrate_says_what_it_would_do_then_does_it",
        "cli/migrate.py",
        "    if not check and found.steps:\n        _bring_forward(",
        "    if found.steps:\n        _bring_forward(",
    ),
    mutant(
        "migrated-without-a-copy",
        "a store is brought forward, and the copy from before has the new schema",
        "releases/test_releases.py::test_migrate_says_what_it_would_do_then_does_it",
        "cli/migrate.py",
        "    if path is not None and copy is not None:\n        with out",
        "    open_store(url, create=False).close()\n    if path is not None and copy is not None:\n        with out",
    ),
    mutant(
        "half-migrated",
        "a store that was killed while it was brought forward has some of the new tables",
        "releases/test_releases.py::test_killed_while_it_is_brought_forward_it_is_what_it_was",
        "store/sqlite_file.py",
        "        connection.execute(text).fetchall()\n        reach(Site.STORE_CREATE, Moment.BEGUN)\n",
        "        connection.execute(text).fetchall()\n        connection.execute('COMMIT')\n"
        "        connection.pragma('user_version', 2)\n        connection.execute('BEGIN')\n"
        "        reach(Site.STORE_CREATE, Moment.BEGUN)\n",
    ),
)
