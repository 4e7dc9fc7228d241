#!/bin/sh
# Write the hashed locks of all environments anew, from the .in files beside them.
set -eu
cd "$(dirname "$0")/.."
for wanted in runtimes/manifests/*.in runtimes/simulators/*.in; do
    .venv/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
        --only-binary :all: --universal --output-file "${wanted%.in}.lock" "$wanted" "$@"
done
