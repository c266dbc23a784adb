# One verb per step. `make run` and `make test` need Python 3.11 or newer, a C compiler and pip only.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two files of tests at a time: many wait for MPI ranks, which have the cores for themselves then.
AT_ONCE := -n 2 --dist loadfile

.PHONY: help run test test-all lint format bench bench-search testbed docs site clean

help:
	@echo "make run       install; decompose, cost and run examples/sync_gradients.coll on 8 MPI ranks"
	@echo "make test      install, run the tests (under 5 minutes on two cores)"
	@echo "make test-all  the slow tests too, and the filecheck files under plain lit"
	@echo "make lint      ruff, basedpyright"
	@echo "make format    ruff, changing files"
	@echo "make bench     the benchmarks (times, as ratios), and those of papers anew"
	@echo "make bench-search  those of exact search (6 minutes), and docs/search-scaling.md anew"
	@echo "make testbed   run programs on a real network of shaped links (70 minutes, Linux), and docs/testbed.md anew"
	@echo "make docs      write the generated pages of docs/ anew"
	@echo "make site      build the site of docs/ into build/site; warnings are errors"

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON): set PYTHON=..."; exit 1; }
	@command -v cc >/dev/null || { echo "make: a C compiler (cc) is needed for MPI"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(STAMP)
	$(BIN)/collopt examples/sync_gradients.coll -p decompose
	$(BIN)/collopt examples/sync_gradients.coll -p decompose -t cost
	@mkdir -p build
	$(BIN)/collopt examples/sync_gradients.coll -p decompose -t 'mpi{main=true}' -o build/sync_gradients.c
	$(BIN)/mpicc -O2 build/sync_gradients.c -o build/sync_gradients -lm
	$(BIN)/mpiexec -n 8 build/sync_gradients
	$(BIN)/collrun --engine mpi -n 8 -p decompose examples/sync_gradients.coll

test: $(STAMP)
	$(BIN)/python -m pytest -rs -m "not slow" $(AT_ONCE)

test-all: $(STAMP)
	$(BIN)/python -m pytest -rs $(AT_ONCE)
	$(BIN)/lit -q tests/filecheck

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	PYTHONPATH=tests $(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/papers/p2/speed.py
	$(BIN)/python benchmarks/pipelines.py --machines 40
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/models/run.py
	$(BIN)/python benchmarks/models/emitted_jax.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/pass_speed.py
	$(BIN)/python benchmarks/papers/p2/page.py
	$(BIN)/python benchmarks/papers/distir/page.py

bench-search: $(STAMP)
	$(BIN)/python benchmarks/search/running/run.py
	$(BIN)/python benchmarks/search/scaling.py

MINUTES ?= 35
testbed: $(STAMP)
	$(BIN)/python benchmarks/testbed/run.py --minutes $(MINUTES)
	$(BIN)/python benchmarks/testbed/before_after.py
	$(BIN)/python benchmarks/testbed/report.py
	$(BIN)/python benchmarks/testbed/models.py --page
	$(BIN)/python benchmarks/testbed/sweeps.py --page
	$(BIN)/python benchmarks/testbed/unlike.py --page
	$(BIN)/python benchmarks/testbed/algorithms.py --page

docs: $(STAMP)
	$(BIN)/python -m collir.tools.docs

site:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis
