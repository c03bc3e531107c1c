"""Bounds of composition beside dp-accounting's, which computes them on a grid and by its own list of orders.

Fails where ours is not what it should be: the optimal one of equal outputs between what dp-accounting computes rounded
down and rounded up, that of zCDP no higher than its own, and of unequal outputs none below what is true.
"""

import time
from decimal import Decimal

from dither_shared.accounting.composition import of_zcdp, optimal
from dither_shared.accounting.events import BASIC, OPTIMAL, ZCDP, AllOf, Outputs
from dither_shared.exact import MICRO
from tests.benchmarks.peers import ask

DELTAS = ("1e-6", "1e-9")
CASES: dict[str, list[tuple[int, str]]] = {
    "100 of .1": [(100, "0.1")],
    "365 of .1": [(365, "0.1")],
    "30 of .5": [(30, "0.5")],
    "10 of 1": [(10, "1")],
    "100 of 1": [(100, "1")],
    "12 of 2": [(12, "2")],
    "6 of 1, 3 of 2": [(6, "1"), (3, "2")],
    "52 of .2, 12 of .5, 2 of 2": [(52, "0.2"), (12, "0.5"), (2, "2")],
}
SLACK = 1e-5
"""dp-accounting computes in floats, and may be off by so much."""


def run() -> None:
    """Print the bounds of each case at each delta, and check them."""
    questions = [
        {
            "epsilons": [float(epsilon) for times, epsilon in outputs for _ in range(times)],
            "delta": float(delta),
        }
        for outputs in CASES.values()
        for delta in DELTAS
    ]
    answers = iter(ask("dp_accounting", questions))
    print(f"  {'':28}{'delta':>6}{'sum':>9}{'zCDP':>18}{'optimal':>20}{'ms':>26}")
    print(f"  {'':43}{'ours':>9}{'theirs':>9}{'ours':>10}{'theirs: from':>14}{'to':>10}{'ours':>8}{'theirs':>8}")
    for name, outputs in CASES.items():
        for delta in DELTAS:
            theirs = next(answers)
            ours, ours_s = bounds_of(outputs, Decimal(delta))
            best = ours.get(OPTIMAL)
            print(
                f"  {name:28}{delta:>6}{ours[BASIC]:9.3f}{ours[ZCDP]:9.3f}{theirs['zcdp']:9.3f}"
                f"{'-' if best is None else f'{best:.5f}':>10}{theirs['pld_low']:14.5f}{theirs['pld']:10.5f}"
                f"{1e3 * ours_s:8.1f}{1e3 * theirs['seconds']:8.1f}"
            )
            check(name, ours, theirs)


def bounds_of(outputs: list[tuple[int, str]], delta: Decimal) -> tuple[dict[str, float], float]:
    """Return our bounds by proof, and the seconds that they took."""
    event = AllOf(tuple(Outputs(int(Decimal(epsilon) * MICRO), times) for times, epsilon in outputs))
    optimal.cache_clear()
    of_zcdp.cache_clear()
    started = time.perf_counter()
    found = event.bounds(delta)
    return {bound.proof: bound.micro / MICRO for bound in found}, time.perf_counter() - started


def check(name: str, ours: dict[str, float], theirs: dict[str, float]) -> None:
    """Raise AssertionError where a bound is not where it should be."""
    if not all(bound >= theirs["pld_low"] - SLACK for bound in ours.values()):
        raise AssertionError(f"{name}: a bound is below what is true: {ours}, {theirs}")
    if ours[ZCDP] > theirs["zcdp"] + SLACK:
        raise AssertionError(f"{name}: zCDP gives more than {theirs['zcdp']}: {ours[ZCDP]}")
    if ours.get(OPTIMAL, 0.0) > theirs["pld"] + SLACK:
        raise AssertionError(f"{name}: the optimal bound is above {theirs['pld']}: {ours[OPTIMAL]}")
