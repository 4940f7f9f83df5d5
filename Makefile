# Every command prepares what it needs: `make demo` works on a fresh clone with only python3 and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

# pyright would ask the network for a newer version of itself at every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz test-browser test-deploy test-deploy-warm test-minimum bench-deploy docs dist lock check format bench tables clean
.NOTPARALLEL:  # two targets share one .venv

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(VENV)/.demo  ## what sharing buys nine colonies of penguins with few labels: a table and a report
	@$(BIN)/polyfed demo

# One thread for each process: the matrices are small, and the processes already share out the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --ignore tests/browser --ignore tests/deployment

test: $(VENV)/.dev  ## run the tests and every example in a docstring, but for what is slow (five minutes on two cores)
	@$(PYTEST) -m "not slow"

test-all: test  ## run every test: those of make test, then long laws and oracles, kills and resumes, whole documents
	@$(PYTEST) --dist worksteal -m slow tests

# The cases of laws and fuzzers are always the same in the tests; these are not. FUZZ_SEED=7 repeats those of a seed.
FUZZ_SEED ?= $(shell date +%s)
fuzz: $(VENV)/.dev  ## laws, and fuzzers of updates, notes and run folders, with fresh cases
	@echo "FUZZ_SEED=$(FUZZ_SEED)"
	@$(PYTEST) -m "hypothesis or fuzz" --hypothesis-profile=fresh --hypothesis-seed=$(FUZZ_SEED) tests

# Needs chromium (Debian: apt-get install chromium); without it the tests are skipped.
test-browser: $(VENV)/.dev  ## look at the report and the live page in a browser
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/browser

# A server and three nodes as processes of their own, on 127.0.0.1; stock nodes start a Python with torch for each message.
test-deploy: $(VENV)/.dev  ## the real thing on this machine, warm and stock nodes: Flower with TLS, faults, kills, resume (half an hour)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/deployment --durations=0

test-deploy-warm: $(VENV)/.dev  ## the same with warm nodes alone (six minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/deployment -k warm --durations=0

# Offline; a warning, a link that leads nowhere or a cell that fails ends it.
docs: $(VENV)/.docs  ## build the documentation site into docs/_build/html, every example run
	@$(BIN)/python -m sphinx -b html -W -j 2 -q -d docs/_build/doctrees docs docs/_build/html
	@echo "The site is docs/_build/html/index.html"

# Tools of their own, so that what is built depends on nothing that .venv happens to hold.
dist:  ## build the wheel and the source archive into dist, and check what an index would show of them
	@$(PYTHON) -m venv $(VENV)-dist
	@$(VENV)-dist/bin/python -m pip install --disable-pip-version-check -qq build twine
	@rm -rf dist
	@$(VENV)-dist/bin/python -m build
	@$(VENV)-dist/bin/python -m twine check --strict dist/*

# From the index alone: a local build of torch has other hashes.
lock:  ## write requirements.lock: all that polyfed[demo] needs, with hashes (Linux x86-64, Python 3.11)
	@$(PYTHON) -m venv $(VENV)-dist
	@$(VENV)-dist/bin/python -m pip install --disable-pip-version-check -qq --dry-run --ignore-installed \
		--report $(VENV)-dist/report.json -c constraints.txt '.[demo]'
	@$(VENV)-dist/bin/python .ci/lock.py < $(VENV)-dist/report.json > requirements.lock

# The lowest versions that pyproject.toml allows, in an environment of their own.
MINIMUM ?= tests --ignore tests/browser --ignore tests/deployment --ignore tests/docs
test-minimum:  ## run the tests with the oldest allowed versions of the dependencies (minutes)
	@$(PYTHON) -m venv $(VENV)-minimum
	@$(VENV)-minimum/bin/python .ci/minimum.py > $(VENV)-minimum/constraints.txt
	@$(VENV)-minimum/bin/python -m pip install --disable-pip-version-check -qq -c $(VENV)-minimum/constraints.txt -e '.[dev]'
	@OMP_NUM_THREADS=1 $(VENV)-minimum/bin/python -m pytest -q -n auto --maxprocesses 4 $(MINIMUM)

check: $(VENV)/.dev  ## style, format, types, and who imports whom
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev  ## rewrite the code in the house style
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

# BENCH="--quick" is a tenth of the time, BENCH="--only client" a part of it.
bench: $(VENV)/.dev  ## measure the speed, each figure beside its yardstick (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m bench --json bench/results.json $(BENCH)

# BENCH="--rounds 5 --stock-rounds 0" is the short part.
bench-deploy: $(VENV)/.dev  ## measure a round of three nodes on this machine, warm and stock (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m bench.deploy $(BENCH)

# TABLES="--test" looks at test rows, once and at the end. Needs POLYFED_DATA; measured cells are kept in ~/.cache.
tables: $(VENV)/.dev  ## every method and rival on real tables with few labels (an hour; goes on where it was stopped)
	@$(BIN)/python -m bench.tables --page docs/results/tables.md $(TABLES)

clean:  ## remove the environment, the caches and what a build leaves
	@rm -rf $(VENV) $(VENV)-dist $(VENV)-minimum build dist docs/_build docs/reference/generated .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests examples bench -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps: what is installed is as new as its description. __init__.py holds the version.
DESCRIPTION := pyproject.toml constraints.txt src/polyfed/__init__.py

# $(1) is the extra to install. -qq shows pip's errors only, and they do not always say enough.
define install
	@echo "Installing polyfed[$(1)] into $(VENV) (torch is large: the first time takes minutes) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) -qq -e '.[$(1)]' || { echo "To see more: $(PIP_INSTALL) -e '.[$(1)]'" >&2; exit 1; }
endef

$(VENV)/.demo: $(DESCRIPTION)
	$(call install,demo)
	@touch $@

$(VENV)/.dev: $(DESCRIPTION)
	$(call install,dev)
	@touch $(VENV)/.demo $@  # dev holds demo

$(VENV)/.docs: $(DESCRIPTION)
	$(call install,docs)
	@touch $@
