# Everything runs in build/venv, which the first target creates, so that .venv is yours; VENV=.venv uses that instead.
# Requires make and Python 3.11 or later.
PYTHON ?= python3
VENV = build/venv
BIN = $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo
DEMO_EXTRAS := cli,spark
TRAINING_EXTRAS := test,training
TRAINING_TESTS := tests/datasets tests/spark/test_training.py src/bowstring/datasets docs/reference/datasets.md docs/tutorial.md
# What the tests need besides the extras of bowstring, and all distributions of this repository.
TESTING := -e ./testing
DISTRIBUTIONS := -e './networks[flight,ucx]' $(TESTING)
CODE := $(wildcard src tests networks testing examples/demo benchmarks fuzz docs/*.py conftest.py)

.DEFAULT_GOAL := help
.PHONY: help demo test test-spark test-training thorough lint check format docs bench fuzz soak dist venv clean

help: ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

demo: $(DEMO_READY) ## Run the demo; ARGS='--input FILE' uses your data.
	@$(BIN)/python -m examples.demo $(ARGS)

test: $(READY) ## Run the tests; ARGS='-m "not spark"' skips the slow ones.
	@$(BIN)/python -m pytest -n 2 $(ARGS)

lint: $(READY) ## Check format, lint and types.
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy $(CODE)

thorough: $(READY) test-training ## Run the long tests, servers and clients with kills, and the fuzzer: 20 minutes.
	@$(BIN)/python -m pytest -n 2 --thorough -m thorough --ignore tests/datasets
	@$(BIN)/python -m tests.sharing.soak --time 240
	@$(BIN)/python -m fuzz --time 240 --seed 1

check: lint test thorough ## Check format, lint and types; run all tests, also the thorough ones.

format: $(READY) ## Format the sources and fix lint errors.
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: $(READY) ## Build the documentation in build/site; ARGS=serve shows it at a local port while you write.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build --strict)

bench: $(READY) ## Compare with the peers; ARGS=--help lists the options.
	@$(BIN)/python -m benchmarks $(ARGS)

fuzz: $(READY) ## Fuzz the readers until interrupted; ARGS='--time 600' limits the seconds.
	@$(BIN)/python -m fuzz $(ARGS)

soak: $(READY) ## Run servers and clients for an hour; ARGS='--time 60' limits the seconds.
	@$(BIN)/python -m tests.sharing.soak $(ARGS)

dist: $(READY) ## Build the wheels and the source distributions into dist/.
	@$(BIN)/python -m hatchling build
	@for folder in networks testing; do (cd $$folder && $(abspath $(BIN))/python -m hatchling build -d ../dist) || exit 1; done

venv: $(READY) ## Create build/venv.

test-spark: build/spark-$(VERSION)/.ready ## Run the Spark tests with another PySpark: VERSION=3.5.9.
	@build/spark-$(VERSION)/bin/python -m pytest -n 2 tests/spark $(ARGS)

build/spark-%/.ready: VENV = build/spark-$*
build/spark-%/.ready: pyproject.toml testing/pyproject.toml
	$(call install,test,$(TESTING) 'pyspark==$*')

test-training: build/training/.ready ## Run the tests of data sets with PyTorch, XGBoost, LightGBM, scikit-learn.
	@build/training/bin/python -m pytest -n 2 --thorough $(TRAINING_TESTS) $(ARGS)

build/training/.ready: VENV = build/training
build/training/.ready: pyproject.toml testing/pyproject.toml
	$(call install,$(TRAINING_EXTRAS),$(TESTING))

# The extras of the demo are among those of dev. pip adds what the virtual environment lacks.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Bowstring needs Python 3.11 or later: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo "This Python can't create virtual environments (on Debian: apt install python3-venv)." >&2; exit 1; }
	@echo "Installing into $(VENV): this takes a minute or two (PySpark is about 450 MB) ..." >&2
	@if [ -t 1 ]; then quiet=; else quiet=-q; fi; \
	    $(BIN)/python -m pip install $$quiet --disable-pip-version-check -e '.[$(1)]' $(2)
	@touch $@
endef

$(READY): pyproject.toml networks/pyproject.toml testing/pyproject.toml
	$(call install,dev,$(DISTRIBUTIONS))
	@touch $(DEMO_READY)

$(DEMO_READY): pyproject.toml
	$(call install,$(DEMO_EXTRAS))

clean: ## Remove build/venv and generated files.
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis dist spark-warehouse metastore_db derby.log
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
