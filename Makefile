# Needs make and Python 3.11 or later, nothing else. Every target sets up what it needs in .venv.
#
#   make PYTHON=python3.13 test      another interpreter (`make clean` first if .venv exists)
#   make test ARGS="tests/unit -x"   arguments for pytest, the demo or the benchmark

PYTHON ?= python3
ARGS ?=

# Build tools follow the constraints too: older pips read the first variable for them, newer ones the second.
# -qq keeps the remarks of pip about the machine's package sources out of sight; errors are shown.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt .venv/bin/python -m pip install \
	-qq --disable-pip-version-check
MYPY_PATHS := src/perdure tools $(wildcard bench)

# Where it is set, every process that the tests start compiles all of Perdure anew, which takes most of its time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check format docs node-tools bench soak clean
.NOTPARALLEL:

help:
	@echo "make demo    an agent is killed with SIGKILL and goes on: watch it"
	@echo "make test    the whole test suite"
	@echo "make check   style, formatting, types, generated code"
	@echo "make format  format the code, and repair what ruff can repair"
	@echo "make docs    docs/llms.txt and build/llms-full.txt: the documentation for models"
	@echo "make node-tools  what tests/mcp and tests/page need of npm; without it they skip"
	@echo "make bench   speed and size beside a bare commit"
	@echo "make soak    the long crash tests, for as long as they take"
	@echo "make clean   remove .venv and everything else that make made"

demo: .venv/.core
	@.venv/bin/perdure demo $(ARGS)

test: .venv/.test
	@.venv/bin/python -m pytest $(if $(ARGS),,-n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart=0) $(ARGS)

check: .venv/.test
	@echo "ruff check"
	@.venv/bin/ruff check --quiet .
	@echo "ruff format --check"
	@.venv/bin/ruff format --quiet --check .
	@echo "mypy --strict"
	@.venv/bin/mypy --strict --no-error-summary $(MYPY_PATHS)
	@echo "tools/unasync.py --check"
	@.venv/bin/python tools/unasync.py --check
ifndef CI # where `make test` comes next, and runs them too
	@echo "tidy"
	@.venv/bin/python -m pytest -q tests/tidy
endif

format: .venv/.test
	@.venv/bin/ruff check --quiet --fix .
	@.venv/bin/ruff format --quiet .

docs: | .venv/bin/python
	@.venv/bin/python tools/llms_txt.py

# No script of a package runs at its installation.
node-tools:
	@mkdir -p build/node && cp tests/mcp/javascript/package.json build/node/
	@cd build/node && npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error

bench: .venv/.test
	@.venv/bin/python -m bench $(ARGS)

soak: .venv/.test
	@PERDURE_HYPOTHESIS=soak .venv/bin/python -m pytest -m "soak or sampled" --timeout=0 $(ARGS)

clean:
	rm -rf .venv .venv-peers build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps: a change of pyproject.toml or constraints.txt installs again.
.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing Perdure into .venv ..."
	@$(PIP) -e .
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing Perdure and its test tools into .venv (a minute, the first time) ..."
	@$(PIP) -e '.[test]'
	@touch .venv/.core $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Perdure needs Python 3.11 or later; '$(PYTHON)' is" \
			"$$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
		echo "Name another one: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Making .venv ..."
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
