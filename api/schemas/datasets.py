"""Datasets on the wire: built-in and registered, their versions, files and differences."""

from marshmallow import ValidationError, fields, validates_schema

from api import tus
from api.schemas.fields import LINE, NAME, REFERENCE, Open, Strict, Text, Whole
from api.schemas.pages import NumberedPageSchema, PageQuery, PageSchema
from errors import Invalid

#: A path in a dataset: no control characters, and never empty.
PATH = r"^[^\x00-\x1f\x7f]+$"
TAG = NAME
DIGEST = r"^sha256:[0-9a-f]{64}$"


class DatasetBriefSchema(Open):
    """A version of a dataset, in short."""

    name = fields.String(required=True)
    version = fields.String(
        required=True, allow_none=True, metadata={"description": "Counts from 1 within the name; null until ready."}
    )
    state = fields.String(required=True, metadata={"enum": ["registering", "ready", "failed"]})
    digest = fields.String(required=True, allow_none=True, metadata={"description": "Of all its files and names."})
    tags = fields.List(fields.String(), required=True)
    title = fields.String(required=True)
    description = fields.String(required=True)
    registered = fields.Boolean(required=True, metadata={"description": "False where it ships with the platform."})
    simulator = fields.String(
        required=True, allow_none=True, metadata={"description": "Null where it holds files, not scenarios."}
    )
    tasks = fields.Integer(
        required=True,
        allow_none=True,
        metadata={"description": "Scenarios; null where any number can be had, or none."},
    )


class DatasetPageSchema(PageSchema):
    """Datasets by name, the built-in ones first, each at its latest version."""

    items = fields.List(fields.Nested(DatasetBriefSchema), required=True)


class DatasetSchema(DatasetBriefSchema):
    """A dataset's version with what a model sees and answers in it, its metrics and its parameters."""

    interface = fields.Dict(
        required=True,
        allow_none=True,
        metadata={"description": "Observation and action: dtype, shape, and a name, unit and range for each entry."},
    )
    metrics = fields.List(fields.Dict(), required=True, metadata={"description": "Each with its formula and source."})
    params = fields.Dict(required=True, metadata={"description": "What `params` and `sweep` may set, by name."})
    score = fields.Dict(required=True, allow_none=True)


class ScenarioPageSchema(NumberedPageSchema):
    """Scenarios of a dataset, in order."""

    items = fields.List(fields.Dict(), required=True)


class UploadField(Text):
    """A finished upload: its id or its address; the id is what is loaded."""

    def __init__(self, description: str, *, required: bool = False) -> None:
        metadata = {"description": f"{description}: its id or its address."}
        super().__init__(longest=2000, required=required, metadata=metadata)

    def _deserialize(self, value: object, attr: object, data: object, **kwargs: object) -> str:
        said = str(super()._deserialize(value, attr, data, **kwargs))
        try:
            return tus.upload_id(said)
        except Invalid as error:
            raise ValidationError(error.detail or "This is no upload.") from None


class PlacedUploadSchema(Strict):
    """A file that is an upload."""

    path = Text(PATH, longest=1024, required=True)
    upload = UploadField("A finished upload", required=True)


class ManifestLineSchema(Strict):
    """A file whose content is here already, or lies in a bucket."""

    path = Text(PATH, longest=1024, required=True)
    digest = Text(DIGEST, longest=71, required=True)
    size = Whole(required=True)
    source = Text(LINE, longest=2000, metadata={"description": "`s3://bucket/key`, where it is not here."})
    connection = Text(NAME, longest=100)


class ManifestField(fields.Field):  # type: ignore[type-arg]
    """Lines, or an upload that holds them."""

    def _deserialize(self, value: object, attr: object, data: object, **kwargs: object) -> object:
        if isinstance(value, dict):
            return ManifestUploadSchema().load(value)
        if isinstance(value, list):
            return ManifestLineSchema(many=True).load(value)
        raise ValidationError("A list of files, or an upload that holds them.")


class ManifestUploadSchema(Strict):
    """An upload that holds a manifest, one JSON object a line."""

    upload = UploadField("A finished upload", required=True)


class SourceSchema(Strict):
    """What a version is made of: exactly one of `upload`, `uploads`, `s3` and `manifest`."""

    upload = UploadField("A finished upload of a tar (plain, gzip, bzip2, xz, zstd) or a zip")
    uploads = fields.List(fields.Nested(PlacedUploadSchema), metadata={"minItems": 1, "maxItems": 10_000})
    s3 = Text(
        LINE,
        longest=1500,
        metadata={"description": "`s3://bucket/prefix`: noted where it lies.", "example": "s3://drives/2026/"},
    )
    connection = Text(NAME, longest=100, metadata={"description": "How the bucket is reached; an operator named it."})
    manifest = ManifestField(
        metadata={
            "oneOf": [
                {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": 10_000},
                {"type": "object", "properties": {"upload": {"type": "string"}}, "required": ["upload"]},
            ],
            "description": "Files by path, digest and size (and source), or an upload that lists them as NDJSON.",
        }
    )

    @validates_schema
    def _one_of_them(self, data: dict[str, object], **kwargs: object) -> None:
        if len(data.keys() - {"connection"}) != 1:
            raise ValidationError("Exactly one of `upload`, `uploads`, `s3` and `manifest`.")
        uploads = data.get("uploads")
        if isinstance(uploads, list) and not 1 <= len(uploads) <= 10_000:
            raise ValidationError("1 to 10,000 files.", "uploads")


class RegistrationSchema(Strict):
    """What is to be registered, and as what."""

    name = Text(NAME, longest=100, required=True)
    source = fields.Nested(SourceSchema, required=True)
    tags = fields.List(Text(TAG, longest=100), load_default=list, metadata={"maxItems": 20})


class TagSchema(Strict):
    """Which version a tag means."""

    version = Text(REFERENCE, required=True, metadata={"description": "Its number, another tag, or `latest`."})


class FileSchema(Open):
    """A file of a version."""

    path = fields.String(required=True)
    size = fields.Integer(required=True, metadata={"description": "Bytes."})
    digest = fields.String(required=True)
    source = fields.String(required=True, metadata={"description": "`store`, or where in a bucket it lies."})


class FilePageSchema(PageSchema):
    """Files of a version, by path."""

    items = fields.List(fields.Nested(FileSchema), required=True)


class FilePageQuery(PageQuery):
    """Which part of the files is meant."""

    after = Text(PATH, longest=1024, metadata={"description": "Begin behind this path."})
    limit = Whole(1, 1000, text=True, load_default=100, metadata={"description": "At most this many."})


class FactsSchema(Open):
    """What a file is."""

    size = fields.Integer(required=True)
    digest = fields.String(required=True)


class ChangeSchema(Open):
    """A file that two versions do not have alike."""

    path = fields.String(required=True)
    change = fields.String(required=True, metadata={"enum": ["added", "removed", "changed"]})
    to = fields.Nested(FactsSchema, required=True, allow_none=True)


class DiffQuery(Strict):
    """Which two versions are compared."""

    old = Text(REFERENCE, required=True, data_key="from", metadata={"description": "A version's number or a tag."})
    new = Text(REFERENCE, load_default="latest", data_key="to", metadata={"description": "The like."})


class PrefetchSchema(Open):
    """How far a version is on its way to this node."""

    state = fields.String(required=True, metadata={"enum": ["fetching", "ready", "failed"]})
