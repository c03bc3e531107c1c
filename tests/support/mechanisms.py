"""Mechanisms for tests: small ones of every design, which enumeration can follow; a spoiled one; what is drawn."""

import random
from decimal import Decimal

from dither_shared.mechanisms import (
    GRR,
    OUE,
    PGR,
    SUE,
    MemoizedTwoLevel,
    MemoizedUnary,
    PrivSet,
    PureMechanism,
    SubsetSelection,
)
from dither_shared.rng import Rng
from tests.support.soaking import thinned


def one_shots(epsilon: Decimal) -> list[PureMechanism]:
    """Small ones: every way through the code, and few enough reports to enumerate."""
    return [
        *(GRR.for_epsilon(d, epsilon) for d in (2, 3, 5)),
        *(SubsetSelection.for_weight(d, w, epsilon) for d, w in ((2, 1), (4, 1), (4, 2), (5, 2), (5, 4), (18, 2))),
        *(PGR.for_design(d, r, t, epsilon) for d, r, t in ((7, 2, 3), (5, 2, 3), (9, 3, 3), (15, 2, 4))),
        *(PrivSet.for_weight(*a, epsilon) for a in ((2, 2, 1), (3, 2, 1), (3, 2, 2), (4, 1, 2), (4, 3, 1), (5, 2, 2))),
        *(kind.for_epsilon(d, epsilon) for kind in (OUE, SUE) for d in (2, 3, 4)),
        *(
            kind.for_epsilon(d, epsilon, ticks)
            for kind in (OUE, SUE)
            for d, ticks in ((2, 2), (3, 2), (4, 2), (4, 3), (4, 4))
        ),
    ]


TwoStages = MemoizedTwoLevel | MemoizedUnary


def memoized(permanent: Decimal, epsilon: Decimal) -> list[TwoStages]:
    return [
        *(
            MemoizedTwoLevel.for_epsilon(one_shot, epsilon)
            for one_shot in (
                GRR.for_epsilon(2, permanent),
                GRR.for_epsilon(4, permanent),
                SubsetSelection.for_weight(4, 2, permanent),
                PGR.for_design(7, 2, 3, permanent),
                PrivSet.for_weight(3, 2, 1, permanent),
                PrivSet.for_weight(4, 2, 2, permanent),
            )
        ),
        *(
            MemoizedUnary.for_epsilon(kind.for_epsilon(d, permanent, ticks), epsilon)
            for kind in (OUE, SUE)
            for d, ticks in ((2, 1), (3, 1), (3, 2))
        ),
    ]


ONE_OF_EACH, ONE_MEMO_OF_EACH = (1, 5, 10, 15, 20, 31), (1, 2, 3, 5, 8, 11)
"""Places in the two lists: at other epsilons the code goes the same ways with other thresholds."""
TWO_STAGES: list[TwoStages] = [
    *memoized(Decimal(2), Decimal(1)),
    *thinned(memoized(Decimal(4), Decimal("0.5")), *ONE_MEMO_OF_EACH),
    *thinned(memoized(Decimal(8), Decimal(7)), *ONE_MEMO_OF_EACH),
]
SMALL: list[PureMechanism] = [
    *one_shots(Decimal(2)),
    *thinned(one_shots(Decimal("0.5")), *ONE_OF_EACH),
    *thinned(one_shots(Decimal(8)), *ONE_OF_EACH),
    *TWO_STAGES,
]


class KeepOrUniform(GRR):
    """A planted bug: the other branch is uniform over all values, the answer included."""

    def randomize(self, answer: int, rng: Rng) -> int:
        keep, other = rng.coin(self.threshold), rng.uniform(self.d)
        return answer if keep else other


class CountingRng(Rng):
    """Notes what is drawn, and answers each kind of question with the next of some given numbers."""

    def __init__(self, seed: int) -> None:
        source = random.Random(seed)
        super().__init__(source.getrandbits)
        object.__setattr__(self, "drawn", [])

    drawn: list[tuple[str, int, int]]

    def coin(self, threshold: int) -> bool:
        self.drawn.append(("coin", threshold, 1))
        return super().coin(threshold)

    def coins(self, threshold: int, count: int) -> int:
        self.drawn.append(("coins", threshold, count))
        return super().coins(threshold, count)

    def uniform(self, size: int) -> int:
        self.drawn.append(("uniform", size, 1))
        return super().uniform(size)
