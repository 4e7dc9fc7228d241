"""Attack suite: the outcomes at every sandbox level equal the table in docs/sandbox.md."""

import ast
from pathlib import Path

import pytest
from attack_table import COLUMNS, described, documented
from attacks import USERS, AttackRunner

#: Attacks that succeed on every machine if the model is not confined: proof that the attacks work.
EFFECTIVE = (
    "inherited_descriptors",
    "standard_input",
    "memory_bomb",
    "shared_memory_bomb",
    "fork_bomb",
    "fill_disk",
    "hoard_descriptors",
    "read_accounts",
    "read_private_key",
    "read_database",
    "write_database",
    "see_that_the_database_exists",
    "list_home",
    "chmod_database",
    "watch_database",
    "escape_by_dotdot",
    "write_shared_environment",
    "plant_pth",
    "plant_bytecode",
    "backdate_shared_environment",
    "lock_shared_environment",
    "hard_link_own_model",
    "rename_own_model",
    "symlink_to_database",
    "leave_a_pipe",
    "run_from_tmp",
    "tcp_to_the_api",
    "tcp_listen",
    "udp_to_the_machine",
    "agent_by_path",
    "agent_by_abstract_name",
    "datagram_to_a_path",
    "datagram_from_a_pair",
    "executable_memory",
    "memory_files",
    "third_filter",
    "list_processes",
    "see_that_the_runner_exists",
    "runner_command_line",
    "runner_environment",
    "runner_memory",
    "runner_descriptors",
    "signal_runner",
    "signal_own_group",
    "signal_runner_by_descriptor",
    "limit_runner",
    "slow_runner",
    "pin_runner",
    "outlive_parent",
    "fork_a_child",
    "daemonise",
    "execute_another_program",
    "spawn_a_shell",
    "become_dumpable",
)


def test_the_documented_table_describes_each_attack() -> None:
    functions = [
        node
        for path in (Path(__file__).parent / "inside").glob("on_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(mark) == "attack" for mark in node.decorator_list)
    ]
    assert described() == {function.name: ast.get_docstring(function) for function in functions}


@pytest.mark.parametrize(
    ("kind", "level", "attack_runner"), [column for column in COLUMNS if column[2] in USERS], indirect=["attack_runner"]
)
def test_the_documented_table_is_the_outcome_of_the_attacks(
    attack_runner: AttackRunner, kind: str, level: int, best_levels: dict[str, int]
) -> None:
    if level > best_levels[attack_runner.user]:
        refused = attack_runner.sandbox_files.run(
            attack_runner.user, f"confine(Confinement(level={level})); print('confined')"
        )
        assert b"confined" not in refused.stdout and refused.returncode != 0
        return
    outcomes = attack_runner.run(level, kind=kind)
    for name, outcome in outcomes.items():
        print(f"{name:34} {outcome.result:10} {outcome.how}")
    assert {name: outcome.result for name, outcome in outcomes.items()} == documented(kind, attack_runner.user, level)


@pytest.mark.parametrize("attack_runner", ["user"], indirect=True)
def test_the_attacks_succeed_against_an_unconfined_process(attack_runner: AttackRunner) -> None:
    outcomes = attack_runner.run(None, EFFECTIVE)
    assert {name: outcome.how for name, outcome in outcomes.items() if outcome.result != "escaped"} == {}
