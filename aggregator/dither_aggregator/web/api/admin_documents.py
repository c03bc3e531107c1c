"""The bodies and answers of the addresses under /v1/admin, as marshmallow schemas."""

from typing import Any

from marshmallow import fields, validate

from dither_aggregator.operations.scopes import SCOPES
from dither_aggregator.store.keys import ACTIVE, REVOKED, WAITING
from dither_aggregator.web.api.documents import PLAN, Described
from dither_aggregator.web.query_parameters import Day

IDS_MAX = 1_000
_MARK = "1 to 80 characters; anybody who may read reads them"


def _text(says: str, **how: Any) -> fields.String:
    return fields.String(**{"required": True, "metadata": {"description": says}, **how})


def _truth(says: str, **how: Any) -> fields.Boolean:
    return fields.Boolean(truthy={True}, falsy={False}, metadata={"description": says}, **how)


def _day(says: str) -> fields.Date:
    return Day(required=True, metadata={"description": says})


def _rev() -> fields.Integer:
    return fields.Integer(required=True, strict=True, metadata={"description": "the metric's version"})


class AppMeta(Described):
    """The aggregator."""

    app = _text("the app whose reports these are")


class RegistryBody(Described):
    """A registry that names no files."""

    body_bytes_max = 2 * 1024 * 1024
    registry = _text("the text of metrics.toml")


class StoredPlanRow(Described):
    """A plan."""

    metric = _text("the metric's name")
    rev = _rev()
    plan = _text(PLAN)
    current = _truth("whether it is the registry's", required=True)
    retired = _truth("whether its reports are refused", required=True)


class RetireBody(Described):
    """The plan to retire, or to take again."""

    metric = _text("the metric's name")
    rev = _rev()
    undo = _truth("take its reports again", load_default=False)


class HeldRow(Described):
    """Reports that could not be counted."""

    id = _text("such as 0-17")
    metric = _text("the metric's name")
    rev = _rev()
    plan = _text(PLAN)
    epoch = _day("the day (UTC) on which they were accepted")
    reports = fields.Integer(required=True, metadata={"description": "how many"})
    reason = _text("why they could not be counted")


class IdsBody(Described):
    """The groups in quarantine to settle."""

    ids = fields.List(fields.String(), required=True, validate=validate.Length(1, IDS_MAX))


class SettledRow(Described):
    """A group that was to be settled."""

    id = _text("such as 0-17")
    done = _truth("whether it was there", required=True)


class MarkBody(Described):
    """A release or another event."""

    day = _day("the day (UTC) on which it happened, or will")
    text = _text(_MARK)


class UnmarkBody(Described):
    """The mark to remove; without its text all of the day."""

    day = _day("the day (UTC)")
    text = _text(_MARK, required=False)


class DayMarkRow(Described):
    """A mark."""

    day = _day("the day (UTC)")
    text = _text(_MARK)


class KeyRow(Described):
    """A key, without its text."""

    id = _text("by which it is known and revoked")
    scope = _text("what it is for", validate=validate.OneOf(SCOPES))
    label = _text("the operator's words")
    state = _text(
        "who uploads with a waiting key is told to come again", validate=validate.OneOf([ACTIVE, WAITING, REVOKED])
    )
    made = _day("the day (UTC) on which it was made")
    last_used = Day(required=True, allow_none=True, metadata={"description": "the last day on which it was shown"})


class NewKeyRow(KeyRow):
    """A new key."""

    key = _text("its text, which nobody can tell again")


class NewKeyBody(Described):
    """The key to make."""

    scope = _text(
        "what it is for",
        validate=validate.OneOf(SCOPES, error=f"must be {' or '.join(SCOPES)}, got {{input!r}}"),
    )
    label = _text("whose it is; at most 100 characters", required=False, load_default="")


class RevokeBody(Described):
    """The key that is to let nobody in any more."""

    id = _text("as it is listed")
    wait = _truth("have its uploads come again later: of a write key", load_default=False)


class JournalRow(Described):
    """A change that somebody asked for."""

    at = fields.DateTime(required=True, metadata={"description": "by the store's clock, in UTC"})
    actor = _text("the id of an admin key, or command line")
    action = _text("such as key revoke")
    what = _text("to what")
