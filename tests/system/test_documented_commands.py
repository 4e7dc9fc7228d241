"""Commands of the documentation: those of a page run in order on a platform, and every block is run or says why not."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.document_commands import ROOT, Block, Treatment, blocks, script
from tests.system.platform_process import PlatformProcess, share_environments
from tests.waiting import until

#: Seconds that the commands of a page may take.
LIMIT = 240
#: curl as readers have it, except that a refused request fails.
CURL = '#!/bin/sh\nexec {curl} --fail-with-body --no-progress-meter --max-time 120 "$@"\n'
SOURCES = sorted(
    path
    for path in (file.relative_to(ROOT) for file in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    # tests/system/test_recipes.py follows the recipes of contributing/
    if not {"contributing", "decisions", "releases"} & set(path.parts)
)
BASELINE = ROOT / "runtimes/harness/simulators/sumo/baselines/car_street.onnx"
UNENDED = ["queued", "staging", "launching", "running"]
#: Folders of a clone that commands name.
FOLDERS = ("examples", "runtimes")


@dataclass(frozen=True, slots=True)
class Preparation:
    """What the commands of a page take for granted: files of the reader, and words that stand for ids in addresses."""

    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


PREPARATIONS: Mapping[str, Preparation] = {
    "docs/api.md": Preparation({"policy.onnx": BASELINE}, {"ID": "idm", "OTHER": "constant_speed"}),
    "docs/cli.md": Preparation({"policy.onnx": BASELINE, "drives/a.csv": b"time,speed\n0,1\n"}),
    "docs/comparisons.md": Preparation(words={"ID": "comparison"}),
    "docs/datasets.md": Preparation({"drives/b.csv": b"time,speed\n0,1\n"}),
    "docs/exporting.md": Preparation({"policy.onnx": ROOT / "tests/contracts/onnx_models/lstm.onnx"}),
    "docs/how-to/results.md": Preparation(words={"ID": "idm"}),
    "docs/uploads.md": Preparation({"policy.onnx": BASELINE}),
}


def blocks_of(source: Path) -> list[Block]:
    try:
        return list(blocks((ROOT / source).read_text()))
    except ValueError as error:
        raise AssertionError(f"{source}: {error}") from None


@pytest.fixture(scope="module")
def ended(platform: PlatformProcess) -> Mapping[str, str]:
    """Ids of an ended simulation of each of two models on the same scenarios, and of an ended comparison of them."""
    ids = {}
    for model in ("idm", "constant_speed"):
        fields = {
            "dataset": "car_street",
            "runtime": "python",
            "scenarios": {"sample": 12},
            "sweep": {"latency_steps": [0, 2]},
        }
        id = platform.http.post("/v1/simulations", json={"model": model, **fields}).json()["id"]
        assert platform.wait_for_end(id)["state"] == "succeeded"
        ids[model] = id
    request = {"models": ["idm", "constant_speed"], "dataset": "car_street"}
    comparison = platform.http.post("/v1/comparisons", json=request).json()["id"]
    address = f"/v1/comparisons/{comparison}"
    until(lambda: platform.http.get(address).json()["state"] == "finished", timeout=120.0)
    return {**ids, "comparison": comparison}


def test_every_block_is_run_or_shown_or_says_why_it_is_not_run() -> None:
    found = {source: blocks_of(source) for source in SOURCES}
    counts = Counter(block.treatment for page in found.values() for block in page)
    lines = sum(block.left_out for page in found.values() for block in page)
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in Treatment)
    later = sum("runs it in `make verify`" in block.note for page in found.values() for block in page)
    print(f"code blocks of {len(SOURCES)} pages: {kinds}; {lines} lines of those that are run are left out")
    print(f"of those that are not run, {later} are run by `make verify`")
    assert counts[Treatment.RUN] >= 25, counts
    for source, page in found.items():
        for block in page:
            if block.treatment is Treatment.NOT_RUN or block.left_out:
                assert len(block.note.split()) > 2, f"{source}:{block.line}: {block.note!r} is no reason"
                for name in re.findall(r"tests/[\w./]+", block.note):
                    assert (ROOT / name).exists(), f"{source}:{block.line}: there is no {name}"


PLAYED = [str(source) for source in SOURCES if any(block.treatment is Treatment.RUN for block in blocks_of(source))]


@pytest.mark.parametrize("source", PLAYED)
def test_the_commands_of_a_page_succeed(
    source: str, platform: PlatformProcess, ended: Mapping[str, str], tmp_path: Path
) -> None:
    preparation = PREPARATIONS.get(source, Preparation())
    words = {word: ended[name] for word, name in preparation.words.items()}
    commands = script(blocks_of(Path(source)), f"127.0.0.1:{platform.port}", words)
    outcome = subprocess.run(
        ["bash", "-c", commands],
        cwd=prepared(tmp_path / "work", preparation),
        env=environment(tmp_path, platform.url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    assert outcome.returncode == 0, f"{source}: {outcome.stdout[-3000:]}"
    # What the page has submitted and not waited for would delay the next page.
    platform.http.post("/v1/simulations/cancel", json={"filter": {"state": UNENDED}}).raise_for_status()


def prepared(folder: Path, preparation: Preparation) -> Path:
    """Make the folder in which the commands of a page run."""
    folder.mkdir()
    for name in FOLDERS:
        (folder / name).symlink_to(ROOT / name)
    for name, content in preparation.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return folder


def environment(home: Path, url: str) -> dict[str, str]:
    """Return the environment of a reader with these tools on the PATH, and nothing of this checkout's."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "curl").write_text(CURL.format(curl=shutil.which("curl")))
    (programs / "curl").chmod(0o755)
    data = home / "data"
    data.mkdir()
    share_environments(data)
    return {
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
        "HOME": str(home),
        "WINDTUNNEL_URL": url,
        "WINDTUNNEL_HOME": str(data),
        "LC_ALL": "C.UTF-8",
        "MPLCONFIGDIR": str(home / "matplotlib"),
    }
