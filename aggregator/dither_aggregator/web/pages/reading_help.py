"""How to read the pages: the noise drawn again on the reader's own n, d and epsilon, and what the words mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from flask import render_template

from dither_aggregator.analysis.noise_demo import LARGEST, ROLLS, Curse, Rolled, average, holds, roll
from dither_aggregator.analysis.numbers import MEAN_REPORTS_MIN
from dither_aggregator.analysis.numbers import REPORTS_MIN as NUMBER_REPORTS_MIN
from dither_aggregator.analysis.quality.verdict import ALPHA as QUALITY_ALPHA
from dither_aggregator.analysis.significance import Ranked, Significance
from dither_aggregator.analysis.tables.arms import REPORTS_MIN as TABLE_REPORTS_MIN
from dither_aggregator.analysis.tables.ratios import SURE as GROUP_ERRORS_MIN
from dither_aggregator.store import Store
from dither_aggregator.web.charts.beside import Beside, draw_beside
from dither_aggregator.web.charts.histogram import Histogram, draw_histogram
from dither_aggregator.web.charts.shares import Mark
from dither_aggregator.web.pages.forms import FormField, form
from dither_aggregator.web.planned import Exact
from dither_aggregator.web.query_parameters import WINDOWS, Parameters, QueryParameters, Whole, query_parameters
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN

N_MAX, D_MAX, SEED_MAX = 10**9, 5_000, 999_999


class ReadingHelpAsked(Parameters):
    """The parameters of the page: which noise is drawn, on how many reports and values."""

    n = Whole(1, N_MAX, label="reports", size=10, load_default=8_000)
    d = Whole(2, D_MAX, label="values", size=5, load_default=300)
    epsilon = Exact(EPSILON_MIN, EPSILON_MAX, 6, label="ε of one report", load_default=Decimal(4))
    seed = Whole(0, SEED_MAX, label="seed", size=6, load_default=1)


@dataclass(frozen=True)
class ReadingHelpPage:
    """All that the template shows."""

    asked: QueryParameters
    rolled: Rolled
    average: Curse
    alone: Beside
    """The largest estimates, each with an interval of its own."""
    significance: Significance
    largest: Sequence[Ranked]
    """Those that stand out and are shown."""
    misses: int
    """Intervals of values that stand out, shown or not, that do not hold the truth."""
    together: Beside
    histogram: Histogram | None
    next_seed: int
    table_reports_min: int = TABLE_REPORTS_MIN
    group_errors_min: float = GROUP_ERRORS_MIN
    number_reports_min: int = NUMBER_REPORTS_MIN
    mean_reports_min: int = MEAN_REPORTS_MIN
    quality_days: int = round(1 / QUALITY_ALPHA)
    rolls: int = ROLLS
    windows: Sequence[int] = WINDOWS

    @property
    def form(self) -> Sequence[FormField]:
        """The form."""
        return form(ReadingHelpAsked, self.asked)

    @property
    def alone_rows(self) -> Sequence[tuple[Mark, float, bool]]:
        """The marks of the largest estimates, each with its truth and whether its interval holds that."""
        return _with_truths(self.alone.plot.marks, self.rolled.truths)

    @property
    def together_rows(self) -> Sequence[tuple[Mark, float, bool]]:
        """The marks of what stands out, and of "other"."""
        return _with_truths(self.together.plot.marks, self.rolled.truths)


def show(store: Store) -> str:
    """Return the page that a request asks for. The store has no part in it: its data are made up."""
    return render_template("reading_help.html", page=reading_help(query_parameters(ReadingHelpAsked)))


def reading_help(asked: QueryParameters) -> ReadingHelpPage:
    """Return what the page shows of one roll."""
    n, d, epsilon, seed = asked["n"], asked["d"], asked["epsilon"], asked["seed"]
    rolled = roll(n, d, epsilon, seed)
    significance = rolled.together.significance()
    assert significance  # n is at least 1
    truth = rolled.truths
    largest = significance.significant[:LARGEST]
    rows = [*(ranked.row for ranked in largest), *significance.unlisted]
    out = [ranked.row for ranked in significance.significant]
    return ReadingHelpPage(
        asked,
        rolled,
        average(n, d, epsilon),
        draw_beside(
            [known.row for known in rolled.largest],
            [known.truth for known in rolled.largest],
            rolled.noise_floor,
            None,
        ),
        significance,
        largest,
        sum(not holds(row, truth[row.value]) for row in out),
        draw_beside(rows, [truth[row.value] for row in rows], rolled.noise_floor, significance.critical_share),
        draw_histogram(significance.bins, significance.scores) if significance.bins else None,
        (seed + 1) % (SEED_MAX + 1),
    )


def _with_truths(marks: Sequence[Mark], truths: Mapping[str, float]) -> Sequence[tuple[Mark, float, bool]]:
    return [(mark, truths[mark.row.value], holds(mark.row, truths[mark.row.value])) for mark in marks]
