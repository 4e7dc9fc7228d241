# Windtunnel. `make help` says what there is; anything longer than a line lives in scripts/.
.DEFAULT_GOAL := help
UV := scripts/uv
PY := .venv/bin/python
# Tests start thousands of processes: bytecode is kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait more than they compute. A group of tests that shares a server stays on one worker.
PARALLEL := -n 4 --dist loadgroup
VERIFY_TOOLS := swift tus-js-client slurm envoy envoy-check monitor-check kueue trainer mpi-operator kwok kube-router mpich openmpi mpi-base

help:     ## Show this.
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup:    ## Make .venv with everything in it (brings uv along where it is missing).
	@$(UV) sync --quiet

demo: setup  ## Set up, start the platform, send the promise, show what came of it.
	@$(PY) -m scripts.demo

run: setup  ## Serve on port 5000 until Ctrl-C: all roles, with embedded parts.
	@$(PY) -m server run

run-s3: setup  ## The same on a real S3 server (MinIO, built on first use).
	@$(PY) -m scripts.run_s3

scs: setup  ## Serve the cache alone on port 5080, as a laptop's configuration says.
	@$(PY) -m datasets.scs --config datasets/scs/laptop.json

unit: setup  ## Tests without I/O: seconds.
	@$(PY) -m pytest tests/unit

test: setup  ## Tests that need no cluster: embedded parts, PostgreSQL, MinIO, the sandbox. Under ten minutes on a fresh machine.
	@scripts/tools/minio >/dev/null & $(PY) -m scripts.tests test tests --ignore tests/cluster --ignore tests/chart $(PARALLEL) -m "not verify"

cluster: cluster-tools  ## Tests on a real Kubernetes, built from its sources on first use; KUBECONFIG names another.
	@scripts/cluster-tests

cluster-tools: setup  ## Build the Kubernetes that `make cluster` runs on, and the images that it runs.
	@scripts/tools/kubernetes >/dev/null & kubernetes=$$!; \
	for tool in node probe minio; do scripts/tools/$$tool >/dev/null || exit 1; done; \
	$(PY) -m tests.cached >/dev/null && wait $$kubernetes

verify: verify-tools  ## Everything that `make test` and `make cluster` leave out; before a release.
	@scripts/verify-tests

verify-tools: cluster-tools  ## Build what `make verify` needs besides: Slurm, Swift, Envoy, Kueue, Trainer, MPI and others.
	@for tool in $(VERIFY_TOOLS); do scripts/tools/$$tool >/dev/null || exit 1; done

images: setup  ## Build every image, without Docker, into var/images.
	@$(PY) -m scripts.images

cluster-up: setup  ## Bring up such a cluster and keep it; `make cluster-down` ends it.
	@scripts/cluster up --jobset

cluster-down: setup  ## End it, and leave nothing.
	@scripts/cluster down

test-history: setup  ## Print the recorded test runs, and the tests that are unstable.
	@$(PY) -m scripts.tests --history

lint: setup  ## ruff, mypy --strict, import-linter; openapi.yaml and docs/states.md up to date; no retired words; every test can be collected.
	@scripts/lint

openapi: setup  ## Write openapi.yaml from the code.
	@$(PY) -m scripts.openapi

bench-cluster: setup  ## Measure on a real Kubernetes, fake nodes by the thousand.
	@$(PY) -m benchmarks cluster

bench: setup  ## Measure against peers, side by side; writes benchmarks/RESULTS.md.
	@$(PY) -m benchmarks

clean:    ## Remove what running leaves behind; environments and results too.
	@rm -rf var .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup demo run run-s3 scs unit test cluster cluster-tools verify verify-tools test-history images cluster-up cluster-down lint openapi bench-cluster bench clean
