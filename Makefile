# Windtunnel. `make help` says what there is; anything longer than a line lives in scripts/.
.DEFAULT_GOAL := help
UV := scripts/uv
PY := .venv/bin/python

help:     ## Show this.
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup:    ## Make .venv with everything in it (brings uv along where it is missing).
	@$(UV) sync --quiet

demo: setup  ## Set up, start the platform, send the promise, show what came of it.
	@$(PY) -m scripts.demo

run: setup  ## Serve on port 5000 until Ctrl-C: all roles, with embedded parts.
	@$(PY) -m workers run

run-s3: setup  ## The same on a real S3 server (MinIO, built on first use).
	@$(PY) -m scripts.run_s3

scs: setup  ## Serve the cache alone on port 5080, as a laptop's configuration says.
	@$(PY) -m datasets.scs --config datasets/scs/laptop.json

tools: setup  ## Build the servers and clients that tests meet (MinIO, Slurm, helm, Envoy, ...), where they are not there yet.
	@for tool in minio swift tus-js-client slurm helm kubeconform envoy-check monitor-check envoy; do scripts/tools/$$tool >/dev/null || exit 1; done

test: tools  ## Every test that needs no cluster: unit, contracts, API, sandbox, worlds, system.
	@$(PY) -m scripts.tests tests --ignore tests/cluster -n 3 --dist loadfile  # most of them wait more than they work

images: setup  ## Build every image, without Docker, into var/images.
	@$(PY) -m scripts.images

cluster-tools: setup  ## Build the Kubernetes that tests run on, and the images they run there.
	@for tool in node probe minio kubernetes coredns jobset trainer kueue mpi-operator kwok kube-router helm mpich openmpi mpi-base; \
		do scripts/tools/$$tool >/dev/null || exit 1; done
	@$(PY) -m scripts.images --only server --only noop --only python --only sumo --only litert >/dev/null

cluster: cluster-tools  ## Tests on a real Kubernetes, built from its sources on first use; KUBECONFIG names another.
	@scripts/cluster-tests

cluster-up: setup  ## Bring up such a cluster and keep it; `make cluster-down` ends it.
	@scripts/cluster up --jobset

cluster-down: setup  ## End it, and leave nothing.
	@scripts/cluster down

unit: setup  ## The tests without I/O: seconds.
	@$(PY) -m pytest tests/unit

lint: setup  ## ruff, mypy --strict, import-linter, openapi.yaml and docs/states.md up to date.
	@scripts/lint

openapi: setup  ## Write openapi.yaml from the code.
	@$(PY) -m scripts.openapi

bench-cluster: setup  ## Measure on a real Kubernetes, fake nodes by the thousand.
	@$(PY) -m benchmarks cluster

bench: setup  ## Measure against peers, side by side; writes benchmarks/RESULTS.md.
	@$(PY) -m benchmarks

clean:    ## Remove what running leaves behind; environments and results too.
	@rm -rf var .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup demo run run-s3 scs tools test images cluster-tools cluster cluster-up cluster-down unit lint openapi bench-cluster bench clean
