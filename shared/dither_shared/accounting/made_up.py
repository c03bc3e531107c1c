"""How far made-up reports can move an estimate. They look like honest ones, and nothing can tell them apart."""

from fractions import Fraction

from dither_shared.cells import Cells


def moved(cells: Cells, made_up: int, n: int) -> Fraction | None:
    """Return the most by which `made_up` of n >= 1 reports move the expected estimate of one value, as a share.

    Compared with the share among the n - made_up honest answers, and either way: m/n times `made_up_weight`, which has
    the proof. It is of the raw estimate of a pure mechanism; None for others. One chosen report may move several values
    at once: in a unary code all of them, each up or down.
    """
    weight = None if cells.several else cells.mechanism.made_up_weight
    return None if weight is None else Fraction(made_up, n) * weight
