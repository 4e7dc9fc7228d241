"""Image parts: ``scripts/install IMAGE PART FOLDER`` builds the folder FOLDER/PART, and FOLDER/PART.json.

The Dockerfile and the build without Docker both call this script; it alone determines an image's content.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CalledProcessError

import uv

from runtimes import catalogue
from runtimes.images import image_names, interpreter, packages, sbom
from runtimes.images.facts import Facts, merged
from runtimes.images.image_names import Image
from runtimes.images.libraries import MissingLibrary

#: In the order of the layers: the part that changes most often is last.
PARTS = ("python", "site", "environments", "code")
#: The project's folder in an image.
HOME = "opt/windtunnel"
SITE = f"{HOME}/site"


def install(image: Image, part: str, folder: Path) -> Facts:
    """Build a part; the facts of all earlier parts must be in ``folder``."""
    root = folder / part
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    before = [Facts.read(folder / f"{name}.json") for name in PARTS[: PARTS.index(part)]]
    match part:
        case "python":
            facts = interpreter.install(root)
        case "site":
            compiled = image.environment.compiled if image.environment is not None else None
            facts = packages.install(lock(image), root, SITE, before, compiled)
            if image.environment is None:  # the server: its jobs install the packages of models
                _copy_installer(root)
        case "environments":
            facts = Facts()
            for environment in image.brings:
                site = f"{HOME}/environments/{environment.digest}/site"
                sent = environment in catalogue.sent_environments()
                there = before[:1] if sent else [*before, facts]  # every image has Python's libraries
                own = packages.install(environment.lock, root, site, there, environment.compiled, sent=sent)
                facts = merged((facts, own))
        case _:
            facts = _code(image, root, before)
    facts.write(folder / f"{part}.json")
    return facts


def _copy_installer(root: Path) -> None:
    """Put uv where its package looks for it; the packages' own programs are not in an image."""
    target = root / SITE / "bin" / "uv"
    target.parent.mkdir(parents=True)
    shutil.copyfile(uv.find_uv_bin(), target)
    target.chmod(0o755)


def _code(image: Image, root: Path, before: list[Facts]) -> Facts:
    src = root / HOME / "src"
    for name in image_names.files(image.sources):
        target = src / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image_names.ROOT / name, target)
    packages.compile_all(src, root)
    bill = sbom.bill(
        f"{image_names.PREFIX}{image.name}", image_names.tag(image, lock(image)), image.description, before
    )
    (root / HOME / "sbom.json").write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    return Facts()


def lock(image: Image) -> str:
    """Return the requirements file of an image's packages, with hashes."""
    if image.environment is not None:
        return image.environment.lock
    command = [
        uv.find_uv_bin(),
        "export",
        "--frozen",
        "--no-default-groups",
        "--all-extras",
        "--no-emit-project",
        "--no-header",
    ]
    command += ["--no-emit-package", "windtunnel", "--no-annotate", "--quiet"]  # for the demo and OpenEnv's server
    return subprocess.run(command, cwd=image_names.ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Build a part of an image."""
    images = image_names.images()
    if len(sys.argv) != 4 or sys.argv[1] not in images or sys.argv[2] not in PARTS:
        print(f"usage: scripts/install {{{'|'.join(images)}}} {{{'|'.join(PARTS)}}} FOLDER", file=sys.stderr)
        return 2
    try:
        install(images[sys.argv[1]], sys.argv[2], Path(sys.argv[3]).resolve())
    except (MissingLibrary, CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
