"""Sandbox levels: detection on a machine, and messages that name missing kernel features."""

import pytest
from attacks import USERS, SandboxFiles

from runtimes.harness.sandbox import Level, Unconfined
from runtimes.harness.sandbox.levels import Trial, level_from
from runtimes.harness.sandbox.recipe import LAYERS

LAYER_STATES = dict.fromkeys(LAYERS, "in force")

#: Installs a filter that refuses the named system calls, like a container's seccomp profile.
FORBID = """
from sandbox import kernel, seccomp, syscalls
def forbid(*names):
    here = syscalls.architecture()
    cases = [(0, seccomp.PERMIT)]
    for number in sorted(here.numbers[name] for name in names):
        cases += [(number, seccomp.DENY), (number + 1, seccomp.PERMIT)]
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(seccomp.assemble(here.word, cases))
"""


def test_a_machine_with_namespaces_is_at_level_3() -> None:
    level = level_from(Trial(layers=LAYER_STATES), Trial())
    assert (level.number, level.missing, level.refusal) == (3, (), None)


def test_without_namespaces_a_machine_is_at_level_2_with_the_reason() -> None:
    level = level_from(Trial(error="unshare: no"), Trial(layers=LAYER_STATES))
    assert level.number == 2 and level.refusal is None and "unshare: no" in level.missing[0]


def test_without_namespaces_and_landlock_models_are_refused_with_the_reason() -> None:
    level = level_from(Trial(error="unshare: no"), Trial(error="Landlock ABI 4"))
    assert level.number == 1 and level.refusal is not None
    assert (
        "unshare: no" in level.refusal and "Landlock ABI 4" in level.refusal and "WINDTUNNEL_SANDBOX" in level.refusal
    )


@pytest.mark.parametrize("user", USERS)
def test_finding_the_level_does_not_change_the_calling_process(user: str, sandbox_files: SandboxFiles) -> None:
    code = """
def state():
    return (os.getuid(), os.getcwd(), os.environ.copy(), os.listdir("/"), os.getsid(0), os.nice(0),
            sorted(os.listdir("/proc/self/fd")), open("/proc/self/status").read().split("CapInh")[1].split("Cpus")[0],
            open("/proc/self/limits").read(), os.readlink("/proc/self/ns/mnt"), open("/proc/self/oom_score_adj").read())
before = state(); level(); print(state() == before)
try: os.wait()
except ChildProcessError: print("no child left")"""
    assert sandbox_files.run(user, code).stdout.decode().split("\n")[:2] == ["True", "no child left"]


@pytest.mark.parametrize("user", USERS)
def test_every_layer_of_level_3_is_reported(
    user: str, sandbox_files: SandboxFiles, best_levels: dict[str, int]
) -> None:
    code = "r = confine(Confinement()); print(r.level, *[name for name, state in r.layers.items() if state])"
    layers = set(LAYERS) if best_levels[user] == 3 else set(LAYERS) - {"files", "network"}
    level, *reported = sandbox_files.run(user, code).stdout.decode().split()
    assert int(level) == best_levels[user] and set(reported) == layers


@pytest.mark.parametrize("user", USERS)
def test_without_namespaces_a_process_is_confined_at_level_2(user: str, sandbox_files: SandboxFiles) -> None:
    code = """
forbid("unshare")
detected = level()
print(detected.number, confine(Confinement()).level, *detected.missing)"""
    printed = sandbox_files.run(user, FORBID + code).stdout.decode()
    assert printed.startswith("2 2 namespaces and a private root") and "unshare" in printed


@pytest.mark.parametrize("user", USERS)
def test_without_namespaces_and_landlock_confinement_is_refused(user: str, sandbox_files: SandboxFiles) -> None:
    code = """
forbid("unshare", "landlock_create_ruleset")
print(level().number, flush=True)
try: confine(Confinement())
except Unconfined as refusal: print(refusal)
print(confine(Confinement(level=1)).level)"""
    number, refusal, explicit = sandbox_files.run(user, FORBID + code).stdout.decode().strip().split("\n")
    assert (number, explicit) == ("1", "1")
    assert "unshare" in refusal and "Landlock ABI 0, and 6 is needed" in refusal


def test_a_refusal_is_an_exception_and_a_level_is_a_value() -> None:
    assert issubclass(Unconfined, RuntimeError)
    level = Level(number=3, layers=LAYER_STATES, missing=())
    assert level == Level(number=3, layers=LAYER_STATES, missing=())
