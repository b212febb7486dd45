# Every target does its own set-up. A machine needs git, make and Python >= 3.11; uv is used when it is there.
#   make demo          a support desk with handoffs, offline
#   make durable-demo  a run whose worker is killed goes on with another one; DURABLE_ARGS="restate" is one engine alone
#   make test          the tests, some six minutes on two cores; a percentage shows how far it is
#   make record        the cassettes anew; RECORD_ARGS="--live --model VENDOR/MODEL" asks a true provider
#   make bench         what routelock costs on top of a loop written by hand; BENCH_ARGS="--rounds 9"
#   make count         the same in instructions, for which it needs valgrind; COUNT_ARGS="--only OpenAI"
#   make profile       where the CPU time of a run goes; PROFILE_ARGS="OpenAICompatible s1"
#   make docs          the site, into site/
#   make stress        thousands of random runs, at once and one after another; STRESS_ARGS="fuzz --fuzz 500"
#   make conformance   the suites that others wrote, and unmodified clients; CONFORMANCE_ARGS="--a2a-kit PATH"
#   make format        ruff's fixes and formatting
#   make check         all that has to pass before a merge: lint, types, tests with coverage
#   make test-lowest   the tests with the lowest versions of all dependencies; test-newest has the newest ones, and
#                      test-prereleases also the pre-releases of aiohttp and litellm
#   make release-check builds the distributions, checks them, and installs them with each extra, some minutes;
#                      RELEASE_ARGS="none serve" takes these extras alone
# Use another Python with `make PYTHON=/path/to/python3 VENV=.venv312 test`.

VENV ?= .venv
BIN = $(VENV)/bin
SOURCES = pyproject.toml scripts/venv scripts/bounds.py
PYTEST_ARGS ?=
RECORD_ARGS ?=
BENCH_ARGS ?=
COUNT_ARGS ?=
PROFILE_ARGS ?=
STRESS_ARGS ?=
CONFORMANCE_ARGS ?=
DURABLE_ARGS ?=
EXTRAS_ARGS ?=
RELEASE_ARGS ?=
export PYTHON
# what is compiled once need not be compiled by every worker, nor by every process that a test starts
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo durable-demo test record lint format types mypy pyright typed check bench count extras profile docs
.PHONY: test-lowest test-newest test-prereleases release-check stress conformance clean help

demo: $(VENV)/.ready-run
	@echo 'A customer asks four questions. Triage hands over to Refunds (structured input, an input filter that hides the'
	@echo 'card number) and to Technical (nested history); their tools change a database. Read the signs so:'
	@echo '=> a handoff    > a tool call    < its result    ! its error    sees: what the next agent is shown'
	@echo
	@$(BIN)/python examples/support_desk.py
	@echo
	@echo 'Where to look next:'
	@echo '  examples/desk/agents.py     the three agents, a page of code'
	@echo '  docs/quickstart.md          an agent, a tool and a handoff of your own in five minutes'
	@echo '  docs/examples.md            what each example shows; all run offline: $(BIN)/python examples/hello.py'
	@echo '  a chat that you type        cd examples && ../$(BIN)/routelock chat offline_chat:reception'
	@echo '  the same desk, live         $(BIN)/python examples/support_desk.py --live   (with OPENAI_API_KEY)'

durable-demo: $(VENV)/.ready-test
	PYTHONPATH=tests/support $(BIN)/python scripts/durable_demo.py $(DURABLE_ARGS)

# On all cores, with three workers for two of them (tests/conftest.py), and with the gate on branch coverage; pytest's
# own summary stays the last thing shown. The order is that of the files: by itself xdist leaves those with one long
# test to the end, where a core waits for the other. A part of it:
#  make test PYTEST_ARGS="--no-cov -n 0 tests/run/test_loop.py"
test: $(VENV)/.ready-test $(VENV)/clients/.ready
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

record: $(VENV)/.ready-run
	$(BIN)/python scripts/record_cassettes.py $(RECORD_ARGS)

bench: $(VENV)/.ready-run
	$(BIN)/python benchmarks/measure_speed.py $(BENCH_ARGS)

extras: $(VENV)/.ready-test
	$(BIN)/python benchmarks/measure_extras.py $(EXTRAS_ARGS)

count: $(VENV)/.ready-run
	$(BIN)/python benchmarks/count_instructions.py $(COUNT_ARGS)

profile: $(VENV)/.ready-run
	$(BIN)/python benchmarks/profile_run.py $(PROFILE_ARGS)

docs: .venv-docs/.ready-docs
	rm -rf site
	.venv-docs/bin/zensical build --strict --clean
	.venv-docs/bin/python scripts/check_site.py site

# With seeds of its own, which it prints: half an hour and more, mostly litellm's
stress: $(VENV)/.ready-test
	PYTHONPATH=tests/support $(BIN)/python -m stress $(STRESS_ARGS)

# What a suite needs is installed beside the clients, so a first run asks the package indexes
conformance: $(VENV)/.ready-test $(VENV)/clients/.ready
	PYTHONPATH=tests/support $(BIN)/python -m conformance $(CONFORMANCE_ARGS)

lint: $(VENV)/.ready-lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.ready-lint
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# each takes one core only, so two at the same time
types: $(VENV)/.ready-test $(VENV)/.ready-lint
	@$(MAKE) --no-print-directory --keep-going --jobs=2 mypy pyright typed

mypy: $(VENV)/.ready-test $(VENV)/.ready-lint
	$(BIN)/mypy

pyright: $(VENV)/.ready-test $(VENV)/.ready-lint
	$(BIN)/pyright --pythonpath $(BIN)/python

# every name that an app can import has a type
typed: $(VENV)/.ready-test $(VENV)/.ready-lint
	@for package in routelock routelock_providers routelock_skills; do \
	    found=$$(PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright --ignoreexternal --verifytypes $$package) || \
	        { echo "$$found"; exit 1; }; \
	    echo "$$package: all public names have types"; \
	done

check: lint types test

test-lowest: .venv-lowest/.ready-lowest
	.venv-lowest/bin/python scripts/bounds.py installed
	.venv-lowest/bin/python -m pytest -n auto --dist loadfile $(PYTEST_ARGS)

test-newest: .venv-newest/.ready-newest
	.venv-newest/bin/python scripts/bounds.py installed
	.venv-newest/bin/python -m pytest -n auto --dist loadfile $(PYTEST_ARGS)

test-prereleases: .venv-prereleases/.ready-prereleases
	.venv-prereleases/bin/python scripts/bounds.py installed
	.venv-prereleases/bin/python -m pytest -n auto --dist loadfile $(PYTEST_ARGS)

# what it has built and checked is in dist/
release-check: .venv-release/.ready-release
	.venv-release/bin/python scripts/release_check.py $(RELEASE_ARGS)

help:
	@sed -n 's/^#   //p' Makefile

clean:
	rm -rf .venv .venv-uv .venv-docs .venv-lowest .venv-newest .venv-prereleases .venv-release site .cache .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

$(VENV)/.ready-run: $(SOURCES)
	scripts/venv $(VENV) testing
	@touch $@

$(VENV)/.ready-test: $(SOURCES)
	scripts/venv $(VENV) test
	@touch $@ $(VENV)/.ready-run

# the script makes the file, once nothing is missing
$(VENV)/clients/.ready: scripts/clients | $(VENV)/.ready-test
	scripts/clients $(@D) $(BIN)/python

$(VENV)/.ready-lint: $(SOURCES)
	scripts/venv $(VENV) lint
	@touch $@ $(VENV)/.ready-run

.venv-docs/.ready-docs: $(SOURCES)
	scripts/venv .venv-docs docs
	@touch $@

.venv-lowest/.ready-lowest: $(SOURCES)
	scripts/venv .venv-lowest test lowest
	@touch $@

.venv-newest/.ready-newest: $(SOURCES)
	scripts/venv .venv-newest test newest
	@touch $@

.venv-prereleases/.ready-prereleases: $(SOURCES)
	scripts/venv .venv-prereleases test prereleases
	@touch $@

.venv-release/.ready-release: $(SOURCES)
	scripts/venv .venv-release release
	@touch $@
