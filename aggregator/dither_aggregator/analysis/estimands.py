"""The estimands, by name; reading a window out of a store, and a few values of a metric day by day."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cache, cached_property
from importlib.metadata import version
from threading import Condition
from typing import Any, TypeVar

from cachetools import LRUCache, cached

from dither_aggregator.analysis.inference import CONFIDENCE
from dither_aggregator.analysis.numbers import Numbers
from dither_aggregator.analysis.reading import WINDOWS, Estimand, Pooled, Reading, Tail, View, Window, visible_tally
from dither_aggregator.analysis.reading_cache import Codec, Days, NotReady, keeper_of, once, refuse_late, refuse_slow
from dither_aggregator.analysis.rows import MadeRow, Row
from dither_aggregator.analysis.shares import OneShare, Shares
from dither_aggregator.analysis.tables.reading import Tables
from dither_aggregator.analysis.texts import Texts
from dither_aggregator.analysis.words import WordsEstimand
from dither_aggregator.counting import BadTally, TallyGone, impossible
from dither_aggregator.store import Store, StoredPlan, Tally
from dither_aggregator.store.records import Final
from dither_shared.installed import Installed
from dither_shared.plan import Plan

T = TypeVar("T")
Finals = Mapping[date, Final] | None

ESTIMANDS = Installed[Estimand[Any]](
    "dither.estimands",
    {estimand.name: estimand for estimand in (Shares(), OneShare(), Numbers(), Texts(), Tables(), WordsEstimand())},
)
DEFAULT = View()
CANDIDATES_AT_ONCE = 200
"""So many take a third of a second at most."""
ROWS_MAX = 250_000
"""Rows and candidates of all the readings that are kept. Those that were asked for least lately go first."""


TAILS_MAX = 1_000
"""Tails that are kept, a few numbers each."""
POOLED_BYTES_MAX = 32 * 1024 * 1024
"""The most bytes of windows' counts that are kept."""
TALLY_BYTES = 1_000
"""A window's kept reading, beside its counts."""
READ_AT_ONCE = 64
"""Windows of a series that are read together at most."""
COUNTS_AT_ONCE = 1 << 21
"""Counts of their days that are held at once at most: 16 MiB."""


def estimand_of(plan: Plan) -> Estimand[Any]:
    """Return what is read out of a plan's tallies."""
    return ESTIMANDS[plan.kind.estimand]


def read(store: Store, stored: StoredPlan, epoch: date, view: View = DEFAULT, ahead: "Ahead | None" = None) -> Reading:
    """Read a plan's window, which ends with an epoch, from what is folded now, or take what was kept of it.

    If it is one of several, `ahead` prepares those that follow. Raises TallyGone when a tally of it is no longer kept,
    and NotReady where it is not read here and now.
    """
    refuse_late(store)
    provisional = epoch > store.sealed()  # before a tally is read: it may be sealed in between
    window = Window.ending(epoch, view.days)
    if ahead and window not in ahead:
        ahead = None
    finals = ahead.finals if ahead else store.finals(stored.plan, window.first, window.last)
    days = days_of(store, stored, window, finals, ahead)
    snapshot = finals[epoch].snapshot if view.days == 1 and epoch in finals else None

    def made() -> Reading:
        tally = ahead.tally(window, view) if ahead else _pooled(store, stored, window, finals)
        return _estimate(stored, epoch, tally, view, provisional, snapshot)

    return _kept(store, stored, days, (epoch, view, snapshot), made, provisional=provisional)


class Ahead:
    """Reads windows together that are asked for one after the other, four times as many each time that one is missing.

    So nearly all are read together if none is kept, and little is done for nothing if all but a few are. The store is
    looked at once for so many, and what is done alike for each of them is done at once.
    """

    def __init__(self, store: Store, stored: StoredPlan, windows: Sequence[Window]) -> None:
        self._store, self._stored, self._windows = store, stored, windows
        self._places = {window: place for place, window in enumerate(windows)}
        self._until, self._step = 0, 1
        self._tallies: dict[Window, Tally] = {}

    def __contains__(self, window: Window) -> bool:
        return window in self._places

    @cached_property
    def _span(self) -> tuple[date, date]:
        return min(each.first for each in self._windows), max(each.last for each in self._windows)

    @cached_property
    def finals(self) -> Mapping[date, Final]:
        """The records of finalized days of all windows, by day."""
        return self._store.finals(self._stored.plan, *self._span)

    @cached_property
    def _with_reports(self) -> set[date]:
        return set(self._store.epochs(self._stored.plan, *self._span))

    def epochs(self, window: Window) -> list[date]:
        """Return the days of a window that have reports."""
        return [day for day in window if day in self._with_reports]

    def tally(self, window: Window, view: View) -> Tally:
        """Return the counts of a window, after all that reading the next ones takes was done for them at once, too.

        Raises TallyGone and BadTally.
        """
        place = self._places[window]
        if place >= self._until:
            self._until = place + self._step
            some = self._windows[place : self._until]
            self._step = min(4 * self._step, READ_AT_ONCE)
            if len(some) > 1:
                self._read(some, view)
        return self._tallies.pop(window, None) or _pooled(self._store, self._stored, window, self.finals)

    def _read(self, windows: Sequence[Window], view: View) -> None:
        """Read the counts of some windows, and what a view tells of each; leave out what cannot be read here."""
        store, stored, sealed = self._store, self._stored, self._store.sealed()
        days = [day for window in windows for day in self.epochs(window)]
        if len(days) * stored.plan.cells.tally_size > COUNTS_AT_ONCE:
            return
        try:
            tallies = store.tallies(stored.plan, days)
        except BadTally:  # of one of them: who reads it says so
            return
        kept_from = store.tallies_from()  # asked after they are read: they may be given up in between
        found = {}
        for window in windows:
            own = self.epochs(window)
            if window.first >= kept_from and all(self._is_final(day, tallies[day]) for day in own):
                pooled = Pooled.of(stored, window, [tallies[day] for day in own])
                found[window] = visible_tally(store, stored, pooled)
        self._tallies = {window: tally for window, tally in found.items() if not any(_faults(stored, tally))}
        estimand = estimand_of(stored.plan)
        estimand.prepare(stored, list(self._tallies.values()))
        completed = _completed(stored, view)
        for window, tally in self._tallies.items():
            if window.days == view.days and not estimand.slow:
                _read_once(stored, window.last, tally, completed, window.last > sealed)

    def _is_final(self, day: date, tally: Tally) -> bool:
        return day not in self.finals or self.finals[day].digest == tally.digest


def tallies_of(store: Store, stored: StoredPlan, windows: Sequence[Window]) -> Iterator[Tally | None]:
    """Yield the counts of some windows, each added up; None of one that is damaged, or in part no longer kept."""
    first, last = (
        at([day for each in windows for day in (each.first, each.last)], default=date.min) for at in (min, max)
    )
    finals, sealed, kept_from = store.finals(stored.plan, first, last), store.sealed(), store.tallies_from()
    for window in windows:
        pool = _pool_once if kept_from <= window.first and window.last <= sealed else _pool
        try:
            yield pool(store, stored, window, finals)
        except (TallyGone, BadTally):  # who reads it says so
            yield None


def days_of(
    store: Store, stored: StoredPlan, window: Window, finals: Mapping[date, Final], ahead: Ahead | None = None
) -> Days:
    """Return the days of a window that have reports, each with the digest of its tally if that does not change."""
    sealed, keeps = store.sealed(), keeper_of(store) is not None

    def digest_of(day: date) -> str:
        if day in finals:
            return finals[day].digest
        return store.tally(stored.plan, day).digest if keeps and day <= sealed else ""

    days = ahead.epochs(window) if ahead else sorted(store.epochs(stored.plan, window.first, window.last))
    return tuple((day, digest_of(day)) for day in days)


def _kept(
    store: Store,
    stored: StoredPlan,
    days: Days,
    asked: tuple[date, View, str | None],
    made: Callable[[], Reading],
    *,
    provisional: bool,
) -> Reading:
    """Read some days, or take what was kept of them. Counts of a day that is not sealed change: they are not kept."""
    _, view, _ = asked
    estimand = estimand_of(stored.plan)
    if provisional or view.candidates is not None:
        refuse_slow(store, slow=takes_seconds(stored) and view.candidates is None)
        return made()
    if keeper_of(store) and days and days[0][0] < store.tallies_from():
        first, _ = days[0]
        if final := store.finals(stored.plan, first, first).get(first):
            raise _gone(store, first, final)
        return made()
    codec = Codec((View, Window, *estimand.records), stored)
    return once(store, stored, "reading", days, asked, made, codec, slow=estimand.slow, noun=estimand.noun)


def made_once(
    store: Store,
    stored: StoredPlan,
    window: Window,
    what: str,
    of: Sequence[object],
    make: Callable[[], T],
    records: Sequence[type] = (),
) -> T:
    """Return what is made of readings of some sealed days for a page, made once by each version and kept as they are.

    It depends on the days, on all that is `of`, and on nothing else; `records` are its classes beside the estimand's.
    """
    refuse_late(store)
    if window.last > store.sealed() or window.first < store.tallies_from():
        return make()
    days = days_of(store, stored, window, store.finals(stored.plan, window.first, window.last))
    codec = Codec((*records, *estimand_of(stored.plan).records), stored)
    return once(store, stored, what, days, (window, _dither(), *of), make, codec, slow=False)


@cache
def _dither() -> str:
    return version("dither")


def takes_seconds(stored: StoredPlan) -> bool:
    """Tell whether one reading of any counts takes so long that no process that others wait for should make it."""
    estimand = estimand_of(stored.plan)
    return estimand.slow and (estimand.looks_up or len(stored.candidates) > CANDIDATES_AT_ONCE)


def tally_of(store: Store, stored: StoredPlan, window: Window) -> Tally:
    """Return the counts of a window, added up. Raises TallyGone and BadTally."""
    return _pooled(store, stored, window)


def _pooled(store: Store, stored: StoredPlan, window: Window, finals: Finals = None) -> Tally:
    """Add up the tallies of a window, or take what was added up of one that does not change any more. Raises BadTally.

    The kept readings of its finalized days are looked up if they are needed and not given.
    """
    kept = store.tallies_from() <= window.first and window.last <= store.sealed()
    return (_pool_once if kept else _pool)(store, stored, window, finals)


def _pool(store: Store, stored: StoredPlan, window: Window, finals: Finals) -> Tally:
    """Add up the tallies of a window, as far as who asks is told of them."""
    finals = store.finals(stored.plan, window.first, window.last) if finals is None else finals
    days = (_tally(store, stored, day, finals) for day in store.epochs(stored.plan, window.first, window.last))
    pooled = visible_tally(store, stored, Pooled.of(stored, window, days))
    _refuse_impossible(stored, pooled)
    return pooled


def _window_key(store: Store, stored: StoredPlan, window: Window, finals: Finals) -> tuple[object, ...]:
    return store.generation, stored.plan.metric, stored.plan.digest, window


def _bytes(tally: Tally) -> int:
    return tally.counts.nbytes + TALLY_BYTES


@cached(LRUCache(POOLED_BYTES_MAX, getsizeof=_bytes), key=_window_key, condition=Condition())
def _pool_once(store: Store, stored: StoredPlan, window: Window, finals: Finals) -> Tally:
    """Add them up where they are sealed and kept. Raises BadTally."""
    return _pool(store, stored, window, finals)


def tail(store: Store, reading: Reading) -> Tail | None:
    """Return what all that does not stand out in a reading has together in as many days before it.

    None where that cannot be told, where no counts of these days are kept, and while the reading is provisional. Raises
    TallyGone and BadTally.
    """
    if reading.provisional or not reading.has_tail or reading.window.first == date.min:
        return None
    return _tail_once(store, reading, store.tallies_from())


def _tail_key(store: Store, reading: Reading, kept_from: date) -> tuple[object, ...]:
    plan = reading.stored.plan
    return store.generation, plan.metric, plan.digest, reading.tally, reading.window, reading.view, kept_from


@cached(LRUCache(TAILS_MAX), key=_tail_key, condition=Condition())
def _tail_once(store: Store, reading: Reading, kept_from: date) -> Tail | None:
    """Return the tail of days that are sealed and kept: their counts do not change any more."""
    stored = reading.stored
    usual = Window.ending(reading.window.first - timedelta(days=1), reading.window.days)
    days = store.epochs(stored.plan, max(usual.first, kept_from), usual.last)
    if not days:
        return None
    before = Window(min(days), max(days))
    pooled = _pool_once(store, stored, before, store.finals(stored.plan, before.first, before.last))
    total = reading.sum_of_rest(pooled)
    significance = reading.significance()
    return Tail(total, len(significance.rest), before, pooled.n) if total and significance else None


def read_days(store: Store, stored: StoredPlan, window: Window, view: View) -> Iterator[Reading]:
    """Read each day of a window that has reports, by itself, earliest first; those no longer kept are left out.

    Raises NotReady where some of them are not read yet.
    """
    sealed, finals = store.sealed(), store.finals(stored.plan, window.first, window.last)
    days = days_of(store, stored, window, finals)

    def read_day(of_day: tuple[date, str]) -> Reading:
        day, _ = of_day
        provisional = day > sealed

        def made() -> Reading:
            return _estimate(stored, day, ahead.tally(Window(day, day), view), view, provisional, None)

        return _kept(store, stored, [of_day], (day, view, None), made, provisional=provisional)

    ahead = Ahead(store, stored, [Window(day, day) for day, _ in reversed(days)])
    yield from each_day(days, read_day)


def each_day(days: Days, read_day: Callable[[tuple[date, str]], T]) -> Iterator[T]:
    """Yield what is read of days, the earliest first; they are read the newest first. Days that are gone are left out.

    Raises NotReady where some of them are not read yet.
    """
    read_days, missing = [], []
    for each in reversed(days):
        try:
            read_days.append(read_day(each))
        except TallyGone:
            continue
        except NotReady as error:
            missing.append(error)
    if missing:
        raise NotReady.of_several(missing, len(days), "days")
    yield from reversed(read_days)


def _gone(store: Store, epoch: date, final: Final) -> TallyGone:
    return TallyGone(epoch, final.snapshot if store.snapshot(final.snapshot) else None)


def _tally(store: Store, stored: StoredPlan, epoch: date, finals: Mapping[date, Final]) -> Tally:
    """Return an epoch's tally. Raises TallyGone, and BadTally where it is not the one that was finalized."""
    tally, final = store.tally(stored.plan, epoch), finals.get(epoch)
    if final and tally.digest != final.digest:
        if epoch < store.tallies_from():  # asked after the tally is read: it may be given up in between
            raise _gone(store, epoch, final)
        raise BadTally(f"the counts of {epoch} are not those that snapshot {final.snapshot} was made of")
    return tally


def estimate(
    stored: StoredPlan,
    epoch: date,
    tally: Tally,
    view: View = DEFAULT,
    *,
    provisional: bool = False,
    snapshot: str | None = None,
) -> Reading:
    """Read a tally, or take what was read of the same one before. Raises BadTally where it is none of n reports."""
    _refuse_impossible(stored, tally)
    return _estimate(stored, epoch, tally, view, provisional, snapshot)


def _estimate(
    stored: StoredPlan, epoch: date, tally: Tally, view: View, provisional: bool, snapshot: str | None
) -> Reading:
    """Do so with a tally that can be one of n reports."""
    reading = _read_once(stored, epoch, tally, _completed(stored, view), provisional)
    return replace(reading, stored=stored, epoch=epoch, snapshot=snapshot, tally=tally.digest, left_out=tally.left_out)


def _completed(stored: StoredPlan, view: View) -> View:
    return replace(view, candidates=stored.candidates) if view.candidates is None else view


def _faults(stored: StoredPlan, tally: Tally) -> Iterator[str]:
    return impossible(stored.plan.cells, tally.counts, tally.n)


def _refuse_impossible(stored: StoredPlan, tally: Tally) -> None:
    for fault in _faults(stored, tally):
        raise BadTally(f"the tally is not one of {tally.n} reports: {fault}")


def _key(stored: StoredPlan, epoch: date, tally: Tally, view: View, provisional: bool) -> tuple[object, ...]:
    """Return what a reading depends on, but for the names that are put on it."""
    return stored.plan.metric, stored.plan.digest, stored.reservation, tally.digest, view, provisional


def _size(reading: Reading) -> int:
    """Return how much a reading counts: its rows, and the candidates that its key holds."""
    return 1 + len(reading.rows) + len(reading.view.candidates or ())


@cached(LRUCache(ROWS_MAX, getsizeof=_size), key=_key, condition=Condition())
def _read_once(stored: StoredPlan, epoch: date, tally: Tally, view: View, provisional: bool) -> Reading:
    """Read a tally once, also where several threads ask at once."""
    estimand: Estimand[Reading] = estimand_of(stored.plan)
    return estimand.read(stored, epoch, tally, view, provisional=provisional, snapshot=None)


# Series: a few values by day or week, each plan by itself, with intervals that hold all at once.


VALUES_MAX = 5
DAYS, WEEKS = WINDOWS[0], 6
"""Days of a week, and the weeks of a card."""


@dataclass(frozen=True)
class Point(MadeRow):
    """One value on one day: shares of the population that the n reports are a sample of, not percent; or untold."""

    plan: str
    """The plan's digest: points of different plans do not join."""
    rev: int
    epoch: date
    n: int
    provisional: bool
    left_out: int | None = 0
    """Reports of the day that are not among the n."""


def series(
    store: Store,
    plans: Sequence[StoredPlan],
    window: Window,
    values: Sequence[str],
    confidence: float = CONFIDENCE,
    together: int = 0,
) -> list[Point]:
    """Return the points of some values under the plans that know them, by value, then by plan and day.

    Intervals hold together for all days of all plans, of `together` days at least, and for all values of a plan: a
    reader chose these few out of all.
    """
    days = max(together, days_shown(store, plans, window))
    points = []
    for stored in plans:
        known = tuple(value for value in values if estimand_of(stored.plan).knows(stored, value))
        view = View("population", simultaneous=True, confidence=confidence, values=known, together=max(days, 1))
        for reading in read_days(store, stored, window, view) if known else ():
            points += [
                Point(
                    *(row.value, row.estimate, row.std_error, row.lower, row.upper, row.told_error is not None),
                    *(
                        stored.plan.digest,
                        stored.plan.rev,
                        reading.epoch,
                        reading.n,
                        reading.provisional,
                        reading.left_out,
                    ),
                )
                for row in (*reading.rows, *reading.untold)
            ]
    return sorted(points, key=lambda point: values.index(point.value))


def days_shown(store: Store, plans: Sequence[StoredPlan], window: Window) -> int:
    """Return how many days of some plans a window has."""
    return sum(len(store.epochs(stored.plan, window.first, window.last)) for stored in plans)


def weeks(
    store: Store, stored: StoredPlan, last: date, value: str, *, but_damaged: bool = False
) -> list[tuple[date, Row]]:
    """Return the ends of the last weeks, the last of which ends with a day, each with a value's share or number there.

    Intervals hold together for all of these weeks and all values. A week whose counts are no longer kept is left out,
    and all are of an estimand whose readings take long. Raises BadTally for damaged counts, or leaves them out, too.
    """
    estimand = estimand_of(stored.plan)
    if estimand.slow or not estimand.knows(stored, value):
        return []
    begin = max(min(store.epochs(stored.plan), default=last), store.tallies_from())
    ends = [last - timedelta(days=DAYS * back) for back in range(WEEKS)]
    ends = [end for end in ends if Window.ending(end, DAYS).first >= begin]
    view = View("population", simultaneous=True, values=(value,), days=DAYS, together=max(len(ends), 1))
    rows = []
    for end in reversed(ends):
        try:
            rows += [(end, row) for row in read(store, stored, end, view).rows if row.value == value]
        except TallyGone:
            continue
        except BadTally:
            if not but_damaged:
                raise
    return rows
