#!/bin/sh
# Rewrite the hashed locks of all environments from their .in files.
set -eu
cd "$(dirname "$0")/.."
for requirements in runtimes/manifests/*.in runtimes/simulators/*.in; do
    .venv/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
        --only-binary :all: --universal --output-file "${requirements%.in}.lock" "$requirements" "$@"
done
