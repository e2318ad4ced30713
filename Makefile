# Every verb of this repository. Set-up uses venv and pip alone; versions are pinned in constraints.txt.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SERVE ?= 1
EXTRAS ?= measure,server,dev,cuda
STAMP := $(VENV)/.set-up
# most of twenty thousand modules are never loaded: one is compiled when it is, but those of the demo's workers, which
# write none, right away
PIP_OPTIONS = --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
# of pytest, for two cores: while one waits for what it started, another works
WORKERS ?= 3
# a machine that only measures may have a build of torch that no set-up of ours should replace
GPU_PYTHON = $(if $(wildcard $(STAMP)),$(BIN)/python,$(PYTHON))
# without them each of the tests' hundreds of processes would compile everything anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-gpu gpu-records lint types format docs screenshots bench-detection up down clean

help: ## Show the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## Make .venv with every pinned dependency

# the pip that comes with Python 3.11 takes three times as long to find out what to install
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "roofwatch needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "venv is missing; install it (Debian: apt install python3-venv)"; exit 2; }
	$(BIN)/pip install $(PIP_OPTIONS) --upgrade pip setuptools wheel
	PYTHONWARNINGS=ignore $(BIN)/pip install $(PIP_OPTIONS) --no-build-isolation --editable '.[$(EXTRAS)]'
	@$(BIN)/python -c 'import roofwatch.collector.workers.fork_server_main'
	@touch $@

demo: $(STAMP) ## Measure sixteen commits, find the four that changed something, serve the dashboard (SERVE=0: do not serve)
	@$(BIN)/roofwatch demo $(if $(filter 0,$(SERVE)),--no-serve)

test: $(STAMP) ## Run the quick tests of every component (WORKERS: so many at once)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m 'not slow'

test-slow: $(STAMP) ## Run the other tests that need no GPU: browsers, killed processes, large stores
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m slow

# pytest goes where it can be brought along to a machine without network, and changes nothing else of that machine
test-gpu: ## Run the tests that need a GPU, on whatever has torch: the set-up if it was made, else PYTHON with pytest alone
	@$(GPU_PYTHON) -c 'import pytest' 2>/dev/null || test -d build/pytest || \
	  $(GPU_PYTHON) -m pip install --quiet --disable-pip-version-check --target build/pytest pytest
	@PYTHONPATH=$${PYTHONPATH:+$$PYTHONPATH:}build/pytest $(GPU_PYTHON) -m pytest -m gpu -o addopts=

gpu-records: ## Records of real runs on this machine's GPU into examples/, and how far its timers and two runs agree
	@PYTHONPATH=. $(GPU_PYTHON) bench/gpu_records.py examples

lint: $(STAMP) ## Check the style of code and prose
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python docs/check_prose.py

types: $(STAMP) ## Check types
	@$(BIN)/mypy

format: $(STAMP) ## Put the code into the project's style
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

docs: $(STAMP) ## Build the documentation site into build/docs; warnings are errors
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs build/docs

screenshots: $(STAMP) ## Make the README's pictures of the dashboard from what the demo measures, in a real Chromium
	@$(BIN)/roofwatch demo --no-serve
	@$(BIN)/python -m tests.dashboard.screenshots roofwatch-demo docs/images

bench-detection: ## Our change-point detector beside its peers (on ROOFWATCH_DETECTION_DATA: series and their harness)
	@$(PYTHON) -m venv build/peers
	@build/peers/bin/pip install --quiet --disable-pip-version-check --requirement bench/peers.txt
	@build/peers/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement bench/peers-alone.txt
	@PYTHONPATH=. build/peers/bin/python bench/detector_table.py $(ROOFWATCH_DETECTION_DATA)

up: ## Start Postgres and the dashboard with Docker Compose
	@docker compose up --detach --build --wait

down: ## Stop them; the data stays
	@docker compose down

clean: ## Remove what the other verbs made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis test-output roofwatch-demo
