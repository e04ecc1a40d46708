"""The package around the codec: nothing that makes code from data, quick to import, the same in every process."""

from __future__ import annotations

import ast
import doctest
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure.values.codec.decoder
import perdure.values.codec.encoder
import perdure.values.codec.refusals
from perdure.errors import NotStorable
from perdure.values import codec
from perdure.values.codec.tags import ExtensionTag

PACKAGE = Path(codec.__file__).parents[2]

FORBIDDEN_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "copyreg",
    "imp",
    "runpy",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
ALLOWED_IMPORTLIB = {"importlib.resources", "importlib.metadata", "importlib.util.find_spec"}
"""They read files of packages that the code names itself, or look whether there is one."""


def complaints(tree: ast.AST) -> Iterator[str]:
    for found in ast.walk(tree):
        names: list[str] = []
        if isinstance(found, ast.Import):
            names = [alias.name for alias in found.names]
        elif isinstance(found, ast.ImportFrom) and not found.level:
            names = [f"{found.module}.{alias.name}" for alias in found.names]
        for name in names:
            top = name.partition(".")[0]
            if top in FORBIDDEN_MODULES or (top == "importlib" and not name.startswith(tuple(ALLOWED_IMPORTLIB))):
                yield f"line {found.lineno}: imports {name}"  # type: ignore[attr-defined]
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id in FORBIDDEN_CALLS:
            yield f"line {found.lineno}: calls {found.func.id}"


def test_nothing_in_the_package_makes_code_from_data() -> None:
    # These start a program that the user has named on the command line, as `python PROGRAM` would, or load what is in a
    # table of ours; nothing stored names it.
    known = ("__init__.py", "testing/crashtest/fork_server.py", "cli/replay_targets.py", "cli/main.py")
    known += ("adapters/lazy_names.py",)
    known += ("api/capture.py", "http_capture/import_hook.py", "http_capture/site/sitecustomize.py")
    # And this writes with marshal what is compared in memory.
    prints = PACKAGE / "values/codec/fingerprints.py"
    assert "marshal.load" not in prints.read_text()
    files = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / name for name in known} - {prints})
    assert len(files) > 10
    found = {str(file): list(complaints(ast.parse(file.read_text()))) for file in files}
    assert not {file: lines for file, lines in found.items() if lines}


@pytest.mark.parametrize(
    "bad",
    ["import pickle", "from pickle import loads", "import os, marshal", "def f():\n  import shelve", "eval('1')",
     "exec(x)", "__import__(name)", "import importlib", "from importlib import import_module", "compile(a, b, c)"],
)  # fmt: skip
def test_the_rule_bites(bad: str) -> None:
    assert list(complaints(ast.parse(bad)))


@pytest.mark.parametrize(
    "good", ["from importlib import resources", "import importlib.metadata", "re.compile(x)", "import os"]
)
def test_the_rule_lets_the_rest_pass(good: str) -> None:
    assert not list(complaints(ast.parse(good)))


def run_python(code: str, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout


# The modules are loaded without their package, whose __init__ brings in the whole of Perdure.
ALONE = """
import sys, types
package = types.ModuleType("perdure")
package.__path__ = [{path!r}]
sys.modules["perdure"] = package
import perdure.values.codec
heavy = {{"numpy", "pydantic", "pydantic_core", "attr", "attrs", "zoneinfo", "pathlib", "fractions", "dataclasses"}}
print(sorted(heavy & set(sys.modules)))
"""


def test_importing_the_codec_imports_no_heavy_module() -> None:
    assert run_python(ALONE.format(path=str(PACKAGE))).strip() == "[]"


DIGESTS = """
from perdure.values import codec
words = ["alpha", "beta", "gamma", "delta", "epsilon"]
print(list(set(words)))
for value in (set(words), frozenset({(word, frozenset(words)) for word in words}), {"k": [{1, "1", b"1", None}]}):
    print(codec.digest(value).hex())
"""


def test_digests_are_the_same_in_every_process() -> None:
    runs = [run_python(DIGESTS, seed).splitlines() for seed in ("1", "2", "3")]
    assert len({orders for orders, *_ in runs}) > 1, "the seeds should give different orders, or this tests nothing"
    assert len({tuple(digests) for _, *digests in runs}) == 1


def test_a_digest_has_16_bytes_and_tells_values_apart() -> None:
    values = [None, 0, False, 0.0, -0.0, "", b"", [], (), {}, set(), [[]], {"a": 1}, {"a": 1.0}, {"a": True}]
    digests = [codec.digest(value) for value in values]
    assert {len(digest) for digest in digests} == {16}
    assert len(set(digests)) == len(values)
    with pytest.raises(NotStorable, match=r"^input\.x: "):
        codec.digest({"x": object()}, "input")


def test_the_public_names() -> None:
    assert codec.__all__ == sorted(codec.__all__)
    assert codec.__all__ == ["decode", "digest", "encode", "register_exception", "stored", "upcaster"]
    assert all(getattr(codec, name).__doc__ for name in codec.__all__)


def test_numbers_of_tags_are_used_once() -> None:
    assert len({int(tag) for tag in ExtensionTag}) == len(ExtensionTag.__members__)
    assert all(0 < tag < 128 for tag in ExtensionTag)


@pytest.mark.parametrize(
    "module",
    [perdure.values.codec, perdure.values.codec.encoder, perdure.values.codec.decoder, perdure.values.codec.refusals],
    ids=lambda m: m.__name__,
)
def test_the_examples_in_docstrings(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried
    assert not failed
