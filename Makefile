# `make` alone lists the targets. Each sets up the environment it needs, and again when the
# dependencies change: .venv, or .venv-peers (with PyTorch, Transformers, KerasHub and JAX) for
# what compares with other programs, or .venv-tf212 with the TensorFlow Text of TF Serving's binary.

PYTHON ?= python3
BENCH ?= --size mini

SHELL := /bin/bash
VENV := .venv
PEERS := .venv-peers
TF212 := .venv-tf212

.DEFAULT_GOAL := help
.PHONY: help demo test test-peers test-served lint bench clean

help: ## list the targets
	@echo "make TARGET [PYTHON=python3.12]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed ## raw text to a served model, in minutes: learn, pretrain, export, answer
	$(VENV)/bin/keras-bert-d2l quickstart

test: $(VENV)/installed ## all tests that need no other program
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist worksteal --durations=10

test-peers: $(PEERS)/installed ## the tests beside PyTorch, Transformers, KerasHub and JAX
	$(PEERS)/bin/python -m pytest --durations=5 -k 'peers or jax_backend or beam'

test-served: $(VENV)/installed $(TF212)/installed ## an exported model in TensorFlow 2.12; needs python3.11
	$(VENV)/bin/python -m pytest tests/serving/loaders/test_peers.py

lint: $(VENV)/installed ## style, types and the order of imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache --no-logo

bench: $(PEERS)/installed ## the training step beside the peers'; BENCH="--size base" for more
	$(PEERS)/bin/python -m benchmarks.training.train_step $(BENCH)

clean: ## remove the environments and what the tools left behind
	rm -rf $(VENV) $(PEERS) $(TF212) build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: EXTRAS := dev
$(PEERS)/installed: EXTRAS := dev,peers
# seqeval has no wheel, and its build fails with setuptools_scm 10.
$(PEERS)/installed: export PIP_CONSTRAINT := tests/peers/build-constraints.txt
$(PEERS)/installed: export PIP_BUILD_CONSTRAINT := tests/peers/build-constraints.txt
$(VENV)/installed $(PEERS)/installed: setup.cfg pyproject.toml
	@echo "== Setting up $(@D): TensorFlow and all, some minutes the first time"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@set -o pipefail; $(@D)/bin/python -m pip install --editable '.[$(EXTRAS)]' \
		| grep --line-buffered -oE '^(Collecting [A-Za-z0-9_.-]+|Installing collected packages)'
	@touch $@

$(TF212)/installed:
	python3.11 -m venv $(TF212)
	$(TF212)/bin/pip install --quiet tensorflow==2.12.1 tensorflow-text==2.12.1
	@touch $@
