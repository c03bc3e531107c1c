"""The load of the aggregator's benchmarks: a registry with every shape of report, and reports drawn at random."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from dither_shared.plan import Plan
from dither_shared.registry import Registry, utc_today
from dither_shared.wire import WireGroup
from dither_shared.wire.reading import Group
from tests.benchmarks.speed import random_reports, unpack

_COMMON = """
rev = 1
question = "What is it?"
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
"""
DEVICE_EPSILON = 1_000
"""The most that there may be: what many metrics share."""


def _values(d: int) -> str:
    return "[" + ", ".join(f'"value {i}"' for i in range(d)) + "]"


KINDS = {
    "flag": 'kind = "flag"\nreports = 1',
    "choice": f'kind = "choice"\nvalues = {_values(100)}\nreports = 1',
    "choices": f'kind = "choices"\nvalues = {_values(12)}\nticks_max = 3\nreports = 1',
    "text": f'kind = "text"\ncandidates = {_values(100)}\nmemoize = true\nanswers = 1',
}
"""One of each shape of report: a symbol, a string of bits, a subset, and bits of one of many cells."""


def registry_text(metrics: int = len(KINDS), kinds: Mapping[str, str] = KINDS) -> str:
    """Return a registry of so many metrics, of each kind in turn: `flag_0`, `choice_1`, ..."""
    epsilon = min(2.0, DEVICE_EPSILON / metrics / 2)
    expires = utc_today() + timedelta(days=180)
    head = f'[registry]\napp = "benchmark"\ndevice_epsilon = {DEVICE_EPSILON}.0\nquiet_days = 0\n'
    blocks = []
    for number in range(metrics):
        kind, keys = list(kinds.items())[number % len(kinds)]
        permanent = f"epsilon_permanent = {2 * epsilon}\n" if kind == "text" else ""
        blocks.append(f"[metric.{kind}_{number}]\n{keys}{_COMMON}epsilon = {epsilon}\n{permanent}expires = {expires}\n")
    return "\n".join([head, *blocks])


def registry(metrics: int = len(KINDS)) -> Registry:
    """Return that registry, parsed."""
    return Registry.parse(registry_text(metrics))


def wire_groups(plans: Sequence[Plan], reports: int, cell: int) -> list[WireGroup]:
    """Return an upload's groups, with the reports shared out evenly among the plans."""
    return [_wire_group(plan, reports // len(plans), cell) for plan in plans]


def _wire_group(plan: Plan, reports: int, cell: int) -> WireGroup:
    shape = plan.mechanism.shape
    values = unpack(shape, random_reports(shape, reports), reports)
    return plan.metric, plan.digest, [shape.to_wire(value) for value in values], cell if plan.cells.several else None


def packed_groups(plans: Sequence[Plan], reports: int, cell: int) -> tuple[Group, ...]:
    """Return the same as the wire's reader does."""
    return tuple(_packed_group(plan, reports // len(plans), cell) for plan in plans)


def _packed_group(plan: Plan, reports: int, cell: int) -> Group:
    packed = random_reports(plan.mechanism.shape, reports)
    return Group(plan, cell if plan.cells.several else 0, packed, reports)
