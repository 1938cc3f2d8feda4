# Everything a contributor types. `make` alone lists the targets.
PYTHON ?= python3
TESTS ?= tests
BIN := .venv/bin
READY := .venv/.ready
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
EXTRAS := environments docker agents mcp openai-agents pydantic-ai deepagents smolagents inspect agent-framework

# A virtual environment cannot be moved: one that was made for another folder is made anew.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
CLEAR := --clear
endif

.PHONY: help setup demo test check format bench lock clean

help:
	@echo "make setup    make .venv with the package and all development tools"
	@echo "make demo     an agent solves a task with code, and is told what it must not do"
	@echo "make test     run every test, as root a second time as an ordinary user (TESTS=path for some, once)"
	@echo "make check    format, lint, types, layers"
	@echo "make format   rewrite the sources in the project's format"
	@echo "make bench    measure against plain python and others"
	@echo "make lock     pin the development environment anew (UPGRADE=1 for the newest releases)"
	@echo "make clean    remove what these targets made"

setup: $(READY)
	@sh scripts/system-packages optional

$(READY): pyproject.toml requirements-dev.lock
	@PYTHON="$(PYTHON)" sh scripts/system-packages required
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Fumehood needs Python 3.11 or newer, $(PYTHON) is older: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing into .venv (half a minute the first time)"
	@$(PYTHON) -m venv $(CLEAR) .venv
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > .venv/uv.txt
	@$(PIP_INSTALL) --require-hashes --only-binary :all: -r .venv/uv.txt
# uv does not read pip's settings: where only pip knows the index, pip installs the same, in a few minutes.
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-build -r requirements-dev.lock \
		|| { echo "uv could not install, pip does"; $(PIP_INSTALL) --require-hashes --only-binary :all: -r requirements-dev.lock; }
	@$(PIP_INSTALL) --no-index --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" > $@

demo: $(READY)
	@echo '$$ python examples/agent/solve.py'; $(BIN)/python examples/agent/solve.py
	@echo; echo '$$ hood audit verify'; $(BIN)/hood audit verify
	@echo; echo '$$ hood run examples/prisoner.py      # a program that tries to get out'; $(BIN)/hood run examples/prisoner.py

test: setup
	@status=0; \
	sh scripts/test $(TESTS) || status=$$?; \
	if [ "$(TESTS)" = tests ] && [ "$$(id -u)" = 0 ]; then $(BIN)/python tests/rootless.py || status=$$?; fi; \
	exit $$status

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/lint-imports --no-cache --no-logo

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	@$(BIN)/python tests/engine.py with $(BIN)/python -m benchmarks

lock: $(READY)
	$(BIN)/uv pip compile pyproject.toml --group dev $(addprefix --extra ,$(EXTRAS)) \
		--universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
		--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		--quiet --output-file requirements-dev.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	find src -type d -empty -delete
