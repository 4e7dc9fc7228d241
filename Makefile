# Windtunnel. `make help` lists the targets; commands longer than a line are in scripts/.
.DEFAULT_GOAL := help
UV := scripts/uv
PY := .venv/bin/python
# Tests start thousands of processes: bytecode is always written, so that each module is compiled once.
unexport PYTHONDONTWRITEBYTECODE
# Most tests wait more than they compute. A group of tests that shares a server stays on one worker.
PARALLEL := -n 4 --dist loadgroup
VERIFY_TOOLS := swift tus-js-client openapi-generator oapi-codegen typescript java-libraries slurm envoy envoy-check monitor-check promtool kueue trainer mpi-operator kwok kube-router mpich openmpi mpi-base debian-torch wasm componentize-py shells

help:     ## List the targets.
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup:    ## Create .venv with all dependencies (installs uv if it is missing).
	@$(UV) sync --quiet

demo:     ## Set up, start the platform, send the 1.0 request, show its results; on a terminal, serve them until Ctrl-C.
	@echo "Starting: packages first (once, about a minute), then the platform."
	@$(UV) sync --quiet && $(PY) -m server.windtunnel_server demo

run: setup  ## Serve on port 5000 until Ctrl-C: all roles, with embedded database and Valkey.
	@$(PY) -m server run

run-s3: setup  ## The same on a real S3 server (MinIO, built on first use).
	@$(PY) -m scripts.run_s3

scs: setup  ## Serve the cache service alone on port 5080, with a configuration for laptops.
	@$(PY) -m datasets.scs --config datasets/scs/laptop.json

openenv: setup  ## Serve the scenarios of DATASET to OpenEnv's clients on PORT (8000): `make openenv DATASET=car_street`.
	@$(PY) -m local_play.openenv_server --dataset $(or $(DATASET),car_street) --port $(or $(PORT),8000)

unit: setup  ## Tests without I/O: seconds.
	@$(PY) -m pytest tests/unit

test: setup  ## Tests that need no cluster: embedded parts, PostgreSQL, MinIO, the sandbox. Ten to twenty minutes on two cores.
	@scripts/tools/minio >/dev/null & $(PY) -m scripts.tests test tests --ignore tests/cluster --ignore tests/chart $(PARALLEL) -m "not verify"

cluster: cluster-tools  ## Tests on a real Kubernetes, built from source on first use, or on the cluster of KUBECONFIG.
	@scripts/cluster-tests

cluster-tools: setup  ## Build the Kubernetes and the images for `make cluster`.
	@scripts/tools/kubernetes >/dev/null & kubernetes=$$!; \
	for tool in node probe minio; do scripts/tools/$$tool >/dev/null || exit 1; done; \
	$(PY) -m tests.cached >/dev/null && wait $$kubernetes

verify: verify-tools  ## All tests that `make test` and `make cluster` omit; before a release.
	@scripts/verify-tests

verify-tools: cluster-tools  ## Build what `make verify` needs in addition: Slurm, Swift, Envoy, Kueue, Trainer, MPI and others.
	@for tool in $(VERIFY_TOOLS); do scripts/tools/$$tool >/dev/null || exit 1; done

images: setup  ## Build every image, without Docker, into var/images.
	@$(PY) -m scripts.images

dist: setup  ## Build the wheels of server and client, which need no checkout, into dist/.
	@$(PY) -m scripts.dist

cluster-up: setup  ## Start such a cluster and keep it until `make cluster-down`.
	@scripts/cluster up --jobset

cluster-down: setup  ## Stop that cluster and remove everything that it created.
	@scripts/cluster down

test-history: setup  ## Print the recorded test runs and the unstable tests.
	@$(PY) -m scripts.tests --history

lint: setup  ## ruff, mypy --strict, import-linter; openapi.yaml, generated pages and cli/windtunnel/_sync up to date; no retired words, no rise of a ratchet (scripts/ratchets.py); every test can be collected.
	@scripts/lint

openapi: setup  ## Generate openapi.yaml from the code.
	@$(PY) -m scripts.openapi

sync-client: setup  ## Generate the synchronous client, and in it the names of built-in datasets and the fields of a submission.
	@$(PY) -m scripts.sync_client

docs: setup  ## Build the documentation as a site, which needs no network, into var/site.
	@$(PY) -m scripts.site

reference: setup  ## Generate from the code: the pages of settings, states, metrics, errors and operations, the chart's schema and dashboard.
	@$(PY) -m scripts.reference

bench-cluster: setup  ## Benchmarks on a real Kubernetes, with thousands of simulated nodes.
	@$(PY) -m benchmarks cluster

bench: setup  ## Benchmarks beside other systems; writes benchmarks/RESULTS.md.
	@$(PY) -m benchmarks

bench-check: setup  ## Benchmarks with peers again; names ratios that are a tenth worse than the recorded ones of such a machine.
	@$(PY) -m benchmarks.check

clean:    ## Remove all data of runs: environments and results too.
	@rm -rf var .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help setup demo run run-s3 scs openenv unit test cluster cluster-tools verify verify-tools test-history images dist cluster-up cluster-down lint openapi sync-client docs reference bench-cluster bench bench-check clean
