# The daily commands. `make demo` and `make test` need Python 3.11+ and nothing else.
PYTHON ?= python3
ARGS ?=
# Many tests wait for a process or a clock: one more at a time than there are processors.
JOBS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
PIP = .venv/bin/pip --quiet --disable-pip-version-check
PACKAGES = gateway router render kvindex simworker bench deploy tests

.PHONY: demo test lint types imports coverage format documents deploy-check screenshots \
	bench clean

demo: .venv/installed
	@.venv/bin/kv-gateway demo $(ARGS)

# Where the environment forbids it (as images of Python do), compiled code is kept here
# all the same: many tests start processes, and each would compile the whole gateway.
test: .venv/installed-dev
	@PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest --numprocesses $(JOBS) --dist loadfile \
		--no-loadscope-reorder $(ARGS)

lint: .venv/installed-dev
	@.venv/bin/ruff check $(PACKAGES)
	@.venv/bin/ruff format --check $(PACKAGES)

types: .venv/installed-dev
	@.venv/bin/mypy

imports: .venv/installed-dev
	@.venv/bin/lint-imports

coverage: .venv/installed-dev
	@.venv/bin/python -m pytest --numprocesses auto --dist loadfile --cov=kvindex \
		--cov=router --cov-branch --cov-report=term-missing --cov-fail-under=95 \
		tests/kvindex tests/router

format: .venv/installed-dev
	@.venv/bin/ruff check --fix $(PACKAGES)
	@.venv/bin/ruff format $(PACKAGES)

documents: .venv/installed-dev
	@.venv/bin/python -m deploy
	@.venv/bin/python -m tests.documents

deploy-check: .venv/installed-dev
	@.venv/bin/python -m pytest tests/deploy/test_chart.py tests/deploy/test_chart_values.py \
		tests/deploy/test_manifests.py tests/deploy/test_compose.py tests/deploy/test_image.py \
		tests/deploy/test_deploy_page.py $(ARGS)

screenshots: .venv/installed-dev
	@KV_GATEWAY_SCREENSHOTS=docs/images .venv/bin/python -m pytest --timeout=300 \
		tests/gateway/admin/page/test_browser.py -k the_page

bench: .venv/installed-dev
	@.venv/bin/python -m bench $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "kv-gateway needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing the pinned dependencies into .venv"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

.venv/installed-dev: .venv/installed
	@echo "installing the development tools into .venv"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@
