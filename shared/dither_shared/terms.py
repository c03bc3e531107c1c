"""The terms that a person agrees to, and the changes that take their agreement again.

They agree to a metric's question, kind, values or ranges, sensitivity, presence, epsilon of a report, number of reports
or answers, period and expiry, to what the device itself measures, to whether it is memoized, to the cells of a device's
own that it shows in the clear, and to how far its lasting noise tells them from others (R(200), `accounting`).
They are asked again where one of these is replaced (another question, kind or set of answers; fresh noise for a memo,
or a memo for fresh noise) or widened: a sensitivity, an epsilon, a number of reports, answers or such cells rises,
R(200) by more than .05, a period shortens, an expiry is extended, presence is no longer hidden. So they are for a
metric that is new, and for the whole device: for a higher epsilon, for an R(200) of all metrics together that rises by
more than .05, and for a registry that is newly `linkable`. Less of anything asks nothing; neither do other owners,
another rev or schedule, or the values in another order.

Devices hold back what was not agreed to; `dither metrics diff` says it before a release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date

from dither_shared.exact import from_micro, to_micro
from dither_shared.frozen import as_dict, frozen
from dither_shared.mechanisms import DEVICES
from dither_shared.registry import SENSITIVITIES, Metric, Registry

LINKED_RISE_MAX = 500
"""The most that an R(200), in ten-thousandths, rises without being asked for."""
YEAR_DAYS = 365
HIDES = (
    'presence = "hidden" hides if a device had anything to say, as it says "none" where it had not; not hidden is who '
    "runs the app in a period, as each device that does sends something"
)
"""For those who write or read a registry."""
AWAY_DAYS = 7
"""Days without a visit after which Safari deletes what a page has kept (WebKit, 24 March 2020)."""


@frozen
class Terms:
    """The question of one metric, the most that it may cost and show of a device, how often and until when."""

    question: str
    kind: str
    values: str
    """The digest of the set of listed values; "" of a text, which lists none."""
    sensitivity: str
    presence: str
    report: int
    """Micro-epsilon of one report."""
    permanent: int
    """Micro-epsilon of one memoized answer with all its reports; 0 where every report has fresh noise."""
    charges: int
    """The most reports, or, memoized, different answers, ever."""
    lifetime: int
    """Micro-epsilon that it may charge, ever."""
    period_days: int
    expires: str
    """A date as YYYY-MM-DD, whose order is that of time."""
    cells: int
    """How many lasting cells a report tells apart in the clear; 0 where it tells none."""
    linked: int = 0
    """R(200) in ten-thousandths; 0 where nothing lasts, and of a memo that was agreed to before terms said it."""
    measures: str = ""
    """The measure of its own use that the device answers with; "" where the app records the answer."""

    @classmethod
    def of(cls, metric: Metric) -> Terms:
        """Return a metric's terms."""
        return cls(
            question=metric.question,
            kind=metric.kind.name,
            values=metric.domain_digest,
            sensitivity=metric.sensitivity,
            presence=metric.presence,
            report=metric.cells.charge,
            permanent=metric.charge if metric.memoized else 0,
            charges=metric.charges,
            lifetime=metric.reservation,
            period_days=metric.period_days,
            expires=metric.expires.isoformat(),
            cells=metric.cells.lasting,
            linked=_ten_thousandths(metric.linked),
            measures=metric.measures,
        )

    @property
    def memoized(self) -> bool:
        """Whether a repeated answer costs nothing more."""
        return self.permanent > 0

    def asks(self, agreed: Terms | None) -> list[str]:
        """Return what of these terms goes beyond those that were agreed to, a phrase each; nothing if nothing does."""
        if agreed is None:
            return [f"it is new, and may cost {_shown(self.lifetime)}"]
        return [*self._replaces(agreed), *self._raises(agreed), *self._extends(agreed)]

    def _replaces(self, agreed: Terms) -> Iterator[str]:
        if self.question != agreed.question:
            yield f'its question becomes "{self.question}"'
        if self.kind != agreed.kind:
            yield f"its kind changes from {agreed.kind} to {self.kind}"
        if self.measures not in ("", agreed.measures):
            yield "the device itself now measures its answer"
        if self.values not in ("", agreed.values):
            yield "its possible answers change"
        if agreed.memoized and not self.memoized:
            yield "its memoized answers become fresh ones"
        if self.memoized and not agreed.memoized:
            yield "its fresh answers become memoized ones, whose noise is a lasting mark"

    def _raises(self, agreed: Terms) -> Iterator[str]:
        if SENSITIVITIES.index(self.sensitivity) > SENSITIVITIES.index(agreed.sensitivity):
            yield f"its sensitivity rises from {agreed.sensitivity} to {self.sensitivity}"
        for epsilon, now, before in (
            ("epsilon of a report", self.report, agreed.report),
            ("epsilon of a permanent answer", self.permanent, agreed.permanent or self.permanent),
            ("epsilon for life", self.lifetime, agreed.lifetime),
        ):
            if now > before:
                yield f"its {epsilon} rises from {_shown(before)} to {_shown(now)}"
        if self.memoized == agreed.memoized and self.charges > agreed.charges:
            charges = "different answers" if self.memoized else "reports"
            yield f"its number of {charges} rises from {agreed.charges} to {self.charges}"

    def _extends(self, agreed: Terms) -> Iterator[str]:
        if self.period_days < agreed.period_days:
            yield f"its period shortens from {agreed.period_days}d to {self.period_days}d"
        if date.fromisoformat(self.expires) > date.fromisoformat(agreed.expires):
            yield f"its expiry is extended from {agreed.expires} to {self.expires}"
        if agreed.presence == "hidden" and self.presence != "hidden":
            yield "whether it answers is no longer hidden"
        if self.cells > agreed.cells:
            rise = f"the cohorts that it shows rise from {agreed.cells} to {self.cells}"
            yield rise if agreed.cells else f"it shows which of {self.cells} cohorts the device is in"
        if self.linked > agreed.linked + LINKED_RISE_MAX:
            yield _links(self.linked, agreed.linked)

    def to_json(self) -> str:
        """Return the one text that stands for these terms: where nothing lasts, the one of before `linked` was said."""
        return json.dumps(
            {key: value for key, value in self.to_document().items() if key != "linked" or value}, sort_keys=True
        )

    def to_document(self) -> dict[str, object]:
        """Return all of it by name, and `measures` only where the device measures something."""
        return {key: value for key, value in as_dict(self).items() if key != "measures" or value}

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@frozen
class DeviceTerms:
    """The most that all metrics of a registry may cost and show of a device together."""

    epsilon: int
    """The most that they may charge, in micro-epsilon."""
    linked: int = 0
    """R(200) in ten-thousandths."""
    linkable: bool = False

    @classmethod
    def of(cls, registry: Registry) -> DeviceTerms:
        """Return a registry's terms."""
        return cls(to_micro(registry.device_epsilon), _ten_thousandths(registry.linked), registry.linkable)

    def asks(self, agreed: DeviceTerms) -> list[str]:
        """Return what goes beyond the terms that were agreed to, a phrase each."""
        rise = f"the device's epsilon rises from {_shown(agreed.epsilon)} to {_shown(self.epsilon)}"
        return [*([rise] if self.epsilon > agreed.epsilon else []), *self.links(agreed)]

    def links(self, agreed: DeviceTerms) -> list[str]:
        """Return whether more of a person's reports can be joined than was agreed to."""
        if self.linked > agreed.linked + LINKED_RISE_MAX:
            return [f"with all metrics together, {_links(self.linked, agreed.linked)}"]
        if self.linkable and not agreed.linkable:
            return [f"it is now meant that reports can be joined: {_links(self.linked, agreed.linked)}"]
        return []


def _ten_thousandths(linked: float | None) -> int:
    return round(10_000 * (linked or 0.0))


def _links(linked: int, agreed: int) -> str:
    """Say how far lasting noise tells a person from others."""
    from dither_shared.accounting import recognised  # only where something is asked

    before = f", not {recognised(agreed)}" if agreed else ""
    return f"of {DEVICES} people with the same answers about {recognised(linked)} could be recognised{before}"


def _shown(micro: int) -> str:
    """Return an epsilon with all its digits: a rise by a millionth is asked for, too."""
    return f"{from_micro(micro):.10g}"


# A browser deletes what a page has kept.


def periods_touched(period_days: int, days: int) -> int:
    """Return the most periods that so many days in a row have a day of: in each a device answers once at most."""
    return (days + period_days - 2) // period_days + 1


@frozen
class Evictions:
    """The most that a person may be charged in a year in which a browser deletes what a page has kept."""

    micro: int
    """Micro-epsilon of all metrics and devices together."""
    devices: int
    """How many devices the person is."""
    days: int
    """On how many days in a row they visit, before they stay away for so long that the storage goes."""


def evictions(registry: Registry) -> Evictions:
    """Return what a year of evictions costs a person at most, over all ways to come and go.

    A budget is for the life of a browser's storage. Safari deletes what a page has kept after seven days of its use
    without a visit; the next visit is a new device's. Somebody who visits on L days and stays away for 7, again and
    again, is 365 / (L + 7) devices in a year, rounded up. Each is quiet for `quiet_days`, and then charged in the
    periods of L - `quiet_days` days at most. The L with which all are charged most counts. A metric whose periods are
    drawn ("spread") counts as if each were drawn in each life; the mean is no more than without evictions, for each
    device draws each period of the year with the same probability.
    """
    metrics = registry.metrics.values()

    def charged(visited: int) -> int:
        days = visited - registry.quiet_days
        if days <= 0:
            return 0
        return sum(metric.charge * min(metric.charges, periods_touched(metric.period_days, days)) for metric in metrics)

    def year(visited: int) -> Evictions:
        whole, rest = divmod(YEAR_DAYS, visited + AWAY_DAYS)
        micro = whole * charged(visited) + charged(min(rest, visited))
        return Evictions(micro, whole + (rest > 0), visited)

    return max(map(year, range(1, YEAR_DAYS + 1)), key=lambda one: (one.micro, -one.days))
