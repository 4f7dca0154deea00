# make demo and make test work in a fresh clone. Everything is installed in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := dev,bench,docs,embed,hf,ray,review,xlsx
# One more than there are cores: some tests wait for a browser, for Ray or for a process that is killed.
WORKERS ?= 3
# The test workers share the cores, so each uses one thread.
# Byte code is stored even if the environment forbids it: otherwise each worker and each process compiles everything again.
ONE_THREAD := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.PHONY: .venv help demo test test-slow check format bench docs trust fuzz chromium clean

help:
	@echo "make demo    set up, then find wrong labels in the embedded digits (under a minute)"
	@echo "make test    set up, then the test suite; make test-slow runs the longest ones and draws new random examples"
	@echo "make check   formatter, linter, type checker"
	@echo "make bench   benchmarks that need no GPU"
	@echo "make docs    the documentation, warnings as errors"
	@echo "make trust   long tests: kills, hostile files and fuzzing"

# The demo needs the core only; the tests need all extras.
$(VENV)/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/all: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@ $(VENV)/core

.venv: $(VENV)/all

demo: $(VENV)/core
	rm -rf demo
	$(BIN)/labelsieve demo --out demo

# The browser tests need Chromium. If it cannot be installed, they are skipped with a message.
chromium:
	@if [ -x /usr/bin/chromium ] || command -v chromium >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null \
	    || echo "make test: Chromium could not be installed; tests marked 'browser' are skipped"; \
	else echo "make test: Chromium is not installed and apt-get needs root; tests marked 'browser' are skipped"; fi

test: $(VENV)/all chromium
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow$$(test -x /usr/bin/chromium || command -v chromium >/dev/null || echo ' and not browser')"

test-slow: $(VENV)/all chromium
	HYPOTHESIS_PROFILE=random $(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "slow or hypothesis"

check: $(VENV)/all
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/all
	$(BIN)/labelsieve bench engine --device cpu
	$(BIN)/labelsieve bench select
	$(BIN)/labelsieve bench io

# Long tests of kills, failed writes, hostile files, generated attacks and fuzzing. Writes docs/trust.md. Takes 15 to 30 minutes
# on 2 cores. To continue a run that was stopped: .venv/bin/python scripts/trust.py --resume
trust: $(VENV)/all
	$(ONE_THREAD) $(BIN)/python scripts/trust.py

fuzz: $(VENV)/all
	$(ONE_THREAD) $(BIN)/python scripts/trust.py --fuzz

docs: $(VENV)/all
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf build dist demo runs docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
