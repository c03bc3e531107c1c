"""Releases: totals of a metric's windows, published with noise of their own: a registry's keys for them.

A release is the tally of a closed window with discrete Laplace noise on each count, so that all reports of one device
in that window change the probability of what is published by e^epsilon at most:

    noise k with probability proportional to exp(-epsilon |k| / (w r))

A report is in one cell of its plan, and adds there to w counts: 1 where it is a symbol, its members where it is a
subset. Dummies are members, and counted: so the number of reports is a sum of counts, and has no counter of its own. A
device has at most r reports in a window, and all of them may add to the same counts, so the tallies with and without
the device differ by at most w r in sum of absolute differences. Dwork, McSherry, Nissim, Smith 2006; Ghosh,
Roughgarden, Sundararajan 2009.

Epsilons of several releases add up, of one metric and of several. Nothing here is part of a plan, of the compiled
registry or of a person's terms: a device does nothing differently, and its reports promise what they did, to everybody
who reads a release as well.
"""

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from math import exp, sqrt
from typing import TYPE_CHECKING, Any, Final

from dither_shared.errors import refusal_of
from dither_shared.exact import from_micro, to_micro
from dither_shared.frozen import frozen
from dither_shared.mechanisms import PureMechanism

if TYPE_CHECKING:
    from dither_shared.cells import Cells
    from dither_shared.kinds import Answer, Asked, Kind
    from dither_shared.plan import Plan
    from dither_shared.toml_tables import TomlTable

YEAR_DAYS: Final = 366
"""The days in a row whose releases `publish_epsilon_year` bounds."""
IN_A_YEAR: Final = {"week": 53, "month": 13, "quarter": 5}
"""The windows on offer: how many of each end, at most, within YEAR_DAYS in a row (31 January to 31 January has 13)."""
COUNTS_MAX: Final = 4_096
"""A metric with more counts is not published: a store keeps each release for good."""
WHY_CHARACTERS_MAX: Final = 500
ISSUE_CHARACTERS_MAX: Final = 300
PUBLISH_EPSILON_MAX: Final = Decimal(20)


@frozen
class Publishing:
    """The part of a metric's table that says how its totals are published."""

    window: str
    """A key of IN_A_YEAR."""
    epsilon: Decimal
    """The privacy loss of one release."""
    why: str
    """Why the question is asked, for those who are asked."""
    issue: str = ""
    """The address of the page on which it was discussed; "" where none is named."""

    @property
    def micro(self) -> int:
        """The same in micro-epsilon."""
        return to_micro(self.epsilon)

    @property
    def micro_year(self) -> int:
        """The most that releases of the metric add up to in a year, in micro-epsilon."""
        return IN_A_YEAR[self.window] * self.micro


def read_publishing(table: "TomlTable", kind: "Kind[Any, Answer]", asked: "Asked | None") -> Publishing:
    """Read `publish`, `publish_epsilon`, `why` and `issue`; raise RegistryError for what cannot be published."""
    window = table.one_of("publish", tuple(IN_A_YEAR))
    if asked is not None and (refused := unpublished(kind, asked)):
        raise table.error("publish", refused)
    return Publishing(
        window,
        table.epsilon("publish_epsilon", PUBLISH_EPSILON_MAX),
        table.text("why", WHY_CHARACTERS_MAX),
        _read_issue(table) if table.has("issue") else "",
    )


def _read_issue(table: "TomlTable") -> str:
    """Return an address of the web: sites lead to it, so nothing else that browsers run or open may stand there."""
    issue = table.text("issue", ISSUE_CHARACTERS_MAX)
    if not issue.startswith(("https://", "http://")) or " " in issue:
        raise table.error("issue", "must be the https:// address of the page on which the question was discussed")
    return issue


def unpublished(kind: "Kind[Any, Answer]", asked: "Asked") -> str:
    """Return why totals of a metric are not published, as the end of a sentence about `publish`; "" where they are."""
    shapes = [part.mechanism.shape for part in asked.cells.parts]
    if any(shape.raises is None for shape in shapes):
        return (
            f"cannot be said of {asked.cells.name}: a report is many bits, and all of them could be one device's, so "
            f"the noise would hide the totals; name another mechanism, or memoize a text by a hash"
        )
    if not kind.published:
        return f'cannot be said of kind "{kind.name}" yet: totals of flags, choices, numbers and tables are published'
    if counts_of(asked.cells) > COUNTS_MAX:
        return f"cannot be said of more than {COUNTS_MAX:,} counts, got {counts_of(asked.cells):,}"
    return ""


def counts_of(cells: "Cells") -> int:
    """Return how many counts a release has: those of all cells."""
    return cells.tally_size - cells.count


def window_of(name: str, day: date) -> tuple[date, date]:
    """Return the first and the last day of the week (Monday to Sunday), month or quarter that a day lies in."""
    if name == "week":
        first = day - timedelta(days=day.weekday())
        return first, first + timedelta(days=6)
    months = {"month": 1, "quarter": 3}[name]
    first = date(day.year, (day.month - 1) // months * months + 1, 1)
    after = first.month + months
    return first, date(first.year + (after > 12), after - 12 * (after > 12), 1) - timedelta(days=1)


def last_window(name: str, closed: date) -> tuple[date, date]:
    """Return the last window that is over, where `closed` is the last day that nothing can be added to."""
    first, last = window_of(name, closed)
    return (first, last) if last <= closed else window_of(name, first - timedelta(days=1))


def name_of(name: str, first: date) -> str:
    """Return what people call a window: 2026-W48, 2026-11, 2026-Q4."""
    if name == "week":
        year, week, _ = first.isocalendar()
        return f"{year}-W{week:02}"
    return f"{first:%Y-%m}" if name == "month" else f"{first.year}-Q{(first.month + 2) // 3}"


def reports_in(days: int, *, memoized: bool, reports: int) -> int:
    """Return r, the most reports of one device under one plan that an aggregator may count in so many days in a row.

    `reports` is the most that any registry with this plan allowed a device in its life; of a memoized metric there is
    no such number, for a memo is repeated in every period.

        r = min(days, reports)          or, memoized, days

    Proof. (1) A device sends at most one report of a metric on a UTC day *of the aggregator's* (`client/device.md`,
    "One report a day"), whatever it was recorded for. So one that waited, in the slot or in a built upload, takes the
    place of another one of that day, and comes on top of none. (2) A report is charged to the metric's budget before
    its first byte leaves, and the budget, kept by name, is never refreshed: not by a new rev, by `forget()`, by time,
    or by a clock. The same bytes sent again are counted once. So no more than `reports` are ever counted.

    Periods are *not* used, though they would give less: a device takes no answer twice for a day of its own clock, but
    a clock that strays into the future and back has days to answer for that the aggregator has not. (1) and (2) hold
    for it, for neither asks which day the device's clock reads when it records.

    The proof does not cover everything. (1) is not kept by a device without a right clock and without a receipt that
    has a date, and in the other cases that `client/device.md` lists; a copied file breaks both. A person whose browser
    deletes what pages have kept is several devices. A device with c reports in place of r loses epsilon times c / r.
    """
    return days if memoized else min(days, reports)


@frozen
class ReleaseNoise:
    """The law of the noise on each count of a release."""

    micro: int
    """Micro-epsilon of the release."""
    width: int
    """w: to how many counts one report adds, at most: it is in one cell."""
    reports: int
    """r: the most reports of a device."""

    @classmethod
    def of(cls, plan: "Plan", micro: int, reports: int) -> "ReleaseNoise":
        """Return that of a plan whose totals are published."""
        widths = [part.mechanism.shape.raises for part in plan.cells.parts]
        return cls(micro, max(width for width in widths if width is not None), reports)  # `unpublished` refuses others

    @property
    def scale(self) -> Fraction:
        """w r / epsilon, exactly: noise k has probability proportional to exp(-|k| / scale)."""
        return Fraction(self.width * self.reports * 1_000_000, self.micro)

    @property
    def variance(self) -> float:
        """2 a / (1 - a)^2 with a = exp(-1 / scale): of one count."""
        a = exp(-1 / float(self.scale))
        return 2 * a / (1 - a) ** 2

    def of_rare(self, mechanism: PureMechanism, n: int) -> float:
        """Return the variance that the noise adds to the estimate of a value that nobody has, of n reports.

        The estimate moves with a count by (1 - q) / (n (p - q)) where that supports the value, and by -q / (n (p - q))
        where not, for n is the sum of the counts. One of a subset's w counts is the value's, and q is q / w.
        """
        p, q, size = float(mechanism.p), float(mechanism.q), mechanism.shape.size
        supports, part = (round(q * size), q) if mechanism.geometry else (1, q / self.width)
        moved = supports * (1 - part) ** 2 + (size - supports) * part**2
        return moved * self.variance / (n * (p - q)) ** 2

    def wider(self, mechanism: PureMechanism, n: int) -> float:
        """Return by what factor that makes the standard error of n reports larger: about, and for planning."""
        return sqrt(1 + self.of_rare(mechanism, n) * n / float(mechanism.noise_variance))

    def wider_even(self, counts: int, n: int) -> float:
        """Return the same of any estimate from n reports that are spread evenly over so many counts.

        A count of n / counts reports has about that variance, and the noise's beside it.
        """
        return sqrt(1 + self.variance * counts / n)


def prove_releases(published: "Mapping[str, Publishing]", allowed: Decimal | None, source: str) -> None:
    """Refuse metrics, by name, whose releases could cost a device more in a year than `publish_epsilon_year` allows."""
    if not published:
        if allowed is not None:
            raise refusal_of(source, "registry: publish_epsilon_year is for metrics with publish, and there is none")
        return
    if allowed is None:
        raise refusal_of(
            source,
            f"registry: publish_epsilon_year is missing: the most that releases may cost a device in {YEAR_DAYS} days; "
            f"those of this registry cost {from_micro(micro_year(published)):g} ({sum_of(published)})",
        )
    if micro_year(published) > to_micro(allowed):
        raise refusal_of(
            source,
            f"registry: a year of releases costs a device {from_micro(micro_year(published)):g}, more than "
            f"publish_epsilon_year, {allowed} ({sum_of(published)}): publish fewer metrics, longer windows, or with a "
            f"smaller publish_epsilon",
        )


def micro_year(published: "Mapping[str, Publishing]") -> int:
    """Return what releases cost a device in any YEAR_DAYS in a row, at most, in micro-epsilon: epsilons add up."""
    return sum(each.micro_year for each in published.values())


def sum_of(published: "Mapping[str, Publishing]") -> str:
    """Return the same as a sum in words: a metric's releases, times their epsilon."""
    return ", ".join(f"{name} {IN_A_YEAR[each.window]} x {each.epsilon}" for name, each in published.items())


def prove_issues(published: Mapping[str, Publishing], source: str) -> None:
    """Refuse published metrics that name no issue; why, owners, sensitivity and expiry are always required."""
    from dither_shared.toml_tables import Mistakes

    mistakes = Mistakes()
    for name, each in published.items():
        if not each.issue:
            needed = "is missing: the address of the page on which the question was discussed, for those who are asked"
            mistakes.note(refusal_of(source, f"metric.{name}: issue {needed}"))
    mistakes.check()


# In words.

REPORTS_SHOWN = 20_000
"""The noise of a release is said of so many reports."""
WINDOW_DAYS: Final = {"week": 7, "month": 31, "quarter": 92}
"""The most days of each window."""


def release_lines(registry: Any) -> Iterator[str]:
    """Yield what there is to say of a Registry's releases: each metric's noise, and what a year costs a device.

    The registry reads its keys by this module, so it is not named here.
    """
    for name, each in registry.published.items():
        yield _noise_line(registry.metrics[name], each)
    yield (
        f"one device: for those who see releases alone, those of any {YEAR_DAYS} days cost at most "
        f"{from_micro(micro_year(registry.published)):g} of publish_epsilon_year {registry.publish_epsilon_year} "
        f"({sum_of(registry.published)})"
    )


def _noise_line(metric: Any, each: Publishing) -> str:
    reports = reports_in(WINDOW_DAYS[each.window], memoized=metric.memoized, reports=metric.charges)
    noise = ReleaseNoise.of(metric.plan, each.micro, reports)
    wider = metric.kind.widened(metric.cells, noise, REPORTS_SHOWN)
    return (
        f"{metric.name} is published each {each.window} with epsilon {each.epsilon}, a device counted with at most "
        f"{reports} report{'s' if reports > 1 else ''}: with {REPORTS_SHOWN:,} reports standard errors are "
        f"{wider:.2f} times as wide"
    )
