"""The two clocks, the machine's and the day of the store: which is wrong, and what a day that leapt ahead holds.

The machine's clock says one day, the store's reports count on another, which never goes back. If the former is behind,
either may be wrong. The store can tell by what else it knows: until when its registry asks, and on which days reports
came.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import msgspec

from dither_aggregator.store.records import Batch, Segment, sum_segments

EXPIRES_WITHIN = timedelta(days=366)
"""How far away the expiry of a metric is at most when its registry is checked."""
NAMED_MAX = 5
"""So many days are named in a sentence."""


@dataclass(frozen=True)
class DayReset:
    """The change that a reset makes, as it stands in the store until it is made."""

    to: date
    """The day that was asked for."""
    day: date
    """Reports count on it from then on: the next one, where reports of `to` are sealed."""
    before: date
    """The day on which they counted before."""
    through: date
    """The last sealed day before: days after `to` up to this one are moved aside, open ones behind it are joined."""
    aside: Mapping[str, int] = field(default_factory=dict)
    """By day: the accepted reports that are moved aside."""
    joined: Mapping[str, int] = field(default_factory=dict)
    """By day: those that are joined."""
    file: str = ""
    """The file for days that are moved aside; "" where none was named."""
    written: bool = False
    """Whether that file is whole, so that the store may change."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.before > self.day

    @property
    def sealed(self) -> date:
        """The latest day that may be sealed from then on."""
        return self.day - timedelta(days=1)

    def is_aside(self, epoch: date) -> bool:
        """Whether a day goes into the file."""
        return self.to < epoch <= self.through

    def is_joined(self, epoch: date) -> bool:
        """Whether what is of a day becomes of `day`."""
        return epoch > self.day and not self.is_aside(epoch)

    def join_segments(self, segments: Iterable[Segment]) -> Segment:
        """Return one segment of `day` in the place of all that a plan has of it and of days that are joined."""
        return sum_segments(list(segments))._replace(epoch=self.day, mark=b"")

    def join_batches(self, batches: Iterable[Batch]) -> list[Batch]:
        """Return the batches that are kept: those of days that are joined are added up, shown ones and last cuts each.

        Each last cut is BATCH_MIN reports behind what is shown of its day, so their sums are.
        """
        kept: dict[tuple[int, date, bool], Batch] = {}
        for one in batches:
            if not self.is_aside(one.epoch):
                moved = replace(one, epoch=min(one.epoch, self.day))
                key = moved.plan, moved.epoch, moved.shown
                kept[key] = _sum(kept[key], moved) if key in kept else moved
        return list(kept.values())

    def to_document(self) -> dict[str, object]:
        """Return all of it, for `from_text` and for people."""
        document: dict[str, object] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_text(cls, text: str) -> "DayReset":
        """Make the reset that stands in a store."""
        return msgspec.json.decode(text, type=cls)

    def sentences(self, done: bool) -> Iterator[str]:
        """Yield what happened, or would."""
        if not self.changes:
            yield f"reports count on {self.before}: there is nothing to reset"
            return
        if self.aside:
            where = self.file or "a file, which --move-aside names"
            yield f"{named(self.aside)}: {'moved' if done else 'would move'} into {where}"
        if self.joined:
            yield f"{named(self.joined)}: {'count' if done else 'would count'} on {self.day}"
        reason = "" if self.day == self.to else f": {self.to} has sealed reports"
        yield f"reports {'count' if done else 'would count'} on {self.day}, and no more on {self.before}{reason}"


def is_behind(clock: date, day: date) -> bool:
    """Whether the machine's clock is behind the day of a store; a single day passes by itself, as after a reset."""
    return (day - clock).days > 1


def judge(clock: date, day: date, used: Set[date], expires: date | None) -> tuple[bool, str]:
    """Return whether the machine's clock is wrong, and why; else the store's day is."""
    if expires:
        first = expires - EXPIRES_WITHIN
        if first <= clock <= expires < day:
            return False, f"no metric of the registry is asked after {expires}"
        if clock < first <= day <= expires:
            return True, f"no registry that is asked until {expires} was made before {first}"
    between = (day - clock).days - 1
    came = sum(clock < epoch < day for epoch in used)
    return 2 * came >= between, f"reports came on {came:,} of the {between:,} days between {clock} and {day}"


def named(days: Mapping[str, int]) -> str:
    """Return the reports of some days in words."""
    listed = ", ".join(f"{n:,} report{'s' * (n != 1)} of {day}" for day, n in list(days.items())[:NAMED_MAX])
    return f"{listed} and those of {len(days) - NAMED_MAX:,} more days" if len(days) > NAMED_MAX else listed


def _sum(one: Batch, other: Batch) -> Batch:
    whole = sum_segments([Segment(one.plan, one.epoch, 0, 1, each.n, each.packed) for each in (one, other)])
    return replace(one, n=whole.n, packed=whole.packed)


@dataclass(frozen=True)
class WrongClock:
    """One of the two clocks is wrong, because the machine's is more than a day behind."""

    clock: date
    """The day by the machine's."""
    day: date
    """The day on which reports count."""
    of_machine: bool
    """Whether it is the machine's; else the store's day leapt ahead."""
    reason: str
    sealed: bool = False
    """Whether sealed days after `clock` have reports."""

    @property
    def sentence(self) -> str:
        """Which one, and how that is known."""
        if self.of_machine:
            return f"the machine's clock is wrong, which says {self.clock}: {self.reason}"
        return f"the store's day is wrong, which is {self.day}: {self.reason}"

    @property
    def cure(self) -> str:
        """The next step, with a command in backticks."""
        meanwhile = f"Until then reports count on {self.day}"
        if self.of_machine:
            return f"Set the clock of the store's machine, which is behind. {meanwhile}, the latest day that was used."
        aside = " --move-aside moved.dither" if self.sealed else ""
        return (
            f"If it is {self.clock} today, stop what serves the store, and `dither store reset-clock --to "
            f"{self.clock}{aside}` brings its day back; with --dry-run it says how. {meanwhile}."
        )
