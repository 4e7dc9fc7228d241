"""Table of test files that share a server: xdist runs each group in a single process, a test at a time.

An entry `file[parameter]` is for the tests of a file with this first parameter.

A platform has seven processes, and each simulation on it five more: two cores can run two such groups at a time.
"""

from collections.abc import Mapping

from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

GROUPS: Mapping[str, str] = {
    "tests/system/test_hostile_models.py": "platform 1",
    "tests/system/test_simulation_lifecycle.py": "platform 1",
    "tests/system/test_one_file.py": "platform 1",
    "tests/system/test_streaming.py": "platform 1",
    "tests/system/test_datasets.py": "platform 1",
    "tests/system/test_worlds.py": "platform 1",
    "tests/system/test_web_page.py": "platform 1",
    "tests/system/test_submit_page.py": "platform 1",
    "tests/system/test_model_comparisons.py": "platform 1",
    "tests/system/test_gate.py": "platform 1",
    "tests/system/test_dataset_folders.py": "platform 1",
    "tests/system/test_mcp.py": "platform 1",
    "tests/system/test_cli.py": "platform 1",
    "tests/system/test_gang_commands.py": "platform 1",
    "tests/system/test_client.py": "platform 2",
    "tests/system/test_sign_in.py": "platform 2",
    "tests/system/test_chaos.py": "platform 2",
    "tests/system/test_determinism.py": "platform 2",
    "tests/system/test_documented_commands.py": "platform 2",
    "tests/system/test_examples.py": "platform 2",
    "tests/system/test_generated_client.py": "platform 2",
    "tests/system/test_openenv_server.py": "platform 2",
    "tests/system/test_gym.py": "platform 2",
    "tests/system/test_local_play.py": "platform 2",
    "tests/system/test_openapi_examples.py": "platform 2",
    "tests/system/test_schemathesis.py": "platform 2",
    "tests/system/test_s3.py": "platform 2",
    "tests/system/test_account_commands.py": "accounts",
    "tests/system/test_account_platform.py": "accounts",
    "tests/system/test_audit_log.py": "accounts",
    "tests/system/test_quota_races.py": "accounts",
    "tests/system/test_gang_contract.py": "gangs",
    "tests/system/test_pod.py": "pods",
    "tests/system/test_recipes.py": "recipes",
    "tests/system/test_release.py": "recipes",
    "tests/system/test_installed_package.py": "packages",
    "tests/system/test_uploads.py": "uploads",
    "tests/system/test_supervisor.py": "uploads",
    "tests/system/test_stalled_requests.py": "uploads",
    "tests/system/test_long_chaos.py[sqlite]": "chaos on SQLite",
    "tests/system/test_long_chaos.py[postgresql]": "chaos on PostgreSQL",
    "tests/system/test_release_upgrades.py[sqlite]": "release on SQLite",
    "tests/system/test_release_upgrades.py[postgresql]": "release on PostgreSQL",
    "tests/contracts/test_scs_hot_objects.py": "scs",
    "tests/contracts/test_scs_http.py": "scs",
    "tests/contracts/test_scs_fuzzing.py": "scs",
    "tests/contracts/test_mirrored_projects.py": "mirrors",
    "tests/web/test_browser.py": "web",
    "tests/web/test_comparison_page.py": "web",
    "tests/web/test_counted_page.py": "web",
    "tests/web/test_data_pages.py": "web",
    "tests/web/test_documentation_site.py": "web",
    "tests/web/test_model_comparison_pages.py": "web",
    "tests/web/test_pages.py": "web",
    "tests/web/test_simulation_page.py": "web",
    "tests/web/test_replay_player.py": "web",
    "tests/web/test_submit_page.py": "web",
}
#: Files of more than half an hour: processes may share them, each of which runs the tests with a first parameter.
SHARED = {"tests/system/test_gang_kills.py"}


class GroupScheduling(LoadScopeScheduling):
    """Sends all tests of a group to the same process, and other tests to free processes; the largest groups come first.

    xdist's own ``loadgroup`` writes groups into node ids, which pytest no longer permits (xdist 3.8, pytest 9.2).
    """

    def _split_scope(self, nodeid: str) -> str:
        file, parameter = _file_and_parameter(nodeid)
        return GROUPS.get(f"{file}[{parameter}]", GROUPS.get(file, nodeid))


class FileScheduling(LoadFileScheduling):
    """Sends all tests of a file to the same process, as xdist's ``loadfile``, but of those that processes may share."""

    def _split_scope(self, nodeid: str) -> str:
        file, parameter = _file_and_parameter(nodeid)
        return f"{file}[{parameter}]" if file in SHARED else file


#: The scheduling of each mode that is replaced.
SCHEDULING = {"loadgroup": GroupScheduling, "loadfile": FileScheduling}


def _file_and_parameter(nodeid: str) -> tuple[str, str]:
    """Return the file of a test, and its first parameter; without one, an empty text."""
    file, _, test = nodeid.partition("::")
    return file, test.partition("[")[2].rstrip("]").partition("-")[0]
