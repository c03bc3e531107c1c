"""Releases: totals of a metric's windows, published with noise of their own: a registry's keys for them.

A release is the tally of a closed window with discrete Laplace noise on each count, so that all reports of one device
in that window change the probability of what is published by e^epsilon at most:

    noise k with probability proportional to exp(-epsilon |k| / (w r))

A report is in one cell of its plan, and adds there to w counts: 1 where it is a symbol, its members where it is a
subset. Dummies are members, and counted: so the number of reports is a sum of counts, and has no counter of its own. A
device has at most r reports in a window, and all of them may add to the same counts, so the tallies with and without
the device differ by at most w r in sum of absolute differences. Dwork, McSherry, Nissim, Smith 2006; Ghosh,
Roughgarden, Sundararajan 2009.

A fresh text has far more symbols than could be published. Its release has, for each cell, the number of its reports
and how many of them support each text of a list that the registry names. A report adds to the first and to as many of
the others as have their buckets on hyperplanes through its point: w is one more than the most that have (`width_of`).

Words are found in two steps, each with noise of its own. (1) All counts of the levels get noise for w = 1. The search
reads these alone, and proposes texts. The counts themselves are not published. (2) Reports of the verification group
are counted as those of a fresh text whose list are the proposals, with w for that list. A report is in one cell, so a
device with k reports in levels and j in the verification group, k + j <= r, changes the probability of what step 1 says
by e^(epsilon k / r) at most, and of what step 2 says after it, whatever that was, by e^(epsilon j / r).

A release may have discrete Gaussian noise in place of Laplace noise if a delta is declared (`publish_delta`), for the
tallies differ by at most sqrt(w) r in root of squared differences:

    noise k with probability proportional to exp(-k^2 / (2 V))        V = w r^2 / (2 rho)

It is rho-zCDP; rho is the largest of which (epsilon, delta) follows (`accounting.composition`). It is taken where its
variance is the smaller one. Canonne, Kamath, Steinke 2020, theorem 14.

Epsilons of several releases add up, of one metric and of several; with a delta, rhos do. Nothing here is part of a
plan, of the compiled registry or of a person's terms: a device does nothing differently, and its reports promise what
they did, to everybody who reads a release as well.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from math import exp, sqrt
from typing import TYPE_CHECKING, Any, Final

from dither_shared.accounting.composition import of_zcdp, tail_of_zcdp
from dither_shared.domains import TypedTexts
from dither_shared.errors import refusal_of
from dither_shared.exact import MICRO, from_micro, to_micro
from dither_shared.frozen import frozen
from dither_shared.kinds.precision import precision_of
from dither_shared.mechanisms import PGR, PureMechanism
from dither_shared.mechanisms.mechanism import MemoizedPure

if TYPE_CHECKING:
    from dither_shared.kinds import Answer, Asked, Kind
    from dither_shared.mechanisms import Cells
    from dither_shared.plan import Plan
    from dither_shared.toml_tables import TomlTable

YEAR_DAYS: Final = 366
"""The days in a row whose releases `publish_epsilon_year` bounds."""
IN_A_YEAR: Final = {"week": 53, "month": 13, "quarter": 5}
"""The windows on offer: how many of each end, at most, within YEAR_DAYS in a row (31 January to 31 January has 13)."""
COUNTS_MAX: Final = 4_096
"""A metric with more counts is not published: a store keeps each release for good."""
NAMES_MAX: Final = 200
"""The most texts that a release of words looks up."""
WHY_CHARACTERS_MAX: Final = 500
ISSUE_CHARACTERS_MAX: Final = 300
PUBLISH_EPSILON_MAX: Final = Decimal(20)
DELTA_MIN: Final = Decimal("1e-12")
DELTA_MAX: Final = Decimal("1e-5")
ROUNDED: Final = 2
"""By less than this, in micro-epsilon, `of_zcdp` lies above the bound at the best order."""
RHO_MAX: Final = 200_000_000
"""In millionths: of epsilon PUBLISH_EPSILON_MAX, whatever the delta."""
REPORTS_SHOWN: Final = 20_000
"""The noise of a release is said of so many reports."""
REPORTS_SEARCHED: Final = 1_000_000
"""The noise of a release of words is said of so many reports: a search of fewer finds little."""
WINDOW_DAYS: Final = {"week": 7, "month": 31, "quarter": 92}
"""The most days of each window."""


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
    if refused := precision_of(kind).unpublished(asked):
        return refused
    if kind.searched:  # no more than NAMES_MAX texts are named
        return ""
    if (counts := counts_of(asked.cells, precision_of(kind).released_names(asked))) > COUNTS_MAX:
        return f"cannot be said of more than {COUNTS_MAX:,} counts, got {counts:,}"
    return ""


def has_supports(cells: "Cells", names: Sequence[str]) -> bool:
    """Tell whether a release counts the supports of named texts. It counts symbols of memoized ones, which are few."""
    return bool(names) and not cells.memoized


def counts_of(cells: "Cells", names: Sequence[str] = ()) -> int:
    """Return how many counts a release has: all of all cells; with supports, of each row theirs and its reports.

    The rows are those that tell whole texts: the cells of the last part.
    """
    if has_supports(cells, names):
        return cells.parts[-1].cells * (1 + len(names))
    return cells.tally_size - cells.count


def width_of(plan: "Plan", names: Sequence[str] = ()) -> int:
    """Return w: to how many counts of a release one report adds at most."""
    if has_supports(plan.cells, names):
        return 1 + most_named(plan, tuple(names))
    widths = [part.mechanism.shape.raises for part in plan.cells.parts]
    return max(width for width in widths if width is not None)  # `unpublished` refuses others


@lru_cache(maxsize=64)
def most_named(plan: "Plan", names: tuple[str, ...]) -> int:
    """Return how many of some texts one report supports at most, in whichever cell: every report is tried."""
    domain, part = TypedTexts.of(plan.domain), plan.cells.parts[-1]
    mechanism = PGR.of(part.mechanism)
    return max(
        most_supported(mechanism, [domain.named_bucket(name, row) for name in names]) for row in range(part.cells)
    )


def most_supported(mechanism: PGR, values: Iterable[int]) -> int:
    """Return how many of some values, which may be named several times, one report supports at most.

    A set of points is an integer with a bit for each, in lexicographic order. How often each point was met is kept in
    binary, a set for each digit: `digits[i]` has the points whose number has the digit 2^i.
    """
    digits: list[int] = []
    for value in values:
        carry, place = _hyperplane(mechanism.order, tuple(mechanism.unrank(value))), 0
        while carry:
            if place == len(digits):
                digits.append(0)
            digits[place], carry = digits[place] ^ carry, digits[place] & carry
            place += 1
    most, among = 0, -1
    for place in reversed(range(len(digits))):
        if among & digits[place]:
            most, among = most + (1 << place), among & digits[place]
    return most


def _hyperplane(order: int, value: tuple[int, ...]) -> int:
    """Return the points u with <u, v> = 0, as bits: those with most zeros first, then 1 and any further coordinates."""

    @cache
    def vectors(length: int, total: int) -> str:
        """Return which vectors of so many last coordinates have this product with those of v, a digit each."""
        if not length:
            return "01"[total == 0]
        if length == 1 and value[-1]:  # it is one of them: of large orders this saves most of the time
            return f"{'1':0>{total * pow(value[-1], -1, order) % order + 1}}".ljust(order, "0")
        return "".join(vectors(length - 1, (total - own * value[-length]) % order) for own in range(order))

    return int("".join(vectors(length, -value[-1 - length] % order) for length in range(len(value))), 2)


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
    """The law of the noise on each count of a release: Laplace, or Gaussian where a rho is given."""

    micro: int
    """Micro-epsilon of the release."""
    width: int
    """w: to how many counts one report adds, at most: it is in one cell."""
    reports: int
    """r: the most reports of a device."""
    rho: int = 0
    """rho of Gaussian noise, in millionths; 0 of Laplace noise."""

    @classmethod
    def of(
        cls, plan: "Plan", micro: int, reports: int, names: Sequence[str] = (), delta: Decimal | None = None
    ) -> "ReleaseNoise":
        """Return the better noise for a plan whose totals are published: of texts those with names."""
        return min(cls.laws(plan, micro, reports, names, delta), key=lambda law: law.variance)

    @classmethod
    def laws(
        cls, plan: "Plan", micro: int, reports: int, names: Sequence[str] = (), delta: Decimal | None = None
    ) -> "tuple[ReleaseNoise, ...]":
        """Return Laplace noise and, where a delta allows it, Gaussian noise: not for words, whose steps share r."""
        laplace = cls(micro, width_of(plan, names), reports)
        if delta is None or plan.kind.searched or not (rho := rho_of(micro, delta)):
            return (laplace,)
        return laplace, cls(micro, laplace.width, reports, rho)

    @property
    def name(self) -> str:
        """The name of its law."""
        return "Gaussian" if self.rho else "Laplace"

    @property
    def scale(self) -> Fraction:
        """w r / epsilon, exactly: Laplace noise k has probability proportional to exp(-|k| / scale)."""
        return Fraction(self.width * self.reports * MICRO, self.micro)

    @property
    def gaussian(self) -> Fraction | None:
        """V = w r^2 / (2 rho), exactly; None of Laplace noise."""
        return Fraction(self.width * self.reports**2 * MICRO, 2 * self.rho) if self.rho else None

    @property
    def variance(self) -> float:
        """The variance on one count: 2 a / (1 - a)^2 with a = exp(-1 / scale), or for Gaussian noise at most V."""
        if self.gaussian is not None:
            return float(self.gaussian)
        a = exp(-1 / float(self.scale))
        return 2 * a / (1 - a) ** 2

    def of_share(self, mechanism: PureMechanism, n: int, share: float = 0.0) -> float:
        """Return the variance that the noise adds to the estimate of a value of such a share, of n reports.

        With q for the rate of its support, the estimate moves with a count by (1 - q) / (n (p - q)) where that supports
        the value, and by -q / (n (p - q)) where not, for n is the sum of the counts. One of a subset's w counts is the
        value's, and q is q / w.
        """
        apart, size = float(mechanism.p - mechanism.q), mechanism.shape.size
        rate = float(mechanism.q) + apart * share
        supports, part = (round(float(mechanism.q) * size), rate) if mechanism.geometry else (1, rate / self.width)
        moved = supports * (1 - part) ** 2 + (size - supports) * part**2
        return moved * self.variance / (n * apart) ** 2

    def wider(self, mechanism: PureMechanism, n: int, share: float = 0.0) -> float:
        """Return by what factor that makes the standard error of n reports larger: about, and for planning."""
        apart = float(mechanism.p - mechanism.q)
        rate = float(mechanism.q) + apart * share
        own = rate * (1 - rate) / (n * apart**2)
        return sqrt(1 + self.of_share(mechanism, n, share) / own)

    def wider_even(self, counts: int, n: int) -> float:
        """Return the same of any estimate from n reports that are spread evenly over so many counts.

        A count of n / counts reports has about that variance, and the noise's beside it.
        """
        return sqrt(1 + self.variance * counts / n)


@lru_cache(maxsize=256)
def rho_of(micro: int, delta: Decimal) -> int:
    """Return the largest rho, in millionths, of which (epsilon, delta) follows; 0 where there is none."""
    return bisect_right(range(1, RHO_MAX), micro, key=lambda rho: of_zcdp(Fraction(rho, MICRO), delta))


@frozen
class Loss:
    """The cost of several releases for a device together, in millionths of epsilon and of rho."""

    micro: int = 0
    """The epsilons of those with Laplace noise."""
    rho: int = 0
    """The rhos of those with Gaussian noise."""
    squares: int = 0
    """The squared micro-epsilons of the former: half of it is their rho."""

    @classmethod
    def of(cls, noise: ReleaseNoise, times: int = 1) -> "Loss":
        """Return that of one release, or of several alike."""
        if noise.rho:
            return cls(0, times * noise.rho)
        return cls(times * noise.micro, 0, times * noise.micro**2)

    def __add__(self, other: "Loss") -> "Loss":
        return Loss(self.micro + other.micro, self.rho + other.rho, self.squares + other.squares)

    def at(self, delta: Decimal | None) -> int:
        """Return the least epsilon that is known to bound it at a delta, in micro-epsilon.

        Epsilons of Laplace noise add up beside what the rhos of the others come to; or they are rhos, too. Raises
        ValueError for Gaussian noise without a delta.
        """
        if delta is None:
            if self.rho:
                raise ValueError("Gaussian noise has no epsilon without a delta")
            return self.micro
        rho = Fraction(self.rho, MICRO)
        return min(self.micro + of_zcdp(rho, delta), of_zcdp(rho + Fraction(self.squares, 2 * MICRO**2), delta))


def losses_within(year: int, delta: Decimal | None) -> tuple[int, int]:
    """Return what releases may tell whose `Loss.at` this delta is at most `year`, all in micro-epsilon.

    The first is of one device that takes part or does not, the second of two answers of it. With a delta the privacy
    loss exceeds either with a chance of at most delta: of half of it in each direction, so that no guess is surer.

    Let tail(rho) be `tail_of_zcdp` at delta / 2, and zcdp(rho) be `of_zcdp`. A device that is changed is one less and
    one more: of Laplace noise that is twice the epsilon, of zCDP four times the rho. So with R the largest rho of which
    `year` follows, epsilons E of Laplace noise, and rho of the rest:

        if zcdp(rho of all) <= year     the losses are    tail(rho of all)    and    tail(4 rho of all)
        if E + zcdp(rho) <= year        they are          E + tail(rho)       and    2 E + tail(4 rho)

    tail(rho) - zcdp(rho) and tail(4 rho) - 2 zcdp(rho) grow with rho, for the best order of zcdp is below that of
    tail. So none is above year - zcdp(R) + tail(R), or 2 (year - zcdp(R)) + tail(4 R).
    """
    if delta is None:
        return year, 2 * year
    most = Fraction(rho_of(year, delta) + 1, MICRO)
    rest = year - of_zcdp(most, delta) + ROUNDED
    return rest + tail_of_zcdp(most, delta / 2), 2 * rest + tail_of_zcdp(4 * most, delta / 2)


BY_VARIANCE: Final = (
    "; noise is chosen by its variance, so a short list of texts, with Laplace noise, may cost more a year than a long "
    "one"
)
"""Why a shorter list may be refused where a longer one is not."""


def prove_releases(registry: Any, source: str) -> None:
    """Refuse a registry whose releases could cost a device more in a year than `publish_epsilon_year` allows."""
    published, allowed, delta = registry.published, registry.publish_epsilon_year, registry.publish_delta
    if not published:
        if allowed is not None or delta is not None:
            key = "publish_delta" if allowed is None else "publish_epsilon_year"
            raise refusal_of(source, f"registry: {key} is for metrics with publish, and there is none")
        return
    if delta is not None and not DELTA_MIN <= delta <= DELTA_MAX:
        raise refusal_of(
            source,
            f"registry: publish_delta must be from {scientific(DELTA_MIN)} to {scientific(DELTA_MAX)}, got {delta}",
        )
    cost = micro_year(registry)
    if allowed is None:
        raise refusal_of(
            source,
            f"registry: publish_epsilon_year is missing: the most that releases may cost a device in {YEAR_DAYS} days; "
            f"those of this registry cost {from_micro(cost):g} ({sum_of(published)})",
        )
    if cost > to_micro(allowed):
        raise refusal_of(
            source,
            f"registry: a year of releases costs a device {from_micro(cost):g}{at_delta(delta)}, more than "
            f"publish_epsilon_year, {allowed} ({sum_of(published)}): publish fewer metrics, longer windows, or with a "
            f"smaller publish_epsilon{BY_VARIANCE if delta is not None else ''}",
        )


def at_delta(delta: Decimal | None) -> str:
    """Return the end of what is said to cost so much, at a delta where one is declared."""
    return "" if delta is None else f" at delta {scientific(delta)}"


def noise_of(registry: Any, name: str) -> ReleaseNoise:
    """Return the noise of a metric's releases of its longest window, for a Registry's device."""
    return min(_laws_of(registry, name), key=lambda law: law.variance)


def _laws_of(registry: Any, name: str) -> tuple[ReleaseNoise, ...]:
    metric, publishing = registry.metrics[name], registry.published[name]
    reports = reports_in(WINDOW_DAYS[publishing.window], memoized=metric.memoized, reports=metric.charges)
    names = precision_of(metric.kind).released_names(metric.asked)
    return ReleaseNoise.laws(metric.plan, publishing.micro, reports, names, registry.publish_delta)


def micro_year(registry: Any) -> int:
    """Return what releases cost a device in any YEAR_DAYS in a row, at most, in micro-epsilon.

    Without a delta, their epsilons add up; with `publish_delta`, see `Loss.at`.
    """
    if registry.publish_delta is None:
        return sum(IN_A_YEAR[each.window] * each.micro for each in registry.published.values())
    loss = Loss()
    for name, each in registry.published.items():
        loss += Loss.of(noise_of(registry, name), IN_A_YEAR[each.window])
    return loss.at(registry.publish_delta)


def sum_of(published: "Mapping[str, Publishing]") -> str:
    """Return the epsilons of a year in words: a metric's releases, times their epsilon."""
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


def release_lines(registry: Any) -> Iterator[str]:
    """Yield what there is to say of a Registry's releases: each metric's noise, and what a year costs a device.

    The registry reads its keys by this module, so it is not named here.
    """
    for name, each in registry.published.items():
        yield _noise_line(registry.metrics[name], each, noise_of(registry, name))
    delta = registry.publish_delta
    for name, each in registry.published.items():
        yield from _other_law(registry.metrics[name], IN_A_YEAR[each.window], _laws_of(registry, name), delta)
    yield (
        f"one device: for those who see releases alone, those of any {YEAR_DAYS} days cost at most "
        f"{from_micro(micro_year(registry)):g} of publish_epsilon_year {registry.publish_epsilon_year} "
        f"({sum_of(registry.published)}{f', together at delta {scientific(delta)}' if delta is not None else ''})"
    )


def scientific(delta: Decimal) -> str:
    """Return a delta as people write it: 1e-6."""
    return f"{delta.normalize():e}"


def _other_law(metric: Any, releases: int, laws: tuple[ReleaseNoise, ...], delta: Decimal | None) -> Iterator[str]:
    """Yield what a year of a metric costs by either law, if that of the smaller variance costs more."""
    taken, *others = sorted(laws, key=lambda law: law.variance)
    for other in others:
        cost, less = (Loss.of(law, releases).at(delta) for law in (taken, other))
        if less < cost:
            yield (
                f"note: a year's releases of {metric.name} alone cost {from_micro(cost):.3g} with {taken.name} noise, "
                f"which has the smaller variance; with {other.name} noise they would cost {from_micro(less):.3g}, and "
                f"standard errors be {_wider(metric, other)} times as wide: a smaller publish_epsilon costs less"
            )


def widened(metric: Any, noise: ReleaseNoise, n: int) -> tuple[float, float]:
    """Return by what factor the noise of a release makes standard errors larger: the least, the most.

    n >= 1 is the number of reports or, where devices repeat their memos, of devices that do so in every period of the
    window; factors are 1 or more, and of memos the most there may be. Permanent noise repeats as well: k reports of
    each device have 1 + (k - 1) V' / V times the variance of as many of different devices, where V is that of one
    report and V' that of its permanent part.
    """
    cells: Cells = metric.cells
    kind: Kind[Any, Answer] = metric.kind
    if not metric.memoized:
        return precision_of(kind).widened(cells, noise, n)
    repeats, memo = max(1, noise.reports // metric.period_days), PureMechanism.of(cells.mechanism)
    assert isinstance(memo, MemoizedPure)  # others are refused: `unpublished`
    alike = 1 + (repeats - 1) * float(memo.permanent.noise_variance / memo.noise_variance)
    least, most = (sqrt(1 + (wider**2 - 1) / alike) for wider in precision_of(kind).widened(cells, noise, n * repeats))
    return least, most


def _wider(metric: Any, noise: ReleaseNoise) -> str:
    """Return how much wider the errors of REPORTS_SHOWN reports are, in words: the least, and the most."""
    least, most = (f"{wider:.2f}" for wider in widened(metric, noise, REPORTS_SHOWN))
    return least if least == most else f"{least} to {most}"


def _noise_line(metric: Any, each: Publishing, noise: ReleaseNoise) -> str:
    reports = noise.reports
    shown = f"{REPORTS_SHOWN:,} {'devices that repeat their memos in every period' if metric.memoized else 'reports'}"
    counted = (
        f"{metric.name} is published each {each.window} with epsilon {each.epsilon}"
        f"{' (Gaussian noise)' if noise.rho else ''}, a device counted with at most "
        f"{reports} report{'s' if reports > 1 else ''}: "
    )
    if metric.kind.searched:
        from dither_shared.kinds.precision import searched_from  # only for planning

        text, level = widened(metric, noise, REPORTS_SEARCHED)
        return (
            f"{counted}with {REPORTS_SEARCHED:,} reports standard errors of a text that is looked up are {text:.2f} "
            f"times as wide, and of the level with the fewest reports {level:.2f}; the search reads all levels from "
            f"about {searched_from(metric.cells, noise):,} reports on"
        )
    return (
        f"{counted}with {shown} standard errors are "
        f"{_wider(metric, noise)} times as wide{' at most' if metric.memoized else ''}"
    )
