"""`python -m perdure.testing URL`: certify a store."""

from __future__ import annotations

import sys

USAGE = """\
usage: python -m perdure.testing URL [arguments of pytest]

Runs the conformance suite against the store at URL. Every test gets a new store: {new} is replaced by a unique name,
{folder} by an empty folder. The exit code is 0 if all tests pass.

    python -m perdure.testing "sqlite:///{folder}/perdure.db"
    python -m perdure.testing "postgresql://localhost/test?schema={new}" -x
"""

SETTINGS = ("asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function", "timeout=120")


def main() -> int:
    """Run pytest on the suite and return its exit code."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    try:
        import pytest
    except ImportError:
        print('error: this needs pytest and more; pip install "perdure[testing]"', file=sys.stderr)
        return 2
    settings = [word for setting in SETTINGS for word in ("-o", setting)]
    suite = ["--pyargs", "perdure.testing.conformance", "-p", "perdure.testing.plugin", "-m", "not soak"]
    return int(pytest.main([*suite, *settings, "--perdure-store", *arguments]))


if __name__ == "__main__":
    sys.exit(main())
