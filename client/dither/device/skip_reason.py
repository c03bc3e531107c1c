"""Why a metric is silent, and until when: asked here alone, by answers, looks, `status()` and `dither device inspect`.

None of the facts that decide depends on an answer: they are days, periods, slots, budgets and what the person agreed
to. Only whether the present period of a hidden metric was answered does, and nobody but the app sees that.
"""

from enum import Enum, StrEnum

from dither.device.agreement import Agreement, Asked
from dither.device.budget import Budget
from dither.device.days import Days, answers_always, end_of_period, period_start, silent_from
from dither.device.file import DeviceFile
from dither.device.outbox import RETIRED_DAYS
from dither_shared.frozen import frozen


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
        row = file.one(_ROW, metric.name, metric.plan.digest, today, start, end, days.builds_on())
        assert row
        spent, *terms, agreed, refused, leaves, plan = row[:8]
        replaceable, charge, built, has_memo, building, retired, used_until, next_scheduled, left_today = row[8:]
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
        if not self._budget.bears(metric, (spent or 0) + building + charge, bool(has_memo)):
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
