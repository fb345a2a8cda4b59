# Every target makes .venv when there is none, so each of them works in a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
EXTRAS := dev,examples,plots,transformers,lightning,accelerate,peft
OTHER := .venv-torch-$(TORCH)
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo install check format test test-fast test-torch bench clean

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(BIN)/memplan  ## fit GPT-2 into half of its memory, and check the gradients
	$(BIN)/memplan compile examples/gpt2.py --budget 50% --verify

install: $(BIN)/python  ## everything needed to work on memplan, into .venv
	$(PIP) -e ".[$(EXTRAS)]"

check: $(BIN)/pytest  ## format, lint, types, who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(BIN)/pytest  ## let ruff format and repair what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(BIN)/pytest  ## all tests; those that need a GPU skip where there is none
	$(BIN)/pytest

test-fast: $(BIN)/pytest  ## the tests that take seconds
	$(BIN)/pytest -m "not slow"

test-torch:  ## the fast tests by another torch: make test-torch TORCH=2.14.1
	$(if $(TORCH),,$(error name a version, as in make test-torch TORCH=2.14.1))
	test -d $(OTHER) || $(PYTHON) -m venv $(OTHER)
	grep -v '^torch==' constraints.txt > $(OTHER)/constraints.txt
	$(OTHER)/bin/python -m pip install --quiet -c $(OTHER)/constraints.txt torch==$(TORCH) -e ".[$(EXTRAS)]"
	$(OTHER)/bin/python -m pytest -m "not slow"

bench: $(BIN)/pytest  ## every solver on every instance, into benchmarks/results
	$(BIN)/python -m benchmarks

clean:  ## remove .venv and everything that was built
	rm -rf .venv .venv-torch-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "memplan needs Python 3.11")'
	$(PYTHON) -m venv .venv

$(BIN)/memplan: | $(BIN)/python
	$(PIP) -e ".[examples]"

$(BIN)/pytest: | $(BIN)/python
	$(PIP) -e ".[$(EXTRAS)]"
