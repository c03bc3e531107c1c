"""The laws of reports that are symbols, as matrices: a row for each output, a column for each answer."""

from functools import lru_cache, singledispatch

import numpy as np

from dither_aggregator.analysis.inference import Floats
from dither_aggregator.counting.supports import hyperplane
from dither_shared.mechanisms import GRR, PGR, Mechanism, MemoizedTwoLevel, SquareWave
from dither_shared.rng import SCALE


@lru_cache(maxsize=32)
def law_matrix(mechanism: Mechanism) -> Floats:
    """Return P[y | v], float64[K, d], by output and answer; raise TypeError for reports that are no symbols.

    A window has one more column, the last: answers without a place.
    """
    return _law(mechanism)


@singledispatch
def _law(mechanism: Mechanism) -> Floats:
    raise TypeError(f"the reports of {mechanism.name} are no symbols")


@_law.register
def _(mechanism: GRR) -> Floats:
    law = np.full((mechanism.d, mechanism.d), float(mechanism.q))
    np.fill_diagonal(law, float(mechanism.p))
    return law


@_law.register
def _(mechanism: PGR) -> Floats:
    on = np.stack([hyperplane(*mechanism.geometry, value) for value in range(mechanism.d)], axis=1)
    inside, held = float(mechanism.inside), int(on[:, 0].sum())
    return np.where(on, inside / held, (1 - inside) / (mechanism.outputs - held))


@_law.register
def _(mechanism: MemoizedTwoLevel) -> Floats:
    law = np.full((mechanism.d, mechanism.d), float(mechanism.q))
    np.fill_diagonal(law, float(mechanism.p))
    if not mechanism.supports_one:
        raise TypeError(f"the reports of a memoized {mechanism.name} are not read as numbers")
    return law


@_law.register
def _(mechanism: SquareWave) -> Floats:
    outputs, width = mechanism.outputs, mechanism.width
    inside = mechanism.threshold / SCALE
    law = np.full((outputs, mechanism.d + 1), (1 - inside) / (outputs - width))
    for place in range(mechanism.d):
        law[place : place + width, place] = inside / width
    law[:, -1] = 1 / outputs
    return law
