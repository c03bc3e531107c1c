"""Planning: how many reports of a metric so many installs send, what these show, and what other keys would change.

An install is a device whose app runs every day. Telemetry is on in a share `on` of all N, and a share `stay` is still
there 30 days later: as many come as go. So a share s = stay^(1/30) of those that are there is there the next day, too,
and s^quiet of them are past their quiet days. In a period of k days answer

    A = N on s^quiet (1 + (k - 1)(1 - s))       devices that may: those of its first day, and those that come in it
    always     A                                memoized answers, or as many reports as a year has periods, P
    spread     A reports / P                    each device draws its reports from the P periods of the year
    early      a device answers at once, and then on the first days of its next periods: of the j-th of these
               s (1 - s^k) / (k (1 - s)) s^(k (j - 1)) of it are left, for periods begin on the same days for all

with N on (1 - s) devices that come a day. Without `stay` nobody comes or goes: then `early` has reports in the first
days of all installs alone. A week has 7 / k periods on average; its reports come on the first days of each. A year has
the P periods that the one before `expires` touches. A metric that expires sooner is read until then.

A memoized device's r reports in a window repeat its noise: with V_1 and V_p, the variances of one report and of the
permanent part, they count as V_1 / (V_1 + (r - 1) V_p) of as many. Numbers and tables need so many devices: n
reports are of n / r. As on the aggregator's pages, r is the most that one device may have (`reports_possible`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil, sqrt
from typing import Protocol

from dither_aggregator.analysis.reading import reports_possible
from dither_shared.accounting import percent_exactly, sure
from dither_shared.errors import DitherError
from dither_shared.exact import exp_of_micro
from dither_shared.frozen import frozen
from dither_shared.kinds.precision import DETECTABLE, SIDES, Told, percent, precision_of
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric

MONTH_DAYS, WEEK_DAYS, QUARTER_DAYS, YEAR_DAYS = 30, 7, 91, 365
ABOUT_A_YEAR = 360
"""A metric that expires in so many days or more is read over a year."""
INSTALLS_MAX = 10**10
USEFUL = 0.25
"""A metric is of no use that shows no share of a quarter, nor a mean within a quarter of its range, nor the median
within a quarter of the people."""
ROUGH = 0.1
"""A week that shows no share so small tells little of more than two values: it is not called useful."""
MATTERS = 0.05
"""Another key that changes no figure by this part is not named."""
HALF_LOST = 0.5
"""A metric loses many reports if at most this part of a device's arrives before it expires."""
_EPOCH = date(1970, 1, 1)

Reread = Callable[[Mapping[str, object]], Metric]
"""Reads a metric again with some keys changed; raises RegistryError where these make none."""


@frozen
class Installs:
    """How many installs there are, and how many of them say something."""

    count: int
    on: float = 1.0
    """The share in which telemetry speaks: the person agreed."""
    stay: float | None = None
    """The share that is still there 30 days later; None where that is not known."""
    smallest: float | None = None
    """The least share that is looked for; None where nobody said one."""

    @property
    def daily(self) -> float:
        """The share that is there the next day."""
        return 1.0 if self.stay is None else self.stay ** (1 / MONTH_DAYS)


class Answering(Protocol):
    """The part of a metric that decides how many reports there are."""

    @property
    def period_days(self) -> int:
        """Return the length of a period."""

    @property
    def memoized(self) -> bool:
        """Tell whether a repeated answer costs nothing more, and so is asked for in every period."""

    @property
    def charges(self) -> int:
        """Return the most reports, or, memoized, different answers."""

    @property
    def schedule(self) -> str:
        """Return "spread" or "early"."""

    @property
    def expires(self) -> date:
        """Return the first day on which it has expired."""


@frozen
class PlannedLife:
    """The same of a metric that is being planned."""

    charges: int
    schedule: str
    period_days: int
    memoized: bool
    expires: date


@frozen
class Shown:
    """The reports of so many days, read as one, and the least that they tell."""

    days: int
    reports: float
    told: Told | None
    """None where not even one report is expected."""
    short: float = 1.0
    """How many times as many devices anything needs to be told; at most 1 where there are enough."""
    half: float | None = None
    """Half the width of a 95 % interval of a listed value that half of all have; None of other metrics."""
    worth: int = 0
    """So many reports of devices that send one each tell as much."""

    @property
    def enough(self) -> bool:
        """Whether there are enough reports for anything to be told."""
        return self.told is not None and self.short <= 1

    def shows(self, part: float) -> bool:
        """Tell whether it shows so small a part."""
        return self.told is not None and self.enough and self.told.part <= part

    def to_document(self) -> Mapping[str, object]:
        """Return it as plain numbers."""
        told = self.told
        return {
            "days": self.days,
            "reports": round(self.reports, 3),
            "told": told and told.what,
            "part": told and told.part,
        }

    @property
    def words(self) -> str:
        """The least that it tells; if nothing, the width that an interval would have, and the reports needed."""
        if self.told is None or (self.told.what == DETECTABLE and self.enough):
            return f"{self}"
        lacking = "" if self.enough else f"not told below {ceil(self.reports * self.short):,} reports"
        wide = f"{percent(self.told.part)} wide" if lacking or self.told.part > 1 else ""
        reasons = "; ".join(filter(None, (wide, lacking)))
        return f"nothing ({reasons})" if reasons else f"{self}"

    def __str__(self) -> str:
        return f"{self.told}" if self.enough else "nothing"


@frozen
class Outlook:
    """The worth of so many installs' reports of a metric: of a week, of a quarter, and of all until it expires."""

    metric: Metric
    installs: Installs
    week: Shown
    quarter: Shown
    whole: Shown
    """A year, or what is left of it until the metric expires."""

    @property
    def windows(self) -> Mapping[str, Shown]:
        """The three by their names, a metric that expires soon has fewer."""
        whole = "a year" if self.whole.days == YEAR_DAYS else f"the {self.whole.days} days until it expires"
        named = {"a week": self.week, "a quarter": self.quarter, whole: self.whole}
        return {name: shown for name, shown in named.items() if name == whole or shown.days < self.whole.days}

    @property
    def shares(self) -> bool:
        """Whether it tells shares: of a number or a table nobody looks for the smallest."""
        return self.whole.told is not None and self.whole.told.what == DETECTABLE

    @property
    def wanted(self) -> float:
        """The part that a window must show to be of use."""
        return self.installs.smallest or USEFUL if self.shares else USEFUL

    @property
    def useful(self) -> bool:
        """Whether all of its reports together show it."""
        return self.whole.shows(self.wanted)

    @property
    def needed(self) -> int | None:
        """How many installs make all reports useful; None where none at all would send anything."""
        return self._needed(self.whole)

    def _needed(self, shown: Shown) -> int | None:
        if shown.told is None:
            return None
        times = shown.told.times_as_many(self.wanted)
        return None if times is None else ceil(self.installs.count * max(shown.short, times))

    @property
    def life(self) -> str:
        """How sure an even guess may become by all reports of a device, in percent."""
        return percent_exactly(sure(exp_of_micro(self.metric.reservation)))

    @property
    def verdict(self) -> str:
        """Say plainly what so few, or so many, installs are good for."""
        names = list(self.windows)
        enough = [name for name, shown in self.windows.items() if shown.shows(self.wanted)]
        looked_for = f"a share of {100 * self.wanted:g} %" if self.shares and self.installs.smallest else ""
        if self.whole.told and self.whole.told.least >= self.wanted:
            return (
                f"useless: buckets so few leave {percent(self.whole.told.least)} of it open, however many installs "
                f'there are; take more of them, or asks = ["mean"]'
            )
        if not enough:
            verb = "is" if self.whole.days == YEAR_DAYS else "are"
            begin = f"{looked_for} does not show" if looked_for else "useless"
            if self.metric.asked.domain.columns:
                begin = "a rate in a tenth of all is not told"
            return f"{begin} with so few installs, even if {names[-1]} {verb} read as one{_would_do(self.needed)}"
        if not looked_for:
            if enough[0] != names[0]:
                return f"{names[0]} shows too little: read {enough[0]} as one"
            return self._of_shares() if self.shares else "useful"
        if enough[0] == names[0]:
            return f"{looked_for} shows in {names[0]}"
        return f"{looked_for} shows in {enough[0]}, not in {names[0]}{_would_do(self._needed(self.week))}"

    def _of_shares(self) -> str:
        first, *later = self.windows
        told = f"{first} shows values that {self.week} of the people have, and none that fewer have"
        if self.week.shows(ROUGH) or tuple(self.metric.values) == ("no", "yes"):
            return f"useful: {told}"
        better = next((name for name in later if self.windows[name].shows(ROUGH)), None)
        return f"{told}; read {better} as one" if better else told

    def to_document(self) -> dict[str, object]:
        """Return it as plain numbers and words."""
        return {
            "useful": self.useful,
            "week": self.week.to_document(),
            "quarter": self.quarter.to_document(),
            "whole": self.whole.to_document(),
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {shown}" for name, shown in self.windows.items())


def _would_do(installs: int | None) -> str:
    return f": {installs:,} installs would be needed" if installs else ""


@frozen
class Change:
    """Another value of a key, and what it would do."""

    lines: str
    """The registry's."""
    outlook: Outlook
    price: str

    def __str__(self) -> str:
        return f"{self.lines}: {self.outlook}; {self.price}"


def outlook_of(metric: Metric, installs: Installs, quiet_days: int, today: date | None = None) -> Outlook:
    """Return what installs' reports show; from a day on, only until the metric expires."""
    left = YEAR_DAYS if today is None else (metric.expires - today).days
    whole = left if 0 < left < ABOUT_A_YEAR else YEAR_DAYS
    week, quarter, year = (
        _shown(metric, installs, quiet_days, min(days, whole)) for days in (WEEK_DAYS, QUARTER_DAYS, YEAR_DAYS)
    )
    return Outlook(metric, installs, week, quarter, year)


def _shown(metric: Metric, installs: Installs, quiet_days: int, days: int) -> Shown:
    """Return what the reports of so many days show, read as one."""
    reports = reports_of(metric, installs, quiet_days, days)
    repeats = reports_possible(days, metric.period_days, once_a_day=True) if metric.memoized else 1
    n = int(reports * _effective(metric, repeats))
    if not n:
        return Shown(days, reports, None)
    told, short = metric.tells(n), precision_of(metric.kind).reports_min(metric.asked) * repeats / reports
    return Shown(
        days,
        reports,
        told,
        short,
        _of_half(metric, reports, repeats) if told.what == DETECTABLE and metric.values else None,
        n,
    )


def _of_half(metric: Metric, reports: float, repeats: int) -> float:
    """Return half the width of the interval of a listed value that half of all have; a device sends so many reports."""
    mechanism = PureMechanism.of(metric.mechanism)
    again = (repeats - 1) * _half_variance(PureMechanism.of(mechanism.first_stage)) if repeats > 1 else 0
    return SIDES / 2 * sqrt((_half_variance(mechanism) + again) / reports)


def _half_variance(mechanism: PureMechanism) -> Fraction:
    """Return the variance of a share of one half, of one report: of its noise, and of the devices that are drawn."""
    support = (mechanism.p + mechanism.q) / 2
    return support * (1 - support) / (mechanism.p - mechanism.q) ** 2


def _effective(metric: Metric, repeats: int) -> float:
    """Return how much of a report each one counts where a device sends so many of a memoized metric."""
    if not metric.memoized:
        return 1.0
    mechanism = metric.cells.parts[0].mechanism
    one, permanent = Fraction(1), Fraction(1)  # at least so much, whatever the mechanism
    if isinstance(mechanism, PureMechanism) and isinstance(mechanism.first_stage, PureMechanism):
        one, permanent = mechanism.noise_variance, mechanism.first_stage.noise_variance
    return float(one / (one + Fraction(repeats - 1) * permanent))


def reports_of(metric: Answering, installs: Installs, quiet_days: int, days: int) -> float:
    """Return how many reports a window of so many days has on average; without `stay`, the first days of all."""
    period, s, there = metric.period_days, installs.daily, installs.count * installs.on
    periods = periods_of_year(metric)
    answering = there * s**quiet_days * (1 + (period - 1) * (1 - s))
    answered = periods if days >= YEAR_DAYS else days / period
    if metric.memoized or metric.charges >= periods:
        return answering * answered
    if metric.schedule == "spread":
        return answering * answered * metric.charges / periods
    if s == 1:
        return there * min(metric.charges, 1 + (days - 1) / period)
    later = s / (period * (1 - s)) * (1 - s ** (period * (metric.charges - 1)))
    return there * (1 - s) * s**quiet_days * (1 + later) * days


def periods_of_year(metric: Answering) -> int:
    """Return how many periods the year before a metric expires has, from which its reports are drawn."""
    last = (metric.expires - _EPOCH).days - 1
    first = last - YEAR_DAYS + 1
    return last // metric.period_days - first // metric.period_days + 1


def changes(now: Outlook, quiet_days: int, reread: Reread, today: date | None = None) -> Iterator[Change]:
    """Yield what other values of a metric's keys would do, each with its price; those that do nothing are left out."""
    for changed in _others(now.metric):
        try:
            metric = reread(changed)
        except DitherError:  # such as a period that leaves no room, or an epsilon above a kind's largest
            continue
        then = outlook_of(metric, now.installs, quiet_days, today)
        if then.life != now.life or _differ(now, then):
            lines = [
                f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in changed.items()
            ]
            yield Change(", ".join(lines), then, _price(now, then, changed))


def _differ(now: Outlook, then: Outlook) -> bool:
    """Tell whether a window shows more or less by a part that matters."""
    parts = [
        [min(shown.told.part, 1.0) if shown.told and shown.enough else 1.0 for shown in each.windows.values()]
        for each in (now, then)
    ]
    return any(abs(after / before - 1) > MATTERS for before, after in zip(*parts, strict=True))


def described(now: Outlook, others: Iterable[Change], advice: Iterable[str]) -> dict[str, object]:
    """Return an outlook, other keys and advice as plain numbers and words, for `--json` and the API."""
    return {
        **now.to_document(),
        "verdict": now.verdict,
        "installs_needed": now.needed,
        "changes": [
            {"lines": change.lines, **change.outlook.to_document(), "price": change.price} for change in others
        ],
        "advice": list(advice),
    }


def _others(metric: Metric) -> Iterator[Mapping[str, object]]:
    permanent = {"epsilon_permanent": plain(Decimal(2 * metric.charge).scaleb(-6))} if metric.memoized else {}
    if not metric.memoized:
        yield {"reports": 2 * metric.charges}
        yield {"schedule": "early" if metric.schedule == "spread" else "spread"}
    yield {"period": "1d" if metric.period_days > 1 else "7d"}
    yield {"epsilon": plain(2 * metric.epsilon), **permanent}


def plain(number: Decimal) -> Decimal:
    """Return a number without needless zeros, and without an exponent."""
    return Decimal(f"{number.normalize():f}")


def _price(now: Outlook, then: Outlook, changed: Mapping[str, object]) -> str:
    if then.metric.reservation != now.metric.reservation:
        return f"a guess may become {then.life} % sure over a life, not {now.life} %"
    alike = "a guess becomes no surer over a life"
    if changed.get("schedule") == "early":
        return f"{alike}; {early_asks(then.metric)}"
    if changed.get("schedule") == "spread":
        return f"{alike}; every install is asked on days drawn by lot from the year"
    return alike


def early_asks(metric: Metric) -> str:
    """Say whom an early metric asks, and when."""
    periods = "period" if metric.charges == 1 else f"{metric.charges} periods"
    asked = "answers for" if metric.hidden else "is asked in"
    happened = ", also where nothing happened" if metric.hidden else ""
    return f"every install, old or new, {asked} its first {periods} with the question{happened}, and never again"
