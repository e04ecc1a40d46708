"""Values: nothing names code, nothing is lost in silence, every refusal says where."""

from __future__ import annotations

from tests.mutations.mutant import mutant

STEPS = "conformance/test_steps.py::"
LATER = "conformance/test_versions.py::test_an_entry_of_a_later_version_is_refused_and_not_skipped"

TEMPTING = "unit/test_codec_tempting.py::"
UNSTORABLE = "conformance/test_unstorable_results.py::"

MUTANTS = (
    mutant(
        "a-response-with-a-private-text-is-refused",
        "an answer that was paid for is refused because the SDK attaches a new private text",
        "unit/test_codec_sdks.py::test_a_response_comes_back_as_its_class",
        "perdure.values.codec.models:_is_attached",
        ('name.startswith("_")', 'name == "_request_id"'),
    ),
    mutant(
        "a-store-hides-methods-of-a-response",
        "a hostile store puts a text in the place of a method",
        "unit/test_codec_sdks.py::test_a_store_attaches_nothing_that_hides_what_the_class_has",
        "perdure.values.codec.models:_is_attached",
        ("not hasattr(cls, name)", "True"),
    ),
    mutant(
        "any-factory-of-a-defaultdict",
        "the factory of a defaultdict, which is code, is dropped without a word",
        "unit/test_codec_refusals.py::test_each_refusal_says_what_to_do",
        "perdure.values.codec.standard_collections:argument_of",
        ("raise Refusal(..., hint=...)", "return None"),
    ),
    mutant(
        "stored-name-builds-any-class",
        "a hostile store makes Perdure build an object whose class runs code",
        TEMPTING + "test_a_class_that_is_not_plain_data_is_neither_built_nor_run",
        "perdure.values.codec.plain_classes:_check_base",
        ('if "__del__" in own:\n    raise Refusal("it has its own __del__")', "pass"),
    ),
    mutant(
        "stored-name-asks-a-metaclass",
        "a hostile store makes Perdure run the code of a metaclass",
        TEMPTING + "test_a_class_that_is_not_plain_data_is_neither_built_nor_run",
        "perdure.values.codec.plain_classes:make_plain_shape",
        ("not _has_known_metaclass(cls)", "False"),
    ),
    mutant(
        "a-caught-exception-changes-its-class",
        "after a crash, an `except` of the program no longer catches what a step has raised",
        "conformance/test_values.py::test_an_exception_that_the_program_catches_is_the_same_after_a_kill",
        "perdure.values.codec.registry:exception_to_read",
        ("cls = find_class(name)", "cls = None"),
    ),
    mutant(
        "a-validation-error-changes-its-class",
        "after a crash, `except ValidationError` no longer catches what a step has raised",
        "conformance/test_values.py::test_an_exception_that_the_program_catches_is_the_same_after_a_kill",
        "perdure.values.codec.pydantic_values:is_validation_error",
        ('kind is _loaded("pydantic_core", "ValidationError")', "False"),
    ),
    mutant(
        "an-entry-that-nobody-can-read",
        "a number in the place of a person's name is written, and the store cannot be read any more",
        "conformance/test_wrong_arguments.py::test_what_could_not_be_read_again_is_not_written",
        "perdure.run.answers:check_person",
        ('check_storable_name(by or find_current_user(), "by=")', "by or find_current_user()"),
    ),
    mutant(
        "hidden-inputs-are-stored",
        "inputs that a model hides in its errors are written to the store",
        "unit/test_codec_pydantic.py::test_hidden_inputs_are_not_stored",
        "perdure.values.codec.pydantic_values:validation_parts",
        ('line | {"input": None} if hidden else line', "line"),
    ),
    mutant(
        "stored-exception-runs-code",
        "a hostile store makes Perdure build an exception whose class runs code",
        "unit/test_codec_exceptions.py::test_one_whose_code_would_run_is_not_built",
        "perdure.values.codec.registry:exception_to_read",
        ("is_plain_exception(cls)", "True"),
    ),
    mutant(
        "stored-field-calls-a-setter",
        "a hostile store makes Perdure call the setter of a property",
        TEMPTING + "test_a_class_that_is_not_plain_data_is_neither_built_nor_run",
        "perdure.values.codec.plain_classes:_check_fields",
        ("_is_foreign_setter(found)", "False"),
    ),
    mutant(
        "stored-name-finds-imported-classes",
        "a stored name leads to whatever a module has imported, and not only to what it defines",
        "unit/test_codec_plain_classes.py::test_a_class_that_a_module_only_imports_is_not_found_there",
        "perdure.values.codec.class_names:find_class",
        ('class_name(found).partition("[")[0] == name.partition("[")[0]', "True"),
    ),
    mutant(
        "factory-runs-on-read",
        "reading a value runs a default factory of the user",
        "unit/test_codec_plain_classes.py::test_a_default_factory_of_the_user_never_runs",
        "perdure.values.codec.fields:_default",
        ("runs_code or default.factory in HARMLESS", "True"),
    ),
    mutant(
        "unstorable-result-is-paid-again",
        "a step whose result cannot be stored is paid again on every resume",
        UNSTORABLE + "test_every_resume_raises_the_same_error_and_nothing_is_paid_again",
        "perdure.run.unstorable:stays_failed",
        (
            "not options.retry_unstorable or ledger.has_continued_after(recorded)",
            "ledger.has_continued_after(recorded)",
        ),
    ),
    mutant(
        "retry-leaves-unstorable-results",
        "`perdure retry` does not let a step run again whose result could not be stored",
        UNSTORABLE + "test_it_runs_again_after_a_retry",
        "perdure.run.unstorable:release",
        ("recorded.unstorable = None", "pass"),
    ),
    mutant(
        "path-missing-in-refusals",
        "a refusal does not say which part of a value it means",
        STEPS + "test_a_result_that_cannot_be_stored_is_named",
        "perdure.values.codec.refusals:Refusal.to_error",
        (
            'error = self.error(f"{path}{_format_trail(self.trail)}: {self.reason}", hint=self.hint)',
            'error = self.error(f"{path}: {self.reason}")',
        ),
    ),
    mutant(
        "unknown-kind-accepted",
        "bytes that no version of Perdure has written become a value",
        "unit/test_codec_forged.py::test_types_that_nobody_registered",
        "perdure.values.codec.decoder:_load_leaf",
        ("if leaf is None:\n    raise _unknown_tag(node.code)", "if leaf is None:\n    return node.data"),
    ),
    mutant(
        "unregistered-name-accepted",
        "a value of a type that nobody registered comes back as a dict",
        "unit/test_codec_stored.py::test_an_unknown_name",
        "perdure.values.codec.decoder:_load_object",
        ("raise _unknown_class(name)", "return fields"),
    ),
    mutant(
        "any-form-accepted",
        "two different byte strings are the same value, so that a digest proves nothing",
        "unit/test_codec_forged.py::test_bytes_that_perdure_never_writes",
        "perdure.values.codec.decoder:decode",
        ("not ours and ENCODE(value) != data", "False"),
    ),
    mutant(
        "no-upcaster-needed",
        "an old value is read as if it were a new one",
        "unit/test_codec_versions.py::test_a_gap_between_versions_is_named",
        "perdure.values.codec.registry:upgrade_fields",
        ("range(version, entry.version)", "range(0)"),
    ),
    mutant(
        "newer-data-accepted",
        "old code reads what newer code has written, and misunderstands it",
        "unit/test_codec_versions.py::test_data_newer_than_the_code",
        "perdure.values.codec.registry:upgrade_fields",
        ("version > entry.version", "False"),
    ),
    mutant(
        "later-fields-left-out",
        "an entry that a later version has written is read without what it does not know",
        LATER,
        "perdure.records.base:Record",
        (
            "class Record(..., frozen=True, array_like=True, gc=False, forbid_unknown_fields=True): ...",
            "class Record(..., frozen=True, array_like=True, gc=False): ...",
        ),
    ),
    mutant(
        "later-entries-called-damage",
        "who has an old program is told to restore a backup",
        LATER,
        "perdure.records:decode",
        ("isinstance(error, msgspec.ValidationError) and _NEWER.match(str(error))", "False"),
    ),
    mutant(
        "newer-store-opened",
        "an old program works on a store whose tables it does not know",
        "releases/test_releases.py::test_migrate_refuses_a_newer_store",
        "perdure.store.schema_version:StoreVersions.refuse_newer",
        ("self.oldest > self.known", "False"),
    ),
    mutant(
        "check-migrates",
        "`migrate --check` changes the store that it was to look at",
        "releases/test_releases.py::test_migrate_says_what_it_would_do_then_does_it",
        "perdure.cli.migrate:migrate",
        ("not check and found.steps", "found.steps"),
    ),
    mutant(
        "migrated-without-a-copy",
        "a store is brought forward, and the copy from before has the new schema",
        "releases/test_releases.py::test_migrate_says_what_it_would_do_then_does_it",
        "perdure.cli.migrate:_migrate",
        (
            "if path is not None and copy is not None: ...",
            "open_store(url, create=False).close()\nif path is not None and copy is not None: ...",
        ),
    ),
    mutant(
        "half-migrated",
        "a store that was killed while it was brought forward has some of the new tables",
        "releases/test_releases.py::test_killed_while_it_is_brought_forward_it_is_what_it_was",
        "perdure.store.sqlite.file:_migrate",
        (
            "connection.execute(text).fetchall()\nreach(Site.STORE_CREATE, CommitMoment.BEGUN)",
            (
                "connection.execute(text).fetchall()\n"
                "connection.execute('COMMIT')\n"
                "connection.pragma('user_version', 2)\n"
                "connection.execute('BEGIN')\n"
                "reach(Site.STORE_CREATE, CommitMoment.BEGUN)"
            ),
        ),
    ),
)
