# SPDX-License-Identifier: Apache-2.0
# Needs Python 3.11 or newer and git. Everything is installed into .venv, nothing elsewhere.
#
#   make demo         record the example, analyze it, write the HTML pages and name them
#   make test         run the whole test suite          (make test PYTEST='-q tests/unit')
#   make lint         style, format and types
#   make wheel-test   run the suite against the built wheel, outside of this checkout
#   make bench        benchmarks; fails above a limit
#   make clean        remove .venv and what the commands above wrote
#
# Another interpreter:     make test PYTHON=/path/to/python3.12
# Another build of torch:  make demo TORCH='torch --index-url https://download.pytorch.org/whl/cpu'

PYTEST ?= -q -n auto
export PYTHON TORCH

VENV = .venv/bin/python
DEMO_READY = .venv/.ready-demo
DEV_READY = .venv/.ready-dev

.PHONY: help demo test lint wheel-test bench clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(DEMO_READY)
	@tools/demo.sh

test: $(DEV_READY)
	@$(VENV) -m pytest $(PYTEST)

lint: $(DEV_READY)
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -m mypy

wheel-test: $(DEV_READY)
	@tools/wheel_test.sh $(PYTEST)

bench: $(DEV_READY)
	$(VENV) benchmarks/import_time.py
	$(VENV) benchmarks/ingest.py --limit-ratio 0.7 --limit-gtrace-ratio 0.5 --limit-mb 360

clean:
	rm -rf .venv demo-output dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(DEMO_READY): pyproject.toml tools/setup_env.sh
	@tools/setup_env.sh torch $@

# What tests need includes what the demo needs.
$(DEV_READY): pyproject.toml tools/setup_env.sh
	@tools/setup_env.sh torch,dev $@
	@touch $(DEMO_READY)
