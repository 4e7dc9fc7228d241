"""Views and their OpenAPI operations: one declaration serves requests and documents arguments, responses and errors."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc, signature
from typing import Any, Literal

import flask_smorest
import msgspec
from flask import Flask, Response
from marshmallow import Schema
from webargs.flaskparser import FlaskParser
from werkzeug.routing import BaseConverter

from api import problem_responses, problems
from api.context import caller
from api.examples import add_examples
from api.path_parameters import describe_path_parameters
from api.schemas.problems import ProblemSchema
from common.errors import (
    BadRequest,
    Forbidden,
    Invalid,
    Misdirected,
    NotFound,
    NotPermitted,
    PlatformError,
    ProjectRequired,
    TooLarge,
    TooManyGuesses,
    TooManyRequests,
    Unauthorized,
    UnknownProject,
)
from core.domain.access.roles import Verb

View = Callable[..., Any]

#: Methods whose operations read, unless they declare another verb.
READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Verb of operations whose method is one of these; others declare theirs.
BY_METHOD: Mapping[str, Verb] = dict.fromkeys(READING_METHODS, Verb.READ)

#: Errors of the request guard: any operation may answer with them.
GUARD_ERRORS: tuple[type[PlatformError], ...] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    Misdirected,
    NotPermitted,
    ProjectRequired,
    TooManyGuesses,
    TooManyRequests,
    UnknownProject,
)
#: Content of a body: a marshmallow schema, an OpenAPI schema, or None for an empty body.
Content = type[Schema] | Schema | Mapping[str, Any] | None
#: Name of flask-smorest's response for invalid arguments.
INVALID_ARGUMENTS = "UNPROCESSABLE_ENTITY"
METHODS = frozenset({"get", "head", "put", "post", "patch", "delete", "options"})
BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}
TEXT: Mapping[str, Any] = {"type": "string"}
#: Schema of a problem.
PROBLEM: Mapping[str, Any] = {"$ref": "#/components/schemas/Problem"}
#: Schemas of the lines of NDJSON; OpenAPI 3.1 cannot attach them to a response.
LINE_SCHEMAS: set[type[Schema]] = set()


def lines_of(schema: type[Schema]) -> Mapping[str, Any]:
    """Return the OpenAPI schema of NDJSON whose lines have a schema, which the document then has as a component.

    The content is declared as bytes: generated clients refuse to decode a content type that they do not know.
    """
    LINE_SCHEMAS.add(schema)
    name = schema.__name__.removesuffix("Schema")
    return {**BINARY, "description": f"Lines of JSON, each a `{name}`."}


def needs(verb: Verb | None) -> Callable[[View], View]:
    """Let a view be called only by who may do this; None: by anybody. `Blueprint.operation` does it of itself."""

    def declare(view: View) -> View:
        @wraps(view)
        def respond(*args: object, **kwargs: object) -> object:
            if verb is not None:
                caller().require(verb)
            return view(*args, **kwargs)

        respond.verb = verb  # type: ignore[attr-defined]
        return respond

    return declare


def check_verbs(app: Flask) -> None:
    """Raise TypeError for a route that does not say what it needs: it would be open to everybody."""
    if missing := [name for name, view in app.view_functions.items() if not hasattr(view, "verb")]:
        raise TypeError(f"these views have no verb (api.blueprint.needs): {', '.join(missing)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Success:
    """Success response of an operation.

    ``schema`` is the content as JSON; ``media`` has the content by media type instead. ``links`` maps operations that a
    client may call next to the parameters that this response has for them. A ``plain`` value of a view is encoded as
    JSON as it is, without ``schema``.
    """

    schema: Content = None
    status: int = 200
    description: str = "Done."
    headers: Mapping[str, Any] | None = None
    media: Mapping[str, Content] | None = None
    links: Mapping[str, Mapping[str, str]] | None = None
    plain: bool = False

    def documented(self) -> dict[str, Any]:
        """Return the OpenAPI object of this response."""
        contents = dict(self.media or {})
        if not contents and self.schema is not None:
            contents = {"application/json": self.schema}
        document: dict[str, Any] = {"description": self.description}
        if contents:
            document["content"] = {media_type: {"schema": schema} for media_type, schema in contents.items()}
        if self.headers:
            document["headers"] = self.headers
        if self.links:
            document["links"] = {
                operation: {"operationId": operation, "parameters": parameters}
                for operation, parameters in self.links.items()
            }
        return document

    def serializer(self) -> Callable[[Any], Any]:
        """Return the function that turns a view's value into a JSON document."""
        schema = self.schema() if isinstance(self.schema, type) else self.schema
        if isinstance(schema, Schema) and not self.plain:
            return schema.dump
        return lambda value: value


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    body = msgspec.json.encode(document, enc_hook=str)
    return Response(body, status, headers=headers, content_type="application/json")


def empty_response(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response without a body and without a Content-Type."""
    response = Response(status=status, headers=headers)
    del response.headers["Content-Type"]
    return response


def header(description: str, **schema: Any) -> Mapping[str, Any]:
    """Return the OpenAPI object of a response header."""
    return {"description": description, "schema": {"type": "string"} | schema}


def problem_documents(
    error_classes: Iterable[type[PlatformError]], *, named: Collection[type[PlatformError]] = ()
) -> dict[str, dict[str, Any]]:
    """Return the OpenAPI objects of the problem responses of an operation, by HTTP status."""
    documents = {}
    for status, group in problems.by_status(error_classes, named=named).items():
        lines = [f"`{error_class.slug}`: {error_class.__doc__}" for error_class in group]
        documents[str(status)] = {
            "description": "\n\n".join(lines),
            "content": {problems.MEDIA_TYPE: {"schema": PROBLEM}},
        }
    return documents


class ArgumentsParser(FlaskParser):
    """Parses queries and headers. Refuses unknown query parameters: a misspelt filter would be ignored silently."""

    DEFAULT_UNKNOWN_BY_LOCATION = FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION | {"query": "raise", "headers": "exclude"}


class Blueprint(flask_smorest.Blueprint):  # type: ignore[misc]  # flask-smorest has no types
    """Typed blueprint of flask-smorest whose declarations are complete enough to generate a client from."""

    ARGUMENTS_PARSER = ArgumentsParser()

    def takes(self, schema: type[Schema], location: str = "query") -> Callable[[View], View]:
        """Parse arguments from the query or the headers; each declaration passes one mapping to the view, in order."""
        return self.arguments(schema(), location=location)  # type: ignore[no-any-return]

    def operation(
        self,
        route: str,
        success: Success,
        *,
        other_responses: Mapping[int, Mapping[str, Any]] | None = None,
        errors: Iterable[type[PlatformError]] = (),
        body: Mapping[str, Content] | None = None,
        body_required: bool = True,
        verb: Verb | Literal["by method"] | None = "by method",
    ) -> Callable[[View], View]:
        """Route requests to a view, and declare its OpenAPI operation, whose id is the view's name.

        ``route``: the method, and the URL rule below the blueprint's: `GET /<id:id>`. Of one rule, a view of HEAD or
        OPTIONS is declared before others, which answer these methods too. A view returns a Response, or a value for
        ``success``. ``verb``: what the caller must be allowed (core/domain/access/roles.py); None: anybody may.
        """
        method, _, rule = route.partition(" ")
        needed = BY_METHOD[method] if verb == "by method" else verb
        responses = {str(status): document for status, document in (other_responses or {}).items()}
        responses = {str(success.status): success.documented()} | responses
        error_classes = {*GUARD_ERRORS, *errors}
        if body and "application/json" in body:
            error_classes.add(TooLarge)  # of every JSON text: too many bytes or values
        operation: dict[str, Any] = {}
        if body:
            contents = {media_type: {"schema": schema} for media_type, schema in body.items()}
            operation["requestBody"] = {"required": body_required, "content": contents}

        serialize = success.serializer()

        def declare(view: View) -> View:
            @needs(needed)
            @wraps(view)
            def respond(*args: object, **kwargs: object) -> Response:
                value = view(*args, **kwargs)
                if isinstance(value, Response):
                    return value
                return (
                    empty_response(success.status) if value is None else json_response(serialize(value), success.status)
                )

            respond.media = frozenset(success.media or ())  # type: ignore[attr-defined]
            named = problems.named_by_path(method, signature(view).parameters)
            document = {"operationId": view.__name__, **operation}
            document["responses"] = responses | problem_documents(error_classes, named=named)
            return self.route(rule, methods=[method])(self.doc(**document)(respond))  # type: ignore[no-any-return]

        return declare


class Api(flask_smorest.Api):  # type: ignore[misc]  # flask-smorest has no types
    """API of flask-smorest that answers errors with problems of this platform."""

    DEFAULT_ERROR_RESPONSE_NAME = None

    def __init__(self, app: Flask, converters: Mapping[type[BaseConverter], Mapping[str, Any]]) -> None:
        super().__init__(app)
        self.ma_plugin.converter.add_attribute_function(_or_text)
        for converter, schema in converters.items():
            self.register_converter(converter, lambda _, schema=schema: dict(schema))

    def _register_error_handlers(self) -> None:
        problem_responses.register(self._app)

    def _register_responses(self) -> None:
        self.spec.components.schema("Problem", schema=ProblemSchema)
        for schema in sorted(LINE_SCHEMAS, key=lambda schema: schema.__name__):
            self.spec.components.schema(schema.__name__.removesuffix("Schema"), schema=schema)
        self.spec.components.response(INVALID_ARGUMENTS, problem_documents([Invalid])["422"])

    def _register_etag_headers(self) -> None:
        """Leave out flask-smorest's own headers."""

    def _register_pagination_header(self) -> None:
        """Leave out flask-smorest's own headers."""

    def serve(self, blueprint: flask_smorest.Blueprint) -> None:
        """Register a blueprint's routes without their OpenAPI operations."""
        self._app.extensions["flask-smorest"]["blp_name_to_api"][blueprint.name] = self
        self._app.register_blueprint(blueprint)

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document; schemas have the docstrings of their classes, equal problem responses a name."""
        document: dict[str, Any] = self.spec.to_dict()
        components = document["components"]
        for key, name in self.ma_plugin.converter.refs.items():
            schema = components["schemas"][name]
            schema.setdefault("description", cleandoc(key[0].__doc__ or ""))
        operations = [
            operation for path in document["paths"].values() for method, operation in path.items() if method in METHODS
        ]
        shared = {
            slug: problem_documents([error_class])[str(problems.status_of(error_class))]
            for slug, error_class in problems.catalogue().items()
        }
        for path, methods in document["paths"].items():
            if "{" in path:  # a parameter that does not match its pattern is a 404 too
                methods["parameters"] = methods.pop("parameters")  # below the operations
                for method in METHODS & methods.keys():
                    methods[method]["responses"].setdefault("404", shared[NotFound.slug])
        answers: list[dict[str, object]] = []
        for operation in operations:
            responses = operation["responses"]
            for status, response in responses.items():
                if response == {"$ref": f"#/components/responses/{INVALID_ARGUMENTS}"}:
                    response = shared[Invalid.slug]
                component = {"description": response.get("description"), "content": response.get("content")}
                for slug, problem in shared.items():
                    if component["description"] == problem["description"]:
                        example = {"schema": PROBLEM, "example": problems.described(slug)}
                        components.setdefault("responses", {})[slug] = component | {
                            "content": {problems.MEDIA_TYPE: example}
                        }
                        responses[status] = {"$ref": f"#/components/responses/{slug}"}
            operation["responses"] = responses = dict(sorted(responses.items()))
            answers.append(responses)
            add_examples(operation)
        share_problems(answers, named := components["responses"])
        named.pop(INVALID_ARGUMENTS)
        for group in components:
            components[group] = dict(sorted(components[group].items()))
        describe_path_parameters(document["paths"])
        declare_number_widths(document)
        return document


class _DocumentedResponse(msgspec.Struct):
    """A response of an OpenAPI operation, as far as it is read."""

    description: str = ""
    content: dict[str, object] = {}


def share_problems(answers: Sequence[dict[str, object]], components: dict[str, object]) -> None:
    """Give a response that stands for several problems, and that several operations have, the name of these."""
    read = [
        {status: msgspec.convert(response, _DocumentedResponse) for status, response in each.items()}
        for each in answers
    ]
    problematic = [one for each in read for one in each.values() if problems.MEDIA_TYPE in one.content]
    texts = Counter(one.description for one in problematic)
    for responses, described in zip(answers, read, strict=True):
        for status, one in described.items():
            if texts[one.description] > 1:
                name = "-or-".join(re.findall(r"^`([a-z0-9-]+)`:", one.description, re.MULTILINE))
                components[name] = responses[status]
                responses[status] = {"$ref": f"#/components/responses/{name}"}


def _or_text(converter: Any, field: Any, ret: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the schema of a field that is an object, or a text (`TEXT`): a component of its class's name."""
    text = getattr(field, "TEXT", None)
    if text is None:
        return {}
    name = type(field).__name__
    components = converter.spec.components
    if name not in components.schemas:
        alternatives = [ret["anyOf"][0], dict(text)]
        components.schema(name, {"description": cleandoc(type(field).__doc__ or ""), "anyOf": alternatives})
    return {"anyOf": [{"$ref": f"#/components/schemas/{name}"}, *ret["anyOf"][1:]]}


#: Formats of numbers without a format: generators would use 32 bits for integers, and Go's also for other numbers.
NUMBER_FORMATS = {"integer": "int64", "number": "double"}


def declare_number_widths(node: Any) -> None:
    """Add a format of 64 bits to every number of an OpenAPI document.

    Sizes, offsets and numbers of events need more than 32; no integer exceeds 2^53 - 1.
    """
    if isinstance(node, dict):
        types = node.get("type")
        for kind, format in NUMBER_FORMATS.items():
            if types == kind or (isinstance(types, list) and kind in types):
                node.setdefault("format", format)
        for key, value in node.items():
            if key not in {"example", "examples", "default", "enum"}:  # values, not schemas
                declare_number_widths(value)
    elif isinstance(node, list):
        for value in node:
            declare_number_widths(value)
