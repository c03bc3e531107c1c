"""A metric's request to the mechanisms, and the limits that every design keeps."""

from decimal import Decimal

from dither_shared.frozen import frozen

REPORT_BITS_MAX = 4_096
"""Longer reports are refused: they cost more to send and store than they are worth."""
OUTPUTS_MAX = 1 << 21
"""Reports of a symbol each: a tally has an entry for every one, 16 MiB of them. A memo needs no more."""


@frozen
class MechanismRequest:
    """The answers that a metric wants a mechanism for, and their privacy. Each mechanism offers its designs for it."""

    d: int
    epsilon: Decimal
    """The privacy loss of one report."""
    several: bool
    """Whether an answer may hold several of the d values, or holds exactly one."""
    ticks: int
    """The most values that one answer holds: 1 unless it may hold several."""
    permanent: Decimal | None
    """The privacy loss of one memoized answer, None for fresh noise each time."""
    named: bool
    """Whether the metric names the mechanism, which then offers even designs that never win the choice."""
