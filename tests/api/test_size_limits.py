"""Size limits on every way in: models, uploads, concatenations and datasets; and the floor of free disk."""

import base64
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform, PlatformOptions, build
from core.services.uploads.disk_floor import floor_of
from core.settings import Settings
from server import composition as root
from tests.api.answers import MODEL, problem
from tests.api.test_uploads import TUS, append, create, id_of, upload_all
from tests.executor_configs import LOCAL

#: Bytes of the largest model, by the settings of the fixtures.
LARGEST = 1 << 20
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
OCTETS = {"Content-Type": "application/octet-stream"}
#: A Python model of more than LARGEST bytes.
LARGE_MODEL = MODEL + b"#" * LARGEST


def platform_of(platform: Platform, settings: Settings, **options: int) -> Platform:
    """Return the services of a platform with other options."""
    all_options = PlatformOptions(home=settings.home, executor_configs=[LOCAL], sandbox={"level": 3}, **options)
    return build(platform.database, platform.store, platform.notifier, all_options)


def form_of(field: str, model: bytes, **fields: str) -> bytes:
    """Return a multipart form with a model; werkzeug's client keeps large forms in files that it does not close."""
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(f'name="{field}"; filename="large.py"\r\n\r\n'.encode() + model)
    return b"".join(b"--x\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts) + b"--x--\r\n"


def put_body(client: FlaskClient, model: bytes) -> Any:
    return client.put("/v1/models/large?filename=large.py", data=model, headers=OCTETS)


def post_form(client: FlaskClient, model: bytes) -> Any:
    return client.post("/v1/models", data=form_of("file", model), headers=FORM)


def submit_form(client: FlaskClient, model: bytes) -> Any:
    return client.post("/v1/simulations", data=form_of("model", model, dataset="noop"), headers=FORM)


def register_upload(client: FlaskClient, model: bytes) -> Any:
    return client.post("/v1/models", json={"upload": upload_all(client, model), "filename": "large.py"})


def submit_upload(client: FlaskClient, model: bytes) -> Any:
    address = upload_all(client, model, Upload_Metadata=f"filename {base64.b64encode(b'large.py').decode()}")
    return client.post("/v1/simulations", json={"dataset": "noop", "upload": address})


def register_concatenation(client: FlaskClient, model: bytes) -> Any:
    halves = [upload_all(client, part, Upload_Concat="partial") for part in (model[:LARGEST], model[LARGEST:])]
    final = create(client, Upload_Concat=f"final;{' '.join(halves)}")
    return client.post("/v1/models", json={"upload": final, "filename": "large.py"})


WAYS_OF_MODELS: list[Callable[[FlaskClient, bytes], Any]] = [
    put_body,
    post_form,
    submit_form,
    register_upload,
    submit_upload,
    register_concatenation,
]


@pytest.mark.parametrize("way", WAYS_OF_MODELS)
def test_a_model_of_more_than_max_upload_is_refused_on_every_way_in(
    client: FlaskClient, platform: Platform, way: Callable[[FlaskClient, bytes], Any]
) -> None:
    problem(way(client, LARGE_MODEL), 413, "too-large")
    assert list(platform.store.list("models/")) == []
    assert [item for item in client.get("/v1/models").json["items"] if not item["baseline"]] == []


#: Bytes of the files of a model's archive, by the tests that follow.
LARGEST_UNPACKED = 1 << 20


def bomb(kind: str, content: str) -> bytes:
    """Return a model's archive of a few kilobytes, with `model.py` and 8 MiB that are a file or the header of one."""
    size = 8 << 20
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("model.py", MODEL)
            archive.writestr("weights", bytes(size))
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}", format=tarfile.GNU_FORMAT) as archive:
        model, large = tarfile.TarInfo("model.py"), tarfile.TarInfo("weights")
        model.size, large.size = len(MODEL), size
        large.type = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.GNUTYPE_LONGLINK}[content]
        archive.addfile(model, io.BytesIO(MODEL))
        archive.fileobj.write(large.tobuf(tarfile.GNU_FORMAT))  # type: ignore[union-attr]
        archive.fileobj.write(bytes(size))  # type: ignore[union-attr]
        archive.offset += 512 + size
    return buffer.getvalue()


@pytest.mark.parametrize("way", WAYS_OF_MODELS)
@pytest.mark.parametrize(
    ("kind", "content"),
    [("gz", "file"), ("xz", "file"), ("bz2", "file"), ("gz", "folder"), ("gz", "link"), ("zip", "file")],
)
def test_an_archive_that_unpacks_to_more_than_max_unpacked_is_refused_on_every_way_in(
    platform: Platform, settings: Settings, way: Callable[[FlaskClient, bytes], Any], kind: str, content: str
) -> None:
    client = root.create_flask(platform_of(platform, settings, max_unpacked=LARGEST_UNPACKED), settings).test_client()
    detail = problem(way(client, bomb(kind, content)), 413, "too-large")["detail"]
    assert "WINDTUNNEL_MAX_UNPACKED" in detail and f"{LARGEST_UNPACKED:,}" in detail
    assert list(platform.store.list("models/")) == []


def test_an_archive_within_max_unpacked_is_accepted(platform: Platform, settings: Settings) -> None:
    client = root.create_flask(platform_of(platform, settings, max_unpacked=64 << 20), settings).test_client()
    for kind in ("gz", "zip"):
        assert put_body(client, bomb(kind, "file")).status_code == 201


def test_one_partial_upload_cannot_be_concatenated_many_times(client: FlaskClient, platform: Platform) -> None:
    part = upload_all(client, bytes(1000), Upload_Concat="partial")
    refused = client.post("/v1/uploads", headers=TUS | {"Upload-Concat": f"final;{' '.join([part] * 300)}"})
    assert id_of(part) in problem(refused, 422, "invalid")["detail"]


def archive_of(kind: str, size: int) -> bytes:
    """Return an archive with a file of ``size`` zero bytes."""
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a", bytes(size))
    else:
        with tarfile.open(fileobj=buffer, mode=kind) as archive:
            member = tarfile.TarInfo("a")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes(size)))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "w:gz", "w:xz", "w"])
def test_the_unpacked_files_of_a_dataset_are_limited(platform: Platform, settings: Settings, kind: str) -> None:
    platform = platform_of(platform, settings, max_dataset=1 << 20)
    client = root.create_flask(platform, settings).test_client()
    for name, size in (("small", 1 << 20), ("large", (1 << 20) + 1)):
        address = upload_all(client, archive_of(kind, size))
        accepted = client.post("/v1/datasets", json={"name": name, "source": {"upload": address}})
        assert accepted.status_code == 202, accepted.data
        platform.jobs.dataset_registration.register(accepted.json["id"])
    assert client.get("/v1/datasets/small").json["state"] == "ready"
    failed = client.get(f"/v1/datasets/{accepted.json['id']}").json
    assert failed["state"] == "failed" and "WINDTUNNEL_MAX_DATASET" in failed["reason"]
    packs = list(platform.store.list("packs/"))
    assert all(key.split("/")[1] == client.get("/v1/datasets/small").json["id"] for key in packs)


def test_one_upload_at_many_paths_counts_once_for_each_path(platform: Platform, settings: Settings) -> None:
    platform = platform_of(platform, settings, max_dataset=2500)
    client = root.create_flask(platform, settings).test_client()
    address = upload_all(client, bytes(1000))
    files = [{"path": str(number), "upload": address} for number in range(3)]
    accepted = client.post("/v1/datasets", json={"name": "copies", "source": {"uploads": files}})
    platform.jobs.dataset_registration.register(accepted.json["id"])
    assert "WINDTUNNEL_MAX_DATASET" in client.get(f"/v1/datasets/{accepted.json['id']}").json["reason"]


# -- the floor of free disk


class ShrinkingDisk:
    """Free bytes of a disk, as `DiskFloor` reads them, with a number of bytes that the test sets."""

    def __init__(self) -> None:
        self.free = 1 << 40

    def __call__(self, folder: object) -> tuple[int, int]:
        return self.free, 1 << 40


@pytest.fixture
def disk(platform: Platform) -> ShrinkingDisk:
    """The free space of the platform's disk."""
    disk = ShrinkingDisk()
    platform.files.disk_floor.measure = disk
    return disk


WAYS_WITH_BYTES: list[Callable[[FlaskClient, bytes], Any]] = [put_body, post_form, submit_form]


@pytest.mark.parametrize("way", WAYS_WITH_BYTES)
def test_models_are_refused_below_the_floor_of_free_disk(
    client: FlaskClient, disk: ShrinkingDisk, platform: Platform, way: Callable[[FlaskClient, bytes], Any]
) -> None:
    disk.free = floor_of(1 << 40) - 1
    detail = problem(way(client, MODEL), 507, "storage-full")["detail"]
    assert "WINDTUNNEL_DISK_FLOOR" in detail and "delete" in detail
    disk.free = 1 << 40
    assert way(client, MODEL).status_code in {201, 202}


def test_uploads_and_registrations_are_refused_below_the_floor_of_free_disk(
    client: FlaskClient, disk: ShrinkingDisk, platform: Platform
) -> None:
    whole, half = upload_all(client, MODEL), create(client, 4)
    part = upload_all(client, archive_of("zip", 1000))
    assert append(client, half, 0, b"ab").status_code == 204
    accepted = client.post("/v1/datasets", json={"name": "late", "source": {"upload": part}})
    disk.free = 1 << 20
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Length": "1"}), 507, "storage-full")
    problem(append(client, half, 2, b"cd"), 507, "storage-full")
    problem(client.post("/v1/models", json={"upload": whole, "filename": "m.py"}), 507, "storage-full")
    problem(client.post("/v1/simulations", json={"upload": whole, "dataset": "noop"}), 507, "storage-full")
    source = {"upload": part}
    problem(client.post("/v1/datasets", json={"name": "d", "source": source}), 507, "storage-full")
    platform.jobs.dataset_registration.register(accepted.json["id"])
    assert "WINDTUNNEL_DISK_FLOOR" in client.get(f"/v1/datasets/{accepted.json['id']}").json["reason"]
    assert client.get(half).json["offset"] == 2, "stored bytes remain"
    disk.free = 1 << 40
    assert append(client, half, 2, b"cd").status_code == 204


def test_an_upload_is_refused_at_its_creation_if_it_would_reach_the_floor(
    client: FlaskClient, disk: ShrinkingDisk, platform: Platform
) -> None:
    disk.free = floor_of(1 << 40) + 1000
    problem(client.post("/v1/uploads", headers=TUS | {"Upload-Length": "1001"}), 507, "storage-full")
    assert client.post("/v1/uploads", headers=TUS | {"Upload-Length": "1000"}).status_code == 201


def test_a_floor_that_is_reached_while_bytes_arrive_ends_the_request(platform: Platform, settings: Settings) -> None:
    platform.files.disk_floor.measure = lambda folder: (spare.pop() if spare else 0, 1 << 40)
    spare = [1 << 40] * 4
    client = root.create_flask(platform, replace(settings, max_upload=8 << 20)).test_client()
    problem(post_form(client, MODEL + b"#" * (4 << 20)), 507, "storage-full")
    assert spare == []
    assert list((settings.home / "scratch").glob("*")) == list(platform.store.list("models/")) == []


def test_work_in_progress_continues_below_the_floor(
    submit: Callable[..., Any], worker: Any, disk: ShrinkingDisk, client: FlaskClient
) -> None:
    id = submit().json["id"]
    disk.free = 1 << 20
    worker.run_to_end(id)
    assert client.get(f"/v1/simulations/{id}/summary").status_code == 200


@pytest.mark.parametrize(
    ("least", "size", "floor"),
    [
        (0, 1 << 40, 10 << 30),  # 2 % are more than 10 GiB
        (0, 100 << 30, 2 << 30),  # 2 %
        (0, 20 << 30, 1 << 30),  # at least 1 GiB
        (0, 4 << 30, 512 << 20),  # a small disk: an eighth
        (5 << 30, 1 << 40, 5 << 30),
    ],
)
def test_the_floor_follows_the_size_of_the_disk(least: int, size: int, floor: int) -> None:
    assert floor_of(size, least) == pytest.approx(floor, rel=0.03)
