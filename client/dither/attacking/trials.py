"""Trials: what is simulated, and what was measured of it."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from dither.app_process import SYSTEM
from dither.auditing.bounds import least_share, least_share_of_paired, paired_interval, share_interval
from dither.auditing.plans import NOTHING as SILENCE
from dither.auditing.plans import inputs_of
from dither.auditing.spreading import Spread, in_turn
from dither_shared.accounting.odds import sure
from dither_shared.exact import exp_of_micro
from dither_shared.frozen import frozen
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng

ERROR = 1e-6
"""The error of all verdicts together: attacks on sound mechanisms are above a bound in one of 1 / ERROR runs."""
_STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 45, 60, 90, 120, 180, 270, 365, 540, 730)

RANDOMIZER, DEVICE, NOTHING_BETWEEN = "the randomizer alone", "whole devices", "no device"


@frozen
class Trial:
    """The target, and the effort."""

    registry: Registry
    fresh: Metric | None
    """A metric of fresh noise; None where the registry has none."""
    memoized: Metric | None
    days: int
    devices: int
    rng: Rng = SYSTEM
    spread: Spread = in_turn

    def answers(self, metric: Metric) -> tuple[object, object]:
        """Return the two answers that the attacker has to tell apart: they lie as far apart as any."""
        one, other, *_ = (each.value for each in inputs_of(metric) if each.value is not SILENCE)
        return one, other

    def steps(self, metric: Metric) -> list[int]:
        """Return the numbers of periods after which a guess is made: all of the trial's days at last."""
        last = max(1, self.days // metric.period_days)
        return [*(step for step in _STEPS if step < last), last]

    def tally(self, life: Callable[[Rng], Sequence[bool]], each: int) -> list[int]:
        """Return of how many devices each part of `life` is true, which takes as long as `each` usual samples."""

        def work(share: int) -> list[list[bool]]:
            return [list(life(self.rng)) for _ in range(share)]

        rows = [row for share in self.spread(work, self.devices, each) for row in share]
        return [sum(column) for column in zip(*rows, strict=True)]


@frozen
class Score:
    """The number of devices of which something came out after so long, and the most that it may be."""

    x: float
    right: int
    n: int
    bound: float | None = None
    """By the formula, a probability; None where nothing is promised."""
    paired: bool = False
    """Whether devices were paired with each other, so that they are no independent samples."""

    @property
    def share(self) -> float:
        """The share of the devices."""
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of that share, at 95 %."""
        return (paired_interval if self.paired else share_interval)(self.right, self.n)

    def above_its_bound(self, error: float) -> bool:
        """Tell whether the share is proved to be above the bound, at this error."""
        least = least_share_of_paired if self.paired else least_share
        return self.bound is not None and least(self.right, self.n, error) > self.bound


@frozen
class Way:
    """One way of doing it, and its scores over time."""

    name: str
    by: str
    """The code that ran: RANDOMIZER, DEVICE or NOTHING_BETWEEN."""
    points: tuple[Score, ...]
    computed: tuple[tuple[float, float], ...] = ()
    """Scores by an exact law, as far as it is known: x and probability."""

    by_formula: bool = False
    """Whether the bounds of its points are what is `computed`, too."""

    @property
    def last(self) -> Score:
        """The last point."""
        return self.points[-1]


@frozen
class Attack:
    """An attack: what is warned of, what was measured, what dither does about it, and what it does not prevent."""

    name: str
    title: str
    warning: str
    source: str
    measured: str
    answer: str
    left: str
    across: str
    """The words of the axis across."""
    up: str
    """The words of the axis up: what the attacker got right."""
    lines: tuple[Way, ...]
    logarithmic: bool = True
    least: float = 0.4
    """The least share on the axis up."""

    def broken(self, error: float) -> list[Way]:
        """Return the lines that are proved to be above their bound."""
        return [line for line in self.lines if any(point.above_its_bound(error) for point in line.points)]


def most_sure(micro: int) -> float:
    """Return what a guess of 1 : 1 can become at most, of outputs of so many micro-epsilon."""
    return float(sure(exp_of_micro(micro)))


def most_sure_of(exp_epsilon: Fraction) -> float:
    """Return the same, of an exact e^epsilon."""
    return float(sure(exp_epsilon))


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"
