"""What a person agrees to, and what takes their agreement again.

Asked again is for whatever lets a device say more than before: a device's, a metric's or a permanent answer's epsilon
rises, a memo becomes fresh noise, a period shortens, a presence is no longer hidden, an expiry is extended, a metric is
added. Devices hold back what was not agreed to; `dither metrics diff` says it before a release.
"""

import json
from datetime import date

from dither_shared.exact import from_micro
from dither_shared.frozen import as_dict, frozen
from dither_shared.registry import Metric


@frozen
class Terms:
    """The most that one metric may cost a device, how often it may answer, and until when."""

    lifetime: int
    """Micro-epsilon that it may charge, ever."""
    permanent: int
    """Micro-epsilon of one memoized answer; 0 where every report has fresh noise."""
    period_days: int
    presence: str
    expires: str
    """A date as YYYY-MM-DD, whose order is that of time."""

    @classmethod
    def of(cls, metric: Metric) -> "Terms":
        """Return a metric's terms."""
        permanent = metric.charge if metric.memoized else 0
        return cls(metric.reservation, permanent, metric.period_days, metric.presence, metric.expires.isoformat())

    def asks(self, agreed: "Terms | None") -> list[str]:
        """Return what of these terms goes beyond those that were agreed to, a phrase each; nothing if nothing does."""
        if agreed is None:
            return [f"it is new, and may cost {_shown(self.lifetime)}"]
        asks = []
        if self.lifetime > agreed.lifetime:
            asks.append(f"its epsilon for life rises from {_shown(agreed.lifetime)} to {_shown(self.lifetime)}")
        if agreed.permanent and not self.permanent:
            asks.append("its memoized answers become fresh ones")
        elif agreed.permanent and self.permanent > agreed.permanent:
            rise = f"from {_shown(agreed.permanent)} to {_shown(self.permanent)}"
            asks.append(f"its epsilon of a permanent answer rises {rise}")
        if self.period_days < agreed.period_days:
            asks.append(f"its period shortens from {agreed.period_days}d to {self.period_days}d")
        if agreed.presence == "hidden" and self.presence != "hidden":
            asks.append("whether it answers is no longer hidden")
        if date.fromisoformat(self.expires) > date.fromisoformat(agreed.expires):
            asks.append(f"its expiry is extended from {agreed.expires} to {self.expires}")
        return asks

    def to_json(self) -> str:
        """Return the one text that stands for these terms."""
        return json.dumps(as_dict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Terms":
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def device_asks(epsilon: int, agreed: int) -> list[str]:
    """Return whether the device's epsilon goes beyond the one that was agreed to, both in micro-epsilon."""
    if epsilon <= agreed:
        return []
    return [f"the device's epsilon rises from {_shown(agreed)} to {_shown(epsilon)}"]


def _shown(micro: int) -> str:
    return f"{from_micro(micro):g}"
