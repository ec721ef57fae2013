# `make demo` and `make test` are all a new machine needs; both build .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test soak check types lint lowest bench clean
.DEFAULT_GOAL := test

# Where PYTHON is given, an environment of another Python is made anew; else the one that is there is taken.
ifneq ($(origin PYTHON),file)
VERSION := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
$(if $(VERSION),,$(error PYTHON=$(PYTHON) does not run))
other = $(shell test ! -e $1/pyvenv.cfg || grep -qx 'version = $(VERSION)' $1/pyvenv.cfg || echo $1/ready)
.PHONY: $(call other,.venv) $(call other,.venv-lowest) $(call other,.venv-peers)
endif

.venv/ready: pyproject.toml
	$(PYTHON) -m venv $(if $(call other,.venv),--clear) .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: .venv/ready
	$(BIN)/simplequeue demo

test: .venv/ready
	$(BIN)/python -m pytest $(ARGS)

# Workers that are killed and restarted at random, for ten minutes or SECONDS; SEED repeats what was done to them.
# Then 2,000 or SEEDS schedules of three workers, behind those that the suite lives through.
soak: .venv/ready
	$(BIN)/python -m tests.drain.soak --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.proof.test_random --count $(or $(SEEDS),2000)

check: lint types

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# The conformance suite on the oldest driver that pyproject.toml admits.
.venv-lowest/ready: pyproject.toml
	$(PYTHON) -m venv $(if $(call other,.venv-lowest),--clear) .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]' 'pymongo==4.13.0'
	touch $@

lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest tests/conformance $(ARGS)

# What the benchmarks compare with, away from what is developed with. Where it cannot be had, they go without.
.venv-peers/ready: benchmarks/durable/peers.txt
	$(PYTHON) -m venv $(if $(call other,.venv-peers),--clear) .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# The extension beside the floor and its peers, in less than ten minutes; compare with `python -m benchmarks.check`.
bench: .venv/ready
	$(MAKE) .venv-peers/ready || echo 'The peers cannot be installed: the benchmarks go without them.'
	$(BIN)/python -m benchmarks.durable $(ARGS)

clean:
	rm -rf .venv .venv-lowest .venv-peers build *.egg-info .mypy_cache .ruff_cache .pytest_cache
