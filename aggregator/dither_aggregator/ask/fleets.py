"""The smallest fleet of which a question tells something: its answer, computed from reports that are supposed.

A supposed window has the reports that are expected where all answers are equally frequent. It tells something if there
is an interval, and one of shares or coefficients is shorter than 1: some value between 0 and 1 is then beyond it.
Numbers are told wherever their page would tell them of such reports, with an interval of any width. Clusters are told
from as many as pages tell each question of a table from. The interval of a text is that of one that nobody has. Devices
are counted as if reports came evenly over the year (`installs`): each sends so many in a window, and all answer.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil, inf

import numpy as np

from dither_aggregator.analysis.channel import law_by_place
from dither_aggregator.analysis.installs import Installs, PlannedLife, reports_of
from dither_aggregator.analysis.reading import Window, default_window
from dither_aggregator.ask.analyses import reports_needed
from dither_aggregator.ask.answering import Asking, QueryAnswer
from dither_aggregator.ask.language import BadQuestion, Query
from dither_aggregator.counting import tables
from dither_aggregator.store import StoredPlan, Tally
from dither_shared.domains.number_ranges import NumberDomain
from dither_shared.kinds.precision import QUESTION_MIN
from dither_shared.mechanisms import PureMechanism

REPORTS_MIN, REPORTS_MAX = 16, 10**10
FINE = 1.02
"""A smaller step than this part is not searched for."""
DEVICES = 10**6
NEEDED_MAX = 5
"""It is computed of so many questions at once: each takes a fifth of a second at most."""


def supposed_tally(n: int, stored: StoredPlan) -> Tally:
    """Return what n reports are expected to count where all answers are equally frequent."""
    cells = stored.plan.cells
    counts = np.zeros(cells.tally_size, dtype=np.int64)
    if isinstance(stored.plan.domain, NumberDomain):
        return _supposed_numbers(n, stored)
    for part, table, _ in tables(cells, counts):
        mechanism, own = part.mechanism, n // cells.count
        if not isinstance(mechanism, PureMechanism):
            return Tally(n, counts)
        p, q, d, shape = float(mechanism.p), float(mechanism.q), mechanism.d, mechanism.shape
        values, rate = (shape.size, (shape.raises or 0) / shape.size) if mechanism.geometry else (d, q + (p - q) / d)
        counted = np.diff(np.rint(own * rate * np.arange(values + 1))).astype(np.int64)
        table[0, 0], table[0, 1 : values + 1] = own, counted
        if shape.raises:  # each report raises so many counts
            table[0, shape.size] += shape.raises * own - counted.sum()
    return Tally(n, counts)


def _supposed_numbers(n: int, stored: StoredPlan) -> Tally:
    """Return the same of numbers that are in each range, or at each step, equally often."""
    plan, cells = stored.plan, stored.plan.cells
    counts, total = np.zeros(cells.tally_size, dtype=np.int64), 0
    for part, table, first in tables(cells, counts):
        for at, row in enumerate(table):
            rates = law_by_place(plan, part.mechanism, first + at).sum(axis=1)
            row[0] = own = round(n * part.weight / cells.weights)
            row[1:] = np.diff(np.rint(own * np.cumsum([0.0, *(rates / rates.sum())])))
            total += own
    return Tally(total, counts)


def smallest(asking: Asking, question: Query, alone: int | None = None) -> int | None:
    """Return the fewest reports in each window that would tell something; None where no number would."""

    def tells(n: int) -> bool:
        supposed = Asking(asking.store, asking.confidence, suppose=partial(supposed_tally, n))
        return all(_tells(answer, width) for answer in supposed.answers_in(question, first, alone))

    first, width = asking.windows(question)[0], _width(question)
    if question.analysis and question.analysis.by_period:
        return reports_needed(question.analysis.span, asking.single(alone).alpha)
    if question.analysis and question.analysis.kind == "clusters":
        return QUESTION_MIN * max(len(asking.tables[question.analysis.metric].domain.questions), 1)

    high = REPORTS_MIN
    while not tells(high):
        high *= 4
        if high > REPORTS_MAX:
            return None
    low = high // 4
    while high > FINE * low:
        middle = ceil((low * high) ** 0.5)
        if middle in (low, high):
            break
        low, high = (low, middle) if tells(middle) else (middle, high)
    return high


def _width(question: Query) -> float:
    """Return how long an interval may be: of shares as long as all that is possible, of other numbers any."""
    expression = question.expression
    if expression.ratios or any(asked.statistic != "share" for asked in expression.asked):
        return inf
    return float(sum(abs(factor) for factor, _ in expression.sum.terms)) or 1.0


def _tells(answer: QueryAnswer, width: float) -> bool:
    if answer.estimate is None:
        return False
    return answer.lower is None or answer.upper is None or answer.upper - answer.lower < width


def devices(stored: StoredPlan, reports: int, window: Window) -> int:
    """Return how many devices send so many reports in a window."""
    cells = stored.plan.cells
    charges = max(stored.reservation // max(cells.first_charge if cells.memoized else cells.charge, 1), 1)
    life = PlannedLife(charges, "spread", stored.period_days, cells.memoized, stored.expires)
    return ceil(reports * DEVICES / reports_of(life, Installs(DEVICES), 0, window.days))


def of_question(asking: Asking, question: Query, alone: int | None = None) -> tuple[int, int] | None:
    """Return the reports in each window, and the devices that send them, that would tell something; None for none."""
    reports = smallest(asking, question, alone)
    if reports is None:
        return None
    stored = asking.asked_plans(question)
    window = asking.windows(question)[0]
    return reports, max(devices(each, reports, window or default_window(asking.store, each)) for each in stored)


def needed(
    asking: Asking, answered: Sequence[tuple[Query, Sequence[QueryAnswer]]], alone: int | None = None
) -> Mapping[str, str]:
    """Return the same in words of the first questions of which nothing was told, by question.

    Not of those that count devices: any report has a bound, and without one it is days that are missing.
    """
    untold = [
        question
        for question, answers in answered
        if all(answer.estimate is None for answer in answers)
        and not (question.analysis and question.analysis.by_period)
    ]
    return {question.text: told(asking, question, alone) for question in untold[:NEEDED_MAX]}


def told(asking: Asking, question: Query, alone: int | None = None) -> str:
    """Say it of any question; raise BadQuestion for one that cannot be asked."""
    try:
        found = of_question(asking, question, alone)
    except BadQuestion as error:
        raise error.placed(question.text, 0) from None
    if found is None:
        return "No number of devices is known from which on this would tell something."
    if question.analysis and question.analysis.kind == "clusters":
        few = f"It tells nothing of fewer than {found[0]:,} reports in a window, which {found[1]:,} devices send"
        return f"{few}, and may need far more: as many as leave its clusters apart."
    if question.analysis and question.analysis.by_period:
        return f"It tells a bound from about {found[0]:,} reports in a period on, one of each device that is used."
    many = f"about {found[0]:,} reports in a window on, which {found[1]:,} devices send"
    return f"It would tell something from {many}, if all answers were equally frequent."
