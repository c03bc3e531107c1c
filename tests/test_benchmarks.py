"""The short version of `make bench`: what is meant to be fast is, beside the naive version in the same run."""

import secrets
from decimal import Decimal
from functools import partial

from dither_aggregator.fold import fold
from dither_shared.mechanisms import OUE
from dither_shared.reports import Bits
from dither_shared.rng import Rng
from tests.aggregator.test_fold import plain_fold
from tests.benchmarks.randomize import CALLS, bit_by_bit, many
from tests.benchmarks.timing import seconds


def test_many_coins_at_once_are_several_times_as_fast_as_one_by_one() -> None:
    rng, mechanism = Rng(secrets.randbits), OUE.for_epsilon(128, Decimal(2))
    ours_s = seconds(partial(many, mechanism, rng), 0.2) / CALLS
    assert seconds(partial(bit_by_bit, mechanism, 3, rng), 0.2) > 5 * ours_s


def test_folding_bits_is_many_times_as_fast_as_counting_them_one_by_one() -> None:
    shape, reports = Bits(128), [secrets.randbits(128) for _ in range(2_000)]
    ours_s = seconds(partial(fold, shape, shape.pack(reports)), 0.2)
    assert seconds(partial(plain_fold, shape, reports[:100]), 0.2) * 20 > 50 * ours_s
