"""Devices whose browsers follow the world's shares of use."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dither_aggregator.simulate.fleet import Answers
from dither_aggregator.simulate.populations.population import Population, listed, read_data

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

_BROWSER = """\
kind = "choice"
question = "Which browser versions do people run?"
sensitivity = "low"
publish = "week"
publish_epsilon = 0.5
why = "We test the versions that people run, and drop those that nobody does."
issue = "https://example.org/issues/1"
{values}"""

_MOBILE = """\
kind = "flag"
question = "Is it a browser of a phone or tablet?"
sensitivity = "low"
publish = "week"
publish_epsilon = 0.5
why = "Pages for small screens are work: we do it if people use them."
issue = "https://example.org/issues/2\""""


@dataclass(frozen=True)
class Browsers(Population):
    """The browser versions, their shares of use (summing to one), and which are mobile."""

    publish_epsilon_year = 53.0
    labels: tuple[str, ...]
    shares: tuple[float, ...]
    mobile: tuple[bool, ...]

    @property
    def asks(self) -> Mapping[str, str]:
        """The version, and whether it is mobile."""
        return {"browser": _BROWSER.format(values=listed(self.labels)), "mobile": _MOBILE}

    def draw(self, devices: int, seed: int) -> Answers:
        """Return the browsers of devices that are drawn independently."""
        drawn = np.random.default_rng(seed).choice(len(self.labels), size=devices, p=self.shares)
        return {"browser": [self.labels[v] for v in drawn], "mobile": [self.mobile[v] for v in drawn]}


def browsers() -> Browsers:
    """Return the world's browsers, from caniuse-lite."""
    rows = list(csv.DictReader(read_data("browser_share.csv").decode("utf-8").splitlines()))
    shares = np.array([float(row["share_percent"]) for row in rows])
    return Browsers(
        labels=tuple(f"{row['browser']} {row['version']}" for row in rows),
        shares=tuple((shares / shares.sum()).tolist()),
        mobile=tuple(row["browser"] in MOBILE for row in rows),
    )
