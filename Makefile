# `make demo` and `make test` are all a new machine needs; both build .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check types lint lowest clean
.DEFAULT_GOAL := test

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: .venv/ready
	$(BIN)/simplequeue demo

test: .venv/ready
	$(BIN)/python -m pytest $(ARGS)

check: lint types

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# The conformance suite on the oldest driver that pyproject.toml admits.
.venv-lowest/ready: pyproject.toml
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]' 'pymongo==4.13.0'
	touch $@

lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest tests/conformance $(ARGS)

clean:
	rm -rf .venv .venv-lowest build *.egg-info .mypy_cache .ruff_cache .pytest_cache
