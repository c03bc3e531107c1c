"""Recording: an answer is randomized into its metric's slot, or the metric stays silent. All within a transaction.

In the order in which an answer asks: on which day (`Days`), at what cost (`Budget`), is there a reason to stay silent
(`SkipReasons`), and what the report is (`Slots`). Each owns the tables that it names; nothing but the report, and of a
memo its class, depends on the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import date
from enum import Enum, StrEnum

from dither.device.agreement import Agreement, Asked
from dither.device.file import DAY_S, DeviceFile
from dither_shared.exact import to_micro
from dither_shared.frozen import frozen
from dither_shared.light_typing import Protocol
from dither_shared.mechanisms import DEVICE_CELLS_MAX
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from dither_shared.wire import SYMBOL_DIGITS

# Days: when a device answers, and the day that it takes for today.
#
# A device knows whole UTC days only, counted from 1 January 1970. A period of k days starts on the days divisible by k,
# so it starts on the same day for everybody.
#
# A day is reached when a public period is used on it, or a report is charged. Beginning reaches none, nor does a look,
# though it opens hidden periods. While the clock reads more than a day earlier than that, nothing is recorded. The
# device falls back to its clock's day at once with a receipt whose Date agrees with the clock within a day, else when
# so many days of its clock are over without one. No answer of a server moves it anywhere else.
#
# All that was used, charged, memoized and drawn stays. `used` keeps the days of all periods that were used, so that
# none is used again, whichever way the clock goes; budgets know no days.
#
# An aggregator counts a report on the day by its own clock. How far that is ahead of the device's is taken from the
# Date of its latest receipt, and only says when the next report of a metric may leave.
#
# Days that were kept without being reached may lie in a false future, too: the first one of the file, from which it is
# quiet, and that of forgetting. Such a pause begins again on the first day on which the clock is found behind them.

EPOCH = date(1970, 1, 1)
YEAR_DAYS = 365
GRACE_DAYS = 7
"""For so long after a metric expires an aggregator takes its reports: one that leaves later is not made."""
RETIRED_DAYS = 30
"""For so long a plan is silent that the aggregator refused as retired."""
SILENT_DAYS = 30
"""For so many days of its clock a device that is behind says nothing; and after everything was forgotten."""
AGREES_S = 60
"""Clocks that agree, an answer's Date and an attempt's end are within so many seconds of each other."""
SPANS_MAX = 32
"""A metric's used days are kept as so many spans at most: then those of the shortest gap become one."""


class Scheduled(Protocol):
    """The part of a metric that decides when it is answered."""

    @property
    def schedule(self) -> str:
        """Return "spread" or "early"."""

    @property
    def charges(self) -> int:
        """Return the most reports, or, memoized, different answers."""

    @property
    def period_days(self) -> int:
        """Return the length of a period."""

    @property
    def expires(self) -> date:
        """Return the first day on which it has expired."""

    @property
    def hidden(self) -> bool:
        """Tell whether its reports leave when their period has closed."""


def day_number(day: date) -> int:
    """Return the days from 1 January 1970 to `day`."""
    return (day - EPOCH).days


def period_start(day: int, period_days: int) -> int:
    """Return the first day of the period that `day` is in."""
    return day - day % period_days


def end_of_period(metric: Scheduled, today: int) -> int:
    """Return the first day after the period that today is in."""
    return period_start(today, metric.period_days) + metric.period_days


def silent_from(metric: Scheduled, today: int) -> int:
    """Return the first day on which a metric is silent because it expires; a hidden one, whose report would be late."""
    expires = day_number(metric.expires)
    late = end_of_period(metric, today) >= expires + GRACE_DAYS and metric.hidden
    return min(expires, today) if late else expires


def answers_always(metric: Scheduled) -> bool:
    """Tell whether the device answers in each of its periods while it may, with nothing to draw."""
    return metric.schedule == "early" or metric.charges >= len(_periods(metric))


def draw_periods(metric: Scheduled, rng: Rng) -> list[int]:
    """Return the first days of `metric.charges` periods of the year before the metric expires, as they were drawn.

    The whole year is drawn from, whenever the device came: those before it came are lost, so that a device that has
    been there for a month has answered in as many of its days as one that has been there for a year. Nothing drawn
    depends on an answer.
    """
    candidates = list(_periods(metric))
    drawn = []
    for _ in range(min(metric.charges, len(candidates))):
        drawn.append(candidates.pop(rng.uniform(len(candidates))))
    return drawn


def _periods(metric: Scheduled) -> range:
    last = day_number(metric.expires) - 1
    return range(period_start(last - YEAR_DAYS + 1, metric.period_days), last + 1, metric.period_days)


class Days:
    """The days in a device's file: what `state` says of them, `used` and `schedule`. All within a transaction."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file

    def today(self) -> int:
        """Return the day by the clock, or the latest day that was reached if the clock went back behind it."""
        return max(self._file.day, self._file.state.get("last_day") or 0)

    def reach(self) -> None:
        """Keep that today a period was used, or a report charged."""
        self._file.set("last_day", self.today())

    # The way back.

    def notice(self) -> None:
        """Take note whether the clock is behind, and fall back when it was for long enough."""
        file = self._file
        if not self._is_behind():
            if file.state.get("behind_since") is not None:
                file.set("behind_since", None)
            return
        since = self._behind_since()
        if file.day < since + SILENT_DAYS:
            file.set("behind_since", since)
            return
        file.end_era()
        file.set("behind_since", None)
        self._fall_back()
        if self._forgot_ahead():
            file.set("forgotten_until", None)
        if file.state.get("last_day") is None:
            file.set("first_day", min(since, file.state.get("first_day") or 0))

    def agree(self, date: float | None) -> None:
        """Keep how far a receipt's Date, in seconds since 1970, is ahead of the clock.

        The device falls back to its clock's day if the two agree within a day.
        """
        if date is None:
            return
        ahead_s = int(date - self._file.clock())
        self._file.set("ahead_s", ahead_s if abs(ahead_s) > AGREES_S // 2 else None)
        if abs(date - self._file.clock()) <= DAY_S:
            self._fall_back()

    def _fall_back(self) -> None:
        reached = self._file.state.get("last_day")
        if reached is not None:
            self._file.set("last_day", min(reached, self._file.day))

    def _is_behind(self) -> bool:
        state = self._file.state
        first_day = 0 if state.get("last_day") is not None else state.get("first_day") or 0
        return max(self.today(), first_day) > self._file.day + 1 or self._forgot_ahead()

    def _behind_since(self) -> int:
        """Return the first day on which the clock was found behind: today, unless that was kept."""
        day, since = self._file.day, self._file.state.get("behind_since")
        return day if since is None else min(day, since)

    def behind_until(self) -> int:
        """Return the first day on which a device that is behind may speak again."""
        return min(self.today() - 1, self._behind_since() + SILENT_DAYS)

    # The aggregator's days.

    def of_aggregator(self) -> tuple[int, int]:
        """Return the first and the last day that it may be for the aggregator: two days around its midnight."""
        now = self._aggregators_clock()
        return int((now - AGREES_S) // DAY_S), int((now + AGREES_S) // DAY_S)

    def builds_on(self) -> int:
        """Return the day for which uploads are built: the aggregator's next one, once it has begun by either clock."""
        return max(self._file.day, self.of_aggregator()[1])

    def next_of_aggregator(self) -> float:
        """Return when its next day has certainly begun, in seconds since 1970 by the device's clock."""
        now = self._aggregators_clock()
        return self._file.clock() + DAY_S - (now - AGREES_S) % DAY_S

    def _aggregators_clock(self) -> float:
        return self._file.clock() + float(self._file.state.get("ahead_s") or 0)

    # Pauses.

    def quiet_until(self, days: int) -> int:
        """Return the first day on which a new file speaks that is quiet for so many days."""
        state = self._file.state
        first, reached = state.get("first_day") or 0, state.get("last_day")
        if reached is not None and reached < first:
            return 0  # it was quiet before that day came
        return (first if first <= self.today() else self._behind_since()) + days

    def begin_silence(self) -> None:
        """Keep that everything was forgotten today: a device that is behind begins its silence anew."""
        self._file.set("forgotten_until", self.today() + SILENT_DAYS)
        self._file.set("behind_since", None)

    def forgotten_until(self) -> int:
        """Return the first day on which a device speaks again after everything was forgotten."""
        if self._forgot_ahead():
            return self._behind_since() + SILENT_DAYS
        return self._file.state.get("forgotten_until") or 0

    def _forgot_ahead(self) -> bool:
        return (self._file.state.get("forgotten_until") or 0) > self._file.day + SILENT_DAYS + 1

    # Periods.

    def use(self, metric: str, first: int, until: int) -> None:
        """Keep that a metric's period was used, whose days are those from `first` and before `until`.

        The latest is a span of its own until the next: it tells when the period began whose report is in the slot.
        """
        file = self._file
        spans = file.execute("SELECT first, until FROM used WHERE metric = ? ORDER BY first", (metric,)).fetchall()
        gap, place = 1, 0
        if len(spans) > 1:
            gap, place = min((spans[place][0] - spans[place - 1][1], place) for place in range(1, len(spans)))
        if gap <= 0 or len(spans) >= SPANS_MAX:
            (before, ends), (after, ends_later) = spans[place - 1 : place + 1]
            file.execute("DELETE FROM used WHERE metric = ? AND first = ?", (metric, after))
            sql = "UPDATE used SET until = ? WHERE metric = ? AND first = ?"
            file.execute(sql, (max(ends, ends_later), metric, before))
        sql = (
            "INSERT INTO used VALUES (?, ?, ?) "
            "ON CONFLICT (metric, first) DO UPDATE SET until = MAX(until, excluded.until)"
        )
        file.execute(sql, (metric, first, until))

    def schedule(self, metric: str, periods: Iterable[int]) -> None:
        """Keep the periods that were drawn for a metric, in place of those before."""
        self._file.execute("DELETE FROM schedule WHERE metric = ?", (metric,))
        for day in periods:
            self._file.execute("INSERT INTO schedule VALUES (?, ?)", (metric, day))


# The budget: what a device was charged, by metric name, in micro-epsilon, and what it may still be.
#
# It only grows: a new rev, other terms, a memo that ends, a metric that leaves take nothing back. The cost of a built
# upload counts as reserved until a connection stands; then it is charged.


class Budget:
    """The budget in a device's file: the tables `metric` and `class`, and the prices of what waits."""

    def __init__(self, file: DeviceFile, days: Days, registry: Registry, agreement: Agreement, rng: Rng) -> None:
        self._file = file
        self._days = days
        self._registry = registry
        self._agreement = agreement
        self._rng = rng
        self._asked_epsilon = to_micro(registry.device_epsilon)

    def spent(self) -> dict[str, int]:
        """Return the micro-epsilon charged so far, by metric."""
        return dict(self._file.execute("SELECT name, spent FROM metric ORDER BY name").fetchall())

    def _committed(self, metric: str | None = None) -> dict[str, int]:
        """Return the micro-epsilon charged, or reserved by a built upload, by metric: of one, or of all."""
        sql = "SELECT name, spent + COALESCE(micro, 0) FROM metric LEFT JOIN reserved ON metric = name"
        one = ("", ()) if metric is None else (" WHERE name = ?", (metric,))
        return dict(self._file.execute(sql + one[0], one[1]).fetchall())

    def epsilon(self) -> int:
        """Return the most that all metrics may charge together: what was agreed to, or less if less is asked for."""
        return min(self._asked_epsilon, self._agreement.epsilon())

    # Recording.

    def bears(self, metric: Asked, committed: int, has_memo: bool, epsilon: int) -> bool:
        """Tell whether one more answer of a metric that is committed to so much fits, of all that `epsilon` allows."""
        if metric.memoized and has_memo:
            return True  # all its answers were reserved when it began
        fits = committed or (metric.name in self._registry.metrics and self._everything_fits(epsilon))
        if not (fits or self._fits(metric.name, metric.reservation)):
            return False
        # A memo begins with all of its answers left, or not at all.
        needed = metric.reservation if metric.memoized else metric.charge
        return committed + needed <= metric.reservation

    def _everything_fits(self, epsilon: int) -> bool:
        """Tell whether the device's epsilon bears all that every metric may reserve: the usual case, and a quick one.

        No answer that is taken changes it.
        """
        fits: bool | None = self._file.known("everything fits")
        if fits is None:
            reserved = dict(self._file.execute("SELECT name, MAX(spent, reserved) FROM metric").fetchall())
            for name, metric in self._registry.metrics.items():
                reserved[name] = max(reserved.get(name, 0), metric.reservation)
            fits = sum(reserved.values()) <= epsilon
            self._file.learn("everything fits", fits)
        return fits

    def _fits(self, name: str, reservation: int) -> bool:
        """Tell whether the device's epsilon bears a metric's reservation beside what the others have begun to spend.

        The others count with all that they reserved, also where they have left the registry: how much of it was spent
        would tell how many answers there were.
        """
        sql = (
            "SELECT SUM(MAX(spent, reserved)) FROM metric WHERE name <> ? AND (spent > 0 OR name IN "
            "(SELECT metric FROM class UNION SELECT metric FROM slot UNION SELECT metric FROM report))"
        )
        (others,) = self._file.execute(sql, (name,)).fetchone() or (0,)
        return int(others or 0) + reservation <= self.epsilon()

    def pay_class(self, metric: Metric, key: str) -> tuple[str, int]:
        """Return the class that a memoized metric answers with, and what its report costs; note a class that is new.

        A class that was charged is free. When the last one that may be charged is, any further answer repeats it:
        silence would say that the answer has changed.
        """
        sql = "SELECT class, charged FROM class WHERE metric = ? ORDER BY place"
        known: dict[str, int] = dict(self._file.execute(sql, (metric.name,)).fetchall())
        if key not in known:
            (reserved,) = self._file.execute(
                "SELECT reserved FROM metric WHERE name = ?", (metric.name,)
            ).fetchone() or (0,)
            if len(known) >= min(metric.charges, reserved // metric.charge):
                key = list(known)[-1]
        if key not in known:
            sql = "INSERT INTO class SELECT ?, ?, COALESCE(MAX(place) + 1, 0), 0 FROM class WHERE metric = ?"
            self._file.execute(sql, (metric.name, key, metric.name))
        return key, 0 if known.get(key) else metric.charge

    # Building and sending.

    def price(self, metric: str, charge: int, key: str | None) -> int:
        """Return what a report costs now: nothing where another one of its class was charged meanwhile."""
        paid = (
            key
            and self._file.execute(
                "SELECT 1 FROM class WHERE metric = ? AND class = ? AND charged", (metric, key)
            ).fetchone()
        )
        return 0 if paid else charge

    def commitments(self) -> Commitments:
        """Return what the device is committed to."""
        sql = "SELECT name, reserved FROM metric WHERE name IN (SELECT metric FROM class)"
        return Commitments(self._committed(), dict(self._file.execute(sql).fetchall()))

    def affords(self, commitments: Commitments, metric: str, charge: int, key: str | None) -> bool:
        """Tell whether a report may be built into an upload, beside what the device is committed to.

        Every report was recorded within its metric's reservation, and is refused if it no longer is: this is where the
        budget refuses if all else fails. One of a memo is not refused: that would tell that its answer is new.
        """
        if not charge or key is not None:
            return True
        asked = self._registry.metrics.get(metric)
        within_metric = asked is None or commitments.of(metric) + charge <= asked.reservation
        return within_metric and commitments.total + charge <= self.epsilon()

    def affords_upload(self, upload_id: str) -> bool:
        """Tell whether all reports of a built upload may be charged, which counts as reserved already."""
        sql = "SELECT metric FROM report WHERE upload = ? AND charge AND class IS NULL"
        fresh = [row[0] for row in self._file.execute(sql, (upload_id,))]
        if not fresh:
            return True
        commitments, asked = self.commitments(), self._registry.metrics
        within = all(commitments.of(name) <= asked[name].reservation for name in fresh if name in asked)
        return within and commitments.total <= self.epsilon()

    def charge_upload(self, upload_id: str) -> None:
        """Charge what a built upload holds: a connection stands, and its first byte is about to leave."""
        sql = "SELECT metric, charge, class FROM report WHERE upload = ?"
        for metric, charge, key in self._file.execute(sql, (upload_id,)).fetchall():
            price = self.price(metric, charge, key)
            self._file.execute("UPDATE metric SET spent = spent + ? WHERE name = ?", (price, metric))
            if key is not None:
                self._file.execute("UPDATE class SET charged = 1 WHERE metric = ? AND class = ?", (metric, key))
            if key is not None or price != charge:
                # Without the class: the file tells which answers were charged, and not which one was the latest.
                sql = "UPDATE report SET charge = ?, class = NULL WHERE upload = ? AND metric = ?"
                self._file.execute(sql, (price, upload_id, metric))

    # Preparing.

    def prepare_all(self) -> None:
        """Take note of what has changed: a metric that reserves less makes room for others. Draw periods in advance."""
        sql = "SELECT name, terms, memo_key, reserved FROM metric"
        known = {name: tuple(terms) for name, *terms in self._file.execute(sql).fetchall()}
        for name, metric in self._registry.metrics.items():
            if known.get(name) != self.terms(metric) and self._agreement.allows(metric):
                self.prepare(metric)

    def terms(self, metric: Asked) -> tuple[str, str, int]:
        """Return what a metric's row is prepared for: its periods' terms, its memo's key, its reservation."""
        terms = f"{metric.schedule} {metric.charges} {metric.period_days} {metric.expires}"
        return terms, metric.plan.memo_key, metric.reservation

    def prepare(self, metric: Metric) -> None:
        """Make the metric's row that of its present terms; draw its periods if they are new."""
        self._file.end_era()
        terms, memo_key, reserved = self.terms(metric)
        row = self._file.execute(
            "SELECT spent, terms, memo_key, reserved FROM metric WHERE name = ?", (metric.name,)
        ).fetchone()
        spent = row[0] if row else 0
        if row and self._file.execute("SELECT 1 FROM class WHERE metric = ?", (metric.name,)).fetchone():
            if row[2] == memo_key:
                # A reservation never shrinks, and grows only if the device's epsilon bears it.
                reserved = reserved if reserved > row[3] and self._fits(metric.name, reserved) else row[3]
            else:
                # The memo cannot go on. All that was reserved counts as spent, for what was not would tell how many
                # answers there were; what waits is part of it.
                spent = max(spent, row[3])
                self._end_memo(metric.name)
        now = (spent, terms, memo_key, reserved)
        if now != row:
            self._file.execute("INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?, ?)", (metric.name, *now))
        if not row or row[1] != terms:
            self._days.schedule(metric.name, self._drawn(metric, is_new=not row))

    def _end_memo(self, name: str) -> None:
        self._file.execute("DELETE FROM class WHERE metric = ?", (name,))
        self._file.execute("UPDATE slot SET charge = 0, class = NULL WHERE metric = ?", (name,))
        self._file.execute(
            "UPDATE report SET charge = 0, class = NULL "
            "WHERE metric = ? AND upload IN (SELECT id FROM upload WHERE NOT charged)",
            (name,),
        )

    def _drawn(self, metric: Metric, *, is_new: bool) -> list[int]:
        """Draw the periods in which the metric answers; none where it answers in all of them.

        An upgrade keeps as many of the periods that have not begun as reports remain. It does not draw the present
        period, which the old terms decided. The draw's order is random, so its first ones are a fair choice. Periods
        that are over stay, too: the clock may have strayed ahead.
        """
        if answers_always(metric):
            return []
        left = max(0, metric.reservation - self._committed(metric.name)[metric.name]) // metric.charge
        present = period_start(self._days.today(), metric.period_days)
        drawn = draw_periods(metric, self._rng)
        begins = [day for day in drawn if day > present or (is_new and day == present)]
        return begins[:left] + [day for day in drawn if day < present]

    # Forgetting.

    def forget(self) -> None:
        """Forget all answers of memoized metrics.

        All that a memo reserved counts as spent once a report of it was built: the rest would tell how many answers it
        had. Before what waits is dropped.
        """
        self._file.execute(
            "UPDATE metric SET spent = MAX(spent, reserved) WHERE name IN "
            "(SELECT metric FROM class WHERE charged UNION SELECT metric FROM report WHERE class IS NOT NULL)"
        )
        self._file.execute("DELETE FROM class")

    def forget_unused(self) -> None:
        """Forget the answers of memoized metrics that were not charged and wait no more."""
        self._file.execute(
            "DELETE FROM class WHERE NOT charged "
            "AND NOT EXISTS (SELECT 1 FROM slot WHERE slot.metric = class.metric AND slot.class = class.class) "
            "AND NOT EXISTS (SELECT 1 FROM report WHERE report.metric = class.metric AND report.class = class.class)"
        )


class Commitments:
    """The charges of a device, and its reservations in built uploads, in micro-epsilon. A memo counts with all that it
    reserved."""

    def __init__(self, committed: dict[str, int], memos: dict[str, int]) -> None:
        self._committed = committed
        self.total = sum(max(micro, memos.get(name, 0)) for name, micro in committed.items())

    def of(self, metric: str) -> int:
        """Return what one metric is committed to."""
        return self._committed[metric]

    def add(self, metric: str, charge: int) -> None:
        """Add a fresh report that was just built into an upload."""
        self._committed[metric] += charge
        self.total += charge


# Why a metric is silent, and until when: asked here alone, by answers, looks, `status()` and `dither device inspect`.
#
# None of the facts that decide depends on an answer: they are days, periods, slots, budgets and what the person agreed
# to. Only whether the present period of a hidden metric was answered does, and nobody but the app sees that.


class Silence(StrEnum):
    """Why nothing of a metric is recorded, or leaves."""

    REFUSED = "refused"
    NOT_AGREED = "not-agreed"
    CLOCK_BEHIND = "clock-behind"
    EXPIRED = "expired"
    QUIET = "quiet"
    FORGOTTEN = "forgotten"
    RETIRED = "retired"
    ANSWERED = "answered"
    UNOPENED = "unopened"
    UNSCHEDULED = "unscheduled"
    WAITING = "waiting"
    SPENT = "spent"
    WRONG_KEY = "wrong-key"


REASONS = {
    Silence.REFUSED: "the person refused",
    Silence.NOT_AGREED: "the person was not asked, or agreed to less",
    Silence.CLOCK_BEHIND: "the clock reads more than a day earlier than when something was last recorded or charged",
    Silence.EXPIRED: "the metric has expired",
    Silence.QUIET: "the device is new",
    Silence.FORGOTTEN: "the person had everything forgotten",
    Silence.RETIRED: "the aggregator takes this plan no more",
    Silence.ANSWERED: "this period was answered",
    Silence.UNOPENED: 'the period has not been opened yet: a hidden answer only ever replaces a "none"',
    Silence.UNSCHEDULED: "this period was not drawn",
    Silence.WAITING: "an older report still waits to be sent",
    Silence.SPENT: "the metric has spent what it may cost, or the rest does not fit beside the others",
    Silence.WRONG_KEY: "the aggregator does not know the key, or no longer",
}
"""Every reason, in words for `status()` and `dither device inspect`."""


HIDDEN, UNRECORDED, UNUSED = "hidden", "unrecorded", "unused"
NEXT_STEPS: dict[str, str] = {
    Silence.REFUSED: "set_consent(True, metric) if they agree after all",
    Silence.NOT_AGREED: "ask them, and set_consent(True) if they agree: status().asks has what is new",
    Silence.CLOCK_BEHIND: "set the clock right, or wait until that day",
    Silence.EXPIRED: "give it a later day in the registry, or leave it out",
    Silence.QUIET: "wait until that day; on your own machine start(development=True) takes the wait away",
    Silence.FORGOTTEN: "wait until that day; in a trial begin with another data_dir",
    Silence.RETIRED: "ship a registry that the aggregator has loaded, with the next rev of this metric",
    Silence.ANSWERED: "its report has left or was dropped, and the next answer counts on that day; in development "
    "delete its folder, or begin with another data_dir",
    Silence.UNOPENED: "record it a second time once telemetry has started: a start opens the period",
    Silence.UNSCHEDULED: "wait until that day, without one it stays silent; on your own machine "
    "start(development=True) answers at once",
    Silence.WAITING: "flush again once the aggregator answers: status().sending has the last attempt",
    Silence.SPENT: "no further report of it is made on this device; in development delete its folder",
    Silence.WRONG_KEY: "start with a key of this aggregator: dither keys list shows them",
    HIDDEN: "its report leaves when its period is over, whatever it holds, and no flush sends it before; for a trial "
    'give it presence = "public" and a rev of its own',
    UNRECORDED: "call its record() before flush()",
    UNUSED: "call telemetry.active(), or session() where it measures one",
}
"""The next step where nothing of a metric leaves, by the word of `flush().detail`: client/README.md has the same."""
MEANINGS: dict[str, str] = {
    **{reason.value: words for reason, words in REASONS.items()},
    HIDDEN: "whether there is an answer is hidden",
    UNRECORDED: "no answer was recorded",
    UNUSED: "the device itself answers, once it was used, or has kept days for a whole period",
}


class Step(Enum):
    """The next step towards a report."""

    SKIP = "skip"
    """There is a reason to be silent."""
    PREPARE = "prepare"
    """No reason yet; the budget's row must be computed first."""
    REPLACE = "replace"
    """The slot holds the present period's "none", which an answer replaces."""
    MAKE_ROOM = "make room"
    """The slot is full: its report is to be built into an upload first."""
    FILL = "fill"
    """The slot is empty."""


@frozen
class SkipReason:
    """Why a metric is silent, or the next step where it is not."""

    reason: Silence | None
    """None where it is not silent."""
    until: int | None = None
    """The first day on which this reason may be over, counted from 1 January 1970; None if it is not over by itself."""
    step: Step = Step.SKIP


_NO_REASON = {step: SkipReason(None, None, step) for step in Step}

_ROW = """
SELECT m.spent, m.terms, m.memo_key, m.reserved, a.terms, COALESCE(a.refused, 0), s.leaves, s.plan, s.replaceable,
    COALESCE(s.charge, 0), EXISTS (SELECT 1 FROM upload), EXISTS (SELECT 1 FROM class WHERE metric = asked.name),
    COALESCE((SELECT micro FROM reserved WHERE metric = asked.name), 0),
    COALESCE((SELECT until FROM retired AS r WHERE r.metric = asked.name AND r.plan = asked.plan), 0),
    COALESCE((SELECT MAX(until) FROM used WHERE metric = asked.name AND until > asked.today AND first < asked.end), 0),
    (SELECT MIN(day) FROM schedule WHERE metric = asked.name AND day >= asked.start),
    EXISTS (SELECT 1 FROM left_on WHERE metric = asked.name AND day >= asked.sent)
FROM (SELECT ? AS name, ? AS plan, ? AS today, ? AS start, ? AS end, ? AS sent) AS asked
    LEFT JOIN metric AS m ON m.name = asked.name LEFT JOIN agreement AS a ON a.metric = asked.name
    LEFT JOIN slot AS s ON s.metric = asked.name
"""


class SkipReasons:
    """The reasons in a device's file. Within a transaction; nothing is changed."""

    def __init__(self, file: DeviceFile, days: Days, agreement: Agreement, budget: Budget, quiet_days: int) -> None:
        self._file = file
        self._days = days
        self._agreement = agreement
        self._budget = budget
        self._quiet_days = quiet_days

    def decide(self, metric: Asked, *, prepared: bool = False) -> SkipReason:
        """Return why no report of a metric is made, or the next step towards one. The first reason that holds counts.

        `prepared` says that the budget's row is that of its present terms.
        """
        file, days = self._file, self._days
        today = days.today()
        start, end = period_start(today, metric.period_days), end_of_period(metric, today)
        row = file.execute(_ROW, (metric.name, metric.plan.digest, today, start, end, days.builds_on())).fetchone()
        assert row
        spent, *terms, agreed, refused, leaves, plan = row[:8]
        replaceable, charge, built, has_memo, building, retired, used_until, next_scheduled, left_today = row[8:]
        epsilon = self._budget.epsilon()
        if self._agreement.refuses(metric.name, bool(refused)):
            return SkipReason(Silence.REFUSED)
        if not self._agreement.covers(metric, agreed or ""):
            return SkipReason(Silence.NOT_AGREED)
        if today > file.day + 1:
            return SkipReason(Silence.CLOCK_BEHIND, days.behind_until())
        if today >= silent_from(metric, today):
            return SkipReason(Silence.EXPIRED)
        if today < (until := days.quiet_until(self._quiet_days)):
            return SkipReason(Silence.QUIET, until)
        if today < (until := days.forgotten_until()):
            return SkipReason(Silence.FORGOTTEN, until)
        if today < retired <= today + RETIRED_DAYS + 1:  # one that lies further ahead was set by another clock
            return SkipReason(Silence.RETIRED, retired)
        if not prepared and tuple(terms) != self._budget.terms(metric):
            return _NO_REASON[Step.PREPARE]
        # One of another plan stays: what leaves, and when, would tell whether there was an answer since.
        if replaceable and today < leaves <= used_until and plan == metric.plan.digest:
            return _NO_REASON[Step.REPLACE]
        if today < used_until:
            return SkipReason(Silence.ANSWERED, used_until)
        if next_scheduled != start and not answers_always(metric):
            return SkipReason(Silence.UNSCHEDULED, next_scheduled)
        if leaves is not None and (built or left_today or leaves > today):
            return SkipReason(Silence.WAITING)
        if not self._budget.bears(metric, (spent or 0) + building + charge, bool(has_memo), epsilon):
            return SkipReason(Silence.SPENT)
        return _NO_REASON[Step.FILL if leaves is None else Step.MAKE_ROOM]

    def not_taken(self, metric: Asked) -> SkipReason:
        """Return why an answer is not taken now: of a hidden metric none is, unless a look has opened the period."""
        skip = self.decide(metric)
        unopened = metric.hidden and skip.step in (Step.PREPARE, Step.MAKE_ROOM, Step.FILL)
        return SkipReason(Silence.UNOPENED) if unopened else skip

    def nothing_leaves(self, metric: Asked) -> SkipReason:
        """Return why a metric is silent, or why what it takes does not leave, for people."""
        skip = self.not_taken(metric)
        if self._file.get("key_refused") and skip.reason in _WAIT_FOR_A_KEY:
            return SkipReason(Silence.WRONG_KEY)
        return skip


_WAIT_FOR_A_KEY = (None, Silence.ANSWERED, Silence.UNOPENED, Silence.WAITING)
"""An answer is taken all the same where the aggregator refused the key, and waits."""


# The slots.
#
# With hidden presence a look opens a period with "none" in the slot, the period's first answer takes its place, and the
# slot leaves when the period has closed: a device that was there in a period says something, whatever there was to say.
# An answer never opens a period: where no look has, it is dropped. So all that depends on it is what the slot says.

SECRET_BYTES = 32
Answer = tuple[int, ...] | str
"""An answer as `Metric.read` returns it."""


class Slots:
    """The slots in a device's file, which it fills; the outbox empties them into uploads: `make_room` asks it to."""

    def __init__(
        self,
        file: DeviceFile,
        days: Days,
        registry: Registry,
        skip_reasons: SkipReasons,
        budget: Budget,
        rng: Rng,
        make_room: Callable[[], object],
    ) -> None:
        self._file = file
        self._days = days
        self._skip_reasons = skip_reasons
        self._budget = budget
        self._rng = rng
        self._make_room = make_room
        self.public = 0
        """The place of the device's value in the registry's public column."""
        self._hidden = [metric for metric in registry.metrics.values() if metric.hidden]

    # Recording.

    def record(self, metric: Metric, answer: Answer) -> Silence | None:
        """Randomize an answer into the metric's slot; return None, or why the metric is silent."""
        if self._hidden:
            self.open_periods()
        skip = self._decide(metric)
        if skip.step is not Step.FILL:
            return skip.reason or Silence.ANSWERED
        self._fill(metric, answer)
        self._days.reach()
        return None

    def replace(self, metric: Metric, answer: Answer) -> Silence | None:
        """Let an answer take the place of the "none" of a hidden metric's open period; return None, or why it does not.

        Write nothing but what the slot says, and of a memo the class that it would cost: no day, no row of its own.
        """
        reason = self._skip_reasons.not_taken(metric).reason
        if reason is None:
            (cell,) = self._file.execute("SELECT cell FROM slot WHERE metric = ?", (metric.name,)).fetchone() or (None,)
            if metric.memoized:  # the class that "none" would have cost
                self._file.execute("UPDATE slot SET class = NULL WHERE metric = ?", (metric.name,))
                self._budget.forget_unused()
            charge, key, report = self._randomize(metric, answer, cell or 0)
            # The row stays where it is, and as long as it was: another order of rows would tell that it was answered.
            sql = "UPDATE slot SET charge = ?, class = ?, report = ?, replaceable = 0 WHERE metric = ?"
            self._file.execute(sql, (charge, key, report, metric.name))
        return reason

    def open_periods(self) -> None:
        """Let every metric whose presence is hidden say "none", unless an answer replaces that in time."""
        self.close_periods()
        for metric in self._hidden:
            if self._decide(metric).step is Step.FILL:
                self._file.end_era()
                self._fill(metric, metric.nothing)

    def close_periods(self) -> bool:
        """Make slots of periods that have closed like any other, whether they were answered or not; tell if any was.

        Drop those of periods that are yet to begin: a look opened them in a false future. All traces of an answer go:
        from the file here, from the log because `replaced` asks for it.
        """
        day = self._days.today()
        sql = (
            "SELECT metric FROM slot WHERE leaves > ? AND NOT EXISTS "
            "(SELECT 1 FROM used WHERE used.metric = slot.metric AND first <= ? AND until >= leaves)"
        )
        for (metric,) in self._file.execute(sql, (day, day)).fetchall():
            self._file.end_era()
            self._file.count("dropped", drop_slots(self._file, metric))
            self._budget.forget_unused()
        closed = self._file.execute("SELECT 1 FROM slot WHERE leaves BETWEEN 1 AND ?", (day,)).fetchone() is not None
        if closed:
            self._file.end_era()
            self._file.execute("UPDATE slot SET leaves = 0, replaceable = 0 WHERE leaves BETWEEN 1 AND ?", (day,))
            self._file.set("replaced", 1)
        return closed

    def end_periods(self) -> bool:
        """Close periods, and let no answer replace the "none" of an open one: telemetry is off, and nobody looks.

        An open one's slot leaves as late as it would. Tell if there was any.
        """
        ended = self._file.execute("UPDATE slot SET replaceable = 0 WHERE leaves > 0").rowcount > 0
        if ended:
            self._file.set("replaced", 1)
            self.close_periods()
        return ended

    def _decide(self, metric: Metric) -> SkipReason:
        """Return why no slot is to be filled, or that one is. Prepare the budget and make room before it."""
        skip = self._skip_reasons.decide(metric)
        if skip.step is Step.PREPARE:
            self._budget.prepare(metric)
            skip = self._skip_reasons.decide(metric, prepared=True)
        if skip.step is Step.MAKE_ROOM:
            self._make_room()
            skip = self._skip_reasons.decide(metric, prepared=True)
        return skip

    # Filling.

    def _fill(self, metric: Metric, answer: Answer) -> None:
        """Randomize an answer into an empty slot: with hidden presence "none", which an answer may replace.

        The present period is over for further ones.
        """
        day = self._days.today()
        ends = end_of_period(metric, day)
        cells, cell = metric.cells, None
        if cells.lasting:
            cell = cells.of_device(self._cohort())
        elif cells.several:
            cell = cells.draw(self._rng, self.public if cells.public > 1 else 0)
        charge, key, report = self._randomize(metric, answer, cell or 0)
        leaves, replaceable = (ends, 1) if metric.hidden else (0, 0)
        row = (metric.name, metric.plan.digest, charge, key, cell, report, leaves, replaceable)
        self._file.execute("INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._days.use(metric.name, period_start(day, metric.period_days), ends)

    def _randomize(self, metric: Metric, answer: Answer, cell: int) -> tuple[int, str | None, str]:
        """Return what the report of an answer costs, its class while that is to be charged, and the report itself.

        The class only so long: else the file would tell the present answer. Reports of a metric are equally long.
        """
        cells, charge, key = metric.cells, metric.charge, None
        rng = self._rng_of_class(metric) if metric.memoized else self._rng
        answer_class = metric.kind.class_of(answer, metric.asked.domain, cells, cell, rng)
        mechanism = cells.mechanism_of(cell)
        if metric.memoized:
            # In hex: decimals of so many digits may be refused, by a setting of the host's.
            key, charge = self._budget.pay_class(metric, f"{answer_class:x}")
            rng = keyed_rng(self._secret(), f"{metric.plan.memo_key} {key}".encode("ascii"))
            report = mechanism.repeat(mechanism.first_stage.randomize(int(key, 16), rng), self._rng)
        else:
            report = mechanism.randomize(answer_class, rng)
        return charge, key if charge else None, json.dumps(mechanism.shape.to_wire(report)).ljust(SYMBOL_DIGITS)

    def _rng_of_class(self, metric: Metric) -> Rng:
        """Return the coins that the class of a memoized answer may need: they always fall alike."""
        if not metric.kind.rounds:
            return self._rng
        return keyed_rng(self._secret(), f"{metric.plan.memo_key} class".encode("ascii"))

    def _cohort(self) -> int:
        """Return the one number below 128 that puts this device into a cell of every metric whose cells last."""
        cohort: int | None = self._file.get("cohort")
        if cohort is None:
            cohort = self._rng.uniform(DEVICE_CELLS_MAX)
            self._file.set("cohort", cohort)
        return cohort

    def _secret(self) -> bytes:
        secret: bytes | None = self._file.get("secret")
        if secret is None:
            secret = self._rng.randbits(8 * SECRET_BYTES).to_bytes(SECRET_BYTES, "big")
            self._file.set("secret", secret)
        return secret


def drop_slots(file: DeviceFile, metric: str | None = None, plan: str | None = None) -> int:
    """Forget what waits in slots, of a metric or of its plan alone; return how many there were.

    The log is to be erased: until then it shows which of a hidden metric's slots were answered.
    """
    sql = "DELETE FROM slot WHERE metric = COALESCE(?, metric) AND plan = COALESCE(?, plan)"
    dropped = file.execute(sql, (metric, plan)).rowcount
    if dropped:
        file.set("replaced", 1)
    return dropped
