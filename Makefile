# What there is to do here; `make` alone lists it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
PYTEST_ARGS ?= -n auto
# Where the traced training steps and the script that scores estimates against them may lie; not part of this repository.
SCORE_DIR ?= ../shared

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

.PHONY: demo test check lint types arch fmt bench score docs accuracy clean help

demo: $(VENV)/.base  ## the estimate of LLaMA 7B on four A100s
	@$(BIN)/memcalc estimate llama-7b --tp 2 --zero 2 --gpus 4 --gpu a100-80g

test: $(VENV)/.dev  ## all tests, doctests among them (PYTEST_ARGS="..." for others)
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: lint types arch  ## everything that reads the code without running it; under a minute

lint: $(VENV)/.dev  ## style and likely mistakes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## type checks
	@$(BIN)/mypy

arch: $(VENV)/.dev  ## dependencies point one way
	@$(BIN)/lint-imports

fmt: $(VENV)/.dev  ## format, and mend what can be mended safely
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(VENV)/.base  ## every benchmark; fails when one misses its bar
	@status=0; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python "$$file" || status=1; done; exit $$status

score: $(VENV)/.base  ## estimates against traced training steps, where those are at hand
	@if [ ! -f $(SCORE_DIR)/tools/score.py ]; then echo "no $(SCORE_DIR)/tools/score.py here: nothing to score against"; exit 0; fi; \
	status=0; for traces in traces traces_sharded; do echo "== $$traces"; \
	$(BIN)/python $(SCORE_DIR)/tools/score.py $(SCORE_DIR)/facts/$$traces.json --memcalc $(BIN)/memcalc || status=1; done; exit $$status

docs: $(VENV)/.base  ## docs/importers.md from the tables of keys, the tables of incidents
	@$(BIN)/python -m memcalc.importers.documentation > docs/importers.md
	@$(BIN)/python -m tests.incidents

accuracy: $(VENV)/.dev  ## docs/accuracy.md anew; the tests that hold estimates against traced, published and measured figures
	@$(BIN)/python -m tests.accuracy
	@$(BIN)/python -m pytest -m accuracy $(PYTEST_ARGS)

clean:  ## remove the virtual environment, caches and builds
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find memcalc tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The virtual environment: made once, brought up to date when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("memcalc needs Python 3.10 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	@echo "making $(VENV) (the first time takes a minute or two)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.base $@
