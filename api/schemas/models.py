"""Schemas of models."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from api.schemas.fields import (
    CONNECTION,
    NAME,
    REFERENCE,
    SHARED_NAME,
    Binary,
    CommaSeparated,
    Flag,
    ListField,
    Open,
    Strict,
    Text,
)
from api.schemas.members import array, boolean, dictionary, document, documents, integer, moment, string
from api.schemas.pages import PageQuery, PageSchema
from api.schemas.submissions import DryRunSchema
from core.domain.submissions.tags import MOST as MOST_TAGS
from datasets.model_origins.model_references import LONGEST as MODEL_REFERENCE_LENGTH

#: The most datasets that a model is checked with at once.
MOST_CHECKS = 50


class DependenciesSchema(Open):
    """Python packages that a model declares to need."""

    file = string("File of the model, or the format, that declares them.")
    requirements = array(fields.String(), "Requirements, as in a requirements file.")
    python = string("Versions of Python that the model accepts; null: all.", allow_none=True)


class ModelSchema(Open):
    """An immutable model binary, addressed by its content."""

    id = string("Id of the model.")
    name = string("Name, shared by all its versions.")
    version = integer("Version, counted from 1 per name.")
    digest = string("`sha256:` and 64 hexadecimal digits.")
    format = string("Format, detected from the bytes unless the upload named it.")
    size = integer("Size in bytes.")
    filename = string("Name of the uploaded file; null if the upload named none.", allow_none=True)
    runtime = string("Runtime that the upload named; null if it named none.", allow_none=True)
    baseline = boolean(
        "Whether it ships with the platform: submissions may name it, it cannot be changed, it has one version."
    )
    created_at = moment("When it was created.")
    dependencies = document(
        DependenciesSchema,
        "Python packages that it declares to need; its first simulation resolves them to a lock (`GET"
        " /v1/models/{model}/lock`). null: none.",
        allow_none=True,
    )
    source = dictionary(
        "The reference that it was imported by and what that resolved to (`POST /v1/imports`), or the `simulation`,"
        " `task` and `file` whose output it is; null if its bytes were sent.",
        allow_none=True,
    )
    tags = array(fields.String(), "Tags that refer to this version, without `latest`.")


class ModelCheckFields(Strict):
    """What a model is checked with."""

    datasets = fields.List(
        Text(NAME, longest=200),
        load_default=None,
        validate=validate.Length(1, MOST_CHECKS),
        metadata={
            "description": f"Names of datasets, or `name@version`, at most {MOST_CHECKS}; by default the built-in "
            f"datasets and then registered ones, {MOST_CHECKS} in all. Null: as if left out."
        },
    )
    runtime = Text(NAME, longest=100, description="Runtime to run it in, if not that of its format.")
    params = fields.Dict(
        keys=fields.String(), metadata={"description": "Parameters of the simulator, as in a submission."}
    )


class ModelChecksSchema(Open):
    """Which datasets a model fits."""

    items = documents(DryRunSchema, "One check for each dataset.")


class ModelPageSchema(PageSchema):
    """A page of models: uploaded ones, newest first, then those that ship with the platform."""

    items = documents(ModelSchema, "The models of the page.")


class ModelQuery(PageQuery):
    """Filters of the list of models."""

    name = Text(SHARED_NAME, longest=150, description="Only the versions of this name.")
    format = Text(NAME, longest=100, description="Only this format.")
    baseline = Flag(text=True, description="Only the models that ship with the platform; if false, only the others.")
    shared = Flag(
        text=True,
        load_default=False,
        description="Only those that other projects share with yours, named `owner/name`.",
    )


def _tags_as_text() -> CommaSeparated:
    return CommaSeparated(
        longest=MOST_TAGS, description=f"Tags to set on the version, separated by commas; at most {MOST_TAGS}."
    )


def _tags() -> ListField:
    return ListField(Text(NAME, longest=100), longest=MOST_TAGS, description="Tags to set on the version.")


class ModelFields(Strict):
    """Optional properties of an uploaded model."""

    name = Text(NAME, longest=100, description="Name; the file's name if left out.")
    format = Text(NAME, longest=100, description="Format; detected from the bytes if left out.")
    runtime = Text(NAME, longest=100, description="Runtime that the model is meant for.")
    tags: fields.Field[Any] = _tags_as_text()


class ModelPutQuery(Strict):
    """Optional properties of a model that is sent as the body."""

    format = Text(NAME, longest=100, description="Format; detected from the bytes if left out.")
    runtime = Text(NAME, longest=100, description="Runtime that the model is meant for.")
    filename = Text(longest=255, description="Name of the file; helps to distinguish a `.py` file from other text.")
    tags = _tags_as_text()


class ModelForm(ModelFields):
    """A model with optional properties, as a multipart form."""

    file = Binary(required=True, description="The model binary.")


class ModelFromUpload(ModelFields):
    """A model whose bytes were sent before: as a resumable `upload`, or to the URL of a `transfer`."""

    upload = Text(longest=2000, description="Id or address of a finished upload.")
    transfer = Text(longest=100, description="Key of a transfer whose PUT has finished.")
    filename = Text(longest=255, description="Name of the file; the upload's `filename` if left out.")
    digest = Text(r"^sha256:[0-9a-f]{64}$", description="Digest that the bytes must have.")
    tags = _tags()

    @validates_schema
    def exactly_one_source(self, data: Mapping[str, Any], **_: Any) -> None:
        """Require exactly one of `upload` and `transfer`."""
        if ("upload" in data) == ("transfer" in data):
            raise ValidationError("Exactly one of `upload` and `transfer` is required.")


class ImportRequest(ModelFields):
    """A model to import by reference."""

    model_reference = Text(longest=MODEL_REFERENCE_LENGTH, required=True, description="The model where it is.")
    connection = Text(
        CONNECTION,
        longest=63,
        description="Connection of the operator by which it is read; may be left out where only one is possible.",
    )
    filename = Text(longest=255, description="Name of the file; the reference's if left out.")
    digest = Text(r"^sha256:[0-9a-f]{64}$", description="Digest that the bytes must have.")
    tags = _tags()


class ModelTagSchema(Strict):
    """The version that a tag of a model refers to."""

    version = Text(REFERENCE, required=True, description="Version number, another tag, `latest`, or a digest.")


class ImportSchema(Open):
    """The import of a model by reference."""

    id = string("Id of the import.")
    state = string("State of the import.", enum=["fetching", "ready", "failed"])
    model_reference = string("The reference as it was requested.")
    connection = string("Connection by which it is read; null for an address that needs none.", allow_none=True)
    reason = string("Why it failed, or is tried again later; null otherwise.", allow_none=True)
    bytes = integer("Bytes read so far.")
    model = string("Id of the model; null until it is ready.", allow_none=True)
    digest = string("Digest of the model; null until it is ready.", allow_none=True)
    source = dictionary("What the reference resolved to; null until it is ready.", allow_none=True)
    created_at = moment("When it was requested.")
    ended_at = moment("When it was ready or had failed; null before.", allow_none=True)
