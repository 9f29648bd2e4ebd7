# `make demo` and `make test` need python3 (3.11 to 3.13) with venv, and make; they get the rest.
PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
CPUS ?= 1,2,4,8
RUNS ?= 3
STUDY ?= studies/threads-2026/run
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help install same-version demo study test coverage lint format bench lock clean

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## the environment, with pinned versions

# Not compiled: Python does that with what it imports, a fraction, and it takes as long as the rest.
$(VENV)/.installed: pyproject.toml requirements.lock | same-version
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "make: $(PYTHON) is missing, older than 3.11, or newer than 3.13, for which requirements.lock has no TensorFlow; install it (apt install python3), or name one: make install PYTHON=python3.12" >&2; exit 3; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "make: $(PYTHON) has no venv module; install it (apt install python3-venv)" >&2; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

VERSION := -c 'import sys; print(sys.version_info[:2])'

same-version:
ifneq ($(origin PYTHON),file)
	@test ! -e $(BIN)/python || test "$$($(BIN)/python $(VERSION))" = "$$($(PYTHON) $(VERSION))" \
	  || { echo "make: $(PYTHON) is missing, or $(VENV) has another version of Python; install it (apt install python3), or name another folder: make install PYTHON=$(PYTHON) VENV=.venv-$(notdir $(PYTHON))" >&2; exit 3; }
endif

demo: install ## the whole study on this machine: provision, sweep, analyze
	@mkdir -p $(DEMO)
	$(BIN)/vbstudy -C $(DEMO) provision --cpus $(CPUS)
	$(BIN)/vbstudy -C $(DEMO) sweep --runs $(RUNS)
	$(BIN)/vbstudy -C $(DEMO) analyze

study: install ## the study of docs/threads-2026.md again, in STUDY=folder; hours, and it resumes
	studies/threads-2026/repeat.sh $(BIN) $(STUDY)

test: install ## the unit tests; they need nothing but this machine
	$(BIN)/python -m pytest -n 4 --dist loadfile

coverage: install ## these and the small studies, and how many lines of each room they ran
	$(BIN)/python -m pytest -n 4 --dist loadfile --cov --cov-report=
	$(BIN)/python -m pytest -n 4 --dist loadfile --cov --cov-report= --cov-append --needs studies tests
	$(BIN)/python -m tests.covered

lint: install ## ruff, mypy (strict), import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## put sources into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## ratios against peers, in one run
	$(BIN)/python -m benchmarks

lock: install ## write requirements.lock from what is installed: the oldest Python, torch for CPUs
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "requirements.lock is made with Python 3.11")'
	! $(BIN)/python -m pip freeze | grep -i ^nvidia-
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip --exclude vbstudy | sed 's/+cpu$$//' > requirements.lock

clean: ## remove the environment, caches and the demo study
	-if test -x $(BIN)/vbstudy && test -e $(DEMO)/guests.json; then $(BIN)/vbstudy -C $(DEMO) destroy; fi
	rm -rf $(VENV) .venv-* $(DEMO) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.*
