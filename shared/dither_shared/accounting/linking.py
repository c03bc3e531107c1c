"""R(n): how well the noise that memos repeat tells a device from others with the same answers.

A memo is sent again and again under fresh noise, so whoever keeps all reports learns it, and each device is known by
its permanent symbol u together with every public part that it sends for good: its cohort and, beside tables, its value
of the public column. These have m states, taken as equally likely: states that are not tell less. With P_u the
probability of u, n devices with the same answer occupy on average

    m sum_u [1 - (1 - P_u / m)^n]

of these states. Two sets of reports of the same devices, of before and of after, can then be joined by pairing at
random within each state; of k devices in one state exactly one is paired rightly on average, and nothing in their noise
tells a better pairing. So the share of the devices that is joined rightly is

    R(n) = (m / n) sum_u [1 - (1 - P_u / m)^n] = sum over groups of mass x g(P / m),    g(x) = (1 - (1 - x)^n) / (n x)

where a group holds equally likely symbols. It is what many reports come to; a few tell less. A device's several memos
are drawn independently, and u is their tuple: masses and probabilities multiply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import ceil, exp, floor, inf, log

from dither_shared.cells import Cells
from dither_shared.mechanisms import DEVICES
from dither_shared.mechanisms.mechanism import Equiprobable, SymbolLaw

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
    """Return the law of a tuple of independent symbols. Those that are rarer than `log_rare` are one group."""
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
