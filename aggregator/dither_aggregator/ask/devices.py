"""How many devices are active: lower bounds by period, of the metric that every device answers which is used.

    count(devices active in a week)
    count(devices active in a day) / count(devices active in a month)

They have no noise to remove, but reports come late, or never: `analysis.people` has the bound and what it rests on.
"""

from dither_aggregator.analysis.people import (
    WEEK_DAYS,
    Active,
    Stickiness,
    active,
    late_of,
    least,
    measured,
    pairs,
    periods,
    stickiness,
)
from dither_aggregator.analysis.reading import Window
from dither_aggregator.ask.language import Analysis, BadQuestion, Step
from dither_aggregator.store import Store, StoredPlan

SPANS: dict[Step, tuple[int, int]] = {"day": (1, 1), "week": (WEEK_DAYS, WEEK_DAYS), "month": (28, 31)}
"""The shortest and the longest period that is called so, in days."""


def note(*spans: Step) -> str:
    """Return what bounds of periods rest on."""
    late = " and ".join(f"{late_of(SPANS[span][0]):.0%} of a {span}'s" for span in spans)
    return f"if at most {late} reports come later, or never, and about as many of each"


def counting(store: Store, analysis: Analysis) -> StoredPlan:
    """Return the plan that counts devices by a period; raise BadQuestion, which says what would, where none does."""
    return _counting(store, analysis.span, analysis.at)


def parts(store: Store, analysis: Analysis) -> tuple[StoredPlan, StoredPlan]:
    """Return the plans that count devices by the shorter and by the longer period; raise BadQuestion likewise."""
    short, long = (_counting(store, span, analysis.at) for span in (analysis.part, analysis.span))
    if not pairs([short, long]) or short.period_days > long.period_days:
        few = f"{long.period_days} days are no whole number of periods of {short.period_days}"
        raise BadQuestion(f"{few}: ask for a day of a week or month, or a week of a month", analysis.at)
    return short, long


def _counting(store: Store, span: Step, at: int) -> StoredPlan:
    shortest, longest = SPANS[span]
    found = [stored for stored in measured(store) if shortest <= stored.period_days <= longest]
    if not found:
        line = f'measures = "first_month", period = "{shortest}d"'
        raise BadQuestion(f"no metric counts devices by {span}: one with {line} would", at)
    return min(found, key=lambda stored: (min(store.epochs(stored.plan), default=store.sealed()), stored.plan.metric))


def windows(store: Store, analysis: Analysis, within: Window | None) -> list[Window]:
    """Return the periods that are told: the last ones, or all within a window."""
    return periods(store, counting(store, analysis), within)


def bounds(store: Store, analysis: Analysis, within: Window | None, alpha: float) -> list[Active]:
    """Return each period with its bound, which is wrong with a chance of alpha at most."""
    return active(store, counting(store, analysis), windows(store, analysis, within), 1 - alpha)


def shares(store: Store, analysis: Analysis, within: Window | None, alpha: float) -> list[Stickiness]:
    """Return each long period in which it is told how many of its devices a mean short one has; wrong likewise."""
    return stickiness(store, *parts(store, analysis), windows(store, analysis, within), 1 - alpha)


def reports_needed(span: Step, alpha: float) -> int:
    """Return from how many reports a period on a bound is above zero, if other periods have as many."""
    n, late = 1, late_of(SPANS[span][0])
    while not least(n, [n, n], late, 1 - alpha):
        n += 1
    return n
