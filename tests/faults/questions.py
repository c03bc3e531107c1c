"""Metrics as one release asks them, and the registry of a release."""

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache

from dither_shared.exact import MICRO, from_micro
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Registry

NAMES = ("font", "hue", "icon", "mode", "size", "theme", "tone", "word", "zoom")
TEXTS = {"word"}
VALUES = {"abc": ("a", "b", "c"), "abz": ("a", "b", "z")}
_TEXT = RAPPOR.of_probabilities(8, 1, *(Decimal(one) for one in ("0.5", "0.5", "0.75")))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Question:
    """A metric as one registry has it: `charges` fresh reports, or, with `permanent`, so many permanent answers.

    The metric "word" is a text, and always memoized.
    """

    charges: int = 3
    epsilon: str = "1"
    permanent: str = ""
    presence: str = "public"
    period: int = 1
    schedule: str = "early"
    values: str = "abc"
    rev: int = 1

    def to_toml(self, name: str, expires: date) -> str:
        """Return the metric's table."""
        kind = f'kind = "choice"\nmechanism = "grr"\nvalues = {json.dumps(VALUES[self.values])}'
        life = f'epsilon = {self.epsilon}\nreports = {self.charges}\nschedule = "{self.schedule}"'
        if name in TEXTS:
            kind = 'kind = "text"\nparameters = {k = 8, h = 1, m = 2, f = 0.5, p = 0.5, q = 0.75}'
            permanent, one = from_micro(_TEXT.permanent.charge), from_micro(_TEXT.charge)
            life = f"memoize = true\nanswers = {self.charges}\nepsilon = {one}\nepsilon_permanent = {permanent}"
        elif self.permanent:
            life = f"memoize = true\nanswers = {self.charges}\nepsilon = 0.05\nepsilon_permanent = {self.permanent}"
        return f"""
[metric.{name}]
rev = {self.rev}
{kind}
{life}
question = "What?"
presence = "{self.presence}"
period = "{self.period}d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""


Questions = tuple[tuple[str, Question], ...]


@lru_cache(maxsize=4096)
def registry_of(device_epsilon: int, questions: Questions, expires: date) -> Registry:
    """Return a registry of these questions, whose device_epsilon is raised to what they reserve."""
    head = "[registry]\napp = 'life'\nquiet_days = 1\ndevice_epsilon = {}\n"
    tables = "".join(question.to_toml(name, expires) for name, question in questions)
    free = Registry.parse(head.format(1000) + tables)
    reserved = sum(metric.reservation for metric in free.metrics.values())
    return Registry.parse(head.format(max(device_epsilon, -(-reserved // MICRO))) + tables)
