"""A reading: the estimates of one metric in one window of days, as the API and the pages show them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
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
from scipy.special import ndtr

from dither_aggregator.analysis.disclosure import CELL_MIN
from dither_aggregator.analysis.functional import Functionals, apart
from dither_aggregator.analysis.inference import CONFIDENCE, ErrorOf, Floats, Method
from dither_aggregator.analysis.released import Released, ReleasedTally
from dither_aggregator.analysis.rows import FirstDay, LastDay, LeftOut, Provisional, Row, SnapshotId, described, says
from dither_aggregator.analysis.significance import JudgedRow, Significance, Verdict
from dither_aggregator.analysis.tables.rows import Verdict as TableVerdict
from dither_aggregator.analysis.tail import Sum
from dither_aggregator.analysis.windows import Window, may_return, reports_max
from dither_aggregator.store import StoredPlan, Tally
from dither_aggregator.store.contract import BATCH_MIN
from dither_shared.errors import DitherError
from dither_shared.plan import Plan


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
    """A key of `normalise.METHODS`, for a second column."""
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
    """`simultaneous` intervals hold together with those of so many readings, this one counted."""


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

    def prepare(self, stored: StoredPlan, tallies: Iterator[Tally]) -> None:
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
