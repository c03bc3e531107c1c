"""Operations of the API as Flask routes and as an OpenAPI document, out of the same declarations.

Parameters are checked by the schemas that describe them, and apispec writes these; msgspec writes the types of answers.
Both do so when somebody asks for the document: that takes longer than all else that an application is made of.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, NotRequired, TypedDict, get_args, get_type_hints

import msgspec
from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from flask import Blueprint, Flask, Response, request
from marshmallow import RAISE, Schema

from dither_aggregator.analysis.estimands import ESTIMANDS
from dither_aggregator.analysis.reading import Estimand, own_columns
from dither_aggregator.analysis.rows import says
from dither_aggregator.store import Store, at_one_moment
from dither_aggregator.web.api.listings import ADMIN_KEY, READ_KEY, SECURITY, UPLOADS
from dither_aggregator.web.api.rowsets import CSV, JSON, PARQUET, RowsAsked, RowSet, respond
from dither_aggregator.web.problems import API, CONTENT_TYPE, DOCUMENT
from dither_aggregator.web.query_parameters import PARSER, Parameters, query_parameters, seen
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem

NAME = "api"
"""Endpoints are called after it: `api.estimates`."""
OPENAPI = "3.1.0"
REF = "#/components/schemas/{name}"
"""The address of a schema by its name."""
NAMED = {"type": "string", "minLength": 1}
"""The schema of a part of an address."""


class ProblemDocument(TypedDict):
    """Why a request was refused (RFC 9457). It may have other members."""

    type: Annotated[str, says("a stable name of the reason")]
    title: str
    status: int
    detail: Annotated[str, says("a sentence for people")]
    retry_after_s: NotRequired[Annotated[int, says("of what may be asked again: after so many seconds")]]
    done: NotRequired[Annotated[int, says("of what is being computed: how many of its readings are there")]]
    of: NotRequired[Annotated[int, says("of how many")]]


@dataclass(frozen=True)
class Operation:
    """A method of an address. Its endpoint has the name of the function that answers it."""

    address: str
    answer: Callable[..., RowSet[Any, Any] | Response]
    """Called with the store, what was asked, and what the address names."""
    says: str
    """The answer, in a few words."""
    asked: type[Parameters] = RowsAsked
    body: type[Schema] | None = None
    """The body that is posted; None where the answer is got."""

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return "POST" if self.body else "GET"

    @property
    def types(self) -> tuple[type, ...]:
        """The types of `meta` and of a row, as the function's annotation names them; none where it returns no rows."""
        return get_args(get_type_hints(self.answer)["return"])

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
        checked = PARSER.use_args(operation.asked, location="query", error_status_code=400, unknown=RAISE)(view)
        blueprint.add_url_rule(operation.address, operation.name, checked, methods=[operation.method])
    app.register_blueprint(blueprint)

    @app.get(DOCUMENT)
    def openapi() -> Response:
        query_parameters(Parameters)
        servers = [{"url": request.script_root or "/"}]
        document = _document(described, tuple(ESTIMANDS.values()))
        return Response(msgspec.json.encode({**document, "servers": servers}), content_type=JSON)


@cache
def _document(operations: tuple[Operation, ...], estimands: tuple[Estimand[Any], ...]) -> dict[str, Any]:
    """Return the OpenAPI document of operations on estimands, but for where the server is."""
    spec = APISpec("dither", version("dither"), OPENAPI, plugins=[MarshmallowPlugin()])
    spec.tag({"name": NAME, "description": ""})
    for operation in operations:
        path = API.rstrip("/") + re.sub("<(.*?)>", r"{\1}", operation.address)
        named = [{"in": "path", "name": name, "schema": NAMED} for name in re.findall("{(.*?)}", path)]
        spec.path(path, operations={operation.method.lower(): _described(operation)}, parameters=named)
    described: dict[str, Any] = spec.to_dict()
    described["paths"][PATH] = UPLOADS
    schemas: dict[str, Any] = described.get("components", {}).get("schemas", {})
    described["components"] = {"schemas": schemas, "securitySchemes": SECURITY}
    schemas.update(_schemas([ProblemDocument, *(each for operation in operations for each in operation.types)]))
    del schemas[ProblemDocument.__name__]["additionalProperties"]
    for operation in operations:
        for row in operation.types[1:]:
            schemas[row.__name__].pop("required", None)  # a request may ask for some `fields` alone
    for estimand in estimands:
        reading = get_type_hints(type(estimand).read)["return"]
        facts = get_type_hints(reading.own_document, include_extras=True)["return"]
        columns = TypedDict("columns", own_columns(reading))  # type: ignore[misc]  # made of the rows' class
        for name, own in (("EstimateRow", columns), ("EstimatesMeta", facts)):
            made = _schemas([own])
            _add(schemas[name]["properties"], made.pop(own.__name__)["properties"])
            schemas.update(made)
    return described


def _schemas(types: Iterable[type]) -> dict[str, Any]:
    """Return the schemas of types, and of those that they are made of, by name. They have no other members."""
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    for schema in schemas.values():
        schema["additionalProperties"] = False
    return schemas


def _add(members: dict[str, Any], own: dict[str, Any]) -> None:
    """Add an estimand's own members; one that others have, too, is as any of them describes it."""
    for name, schema in own.items():
        if members.setdefault(name, schema) != schema:
            said = [each.pop("description") for each in (members[name], schema)]
            members[name] = {"description": "; ".join(said), "anyOf": [members[name], schema]}


def _view(operation: Operation, store: Store | None) -> Callable[..., Response]:
    def view(asked: dict[str, Any], **named: str) -> Response:
        if store is None:
            raise Problem("not-found", "this is answered by another process")
        if "bom" in asked and asked["format"] != "csv":
            raise Problem("malformed", "bom goes with format=csv")
        if operation.changes:
            answer = operation.answer(store, asked, **named)
        else:
            with at_one_moment():
                answer = operation.answer(seen(store), asked, **named)
        return respond(answer, asked) if isinstance(answer, RowSet) else answer

    return view


def _described(operation: Operation) -> dict[str, Any]:
    """Return what apispec writes of an operation."""
    answers: dict[str, Any] = {"type": "object"}
    content = {JSON: {"schema": answers}}
    if operation.types:
        meta, row = ({"$ref": REF.format(name=each.__name__)} for each in operation.types)
        members = {"meta": meta, "rows": {"type": "array", "items": row}}
        answers |= {"properties": members, "required": list(members), "additionalProperties": False}
        content[CSV.partition(";")[0]] = {"schema": {"type": "string"}}
        content[PARQUET] = {"schema": {"type": "string", "format": "binary"}}
    refusals = {
        "400": "a parameter is wrong, unknown, given twice, or at odds with another",
        "503": "it is being computed, or could not be; ask again after Retry-After, also when too many ask",
        "default": "a refusal",
    }
    if operation.changes:
        del refusals["503"]
    problem = {CONTENT_TYPE: {"schema": {"$ref": REF.format(name=ProblemDocument.__name__)}}}
    body = {"requestBody": {"content": {JSON: {"schema": operation.body}}, "required": True}} if operation.body else {}
    return {
        "operationId": operation.name,
        "summary": operation.says,
        "tags": [NAME],
        "security": ADMIN_KEY if operation.changes else READ_KEY,
        "parameters": [{"in": "query", "schema": operation.asked}],
        **body,
        "responses": {
            "200": {"description": operation.says, "content": content},
            **{status: {"description": reason, "content": problem} for status, reason in refusals.items()},
        },
    }
