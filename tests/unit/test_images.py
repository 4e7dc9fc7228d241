"""Images: their list, their names, and layers and archives made from folders."""

import json
import re
import tarfile
from pathlib import Path

import pytest

from runtimes import catalogue
from runtimes.environments import Environment, ready
from runtimes.images import build, image_names, layers, parts, sbom
from runtimes.images.facts import Component, Facts
from tests.image_archives import unpack

ROOT = Path(__file__).parents[2]
DOCKERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())


def test_every_environment_of_a_format_and_of_a_simulator_has_an_image() -> None:
    formats = {
        format.environment.name for runtime in catalogue.runtimes().values() for format in runtime.formats.values()
    }
    assert set(image_names.images()) == {"server", "jobs"} | formats | set(catalogue.simulators())


def test_a_pod_names_the_image_of_an_environment_by_its_content() -> None:
    environment = catalogue.simulators()["noop"]
    assert re.fullmatch(r"windtunnel-noop:[0-9a-f]{12}", image_names.image_of(environment))
    assert image_names.image_of("noop", "registry.example/w-", "v1") == "registry.example/w-noop:v1"


def test_a_changed_lock_changes_the_tag() -> None:
    image = image_names.images()["noop"]
    assert image_names.tag(image, "a") != image_names.tag(image, "b")


def test_the_image_of_a_model_server_has_only_the_harness_of_the_platform() -> None:
    files = list(image_names.files(image_names.images()["onnx"].sources))
    assert "runtimes/harness/model_server/model_server.py" in files
    assert not [name for name in files if name.endswith("scenarios.ndjson")], "models would see what they will meet"
    others = {name for name in files if not name.startswith("runtimes/harness/")}
    assert others == {"LICENSE", "runtimes/__init__.py"}


def test_the_image_of_a_simulator_has_its_own_datasets() -> None:
    files = set(image_names.files(image_names.images()["sumo"].sources))
    assert "datasets/catalogue/car_street/dataset.json" in files
    assert not any(name.startswith("datasets/catalogue/highway") for name in files)


def test_the_servers_image_brings_what_gangs_are_sent_and_no_framework() -> None:
    assert [environment.name for environment in image_names.images()["server"].brings] == ["mpi"]
    sent = catalogue.sent_environments()
    assert [name for name, image in image_names.images().items() if set(image.brings) & set(sent)] == ["server"]


def test_the_image_of_jobs_brings_every_simulator_once_also_those_with_equal_packages() -> None:
    simulators = [environment.digest for environment in catalogue.simulators().values()]
    assert len(simulators) > len(set(simulators)), "`flow` and `noop` have the same packages"
    brought = [environment.digest for environment in image_names.images()["jobs"].brings]
    assert len(brought) == len(set(brought)) and set(simulators) <= set(brought)


def test_sources_are_named_by_content_without_bytecode(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/first.py").write_text("1")
    before = image_names.digest(("a",), tmp_path)
    (tmp_path / "a/__pycache__").mkdir()
    (tmp_path / "a/__pycache__/first.pyc").write_text("2")
    (tmp_path / "a/.hidden").write_text("3")
    assert image_names.digest(("a",), tmp_path) == before
    (tmp_path / "a/second.py").write_text("")
    assert image_names.digest(("a",), tmp_path) != before


def make_tree(folder: Path) -> Path:
    (folder / "b").mkdir(parents=True)
    (folder / "b/large").write_bytes(b"x" * layers.LARGE)
    (folder / "a").symlink_to("b/large")
    (folder / "c").write_bytes(b"x" * layers.LARGE)
    (folder / "run").write_text("")
    (folder / "run").chmod(0o750)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_equal_folders_give_equal_layers(tmp_path: Path, packed: bool) -> None:
    first, second = (
        layers.write(make_tree(tmp_path / name), tmp_path / f"{name}.tar", packed=packed)
        for name in ("first", "second")
    )
    assert (first.diff, first.digest, first.size) == (second.diff, second.digest, second.size)
    assert first.path.read_bytes() == second.path.read_bytes()


def test_a_layer_is_owned_by_root_sorted_without_times_and_without_duplicates(tmp_path: Path) -> None:
    layer = layers.write(make_tree(tmp_path / "tree"), tmp_path / "layer.tar", packed=False)
    with tarfile.open(layer.path) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["a", "b", "b/large", "c", "run"]
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 0)}
    assert members[0].issym()
    assert members[3].islnk() and members[3].linkname == "b/large"
    assert members[4].mode == 0o755


@pytest.mark.parametrize("packed", [False, True])
def test_an_image_archive_unpacks_to_the_folder_that_it_was_made_from(tmp_path: Path, packed: bool) -> None:
    layer = layers.write(make_tree(tmp_path / "tree"), tmp_path / "layer.tar", packed=packed)
    manifest, config = layers.manifest([layer], {"User": "1:1"}, "amd64")
    layers.archive(tmp_path / "image.tar", "thing:1", [layer], manifest, config)
    assert unpack(tmp_path / "image.tar", tmp_path / "out") == {"User": "1:1"}
    assert (tmp_path / "out/a").read_bytes() == (tmp_path / "out/c").read_bytes() == b"x" * layers.LARGE


def test_an_archive_has_the_same_image_name_for_kubernetes_and_docker(tmp_path: Path) -> None:
    manifest, config = layers.manifest([], {}, "amd64")
    layers.archive(tmp_path / "image.tar", "thing:1", [], manifest, config)
    with tarfile.open(tmp_path / "image.tar") as tar:
        index, docker_manifest = (json.loads(tar.extractfile(name).read()) for name in ("index.json", "manifest.json"))
    annotations = index["manifests"][0]["annotations"]
    assert annotations["io.containerd.image.name"] == "docker.io/library/thing:1"
    assert docker_manifest[0]["RepoTags"] == ["thing:1"]


def test_an_environment_that_the_image_contains_is_ready(tmp_path: Path) -> None:
    environment, image_environments = Environment("thing", "thing==1\n"), tmp_path / "image"
    assert ready(environment, tmp_path / "home", image_environments) is None
    (image_environments / environment.digest / "site").mkdir(parents=True)
    assert ready(environment, tmp_path / "home", image_environments) == image_environments / environment.digest / "site"


def test_equal_parts_give_equal_bills_of_materials() -> None:
    component = Component(kind="library", name="thing", version="1", purl="pkg:pypi/thing@1", licence="MIT")
    bill = sbom.bill("w", "1", "description", [Facts((component,)), Facts()])
    assert bill == sbom.bill("w", "1", "description", [Facts(), Facts((component,)), Facts((component,))])
    assert bill["components"][0]["purl"] == "pkg:pypi/thing@1"
    assert bill["serialNumber"] != sbom.bill("w", "2", "description", [])["serialNumber"]


def test_facts_are_equal_after_writing_and_reading(tmp_path: Path) -> None:
    facts = Facts((Component("library", "thing", "1", "pkg:pypi/thing@1"),), ("libthing.so.1",))
    facts.write(tmp_path / "facts.json")
    assert Facts.read(tmp_path / "facts.json") == facts


def test_the_dockerfile_copies_the_same_layers() -> None:
    installed = re.findall(r'^RUN scripts/install (?:server|"\$IMAGE") (\w+) /image$', DOCKERFILE, re.MULTILINE)
    copied = re.findall(r"^COPY --from=\w+ /image/(\w+)/ /$", DOCKERFILE, re.MULTILINE)
    assert tuple(installed) == tuple(copied) == parts.PARTS
    assert "RUN" not in DOCKERFILE.split("FROM scratch")[1]


def test_the_dockerfile_has_the_same_image_config() -> None:
    environment_config, server_config = (
        build.config(image_names.images()[name], "$TAG") for name in ("noop", "server")
    )
    instructions = re.findall(
        r"^(ENV|USER|WORKDIR|ENTRYPOINT|LABEL) (.*)$", DOCKERFILE.split("FROM scratch")[1], re.MULTILINE
    )
    values = [value for key, value in instructions if key == "ENV"]
    assert values[0].split() == environment_config["Env"]
    assert [*values[0].split(), *values[1].split()] == server_config["Env"]
    entrypoints = [json.loads(value) for key, value in instructions if key == "ENTRYPOINT"]
    assert entrypoints == [environment_config["Entrypoint"], server_config["Entrypoint"]]
    assert {key: value for key, value in instructions if key in {"USER", "WORKDIR"}} == {
        "USER": environment_config["User"],
        "WORKDIR": environment_config["WorkingDir"],
    }
    labels = dict(re.findall(r'(org\.[a-z.]+)="([^"]*)"', DOCKERFILE))
    assert labels == environment_config["Labels"] | {"org.opencontainers.image.title": "windtunnel-$IMAGE"}
