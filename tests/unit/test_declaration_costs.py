"""Costs of declared dependencies: the API reads them, so that each file takes a bounded time whatever it has."""

import time
from collections.abc import Callable, Mapping

import pytest

from common.errors import BadRequirements
from runtimes.dependencies import lock_files
from runtimes.dependencies.declaration import LARGEST, of_pyproject, of_requirements, of_script
from runtimes.dependencies.lock_files import of_pylock, of_uv_lock

#: Seconds of processor time that a file may take, on a slow machine.
LONGEST = 2.0


def filled(unit: str, size: int = LARGEST) -> str:
    """Return as many units as fit in ``size``."""
    return unit * (size // len(unit))


def uv_lock(text: str) -> object:
    return of_uv_lock(text, "[project]\ndependencies = ['a']\n")


def package(number: int, rest: str) -> str:
    """Return a package of uv.lock."""
    wheels = f"wheels = [{{ hash = 'sha256:{'0' * 64}' }}]\n"
    return f"[[package]]\nname = 'a{number}'\nversion = '1'\nsource = {{ registry = 'x' }}\n{wheels}{rest}\n"


MARKERS = "[" + ", ".join(["\"os_name == 'a'\""] * 400) + "]"
#: The costliest files that were found, each a second or more before there was a bound.
COSTLY: Mapping[str, tuple[Callable[[str], object], str]] = {
    "many requirements": (of_requirements, filled("a\n")),
    "requirements with many versions": (of_requirements, filled("a" + ",".join(["==1"] * 120) + "\n")),
    "requirements with many extras": (of_requirements, filled("a[" + ",".join(["b"] * 230) + "]\n")),
    "many dependencies of a project": (of_pyproject, "[project]\ndependencies=[" + filled("'a',", LARGEST - 40) + "]"),
    "many tables": (of_pyproject, "".join(f"[{number}]\n" for number in range(120_000))),
    "deep tables": (of_pyproject, "".join(f"[a{number}{'.a' * 30}]\n" for number in range(14_000))),
    "deep keys": (of_pyproject, "".join(f"{'a.' * 30}d{number}=1\n" for number in range(15_000))),
    "many numbers": (of_pyproject, "a=[" + filled("1,", LARGEST - 10) + "]"),
    "many dependencies of a script": (of_script, "# /// script\n" + filled("# a.b.c.d=1\n", LARGEST - 40) + "# ///\n"),
    "many tables of a lock": (uv_lock, "".join(f"[a{number}]\n" for number in range(400_000))),
    "many keys of a lock": (uv_lock, "".join(f"a{number}=1\n" for number in range(400_000))),
    "a version that is a long list": (
        uv_lock,
        "[[package]]\nname='a'\nversion=[" + filled("1,", lock_files.LARGEST - 100) + "]\nsource={}",
    ),
    "long markers of a lock": (
        uv_lock,
        "".join(package(number, f"resolution-markers = {MARKERS}") for number in range(400)),
    ),
    "long markers of a pylock": (
        of_pylock,
        'lock-version="1.0"\n'
        + "".join(
            f'[[packages]]\nname=\'a{number}\'\nversion=\'1\'\nmarker="""{" or ".join(["os_name==1"] * 700)}"""\n'
            f"wheels=[{{hashes={{sha256='{'0' * 64}'}}}}]\n"
            for number in range(400)
        ).replace("os_name==1", "os_name=='a'"),
    ),
}


@pytest.mark.parametrize("file", COSTLY)
def test_a_costly_file_is_refused_before_it_costs_more(file: str) -> None:
    read, text = COSTLY[file]
    began = time.process_time()
    with pytest.raises(BadRequirements) as refused:
        read(text)
    assert time.process_time() - began < LONGEST
    assert len(refused.value.detail or "") < 400


def test_a_lock_of_as_many_packages_as_may_be_with_25_wheels_each_is_read() -> None:
    address = "https://files.pythonhosted.org/packages/00/11/name-1.2.3-cp312-cp312-manylinux_2_17_x86_64.whl"
    wheels = "\n".join(f"  {{ url = '{address}', hash = 'sha256:{'0' * 64}', size = 1 }}," for _ in range(25))
    markers = "resolution-markers = ['python_full_version >= \\'3.12\\' and sys_platform == \\'linux\\'']".replace(
        "\\'", '"'
    )
    text = "".join(
        f"[[package]]\nname = 'a{number}'\nversion = '1.2.3'\nsource = {{ registry = 'x' }}\n{markers}\n"
        f"wheels = [\n{wheels}\n]\n"
        for number in range(lock_files.MOST)
    )
    assert len(text) < lock_files.LARGEST
    assert len(of_uv_lock(text, "[project]\ndependencies = ['a1']\n").hashes) == lock_files.MOST
