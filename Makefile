# `make` lists the targets. Each target creates the environment it needs and updates it when the
# dependencies change: .venv for everyday work, .venv-peers with the libraries we compare with
# (PyTorch, Transformers, KerasHub, JAX), .venv-tf212 with the TensorFlow version of TF Serving,
# .venv-next with pre-releases, .venv-oldest with the lowest versions that setup.cfg admits, and
# .venv-dist with the tools that build and check a release.

PYTHON ?= python3
BENCH ?= --size mini

SHELL := /bin/bash
# Python keeps the bytecode of what it imports, also where the environment says otherwise: the tests
# start many processes.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
PEERS := .venv-peers
TF212 := .venv-tf212
NEXT := .venv-next
OLDEST := .venv-oldest
DIST := .venv-dist
# Tests of runs, of which some are repeated with the JAX backend.
RUNS := tests/training/pretraining tests/training/finetuning
# What other libraries are needed for: comparisons with them, and exports that they run.
PEER_TESTS := peers or jax_backend or beam or onnx or one_answer
# Each worker imports TensorFlow and needs about 3 GB of memory.
WORKERS := --numprocesses auto --maxprocesses 4 --dist worksteal
PYTEST := $(VENV)/bin/python -m pytest $(WORKERS)
PYTEST_PEERS := $(PEERS)/bin/python -m pytest $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo check lint test test-peers test-all test-served test-next test-oldest docs dist wheel bench clean

help: ## list the targets
	@echo "Usage: make TARGET [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/demo ## train, export and query a small BERT, in 2 to 6 minutes
	$(VENV)/bin/keras-bert-d2l quickstart

check: lint ## lint and run the fast tests; use it before each commit
	$(PYTEST) -m 'not slow and not long'

lint: $(VENV)/installed ## check style, formatting, types, imports and the budget of lines
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo
	$(VENV)/bin/python scripts/budget.py

test: $(VENV)/installed ## run the tests that must pass before a merge
	$(PYTEST) -m 'not long' -k 'not ($(PEER_TESTS))' --durations=20

test-peers: $(PEERS)/installed ## test with PyTorch, Transformers, KerasHub, JAX, ONNX and Apache Beam
	$(PYTEST_PEERS) -m 'not long' -k '$(PEER_TESTS)' --durations=10
	KERAS_BACKEND=jax JAX_PLATFORMS=cpu $(PYTEST_PEERS) $(RUNS) -m 'not long' -k resumes_exactly

test-all: $(PEERS)/installed ## run every test, with all libraries; for each night, takes about an hour
	$(PYTEST_PEERS) --durations=50
	KERAS_BACKEND=jax JAX_PLATFORMS=cpu $(PYTEST_PEERS) $(RUNS) -k exactly
	@if command -v python3.11 >/dev/null; then $(MAKE) test-served; fi

test-served: $(VENV)/installed $(TF212)/installed ## run an exported model in TensorFlow 2.12; needs python3.11
	$(VENV)/bin/python -m pytest tests/serving/loaders -k tensorflow_2_12

test-next: $(NEXT)/installed ## test pre-releases of all dependencies; for each night
	$(NEXT)/bin/python -m pytest $(WORKERS) -m 'not long'

test-oldest: $(OLDEST)/installed ## test the lowest versions that setup.cfg admits; for each night
	$(OLDEST)/bin/python -m pytest $(WORKERS) -m 'not long'

docs: $(VENV)/installed ## build the documentation site in site/, strictly and without a network
	$(VENV)/bin/zensical build --clean --strict
	$(VENV)/bin/python scripts/check_site.py site

dist: $(DIST)/installed ## build the source archive and the wheel of a release in dist/, and check them
	rm -rf build dist *.egg-info # what an earlier build left would be added
	$(DIST)/bin/python -m build --quiet # the wheel from the source archive, which is thus complete
	$(DIST)/bin/twine check --strict dist/*

wheel: dist ## build a wheel, install it in an empty environment, and run it
	scripts/check_wheel.sh $(DIST)/bin/python dist/*.whl

bench: $(PEERS)/installed ## compare training, data and answers with other libraries; BENCH="--checkpoint FOLDER"
	$(PEERS)/bin/python -m benchmarks.summary $(BENCH)

clean: ## delete the environments, caches and build files
	rm -rf $(VENV) $(PEERS) $(TF212) $(NEXT) $(OLDEST) $(DIST) build dist *.egg-info
	rm -rf site .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: PACKAGES := --editable '.[dev,docs]'
$(PEERS)/installed: PACKAGES := --editable '.[dev,peers]'
# The options of these two need uv. keras-nightly and tokenizers replace what tests/next.txt excludes.
$(NEXT)/installed: PACKAGES := --prerelease allow --overrides tests/next.txt \
	--editable '.[dev]' keras-nightly tokenizers
$(OLDEST)/installed: PACKAGES := --resolution lowest-direct --editable '.[dev]'
# The demo needs the package alone, which takes less time to install than the tools for development.
$(VENV)/demo: PACKAGES := --editable .
# seqeval has no wheel, and it does not build with setuptools_scm 10. uv and old and new versions of pip
# read the constraint from one variable each.
CONSTRAINT := tests/peers/build-constraints.txt
$(PEERS)/installed: export UV_BUILD_CONSTRAINT := $(CONSTRAINT)
$(PEERS)/installed: export PIP_BUILD_CONSTRAINT := $(CONSTRAINT)
$(PEERS)/installed: export PIP_CONSTRAINT := $(CONSTRAINT)
$(NEXT)/installed: tests/next.txt
$(VENV)/demo $(VENV)/installed $(PEERS)/installed $(NEXT)/installed $(OLDEST)/installed: setup.cfg pyproject.toml
	@echo "== Installing $(@D)"
	@scripts/environment.sh $(PYTHON) $(@D) $(PACKAGES)
	@touch $@

$(DIST)/installed:
	@scripts/environment.sh $(PYTHON) $(DIST) 'build>=1.6,<2' 'twine>=6.1,<8'
	@touch $@

$(TF212)/installed:
	@scripts/environment.sh python3.11 $(TF212) tensorflow==2.12.1
	@touch $@
