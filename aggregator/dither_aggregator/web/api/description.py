"""Operations of the API as Flask routes and as an OpenAPI document, out of the same declarations.

Parameters are checked by the schemas that describe them. flask-smorest writes the document, when somebody asks for it:
that takes longer than all else that an application is made of. It has no types: the parts that are used are here.
"""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import flask_smorest
import msgspec
from flask import Blueprint, Flask, Response, request
from marshmallow import RAISE, Schema, fields

from dither_aggregator.analysis.estimands import ESTIMANDS
from dither_aggregator.store import Store
from dither_aggregator.web.api.documents import Described, ProblemDocument
from dither_aggregator.web.api.rowsets import CSV, JSON, RowSet, respond
from dither_aggregator.web.api.uploads import ADMIN_KEY, READ_KEY, SECURITY, UPLOADS
from dither_aggregator.web.problems import API, CONTENT_TYPE, DOCUMENT
from dither_aggregator.web.query_parameters import PARSER, Parameters, query_parameters, seen
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

NAME = "api"
"""Endpoints are called after it: `api.estimates`."""
OPENAPI = "3.1.0"
CHECKED: dict[str, Any] = {"location": "query", "error_status_code": 400, "unknown": RAISE}
"""How parameters are checked, by what is served and by what describes it."""


@dataclass(frozen=True)
class Operation:
    """A method of an address. Its endpoint has the name of the function that answers it."""

    address: str
    answer: Callable[..., RowSet | Response]
    """Called with the store, what was asked, and what the address names."""
    says: str
    """The answer, in a few words."""
    asked: type[Parameters]
    meta: type[Schema] | None = None
    """The `meta` of the rows that it returns; None where it returns something else."""
    row: type[Schema] | None = None
    method: str = "GET"
    body: type[Schema] | None = None

    @property
    def changes(self) -> bool:
        """Whether it needs an admin key."""
        return self.address.startswith("/admin/")

    @property
    def name(self) -> str:
        """The function's name."""
        return self.answer.__name__


def register(app: Flask, store: Store, operations: Sequence[Operation], answered: Collection[Operation]) -> None:
    """Add operations to an application, with the document that describes them. Some may be answered elsewhere."""
    blueprint, described = Blueprint(NAME, __name__, url_prefix=API.rstrip("/")), tuple(operations)
    for operation in described:
        view = _view(operation, store if operation in answered else None)
        checked = PARSER.use_args(operation.asked, **CHECKED)(view)
        blueprint.add_url_rule(operation.address, operation.name, checked, methods=[operation.method])
    app.register_blueprint(blueprint)

    @app.get(DOCUMENT)
    def openapi() -> Response:
        query_parameters(Parameters)
        servers = [{"url": request.script_root or "/"}]
        document = _with_estimands(_document(described))
        return Response(msgspec.json.encode({**document, "servers": servers}), content_type=JSON)


@cache
def _document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """Return the OpenAPI document of operations, but for where the server is.

    The routes that flask-smorest wants for it answer nobody.
    """
    app = Flask(__name__)
    api, blueprint = flask_smorest.Api(), flask_smorest.Blueprint(NAME, __name__, url_prefix=API.rstrip("/"))
    blueprint.ARGUMENTS_PARSER = PARSER
    api.DEFAULT_ERROR_RESPONSE_NAME = None  # ours are problem documents
    api.init_app(app, spec_kwargs={"title": "dither", "version": version("dither"), "openapi_version": OPENAPI})
    for operation in operations:
        blueprint.route(operation.address, methods=[operation.method], endpoint=operation.name)(
            _described(blueprint, operation, _view(operation, None))
        )
    api.register_blueprint(blueprint)
    described: dict[str, Any] = api.spec.to_dict()
    described["paths"][PATH] = UPLOADS
    described["components"]["securitySchemes"] = SECURITY
    for unused in ("Error", "PaginationMetadata"):  # flask-smorest's own, to which nothing refers
        described["components"]["schemas"].pop(unused)
    return described


def _with_estimands(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the members of rows and `meta` that estimands describe themselves."""
    own = [estimand for estimand in ESTIMANDS.values() if estimand.column_schemas or estimand.meta_schemas]
    if not own:
        return document
    schemas = (document := deepcopy(document))["components"]["schemas"]
    for estimand in own:
        schemas["EstimateRow"]["properties"].update(estimand.column_schemas)
        schemas["EstimatesMeta"]["properties"].update(estimand.meta_schemas)
    return document


def _view(operation: Operation, store: Store | None) -> Callable[..., Response]:
    def view(asked: dict[str, Any], **named: str) -> Response:
        if store is None:
            raise Problem("not-found", "this is answered by another process")
        if "bom" in asked and asked["format"] != "csv":
            raise Problem("malformed", "bom goes with format=csv")
        answer = operation.answer(store if operation.changes else seen(store), asked, **named)
        return respond(answer, asked) if isinstance(answer, RowSet) else answer

    return view


def _described(blueprint: Any, operation: Operation, view: Callable[..., Response]) -> Any:
    """Return a view that says of itself what flask-smorest writes of it."""
    if operation.meta and operation.row:
        answers: Any = _envelope(operation, operation.meta, operation.row)
        view = blueprint.alt_response(
            200, schema={"type": "string"}, content_type=CSV.partition(";")[0], description=operation.says, success=True
        )(view)
    else:
        answers = {"type": "object"}
    view = blueprint.response(200, answers, description=operation.says)(view)
    being_computed = "it is being computed, or could not be; ask again after Retry-After, also when too many ask"
    for status, says in (
        (400, "a parameter is wrong, unknown, given twice, or at odds with another"),
        *(() if operation.changes else ((503, being_computed),)),
        ("default", "a refusal"),
    ):
        view = blueprint.alt_response(status, schema=ProblemDocument, content_type=CONTENT_TYPE, description=says)(view)
    view = blueprint.doc(security=ADMIN_KEY if operation.changes else READ_KEY)(view)
    if operation.body:
        body = {"content": {JSON: {"schema": operation.body}}, "required": True}
        view = blueprint.doc(requestBody=body)(view)
    view = blueprint.doc(summary=operation.says, operationId=operation.name)(view)
    return blueprint.arguments(operation.asked, **CHECKED)(view)


def _envelope(operation: Operation, meta: type[Schema], row: type[Schema]) -> type[Schema]:
    """Return the schema of {"meta": ..., "rows": [...]}."""
    members = {"meta": fields.Nested(meta, required=True), "rows": fields.List(fields.Nested(row), required=True)}
    return type(operation.name.title().replace("_", "") + "Answer", (Described,), members)
