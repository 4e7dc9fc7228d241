"""Schemas of datasets: built-in and registered, their versions, files and differences."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_load, validates_schema

from api import tus
from api.schemas.fields import DIGEST, LINE, NAME, REFERENCE, Flag, ListField, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, dictionary, document, documents, integer, string
from api.schemas.pages import NumberedPageSchema, PageQuery, PageSchema
from common.errors import Invalid

#: A path in a dataset: no control characters, and never empty.
PATH = r"^[^\x00-\x1f\x7f]+$"


class DatasetBriefSchema(Open):
    """Summary of a dataset's version."""

    name = string("Name of the dataset.")
    version = string("Version, counted from 1 per name; null until ready.", allow_none=True)
    state = string("State of the registration.", enum=["registering", "ready", "failed"])
    digest = string("Digest of all file paths and contents; null until it is ready.", allow_none=True)
    tags = array(fields.String(), "Tags that refer to this version.")
    title = string("Title, for display.")
    description = string("Description, for display.")
    registered = boolean("False for datasets of the platform itself.")
    simulator = string("Simulator of its scenarios; null for a dataset of files only.", allow_none=True)
    tasks = integer("Number of scenarios; null if it is unlimited, or if there are none.", allow_none=True)
    reason = string("Why the registration failed; only in the state `failed`.", required=False)
    next_step = string("What to do about it; only in the state `failed`.", required=False)


class DatasetPageSchema(PageSchema):
    """A page of datasets: built-in datasets first, then by name, each at its latest version.

    A name without a ready version is listed with its newest registration, in the state `registering` or `failed`.
    """

    items = documents(DatasetBriefSchema, "The datasets of the page.")


class DatasetSchema(DatasetBriefSchema):
    """A dataset's version, with the model's interface, the metrics and the parameters."""

    interface = dictionary(
        "Observation and action: dtype, shape, and a name, unit and range for each entry; `gymnasium`: the space in"
        " Gymnasium's terms, such as Discrete, whose elements the array has flat. Null for a dataset of files only.",
        allow_none=True,
    )
    metrics = array(
        fields.Dict(),
        "Metrics, each with its unit, formula and source. `never`: the value that says that something never"
        " happened, which is in no statistic.",
    )
    params = dictionary("Parameters that `params` and `sweep` may set, by name.")
    score = dictionary("How the score is computed; null without a score.", allow_none=True)
    failure = dictionary(
        "Outcomes that count as failures: the `metric`, and its values (`in`); none: absent.", required=False
    )
    group_by = array(fields.String(), "Fields of scenarios by which results are grouped.", required=False)
    maps = array(
        fields.Dict(),
        "Maps that were converted, each with its format, the size of its network, the number of its scenarios, what"
        " was `dropped` (`what`, `count`, `examples`) and netconvert's `warnings`.",
        required=False,
    )
    plant = dictionary(
        "The FMU that is the dataset's world: its version of FMI, tool, steps, inputs, and what was declared of it.",
        required=False,
    )
    openenv = dictionary(
        "The dataset's environment: how its observations and actions map to arrays, its `transport`, and whether a"
        " seed decides an episode (`reproducible`).",
        required=False,
    )


class ScenarioPageSchema(NumberedPageSchema):
    """A page of a dataset's scenarios, in order; a scenario on a map says what of the map was `dropped`."""

    items = array(fields.Dict(), "The scenarios of the page, in order, each with its index and parameters.")


class UploadField(Text):
    """Id or address of a finished upload; deserialised to the id."""

    def __init__(self, description: str, *, required: bool = False) -> None:
        super().__init__(longest=2000, required=required, description=f"{description}: its id or its address.")

    def _deserialize(self, value: object, attr: object, data: object, **kwargs: object) -> str:
        reference = str(super()._deserialize(value, attr, data, **kwargs))
        try:
            return tus.upload_id(reference)
        except Invalid as error:
            raise ValidationError(error.detail or "Not the id or address of an upload.") from None


class PlacedUploadSchema(Strict):
    """A file of the dataset whose content is an upload."""

    path = Text(PATH, longest=1024, required=True, description="Path of the file in the dataset.")
    upload = UploadField("A finished upload", required=True)


class ManifestLineSchema(Strict):
    """A file of the dataset whose content is in the platform's object store already, or in a bucket."""

    path = Text(PATH, longest=1024, required=True, description="Path of the file in the dataset.")
    digest = Text(DIGEST, longest=71, required=True, description="`sha256:` and 64 hexadecimal digits.")
    size = Whole(required=True, description="Size in bytes.")
    source = Text(
        LINE, longest=2000, description="`s3://bucket/key`; left out if the platform has the content already."
    )
    connection = Text(NAME, longest=100, description="Connection for the bucket, as named by the operator.")


class ManifestField(ListField):
    """List of files. `{"upload": ...}` is accepted too, as `manifest_upload` is.

    It is documented as a list alone: a client that a generator writes has one type for each member, and that for Java
    does not compile with a list as one of several alternatives.
    """

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        if isinstance(value, dict):
            return ManifestUploadSchema().load(value)
        if isinstance(value, list):
            return super()._deserialize(value, attr, data, **kwargs)
        raise ValidationError("Must be a list of files, or an upload with that list.")


class ManifestUploadSchema(Strict):
    """An upload with a manifest, one JSON object per line."""

    upload = UploadField("A finished upload", required=True)


class SourceSchema(Strict):
    """Source of a version's files: exactly one of `upload`, `uploads`, `s3`, `manifest` and `manifest_upload`.

    A `manifest` or `manifest_upload` may have an `upload` beside it: the lines of the manifest are the files, and the
    archive has those contents that no dataset has yet.
    """

    upload = UploadField("A finished upload of a tar (plain, gzip, bzip2, xz, zstd) or a zip")
    uploads = ListField(
        fields.Nested(PlacedUploadSchema),
        longest=10_000,
        metadata={"minItems": 1, "maxItems": 10_000, "description": "Finished uploads, one per file."},
    )
    s3 = Text(LINE, longest=1500, description="`s3://bucket/prefix`: its objects are read from the bucket, not copied.")
    connection = Text(NAME, longest=100, description="Connection for the bucket, as named by the operator.")
    manifest = ManifestField(
        fields.Nested(ManifestLineSchema),
        shortest=1,
        longest=10_000,
        description="Files whose content is in the platform's object store already, or in a bucket; an object"
        ' `{"upload": ...}` is accepted too, with the meaning of `manifest_upload`.',
    )
    manifest_upload = UploadField("A finished upload that lists such files, a line of JSON for each (NDJSON)")

    @validates_schema
    def _exactly_one_source(self, data: dict[str, object], **kwargs: object) -> None:
        kinds = data.keys() - {"connection"}
        if len(kinds) != 1 and kinds not in ({"manifest", "upload"}, {"manifest_upload", "upload"}):
            raise ValidationError(
                "Exactly one of `upload`, `uploads`, `s3`, `manifest` and `manifest_upload` is required; or a manifest"
                " with an `upload` of the contents that no dataset has yet."
            )
        uploads = data.get("uploads")
        if isinstance(uploads, list) and not 1 <= len(uploads) <= 10_000:
            raise ValidationError("1 to 10,000 files are allowed.", "uploads")

    @post_load
    def _uploaded_manifest(self, data: dict[str, Any], **kwargs: object) -> dict[str, Any]:
        if (id := data.pop("manifest_upload", None)) is not None:
            data["manifest"] = {"upload": id}
        return data


class RegistrationSchema(Strict):
    """Registration of a dataset, or of its next version."""

    name = Text(NAME, longest=100, required=True, description="Name of the dataset.")
    source = document(SourceSchema, "Where the version's files come from.")
    tags = ListField(
        Text(NAME, longest=100), load_default=list, longest=20, description="Tags to set on the new version."
    )


class TagSchema(Strict):
    """The version that a tag refers to."""

    version = Text(REFERENCE, required=True, description="Version number, another tag, or `latest`.")


class FileSchema(Open):
    """A file of a version."""

    path = string("Path in the dataset.")
    size = integer("Size in bytes.")
    digest = string("Digest of the content.")
    source = string("`store` (the platform's object store), or `s3://bucket/key`.")


class FilePageSchema(PageSchema):
    """A page of a version's files, by path."""

    items = documents(FileSchema, "The files of the page, by path.")


class DatasetListQuery(PageQuery):
    """Pagination of the list of datasets."""

    # That of a built-in dataset is not a reference: `~` comes before it.
    after = Text(LINE, longest=200, description="Cursor: the `next` of the previous page.")
    shared = Flag(
        text=True,
        load_default=False,
        description="Only those that other projects share with yours, named `owner/name`.",
    )


class FilePageQuery(PageQuery):
    """Pagination of a version's files."""

    after = Text(PATH, longest=1024, description="Start after this path: the `next` of the last page.")
    limit = Whole(1, 1000, text=True, load_default=100, description="Most files per page.")


class FactsSchema(Open):
    """Size and digest of a file."""

    size = integer("Size in bytes.")
    digest = string("Digest of the content.")


class ChangeSchema(Open):
    """A file that differs between two versions."""

    path = string("Path in the dataset.")
    change = string("Change from the first to the second.", enum=["added", "removed", "changed"])
    to = document(
        FactsSchema, "Size and digest of the file in the second version; null if it was removed.", allow_none=True
    )


class DiffQuery(Strict):
    """The two versions to compare."""

    old = Text(REFERENCE, required=True, data_key="from", description="First version: its number or a tag.")
    new = Text(REFERENCE, load_default="latest", data_key="to", description="Second version: number or tag.")


class PrefetchSchema(Open):
    """Progress of a prefetch into this node's cache."""

    state = string("State of the prefetch.", enum=["fetching", "ready", "failed"])
