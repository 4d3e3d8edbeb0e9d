# `make help` lists the targets. Only Python 3.11+ and make are required; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The first engine that works; or choose one: make images IMAGE_BUILD='podman build'
IMAGE_BUILD ?= $(shell for it in docker podman buildah; do $$it version >/dev/null 2>&1 && echo "$$it build" && break; done)
PYTEST := $(BIN)/python -m pytest
GENERATE := PYTHONPATH=operator $(BIN)/python -m generate
DISTRIBUTIONS := operator tinker-atropos tinker-atropos/contract tinker-atropos/tinker-service
BUNDLED := operator/src/rl_operator/documents/bundled

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage test-programs nightly test-all chaos lint stats format verify generate dist release-dry-run e2e bench soak lock images image-sizes clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the virtual environment -------------------------------------------------------------------------------------
# Bytecode has to be written once: with PYTHONDONTWRITEBYTECODE set, every start would compile torch and transformers
# again. Of all that is installed, a run imports a fifth: `make demo` compiles that as it goes, `make setup` everything.
export UV_OVERRIDE := $(CURDIR)/tinker-atropos/overrides.txt
$(VENV)/runtime: $(DISTRIBUTIONS:=/pyproject.toml) tinker-atropos/overrides.txt tinker-atropos/install_torch.py tinker-atropos/installer.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@echo "Setting up $(VENV) (a minute, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python tinker-atropos/install_torch.py
	@$(BIN)/python tinker-atropos/installer.py --editable tinker-atropos/contract --editable 'operator[tools,ui]' --editable 'tinker-atropos[object-store,reasoning-gym]' --editable tinker-atropos/tinker-service
	@touch $@

$(VENV)/dev: $(VENV)/runtime pyproject.toml
	@$(BIN)/python tinker-atropos/installer.py --group dev
	@$(BIN)/python tinker-atropos/installer.py --no-deps tinker-cookbook==0.6.1
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib $(DISTRIBUTIONS:=/src) || true
	@touch $@

setup: $(VENV)/dev ## Set up .venv with everything for development

# --- everyday targets ----------------------------------------------------------------------------------------------
demo: export PYTHONDONTWRITEBYTECODE :=
demo: $(VENV)/runtime ## Train a small model for real, on this machine, and watch it learn
	@$(BIN)/rlctl run examples/sorting.yaml --local

# Which tests start programs, how they are distributed over workers, and what is reported at the end: tests/plugins/.
test: $(VENV)/dev ## Run the fast tests, one real training run, and one run's life on an API server
	@$(PYTEST) --numprocesses auto --maxprocesses 4 --dist loadscope --no-loadscope-reorder -m "(not process or smoke) and not nightly" $(COVERAGE)

coverage: COVERAGE := --cov --cov-report=
coverage: test ## The same, and which lines it runs; that alone takes half as long again

# Four workers also on two cores: these tests mostly wait.
TEST_WORKERS ?= 4
# Else every worker would compile every test once more, its assertions rewritten: ten seconds each.
test coverage test-programs nightly: export PYTHONDONTWRITEBYTECODE :=
TESTS ?= process and not smoke or nightly
test-programs: $(VENV)/dev ## Run what `make test` leaves out: what starts programs, API servers, or needs a cluster
	@$(PYTEST) --numprocesses $(TEST_WORKERS) --dist loadscope --no-loadscope-reorder -m "$(TESTS)"

nightly: ## Run what CI runs a tenth of: all faults, installs, widths and themes; then chaos and soak
	@RL_RERUNS=0 $(MAKE) test-programs TESTS=nightly
	@$(MAKE) chaos
	@$(MAKE) soak

test-all: test test-programs ## Run all tests; what an API server or a cluster is missing for is skipped, and said

chaos: $(VENV)/dev ## Random faults and kills at every call (RL_CHAOS_RUNS, RL_CHAOS_SCHEDULES, RL_CHAOS_SEED)
	@RL_CHAOS_RUNS=$${RL_CHAOS_RUNS:-200} $(PYTEST) tests/integration/training/test_chaos.py
	@RL_CHAOS_SCHEDULES=$${RL_CHAOS_SCHEDULES:-30} $(PYTEST) tests/integration/cluster/test_random_schedules.py
	@RL_KILL_POINTS=all $(PYTEST) tests/integration/cluster/test_kill_every_call.py

lint: $(VENV)/dev ## Format check, ruff, mypy, layers, declared imports, words, workflows
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@PYTHONPATH=operator $(BIN)/lint-imports
	@for name in $(DISTRIBUTIONS); do (cd $$name && $(CURDIR)/$(BIN)/deptry --no-ansi src) || exit 1; done
	@$(BIN)/codespell .
	@$(BIN)/python tests/words.py
	@$(BIN)/python tests/workflows.py

stats: ## Count modules, lines, folders and names
	@$(PYTHON) tests/stats.py

format: $(VENV)/dev ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

generate: $(VENV)/dev ## Write the generated files again: CRDs, catalog, example runtimes, charts' files, reference pages
	@$(GENERATE).crds crds
	@$(BIN)/tinker-atropos environments -o json > $(BUNDLED)/catalog.json
	@for name in default tiny; do cp $(BUNDLED)/$$name.yaml examples/runtime-$$name.yaml; done
	@for folder in $(DISTRIBUTIONS); do cp LICENSE $$folder/; done
	@cp crds/*.yaml charts/rl-operator/files/crds/
	@cp $(BUNDLED)/default.yaml $(BUNDLED)/tiny.yaml charts/rl-runtimes/files/
	@$(GENERATE).kind_pages docs/reference
	@$(GENERATE).status_page > docs/reference/status.md
	@$(GENERATE).contract_tables docs/reference/metrics.md docs/reference/rollout-files.md docs/reference/trainer-settings.md

verify: $(VENV)/dev ## Check that the generated files are up to date
	@$(GENERATE).crds crds --check
	@$(BIN)/tinker-atropos environments -o json | diff $(BUNDLED)/catalog.json - || (echo "stale: run 'make generate'"; exit 1)
	@for name in default tiny; do diff $(BUNDLED)/$$name.yaml examples/runtime-$$name.yaml || exit 1; done
	@for folder in $(DISTRIBUTIONS); do diff LICENSE $$folder/LICENSE || exit 1; done
	@diff -r crds charts/rl-operator/files/crds || (echo "stale: run 'make generate'"; exit 1)
	@for name in default tiny; do diff $(BUNDLED)/$$name.yaml charts/rl-runtimes/files/$$name.yaml || exit 1; done
	@$(GENERATE).kind_pages docs/reference --check
	@$(GENERATE).status_page | diff docs/reference/status.md - || (echo "stale: run 'make generate'"; exit 1)
	@$(GENERATE).contract_tables docs/reference/metrics.md docs/reference/rollout-files.md docs/reference/trainer-settings.md --check

dist: $(VENV)/dev ## Build the distributions into dist/, check them, and use their wheels in a fresh virtual environment
	@rm -rf dist
	@for name in $(DISTRIBUTIONS); do $(BIN)/python -m build --quiet --no-isolation --outdir dist $$name || exit 1; done
	@$(BIN)/twine check --strict dist/*
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" && \
	  env -u UV_OVERRIDE "$$folder/bin/python" tinker-atropos/installer.py dist/rl_*.whl dist/tinker_atropos-*.whl && \
	  "$$folder/bin/python" tinker-atropos/installer.py --no-deps dist/tinker_service-*.whl && \
	  "$$folder/bin/tinker-service" --version && "$$folder/bin/tinker-atropos" environments && "$$folder/bin/rlctl" validate examples/sorting.yaml --local

# In .github/workflows/release.yaml with TAG=v1.2.3: then it is not a dry run, and what is missing fails.
release-dry-run: $(VENV)/dev ## Everything of a release that needs no credentials: versions, changelog, tag, dist/, charts, notes
	@$(BIN)/python .ci/release.py check $(TAG)
	@$(MAKE) --no-print-directory dist
	@$(BIN)/python .ci/release.py collect $(TAG)

e2e: $(VENV)/dev ## Run the tests on a real cluster (KUBECONFIG, images loaded)
	@$(PYTEST) tests/e2e

bench: $(VENV)/dev ## Measure, and print a table
	@for f in tests/benchmarks/*_bench.py; do PYTHONPATH=. $(BIN)/python $$f; done

soak: $(VENV)/dev ## Does the Tinker service's memory stay flat while clients come and die? (MINUTES=30)
	@PYTHONPATH=. $(BIN)/python tests/benchmarks/service_soak.py $(or $(MINUTES),30)

# --- images --------------------------------------------------------------------------------------------------------
LOCK = $(BIN)/uv pip compile --quiet --no-header --no-annotate --generate-hashes --only-binary :all: \
  --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-emit-package rl-contract
# One lock serves amd64 and arm64: it has the hashes of all files of a version.
lock: $(VENV)/dev ## Pin what the images install, with hashes; LOCK_OPTIONS=--upgrade for newer versions
	@$(LOCK) $(LOCK_OPTIONS) images/build.in -o images/build.txt
	@$(LOCK) $(LOCK_OPTIONS) operator/pyproject.toml --extra tools --extra ui -o images/operator/requirements.txt
	@$(LOCK) $(LOCK_OPTIONS) --no-binary cellpylib --no-binary zss \
	  tinker-atropos/pyproject.toml --extra object-store --extra reasoning-gym -o images/tinker-atropos/requirements.txt
	@$(LOCK) $(LOCK_OPTIONS) --no-binary chess \
	  tinker-atropos/pyproject.toml --extra verifiers -o images/environment-verifiers/requirements.txt
	@$(LOCK) --no-deps images/operator/sources.in -c images/tinker-atropos/requirements.txt -o images/operator/sources.txt
	@$(LOCK) tinker-atropos/tinker-service/pyproject.toml images/tinker-service/requirements.in \
	  --override images/tinker-service/overrides.in -c images/tinker-atropos/requirements.txt \
	  -o images/tinker-service/requirements.txt

SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
CREATED = $(shell date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ 2>/dev/null || date -u -r $(SOURCE_DATE_EPOCH) +%FT%TZ)
IMAGE_LABELS = --build-arg REVISION=$(shell git rev-parse HEAD) --build-arg CREATED=$(CREATED)

images: ## Build the images with docker, podman or buildah (IMAGE_BUILD, IMAGE_LABELS, TASKSETS)
	@test -n "$(IMAGE_BUILD)" || (echo "neither docker, podman nor buildah works here; start one, or set IMAGE_BUILD"; exit 1)
	$(IMAGE_BUILD) $(IMAGE_LABELS) -f images/operator/Dockerfile -t rl-operator:dev .
	$(IMAGE_BUILD) $(IMAGE_LABELS) -f images/tinker-atropos/Dockerfile -t tinker-atropos:dev .
	$(IMAGE_BUILD) $(IMAGE_LABELS) -f images/tinker-service/Dockerfile -t tinker-service:dev .
	$(IMAGE_BUILD) $(IMAGE_LABELS) $(if $(TASKSETS),--build-arg TASKSETS='$(TASKSETS)') \
	  -f images/environment-verifiers/Dockerfile -t environment-verifiers:dev .

image-sizes: ## Print how large the images are in a registry
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cd "$$folder" && for name in rl-operator tinker-atropos tinker-service environment-verifiers; do \
	  case "$(IMAGE_BUILD)" in \
	    buildah*) buildah push --quiet $$name:dev docker-archive:$$name.tar ;; \
	    *) $(firstword $(IMAGE_BUILD)) save --output $$name.tar $$name:dev ;; \
	  esac; \
	done && $(PYTHON) $(CURDIR)/images/sizes.py rl-operator.tar=90 tinker-atropos.tar=350 tinker-service.tar environment-verifiers.tar=350

clean: ## Remove .venv and caches
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
