# `make train` and `make test` do everything, including the set-up.
PYTHON ?= python3
# The build of torch: cpu, cu126, cu130 ..., or auto: the newest that the driver can run which nvidia-smi
# shows, and the build for CPUs without one
TORCH ?= auto
BIN := .venv/bin
READY := .venv/.ready
PEERS := .venv/.peers
# Three processes on two cores: one takes the tests that wait for SLURM, the others whole files, the
# longest first (tests/conftest.py)
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder
# One thread in each process: with more, two processes on two cores wait for each other.
export OMP_NUM_THREADS := 1
export OMP_WAIT_POLICY := passive
# Empty, so that Python may keep what it compiles: each of the hundreds of processes of the tests
# would compile rigor anew, for .6 s.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup train test check docs gpu bench bench-learners bench-compare bench-memory clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

setup: $(READY) ## make .venv with everything in it; TORCH=cpu, cu130 ... chooses torch's build

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("rigor needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --torch-backend=$(TORCH) -c constraints.txt torch 2>/dev/null \
	  || echo "torch: no build TORCH=$(TORCH) within reach; pip's own index gives the one that it has"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(READY) ## Breakout with three seeds on a small budget, about 5 minutes
	$(BIN)/rigor-train env=atari/breakout agent=multihorizon -m seed=0,1,2 \
	  train.steps=20_000 env.max_frames=4000 \
	  evaluate.every=0.5 evaluate.episodes=3 evaluate.final_episodes=3

test: $(READY) ## every test, 15 to 19 minutes on two cores
	$(BIN)/python -m pytest $(WORKERS) --durations 10

check: $(READY) ## format, lint, types and the fast tests, 4 minutes on two cores
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(WORKERS) -m 'not slow'

gpu: $(READY) ## on a GPU machine: whether torch sees the GPU and records on it, and the speed there, 8 minutes
	$(BIN)/python -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else f"torch {torch.__version__} sees no GPU: make clean, then make setup TORCH=cu130 (or cu126 for an older driver, or a card before Turing)")'
	@$(BIN)/python -c 'import torch; (torch.ones(1, device="cuda") + 1).item()' || { echo "this build of torch has no code for this GPU: make clean, then make setup TORCH=cu126 (cards before Turing need it)"; exit 1; }
	$(BIN)/python -m pytest -q tests/learning/test_engine.py
	PYTHON=$(BIN)/python benchmarks/gpu.sh

docs: $(READY) ## build site/docs/index.html; a broken link is an error
	$(BIN)/sphinx-build -q -E -a -W --keep-going -c docs . site
	@echo site/docs/index.html

# without the public peer, the benchmark prints a notice and continues
$(PEERS): $(READY)
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' && touch $@

bench: $(READY) $(PEERS) ## speed against peers, 10 minutes; QUICK=1 for a short run, OUT=file.json
	$(BIN)/python benchmarks/bench.py $(if $(QUICK),--quick) $(if $(OUT),--out $(OUT))
	$(BIN)/python benchmarks/grid.py $(if $(OUT),--bench $(OUT))

bench-learners: $(READY) ## agent steps per second of both learners on Breakout, 10 minutes
	$(BIN)/python benchmarks/learners.py $(if $(OUT),--out $(OUT))
	$(BIN)/python benchmarks/grid.py $(if $(OUT),--learners $(OUT))

bench-compare: $(READY) ## differences between two benchmarks: OLD=a.json NEW=b.json
	$(BIN)/python benchmarks/compare.py $(OLD) $(NEW)

bench-memory: $(READY) ## memory of a replay of a million frames; needs 7 GB of memory and of disk
	$(BIN)/python benchmarks/memory.py

clean: ## remove .venv, pages and caches, but no runs
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
