"""The exact privacy loss of a claim: the laws of its inputs, one against another."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import permutations

from dither.auditing.claims import Claim, Input
from dither.auditing.exact import Paths, TooMany
from dither.auditing.laws import Law, Outcome, TableLaw
from dither.auditing.symbolic_rng import Undecidable
from dither_shared.frozen import frozen

PAIRED = 24
"""Inputs that are held against each other one by one, where there is a choice: the first ones."""


@frozen
class Exactly:
    """The verdict of the laws of some inputs."""

    ratio: Fraction | None
    """The largest ratio of an outcome's probabilities; None where it is infinite."""
    pairs: tuple[tuple[Input, Input], ...]
    """Ordered pairs of inputs to choose an event from, all with that ratio."""
    laws: Mapping[str, Law]


def exactly(claim: Claim, paths: Paths | None = None) -> Exactly | str:
    """Return what the laws of as many inputs as the paths suffice for say, of two or more; or why there is none.

    Inputs with the same law as one before add nothing, and are counted all the same.
    """
    if claim.law is None:
        return claim.no_law
    paths = paths or Paths()
    laws: dict[str, Law] = {}
    inputs: list[Input] = []
    for each in claim.inputs:
        try:
            laws[each.label] = claim.law(each.value, paths)
        except (TooMany, Undecidable) as error:
            if len(laws) < 2:
                return str(error)
            break
        inputs.append(each)
    tables = [law for law in laws.values() if isinstance(law, TableLaw)]
    if len(tables) == len(laws) > PAIRED:
        return _by_outcome(inputs, laws)
    return _by_pair(inputs[:PAIRED], laws)


def _by_pair(inputs: Sequence[Input], laws: Mapping[str, Law]) -> Exactly:
    ratios: dict[tuple[int, int], Fraction | None] = {}  # by identity: answers that are read alike share their law

    def ratio(law: Law, other: Law) -> Fraction | None:
        pair = id(law), id(other)
        if pair not in ratios:
            ratios[pair] = law.ratio(other)
        return ratios[pair]

    found = [((one, other), ratio(laws[one.label], laws[other.label])) for one, other in permutations(inputs, 2)]
    finite = [ratio for _, ratio in found if ratio is not None]
    worst = max(finite) if len(finite) == len(found) else None
    return Exactly(worst, tuple(pair for pair, ratio in found if ratio == worst), laws)


def _by_outcome(inputs: Sequence[Input], laws: Mapping[str, Law]) -> Exactly:
    """Compare the greatest and the least probability of each outcome: many inputs make very many pairs."""
    tables = [(each, law.probabilities) for each in inputs if isinstance(law := laws[each.label], TableLaw)]
    outcomes: dict[Outcome, None] = {outcome: None for _, table in tables for outcome in table}
    worst, pair = Fraction(1), (inputs[0], inputs[1])
    for outcome in outcomes:
        least = min(tables, key=lambda each: each[1].get(outcome, 0))
        most = max(tables, key=lambda each: each[1].get(outcome, 0))
        if outcome not in least[1]:
            return Exactly(None, ((most[0], least[0]),), laws)
        if (ratio := most[1][outcome] / least[1][outcome]) > worst:
            worst, pair = ratio, (most[0], least[0])
    near = _by_pair(inputs[:PAIRED], laws)
    return Exactly(worst, near.pairs if near.ratio == worst else (pair,), laws)
