"""How many devices a word needs, before anything is sent.

A word of share f is named when it stands out in each level that its code reaches, and passes the verification group's
line. In a group with n reports its estimate is about normal, with mean f and the standard error e of a word that nobody
has, so it passes a line of t standard errors with probability Phi(f / e - t). The lines are

    a level         STANDS_OUT, or where more than KEPT_MAX noisy prefixes pass that, what so many pass
    verification    z(1 - .05 / 50), for the 50 texts that a search usually proposes

and the groups have different reports, so the probabilities multiply.
"""

from collections.abc import Sequence
from math import prod, sqrt
from statistics import NormalDist

from dither_aggregator.analysis.words.search import KEPT_MAX, STANDS_OUT
from dither_shared.words.groups import PROPOSED

USUAL_BITS = 30
"""The code of a word of seven letters."""
FALSE_WORDS = 0.05
POWER = 0.8
DEVICES_MAX = 1 << 42


def devices_needed(
    share: float, noise_variance: float, levels: Sequence[int], weights: Sequence[int], bits: int = USUAL_BITS
) -> int:
    """Return the fewest reports with which a word of this share is named with probability POWER, about.

    `noise_variance` is that of one report, for a word that nobody has; `weights` are the groups' parts of the reports,
    the verification group's last; `bits` is the length of the word's code. At most DEVICES_MAX.
    """
    few, many = 0, DEVICES_MAX
    while many - few > max(few // 1_000, 1):
        n = (few + many) // 2
        few, many = (few, n) if _power(share, noise_variance / n, levels, weights, bits) >= POWER else (n, many)
    return many


def _power(share: float, variance: float, levels: Sequence[int], weights: Sequence[int], bits: int) -> float:
    """Return the probability that a word is named, where one group of all reports would have this variance."""
    normal = NormalDist()
    lines = [*_lines(levels, bits), -normal.inv_cdf(FALSE_WORDS / PROPOSED)]
    parts = [weight / sum(weights) for weight in (*weights[: len(lines) - 1], weights[-1])]
    return prod(normal.cdf(share / sqrt(variance / part) - line) for part, line in zip(parts, lines, strict=True))


def _lines(levels: Sequence[int], bits: int) -> list[float]:
    """Return the lines of the levels that a code of so many bits reaches, up to the first at which it has ended."""
    lines = []
    looked_at = 1
    for before, level in zip((0, *levels), levels, strict=False):
        looked_at <<= level - before
        lines.append(max(STANDS_OUT, -NormalDist().inv_cdf(min(KEPT_MAX / looked_at, 0.5))))
        if level >= bits:
            break
        looked_at = KEPT_MAX
    return lines
