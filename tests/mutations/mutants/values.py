"""Values: nothing names code, nothing is lost in silence, every refusal says where."""

from __future__ import annotations

from tests.mutations.mutant import mutant

STEPS = "conformance/test_steps.py::"

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
        "        if ENCODE(value) != data:\n            raise CorruptValue(_OTHER_FORM)\n        return value",
        "        return value",
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
)
