"""Counts that reports with these parameters do not have: of another collection, or of another file of parameters.

A bit of a report is set with probability p* or q*, and of the Bloom bits of a value one is set at least and h at most.
So it is bounded how often each bit is set, and how many bits all reports have, whatever clients answered; the laws are
those of `analysis/quality/laws.py`. A client that sent several reports has the same permanent noise in them: it is
allowed to have sent `repeats`. However many it sent, each bit is set with probability p or q.
"""

from collections.abc import Iterator
from math import sqrt

import numpy as np
from scipy.special import stdtrit

from dither_aggregator.analysis.decoding.decoder import Decoded
from dither_aggregator.analysis.inference import Z
from dither_aggregator.analysis.quality import mixed
from dither_aggregator.counting.folding import Counts
from dither_aggregator.interop.google_rappor.files import Params

LEVEL = 1e-9
"""How rarely sound counts are called impossible, at most: proved of sums, by a t law of what is decoded."""
ROUNDING = 1e-9
"""Other texts hold all or nothing, but for the last digits, where bits tell nothing of them."""
REPEATS = 30
"""So many reports a client may have sent: google/rappor's clients repeat the noise of a value in each."""


def implausible(counts: Counts, params: Params, repeats: int = REPEATS) -> Iterator[str]:
    """Yield why the counts of all cohorts, int64[m, k + 1], are not those of reports with these parameters."""
    there = np.flatnonzero(counts[:, 0])
    if not len(there):
        return
    n, bits = counts[there, :1], counts[there, 1:]
    level = LEVEL / (bits.size + 1) / 2
    ends = sorted((float(params.p), float(params.q)))
    low, high = sorted((float(params.p_star), float(params.q_star)))
    rates = [params.p_star + (params.q_star - params.p_star) * held / params.k for held in (1, params.h)]
    least, most = sorted(map(float, rates))
    total, trials = np.array([bits.sum()]), int(n.sum()) * params.k
    chance = np.minimum(mixed(total, trials, ends[0], ends[1]), mixed(total, trials, least, most, repeats))
    if chance[0] < level:
        has = f"{int(total[0]) / int(n.sum()):,.2f} of {params.k} bits are set in a report on average"
        yield f"{has}, and {least * params.k:,.2f} to {most * params.k:,.2f} are by these parameters"
    chances = np.minimum(mixed(bits, n, ends[0], ends[1]), mixed(bits, n, low, high, repeats))
    if off := int((chances < level).sum()):
        row, bit = np.unravel_index(int(chances.argmin()), chances.shape)
        yield (
            f"{off:,} of {bits.size:,} bits are set too rarely or too often: bit {bit} of cohort {there[row]} in "
            f"{bits[row, bit]:,} of {n[row, 0]:,} reports, where {low:.1%} to {high:.1%} of them have it"
        )


def unbelievable(decoded: Decoded, params: Params, repeats: int = REPEATS) -> Iterator[str]:
    """Yield why what was decoded cannot be of reports: the texts that the list misses hold from none to all.

    The part `kept` of a bit's variance is a client's permanent noise, which its reports have in common.
    """
    permanent = params.f / 2 * (1 - params.f / 2) * (params.q - params.p) ** 2
    kept = permanent and permanent / min(rate * (1 - rate) for rate in (params.p_star, params.q_star))
    error = (decoded.unexplained_upper - decoded.unexplained_lower) / (2 * Z) * sqrt(1 + (repeats - 1) * kept)
    far = error * float(stdtrit(max(decoded.error_freedom, 1.0), 1 - LEVEL / 2)) + ROUNDING
    if not -far <= decoded.unexplained <= 1 + far:
        yield (
            f"strings that are not in the list would hold {decoded.unexplained:.0%} of the reports (95 % interval: "
            f"{decoded.unexplained_lower:.0%} to {decoded.unexplained_upper:.0%}), and must hold 0 % to 100 %"
        )
