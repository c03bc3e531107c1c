"""What a request asks for: which plan, which window of days, and how its estimates are wanted."""

from collections.abc import Sequence
from datetime import date

from flask import request

from dither_aggregator.analysis.windows import Window
from dither_aggregator.store import Store, StoredPlan
from dither_shared.wire.problems import Problem

WINDOWS = (7, 28, 1)
"""How many days the windows on offer have, which end at the last sealed day: the first is the default."""
TODAY = "today"
DAYS_MAX = 366
LEVELS = ("95", "80", "99")
"""Of intervals, in percent: the first is the default."""


def asked_plan(store: Store, metric: str) -> StoredPlan:
    """Return the plan that a request names, by default the registry's."""
    plans = store.plans(metric)
    if not plans:
        raise no_metric(metric)
    digest = request.args.get("plan", plans[0].plan.digest)
    stored = next((item for item in plans if item.plan.digest == digest), None)
    if stored is None:
        raise Problem("not-found", f"the metric {metric!r} has no plan {digest!r}")
    return stored


def no_metric(metric: str) -> Problem:
    """Return the answer to a name that is no metric's."""
    return Problem("not-found", f"there is no metric {metric!r}; GET /v1/metrics lists them")


def asked_window(store: Store) -> Window | None:
    """Return the window that a request names: one day, some sealed days, today, or from one day to another; else None.

    The first of these counts: a form sends the days that it showed beside those that were chosen.
    """
    if bool(request.args.get("from")) != bool(request.args.get("to")):
        raise Problem("malformed", "from and to go together")
    if request.args.get("epoch"):
        return Window.ending(read_day("epoch"), 1)
    if request.args.get("window"):
        name = one_of("window", (*map(str, WINDOWS), TODAY))
        return Window.ending(store.today(), 1) if name == TODAY else Window.ending(store.sealed(), int(name))
    if request.args.get("from"):
        window = Window(read_day("from"), read_day("to"))
        if not 1 <= window.days <= DAYS_MAX:
            raise Problem("malformed", f"from must not be after to, and a window has at most {DAYS_MAX} days")
        return window
    return None


def default_window(store: Store, stored: StoredPlan) -> Window:
    """Return the last sealed days: as many as the default has or, where fewer are there and kept, these."""
    window = Window.ending(store.sealed(), WINDOWS[0])
    epochs = store.epochs(stored.plan)
    there = min((epoch for epoch in epochs if epoch in window), default=window.first)
    first = window.first if any(epoch < window.first for epoch in epochs) else there
    return Window(min(max(first, store.tallies_from()), window.last), window.last)


def one_of(name: str, choices: Sequence[str]) -> str:
    """Return a parameter that is one of a few words, by default the first."""
    given = request.args.get(name, choices[0])
    if given not in choices:
        raise Problem("malformed", f"{name} must be {' or '.join(choices)}, got {given!r}")
    return given


def read_day(name: str) -> date:
    """Return a parameter that is a day."""
    text = request.args[name]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise Problem("malformed", f"{name} must be a day such as 2027-06-30, got {text!r}")
    return day
