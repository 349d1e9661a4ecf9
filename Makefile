# The two commands of the README: `make run` and `make test`.
# DEPS=0 leaves the system alone: tests whose tools are missing are then skipped by name.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEPS ?= 1
WORKERS ?= 2
RUN_FLAGS ?=

.PHONY: run deps test lint types pytest docs golden bench wheels clean help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

run: $(VENV)/.runtime  ## serve this machine's cards on :9836, or a simulated node where there is no driver
	@tools/run.sh $(BIN) $(RUN_FLAGS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: $(PYTHON) is older than Python 3.10; give another with PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "make: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.bench: pyproject.toml | $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

deps: $(VENV)/.dev  ## make .venv and install the system packages that the tests use
	@DEPS=$(DEPS) tools/system-deps.sh

test: deps lint types pytest  ## everything that must hold

lint: $(VENV)/.dev  ## ruff, and generated files against their sources
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/metrics_doc.py --check

types: $(VENV)/.dev  ## mypy --strict
	$(BIN)/mypy

pytest: $(VENV)/.dev  ## the tests alone; PYTEST_FLAGS are passed on
	$(BIN)/pytest -q -n $(WORKERS) $(PYTEST_FLAGS)

docs: $(VENV)/.dev  ## write generated documentation anew
	$(BIN)/python tools/metrics_doc.py

golden: $(VENV)/.dev  ## write golden files anew; the diff is the review
	$(BIN)/pytest -q tests/golden --update-golden

bench: $(VENV)/.bench  ## budgets and peers, in one run; BENCH_FLAGS are passed on
	@tools/system-deps.sh
	$(BIN)/python bench/run.py $(BENCH_FLAGS)

wheels: $(VENV)/.dev  ## build the wheel and its dependencies into wheels/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir wheels .

clean:  ## remove what the targets made
	rm -rf $(VENV) wheels dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
