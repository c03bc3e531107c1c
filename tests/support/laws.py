"""The exact law of a randomizer: its own code, run once for every sequence of decisions it can make."""

from collections import defaultdict
from fractions import Fraction

from dither_shared.mechanisms import PureMechanism
from dither_shared.rng import COIN_BITS, Rng


class BranchingRng(Rng):
    """Follows a list of decisions, then takes the first branch of each new one, noting every branch's probability."""

    def __init__(self, decisions: list[int]) -> None:
        super().__init__(randbits=self._never)
        object.__setattr__(self, "decisions", decisions)
        object.__setattr__(self, "taken", [])

    decisions: list[int]
    taken: list[tuple[int, list[Fraction]]]

    @staticmethod
    def _never(bits: int) -> int:
        raise AssertionError("a mechanism draws coins and uniform choices, never bits")

    def _decide(self, branches: list[Fraction]) -> int:
        place = len(self.taken)
        choice = self.decisions[place] if place < len(self.decisions) else 0
        self.taken.append((choice, branches))
        return choice

    def coin(self, threshold: int) -> bool:
        p = Fraction(threshold, 1 << COIN_BITS)
        return bool(self._decide([1 - p, p]))

    def coins(self, threshold: int, count: int) -> int:
        return sum(self.coin(threshold) << place for place in range(count))

    def uniform(self, size: int) -> int:
        return self._decide([Fraction(1, size)] * size)


def law(mechanism: PureMechanism, value: int) -> dict[int, Fraction]:
    """Return the probability of each report for the answer `value`, exactly."""
    probabilities: dict[int, Fraction] = defaultdict(Fraction)
    pending: list[list[int]] = [[]]
    while pending:
        decisions = pending.pop()
        rng = BranchingRng(decisions)
        report = mechanism.randomize(value, rng)
        probability = Fraction(1)
        for choice, branches in rng.taken:
            probability *= branches[choice]
        probabilities[report] += probability
        for place in range(len(decisions), len(rng.taken)):
            prefix = [choice for choice, _ in rng.taken[:place]]
            pending += [[*prefix, other] for other in range(1, len(rng.taken[place][1]))]
    return dict(probabilities)
