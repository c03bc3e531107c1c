"""The answers of the API as marshmallow schemas, for its description. Nothing is dumped by them: rows are too many.

A test holds every answer against what is described here.
"""

from typing import Any

from marshmallow import INCLUDE, Schema, fields, validate

from dither_aggregator.analysis.quality.verdict import CHECKS
from dither_aggregator.analysis.significance import VERDICTS
from dither_aggregator.analysis.tables.rows import STATISTICS as TABLE_STATISTICS
from dither_aggregator.analysis.tables.rows import VERDICTS as TABLE_VERDICTS
from dither_aggregator.web.query_parameters import Parameters

ROLES = ("listed", "candidate", "found", "other", "none", "statistic", "share")
STATISTICS = ("mean", "quantile", "share", "share_above", "share_of_reports")


class Described(Schema):
    """Exactly these members, all of them there unless they say otherwise."""

    Meta = Parameters.Meta  # type: ignore[assignment]  # marshmallow takes any class


class _Others:
    unknown = INCLUDE


class Open(Schema):
    """These members, and others."""

    Meta = _Others  # type: ignore[assignment]  # marshmallow takes any class


def _text(says: str = "", **how: Any) -> fields.String:
    return fields.String(**_how(says, how))


def _whole(says: str = "", **how: Any) -> fields.Integer:
    return fields.Integer(**_how(says, how))


def _number(says: str = "", **how: Any) -> fields.Float:
    return fields.Float(**_how(says, how))


def _truth(says: str = "", **how: Any) -> fields.Boolean:
    return fields.Boolean(**_how(says, how))


def _day(says: str = "", **how: Any) -> fields.Date:
    return fields.Date(**_how(says, how))


def _how(says: str, how: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, **({"metadata": {"description": says}} if says else {}), **how}


# Parts of several documents.

PLAN = "the digest of the plan"
SNAPSHOT = "the id of the finalized day's snapshot; null for a day that is not final, and for several days"
PROVISIONAL = "more reports may still come"
LEFT_OUT = (
    "reports of these days that are not among the n, because a read key is not told of cells of a few reports; null "
    "where it is told nothing of a day by itself; 0 with an admin key"
)
UNIT = 'the unit of numbers; "" for shares'


class WindowDocument(Described):
    """The days that were read as one."""

    first = _day("the first day (UTC)", data_key="from")
    last = _day("the last day (UTC)", data_key="to")


class PagedMeta(Described):
    """The part of the rows that this is."""

    rows_total = _whole("rows that there are, before `offset` and `top`")
    next = _text("the address of the next rows; null where these are the last", allow_none=True)


class PrivacyDocument(Described):
    """The cost of reports for a device."""

    mechanism = _text("the mechanism that randomized the answers on the devices")
    epsilon = _number("the epsilon of one report")
    epsilon_permanent = _number("the epsilon of all reports of a memo; null for fresh noise", allow_none=True)
    epsilon_lifetime = _number("the epsilon of all reports of a device's life")


# Estimates.


class FitDocument(Open):
    """How well candidates explain the reports of a text."""


class NormalisedDocument(Described):
    """How shares that sum to one were found."""

    method = _text()
    converged = _truth()
    iterations = _whole()
    residual = _number("how far the shares are from summing to one")


class TailDocument(WindowDocument):
    """The share of all values that do not stand out, from days before, whose noise did not choose them.

    If answers may hold several values, it is the number of them a report. Values apart are not in it.
    """

    values = _whole("how many values")
    n = _whole("reports of these days")
    estimate = _number("their share of these reports: raw, so it may be negative")
    std_error = _number("how far it may be from these reports, whatever error_of says of rows")
    lower = _number("the interval's lower end, which holds by itself at the level")
    upper = _number("its upper end")


class EstimatesMeta(WindowDocument, PrivacyDocument, PagedMeta):
    """Facts of all rows together."""

    app = _text()
    metric = _text()
    question = _text()
    kind = _text()
    plan = _text(PLAN)
    rev = _whole()
    n = _whole("reports, which are not people")
    left_out = _whole(LEFT_OUT, allow_none=True)
    provisional = _truth(PROVISIONAL)
    snapshot = _text(SNAPSHOT, allow_none=True)
    tally = _text("SHA-256 of n and the counts that were read")
    noise_floor = _number("the usual standard error of what nobody has; null without reports", allow_none=True)
    critical_share = _number("an estimate above it stands out; null where there is no such line", allow_none=True)
    detectable_share = _number("a true share of this stands out four times in five; null where none", allow_none=True)
    tail = fields.Nested(
        TailDocument, required=True, allow_none=True, metadata={"description": "null where it cannot be told"}
    )
    level = _whole("how sure the intervals are, in percent")
    intervals = _text("hold all together, or each on its own", validate=validate.OneOf(("simultaneous", "each")))
    interval_method = _text(
        "exact is of the share among these reports, clopper-pearson of the population or of repeated reports; of "
        "numbers wald is that of shares, while mean and quantiles have strict bounds",
        allow_none=True,
        validate=validate.OneOf(("wald", "clopper-pearson", "exact")),
    )
    error_of = _text("the devices that errors and intervals are of", validate=validate.OneOf(("reports", "population")))
    fit = fields.Nested(FitDocument, metadata={"description": "for texts"})
    normalised = fields.Nested(NormalisedDocument, metadata={"description": "if it was asked for"})
    unit = _text("for numbers: the unit of mean, quantiles and the ends of ranges", required=False)
    untold = fields.List(
        fields.String(),
        metadata={"description": "for numbers: quantiles that may lie in more than a third of the axis, without a row"},
    )


class ValueDocument(WindowDocument):
    """One value's number with its error. Shares are raw and unbiased: they may be negative.

    A number's mean or quantile is in the metric's unit. A quantile lies between two edges: its estimate is the lower
    end of the range in which it seems to lie, and its interval ends at edges.
    """

    metric = _text()
    rev = _whole()
    value = _text()
    n = _whole("reports")
    estimate = _number("a share; a mean or a quantile in the metric's unit")
    std_error = _number()
    lower = _number("the interval's lower end")
    upper = _number("its upper end")
    verdict = _text(
        "by simultaneous intervals, whichever are shown; of tables by tests; null where nothing is told",
        allow_none=True,
        validate=validate.OneOf((*VERDICTS, *TABLE_VERDICTS)),
    )
    rank_lower = _whole("the least that its rank may be; null for what does not stand out", allow_none=True)
    rank_upper = _whole("the most", allow_none=True)
    provisional = _truth(PROVISIONAL)
    snapshot = _text(SNAPSHOT, allow_none=True)
    left_out = _whole(LEFT_OUT, allow_none=True)


class EstimateRow(ValueDocument):
    """One value's estimate: a share of the n reports, or a statistic of numbers or of a table."""

    normalised = _number("the share that is possible, where it was asked for; biased", required=False)
    proportion = _number("for a text: the share of a constrained fit; biased", required=False)
    z = _number("for words: how far it stands out, in standard errors of a normal law", required=False)
    whole = _truth("for words: whether it is a whole text, and not the start of longer ones", required=False)
    group = _text(
        'for a text: the candidate with the same bits, "" where there is none; for a table: which value of '
        "group_column the row is of, null for all devices",
        required=False,
        allow_none=True,
    )
    statistic = _text(
        "for numbers and tables: what the row is of. Shares of numbers are of those who gave one, "
        "share_of_reports is of all reports",
        required=False,
        validate=validate.OneOf(tuple(dict.fromkeys((*STATISTICS, *TABLE_STATISTICS)))),
    )
    column = _text("for a table: the column that the row is of", required=False)
    label = _text("its value; null for a mean and for an association", required=False, allow_none=True)
    group_column = _text("the column that makes the groups, or goes with it", required=False, allow_none=True)
    p_value = _number(
        "for differences and associations: how often noise and sampling alone make as much; null for others",
        required=False,
        allow_none=True,
    )
    low = _number(
        "for numbers: the lower end of the range that the row is of, in the unit, null where it is open; of a mean the "
        "least that fits, however numbers lie within ranges, null where nothing is rounded to ranges",
        required=False,
        allow_none=True,
    )
    high = _number("its upper end, or the most", required=False, allow_none=True)
    fitted = _number(
        "for numbers: the share that is possible, or the mean of such shares; biased, to look at; null for others",
        required=False,
        allow_none=True,
    )


class SeriesMeta(WindowDocument):
    """The days and the values that the rows are about."""

    app = _text()
    metric = _text()
    question = _text()
    values = fields.List(fields.String(), required=True)
    level = _whole("how sure the intervals are, in percent: all at once, of all days and values")
    error_of = _text()
    unit = _text(UNIT)


class QualityMeta(WindowDocument):
    """The days that were checked, and their plan."""

    app = _text()
    metric = _text()
    question = _text()
    plan = _text(PLAN)
    rev = _whole()
    days_checked = _whole("closed days with reports whose counts are kept")
    days_implausible = _whole("those with a check that is implausible")
    false_alarms = _number("at most this part of a sound metric's days is called implausible")


class QualityRow(Described):
    """One check of one closed day, with the count that is farthest off."""

    metric = _text()
    rev = _whole()
    epoch = _day("the day (UTC), by itself")
    n = _whole("its reports")
    check = _text(
        "cells are reports by cell or cohort; shares support of a value, a bit or a symbol, between what nobody and "
        "what everybody would give; ones the bits set in all reports; unused the support of values that nobody can "
        "have, each by itself or together",
        validate=validate.OneOf(CHECKS),
    )
    tests = _whole("how many counts it looks at")
    of = _text("the name of the count, in words that follow the number")
    observed = _whole("the count")
    expected_lower = _number("the least that is expected, whatever is answered")
    expected_upper = _number("the most")
    p_value = _number("how often honest devices are so far off at most, in any of the counts of five checks")
    verdict = _text(validate=validate.OneOf(("implausible", "nothing found")))


class BaseDocument(Described):
    """The days before, with which others are compared."""

    base_first = _day("the first day of the window before (UTC)", data_key="base_from")
    base_last = _day("its last day (UTC)", data_key="base_to")


class CompareMeta(WindowDocument, BaseDocument):
    """The two windows, and the metric that they are of."""

    app = _text()
    metric = _text()
    question = _text()
    plan = _text(PLAN)
    rev = _whole()
    n = _whole("reports of the later window")
    left_out = _whole(LEFT_OUT, allow_none=True)
    base_n = _whole("reports of the one before")
    base_left_out = _whole("the same of the one before", allow_none=True)
    provisional = _truth(PROVISIONAL)
    level = _whole("how sure the intervals are, in percent, all at once")
    error_of = _text()
    unit = _text(UNIT)
    detectable_difference = _number("a rare value that moves by this is found four times in five", allow_none=True)


class DifferenceRow(ValueDocument, BaseDocument):
    """One value's difference: after less before, of the population; of shares, or of numbers in their unit."""

    verdict = _text(validate=validate.OneOf(("rose", "fell", "cannot be told to have moved")))
    base_n = _whole("reports of the window before")
    base_left_out = _whole("those of it that are left out", allow_none=True)
    before = _number("the estimate of the window before")
    after = _number("the estimate of the later one")
    p_value = _number("how often noise and sampling alone make such a difference of this value")
    unit = _text(UNIT)


class ChangesMeta(WindowDocument, BaseDocument):
    """The two windows, and how many metrics were looked at."""

    app = _text()
    metrics_moved = _whole()
    metrics_compared = _whole()
    metrics_without_reports = _whole("in one of the two windows, or whose counts are no longer kept")
    metrics_left_out = _whole("whose candidates are too many to be looked for here")
    metrics_damaged = _whole("whose counts cannot be those of any reports")
    metrics_being_computed = fields.List(
        _text(), metadata={"description": "metrics that are not computed yet; ask again soon"}
    )
    error_of = _text()


class PlanMeta(Described):
    """The computed plan."""

    computed = _text(validate=validate.OneOf(("n", "epsilon", "share", "width", "effect")))
    share = _number("the share that was asked for, or the detectable one; null for numbers and tables", allow_none=True)
    width_percent = _number(
        "for a number: the width that was asked for, or that of the median's interval, or of the mean's where it is "
        "all that is asked",
        allow_none=True,
    )
    effect_percent = _number(
        "for a table: the difference between arms that was asked for, or the least that is told", allow_none=True
    )
    registry = _text("the lines of a registry, as TOML")


class PlanRow(Described):
    """A metric as the registry would compile it: first what was asked for, then with more and less."""

    kind = _text()
    d = _whole(
        "values, other included; for a table those of each column; for a number its ranges or steps, null where "
        "only its mean is asked",
        allow_none=True,
    )
    ticks = _whole("the most values of one answer", allow_none=True)
    asks = _text("for a number: everything, or mean", allow_none=True)
    columns = _whole("for a table: the number of columns", allow_none=True)
    arms = _whole("for a table: how many of one size are compared", allow_none=True)
    n = _whole("reports")
    epsilon = _number("the epsilon of one report")
    epsilon_permanent = _number("the epsilon of one memoized answer", allow_none=True)
    days = _whole("days of the window")
    mechanism = _text()
    bits = _whole("bits of a report")
    noise_floor = _number("null for numbers and tables", allow_none=True)
    critical_share = _number(allow_none=True)
    detectable_share = _number(allow_none=True)
    mean_width_percent = _number(
        "the width of the mean's 95 % interval, in percent of the range from low to high; null where nothing is told",
        allow_none=True,
    )
    median_width_percent = _number(
        "the width of the median's interval, which holds together with those of the mean and of other quantiles; null "
        "where it is not told",
        allow_none=True,
    )
    effect_percent = _number(
        "for a table: the least difference of a value's share between one arm and all others that is told four times "
        "in five, in percentage points; null where none is",
        allow_none=True,
    )


class CandidatesBody(Described):
    """The texts to look for."""

    candidates = fields.List(fields.String(), required=True)


# Listings.


class MetricsMeta(Described):
    """The aggregator."""

    app = _text()
    lossy = _truth("whether it may lose what it acknowledged, as its operator allowed")
    today = _day("today by the store's clock (UTC)")
    sealed = _day("the last day that nothing can enter any more")


class MetricRow(PrivacyDocument):
    """A plan of a metric: the registry's, or an older one."""

    metric = _text()
    kind = _text()
    question = _text()
    plan = _text(PLAN)
    rev = _whole()
    current = _truth("whether the registry has it now")
    retired = _truth("whether its reports are refused")
    expires = _day()
    values = _whole("how many listed values it has")
    candidates = _whole("how many texts are looked for by default")
    days = _whole("how many days have reports")
    first = _day("the first of them", data_key="from", allow_none=True)
    last = _day("the last of them", data_key="to", allow_none=True)


class MetricMeta(Described):
    """The metric."""

    app = _text()
    metric = _text()
    question = _text()


class ValuesMeta(MetricMeta, PagedMeta):
    """The metric, and which part of the rows this is."""

    plan = _text(PLAN)
    rev = _whole()


class ValueRow(Described):
    """A value that there are estimates of."""

    metric = _text()
    rev = _whole()
    value = _text()
    kind = _text(
        "other is what is not listed, none says that there was nothing to say; of numbers statistic is the mean or a "
        "quantile, and share that of a range or above an edge",
        validate=validate.OneOf(ROLES),
    )


class KeptRow(Described):
    """The snapshot of one final day."""

    metric = _text()
    rev = _whole()
    plan = _text(PLAN)
    epoch = _day()
    tally = _text("SHA-256 of n and the counts; null with a read key", allow_none=True)
    snapshot = _text("its id, which is the SHA-256 of its content")


class MarksMeta(Described):
    """The app of these marks, which are of all metrics."""

    app = _text()


class MarkRow(Described):
    """A release or another event."""

    day = _day("the day (UTC) on which it happened, or will")
    text = _text("the operator's words: 1 to 80 characters")


class ProblemDocument(Open):
    """Why a request was refused (RFC 9457)."""

    type = _text("a stable name of the reason")
    title = _text()
    status = _whole()
    detail = _text("a sentence for people")
    retry_after_s = _whole("of what may be asked again: after so many seconds", required=False)
    done = _whole("of what is being computed: how many of its readings are there", required=False)
    of = _whole("of how many", required=False)
