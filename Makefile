PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.PHONY: help demo test test-hard docs bench reproduce clean
help:
	@echo "make demo | test | test-hard | docs | bench | reproduce RUN=imdb | clean"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/histnetq demo

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal

# Proofs that take minutes.
test-hard: $(READY)
	$(BIN)/pytest -m hard

# The site, in build/site: every tutorial is executed, and warnings are errors.
$(DOCS_READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

docs: $(DOCS_READY)
	$(BIN)/sphinx-build -W --keep-going --quiet -d build/doctrees docs build/site

bench: $(READY)
	$(BIN)/python -m benchmarks

# Such as: make reproduce RUN="imdb --data DIRECTORY --budget full"
reproduce: $(READY)
	$(BIN)/python -m experiments $(RUN)

clean:
	rm -rf docs/api docs/auto_tutorials docs/commands docs/drawn docs/project
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
