"""The table of test files that share a server, so that xdist runs each group in one process and in turn.

A platform costs seven processes and each simulation on it five more: two groups of them are what two cores carry.
"""

from collections.abc import Mapping

GROUPS: Mapping[str, str] = {
    "tests/system/test_hostile_models.py": "platform 1",
    "tests/system/test_life.py": "platform 1",
    "tests/system/test_streaming.py": "platform 1",
    "tests/system/test_datasets.py": "platform 1",
    "tests/system/test_chaos.py": "platform 2",
    "tests/system/test_determinism.py": "platform 2",
    "tests/system/test_generated_client.py": "platform 2",
    "tests/system/test_schemathesis.py": "platform 2",
    "tests/system/test_s3.py": "platform 2",
    "tests/system/test_pod.py": "pods",
    "tests/system/test_uploads.py": "uploads",
    "tests/system/test_supervisor.py": "uploads",
    "tests/contracts/test_scs_recent.py": "scs",
    "tests/contracts/test_scs_http.py": "scs",
    "tests/contracts/test_scs_rubbish.py": "scs",
}
