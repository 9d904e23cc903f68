# `make` prints this help. The two commands of the README are `make demo` and `make test`.
VENV   := .venv
PY     := $(VENV)/bin/python
PYTHON ?= python3
STAMP  := $(VENV)/.installed
# Of the tests. Each has servers of its own: two take up to 8 GB of memory, and less time.
WORKERS ?= 2

.PHONY: help install demo test soak chaos unit lint docs bench lock clean
help: ## Print this help
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP) ## Install driftless and what it needs into .venv
$(STAMP): requirements.lock pyproject.toml jobs/spark/class_archive.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "driftless needs Python 3.11 or newer; try: make PYTHON=python3.12"; exit 2; }
	@echo "installing into $(VENV) (pyspark is large: a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@echo "preparing Spark, so that it starts sooner (half a minute, once)"
	@$(PY) -m jobs.spark.class_archive "$$($(PY) -m stack spark)" 2>&1 | grep -v -e cds -e WARN || true
	@touch $(STAMP)

demo: $(STAMP) ## Start a real stack, make a shop, follow it live, and compare every document at the end
	@$(PY) -m bench.demo

test: $(STAMP) ## Lint, type-check and run the tests, two at a time, each on a stack of its own
	@$(VENV)/bin/ruff check --quiet . && $(VENV)/bin/ruff format --quiet --check .
	@$(VENV)/bin/mypy
	@$(PY) -m pytest -m "not soak" --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

soak: $(STAMP) ## The long tests: kills under load, the demo, a cluster, the chain without private classes of Spark
	@$(PY) -m pytest -m soak
	@DRIFTLESS_PUBLIC_SPARK_ONLY=1 $(PY) -m pytest tests/chain -m "not speed"

chaos: $(STAMP) ## Faults in an order that a seed gives, and each in its own test; CHAOS="--seed 7 --faults 12": those alone
	@$(PY) -m $(if $(CHAOS),tests.chaos $(CHAOS),tests.chaos.named)

unit: $(STAMP) ## The tests that need no server
	@$(PY) -m pytest -m "not server"

lint: $(STAMP) ## Only ruff and mypy
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/mypy

docs: $(STAMP) ## Write from the code what docs/ has of it: types, configuration, metrics, alerts
	@$(PY) -m cli.pages.types_page
	@$(PY) -m cli.pages.config_page
	@$(PY) -m cli.pages.metrics_page
	@$(PY) -m cli.pages.alerts_page

bench: $(STAMP) ## Measure side by side and print ratios
	@$(PY) -m bench

lock: ## Write requirements.lock again (needs uv)
	uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
		--python-version 3.11 --group dev pyproject.toml -o requirements.lock

clean: ## Remove the environment and caches
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
