# Every goal sets itself up: a virtual environment in $(VENV), the build tools, the extension module.
# `make help` lists the goals.

VENV ?= .venv
# The first Python that is new enough. A shim (pyenv's) may be in the path and yet start nothing: so each is tried.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 $$HOME/.pyenv/versions/3.1[1-9]*/bin/python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PYTEST_ARGS ?=
BENCH_ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := setup.py pyproject.toml $(wildcard src/targetmem/*.pyx src/targetmem/*.pxd src/targetmem/*.pxi \
  csrc/*.c csrc/*.h csrc/include/*.h)
SWITCHES := $(foreach name,SANITIZE COVERAGE DEBUG STATISTICS,$(name)=$(TARGETMEM_$(name)))
export TARGETMEM_SANITIZE TARGETMEM_COVERAGE TARGETMEM_DEBUG TARGETMEM_STATISTICS

.DEFAULT_GOAL := help
.PHONY: help build demo test native sanitize lint format bench-smoke bench wheel clean FORCE
.DELETE_ON_ERROR:

help: ## list the goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings: PYTHON=$(PYTHON) VENV=$(VENV) PYTEST_ARGS='...' and the switches of setup.py (TARGETMEM_DEBUG=1 ...)"

build: $(VENV)/.built ## build the extension module in place; does nothing when no source changed

demo: build ## run the heat equation in NumPy with the pool and without, print both times
	$(BIN)/python examples/demo.py

test: build ## run the tests (PYTEST_ARGS='-k name' for some of them)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

native: build ## run the C stress tests under the sanitizers, without an interpreter
	$(BIN)/python -m pytest tests/native $(PYTEST_ARGS)

sanitize: ## run the tests inside the interpreter with the extension under ASan and UBSan
	$(MAKE) build TARGETMEM_SANITIZE=address,undefined
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	  $(BIN)/python -m pytest $(wildcard tests/unit tests/contract tests/property tests/ladder) $(PYTEST_ARGS); \
	  status=$$?; $(MAKE) build && exit $$status

lint: $(VENV)/.lint ## run the list of .pre-commit-config.yaml on all files
	$(BIN)/pre-commit run --all-files --show-diff-on-failure

format: $(VENV)/.lint ## format Python and C as `make lint` wants it
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files '*.c' '*.h')

bench-smoke: $(VENV)/.bench ## run every benchmark once, briefly: does it still work?
	$(BIN)/python -m benchmarks --smoke $(BENCH_ARGS)

bench: $(VENV)/.bench ## measure against the peers in one run (BENCH_ARGS='--only ...'); writes JSON
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

wheel: build ## build the wheel from the source archive, install it elsewhere and try it
	$(BIN)/python scripts/check_wheel.py

clean: ## remove everything that was built
	rm -rf build dist .venv* .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info src/*.egg-info src/targetmem/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "targetmem: expected Python >= 3.11, found none: install one, or make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) scripts/check_machine.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip

# Changes only when a switch of setup.py does, and then the extension is built anew.
$(VENV)/.switches: FORCE | $(VENV)/bin/python
	@echo '$(SWITCHES)' | cmp -s - $@ || echo '$(SWITCHES)' > $@

$(VENV)/.built: $(SOURCES) $(VENV)/.switches | $(VENV)/bin/python
	$(PIP) install 'setuptools>=77' 'Cython>=3.1'
	$(PIP) install --no-build-isolation --editable '.[test]'
	@touch $@

# These two wait for the build, but a changed C file alone is no reason to ask pip again.
$(VENV)/.lint $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(VENV)/.built
	$(PIP) install --no-build-isolation --editable '.[$*]'
	@touch $@
