"""Project: a folder with a model that plays, or a program that ranks run, a test of it, and a README."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from windtunnel.errors import WindtunnelError
from windtunnel.visible_text import visible


class ProgramKind(NamedTuple):
    """Kind of project of a program that ranks run together. ``install``: what installs the packages of its test."""

    file: str
    summary: str
    install: str


#: Bounds of random observations, for entries that have none.
UNBOUNDED = 3.0
#: Entries of a space that a README lists.
LISTED = 64
#: What the test of a project without requirements of its own needs, besides Windtunnel, which made the project.
TEST_PACKAGES = "pip install pytest"
#: Kinds of project: the model's file, what it is, what installs the packages of the test, its imports in the test, how
#: the test prepares it, what git ignores. `requirements.txt` is of the kinds that train: in a folder that is sent as a
#: model, it would name the packages of the model.
KINDS: Mapping[str, Mapping[str, str]] = {
    "python": {
        "file": "model.py",
        "summary": "A model in Python: one file with the class `Model`.",
        "install": TEST_PACKAGES,
        "imports": "from pathlib import Path\n",
        "prepare": "",
        "ignored": "",
        "build": "",
    },
    "onnx": {
        "file": "model.onnx",
        "summary": "A network that `train.py` trains and writes as ONNX.",
        "install": "pip install -r requirements.txt",
        "imports": "import importlib.util\nimport subprocess\nimport sys\nfrom pathlib import Path\n",
        "prepare": '\n\ndef setup_module():\n    """Train the model."""\n'
        '    missing = [name for name in ("numpy", "onnx") if importlib.util.find_spec(name) is None]\n'
        '    assert not missing, "pip install -r requirements.txt"\n'
        '    subprocess.run([sys.executable, MODEL.with_name("train.py")], check=True)\n',
        "ignored": "model.onnx\n",
        "build": "\n`python train.py` writes the model, with the packages of `requirements.txt`; so does the test.\n",
    },
    "c": {
        "file": "model.so",
        "summary": "A model in C: a shared library with four functions, which `windtunnel_model.h` describes.",
        "install": TEST_PACKAGES,
        "imports": "import shutil\nimport subprocess\nfrom pathlib import Path\n",
        "prepare": '\n\ndef setup_module():\n    """Build the model."""\n'
        '    assert shutil.which("make") and shutil.which("cc"), "install make and a C compiler (build-essential)"\n'
        '    subprocess.run(["make", "-C", MODEL.parent], check=True)\n',
        "ignored": "model.so\n",
        "build": "\n`make` builds the model; the test does so too. It needs make and a C compiler (build-essential).\n",
    },
}
#: Kinds of project of a program that ranks run together.
PROGRAMS: Mapping[str, "ProgramKind"] = {
    "mpi": ProgramKind(
        file="heat.py",
        summary="A coupled program in Python: ranks that compute the heat in a rod, and exchange values by MPI.",
        install="pip install mpich mpi4py numpy pytest",
    ),
}
#: What entries of a dataset's observations and actions mean, as far as name, unit and bounds do not tell.
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "car_street": {
        "lane_offset": "from the middle of the lane; left is positive",
        "lane_index": "0 is the rightmost lane",
        "route_lane_shift": "lanes to change for the route; +1 is one to the left",
        "route_lane_left": "for which this lane still follows the route",
        "lead_present": "0 or 1",
        "left_open": "there is a lane: 0 or 1",
        "right_open": "there is a lane: 0 or 1",
        "light_red": "0 or 1",
        "light_yellow": "0 or 1",
        "conflict": "a road user has right of way: 0 or 1",
        "lane": "-0.5 or less: one lane to the right; 0.5 or more: to the left",
    },
    "cartpole": {"push": "1: to the right, 0: to the left"},
}
#: Policies to begin with, in Python and in C, for datasets that have a simple one.
POLICIES: Mapping[str, tuple[str, str]] = {
    "car_street": (
        "        speed, limit, gap = observation[0], observation[2], observation[10]\n"
        "        return [1.0 if speed < limit and gap > 2 * speed + 5 else -3.0, 0.0]  # m/s2, no change of lane",
        "    double speed = observation[0], limit = observation[2], gap = observation[10];\n"
        "    action[0] = speed < limit && gap > 2 * speed + 5 ? 1.0 : -3.0; /* m/s2 */\n"
        "    action[1] = 0.0; /* no change of lane */",
    ),
    "cartpole": (
        "        return [1.0 if observation[2] + observation[3] > 0 else 0.0]  # push to where the pole falls",
        "    action[0] = observation[2] + observation[3] > 0 ? 1.0 : 0.0; /* push to where the pole falls */",
    ),
}


@dataclass(frozen=True, slots=True)
class Project:
    """A project that is to be written. ``definition``: of the dataset, as the API has it."""

    kind: str
    name: str
    definition: Mapping[str, Any]

    def write(self, folder: Path) -> list[Path]:
        """Write the files; return their paths. Raise WindtunnelError if the folder exists and is not empty."""
        _check_empty(folder)
        return _write(folder, "", self.kind, values=self._values())

    def _values(self) -> dict[str, str]:
        """Return what the templates' names stand for."""
        dataset = _comment(str(self.definition["name"]))
        observation, action = (self.definition["interface"][part] for part in ("observation", "action"))
        if not action["names"]:
            raise WindtunnelError(f"{dataset} has no action: its models are programs of their own.")
        middle = [_middle(low, high) for low, high in zip(action["low"], action["high"], strict=True)]
        python, c = POLICIES.get(
            dataset,
            (
                f"        return {middle!r}  # the middle of each range",
                "\n".join(f"    action[{index}] = {value!r};" for index, value in enumerate(middle)),
            ),
        )
        if self.kind == "onnx":  # a function, not a method
            python = "\n".join(line.removeprefix("    ") for line in python.split("\n"))
        score = (self.definition.get("score") or {}).get("metric")
        return {
            **KINDS[self.kind],
            "name": self.name,
            "dataset": dataset,
            "title": _comment(str(self.definition.get("title") or dataset)),
            "policy": python,
            "c_policy": c,
            "assertion": f"[{json.dumps(score)}] is not None" if score else "",
            "observations": str(len(observation["names"])),
            "actions": str(len(action["names"])),
            "observation_low": repr([-UNBOUNDED if low is None else low for low in observation["low"]]),
            "observation_high": repr([UNBOUNDED if high is None else high for high in observation["high"]]),
            "observation_type": "DOUBLE" if observation["dtype"] == "float64" else "FLOAT",
            "observation_shape": repr(list(observation["shape"])),
            "action_low": repr([-1e9 if low is None else low for low in action["low"]]),
            "action_high": repr([1e9 if high is None else high for high in action["high"]]),
            "observation_form": _form(observation),
            "action_form": _form(action),
            "observation_rows": "\n".join(_rows(observation, MEANINGS.get(dataset, {}))),
            "action_rows": "\n".join(_rows(action, MEANINGS.get(dataset, {}))),
        }


def write_program(kind: str, folder: Path) -> list[Path]:
    """Write the files of a program's project; return their paths. Raise WindtunnelError as `Project.write`."""
    _check_empty(folder)
    return _write(folder, kind, values={**PROGRAMS[kind]._asdict(), "name": folder.resolve().name})


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WindtunnelError(f"{folder} exists and is not empty. Choose another name.")


def _write(folder: Path, *parts: str, values: Mapping[str, str]) -> list[Path]:
    """Write the files of these folders of templates; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in _templates(parts):
        path = folder / name
        path.write_text(Template(text).substitute(values))
        written.append(path)
    return written


def _templates(parts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file of these folders of templates; an empty name is that of all models."""
    root = files("windtunnel") / "templates"
    for part in parts:
        folder = root / part if part else root
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.name.endswith(".in"):
                name = entry.name.removesuffix(".in")
                yield f".{name}" if name == "gitignore" else name, entry.read_text(encoding="utf-8")


def _middle(low: float | None, high: float | None) -> float:
    if low is None or high is None:
        return 0.0
    return (low + high) / 2


def _comment(text: str) -> str:
    """Return a text of the dataset's owner as one line that ends no comment and no string of Python, C or Markdown."""
    plain = visible(text).replace("\\", "/").replace('"', "'").replace("*/", "* /").replace("`", "'")
    return " ".join(plain.split())


def _form(space: Mapping[str, Any]) -> str:
    return f"{space['dtype']}{list(space['shape'])}"


def _rows(space: Mapping[str, Any], meanings: Mapping[str, str]) -> Iterator[str]:
    entries = zip(space["names"], space["units"], space["low"], space["high"], strict=True)
    for index, (name, unit, low, high) in enumerate(entries):
        if index == LISTED:
            yield f"| ... | {len(space['names']) - LISTED} more | | | | |"
            return
        bounds = " | ".join("" if bound is None else str(bound) for bound in (low, high))
        yield f"| {index} | {_comment(name)} | {_comment(unit)} | {bounds} | {meanings.get(name, '')} |"
