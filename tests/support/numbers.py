"""Registries of numbers for the tests, and the exact law of what a device sends of one."""

import json
from datetime import date
from decimal import Decimal
from typing import cast

from dither_shared.kinds import Answer
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.support.laws import Law, law_of

SYMBOLS_MAX = 10_000
"""An outcome is cell x SYMBOLS_MAX + symbol."""

FRESH: dict[str, object] = {"reports": 3, "schedule": "early"}
MEMO: dict[str, object] = {"memoize": True, "epsilon_permanent": 2}
COMMON: dict[str, object] = {
    "kind": "number",
    "unit": "s",
    "rev": 1,
    "question": "How long does it take?",
    "epsilon": 1,
    "presence": "public",
    "period": "1d",
    "owners": ["team@example.org"],
    "sensitivity": "low",
    "expires": date(2027, 6, 30),
}


def numbers_text(**metrics: dict[str, object]) -> str:
    """Return a registry of numbers, each by the keys that it has besides the usual ones; None leaves a key out.

    A text that begins with "= " is TOML as it stands: = nan.
    """
    lines = ["[registry]", 'app = "example"', "device_epsilon = 400", "quiet_days = 0"]
    for name, keys in metrics.items():
        lines.append(f"[metric.{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in {**COMMON, **keys}.items() if value is not None]
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, str) and value.startswith("= "):
        return value.removeprefix("= ")
    return str(value) if isinstance(value, date | Decimal) else json.dumps(value, ensure_ascii=False)


def numbers(**metrics: dict[str, object]) -> Registry:
    """Return that registry, parsed."""
    return Registry.parse(numbers_text(**metrics))


def number(**keys: object) -> Metric:
    """Return a number, fresh unless it is memoized, by the keys that it has besides the usual ones."""
    life = {} if keys.get("memoize") else FRESH
    return numbers(asked={**life, **keys}).metrics["asked"]


def send(metric: Metric, read: Answer, rng: Rng) -> int:
    """Return a cell and a fresh report in it, drawn as a device draws them."""
    cell = metric.cells.draw(rng)
    mechanism = metric.cells.mechanism_of(cell)
    return cell * SYMBOLS_MAX + mechanism.randomize(metric.class_of(read, cell, rng), rng)


def law_of_report(metric: Metric, read: Answer) -> Law:
    """Return the probability of every cell and report for an answer that was read, exactly."""
    return law_of(lambda rng: send(metric, read, rng))


def places_of(metric: Metric) -> list[Answer]:
    """Return everything that an answer can be read as where buckets are told apart, "other" and "none" included."""
    count = metric.asked.domain.size + 1 + metric.hidden
    return cast("list[Answer]", [(place,) for place in range(count)])
