"""Why a metric is silent, and until when: a pure function of facts.

None of the facts depends on an answer: they are days, periods, slots, budgets and what the person agreed to. Only
whether the present period of a hidden metric was answered does, and nobody but the app sees that.
"""

from dither_shared.frozen import frozen

REASONS = {
    "refused": "the person refused",
    "not-agreed": "the person was not asked, or agreed to less",
    "clock-behind": "the clock reads more than a day earlier than when something was last recorded or charged",
    "expired": "the metric has expired",
    "quiet": "the device is new",
    "forgotten": "the person had everything forgotten",
    "retired": "the aggregator takes this plan no more",
    "answered": "this period was answered",
    "unopened": 'the period has not been opened yet: a hidden answer only ever replaces a "none"',
    "unscheduled": "this period was not drawn",
    "waiting": "an older report still waits to be sent",
    "spent": "what the metric may cost is spent, or does not fit beside the others",
    "wrong-key": "the aggregator does not know the key, or no longer",
}
"""Every reason, in words for `status()` and `dither device inspect`."""


@frozen
class Facts:
    """The facts that decide whether a metric is silent. Days are counted from 1 January 1970."""

    today: int
    clock_day: int
    """The day by the clock, which may have been set back behind `today`."""
    behind_until: int
    """The first day on which a device may speak again whose clock was set back."""
    refused: bool
    agreed: bool
    expires: int
    """The first day on which nothing is recorded: of a hidden metric, none whose report would come too late either."""
    quiet_until: int
    forgotten_until: int
    retired_until: int
    prepared: bool
    """Whether its budget and its periods are those of its present terms."""
    next_day: int
    """The first day after the present period, if it was answered or opened, or any day of it that is to come; or 0."""
    hidden: bool
    """Whether its presence is hidden: then a look opens its periods, and an answer never does."""
    replaceable: bool
    """Whether the slot holds the present period's "none", which an answer replaces."""
    scheduled: bool
    next_scheduled: int | None
    crowded: bool
    """Whether the slot is full."""
    waits: bool
    """Whether what the slot holds cannot be built into an upload yet."""
    affordable: bool
    key_refused: bool = False
    """Whether the aggregator refused the key: an answer is taken all the same, and waits."""


@frozen
class SkipReason:
    """Why a metric is silent."""

    reason: str
    """A key of REASONS, or "" where it is not silent."""
    until: int | None = None
    """The first day on which this reason may be over; None if it is not over by itself."""


SPEAKS = SkipReason("")
UNPREPARED = SkipReason("unprepared")
"""No reason to skip yet; the budget row must be computed first."""


def reason_nothing_leaves(facts: Facts) -> SkipReason:
    """Return why a metric is silent, or why what it takes does not leave, for people."""
    skip_reason = reason_not_taken(facts)
    if facts.key_refused and skip_reason.reason in ("", "answered", "unopened", "waiting", "unprepared"):
        return SkipReason("wrong-key")
    return SPEAKS if skip_reason is UNPREPARED else skip_reason


def reason_not_taken(facts: Facts) -> SkipReason:
    """Return why an answer is not taken now: of a hidden metric none is, unless a look has opened the period."""
    skip_reason = reason_silent(facts)
    unopened = facts.hidden and not facts.replaceable and skip_reason in (SPEAKS, UNPREPARED)
    return SkipReason("unopened") if unopened else skip_reason


def reason_silent(facts: Facts) -> SkipReason:
    """Return why a metric says nothing today, or SPEAKS. The first reason that holds counts."""
    today = facts.today
    if facts.refused:
        return SkipReason("refused")
    if not facts.agreed:
        return SkipReason("not-agreed")
    if today > facts.clock_day + 1:
        return SkipReason("clock-behind", facts.behind_until)
    if today >= facts.expires:
        return SkipReason("expired")
    for reason, until in (
        ("quiet", facts.quiet_until),
        ("forgotten", facts.forgotten_until),
        ("retired", facts.retired_until),
    ):
        if today < until:
            return SkipReason(reason, until)
    if not facts.prepared:
        return UNPREPARED
    if facts.replaceable:
        return SPEAKS
    if today < facts.next_day:
        return SkipReason("answered", facts.next_day)
    if not facts.scheduled:
        return SkipReason("unscheduled", facts.next_scheduled)
    if facts.waits:
        return SkipReason("waiting")
    return SPEAKS if facts.affordable else SkipReason("spent")
