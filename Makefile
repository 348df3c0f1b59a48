# Everything runs from .venv, made from requirements/lock.txt.
PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint lock

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): requirements/lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

setup: $(STAMP)  ## make .venv with the locked versions

demo: $(STAMP)  ## play a long agent session through real workers, killing each once
	@$(BIN)/sessionctl demo

test: $(STAMP)  ## run every test, a real server and real workers included
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not crash"
	$(BIN)/python -m pytest -m crash

lint: $(STAMP)  ## lint, format check, strict types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: $(STAMP)  ## write requirements/lock.txt from the newest versions that pyproject.toml allows
	$(PYTHON) -m venv $(VENV).lock
	$(VENV).lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	$(VENV).lock/bin/python -m pip freeze --exclude sessionlib > requirements/lock.txt
	rm -r $(VENV).lock
