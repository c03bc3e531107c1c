"""How far made-up reports move an estimate. They look like honest ones, and nothing can tell them apart.

Let an estimate be the mean of w(y) over the reports of some cells, with w fixed beforehand and its mean right for every
honest answer. Somebody chooses m of n reports. A device names its cell itself, so all m can be among those reports,
while of the n - m honest ones a share s is expected there:

    part = m / (m + s (n - m))                 the part of the reports that are read which is made up
    E[estimate] - f = part (w of the chosen reports, on average, - f)

Here f is what the honest answers hold. So the estimate moves by at most

    part (up - f)  upward        part (down + f)  downward        up = max w(y)      down = - min w(y)

Both are reached: send a report of the largest w, or of the least, m times. With f in [0, 1] upward the worst is f = 0,
and downward f = 1. No mechanism prevents this (Cheu, Smith, Ullman 2021). An estimate that is not linear in the counts
has no such w. There `known` is false, and m chosen reports move it at least as far: they make the counts that as much
more, or as much less, of it is expected to make.
"""

from fractions import Fraction
from math import ceil

from dither_shared.frozen import frozen


@frozen
class Worth:
    """How much a chosen report is worth in one estimate, in honest reports."""

    what: str
    """The estimate, in a few words."""
    up: Fraction
    """At most, of a report that raises it."""
    down: Fraction
    """At most, of one that lowers it where nobody has it; where everybody has it, one more."""
    share: Fraction = Fraction(1)
    """The part of the honest reports that it is estimated from, as expected."""
    known: bool = True
    """Whether it moves no farther; else it may."""
    stands_out: bool = False
    """Whether it is told to stand out from noise."""
    at_once: int | None = None
    """How many values one report can raise together; None where that is not of values."""

    def part(self, poisoned: int, n: int) -> Fraction:
        """Return which part of the reports that are read `poisoned` of n >= 1 reports can be."""
        return poisoned / (poisoned + self.share * (n - poisoned))

    def raised(self, poisoned: int, n: int) -> Fraction:
        """Return by how much they raise it where nobody has it, as a share."""
        return self.part(poisoned, n) * self.up

    def lowered(self, poisoned: int, n: int) -> Fraction:
        """Return by how much they lower it where everybody has it."""
        return self.part(poisoned, n) * (self.down + 1)

    def needed(self, share: Fraction, n: int) -> int | None:
        """Return how many of n reports raise it from zero to `share`; None where all of them do not.

        From part(m, n) up >= share.
        """
        part = share / self.up
        return None if part > 1 else ceil(part * self.share * n / (1 - part + part * self.share))


def of_support(what: str, p: Fraction, q: Fraction, share: Fraction = Fraction(1)) -> Worth:
    """Return what a report is worth in (C / n - q) / (p - q), where it may support what is estimated or not.

    w is (1 - q) / (p - q) if it does, - q / (p - q) if it does not.
    """
    return Worth(what, (1 - q) / (p - q), q / (p - q), share)


HONEST = Worth("an answer", Fraction(1), Fraction(0), known=False)
"""Devices that randomize as they should, and lie: this much is true of whatever is read of any reports."""
