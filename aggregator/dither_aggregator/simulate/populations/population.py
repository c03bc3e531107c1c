"""A population: the metrics of a registry, and the true answers of devices drawn from real data."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from importlib.resources import files

from dither_aggregator.simulate.fleet import Answers

_HEAD = """\
[registry]
app = "demo"
device_epsilon = {device_epsilon}
quiet_days = 0
{year}"""

_METRIC = """
[metric.{name}]
rev = 1
{asks}
epsilon = {epsilon}
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["demo@example.org"]
expires = {expires}
"""


class Population(ABC):
    """Devices that each answer every metric once."""

    epsilon = 2.0
    """The epsilon of each report."""

    publish_epsilon_year: float | None = None
    """The most that releases may cost a device in a year, where `asks` says that totals are published."""

    @property
    def devices_max(self) -> int | None:
        """How many devices can be drawn; None where there is no end of them."""
        return None

    @property
    @abstractmethod
    def asks(self) -> Mapping[str, str]:
        """By metric: the lines of the registry that are its own, from `kind` on."""

    @abstractmethod
    def draw(self, devices: int, seed: int) -> Answers:
        """Return the true answers of so many devices: for each metric one a device."""

    def registry(self, today: date) -> str:
        """Return the text of a registry that asks for all metrics, and lets a device answer each once."""
        terms = {"epsilon": self.epsilon, "expires": today + timedelta(days=30)}
        metrics = (_METRIC.format(name=name, asks=asks, **terms) for name, asks in self.asks.items())
        year = f"publish_epsilon_year = {self.publish_epsilon_year}\n" if self.publish_epsilon_year else ""
        return _HEAD.format(device_epsilon=self.epsilon * len(self.asks), year=year) + "".join(metrics)


def read_data(name: str) -> bytes:
    """Return a file of real data; data/README.md says where it is from."""
    return files("dither_aggregator.simulate").joinpath("data", name).read_bytes()


def listed(values: Iterable[str], key: str = "values") -> str:
    """Return the registry's lines that list values under a key."""
    lines = "\n".join(f'    "{value}",' for value in values)
    return f"{key} = [\n{lines}\n]"
