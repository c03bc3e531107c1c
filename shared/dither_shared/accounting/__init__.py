"""A metric's integers in people's words: how sure somebody can become, and who can be linked.

No device asks for the loss of several outputs (composition.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import ceil, exp, floor, inf, isqrt, log

from dither_shared.mechanisms import DEVICES, Cells
from dither_shared.mechanisms.mechanism import Equiprobable, SymbolLaw

# From a privacy loss to odds: how sure somebody can become of one device's answer.
#
# Let somebody believe with probability a that a device's answer is among some that they name, and see an output y. All
# probabilities of y differ between two answers by a factor of at most e^epsilon, and so do their averages over the
# named answers and over the others. By Bayes the odds of the named answers, a : (1 - a) before, are afterwards at most
#
#     e^epsilon a : (1 - a)        which is a probability of        e^epsilon a / (e^epsilon a + 1 - a)
#
# whatever else they know, and at least what e^-epsilon gives in its place. Between the two, a guess moves most from
# a = 1 / (1 + e^{epsilon / 2}) upward, or from 1 - a downward:
#
#     by (e^{epsilon / 2} - 1) / (e^{epsilon / 2} + 1) = tanh(epsilon / 4)
#
# With randomized response of two values all of these are reached. Several outputs about one device compose by adding
# their epsilons; any number of reports of one memoized answer together enter with epsilon_permanent (the aggregator's
# `dither_aggregator/accounting.py`). Kasiviswanathan, Smith 2014.

EVEN = Fraction(1, 2)
"""A guess of 1 : 1."""
ONE_IN_TEN = Fraction(1, 10)
NEARLY_CERTAIN = Fraction(99, 100)
SURE_OF_REPORT_MAX = Fraction(95, 100)
"""How sure an even guess may become by one report without a note of `dither metrics check`; by all, NEARLY_CERTAIN."""
_ROOT = 1 << 128
"""Square roots are rounded up to a multiple of one over this."""


def sure(exp_epsilon: Fraction, prior: Fraction = EVEN) -> Fraction:
    """Return the largest probability after outputs of this e^epsilon, for one of `prior`, in (0, 1), before."""
    return exp_epsilon * prior / (exp_epsilon * prior + 1 - prior)


def unsure(exp_epsilon: Fraction, prior: Fraction = EVEN) -> Fraction:
    """Return the smallest probability after such outputs: how far somebody can be talked out of a guess."""
    return 1 - sure(exp_epsilon, 1 - prior)


def moves(exp_epsilon: Fraction) -> Fraction:
    """Return tanh(epsilon / 4), the most by which any guess can move, rounded up by less than 1e-38."""
    root = Fraction(isqrt(exp_epsilon.numerator * _ROOT * _ROOT // exp_epsilon.denominator) + 1, _ROOT)
    return (root - 1) / (root + 1)


def percent_above(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded up to a tenth, or "above 99" where it is that.

    Never below the truth, because it is read as a promise; so never "100" for what is less.
    """
    if probability > NEARLY_CERTAIN:
        return "above 99"
    return f"{ceil(1000 * probability) / 10:.1f}"


def percent_exactly(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded up to one digit more than its nines."""
    for digits in range(1, 10):
        shown = Decimal(ceil(probability * 10 ** (digits + 2))).scaleb(-digits)
        if shown < 100:
            return f"{shown}"
    return "all but 100"


def percent_below(probability: Fraction) -> str:
    """Return a probability in percent, without the sign: rounded down to a tenth, or "below 1" where it is that.

    Never above the truth, and never "0" for what is more.
    """
    if probability < 1 - NEARLY_CERTAIN:
        return "below 1"
    return f"{floor(1000 * probability) / 10:.1f}"


def millionths_above(probability: Fraction) -> float:
    """Return a probability to six digits, never below it: JSON's 1.0 is above .999999."""
    return ceil(probability * 10**6) / 10**6


def millionths_below(probability: Fraction) -> float:
    """Return a probability to six digits, never above it: JSON's 0.0 is below .000001."""
    return floor(probability * 10**6) / 10**6


# R(n): how well the noise that memos repeat tells a device from others with the same answers.
#
# A memo is sent again and again under fresh noise, so whoever keeps all reports learns it, and each device is known by
# its permanent symbol u together with every public part that it sends for good: its cohort and, beside tables, its
# value of the public column. These have m states, taken as equally likely: states that are not tell less. With P_u the
# probability of u, n devices with the same answer occupy on average
#
#     m sum_u [1 - (1 - P_u / m)^n]
#
# of these states. Two sets of reports of the same devices, of before and of after, can then be joined by pairing at
# random within each state; of k devices in one state exactly one is paired rightly on average, and nothing in their
# noise tells a better pairing. So the share of the devices that is joined rightly is
#
#     R(n) = (m / n) sum_u [1 - (1 - P_u / m)^n] = sum over groups of mass x g(P / m),    g(x) = (1 - (1 - x)^n) / (n x)
#
# where a group holds equally likely symbols. It is what many reports come to; a few tell less. A device's several memos
# are drawn independently, and u is their tuple: masses and probabilities multiply.

RARE = 1e-8
"""A state that each of n devices has with less than RARE / n is taken as one that no two share: R is as much higher."""
STEP = 2.0**-10
"""Tuples of several memos are grouped by their probability, rounded down by a factor of at most e^STEP."""


@lru_cache(maxsize=256)
def linked_share(metrics: tuple[Cells, ...], n: int = DEVICES) -> float | None:
    """Return R(n) of all lasting parts that a device sends for these metrics; None where it sends none.

    Within 1e-7 for one memo. Rounding is upward, by less than STEP for each further memo: since -dg/d ln x is between
    0 and g, no more is lost than the logarithm of a probability is moved.
    """
    lasting = max((1, *(cells.lasting for cells in metrics))) * max((1, *(cells.public for cells in metrics)))
    memoized = [cells for cells in metrics if cells.memoized]
    if not memoized and lasting == 1:
        return None
    groups = _tuples(memoized, log(RARE * lasting / n))
    return min(sum(group.mass * _alone(exp(group.log_probability) / lasting, n) for group in groups), 1.0)


def recognised(linked: int) -> int:
    """Return how many of 200 devices are joined rightly, about, of R(200) in ten-thousandths."""
    return ceil(linked * DEVICES / 10_000)


def hundredths(linked: float | None) -> str:
    """Return R(n) to two digits, never below it; "-" where nothing lasts."""
    return "-" if linked is None else f"{ceil(100 * linked) / 100:.2f}"


def _tuples(memoized: Sequence[Cells], log_rare: float) -> SymbolLaw:
    """Return the law of a tuple of independent symbols. Tuples that are rarer than `log_rare` are one group."""
    laws = (_without_rare(cells.mechanism.memo_law(), log_rare) for cells in memoized)
    joint = next(laws, [Equiprobable(1.0, 0.0)])
    for law in laws:
        masses: defaultdict[float, float] = defaultdict(float)
        for one, other in product(joint, law):
            both = one * other
            rare = both.log_probability < log_rare
            masses[-inf if rare else floor(both.log_probability / STEP) * STEP] += both.mass
        joint = [Equiprobable(mass, place) for place, mass in masses.items()]
        if masses[-inf] > 1 - RARE:
            break  # everybody is alone already: further memos change nothing
    return joint


def _without_rare(law: SymbolLaw, log_rare: float) -> SymbolLaw:
    """Return a law whose rare symbols are one group: of a unary code with thousands of bits few groups are left."""
    common = [group for group in law if group.log_probability >= log_rare]
    rare = sum(group.mass for group in law if group.log_probability < log_rare)
    return [*common, Equiprobable(rare, -inf)] if rare else common


def _alone(x: float, n: int) -> float:
    """Return g(x): of devices in states that each have probability x, the share that is paired rightly."""
    return 1.0 if n * x < RARE else (1 - (1 - x) ** n) / (n * x)
