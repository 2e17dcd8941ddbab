# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS = 1

.PHONY: demo test lint types lit pytest check-long benchmarks clean help

help:
	@echo "make demo        install into $(VENV) and run the main job on a real GPT-2"
	@echo "make test        install, then lint, types, lit and pytest"
	@echo "make check-long  the exhaustive checks (tens of minutes)"
	@echo "make benchmarks  speed and memory figures, each beside a baseline of the same run"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python examples/demo.py

test: lint types lit pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

lit: $(STAMP)
	$(BIN)/lit -j2 --order=lexical -q tests/filecheck

pytest: $(STAMP)
	$(BIN)/pytest -m "not long"

check-long: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,models,accelerate]'
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -m "long or not long"

benchmarks: $(STAMP)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) build dist out
