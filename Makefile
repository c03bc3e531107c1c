# Needs only python3 (3.11 or later), make and git. ARGS="..." passes options on; PYTHON=python3.12 picks an interpreter.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
# Two processes more than there are cores, 4 at most, each with a file at a time, those that take long first. ARGS="-n 0"
# runs one test after the other, as a debugger needs it.
PARALLEL := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: help demo test check soak lint style bench format docs dist sbom lowest clean

help:
	@echo "make demo    watch true frequencies come back out of noisy answers (ARGS=\"--devices 50000\")"
	@echo "make test    everything that must pass: lint, types, all tests"
	@echo "make check   the quick part of it: format, lint, types, fast tests; and how large the house is"
	@echo "make soak    tests at length: 200 kills, thousands of lives, ten years again and again, every grid whole, uploads fuzzed"
	@echo "make bench   speed and error, each beside something"
	@echo "make format  put the code into its one format"
	@echo "make docs    the pages as a site in site/, every link checked"
	@echo "make dist    wheels, sdists and the npm package in dist/, held against what an index asks"
	@echo "make sbom    beside them, what installing each brings, with licences"
	@echo "make lowest  the fast tests with the lowest versions of all dependencies (ARGS=\"-k wire\")"
	@echo "make clean   remove .venv and caches"

demo: .venv/aggregator.stamp
	@$(BIN)/dither demo $(ARGS)

# mypy, which has one core busy for most of a minute where it has no cache, is beside the tests, which wait now and then.
test: .venv/dev.stamp style
	@sh .ci/system-packages
	@$(BIN)/mypy & types=$$!; $(BIN)/pytest $(PARALLEL) $(ARGS); tests=$$?; \
	wait $$types || { echo "mypy found what it says above"; exit 1; }; exit $$tests

check: .venv/dev.stamp lint
	@$(BIN)/pytest -q $(PARALLEL) -m "not slow" $(ARGS)
	@$(BIN)/python -m tests.house

soak: .venv/dev.stamp
	@SOAK_TESTS=1 $(BIN)/pytest -o timeout=7200 tests/faults tests/fuzz $(ARGS)
	@SOAK_TESTS=1 $(BIN)/pytest $(PARALLEL) -o timeout=7200 tests/shared tests/client tests/aggregator tests/web tests/test_*page*.py tests/test_script.py tests/test_toys.py tests/test_end_to_end.py tests/test_readme.py tests/test_tutorial.py tests/test_release.py tests/deploy/test_base_path.py tests/deploy/test_containers.py $(ARGS)
	@$(BIN)/python -m tests.fuzz.atheris_upload -max_total_time=600

lint: style
	@$(BIN)/mypy

style: .venv/dev.stamp
	@$(BIN)/ruff format --check --quiet || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet

bench: .venv/dev.stamp
	@$(BIN)/python -m tests.benchmarks $(ARGS)

format: .venv/dev.stamp
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

dist: .venv/dev.stamp
	@sh .ci/dist

docs: .venv/dev.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file deploy/site/mkdocs.yml
	@echo "site/index.html leads to the newest version: python3 -m http.server -d site shows it"

sbom: dist
	@sh .ci/sbom

lowest: .venv/dev.stamp
	@sh .ci/lowest $(PARALLEL) $(ARGS)

clean:
	rm -rf .venv client/web/node_modules client/web/dist tests/web/vite/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis dist site

.venv/%.stamp: pyproject.toml aggregator/pyproject.toml client/web/package-lock.json tests/web/vite/package-lock.json .ci/venv
	@PYTHON="$(PYTHON)" sh .ci/venv $*
