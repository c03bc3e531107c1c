"""A reading: the estimates of one metric in one window of days, as the API and the pages show them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from math import sqrt
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypedDict,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dither_aggregator.analysis.functional import Functionals, IntervalEstimate, apart
from dither_aggregator.analysis.inference import CONFIDENCE, ErrorOf, Floats, Method, effective
from dither_aggregator.analysis.released import Released, ReleasedTally
from dither_aggregator.analysis.rows import (
    Days,
    FirstDay,
    JudgedRow,
    LastDay,
    LeftOut,
    Provisional,
    Row,
    Significance,
    SnapshotId,
    TableVerdict,
    Verdict,
    described,
    says,
)
from dither_aggregator.counting import Counts, tables
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_aggregator.store.document_kinds import Document
from dither_aggregator.store.records import unpack_counts
from dither_shared.errors import DitherError
from dither_shared.mechanisms import Cells, PureMechanism
from dither_shared.plan import Plan
from dither_shared.terms import periods_touched

# Windows: ranges of epochs read as one. The tallies of a plan add up; what one device sends twice is no news twice.


WINDOWS = (7, 28, 1)
"""How many days the windows on offer have, which end at the last sealed day: the first is the default."""
OVER_THE_EDGES = 2
"""A device is counted in a window for at most so many periods more than it touches: one report is built before the
window, and one waits."""


@dataclass(frozen=True)
class Window:
    """The epochs from `first` to `last`."""

    first: date
    last: date

    @classmethod
    def ending(cls, last: date, days: int) -> Self:
        """Return the window of so many days that ends with one, of fewer at the calendar's begin."""
        return cls(date.fromordinal(max(last.toordinal() - days + 1, 1)), last)

    @property
    def days(self) -> int:
        """How many epochs it has."""
        return (self.last - self.first).days + 1

    def __contains__(self, epoch: date) -> bool:
        return self.first <= epoch <= self.last

    def __iter__(self) -> Iterator[date]:
        """Yield its epochs, earliest first."""
        return map(date.fromordinal, range(self.first.toordinal(), self.last.toordinal() + 1))

    @property
    def ends(self) -> Days:
        """Its ends, by the names that the API has for them."""
        return {"from": self.first, "to": self.last}

    def to_document(self) -> dict[str, object]:
        """Return its one epoch, or its ends."""
        if self.days == 1:
            return {"epoch": self.last.isoformat()}
        return {"from": self.first.isoformat(), "to": self.last.isoformat()}


def default_window(store: Store, stored: StoredPlan) -> Window:
    """Return the last sealed days: as many as the default has or, where fewer are there and kept, these."""
    return default_of(store.epochs(stored.plan), store.sealed(), store.tallies_from())


def default_of(epochs: Collection[date], sealed: date, kept_from: date) -> Window:
    """Return the same of a plan with reports on some days."""
    window = Window.ending(sealed, WINDOWS[0])
    there = min((epoch for epoch in epochs if epoch in window), default=window.first)
    first = window.first if any(epoch < window.first for epoch in epochs) else there
    return Window(min(max(first, kept_from), window.last), window.last)


# Windows that a reader chooses. Days that are picked because of what they show are no sample of all days. So a window
# that no page offers, a single day too, has intervals that hold for all windows together (Bonferroni). N days have
# N (N + 1) / 2 windows, and C(N + 2, 4) pairs of windows without a common day. They are the days from the first with
# reports that are kept to today. N is rounded up to a power of two, so an interval is the same tomorrow.
#
# Windows overlap, so Bonferroni says too much. It holds whatever days and laws are, so it stays.


def is_offered(store: Store, stored: StoredPlan, window: Window) -> bool:
    """Tell whether pages offer a window: those that they open with, or lead to, were not chosen for what they show.

    The single days among them are the last sealed one, today, and the last with reports, to which pages of other revs
    lead.
    """
    if window.last == store.sealed() and window.days in WINDOWS:
        return True
    if window.days == 1 and window.last in (store.today(), max(store.epochs(stored.plan), default=None)):
        return True
    return window == default_window(store, stored)


def days_to_choose(store: Store, stored: StoredPlan, *, gone: bool = False) -> int:
    """Return how many days windows can be chosen of, at least 1, rounded up to a power of two.

    With `gone`, those count too whose counts are no longer kept: there may be snapshots of them.
    """
    first = min(store.epochs(stored.plan, date.min if gone else store.tallies_from()), default=store.today())
    return 1 << max((store.today() - first).days, 0).bit_length()


def windows_together(store: Store, stored: StoredPlan, window: Window, *, gone: bool = False) -> int:
    """Return for how many windows the intervals of one hold at once: 1 for one that is offered."""
    return 1 if is_offered(store, stored, window) else windows_of(days_to_choose(store, stored, gone=gone))


def windows_of(days: int) -> int:
    """Return how many windows so many days have."""
    return days * (days + 1) // 2


def reports_max(stored: StoredPlan, days: int) -> int:
    """Return how many reports of one device a window of so many days has at most.

    A single day has 1, for devices send one a day. In plans of before 0.1.0 a device that was away sent a built report,
    a waiting one and today's together.
    """
    most = reports_possible(days, stored.period_days, once_a_day=stored.plan.once_a_day)
    cells = stored.plan.cells
    return most if cells.memoized else min(most, max(stored.reservation // cells.charge, 1))


def reports_possible(days: int, period_days: int, *, once_a_day: bool) -> int:
    """Return how many of its reports a device may have had to wait with or to make in so many days."""
    most = periods_touched(period_days, days) + OVER_THE_EDGES
    return min(most, days) if once_a_day else most


def may_return(stored: StoredPlan) -> bool:
    """Tell whether a device may have reports in two windows that share no day."""
    cells = stored.plan.cells
    return cells.memoized or stored.reservation // cells.charge > 1


# A read key is told windows of sealed days, batches of today, and no cell of a few reports.
#
#     day      one that is not sealed is told in batches (`store/contract.py`); a sealed one of fewer than
#              BATCH_MIN reports only together with others; that it has any reports is told
#     cell     one that has fewer than CELL_MIN reports in a window is left out of it, with its reports; of memoized
#              answers one of which fewer than CELL_MIN devices are known to have reported: a device repeats its memo
#
# A report's cell is drawn without a look at the answer, so estimates from the other cells stay unbiased. Values of a
# public column are set by the app: where the rarest are left out, totals are of the devices with the others, and say
# so.
#
# This holds off somebody who reads and sends nothing. A reader who uploads can surround a report with reports of their
# own, and two windows can be subtracted from each other. Epsilon holds against all of that: shared/threats.md.


CELL_MIN = 20
"""With fewer reports, or devices that repeat their memo, a cell is left out."""


@dataclass(frozen=True)
class Pooled:
    """The counts of a window's days, added up."""

    window: Window
    tally: Tally
    days: int
    """How many of its days have reports."""
    largest: Counts
    """The most reports of one day that each cell has, int64[cells]."""

    @classmethod
    def of(cls, stored: StoredPlan, window: Window, tallies: Iterable[Tally]) -> "Pooled":
        """Add up the tallies of a window's days."""
        cells = stored.plan.cells
        n, days = 0, 0
        counts, largest = np.zeros(cells.tally_size, dtype=np.int64), np.zeros(cells.count, dtype=np.int64)
        for tally in tallies:
            n, days = n + tally.n, days + (tally.n > 0)
            counts += tally.counts
            np.maximum(largest, sizes(cells, tally.counts), out=largest)
        return cls(window, Tally(n, counts), days, largest)


def sizes(cells: Cells, counts: Counts) -> Counts:
    """Return how many reports each cell has, int64[cells]."""
    return np.concatenate([table[:, 0] for _, table, _ in tables(cells, counts)], dtype=np.int64)


def crowded(stored: StoredPlan, pooled: Pooled) -> Counts:
    """Return which cells of a window have enough reports, bool[cells]; one without any has."""
    cells = stored.plan.cells
    reports = sizes(cells, pooled.tally.counts)
    enough = reports
    if cells.memoized:
        most = reports_max(stored, pooled.window.days)
        of_days = np.ceil(effective(reports.astype(np.float64), most, permanent=True))
        enough = np.maximum(-(-pooled.largest // reports_max(stored, 1)), of_days)
    kept: Counts = (enough >= CELL_MIN) | (reports == 0)
    return kept


def without_few(stored: StoredPlan, pooled: Pooled) -> Tally:
    """Return the counts of a window without its cells of a few reports, and how many reports these had."""
    if pooled.days == 1 and pooled.tally.n < BATCH_MIN:
        return Tally(0, np.zeros_like(pooled.tally.counts), left_out=None)
    cells, kept = stored.plan.cells, crowded(stored, pooled)
    if kept.all():
        return pooled.tally
    counts = pooled.tally.counts.copy()
    for _, table, first in tables(cells, counts):
        table[~kept[first : first + len(table)]] = 0
    n = int(sizes(cells, counts).sum())
    return Tally(n, counts, left_out=pooled.tally.n - n)


def visible_tally(store: Store, stored: StoredPlan, pooled: Pooled) -> Tally:
    """Return what is read of a window's counts: all, or what a read key is told."""
    return pooled.tally if sees_all(store) else without_few(stored, pooled)


def sees_all(store: Store) -> bool:
    """Whether live figures and raw counts are told: to an admin key, and to the operator at loopback without keys."""
    return not isinstance(store, _Readers)


def for_readers(store: Store) -> Store:
    """Return a store as a read key sees it. It has nothing but what pages and API ask of it."""
    return cast("Store", _Readers(store))


_AS_THEY_ARE = frozenset(
    {
        *("app", "lossy", "plans", "stored", "plan_by_id", "measuring_people", "today", "sealed", "tallies_from"),
        *("finals", "snapshot", "keeper"),
    }
)
"""Parts of a store that tell a read key no more than it may know: days, plans, and what is recorded of sealed days."""


class _Readers:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name not in _AS_THEY_ARE:
            raise AttributeError(f"a read key is not told {name!r} of a store")
        return getattr(self._store, name)

    @property
    def generation(self) -> str:
        """Another than the store's: what is kept of readings of all counts is not told."""
        return f"{self._store.generation} read"

    def documents(self, kind: type[Document]) -> list[Document]:
        """Return all documents of a kind that readers may know."""
        if not kind.public:
            raise AttributeError(f"a read key is not told the {kind.kind} of a store")
        return self._store.documents(kind)

    def backlog(self) -> int:
        """Tell of no upload that waits."""
        return 0

    def epochs(self, plan: Plan, first: date = date.min, last: date = date.max) -> list[date]:
        """Return the sealed days on which reports of the plan were accepted, and those of which a batch is shown."""
        days = self._store.epochs(plan, first, last)
        return self._visible_days({self._store.stored(plan).id: days})[self._store.stored(plan).id]

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the same of each plan that has any."""
        return {id_: days for id_, days in self._visible_days(self._store.all_epochs()).items() if days}

    def _visible_days(self, epochs: dict[int, list[date]]) -> dict[int, list[date]]:
        sealed, shown = self._store.sealed(), self._store.shown()
        return {id_: [day for day in days if day <= sealed or (id_, day) in shown] for id_, days in epochs.items()}

    def tally(self, plan: Plan, epoch: date) -> Tally:
        """Return the tally of a sealed day, to be added up and then `told`; of another one what is shown of it."""
        if epoch <= self._store.sealed():
            return self._store.tally(plan, epoch)
        batch = self._store.shown_batch((self._store.stored(plan).id, epoch))
        size = plan.cells.tally_size
        if batch is None:
            return Tally(0, np.zeros(size, dtype=np.int64))
        return Tally(batch.n, unpack_counts(batch.packed, size))

    def tallies(self, plan: Plan, epochs: Sequence[date]) -> dict[date, Tally]:
        """Return the same of several days."""
        sealed = self._store.sealed()
        told = self._store.tallies(plan, [epoch for epoch in epochs if epoch <= sealed])
        return {epoch: told[epoch] if epoch in told else self.tally(plan, epoch) for epoch in epochs}


# The tail: the sum over all values that do not stand out, with an interval that holds.
#
# Values are set apart by the counts of one window. Their sum in the same window comes out too low, because noise helped
# to leave them out. So the sum is of other days: there the noise is new, and knows nothing of who was left out. The
# interval is of the share among the reports of those days. As an interval of the population that they are a sample of,
# it would be too narrow: the same devices report in both windows, so their answers, unlike their noise, are partly the
# same.
#
# The sum is a functional (`functional`). All d shares sum to one where an answer holds one value: then most of them are
# estimated as one less the few others, which have less noise.


@dataclass(frozen=True)
class Sum(IntervalEstimate):
    """The sum over some values: values a report, which is a share if an answer holds one value."""

    @property
    def rest(self) -> "Sum":
        """The sum over all other values, if both sums add up to one."""
        return Sum(1 - self.estimate, self.std_error, 1 - self.upper, 1 - self.lower)


class TailDocument(Days):
    """The share of all values that do not stand out, from days before, whose noise did not choose them.

    If answers may hold several values, it is the number of them a report. Values apart are not in it.
    """

    values: Annotated[int, says("how many values")]
    n: Annotated[int, says("reports of these days")]
    estimate: Annotated[float, says("their share of these reports: raw, so it may be negative")]
    std_error: float
    error_of: Annotated[ErrorOf, says("reports: the people behind both windows may be the same")]
    lower: Annotated[float, says("the interval's lower end, which holds by itself at the level")]
    upper: Annotated[float, says("its upper end")]


@dataclass(frozen=True)
class Tail:
    """The sum over all values that do not stand out in a window, from other days."""

    total: Sum
    values: int
    window: Window
    """The other days, from the first of them that has reports to the last."""
    n: int
    """Their reports."""

    def to_document(self) -> TailDocument:
        """Return what the API says of it."""
        return {
            "values": self.values,
            "estimate": self.total.estimate,
            "std_error": self.total.std_error,
            "error_of": "reports",
            "lower": self.total.lower,
            "upper": self.total.upper,
            "n": self.n,
            **self.window.ends,
        }


def sum_shares(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Estimate what values have together, bool[d], from the counts of n >= 0 reports that did not choose them.

    The interval is of the share among these reports, whose noise must be fresh. None where the law of two values is not
    known, and where the interval is as wide as all that is possible.
    """
    if n < 2:
        return None
    others = mechanism.ticks == 1 and 2 * among.sum() > mechanism.d
    found = _estimate(mechanism, counts, n, ~among if others else among, confidence)
    return found.rest if found and others else found


def _estimate(
    mechanism: PureMechanism, counts: Counts, n: int, among: npt.NDArray[np.bool_], confidence: float
) -> Sum | None:
    """Return it from the reports' supports of these values, not of all others."""
    weights, functionals = among.astype(np.float64), Functionals(mechanism, counts, n)
    if not functionals.known:
        return None
    variance = functionals.variance(weights, "reports")
    ends = functionals.interval(weights, 1 - confidence, variance)
    if ends is None or ends[1] - ends[0] >= mechanism.ticks:
        return None
    return Sum(functionals.estimate(weights), sqrt(variance), *ends)


class EstimateRow(msgspec.Struct, frozen=True):
    """One value's number with its error. Shares are raw and unbiased: they may be negative.

    A number's mean or quantile is in the metric's unit. A quantile lies between two edges: its estimate is the lower
    end of the range in which it seems to lie, and its interval ends at edges. An estimand's own columns follow.
    """

    metric: str
    rev: int
    first: FirstDay = msgspec.field(name="from")
    last: LastDay = msgspec.field(name="to")
    value: str
    n: Annotated[int, says("reports")]
    estimate: Annotated[float | None, says("a share; a mean or a quantile in the metric's unit; null if untold")]
    std_error: Annotated[float | None, says("null where the interval does not reach as far to both sides")]
    lower: Annotated[float, says("the interval's lower end")]
    upper: Annotated[float, says("its upper end")]
    error_of: Annotated[ErrorOf, says("the devices that error and interval are of")]
    verdict: Annotated[
        Verdict | TableVerdict | Literal["untold"] | None,
        says(
            "by simultaneous intervals, whichever are shown, and of tables and texts by tests, too; untold where the "
            "interval says nearly nothing; null where nothing is asked"
        ),
    ]
    rank_lower: Annotated[int | None, says("the least that its rank may be; null for what does not stand out")]
    rank_upper: Annotated[int | None, says("the most")]
    provisional: Provisional
    snapshot: SnapshotId
    left_out: LeftOut


COLUMNS = EstimateRow.__struct_encode_fields__
"""The columns of every estimand's rows."""


class Lines(TypedDict):
    """The shares that can be told from noise."""

    critical_share: Annotated[float | None, says("an estimate above it stands out; null where there is no such line")]
    detectable_share: Annotated[
        float | None, says("a true share of this stands out four times in five; null where none")
    ]


NO_LINES: Lines = {"critical_share": None, "detectable_share": None}


@dataclass(frozen=True)
class View:
    """How a reader wants the estimates."""

    error_of: ErrorOf = "population"
    simultaneous: bool = False
    normalised: str | None = None
    """A key of `shares.METHODS`, for a second column."""
    candidates: tuple[str, ...] | None = None
    """The texts to look for; None for the registry's own, which `estimands.estimate` puts in its place."""
    days: int = 1
    """How many epochs, of which the reading's is the last, are read as one."""
    confidence: float = CONFIDENCE
    """How often an interval is to hold the truth."""
    values: tuple[str, ...] | None = None
    """Only these values are read, which may be less work; None for all."""
    false_share: float | None = None
    """At most such a share of the texts that stand out is expected to be false; None for 1 less the confidence."""
    together: int = 1
    """Intervals and verdicts hold together with those of so many readings, this one counted."""

    def alpha(self, rows: int) -> float:
        """Return how often one interval may miss, of so many rows: those of `simultaneous` intervals hold at once."""
        return (1 - self.confidence) / ((rows if self.simultaneous else 1) * self.together)

    @property
    def own_confidence(self) -> float:
        """The confidence of this reading alone, with which all that are `together` hold as sure as is asked."""
        return self.confidence if self.together == 1 else 1 - (1 - self.confidence) / self.together


class WantedSum(NamedTuple):
    """A sum of values or ranges, and how sure its interval is to be."""

    name: str
    places: Sequence[int]
    """Which of them, by number."""
    alpha: float
    """The chance that its interval misses."""

    def weights(self, places: int) -> Floats:
        """Return 1 for each that it has, of so many, and 0 for all others."""
        weights = np.zeros(places)
        weights[list(self.places)] = 1.0
        return weights


class BadView(DitherError):
    """A view that an estimand does not have."""


def refuse_values(plan: Plan, view: "View", asked: frozenset[str], noun: str) -> None:
    """Raise BadView for options of listed values and of texts, of a metric whose statistics are of something else."""
    if asked & {"error_of", "normalised"}:
        raise BadView("error_of and normalised are for metrics whose values are listed")
    if "top" in asked:
        raise BadView(f"top is for metrics with many values: this one is of {noun}")
    if view.candidates is not None:
        raise BadView(f"{plan.metric} is of {noun}: candidates are for texts")


@dataclass(frozen=True)
class Reading(ABC):
    """The estimates of a metric under one plan in one window. Each estimand has its own rows and columns."""

    stored: StoredPlan
    epoch: date
    """The last of the window."""
    provisional: bool
    """More reports may still come: no verdicts, no ranks."""
    n: int
    view: View
    snapshot: str | None
    """The id of what was kept of the epoch once it was finalized."""
    noise_floor: float | None
    """The usual standard error of what nobody has; None while there is no report."""
    method: Method | None
    tally: str = field(default="", kw_only=True)
    """The digest of the counts that were read."""
    left_out: int | None = field(default=0, kw_only=True)
    """Reports of these days that are not among the n, as a read key is not told of their cells; None if of no cell."""
    _judged: dict[str, Significance | None] = field(default_factory=dict, kw_only=True, repr=False, compare=False)
    """The significance, once somebody asked for it; copies of a reading under other names share it."""

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that only this estimand has: the described attributes of its rows."""
        return tuple(own_columns(type(self)))

    @property
    def row(self) -> type[EstimateRow]:
        """The class of its rows in a table."""
        return _row(type(self), self.own_columns)

    @property
    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """One for each value, or candidate; empty while there is no report."""

    @property
    def untold(self) -> Sequence[Row]:
        """Rows whose interval says nearly nothing: without an estimate, and shown as rows of answers alone."""
        return ()

    @property
    def window(self) -> Window:
        """The epochs that were read."""
        return Window.ending(self.epoch, self.view.days)

    @property
    def distinct(self) -> Sequence[Row]:
        """The rows that say different things, of which windows are compared."""
        return self.rows

    @property
    def change_floor(self) -> float | None:
        """The standard error by which a change of a rare row is told; None where rows are of no one sort."""
        return self.noise_floor

    @property
    def repeats(self) -> int:
        """How many of its reports one device may have sent."""
        return reports_max(self.stored, self.view.days)

    def answers_part(self, row: Row) -> float:
        """Return how much of a row's standard error devices' answers are at most, from 0 to 1: all, unless known."""
        return 1.0

    def opposed(self, before: Row, after: Row, earlier: Self) -> float:
        """Return how much a row's error may be opposed to that of an earlier reading (`functional.apart`)."""
        return self.answers_part(after) * earlier.answers_part(before) if may_return(self.stored) else 0.0

    def change_chances(self, before: Self, values: Sequence[str]) -> Floats:
        """Return two-sided p-values of some values: how often noise and sampling alone make such a difference."""
        old, new = ({row.value: row for row in reading.distinct} for reading in (before, self))
        moved = np.array([new[value].estimate - old[value].estimate for value in values])
        errors = [self.move_error(old[value], new[value], before) for value in values]
        chances: Floats = 2 * ndtr(-np.abs(moved) / errors)
        return chances

    def move_error(self, before: Row, after: Row, earlier: Self) -> float:
        """Return the standard error of a row's difference from the one before, of an earlier reading."""
        return float(apart(before.std_error, after.std_error, self.opposed(before, after, earlier)))

    def move_ends(self, before: Row, after: Row, earlier: Self) -> tuple[float, float]:
        """Return the ends of the interval of a row's difference from the one before, of an earlier reading.

        They lie as far from the difference as both rows' ends lie from their estimates, squared and added (Donner and
        Zou 2012), with what both errors may be opposed.
        """
        moved, opposed = after.estimate - before.estimate, self.opposed(before, after, earlier)
        below = apart(after.estimate - after.lower, before.upper - before.estimate, opposed)
        above = apart(after.upper - after.estimate, before.estimate - before.lower, opposed)
        return moved - float(below), moved + float(above)

    def significance(self) -> Significance | None:
        """Return which rows stand out from the noise; None where nobody asks that of this estimand."""
        if "significance" not in self._judged:
            self._judged["significance"] = self._find_significance()
        return self._judged["significance"]

    def _find_significance(self) -> Significance | None:
        """Find them."""
        return None

    @property
    def has_tail(self) -> bool:
        """Whether other days may tell what all that does not stand out here has together."""
        return False

    def sum_of_rest(self, before: Tally) -> Sum | None:
        """Return what the tail has in the counts of other days; None where these are too few."""
        return None

    @property
    def sentences(self) -> Sequence[str]:
        """Sentences about the rows as a whole."""
        return ()

    @property
    def left_out_sentences(self) -> Sequence[str]:
        """Sentences on the reports that are left out."""
        if self.left_out is None:
            return (f"With a read key, a day of fewer than {BATCH_MIN} reports is told together with others only.",)
        if not self.left_out:
            return ()
        reports = f"{self.left_out:,} reports are" if self.left_out > 1 else "One report is"
        few = f"cells of fewer than {CELL_MIN} {'devices' * self.stored.plan.cells.memoized or 'reports'}"
        return (f"{reports} left out: with a read key, {few} are not told. {self.effect_of_leaving_out}.",)

    @property
    def effect_of_leaving_out(self) -> str:
        """The effect on estimates of leaving cells out, as a sentence without its full stop."""
        return "A cell is drawn without a look at the answer, so estimates from the others stay unbiased"

    @property
    def nothing_to_show(self) -> str:
        """Why there is no row though there are reports, in a sentence; "" where that cannot be."""
        return ""

    @abstractmethod
    def own_document(self) -> Mapping[str, object]:
        """Return what documents have of this estimand alone: as a TypedDict, if the API describes it."""

    def table(self, rows: Iterable[JudgedRow]) -> Iterator[EstimateRow]:
        """Yield some rows of the API."""
        plan, window, own = self.stored.plan, self.window, self.own_columns
        made: Callable[..., EstimateRow] = self.row
        before = (plan.metric, plan.rev, window.first, window.last)
        after = (self.provisional, self.snapshot, self.left_out)
        for row, *judged in rows:
            estimate, error = (None, None) if row.untold else (row.estimate, row.told_error)
            numbers = (row.value, self.n, estimate, error, row.lower, row.upper, self.view.error_of)
            yield made(*before, *numbers, *judged, *after, *[getattr(row, column) for column in own])

    def to_document(self) -> dict[str, object]:
        """Return what a snapshot keeps of it."""
        plan = self.stored.plan
        return {
            "metric": plan.metric,
            "plan": plan.digest,
            "rev": plan.rev,
            "mechanism": plan.cells.name,
            **self.window.to_document(),
            "n": self.n,
            "provisional": self.provisional,
            "snapshot": self.snapshot,
            "epsilon": self.stored.epsilon,
            "epsilon_lifetime": self.stored.epsilon_lifetime,
            "noise_floor": self.noise_floor,
            "error_of": self.view.error_of,
            "interval": {
                "method": self.method,
                "confidence": self.view.confidence,
                "simultaneous": self.view.simultaneous,
                **({"together": self.view.together} if self.view.together > 1 else {}),
            },
            "rows": [row.to_document(self.view.error_of) for row in (*self.rows, *self.untold)],
            **self.own_document(),
        }


def own_columns(reading: type[Reading]) -> dict[str, Any]:
    """Return the columns that the rows of a class of readings have beside all others', with their types."""
    row, *_ = get_args(get_type_hints(reading)["rows"])
    return described(row)


@cache
def _row(reading: type[Reading], own: tuple[str, ...]) -> type[EstimateRow]:
    types = own_columns(reading)
    further = [(name, types[name]) for name in own]
    made = msgspec.defstruct(EstimateRow.__name__, further, bases=(EstimateRow,), frozen=True)
    return cast("type[EstimateRow]", made)


R = TypeVar("R", bound=Reading)


class Estimand(ABC, Generic[R]):
    """A quantity that can be read out of a metric's tallies, as an R. It has no state, and there is one of each."""

    simultaneous: bool = True
    """Whether intervals hold all at once unless a reader asks for others."""
    ranks: bool = False
    """Whether the largest of its rows can be asked for."""
    looks_up: bool = False
    """True if arbitrary values can be queried by name."""
    names_some_falsely: bool = False
    """Whether a share of what stands out may be false, which a reader can choose (`View.false_share`)."""
    slow: bool = False
    """Whether a reading takes longer than a page may: it is made beforehand, and kept."""
    noun: str = ""
    """The work that takes so long, in words that follow "being computed"."""
    records: tuple[type, ...] = ()
    """The classes that a reading is made of; one that has others is not kept."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, by which kinds ask for it."""

    @property
    @abstractmethod
    def role(self) -> str:
        """The role of each name: "listed", "candidate", "found" or "statistic"."""

    def opening(self, days: int, confidence: float = CONFIDENCE) -> View:
        """Return the view that pages open with."""
        return View(simultaneous=self.simultaneous, days=days, confidence=confidence)

    @abstractmethod
    def check(self, plan: Plan, view: View, asked: frozenset[str]) -> None:
        """Raise BadView where a view does not fit a plan; `asked` are the options that the reader named."""

    @abstractmethod
    def names(self, stored: StoredPlan) -> Sequence[str]:
        """Return what can be asked for by name: listed values, candidates, statistics."""

    def knows(self, stored: StoredPlan, name: str) -> bool:
        """Tell whether a name can be shown day by day."""
        return name in self.names(stored)

    def opposite(self, stored: StoredPlan) -> str:
        """Return the name whose row only a reader gets who asks for it, as others say the same; "" if there is none."""
        return ""

    def shares(self, stored: StoredPlan) -> Sequence[str]:
        """Return the names of further rows, which are shares: they are of windows, and not shown day by day."""
        return ()

    def leading(self, stored: StoredPlan) -> Sequence[str]:
        """Return the names to show day by day where nothing is told to stand out: by default none."""
        return ()

    def compared(self, before: R, after: R) -> tuple[str, ...] | None:
        """Return the names to look up in both windows, where each may show others; None where both show the same."""
        return None

    def has_functionals(self, stored: StoredPlan) -> bool:
        """Whether any weighted sum of its names is told, by `functionals`."""
        return False

    def functionals(self, stored: StoredPlan, tally: Tally, days: int) -> Functionals | None:
        """Return the functionals of a tally of so many days, of at least one report; None where there are none."""
        return None

    def sums(self, stored: StoredPlan, tally: Tally, view: View, sums: Sequence[WantedSum]) -> Sequence[Row | None]:
        """Return rows of sums of listed values or ranges in a tally of reports; None for one that cannot be told."""
        return [None] * len(sums)

    def prepare(self, stored: StoredPlan, tallies: Sequence[Tally]) -> None:
        """Do at once what readings of several tallies would do one after the other."""

    def released(self, tally: ReleasedTally) -> Released:
        """Return what noisy counts tell, of a kind that is published; nothing where they are too few."""
        return Released()

    def found_names(self, tally: ReleasedTally) -> tuple[str, ...]:
        """Return the texts to look up in a release, of a kind that is searched: they follow from noisy counts alone."""
        return ()

    @abstractmethod
    def read(
        self, stored: StoredPlan, epoch: date, tally: Tally, view: View, *, provisional: bool, snapshot: str | None
    ) -> R:
        """Return the reading of a tally. Raises BadTally where it is none of n reports."""
