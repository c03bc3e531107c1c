"""Randomizing on the device: many coins at once, beside a coin for each bit."""

import secrets
from decimal import Decimal
from functools import partial

from dither_shared.mechanisms import GRR, OUE, PureMechanism
from dither_shared.rng import Rng
from tests.benchmarks.timing import row, seconds

EPSILON = Decimal(2)
VALUE = 3
CALLS = 100


def bit_by_bit(mechanism: OUE, value: int, rng: Rng) -> int:
    """Randomize with a 64-bit random number for each bit: what `OUE.randomize` must beat."""
    report = 0
    for place in range(mechanism.d):
        report |= rng.coin(mechanism.threshold_p if place == value else mechanism.threshold_q) << place
    return report


def many(mechanism: PureMechanism, rng: Rng) -> None:
    """Randomize often enough for the clock."""
    for _ in range(CALLS):
        mechanism.randomize(VALUE, rng)


def run() -> None:
    """Print microseconds a value for d = 16, 128, 1024."""
    rng = Rng(secrets.randbits)
    for d in (16, 128, 1024):
        oue, grr = OUE.for_epsilon(d, EPSILON), GRR.for_epsilon(d, EPSILON)
        naive_s = seconds(partial(bit_by_bit, oue, VALUE, rng))
        for mechanism in (oue, grr):
            row(f"{mechanism.name}, d = {d}", seconds(partial(many, mechanism, rng)) / CALLS, naive_s, "value")
