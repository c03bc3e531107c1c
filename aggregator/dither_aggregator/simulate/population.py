"""The demo's population: devices whose browsers follow the world's shares of use."""

import csv
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files

import numpy as np

MOBILE = frozenset(
    {
        "Chrome for Android",
        "Safari on iOS",
        "Samsung Internet",
        "Opera Mobile",
        "UC Browser for Android",
        "Firefox for Android",
        "Android Browser",
    }
)

_REGISTRY = """\
[registry]
app = "demo"
device_epsilon = 4.0
quiet_days = 0

[metric.browser]
rev = 1
kind = "choice"
question = "Which browser versions do people run?"
values = [
{values}
]
epsilon = 2.0
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["demo@example.org"]
sensitivity = "low"
expires = {expires}

[metric.mobile]
rev = 1
kind = "flag"
question = "Is it a browser of a phone or tablet?"
epsilon = 2.0
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["demo@example.org"]
sensitivity = "low"
expires = {expires}
"""


@dataclass(frozen=True)
class Population:
    """The browser versions, their shares of use (summing to one), and which are mobile."""

    labels: tuple[str, ...]
    shares: tuple[float, ...]
    mobile: tuple[bool, ...]

    def registry(self, today: date) -> str:
        """Return the text of a registry that asks for both metrics."""
        values = "\n".join(f'    "{label}",' for label in self.labels)
        return _REGISTRY.format(values=values, expires=today + timedelta(days=30))

    def draw(self, devices: int, seed: int) -> dict[str, list[str] | list[bool]]:
        """Return the true answers of so many devices, by metric."""
        drawn = np.random.default_rng(seed).choice(len(self.labels), size=devices, p=self.shares)
        return {"browser": [self.labels[v] for v in drawn], "mobile": [self.mobile[v] for v in drawn]}


def browsers() -> Population:
    """Return the world's browsers, from caniuse-lite (see data/README.md)."""
    text = files("dither_aggregator.simulate").joinpath("data/browser_share.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    shares = np.array([float(row["share_percent"]) for row in rows])
    return Population(
        labels=tuple(f"{row['browser']} {row['version']}" for row in rows),
        shares=tuple((shares / shares.sum()).tolist()),
        mobile=tuple(row["browser"] in MOBILE for row in rows),
    )
