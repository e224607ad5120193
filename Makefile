# make setup | demo | test | test-all | fuzz | mutants | storm | docs | bench | format
# Everything runs from .venv, which is made from requirements.lock the first time it is needed.

PYTHON ?= python3
BIN := .venv/bin
export MPLBACKEND := Agg
# What is compiled to bytecode once is kept: else each process of a test compiles everything anew.
export PYTHONDONTWRITEBYTECODE :=
# Tests write to memory where there is room: SQLite waits for a disk at each commit.
export PYTEST_DEBUG_TEMPROOT := $(or $(PYTEST_DEBUG_TEMPROOT),$(shell \
  df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }'))
# Root needs no sudo; others try one that asks for no password.
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)

MINUTES ?= 20

.PHONY: setup demo test test-all suite fuzz mutants storm check lint types docs docs-serve bench bench-gpu format lock clean

setup: .venv/.ready

.venv/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 12) else "sfumato needs Python 3.11 or 3.12, this is %d.%d: make PYTHON=python3.12" % v)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq python3-venv; } \
	  || { echo "make: this Python lacks the venv module; install it (Debian: apt-get install python3-venv)"; exit 1; }
	@command -v java >/dev/null || { echo "Installing Java 17 for the tests on Spark ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq openjdk-17-jre-headless >/dev/null; } \
	  || echo "make: no Java and no right to install it: the tests on Spark will be skipped"
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "Installing PostgreSQL with ICU for the tests on collations ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq postgresql >/dev/null; } \
	  || echo "make: no PostgreSQL and no right to install it: the tests on collations there will be skipped"
	@command -v npm >/dev/null || { echo "Installing npm, one of the places that images come from ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq npm >/dev/null; } \
	  || echo "make: no npm and no right to install it: images come from their public address alone"
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "Installing Chromium for the tests that look at reports ..."; \
	  $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq chromium >/dev/null 2>&1; } \
	  || echo "make: no Chromium and no right to install it: the tests in a browser will be skipped"
	@$(PYTHON) -m venv .venv
	@echo "Installing the locked dependencies into .venv (a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,peers,queries,polars,postgres,spark,tables,torch,transformers,digits,federated,flower,homomorphic,docs]'
	@touch $@

demo: setup
	$(BIN)/sfumato demo

check: lint types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/pyright

# The type checker has one thread and takes a minute: it runs beside the tests.
test: lint
	@$(MAKE) --no-print-directory -j 2 types suite

test-all: lint
	@$(MAKE) --no-print-directory -j 2 types suite WHICH='-m "slow or not slow"'

# Two workers with a thread each: with two each they would wait for one another.
suite: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal $(WHICH)

# Looks for neighbouring inputs that can be told apart; findings/ has a script for each.
fuzz: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.neighbours.fuzz --minutes $(MINUTES)

# Would the tests notice? Goes on from mutants.jsonl, which holds what was found.
mutants: setup
	$(BIN)/python -m tests.mutants.run --minutes $(MINUTES)

# Kills what is at work on a ledger, and looks at what is left; as root it breaks disks, too.
storm: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.storm.run --minutes $(MINUTES) --log storm.jsonl

# The site, into site/: links checked, warnings are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

bench: setup
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/queries.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/opacus_accuracy.py
	$(BIN)/python benchmarks/naive.py --out naive.png

# Needs a GPU; compiles eight engines at a time, then times one after the other.
bench-gpu: setup
	$(BIN)/python benchmarks/dp_sgd_gpu.py --out dp_sgd_gpu.jsonl --together 8

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Freezes what is installed now; run after changing the dependencies in pyproject.toml.
lock: setup
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools \
	  | sed 's/^\(torch==[0-9.]*\)+.*/\1/' > requirements.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis demo site
