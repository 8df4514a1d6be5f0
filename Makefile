# The two commands: `make test` and `make demo`. Python 3.11+ and make are all they need.
VENV   := .venv
PYTHON ?= python3
STAMP  := $(VENV)/.installed
BIN    := $(VENV)/bin
# uv ignores pip's settings; a machine that serves wheels from a folder tells pip, so hand it on.
FIND_LINKS := $(or $(UV_FIND_LINKS),$(PIP_FIND_LINKS),$(shell $(PYTHON) -m pip config get global.find-links 2>/dev/null))
UV := $(if $(FIND_LINKS),UV_FIND_LINKS="$(FIND_LINKS)") $(BIN)/python -m uv

.PHONY: install test demo

install: $(STAMP)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11+ or run make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) -V) found: make PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(UV) pip install --python $(BIN)/python -e '.[dev]'
	touch $@

test: $(STAMP)
	$(BIN)/python -m pytest
