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
MARKS ?= not slow
# a machine that only measures may have a build of torch that no set-up of ours should replace
GPU_PYTHON = $(if $(wildcard $(STAMP)),$(BIN)/python,$(PYTHON))
# without them each of the tests' hundreds of processes would compile everything anew
unexport PYTHONDONTWRITEBYTECODE

# the oldest pair that pyproject.toml allows, in an environment of its own
OLDEST := build/oldest
OLDEST_STAMP := $(OLDEST)/.set-up
OLDEST_PAIR := torch==2.11.0 triton==3.6.0

# what an installation without our pins brings today, in an environment of its own
NEWEST := build/newest
NEWEST_STAMP := $(NEWEST)/.set-up

# packages that a machine without network brings along
GPU_SITE := build/gpu-site
GPU_PYTHON_VERSION ?= 3.12
GPU_PACKAGES = annotated-doc annotated-types click cupti-python execnet iniconfig markdown-it-py mdurl ncu-report \
  nvidia-ml-py orjson packaging pluggy pydantic pydantic-core pygments pytest pytest-xdist rich shellingham typer \
  typing-extensions typing-inspection

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-oldest test-newest compose-test test-gpu gpu-bundle gpu-evidence lint types format docs screenshots bench-commands bench-detection up down clean

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
	@$(BIN)/python -c 'import roofwatch.collector.jobs.worker_main'
	@touch $@

demo: $(STAMP) ## Measure sixteen commits, find the four that changed something, serve the dashboard (SERVE=0: do not serve)
	@$(BIN)/roofwatch demo $(if $(filter 0,$(SERVE)),--no-serve)

test: $(STAMP) ## Run the quick tests of every component (WORKERS: so many at once; MARKS=: all tests)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m '$(MARKS)'

test-slow: $(STAMP) ## Run the other tests that need no GPU: browsers, killed processes, large stores
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) -m 'slow and not compose'

# torch 2.11 needs an older setuptools than the pinned one, our build a newer one than venv brings
$(OLDEST_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear $(OLDEST)
	@grep --invert-match --extended-regexp '^(torch|triton|setuptools)==' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint $(OLDEST)/constraints.txt $(OLDEST_PAIR) 'setuptools>=80' wheel
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint $(OLDEST)/constraints.txt --no-build-isolation --editable '.[measure,dev,cuda]'
	@touch $@

test-oldest: $(OLDEST_STAMP) ## Run the tests of kernels and collector with the oldest supported torch and triton
	@$(OLDEST)/bin/python -m pytest --numprocesses $(WORKERS) -m '$(MARKS)' tests/kernels tests/collector

# without the packages that torch asks for in versions of its own
$(NEWEST_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -m venv --clear $(NEWEST)
	@grep --invert-match --extended-regexp '^(torch|triton|numpy|setuptools|cuda-.*|nvidia-.*)==' constraints.txt \
	  > $(NEWEST)/constraints.txt
	$(NEWEST)/bin/pip install --quiet --disable-pip-version-check --no-compile --upgrade \
	  --constraint $(NEWEST)/constraints.txt torch triton numpy 'setuptools>=80' wheel
	$(NEWEST)/bin/pip install --quiet --disable-pip-version-check --no-compile \
	  --constraint $(NEWEST)/constraints.txt --no-build-isolation --editable '.[measure,dev,cuda]'
	@touch $@

test-newest: $(NEWEST_STAMP) ## Run the tests of kernels and collector with the newest torch and triton
	@$(NEWEST)/bin/python -c 'import torch, triton; print("torch", torch.__version__, "triton", triton.__version__)'
	@$(NEWEST)/bin/python -m pytest --numprocesses $(WORKERS) -m '$(MARKS)' tests/kernels tests/collector

compose-test: $(STAMP) ## Build the image and run the service in containers, as docs/how-to/operate.md says
	@$(BIN)/python -m pytest --numprocesses 0 --exitfirst -m compose -o faulthandler_timeout=1800 tests/test_compose.py

# renamed when it is whole: an installation that was interrupted is made again
$(GPU_SITE):
	@test ! -d build/gpu-bundle || { rm -rf $@.part && \
	  $(GPU_PYTHON) -m pip install --quiet --no-index --no-deps --target $@.part build/gpu-bundle/*.whl && \
	  mv $@.part $@; }

# pytest goes where it can be brought along to a machine without network, and changes nothing else of that machine
test-gpu: $(GPU_SITE) ## Run the tests that need a GPU, on whatever has torch: the set-up if it was made, else PYTHON with a bundle or pytest
	@PYTHONPATH=$(GPU_SITE) $(GPU_PYTHON) -c 'import pytest' 2>/dev/null || test -d build/pytest || \
	  $(GPU_PYTHON) -m pip install --quiet --disable-pip-version-check --target build/pytest pytest
	@PYTHONPATH=$${PYTHONPATH:+$$PYTHONPATH:}$(GPU_SITE):build/pytest $(GPU_PYTHON) -m pytest -m gpu -o addopts=

gpu-bundle: $(STAMP) ## Put what a machine with a GPU, torch and triton lacks into build/gpu-bundle (GPU_PYTHON_VERSION: 3.12)
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest build/gpu-bundle \
	  $(foreach glibc,2_28 2_25 2_17,--platform manylinux_$(glibc)_x86_64) --python-version $(GPU_PYTHON_VERSION) \
	  --constraint constraints.txt $(GPU_PACKAGES)
	@$(BIN)/python -c 'from pathlib import Path; from roofwatch.collector.git import read_commit; \
	  Path("build/gpu-bundle/commit.json").write_text(read_commit(Path()).model_dump_json())'
	$(BIN)/python -m bench.gpu_evidence --predictions > build/gpu-bundle/predictions.json
	@du -sh build/gpu-bundle

gpu-evidence: $(GPU_SITE) ## Tests, timers, the quick suite, noise and counters on this machine's GPU, into examples/gpu; repeat until done (ARCHIVE: all in one file)
	@ROOFWATCH_COMMIT="$$(cat build/gpu-bundle/commit.json 2>/dev/null)" \
	  PYTHONPATH=.:$(GPU_SITE) $(GPU_PYTHON) -m bench.gpu_evidence examples/gpu $(if $(ARCHIVE),--archive $(ARCHIVE))

lint: $(STAMP) ## Check the style of code and prose
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python docs/check_prose.py
	@$(BIN)/python bench/check_idioms.py
	@$(BIN)/python bench/size_hints.py

types: $(STAMP) ## Check types
	@$(BIN)/mypy

format: $(STAMP) ## Put the code into the project's style
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

docs: $(STAMP) ## Build the documentation site into build/docs; warnings are errors
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --builder html docs build/docs

screenshots: $(STAMP) ## Make the documentation's pictures of the dashboard on a made-up history of GPUs, in a real Chromium
	@$(BIN)/python -m tests.dashboard.made_up_history build/made-up-history
	@$(BIN)/python -m tests.dashboard.screenshots build/made-up-history docs/images

bench-detection: ## Our change-point detector beside its peers (on ROOFWATCH_DETECTION_DATA: series and their harness)
	@$(PYTHON) -m venv build/peers
	@build/peers/bin/pip install --quiet --disable-pip-version-check --requirement bench/peers.txt
	@build/peers/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement bench/peers-alone.txt
	@PYTHONPATH=. build/peers/bin/python bench/detection.py $(ROOFWATCH_DETECTION_DATA)

bench-commands: $(STAMP) ## How long the README's commands take, beside pytest-benchmark and do_bench
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/commands-peers --upgrade --requirement bench/commands-peers.txt
	@PYTHONPATH=$(CURDIR)/build/commands-peers $(BIN)/python -m bench.first_minutes

# containers read them as users of their own; the folder keeps other users of this machine out
secrets/%_password:
	@install -d -m 700 secrets
	@head -c 24 /dev/urandom | base64 | tr '+/' '-_' > $@
	@chmod 644 $@

up: secrets/postgres_password secrets/reader_password secrets/service_password ## Start the service with Docker Compose, with new passwords the first time
	@docker compose up --detach --build --wait

down: ## Stop them; the data stays
	@docker compose down

clean: ## Remove what the other verbs made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis test-output roofwatch-demo
