"""How shares are shown: first all values that stand out from the noise, then the rest together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from dither_aggregator.analysis.closed_days import Snapshot
from dither_aggregator.analysis.differences import Comparison
from dither_aggregator.analysis.reading import Reading, Tail
from dither_aggregator.analysis.rows import Ranked, Row, Significance
from dither_aggregator.analysis.shares import OneShareReading, SharesReading
from dither_aggregator.store import Store
from dither_aggregator.web.charts import SHARES, end, percent, precise, rough, shorten
from dither_aggregator.web.forest_plots import Histogram, Plot, draw, draw_histogram
from dither_aggregator.web.pages.presentation import (
    ANSWER_ROWS,
    DEVICES,
    SHARES_BY_DAY,
    SHARES_MOVED,
    Cited,
    CitedRow,
    PagePart,
    Presentation,
    R,
    ReadingAnswer,
    count,
    in_words,
    rank_in_words,
    reach_in_words,
)
from dither_aggregator.web.queries import readable_tail, refuse_unknown
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.domains import OTHER
from dither_shared.safe_output import visible
from dither_shared.wire.reading import Problem

ROWS_A_PAGE = 50
FOUND_MAX = 20
LISTED_MAX = 25
"""While a day is not over, so many values at most are listed, in their own order."""
CROWD_MIN = 8
"""Fewer values that do not stand out are named, in place of a histogram of as many bars."""
CITED_MAX = 50
NAMED_MAX = 3
"""Values that a sentence names side by side."""
COUNTED_MAX = 6
"""Some of so many leaders are named, and the others counted; more are counted alone."""
NAME_EM = 24.0
"""How wide a name is at most in a sentence."""
SHOWN = 0.1
"""An answer that can tell nothing names as many reports as show a value of this share."""
RAW = (
    "Estimates are raw: that of a value nobody has is as often below zero as above. "
    "The intervals are of the share among"
)


@dataclass(frozen=True)
class SharesPart:
    """The part of the page for shares."""

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
    reach: str = ""
    """How much stands out, and how much would, in small type."""
    tail: str = ""
    """The share of all the rest, in sentences; "" where that cannot be told."""
    few: Sequence[str] = ()
    """The rest in their own order, where they are too few to be drawn as a crowd."""
    template: str = "shares.html"

    @property
    def intervals(self) -> str:
        """Say that estimates are raw, if there are any."""
        return RAW if self.plot or self.histogram else ""

    @property
    def unlisted_other(self) -> bool:
        """Whether "other" is shown beside texts: a reader might take it for the sum of all that are left out."""
        return self.significance.noun != "value" and any(row.value == OTHER for row in self.significance.unlisted)


@dataclass(frozen=True)
class ChosenPart:
    """The part of the page for values that a reader chose."""

    rows: Sequence[tuple[Row, str]]
    """Each with a verdict; their intervals hold at once with those of all other values."""
    absent: Sequence[str]
    """Values that were chosen, and that the reading does not have."""
    plot: Plot | None
    template: str = "chosen.html"
    intervals: str = RAW


class SharesShown(Presentation[R]):
    """How shares are shown of which some stand out from the noise."""

    searchable = True
    shows = "estimated shares"
    alone = False
    """Whether one share is all that is asked for."""

    def answer(self, reading: R) -> ReadingAnswer:
        """Return which values lead, by intervals that hold all at once; or what would let anything be told."""
        significance, n = _significance_of(reading), reading.n
        if significance.too_few:
            return ReadingAnswer(n, _too_few(reading))
        if reading.provisional:
            return ReadingAnswer(
                n, f"More reports may come: of {n:,} so far nothing is called found, and nothing ranked."
            )
        return self._answer_of(significance, reading)

    def _answer_of(self, significance: Significance, reading: R) -> ReadingAnswer:
        found = [ranked.row for ranked in significance.significant]
        out = sorted((row for row in found if row.lower > 0), key=lambda row: -row.estimate)
        more = significance.p_value, len(significance.significant)
        if not out:
            sentence = reach_of(significance)
            if found:  # what stands out of texts is right on average, and a sentence asks for more
                sentence += " None of them is sure by itself."
            return ReadingAnswer(reading.n, sentence, (), "", *more)
        # A value that does not stand out may still be larger than one that does.
        ceiling = max(map(attrgetter("upper"), significance.rest), default=0.0)
        ceiling = max([ceiling, *(row.upper for row in found if row.lower <= 0)])
        others = next((row for row in significance.unlisted if row.value == OTHER), None)
        sentence = leaders_in_words(out, ceiling, significance.noun)
        if others is not None and others.lower > out[0].upper:
            sentence += f" {_about(others)} say something else."
        return ReadingAnswer(reading.n, sentence, out[:ANSWER_ROWS], out[0].value, *more)

    def _draw(self, rows: Sequence[Row], reading: R, critical: float | None) -> Plot:
        return draw(rows, reading.noise_floor or 0.0, critical)

    def part(self, store: Store, reading: R, asked: QueryParameters) -> PagePart:
        """Return a page of the values that stand out, those that are searched for, and the rest."""
        significance = _significance_of(reading)
        if chosen := tuple(dict.fromkeys(asked.get("values") or ())):
            return self._chosen(significance, reading, chosen)
        search, page = asked["search"].strip(), asked["page"]
        found = _found(significance, search, provisional=reading.provisional)
        shown, matching = found[:FOUND_MAX], len(found)
        if significance.too_few:
            return SharesPart(significance, not self.alone, found=shown, matching=matching)
        pages = max(-(-len(significance.significant) // ROWS_A_PAGE), 1)
        if page > pages:
            raise Problem("malformed", f"page must be a number from 1 to {pages}, got {page}")
        rows = significance.significant[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]
        listed = significance.rest if reading.provisional and len(significance.rest) <= LISTED_MAX else ()
        drawn = [*(ranked.row for ranked in rows), *listed, *significance.unlisted]
        critical = None if reading.provisional else significance.critical_share
        crowd = len(significance.rest) >= CROWD_MIN and not listed
        tail = readable_tail(store, reading) if reading.view.error_of == "population" else None  # as it is itself
        return SharesPart(
            significance,
            not self.alone,
            rows,
            page,
            pages,
            shown,
            matching,
            self._draw(drawn, reading, critical) if drawn else None,
            draw_histogram(significance.bins, significance.scores) if significance.bins and crowd else None,
            "" if reading.provisional or self.alone else reach_of(significance),
            _tail_in_words(tail, reading, significance) if tail else "",
            () if crowd or listed else [shorten(row.value, NAME_EM) for row in significance.rest],
        )

    def _chosen(self, significance: Significance, reading: R, values: Sequence[str]) -> ChosenPart:
        """Return the rows of some values, by intervals that hold all at once, whether they stand out or not."""
        judged = {each.row.value: each.verdict or "" for each in significance.tell(provisional=reading.provisional)}
        there = {row.value: row for row in reading.rows}
        rows = [(there[value], judged.get(value, "")) for value in values if value in there]
        absent = [value for value in values if value not in there]
        refuse_unknown(reading.stored, absent)
        plot = self._draw([row for row, _ in rows], reading, None) if rows else None
        return ChosenPart(rows, absent, plot)

    def cited(self, reading: R, snapshot: Snapshot) -> Cited:
        """Return the values that stand out, the first of them, and the rest."""
        significance = _significance_of(reading)
        if significance.too_few:
            return Cited(significance=significance)
        ranked = [
            (each.row, rank_in_words(each, len(significance.significant)))
            for each in significance.significant[:CITED_MAX]
        ]
        rows = [
            CitedRow.of(snapshot, row, rank) for row, rank in [*ranked, *((row, "") for row in significance.unlisted)]
        ]
        level = round(100 * snapshot.estimates["interval"]["confidence"])
        return Cited(
            "snapshot_shares.html",
            f"Estimated share of {DEVICES}; {level} % intervals{self._hold}.",
            rows,
            significance,
            max(len(significance.significant) - CITED_MAX, 0),
            self._draw(rows, reading, significance.critical_share) if rows else None,
            not self.alone,
            histogram=draw_histogram(significance.bins, significance.scores) if significance.bins else None,
        )

    _hold = " that hold all at once; 95 % of pure noise lies in the band"
    """How intervals hold, behind their name."""

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
    axis = 0.0, 1.0
    _hold = ""

    def _answer_of(self, significance: Significance, reading: OneShareReading) -> ReadingAnswer:
        silent = ", of all devices, those included that have nothing to say" * (len(significance.unlisted) > 1)
        row = significance.unlisted[0]
        return ReadingAnswer(reading.n, f"{_about(row)} say {visible(reading.asked)}{silent}.", (row,), row.value)

    def _draw(self, rows: Sequence[Row], reading: OneShareReading, critical: float | None) -> Plot:
        return draw(rows, reading.noise_floor or 0.0, ends=(0.0, 1.0))

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


def leaders_in_words(out: Sequence[Row], ceiling: float, noun: str = "value") -> str:
    """Return which rows lead and which follow, the largest first; none of the other rows is above the ceiling.

    It states only what intervals tell that hold all at once: a row leads if its interval is above all others, and rows
    whose intervals share a place are not told apart.
    """
    first, rest = _front(out, ceiling)
    if not first:
        if len(out) == 1:
            return f"{_called(out[0])} has {_about(out[0])}; no other {noun} can be told from zero."
        return f"Which {noun} leads cannot be told: {len(out):,} stand out, {_called(out[0])} with {_about(out[0])}."
    if len(first) > COUNTED_MAX:
        return f"{len(first):,} {noun}s lead, not told apart: {_called(first[0])} has {_about(first[0])}."
    if len(first) > NAMED_MAX:
        named, more = ", ".join(map(_called, first[: NAMED_MAX - 1])), len(first) - NAMED_MAX + 1
        return f"{named} and {more:,} more lead, not told apart: {_called(first[0])} has {_about(first[0])}."
    if len(first) > 1:
        return f"{_listed(map(_called, first))} lead, not told apart, with {_listed(map(_about, first))}."
    leads = f"{_called(first[0])} leads with {_about(first[0])}"
    if not rest:
        return f"{leads}; no other {noun} can be told from zero."
    second, _ = _front(rest, ceiling)
    if len(second) == 1:
        return f"{leads}; {_called(second[0])} follows with {_about(second[0])}."
    if 1 < len(second) <= NAMED_MAX:
        return f"{leads}; {_listed(map(_called, second))} follow, not told apart."
    return f"{leads}; {len(rest):,} more stand{'s' * (len(rest) == 1)} out from the noise."


def _front(rows: Sequence[Row], ceiling: float) -> tuple[Sequence[Row], Sequence[Row]]:
    """Return the rows that may be the largest, and all others; none at first where one of no row here may be."""
    front = max(row.lower for row in rows)
    if ceiling >= front:
        return (), rows
    return [row for row in rows if row.upper >= front], [row for row in rows if row.upper < front]


def _called(row: Row) -> str:
    return shorten(row.value, NAME_EM)


def _about(row: Row) -> str:
    """Return a share with its interval; "at most" where that holds zero, for a share below zero is none of people."""
    if row.lower <= 0:
        return f"At most {end(max(row.upper, 0.0), row.std_error)}"
    return SHARES.about(row.estimate, row.lower, row.upper)


def _listed(words: Iterable[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} and {last}" if before else last


def reach_of(significance: Significance) -> str:
    """Return how many values stand out from the noise, and the share of a value that would."""
    out, values = len(significance.significant), len(significance.significant) + len(significance.rest)
    told = f"{out:,} of {values:,} {significance.noun}s stand{'s' * (out == 1)}" if out else ""
    told = told or f"None of {values:,} {significance.noun}s stands"
    reach = significance.detectable_share
    found = (
        f" A {significance.noun} that {rough(reach)} have would stand out four times in five."
        if reach is not None
        else ""
    )
    return f"{told} out from the noise.{found}"


def _too_few(reading: Reading) -> str:
    """Return how many more reports would show something."""
    assert isinstance(reading, SharesReading), "of shares alone reports may be too few"
    more = reading.reports_for(SHOWN) - reading.n
    step = 10 ** max(0, len(str(more)) - 2)
    return (
        f"Nothing can be told yet: {count(reading.n, 'report')}; about {-(-more // step) * step:,} more would show a "
        f"value that {percent(SHOWN, 0)} have."
    )


def _tail_in_words(tail: Tail, reading: Reading, significance: Significance) -> str:
    """Return the share of all the rest, its days, and why these are not the days shown."""
    total, several = tail.total, reading.stored.plan.kind.several
    estimate = precise(total.estimate, total.std_error)
    lower, upper = (end(share, total.std_error) for share in (total.lower, total.upper))
    level = f"the {100 * reading.view.confidence:.6g}\N{NO-BREAK SPACE}% interval is"
    if several:
        estimate, lower, upper = (each.removesuffix("\N{NO-BREAK SPACE}%") for each in (estimate, lower, upper))
        had = f"every hundred of {tail.n:,} reports named {estimate} of them on average"
    else:
        had = f"they had {estimate} of {tail.n:,} reports together"
    apart = " and ".join(f"“{row.value}”" for row in significance.unlisted)
    without = f" That leaves out {apart}." if apart else ""
    return (
        f"Before these days ({in_words(tail.window)}) {had}; {level} from {lower} to {upper}.{without} "
        "The days shown cannot tell this: of values with equal shares the lucky ones stood out, so the rest add up to "
        "too little."
    )


def _found(significance: Significance, search: str, *, provisional: bool) -> Sequence[tuple[Row, str]]:
    """Return the rows that have a text in their value, each with a verdict where there may be one."""
    if not search:
        return []
    wanted, judged = search.casefold(), significance.tell(provisional=provisional)
    return [(each.row, each.verdict or "") for each in judged if wanted in each.row.value.casefold()]
