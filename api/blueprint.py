"""How a view is declared: what it takes, what it answers, how it fails; the same line serves and documents it."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import cleandoc, signature
from typing import Any, TypeVar

import flask_smorest
import msgspec
from flask import Flask, Response
from flask.views import MethodView
from marshmallow import Schema
from webargs.flaskparser import FlaskParser
from werkzeug.routing import BaseConverter

from api import problem_responses, problems
from api.schemas.problems import ProblemSchema
from errors import BadRequest, Forbidden, Invalid, Misdirected, NotFound, PlatformError, Unauthorized

View = Callable[..., Any]
Class = TypeVar("Class", bound=type[MethodView])

#: What the gate may say to any request at all.
GUARD_ERRORS: tuple[type[PlatformError], ...] = (BadRequest, Unauthorized, Forbidden, Misdirected)
#: Schemas that are marshmallow's, plain OpenAPI fragments, or None for an empty body.
Content = type[Schema] | Schema | Mapping[str, Any] | None

#: What flask-smorest calls the answer to arguments that do not hold what they should.
UNREADABLE = "UNPROCESSABLE_ENTITY"
METHODS = frozenset({"get", "head", "put", "post", "patch", "delete", "options"})
BINARY: Mapping[str, Any] = {"type": "string", "format": "binary"}
TEXT: Mapping[str, Any] = {"type": "string"}
#: A server-sent event; ``data`` is JSON.
EVENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
}


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON."""
    body = msgspec.json.encode(document, enc_hook=str)
    return Response(body, status, headers=headers, content_type="application/json")


def nothing(status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Answer without a body, and so without saying of which type it is."""
    response = Response(status=status, headers=headers)
    del response.headers["Content-Type"]
    return response


def header(description: str, **schema: Any) -> Mapping[str, Any]:
    """Document a header of an answer."""
    return {"description": description, "schema": {"type": "string"} | schema}


def refusals(kinds: Iterable[type[PlatformError]], *, named_by_path: bool = False) -> dict[str, Any]:
    """Document the problems an operation may answer with, by status."""
    documented = {}
    for status, group in problems.by_status(kinds, named_by_path=named_by_path).items():
        lines = [f"`{kind.slug}`: {kind.__doc__}" for kind in group]
        documented[str(status)] = {
            "description": "\n\n".join(lines),
            "content": {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return documented


class Arguments(FlaskParser):
    """Reads queries and headers; what it does not know in a query is refused, for a misspelt filter is a silent one."""

    DEFAULT_UNKNOWN_BY_LOCATION = FlaskParser.DEFAULT_UNKNOWN_BY_LOCATION | {"query": "raise", "headers": "exclude"}


class Blueprint(flask_smorest.Blueprint):  # type: ignore[misc]  # flask-smorest has no types
    """A blueprint whose declarations are typed, and complete enough to generate a client from."""

    ARGUMENTS_PARSER = Arguments()

    def at(self, rule: str) -> Callable[[Class], Class]:
        """Put a class of views at an address."""
        return self.route(rule)  # type: ignore[no-any-return]

    def takes(self, schema: type[Schema], location: str = "query") -> Callable[[View], View]:
        """Read arguments from the query or the headers; the view gets them as one mapping, in order."""
        return self.arguments(schema(), location=location)  # type: ignore[no-any-return]

    def operation(
        self,
        name: str,
        answers: Content = None,
        *,
        status: int = 200,
        description: str = "",
        headers: Mapping[str, Any] | None = None,
        media: Mapping[str, Content] | None = None,
        also: Mapping[int, Mapping[str, Any]] | None = None,
        leads: Mapping[str, Mapping[str, str]] | None = None,
        fails: Iterable[type[PlatformError]] = (),
        body: Mapping[str, Content] | None = None,
        body_required: bool = True,
        plain: bool = False,
    ) -> Callable[[View], View]:
        """Declare an operation: ``answers`` as JSON (or ``media`` types), ``also`` other answers, ``fails`` problems.

        ``leads`` says which operations an answer leads to, with the parameters it gives them.
        A view returns a Response of its own, or a value, which ``answers`` serialises unless it is ``plain`` JSON.
        """
        types = dict(media or {}) or ({"application/json": answers} if answers is not None else {})
        good: dict[str, Any] = {"description": description or "Done."}
        if types:
            good["content"] = {media_type: {"schema": schema} for media_type, schema in types.items()}
        if headers:
            good["headers"] = headers
        if leads:
            good["links"] = {name: {"operationId": name, "parameters": given} for name, given in leads.items()}
        responses = {str(status): good} | {str(code): given for code, given in (also or {}).items()}
        kinds = {*GUARD_ERRORS, *fails}
        documented: dict[str, Any] = {"operationId": name}
        if body:
            given = {media_type: {"schema": schema} for media_type, schema in body.items()}
            documented["requestBody"] = {"required": body_required, "content": given}
        serialise = answers() if isinstance(answers, type) else answers

        def declare(view: View) -> View:
            @wraps(view)
            def answer(*args: Any, **kwargs: Any) -> Response:
                given = view(*args, **kwargs)
                if isinstance(given, Response):
                    return given
                if given is None:
                    return nothing(status)
                return reply(serialise.dump(given) if isinstance(serialise, Schema) and not plain else given, status)

            named = problems.is_named_by_path(view.__name__, signature(view).parameters)
            refused = refusals(kinds, named_by_path=named)
            return self.doc(**documented, responses=responses | refused)(answer)  # type: ignore[no-any-return]

        return declare


class Api(flask_smorest.Api):  # type: ignore[misc]  # flask-smorest has no types
    """flask-smorest's document, our problems."""

    DEFAULT_ERROR_RESPONSE_NAME = None

    def __init__(self, app: Flask, converters: Mapping[type[BaseConverter], Mapping[str, Any]]) -> None:
        super().__init__(app)
        for converter, schema in converters.items():
            self.register_converter(converter, lambda _, schema=schema: dict(schema))

    def _register_error_handlers(self) -> None:
        problem_responses.register(self._app)

    def _register_responses(self) -> None:
        self.spec.components.schema("Problem", schema=ProblemSchema)
        self.spec.components.response(UNREADABLE, refusals([Invalid])["422"])

    def _register_etag_headers(self) -> None:
        """Document none of flask-smorest's own headers."""

    def _register_pagination_header(self) -> None:
        """Document none of flask-smorest's own headers."""

    def serve(self, blueprint: flask_smorest.Blueprint) -> None:
        """Register a blueprint's routes without describing them."""
        self._app.extensions["flask-smorest"]["blp_name_to_api"][blueprint.name] = self
        self._app.register_blueprint(blueprint)

    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document: schemas described by their classes, repeated refusals named once."""
        document: dict[str, Any] = self.spec.to_dict()
        components = document["components"]
        for key, name in self.ma_plugin.converter.refs.items():
            schema = components["schemas"][name]
            schema.setdefault("description", cleandoc(key[0].__doc__ or ""))
            if schema.get("additionalProperties") is True:
                del schema["additionalProperties"]  # that is the default
        operations = [
            operation for path in document["paths"].values() for method, operation in path.items() if method in METHODS
        ]
        shared = {kind.slug: refusals([kind])[str(problems.status_of(kind))] for kind in problems.catalogue().values()}
        for path, methods in document["paths"].items():
            if "{" in path:  # also where nothing is looked up: a name of another shape is no address
                for method in METHODS & methods.keys():
                    methods[method]["responses"].setdefault("404", shared[NotFound.slug])
        for operation in operations:
            for status, response in operation["responses"].items():
                if response == {"$ref": f"#/components/responses/{UNREADABLE}"}:
                    response = shared[Invalid.slug]
                given = {"description": response.get("description"), "content": response.get("content")}
                for slug, known in shared.items():
                    if given["description"] == known["description"]:
                        components.setdefault("responses", {})[slug] = given
                        operation["responses"][status] = {"$ref": f"#/components/responses/{slug}"}
            operation["responses"] = dict(sorted(operation["responses"].items()))
        components["responses"].pop(UNREADABLE)
        for group in components:
            components[group] = dict(sorted(components[group].items()))
        return document
