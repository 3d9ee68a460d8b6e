# Tokenyard: every task of a developer's day. `make` alone lists them.
#
# Needs Python >= 3.11, git and make. Everything is installed into .venv, from lock files; a second run installs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# The first interpreter that is new enough; `make PYTHON=python3.12 test` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
INSTALLED := .venv/.installed
INSTALLED_DEV := .venv/.installed-dev
# What is compiled is compiled by make alone, which knows what has changed.
COMPILED := .venv/.compiled
DECLARED := $(shell find src -name '*.pxd')
CHECKED := src tests scripts lab benchmarks conformance docs/reading
# Three processes for two cores (tests/conftest.py); who is done takes over what another has left. `make test PARALLEL=` is
# one process.
PARALLEL ?= -n auto --dist worksteal
# Three browsers, each with the tests of whole files, which share servers and traces; two leave a part of two cores idle.
# What fails beside others is asked once more alone: a page on a busy machine may be slower than a test expects. Both
# answers are printed.
# Beside the browsers one process compiles the other tests for all processes that run them: each would, in a new checkout.
BROWSERS ?= -n 3 --dist loadfile

# Whatever the shell says: hundreds of processes that tests start would each compile every module again.
test check coverage: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help:  ## List the tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(COMPILED)  ## Replay a built-in agentic workload and report what held requests back
	@$(BIN)/tokenyard demo

.PHONY: test
test: export TOKENYARD_NOT_CHECKED := $(shell mktemp -u)
test: $(INSTALLED_DEV)  ## Lint, types, import contracts, the viewer and all tests (TOKENYARD_EXAMPLES=all: four times the drawn examples)
	@trap 'rm -f "$$TOKENYARD_NOT_CHECKED"' EXIT; \
		TOKENYARD_NOT_CHECKED= scripts/check_viewer.sh --install 2>/dev/null; scripts/chromium.sh; \
		scripts/at_once.sh lint types viewer-check -- $(MAKE) tests

.PHONY: tests
tests: $(INSTALLED_DEV) $(COMPILED)  ## All tests and nothing else, those in the browser first
	@{ $(BIN)/python -m pytest -n 0 --collect-only -qq --ignore tests/browser || true; } > /dev/null 2>&1 & \
		$(BIN)/python -m pytest $(BROWSERS) tests/browser \
		|| $(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none tests/browser; \
		wait; $(BIN)/python -m pytest $(PARALLEL) --ignore tests/browser

.PHONY: check
check: $(INSTALLED_DEV) $(COMPILED)  ## The fast lane: lint, types and the quick unit tests, in about a minute
	@scripts/at_once.sh lint types -- \
		$(BIN)/python -m pytest -q $(PARALLEL) --maxfail=3 -m "not slow" tests/unit tests/regression

.PHONY: explore
explore: $(INSTALLED_DEV)  ## Search for unknown failures: property tests with ever new seeds, drawn scenarios; MINUTES=30
	@$(BIN)/python scripts/explore.py --minutes $(or $(MINUTES),30)

.PHONY: fuzz
fuzz: $(INSTALLED_DEV)  ## 10,000 hostile files and a million random steps, about an hour; ARGS='--inputs 500 --steps 20000 --walk 100000'
	@$(BIN)/python scripts/fuzz.py $(ARGS)

.PHONY: lint
lint: $(INSTALLED_DEV)  ## Style, import contracts, and that what is generated or drawn is up to date
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format --check $(CHECKED)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/check_tree.py
	@$(BIN)/python scripts/write_pxd.py --check
	@$(BIN)/python scripts/check_hot.py
	@$(BIN)/python scripts/generate_vocabulary.py --check
	@$(BIN)/python scripts/generate_keywords.py --check
	@$(BIN)/python scripts/document_notebook.py docs/tasks/baselines.md examples/papers.ipynb --check
	@$(BIN)/python scripts/document_notebook.py docs/tasks/research.md examples/research.ipynb --check

.PHONY: types
types: $(INSTALLED_DEV)  ## Strict type check
	@$(BIN)/mypy

.PHONY: viewer
viewer: $(INSTALLED)  ## Build the page that shows traces (needs node 18)
	@$(BIN)/python scripts/generate_vocabulary.py
	@cd viewer && { [ -d node_modules ] || npm ci --loglevel=error; } && npm run --silent build

.PHONY: viewer-check
viewer-check:  ## The viewer alone: lint, types, unit tests, and that the committed page is what it builds
	@scripts/check_viewer.sh

.PHONY: format
format: $(INSTALLED_DEV)  ## Mend what can be mended by itself
	@$(BIN)/ruff check --fix $(CHECKED)
	@$(BIN)/ruff format $(CHECKED)

.PHONY: size
size: $(INSTALLED)  ## Code lines and files of every room, words of documents, beside the last tag's: REV=REVISION, ARGS=--update
	@$(BIN)/python scripts/size.py $(if $(REV),--rev $(REV)) $(ARGS)

.PHONY: site
site: $(INSTALLED_DEV)  ## The site of the documents, with the pages that scripts write, into site/; all links are checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

.PHONY: wheel
wheel: $(INSTALLED)  ## The package, into dist/, for this machine and this Python: the same bytes from the same commit
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
		$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

.PHONY: sdist
sdist: $(INSTALLED)  ## The source distribution, into dist/: what builds the wheel, with its tests
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
		$(BIN)/python setup.py --quiet sdist --dist-dir dist
	@ls dist/*.tar.gz

.PHONY: release-check
release-check: $(INSTALLED_DEV)  ## All that a release is made of, built and looked at: wheel, sdist, README, links, licences, SBOM, site (ARGS=--strict)
	@$(MAKE) wheel
	@$(MAKE) sdist sbom site
	@$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	@$(BIN)/python scripts/release_check.py $(ARGS)

.PHONY: compile
compile: $(COMPILED)  ## Compile the modules that every step passes, for this checkout (needs a C compiler; all works without)

$(COMPILED): $(INSTALLED) setup.py pyproject.toml $(DECLARED) $(DECLARED:.pxd=.py)
	@echo "Compiling what every step passes ..."
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

.PHONY: sbom
sbom: $(INSTALLED_DEV)  ## What is installed with it, with licences: dist/sbom.json (CycloneDX)
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-file dist/sbom.json
	@$(BIN)/python scripts/licences.py requirements.lock

.PHONY: audit
audit:  ## Known vulnerabilities of locked packages, by pip-audit in .venv-audit (ARGS=--strict: fail where they cannot be looked up)
	@$(PYTHON) scripts/audit.py $(ARGS)

.PHONY: test-plugin
test-plugin: $(INSTALLED_DEV)  ## Try a policy of your own, with its limits and hooks, on hundreds of small schedulers: PLUGIN=FILE.py:CLASS
	@[ -n "$(PLUGIN)" ] || { echo "Name your plug-in: make test-plugin PLUGIN=FILE.py:CLASS" >&2; exit 1; }
	@TOKENYARD_EXAMPLES=all TOKENYARD_POLICIES="$(PLUGIN)" $(BIN)/python -m pytest -q tests/property/test_policies.py

.PHONY: test-text
test-text: $(INSTALLED_DEV)  ## Decisions and invariants of the text as it is interpreted, whatever is compiled
	@TOKENYARD_INTERPRETED=1 $(BIN)/python -m pytest $(PARALLEL) tests/parity tests/property tests/unit/kv tests/unit/sched

.PHONY: coverage
coverage: $(INSTALLED_DEV) $(COMPILED)  ## All tests with branch coverage
	@$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term

.PHONY: bench
bench: $(INSTALLED_DEV) $(COMPILED)  ## Time our own step, hashing and lookup
	@$(BIN)/python -m pytest -c benchmarks/pytest.ini benchmarks $(ARGS)

.PHONY: bench-vllm
bench-vllm: $(INSTALLED_DEV)  ## The same scenarios through vLLM's scheduler and ours, in turns (first run: builds .venv-vllm)
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh
	@$(BIN)/python benchmarks/compare.py $(ARGS)

.PHONY: record-vectors
record-vectors: VLLM ?= 0.22
record-vectors:  ## Record conformance/vectors/0.22 anew from real vLLM, VLLM=0.33 those of 0.33 (first run: builds its environment)
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(VLLM)
	@$(VLLM_PYTHON) lab/record_vectors.py $(ARGS)

.PHONY: test-vllm
test-vllm: VLLM ?= 0.22 0.32 0.33
test-vllm: $(INSTALLED)  ## Our classes inside real vLLM, offline: VLLM=0.32 the one that runs models (first run: builds 3 environments)
	@PYTHON="$(PYTHON)" scripts/test_vllm.sh $(VLLM) -- $(ARGS)

.PHONY: smoke-vllm
smoke-vllm:  ## A few minutes of test-vllm, in those environments that are there
	@scripts/test_vllm.sh --smoke 0.22 0.32 0.33

.PHONY: demo-server
demo-server:  ## Make a tiny model, serve it, and show its live trace in the viewer (as test-engine: installs torch)
	@PYTHON="$(PYTHON)" scripts/test_engine.sh --install
	@PYTHONPATH=src .venv-engine/bin/python -m tokenyard.cli.main serve demo --view --demo-clients 8 $(ARGS)

.PHONY: bench-peers
bench-peers: $(INSTALLED_DEV)  ## Other simulators on the same requests: CPU time in turns, and what each predicts (first run: installs them)
	@$(BIN)/python benchmarks/peers.py $(ARGS)

.PHONY: bench-recording
bench-recording: $(INSTALLED_DEV)  ## What a step costs with a trace written over one without, in turns
	@$(BIN)/python benchmarks/recording.py $(ARGS)

.PHONY: bench-engine
bench-engine:  ## Tokens per second beside transformers' continuous batching, and vLLM's where .venv-vllm-0.32 is (as test-engine: installs torch)
	@PYTHON="$(PYTHON)" scripts/test_engine.sh --install
	@PYTHONPATH=src .venv-engine/bin/python benchmarks/engine.py $(ARGS)

.PHONY: test-engine
test-engine:  ## The engine that runs models: all of its tests, in .venv-engine (first run: installs torch and transformers there, RAY=1 Ray Serve too)
	@PYTHON="$(PYTHON)" scripts/test_engine.sh $(ARGS)

.PHONY: smoke-engine
smoke-engine:  ## A minute of test-engine, if .venv-engine is there
	@scripts/test_engine.sh --smoke $(ARGS)

.PHONY: differential
differential: VLLM ?= 0.22
differential: SCENARIOS ?= 2000
differential:  ## Random streams, others every time (or ARGS='--first N'), through vLLM's own scheduler and FastScheduler, every answer compared: VLLM=0.27 SCENARIOS=2000
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(VLLM)
	@PYTHONPATH=src:lab nice $(VLLM_PYTHON) lab/differential.py --scenarios $(SCENARIOS) $(ARGS)

.PHONY: follow
follow: NEWEST ?= 0.33
follow:  ## What a release of vLLM changed, and which switches ours needs: VERSION=0.34.0, a report in follow-VERSION.md (NEWEST=0.32 follows a known one)
	@[ -n "$(VERSION)" ] || { echo "Name the release: make follow VERSION=0.34.0" >&2; exit 1; }
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(NEWEST)
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(FOLLOWED)
	@PYTHONPATH=src:lab nice .venv-vllm-$(FOLLOWED)/bin/python lab/follow.py --newest $(NEWEST) \
		--older $(if $(filter 0.22,$(NEWEST)),.venv-vllm,.venv-vllm-$(NEWEST)) $(ARGS)
FOLLOWED = $(shell echo "$(VERSION)" | cut -d. -f1,2)

.PHONY: differential-config
differential-config: VLLM ?= 0.33
differential-config: CASES ?= 5000
differential-config:  ## Drawn `vllm serve` lines through vLLM's own configuration and ours, every value compared: VLLM=0.22|0.33 CASES=5000
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(VLLM)
	@PYTHONPATH=src:lab nice $(VLLM_PYTHON) lab/differential_config.py --cases $(CASES) $(ARGS)

.PHONY: vllm-own-tests
vllm-own-tests: VLLM ?= 0.22
vllm-own-tests:  ## vLLM's own scheduler tests, brought from its source distribution, against FastScheduler: VLLM=0.22|0.33
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(VLLM)
	@$(or $(PYTHON),python3) lab/vllm_own_tests.py $(if $(filter 0.22,$(VLLM)),0.22.1,$(VLLM).0) --python $(VLLM_PYTHON) $(ARGS)

.PHONY: bench-fast
bench-fast: VLLM ?= 0.22
bench-fast:  ## What a step costs in vLLM's own scheduler and in FastScheduler, in one process: VLLM=0.22|0.33
	@PYTHON="$(PYTHON)" scripts/vllm_env.sh $(VLLM)
	@PYTHONPATH=src $(VLLM_PYTHON) benchmarks/vllm_fast.py $(ARGS)

VLLM_PYTHON = $(if $(filter 0.22,$(VLLM)),.venv-vllm,.venv-vllm-$(VLLM))/bin/python

.PHONY: lock
lock:  ## Resolve the dependencies again and rewrite both lock files
	@PYTHON="$(PYTHON)" scripts/lock.sh

.PHONY: clean
clean:  ## Remove everything that was built, all environments included
	@rm -rf .venv .venv-audit .venv-vllm .venv-vllm-0.* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		.benchmarks .coverage traces/demo viewer/node_modules
	@find src -name '*.so' -delete
	@find src tests scripts lab benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Tokenyard needs Python 3.11 or newer: install it, or name it with PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -m venv .venv

# Order of the two installs matters: the lock holds the build back end, which the second then uses without isolation.
# Tools are compiled when they are first used, which most of their modules never are.
$(INSTALLED): requirements.lock pyproject.toml | .venv/bin/python
	@echo "Installing into .venv ..."
	@$(PIP) install --quiet -r requirements.lock
	@TOKENYARD_COMPILE=0 $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(INSTALLED_DEV): requirements-dev.lock $(INSTALLED)
	@echo "Installing the development tools into .venv ..."
	@$(PIP) install --quiet --no-compile -r requirements-dev.lock
	@touch $@
