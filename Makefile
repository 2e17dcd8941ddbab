# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS = 1

.PHONY: demo test lint types lit pytest extension check-long benchmarks screenshots site clean help

help:
	@echo "make demo        install into $(VENV) and run the main job on a real GPT-2"
	@echo "make test        install, then lint, types, lit and pytest"
	@echo "make extension   distir and examples/extension as wheels, and the extension's tests against them"
	@echo "make check-long  the exhaustive checks (tens of minutes)"
	@echo "make screenshots the pictures of reports in README; needs a Chromium"
	@echo "make site        the documents as a site, in build/site"
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
	$(BIN)/lit -j2 --order=lexical -q --param fork-server=1 tests/filecheck

pytest: $(STAMP)
	$(BIN)/pytest -m "not long" --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# distir and examples/extension as wheels, installed in a folder of their own; the extension's tests run against these.
extension: $(STAMP)
	rm -rf build/extension && mkdir -p build/extension && cp -R examples/extension build/extension/source
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/extension . build/extension/source
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/extension/site build/extension/*.whl
	cd build/extension/source && PYTHONPATH=$(CURDIR)/build/extension/site $(CURDIR)/$(BIN)/pytest -q --rootdir . tests
	cd build/extension/source && PYTHONPATH=$(CURDIR)/build/extension/site $(CURDIR)/$(BIN)/lit -q tests/filecheck

check-long: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,models,accelerate]'
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -m "long or not long"

benchmarks: $(STAMP)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

screenshots: $(STAMP)
	$(BIN)/python -m tests.screenshots

site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist out
