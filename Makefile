# Two commands are all a newcomer needs: `make run` and `make test`.

PYTHON ?= $(shell for v in 3.13 3.12 3.11; do command -v python$$v >/dev/null 2>&1 && python$$v -c '' 2>/dev/null && { echo python$$v; exit; }; done; echo python3)
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := clustermgr nodes backendops scheduling worker tests
# Tools that only look at the code need settings that parse, not services that run.
CHECK_ENV = DJANGO_SECRET_KEY=a-key-for-checks-only-0123456789-abcdefghijklmnopqrstuvwxyz \
	DJANGO_ALLOWED_HOSTS=checks.invalid DATABASE_URL=postgresql://checks@127.0.0.1/checks \
	CELERY_BROKER_URL=memory:// CLUSTER_REGISTRATION_TOKEN=checks-only

.DEFAULT_GOAL := help
.PHONY: help setup run test check fmt bench migrations protos clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/runtime: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "clustermgr needs Python 3.11 or newer; set PYTHON=...")'
	@echo "Installing what clustermgr runs on into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/tools: requirements-dev.txt $(VENV)/runtime
	@echo "Installing what clustermgr is tested with into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

setup: $(VENV)/tools ## Install everything without running anything

run: $(VENV)/runtime ## Run everything; Ctrl-C stops it
	@exec $(BIN)/python manage.py up

test: $(VENV)/tools ## Run every test
	@$(BIN)/python -m tests.browser.chromium
	@$(BIN)/python -m compileall -q $(SOURCES)  # once, not in each of hundreds of processes
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/tools ## Format, lint, types, import contracts, Django's own checks
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(CHECK_ENV) $(BIN)/mypy
	@$(CHECK_ENV) $(BIN)/lint-imports
	@$(CHECK_ENV) $(BIN)/python manage.py check --deploy --fail-level WARNING
	@$(CHECK_ENV) $(BIN)/python -W ignore manage.py makemigrations --check --dry-run

fmt: $(VENV)/tools ## Format the code
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: $(VENV)/tools ## Run the benchmarks; each prints its ratio to a baseline
	@$(BIN)/python -m bench

migrations: $(VENV)/tools ## Write migrations for changed models
	@$(CHECK_ENV) $(BIN)/python manage.py makemigrations

PROTOS_TO ?= .
protos: $(VENV)/tools ## Write the Python of worker/rpc/backend.proto
	@$(BIN)/python -m grpc_tools.protoc -I. --python_out=$(PROTOS_TO) --pyi_out=$(PROTOS_TO) \
		--grpc_python_out=$(PROTOS_TO) worker/rpc/backend.proto

clean: ## Remove the virtual environment and caches (not your data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
