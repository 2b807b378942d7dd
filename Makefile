PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
ENGINES_READY := $(VENV)/.engines-ready
# Tests of other things than the package, and tests of what numba compiles.
NO_LINES := experiments project/test_benchmarks.py project/test_docs.py project/test_docstrings.py
COMPILED := tests/laws/test_kernels.py tests/nn/test_likelihood.py
# Of these: not compiled, one takes hours, and Python's exp raises where that of compiled code is infinite.
NOT_BY_PYTHON := expectation_maximisation or sigmoid and (formula or no_numbers)

.PHONY: help demo test test-hard test-engines test-oldest coverage docs build bench reproduce clean
help:  ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)  ## Set everything up, then compare methods on handwritten digits and write a report
	$(BIN)/histnetq demo

test: $(READY)  ## Set everything up, then run every check: ruff, mypy, import-linter and pytest
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal

# Proofs that take minutes.
test-hard: $(READY)  ## Run the proofs that take minutes
	$(BIN)/pytest -m hard

# Spark takes 450 MB and needs Java; PostgreSQL needs the server of the system. Tests of an engine that is absent are
# skipped.
$(ENGINES_READY): $(READY)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[spark]'
	touch $@

test-engines: $(ENGINES_READY)  ## Run the tests that start Spark or a PostgreSQL server
	$(BIN)/pytest -m engines -rs

# The lowest versions that pyproject.toml allows, torch excepted.
test-oldest: constraints-oldest.txt pyproject.toml  ## Run the tests with the lowest versions that pyproject.toml allows
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet -c constraints-oldest.txt -e '.[dev]'
	$(OLDEST)/bin/pytest -n 2 --dist worksteal

# Lines of the package that tests run, in other processes too. What numba compiles is seen by the second run alone.
coverage: $(READY)  ## Measure the lines of the package that tests run
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal $(NO_LINES:%=--ignore=tests/%)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -n 2 --dist worksteal $(COMPILED) \
		-k 'not ($(NOT_BY_PYTHON))'
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# A source distribution, and a wheel made from it, in dist/.
build: $(READY)  ## Build a source distribution and a wheel in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

# The site, in build/site: every tutorial is executed, and warnings are errors.
$(DOCS_READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

docs: $(DOCS_READY)  ## Build the site in build/site; every tutorial is executed
	$(BIN)/sphinx-build -W --keep-going --quiet -d build/doctrees docs build/site

bench: $(READY)  ## Measure speed and memory
	$(BIN)/python -m benchmarks

# Such as: make reproduce RUN="imdb --data DIRECTORY --budget full"
reproduce: $(READY)  ## Repeat an experiment, such as RUN="imdb --data DIRECTORY"
	$(BIN)/python -m experiments $(RUN)

clean:  ## Delete everything that the other targets made
	rm -rf docs/api docs/auto_tutorials docs/commands docs/drawn docs/project
	rm -rf $(VENV) $(OLDEST) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
