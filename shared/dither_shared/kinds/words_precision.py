"""How many devices a word needs, before anything is sent.

A word of share f is named when it stands out in each level that its code reaches, and passes the verification group's
line. In a group with n reports its estimate is about normal, with mean f and the standard error e of a word that nobody
has, so it passes a line of t standard errors with probability Phi(f / e - t). The lines are

    a level         STANDS_OUT, or where more than KEPT_MAX noisy prefixes pass that, what so many pass
    verification    z(1 - .05 / 100), for two-sided intervals of the 50 texts that a search usually proposes

and the groups have different reports, so the probabilities multiply. All of them depend on f / e alone: a word of half
the share needs four times the devices.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from math import ceil, prod, sqrt
from statistics import NormalDist

from dither_shared.accounting.poisoning import Worth
from dither_shared.cells import Cells
from dither_shared.domains import Coded, TextDomain
from dither_shared.kinds.kind import Asked
from dither_shared.kinds.precision import CountNoise, TextPrecision
from dither_shared.mechanisms import PureMechanism
from dither_shared.precision import DETECTABLE, POWER, Told
from dither_shared.words.groups import KEPT_MAX, PROPOSED, STANDS_OUT, Layout

USUAL_BITS = 30
"""The code of a word of seven letters."""
FALSE_WORDS = 0.05
SURE_OF_N = 10
"""As `analysis.released` of an aggregator has it."""
SIGNAL_MAX = 1_000.0
WIDEST = 4
"""Standard deviations by which the report that supports the most texts of a list passes the mean of all."""


def devices_needed(share: float, noise_variance: float, layout: Layout, bits: int = USUAL_BITS) -> int:
    """Return the fewest reports with which a word of this share is named with probability POWER, about.

    `noise_variance` is that of one report, for a word that nobody has; `bits` is the length of the word's code.
    """
    return ceil(noise_variance * (signal_needed(layout, bits) / share) ** 2)


@cache
def signal_needed(layout: Layout, bits: int = USUAL_BITS) -> float:
    """Return the share of such a word in standard errors: those that a group of all reports would have."""
    few, many = 0.0, SIGNAL_MAX
    while many - few > few / 10_000:
        signal = (few + many) / 2
        few, many = (few, signal) if _power(signal, layout, bits) >= POWER else (signal, many)
    return many


def told_named(layout: Layout, cells: Cells, n: int) -> Told:
    """Return the share of a word that n >= 1 reports name with probability POWER, about, if its code has USUAL_BITS."""
    every = PureMechanism.of(cells.mechanism_of(0)).noise_variance
    return Told(DETECTABLE, signal_needed(layout) * sqrt(every / n))


def verification_line() -> float:
    """Return the standard errors of the verification group that a word passes."""
    return -NormalDist().inv_cdf(FALSE_WORDS / PROPOSED / 2)


def _power(signal: float, layout: Layout, bits: int) -> float:
    """Return the probability that a word is named whose share is so many standard errors of all reports."""
    normal = NormalDist()
    lines = [*_lines(layout.levels, bits), verification_line()]
    weights = (*layout.weights[: len(lines) - 1], layout.weights[-1])
    parts = [weight / sum(layout.weights) for weight in weights]
    return prod(normal.cdf(signal * sqrt(part) - line) for part, line in zip(parts, lines, strict=True))


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


def searched_from(cells: Cells, noise: CountNoise) -> int:
    """Return from about how many reports on, of all groups together, the search of a release reads every level.

    It reads a row whose noisy number of reports is SURE_OF_N times the error that the noise gives it.
    """
    weights = sum(part.cells * part.weight for part in cells.parts)
    *levels, _ = cells.parts
    return ceil(
        max(SURE_OF_N * sqrt(part.mechanism.shape.size * noise.variance) * weights / part.weight for part in levels)
    )


class WordsPrecision(TextPrecision):
    """Words that are found without a list."""

    def unpublished(self, asked: Asked) -> str:
        """Return "": which words are looked up in a release is found in noisy counts."""
        return ""

    def released_names(self, asked: Asked) -> tuple[str, ...]:
        """Return nothing: each release has names of its own."""
        return ()

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of a text that is looked up, among as many as usual, and of the level with the fewest reports.

        A report of the verification group supports about `width` of the usual texts at most, and noise is for so many
        counts.
        """
        weights = sum(part.cells * part.weight for part in cells.parts)
        *levels, last = cells.parts
        points = PureMechanism.of(last.mechanism)
        q, told = float(points.q), n * last.cells * last.weight / weights
        width = 1 + PROPOSED * q + WIDEST * sqrt(PROPOSED * q * (1 - q))
        looked_up = sqrt(1 + width**2 * noise.variance * last.cells * (1 + q**2) / (told * q * (1 - q)))
        return looked_up, max(noise.wider(points, max(1, n * part.weight // weights)) for part in levels)

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of the verification group, of a text that nobody has."""
        total = sum(part.cells * part.weight for part in cells.parts)
        last = cells.parts[-1]
        noise = PureMechanism.of(last.mechanism).noise_variance
        return noise * Fraction(total, last.cells * last.weight)

    def tells(self, asked: Asked, n: int) -> Told:
        """Return the share of a word of usual length that is named: its levels must propose it first."""
        weights = tuple(part.weight for part in asked.cells.parts)
        return told_named(Layout(Coded.of(asked.domain).levels, weights), asked.cells, n)

    def poisoning(self, domain: TextDomain, cells: Cells) -> tuple[Worth, ...]:
        """Return that of the share of a text that is looked up: in the verification group, from all of its rows.

        With B buckets it is the mean of w = (B (S - q) / (p - q) - 1) / (B - 1). To be named the text must be proposed
        as well, by reports of the levels.
        """
        last = cells.parts[-1]
        share = Fraction(last.cells * last.weight, sum(part.cells * part.weight for part in cells.parts))
        points = PureMechanism.of(last.mechanism)
        p, q, others = points.p, points.q, points.d - 1
        up, down = ((points.d * weight / (p - q) - sign) / others for weight, sign in ((1 - q, 1), (q, -1)))
        return (Worth("a text", up, down, share, stands_out=True),)
