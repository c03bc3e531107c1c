"""Registries of numbers for the tests, and the exact law of what a device sends of one."""

from typing import cast

from dither_shared.kinds import Answer
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.support.laws import Law, law_of
from tests.support.registries import metrics_text

SYMBOLS_MAX = 10_000
"""An outcome is cell x SYMBOLS_MAX + symbol."""

FRESH: dict[str, object] = {"reports": 3, "schedule": "early"}
MEMO: dict[str, object] = {"memoize": True, "epsilon_permanent": 2}
NUMBER: dict[str, object] = {"kind": "number", "unit": "s", "question": "How long does it take?", "epsilon": 1}


def numbers_text(**metrics: dict[str, object]) -> str:
    """Return a registry of numbers, each by the keys that it has besides the usual ones; None leaves a key out."""
    return metrics_text({name: {**NUMBER, **keys} for name, keys in metrics.items()})


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
