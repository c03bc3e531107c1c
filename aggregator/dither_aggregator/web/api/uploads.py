"""`POST /v1/reports`, described beside what is read. `web/upload_endpoint.py` answers; shared/wire.md says all."""

from typing import Any

from dither_aggregator.operations.scopes import SCOPES
from dither_aggregator.web.api.rowsets import JSON
from dither_aggregator.web.problems import CONTENT_TYPE
from dither_shared.wire.problems import PROBLEMS

SECURITY = {
    f"{scope}Key": {"type": "http", "scheme": "bearer", "description": f"`dither keys create {scope}` makes one"}
    for scope in SCOPES
}
READ_KEY: list[dict[str, list[str]]] = [{"readKey": []}, {"adminKey": []}, {}]
"""The last says that no key may be needed: before a read key is made."""
ADMIN_KEY: list[dict[str, list[str]]] = [{"adminKey": []}]


def _members(*optional: str, **members: Any) -> dict[str, Any]:
    """Return the schema of an object with these members and no others."""
    required = [name for name in members if name not in optional]
    return {"type": "object", "properties": members, "required": required, "additionalProperties": False}


def _refusals(*slugs: str) -> dict[str, Any]:
    """Return problem documents, by their statuses."""
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    reasons: dict[str, list[str]] = {}
    for slug in slugs:
        status, title = PROBLEMS[slug]
        reasons.setdefault(str(status), []).append(title)
    return {status: {"description": "; ".join(titles), "content": content} for status, titles in reasons.items()}


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_GROUP = _members(
    "cell",
    metric=_TEXT,
    plan=_TEXT | {"description": "the digest of the plan"},
    cell=_COUNT | {"description": "of a plan that has several"},
    reports={"type": "array", "items": {"type": ["integer", "string"]}},
)
_UPLOAD = _members(
    v={"const": 1},
    upload=_TEXT | {"description": "128 random bits, as base64url without padding; the same when it is sent again"},
    groups={"type": "array", "items": _GROUP, "minItems": 1, "maxItems": 50},
)
_SIMPLE = _TEXT | {"description": "from a page of an allowed origin: the same, with the key as `key` behind `v`"}
_RECEIPT = _members(
    upload=_TEXT,
    accepted=_COUNT,
    duplicate={"type": "boolean"},
    rejected={"type": "array", "items": _members(group=_COUNT, reason=_TEXT, count=_COUNT)},
)
UPLOADS = {
    "post": {
        "operationId": "reports",
        "summary": "the receipt of an upload, which is on the disk",
        "tags": ["uploads"],
        "security": [{"writeKey": []}, {}],
        "requestBody": {"required": True, "content": {JSON: {"schema": _UPLOAD}, "text/plain": {"schema": _SIMPLE}}},
        "responses": {
            "202": {"description": "it was stored, now or before", "content": {JSON: {"schema": _RECEIPT}}},
            **_refusals(
                *("malformed", "key-missing", "key-wrong", "key-scope", "origin-not-allowed"),
                *("upload-conflict", "expired"),
                *("length-required", "too-large", "unsupported-media-type", "refused", "headers-too-large", "too-many"),
                *("failed", "key-waiting", "backlog-full", "unavailable", "disk-full"),
            ),
        },
    }
}
"""A path item of OpenAPI 3.1."""
