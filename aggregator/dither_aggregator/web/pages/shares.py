"""How shares are shown: first all values that stand out from the noise, then the rest together."""

from collections.abc import Sequence
from dataclasses import dataclass

from dither_aggregator.analysis.differences import Comparison
from dither_aggregator.analysis.reading import Reading
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import OneShareReading
from dither_aggregator.analysis.significance import Ranked, Significance
from dither_aggregator.analysis.snapshots import Snapshot
from dither_aggregator.analysis.tail import Tail
from dither_aggregator.store import Store
from dither_aggregator.web.charts.histogram import Histogram, draw_histogram
from dither_aggregator.web.charts.scale import end, precise, rough
from dither_aggregator.web.charts.shares import Plot, draw
from dither_aggregator.web.pages.presentation import (
    SHARES_BY_DAY,
    SHARES_MOVED,
    Cited,
    CitedRow,
    PagePart,
    Presentation,
    R,
    Summary,
    reach_in_words,
)
from dither_aggregator.web.pages.words import DEVICES, in_words, rank_in_words
from dither_aggregator.web.queries import readable_tail
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.domains import OTHER
from dither_shared.wire.problems import Problem

ROWS_A_PAGE = 50
FOUND_MAX = 20
LISTED_MAX = 25
"""While a day is not over, so many values at most are listed, in their own order."""
CITED_MAX = 50
RAW = (
    "Estimates are raw and unbiased: what nobody has scatters around zero, below it as often as above. "
    "The intervals are of the share among"
)


@dataclass(frozen=True)
class SharesPart:
    """The part of the page for shares."""

    headline: str
    significance: Significance
    band: bool
    """Whether the plot shows where noise alone lies."""
    rows: Sequence[Ranked] = ()
    """The rows of this page that stand out."""
    page: int = 1
    pages: int = 1
    found: Sequence[tuple[Row, str]] = ()
    """The values that were searched for, each with a verdict."""
    matching: int = 0
    """How many values match; the first of them are shown."""
    plot: Plot | None = None
    histogram: Histogram | None = None
    tail: str = ""
    """The share of all the rest, in sentences; "" where that cannot be told."""
    template: str = "shares.html"

    @property
    def intervals(self) -> str:
        """Say that estimates are raw, if there are any."""
        return RAW if self.plot or self.histogram else ""

    @property
    def unlisted_other(self) -> bool:
        """Whether "other" is shown beside texts: a reader might take it for the sum of all that are left out."""
        return self.significance.noun != "value" and any(row.value == OTHER for row in self.significance.unlisted)


class SharesShown(Presentation[R]):
    """How shares are shown of which some stand out from the noise."""

    searchable = True
    shows = "estimated shares"
    alone = False
    """Whether one share is all that is asked for."""

    def headline(self, significance: Significance, reading: R) -> str:
        """Return what can be told of a reading's rows, in one or two sentences."""
        if significance.too_few:
            few = f"{reading.n:,} reports are" if reading.n > 1 else "One report is"
            return (
                f"{few} too few to tell: even a value that everybody has would be found less than four times in five."
            )
        if reading.provisional:
            return f"More reports may come: of {reading.n:,} so far nothing is called found, and nothing ranked."
        return self._headline_of(significance, reading)

    def _headline_of(self, significance: Significance, reading: R) -> str:
        what, values, out = (
            f"{significance.noun}s",
            len(significance.significant) + len(significance.rest),
            len(significance.significant),
        )
        reach = ""
        if significance.detectable_share is not None:
            reach = f" With this many reports, a value that {rough(significance.detectable_share)} have is found "
            reach += "four times in five."
        if not out:
            return f"None of {values:,} {what} stands out from the noise.{reach}"
        return f"{out:,} of {values:,} {what} stand{'s' * (out == 1)} out from the noise.{reach}"

    def _draw(self, rows: Sequence[Row], reading: R, critical: float | None) -> Plot:
        return draw(rows, reading.noise_floor or 0.0, critical)

    def part(self, store: Store, reading: R, asked: QueryParameters) -> PagePart:
        """Return a page of the values that stand out, those that are searched for, and the rest."""
        significance = _significance_of(reading)
        search, page = asked["search"].strip(), asked["page"]
        found = _found(significance, search, provisional=reading.provisional)
        shown, matching, headline = found[:FOUND_MAX], len(found), self.headline(significance, reading)
        if significance.too_few:
            return SharesPart(headline, significance, not self.alone, found=shown, matching=matching)
        pages = max(-(-len(significance.significant) // ROWS_A_PAGE), 1)
        if page > pages:
            raise Problem("malformed", f"page must be a number from 1 to {pages}, got {page}")
        rows = significance.significant[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]
        listed = significance.rest if reading.provisional and len(significance.rest) <= LISTED_MAX else ()
        drawn = [*(ranked.row for ranked in rows), *listed, *significance.unlisted]
        critical = None if reading.provisional else significance.critical_share
        tail = readable_tail(store, reading)
        return SharesPart(
            headline,
            significance,
            not self.alone,
            rows,
            page,
            pages,
            shown,
            matching,
            self._draw(drawn, reading, critical) if drawn else None,
            draw_histogram(significance.bins, significance.scores) if significance.bins and not listed else None,
            _tail_in_words(tail, reading, significance) if tail else "",
        )

    def summary(self, reading: R) -> Summary:
        """Return how many values stand out."""
        significance = reading.significance() if reading.rows else None
        if significance is None:
            return Summary(reading.n, reading.summary)
        if significance.too_few:
            return Summary(reading.n, "too few reports to tell")
        says = (
            f"{len(significance.significant):,} of {len(significance.significant) + len(significance.rest):,} stand out"
        )
        return Summary(
            reading.n, says, significance.detectable_share, significance.p_value, len(significance.significant)
        )

    def cited(self, reading: R, snapshot: Snapshot) -> Cited:
        """Return the values that stand out, the first of them, and the rest."""
        significance = _significance_of(reading)
        if significance.too_few:
            return Cited(self.headline(significance, reading), significance=significance)
        ranked = [
            (each.row, rank_in_words(each, len(significance.significant)))
            for each in significance.significant[:CITED_MAX]
        ]
        rows = [
            CitedRow.of(snapshot, row, rank) for row, rank in [*ranked, *((row, "") for row in significance.unlisted)]
        ]
        level = round(100 * snapshot.estimates["interval"]["confidence"])
        return Cited(
            self.headline(significance, reading),
            "snapshot_shares.html",
            f"Estimated share of {DEVICES}; {level} % intervals{self._hold(level, significance)}.",
            rows,
            significance,
            max(len(significance.significant) - CITED_MAX, 0),
            self._draw(rows, reading, significance.critical_share) if rows else None,
            not self.alone,
            histogram=draw_histogram(significance.bins, significance.scores) if significance.bins else None,
        )

    def _hold(self, level: int, significance: Significance) -> str:
        how = "that hold all at once" if significance.together else f"of which {100 - level} % miss on average"
        return f"{'' if significance.together else ','} {how}; 95 % of pure noise lies in the band"

    about_days = SHARES_BY_DAY
    about_moves = SHARES_MOVED

    def moved(self, comparison: Comparison) -> str:
        """Return how many values moved, and how large a move is found."""
        return f"{super().moved(comparison)}{reach_in_words(comparison)}"


class OneShareShown(SharesShown[OneShareReading]):
    """How one share is shown, of which nothing stands out."""

    searchable = False
    alone = True
    moves_few = True

    def _headline_of(self, significance: Significance, reading: OneShareReading) -> str:
        silent = ", of all devices, those included that have nothing to say" * (len(significance.unlisted) > 1)
        estimate, lower, upper = _in_words(significance.unlisted[0])
        return f"{estimate} say {reading.asked}, between {lower} and {upper}{silent}."

    def _draw(self, rows: Sequence[Row], reading: OneShareReading, critical: float | None) -> Plot:
        return draw(rows, reading.noise_floor or 0.0, ends=(0.0, 1.0))

    def summary(self, reading: OneShareReading) -> Summary:
        """Return the share."""
        estimate, lower, upper = _in_words(_significance_of(reading).unlisted[0])
        return Summary(reading.n, f"{estimate} say {reading.asked}, {lower} to {upper}")

    def _hold(self, level: int, significance: Significance) -> str:
        return ""

    def moved(self, comparison: Comparison) -> str:
        """Return the share in both windows."""
        verdict = comparison.moved[0].verdict if comparison.moved else "cannot be told to have moved"
        (row,) = comparison.rows
        before, after = (precise(share, row.std_error) for share in (row.before, row.after))
        return f"The share of {row.value} {verdict}: {before}, then {after}."


def _significance_of(reading: Reading) -> Significance:
    significance = reading.significance()
    assert significance is not None, "a reading of shares with rows tells what stands out"
    return significance


def _in_words(row: Row) -> tuple[str, str, str]:
    """Return a share and the ends of its interval."""
    return precise(row.estimate, row.std_error), precise(row.lower, row.std_error), precise(row.upper, row.std_error)


def _tail_in_words(tail: Tail, reading: Reading, significance: Significance) -> str:
    """Return the share of all the rest, its days, and why these are not the days shown."""
    total, several = tail.total, reading.stored.plan.kind.several
    estimate = precise(total.estimate, total.std_error)
    lower, upper = (end(share, total.std_error) for share in (total.lower, total.upper))
    level = f"the {100 * reading.view.confidence:.0f}\N{NO-BREAK SPACE}% interval is"
    if several:
        estimate, lower, upper = (each.removesuffix("\N{NO-BREAK SPACE}%") for each in (estimate, lower, upper))
        had = f"every hundred of {tail.n:,} reports named {estimate} of them on average"
    else:
        had = f"they had {estimate} of {tail.n:,} reports together"
    apart = " and ".join(f"“{row.value}”" for row in significance.unlisted)
    without = f" That leaves out {apart}." if apart else ""
    return (
        f"Before these days ({in_words(tail.window)}) {had}: {level} from {lower} to {upper}.{without} "
        "The days shown cannot tell it: low noise kept some of these values from standing out, so their sum is too low."
    )


def _found(significance: Significance, search: str, *, provisional: bool) -> Sequence[tuple[Row, str]]:
    """Return the rows that have a text in their value, each with a verdict where there may be one."""
    if not search:
        return []
    wanted, judged = search.casefold(), significance.tell(provisional=provisional)
    return [(each.row, each.verdict or "") for each in judged if wanted in each.row.value.casefold()]
