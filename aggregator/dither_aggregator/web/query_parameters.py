"""The parameters of requests, each declared once, for pages, API and the API's own description.

Commands that read a window ask for it here, too.
"""

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

import msgspec
from flask import Request, current_app, request
from marshmallow import RAISE, Schema, ValidationError, fields, pre_load, validate
from webargs.flaskparser import FlaskParser
from webargs.multidictproxy import MultiDictProxy

from dither_aggregator.analysis.differences import members_of
from dither_aggregator.analysis.estimands import estimand_of, tally_of
from dither_aggregator.analysis.inference import CONFIDENCE, LEVEL_MAX, LEVEL_MIN, read_level
from dither_aggregator.analysis.reading import WINDOWS, Window, default_window, for_readers
from dither_aggregator.analysis.rows import FALSE_SHARE_MAX, FALSE_SHARE_MIN
from dither_aggregator.counting import TallyGone
from dither_aggregator.operations.registry_process import DOCUMENT
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.document_kinds import ENTRIES_MAX
from dither_aggregator.web.process_messages import ASKED_BYTES_MAX, BODY, LIVE
from dither_shared.errors import ConfigurationError, DitherError
from dither_shared.plan import Plan
from dither_shared.text_normalization import normal
from dither_shared.wire.reading import Problem

# Lists of candidates that are too long to be looked for in a process that others wait for.


class LongList(DitherError):
    """A list of candidates that is not looked for here and now: it takes seconds to minutes, and memory."""


def refuse_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> None:
    """Raise LongList where so many candidates are not looked for here."""
    if too_long(stored, candidates):
        raise LongList


def too_long(stored: StoredPlan, candidates: tuple[str, ...] | None = None) -> bool:
    """Return whether so many candidates, the registry's or these, are not looked for here."""
    longest = current_app.config["CANDIDATES_MAX"]
    return longest is not None and len(stored.candidates if candidates is None else candidates) > longest


TODAY = "today"
DAYS_MAX = 366
LEVELS = ("80", "95", "99")
"""Levels of intervals that forms offer, in percent."""
LEVEL = Decimal(f"{100 * CONFIDENCE:.0f}")
"""The level that is not asked for."""

DECIMAL = {"inputmode": "decimal", "autocomplete": "off"}
"""How a field for a number looks."""

QueryParameters = Mapping[str, Any]
"""The parameters of a request by their names; those that were left out are missing, or have their default."""


def about(description: str, label: str = "", **look: object) -> dict[str, Any]:
    """Return what is said of a parameter: to the API its description, in forms its label, and how its field looks.

    A parameter without a label is in no form.
    """
    return {"description": description, "label": label, "look": look}


class Day(fields.Date):
    """A day such as 2027-06-30, and no other way to write it."""

    look: ClassVar = {"type": "date"}

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> date:
        try:
            day = date.fromisoformat(str(value))
        except ValueError:
            day = None
        if day is None or day.isoformat() != value:
            raise ValidationError(f"must be a day such as 2027-06-30, got {value!r}")
        return day


class Value(fields.String):
    """A value or a text, in whatever form it is written."""

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> str:
        return normal(super()._deserialize(value, attr, data, **how))


class Whole(fields.Integer):
    """A whole number in digits."""

    look: ClassVar = DECIMAL

    def __init__(self, least: int, most: int, says: str = "", label: str = "", size: int = 0, **how: Any) -> None:
        super().__init__(validate=validate.Range(least, most), metadata=about(says, label, size=size or None), **how)
        self._says = f"must be a number from {least} to {most} in digits alone"

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> int:
        text = str(value)
        range_ = self.validate
        assert isinstance(range_, validate.Range)
        if not (text.isascii() and text.isdigit() and len(text) < 16 and range_.min <= int(text) <= range_.max):
            raise ValidationError(f"{self._says}, got {text!r}")
        return int(text)


class Exact(fields.Decimal):
    """A number of so many decimals at most, written with digits and a point, in [least, most]."""

    look: ClassVar = DECIMAL

    def __init__(
        self, least: Decimal, most: Decimal, decimals: int, says: str = "", label: str = "", size: int = 6, **how: Any
    ) -> None:
        default = {"default": how["load_default"]} if "load_default" in how else {}  # a number, also in the description
        super().__init__(metadata={**about(says, label, size=size), **default}, **how)
        self._least, self._most = least, most
        self._written = re.compile(rf"[0-9]{{1,3}}(\.[0-9]{{1,{decimals}}})?|\.[0-9]{{1,{decimals}}}")
        self._says = f"must be a number from {least:f} to {most:f} with at most {decimals} decimals"

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> Decimal:
        text = str(value)
        if not (self._written.fullmatch(text) and self._least <= Decimal(text) <= self._most):
            raise ValidationError(f"{self._says}, got {text!r}")
        return Decimal(text)


class LevelField(fields.Decimal):
    """A level in percent, or as a share: any that `read_level` takes. Forms offer a few, and the one that is shown."""

    def __init__(self) -> None:
        says = f"how sure the intervals are, in percent: {LEVEL_MIN} to {LEVEL_MAX}; or as a share, such as .95"
        super().__init__(load_default=LEVEL, metadata={**about(says, "level"), "default": int(LEVEL)})

    def _deserialize(self, value: object, attr: str | None, data: Mapping[str, Any] | None, **how: object) -> Decimal:
        try:
            return read_level(str(value))
        except ValueError as error:
            raise ValidationError(str(error)) from None

    @staticmethod
    def offered(shown: object) -> dict[str, str]:
        """Return the levels of a form that shows one, by their words."""
        levels = {*LEVELS, *([f"{shown}"] if shown else [])}
        return {each: f"{each} %" for each in sorted(levels, key=Decimal)}


def one_of(
    choices: Collection[str], says: str, label: str = "", words: Mapping[str, str] | None = None
) -> fields.String:
    """Return a parameter that is one of some choices, by default the first. More may come to them later.

    A form has them in the order of their `words`, if these are given.
    """
    metadata = {**about(says, label), "words": words}
    return fields.String(load_default=next(iter(choices)), validate=_OneOf(choices), metadata=metadata)


class _OneOf(validate.OneOf):
    """Looks at the words when a value is there, and not when this is made."""

    def __init__(self, choices: Collection[str]) -> None:
        super().__init__(())
        self.choices = choices

    def __call__(self, value: str) -> str:
        if value not in self.choices:
            raise ValidationError(f"must be {' or '.join(self.choices)}, got {value!r}")
        return value


class Body(Schema):
    """A JSON object with exactly these members, all of them there unless they say otherwise."""

    class Meta:
        """Marshmallow's options."""

        unknown = RAISE


class Parameters(Body):
    """The parameters of an address. A field that a form left empty was not given; an undeclared one is refused."""

    @pre_load
    def _drop_empty(self, data: Mapping[str, Any], **how: object) -> dict[str, Any]:
        query_parameters: dict[str, Any] = {}
        for name, value in data.items():
            field = self.fields.get(name) or next((f for f in self.fields.values() if f.data_key == name), None)
            if isinstance(field, fields.List):
                query_parameters[name] = [each for each in value if each]
            elif value:
                query_parameters[name] = value
        return query_parameters


SEARCH = Value(load_default="", metadata=about("a part of a value", "search", type="search", size=14))


GROUP = fields.List(
    Value(),
    validate=validate.Length(max=ENTRIES_MAX),
    metadata={"description": "the name of a group of the operator's dashboard; may be given several times"},
)


CHOSEN_MAX = 50


def chosen(says: str) -> "fields.List[str]":
    """Return the parameter by which a reader of a page chooses values."""
    length = validate.Length(max=CHOSEN_MAX, error=f"may be given {CHOSEN_MAX} times at most")
    return fields.List(Value(), validate=length, metadata=about(says))


class WindowAsked(Parameters):
    """The days that are asked for, in one of three ways."""

    epoch = Day(metadata={"description": "one day, in place of window, or of from and to"})
    window = fields.String(
        validate=validate.OneOf((*map(str, WINDOWS), TODAY), error="must be 7 or 28 or 1 or today, got {input!r}"),
        metadata=about(
            "so many days that end with the last sealed one, or today, which is provisional; in place of epoch, or of "
            "from and to",
            "days",
        ),
    )
    first = Day(data_key="from", metadata=about("the first day; goes with to, without window and epoch", "from"))
    last = Day(data_key="to", metadata=about(f"the last day; a window has at most {DAYS_MAX}", "to"))


class PlanAsked(Parameters):
    """Under which plan."""

    plan = fields.String(metadata=about("the digest of a plan; by default the registry's", "rev"))


class LevelAsked(Parameters):
    """How sure intervals are."""

    level = LevelField()


class FalseShareAsked(Parameters):
    """How many of the texts that stand out may be false."""

    false_share = Exact(
        Decimal(str(FALSE_SHARE_MIN)),
        Decimal(str(FALSE_SHARE_MAX)),
        3,
        "of texts among candidates: at most such a share of those that stand out is expected to be false; by default "
        "what level leaves of 1",
        "false at most",
    )


class _Parser(FlaskParser):
    """Reads parameters; refuses those that are wrong, unknown or given twice, by name."""

    def load_querystring(self, req: Request, schema: Schema) -> MultiDictProxy:
        """Return the query, in which only lists have several of a name."""
        several = {field.data_key or name for name, field in schema.fields.items() if isinstance(field, fields.List)}
        for name, values in req.args.lists():
            if len(values) > 1 and name not in several:
                raise Problem("malformed", f"{name} was given {len(values)} times")
        read: MultiDictProxy = super().load_querystring(req, schema)
        return read

    def handle_error(self, error: ValidationError, req: Request, schema: Schema, **how: Any) -> NoReturn:
        """Say which parameter is wrong."""
        messages = error.messages_dict.get("query", error.messages_dict)
        known = [field.data_key or each for each, field in schema.fields.items()]
        for name in messages:
            if name not in known:
                raise Problem("malformed", f"there is no parameter {name!r} here, only: {', '.join(known) or 'none'}")
        name, message = next(iter(messages.items()))
        first = message[0] if isinstance(message, list) else next(iter(message.values()))[0]
        if first == fields.Field.default_error_messages["required"]:
            first = "is needed"
        raise Problem("malformed", f"{name} {first}")

    def load_body(self, body: bytes, schema: Schema) -> QueryParameters:
        """Return a body, a JSON object, as a schema has it; raise Problem."""
        most = getattr(schema, "body_bytes_max", ASKED_BYTES_MAX)
        if len(body) > most:
            raise Problem("too-large", f"the body must have at most {most:,} bytes")
        try:
            loaded: QueryParameters = schema.load(DOCUMENT.decode(body))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            few = "the body must be a JSON object, in UTF-8, of words, numbers and lists of these"
            raise Problem("malformed", few) from None
        except ValidationError as error:
            self.handle_error(error, request, schema)
        return loaded


PARSER = _Parser()


def query_parameters(schema: type[Parameters]) -> QueryParameters:
    """Return the parameters of the request; raise Problem."""
    parsed: QueryParameters = PARSER.parse(schema(), request, location="query", unknown=RAISE)
    return parsed


def body_parameters(schema: type[Schema], body: bytes | None = None) -> QueryParameters:
    """Return the members of the request's body, or of another one in its place; raise Problem."""
    return PARSER.load_body(request.environ[BODY] if body is None else body, schema())


def asked_confidence(asked: QueryParameters) -> float:
    """Return the level that a request asks for, as a share."""
    return float(asked["level"] / 100)


def asked_level(asked: QueryParameters) -> float:
    """Return the level that a request asks for, in percent: 95, or 99.9."""
    level: Decimal = asked["level"]
    return int(level) if level == int(level) else float(level)


def asked_false_share(plan: Plan, asked: QueryParameters) -> float | None:
    """Return the share of what stands out that may be false, where a request names one; raise Problem."""
    if "false_share" not in asked:
        return None
    if not estimand_of(plan).names_some_falsely:
        raise Problem("malformed", "false_share is for metrics of texts that are looked for among candidates")
    return float(asked["false_share"])


def seen(store: Store) -> Store:
    """Return a store as who asks may see it."""
    return store if request.environ.get(LIVE) else for_readers(store)


def asked_plan(store: Store, metric: str, asked: QueryParameters) -> StoredPlan:
    """Return the plan that a request names, by default the registry's."""
    plans = store.plans(metric)
    if not plans:
        raise no_metric(metric)
    digest = asked.get("plan", plans[0].plan.digest)
    stored = next((item for item in plans if item.plan.digest == digest), None)
    if stored is None:
        raise Problem("not-found", f"the metric {metric!r} has no plan {digest!r}")
    return stored


def refuse_both(asked: QueryParameters) -> None:
    """Raise Problem where a request chooses values and groups at once."""
    if asked.get("values") and asked.get("group"):
        raise Problem("malformed", "values and group do not go together: choose by one of them")


def asked_members(store: Store, stored: StoredPlan, asked: QueryParameters) -> Sequence[str] | None:
    """Return the values or ranges of the groups that a request names; None where it names none."""
    names = asked.get("group") or ()
    try:
        return members_of(store, stored, names) if names else None
    except KeyError as error:
        metric = stored.plan.metric
        raise Problem(
            "malformed", f"group: {metric} has no group {error.args[0]!r}; GET /v1/metrics/{metric}/groups lists them"
        ) from None


def no_metric(metric: str) -> Problem:
    """Return the answer to a name that is no metric's."""
    return Problem("not-found", f"there is no metric {metric!r}; GET /v1/metrics lists them")


def asked_window(store: Store, asked: QueryParameters) -> Window | None:
    """Return the window that a request names: one day, some sealed days, today, between two days; else None.

    Raises Problem for one that begins after today.
    """
    window = _named_window(store, asked)
    if window:
        refuse_future(store, window)
    return window


def refuse_future(store: Store, window: Window) -> None:
    """Raise Problem for a window that begins after today."""
    if window.first > store.today():
        raise Problem("malformed", f"days must not begin after today, {store.today()} (UTC), got {window.first}")


def _named_window(store: Store, asked: QueryParameters) -> Window | None:
    pair = between(asked, "first", "last")
    ways = {"window": "window" in asked, "from and to": pair is not None, "epoch": "epoch" in asked}
    if sum(ways.values()) > 1:
        got = " beside ".join(way for way, taken in ways.items() if taken)
        raise Problem("malformed", f"the days must be one of window, from and to, epoch, got {got}")
    if "epoch" in asked:
        return Window.ending(asked["epoch"], 1)
    if "window" in asked:
        name = asked["window"]
        return Window.ending(store.today(), 1) if name == TODAY else Window.ending(store.sealed(), int(name))
    return pair


def between(asked: QueryParameters, first: str, last: str) -> Window | None:
    """Return the window between two days that a request names, None where it names neither."""
    if (first in asked) != (last in asked):
        names = " and ".join(name.replace("first", "from").replace("last", "to") for name in (first, last))
        raise Problem("malformed", f"{names} go together")
    if first not in asked:
        return None
    window = Window(asked[first], asked[last])
    if window.days < 1:
        raise Problem("malformed", f"from must not be after to, got {window.first} and {window.last}")
    if window.days > DAYS_MAX:
        raise Problem("malformed", f"a window has at most {DAYS_MAX} days, got {window.days:,}")
    return window


# The same of a command: `--from`, `--to` and `--plan`.


def add_window_arguments(action: argparse.ArgumentParser, kind: str) -> None:
    """Add the metric, --from, --to and --plan."""
    action.add_argument("metric", metavar="METRIC", help=f"a metric of the kind {kind}")
    action.add_argument("--from", dest="first", type=_day, metavar="DAY", help="the first day (UTC); goes with --to")
    action.add_argument("--to", dest="last", type=_day, metavar="DAY", help="the last day (default: the last 7 sealed)")
    action.add_argument("--plan", metavar="DIGEST", help="under which plan (default: the registry's)")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a day such as 2026-11-20, got {text!r}") from None


def check_window(args: argparse.Namespace) -> None:
    """Raise ConfigurationError for days that are no window."""
    if (args.first is None) != (args.last is None):
        raise ConfigurationError("--from and --to go together")
    if args.first and not 1 <= Window(args.first, args.last).days <= DAYS_MAX:
        raise ConfigurationError(f"--from must not be after --to, and a window has at most {DAYS_MAX} days")


def named_plan(store: Store, args: argparse.Namespace, estimand: str, kind: str) -> StoredPlan:
    """Return the plan that is asked for; raise ConfigurationError where there is none, or of another estimand."""
    plans = [stored for stored in store.plans(args.metric) if args.plan in (None, stored.plan.digest)]
    if not plans:
        plan = f" with a plan {args.plan!r}" if args.plan else ""
        raise ConfigurationError(f"there is no metric {args.metric!r}{plan}")
    if estimand_of(plans[0].plan).name != estimand:
        raise ConfigurationError(f"{args.metric} must be of kind {kind}, got {plans[0].plan.kind.name}")
    return plans[0]


def asked_tally(store: Store, stored: StoredPlan, args: argparse.Namespace) -> tuple[Window, Tally]:
    """Return the window and its counts; raise ConfigurationError where they are no longer kept."""
    window = Window(args.first, args.last) if args.first else default_window(store, stored)
    try:
        return window, tally_of(store, stored, window)
    except TallyGone as gone:
        raise ConfigurationError(f"{gone}: choose later days") from None
