# One line each: what a person types. `make demo` needs Python >= 3.11, pip and nothing else.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
BUILDER ?= docker
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
DEMO_MODEL := volumes/models/smollm2-135m-instruct
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
FAST := not gpu and not demo and not e2e and not kill and not browser and not apiserver and not cluster and not long

.PHONY: setup demo demo-model test test-demo test-e2e test-kill test-browser cluster-tools test-apiserver test-cluster test-long check bench crd chart image clean
setup: $(VENV)/.installed ## create the virtual environment with every pinned dependency
demo: demo-model ## extract a real model's hidden states from examples/data
	$(BIN)/drillcore run examples/jobs/quickstart.yaml
	$(BIN)/drillcore check $(DEMO_MODEL)
demo-model: $(VENV)/.installed
	$(BIN)/python examples/make_demo_model.py $(DEMO_MODEL)
	@test -e volumes/datasets || ln -s ../examples/data volumes/datasets
test: $(VENV)/.installed ## the fast tests: no GPU, no cluster, no model hub
	$(PYTEST) -n auto -m "$(FAST)"
test-demo: demo-model ## the real model against transformers
	$(BIN)/python -m pytest -m "demo and not long"
test-e2e: $(VENV)/.installed ## whole jobs in two processes
	$(PYTEST) -n auto -m "e2e and not kill and not long"
test-kill: $(VENV)/.installed ## two processes, one of them killed
	$(PYTEST) -n auto -m "kill and not long"
test-browser: $(VENV)/.installed ## the status page in the system's Chromium (Debian: apt-get install chromium)
	$(PYTEST) -m "browser and not long"
cluster-tools: $(VENV)/.installed ## build the test cluster's programs from Go modules, once
	PYTHONPATH=tests/cluster $(BIN)/python -m drillcore_testcluster.binaries
test-apiserver: cluster-tools ## a real kube-apiserver, controller-manager and scheduler, one of each for each of four workers
	PYTHONPATH=tests/cluster $(PYTEST) -n 4 --dist loadgroup -p drillcore_testcluster.suite_rights -m "apiserver and not long" tests/cluster tests/chart
test-cluster: demo-model ## one real node with the images of this source (root; tests/cluster/README.md has the packages)
	PYTHONPATH=tests/cluster $(BIN)/python -m drillcore_testcluster.binaries --node
	PYTHONPATH=tests/cluster $(BIN)/python -m drillcore_testcluster.node.images
	$(PYTEST) -m "cluster and not long" -s tests/cluster/node
test-long: demo-model ## minutes to hours
	$(PYTEST) -m "long and not gpu and not cluster" --timeout 7200
test-gpu: ## on a machine with a CUDA device
	$(PYTEST) -m "gpu"
check: $(VENV)/.installed ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
bench: cluster-tools ## the operator with 1,000 jobs, for a quarter of an hour, on a machine that does nothing else
	PYTHONPATH=tests/cluster $(BIN)/python benchmarks/operator_load.py --out benchmarks/results/operator_load.json
image: ## the three images; BUILDER=buildah works too
	for target in operator server sidecar; do $(BUILDER) build --target $$target --tag drillcore/$$target:$(VERSION) . || exit 1; done
crd: $(VENV)/.installed ## write the chart's CRD and docs/field-reference.md from the models
	$(BIN)/python -m drillcore_spec.crd --write

$(VENV)/.installed: pyproject.toml constraints.txt
	@if uv --version >/dev/null 2>&1; then uv venv -q --allow-existing --python $(PYTHON) $(VENV); else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q uv || true; fi
	@if uv --version >/dev/null 2>&1; then uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	elif [ -x $(BIN)/uv ]; then $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[dev]'; \
	else $(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'; fi
	@touch $@
