"""The table of tests that only `make verify` runs, each with the reason; docs/testing.md says what each tier protects.

Under each file: a function, `[parameter]`, `function[parameter]`, or `*` for all of it.
"""

import re
from collections.abc import Iterator, Mapping

VERIFY: Mapping[str, Mapping[str, str]] = {
    "tests/system/test_images.py": {"*": "unpacks every image, 3 GB of packages"},
    "tests/system/test_bills.py": {"*": "builds images for their bills of materials"},
    "tests/system/test_envoy.py": {"*": "needs Envoy and helm"},
    "tests/system/test_mpi.py": {"*": "needs MPICH"},
    "tests/system/test_slurm.py": {"*": "needs Slurm"},
    "tests/contracts/test_slurm.py": {"*": "needs Slurm"},
    "tests/contracts/test_executor.py": {"[slurm]": "needs Slurm"},
    "tests/contracts/test_object_store.py": {"[swift]": "a second S3 server; MinIO is in every run"},
    "tests/worlds/test_tensorflow_models.py": {"*": "needs TensorFlow, 600 MB; LiteRT and ONNX are in every run"},
    "tests/worlds/test_car_street_player.py": {"[tensorflow-keras]": "needs TensorFlow"},
    "tests/system/test_uploads.py": {
        "test_tus_js_client_survives_kill_9": "needs Node.js; tuspy is in every run",
        "test_kill_9_at_any_moment_loses_and_doubles_nothing[sqlite]": "several API processes run on PostgreSQL",
    },
    "tests/system/test_schemathesis.py": {"[15]": "cases for each operation; two are in every run"},
    "tests/system/test_chaos.py": {
        "[2]": "another order of deaths",
        "[3]": "another order of deaths",
        "[car_street]": "the same with another world",
        "test_everything_dies_at_once_and_the_next_start_picks_it_up": "longer chaos",
        "test_roles_that_die_at_the_same_instant_are_all_started_again": "longer chaos",
        "test_killing_a_player_again_and_again_never_makes_a_scenario_crashed": "longer chaos",
        "test_who_dies_while_summing_up_is_succeeded_within_seconds": "longer chaos",
    },
    "tests/system/test_determinism.py": {
        "[idm]": "the same with another model; onnx is in every run",
        "[tflite]": "the same with another model; onnx is in every run",
    },
    "tests/chart/test_objects.py": {
        "test_the_prometheus_operator_s_own_types_know_every_field_of_monitors": "needs a check built from its sources",
        "test_envoy_s_own_schema_knows_its_bootstrap": "needs a check built from Envoy's API",
        "test_a_wrong_bootstrap_would_be_found": "needs a check built from Envoy's API",
    },
}

_ENTRY = re.compile(r"(?P<function>\w*)(\[(?P<parameter>.+)\])?")


def is_verify(node: str, table: Mapping[str, Mapping[str, str]] = VERIFY) -> bool:
    """Return whether a pytest node id (`file::function[parameters]`) is in the table."""
    file, _, rest = node.partition("::")
    function, _, parameters = rest.removesuffix("]").partition("[")
    return any(
        entry == "*" or (named in ("", function) and (not wanted or f"-{wanted}-" in f"-{parameters}-"))
        for entry in table.get(file, ())
        for named, wanted in [_parts(entry)]
    )


def unknown_entries(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the entries whose file or function is not in ``sources``, the text of each test file by its path."""
    for file, entries in VERIFY.items():
        for entry in entries:
            function, _ = _parts(entry)
            if f"def {function or 'test_'}" not in sources.get(file, ""):
                yield f"{file}: {entry}"


def _parts(entry: str) -> tuple[str, str]:
    found = _ENTRY.match(entry)
    assert found is not None
    return found["function"], found["parameter"] or ""
