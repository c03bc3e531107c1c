"""How precisely reports of each kind are read, and what made-up reports and the noise of a release do to that.

Planning, releases and audits ask it, and no device: dither-aggregator brings it. A kind of another distribution has a
class here by an entry point of the group `dither.precisions`, under the kind's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from math import log, sqrt
from typing import Any, Generic, Protocol, TypeVar

from dither_shared.accounting.poisoning import HONEST, Worth, of_support
from dither_shared.cells import Cells
from dither_shared.domains import Domain, TextDomain, Values
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import replaced
from dither_shared.installed import Installed
from dither_shared.kinds.kind import Asked, Kind
from dither_shared.mechanisms import RAPPOR, Mechanism, MemoizedTwoLevel, PureMechanism
from dither_shared.precision import Told

D = TypeVar("D", bound=Domain)

TAILS = (log(20) / sqrt(2) / 1.959964) ** 2
"""How much more the variance of one Laplace number counts in an interval of 95 % than that of a normal one, which ends
sooner: 1.17."""


class CountNoise(Protocol):
    """The noise that a release adds to each count (`releases.ReleaseNoise`), as far as planning asks."""

    @property
    def variance(self) -> float:
        """The variance on one count."""

    def wider(self, mechanism: PureMechanism, n: int, share: float = 0.0) -> float:
        """Return by what factor it makes the standard error of a value of such a share larger, of n reports."""

    def wider_even(self, counts: int, n: int) -> float:
        """Return the same of n reports that are spread evenly over so many counts."""


def with_tails(wider: float) -> float:
    """Return the factor by which noise makes errors larger whose tails count as well."""
    return sqrt(1 + TAILS * (wider**2 - 1))


class KindPrecision(ABC, Generic[D]):
    """The precision of one kind, whose answers are of a domain D."""

    def __init__(self, kind: Kind[Any, Any]) -> None:
        self._kind = kind

    @abstractmethod
    def noise_variance(self, cells: Cells) -> Fraction:
        """Return the variance of an estimated share of zero, times n, of all cells' reports together."""

    def poisoning(self, domain: D, cells: Cells) -> tuple[Worth, ...]:
        """Return what a made-up report is worth in what is read, the first of these in what is read first."""
        return (HONEST,)

    def std_errors(self, asked: Asked, n: int) -> Mapping[str, float]:
        """Return the standard errors of what n reports tell besides shares, by its name: about, and for planning."""
        return {}

    def tells(self, asked: Asked, n: int) -> Told | None:
        """Return the least that n >= 1 reports tell, by the normal law; None where that is the detectable share."""
        return None

    def unpublished(self, asked: Asked) -> str:
        """Return why its totals are not published, as the end of a sentence about `publish`; "" where they are."""
        return "" if self._kind.published else f'cannot be said of kind "{self._kind.name}" yet'

    def released_names(self, asked: Asked) -> tuple[str, ...]:
        """Return the texts of which a release has the supports; nothing where it has all counts of a tally."""
        return ()

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return by what factor the noise of a release makes standard errors of n reports larger: the least, the most.

        They are for planning. Both are that of a rare value, for shares.
        """
        weights = sum(part.cells * part.weight for part in cells.parts)
        most = max(
            noise.wider(PureMechanism.of(part.mechanism), max(1, n * part.weight // weights)) for part in cells.parts
        )
        return most, most

    def reports_min(self, asked: Asked) -> int:
        """Return how many reports tell anything: of devices that are all different, where these repeat memos."""
        return 1


class ListedPrecision(KindPrecision[Values]):
    """Listed values."""

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of a value which nobody has."""
        return PureMechanism.of(cells.mechanism).noise_variance

    def poisoning(self, domain: Values, cells: Cells) -> tuple[Worth, ...]:
        """Return that of a value's share: whatever the mechanism, some reports support the value and some do not."""
        mechanism = PureMechanism.of(cells.mechanism)
        worth = of_support("a value", mechanism.p, mechanism.q)
        return (replaced(worth, at_once=mechanism.supported[1], stands_out=True),)


class FlagPrecision(ListedPrecision):
    """Yes or no."""

    def poisoning(self, domain: Values, cells: Cells) -> tuple[Worth, ...]:
        """Return that of the share of yes, which is told by itself: nothing stands out beside it."""
        return tuple(replaced(worth, stands_out=False) for worth in super().poisoning(domain, cells))


class TextPrecision(KindPrecision[TextDomain]):
    """Texts among candidates."""

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of a text which nobody has: it is looked for in every row."""
        mechanism = cells.mechanism
        return (mechanism if isinstance(mechanism, RAPPOR) else PureMechanism.of(mechanism)).noise_variance

    def poisoning(self, domain: TextDomain, cells: Cells) -> tuple[Worth, ...]:
        """Return that of a text's share.

        Fresh, it is the mean of w = (S - U) / (p - q) where all rows are read: S is whether a report supports the
        text's bucket, U which part of some buckets it does, by which the mean of all others is taken away. Which ones
        these are depends on the counts, so no more is said of U than that it is from 0 to 1. Memoized, a text is found
        by a regression: the reports that look like most honest ones are told by what randomizes.
        """
        if cells.memoized:
            up, down = memo_of(cells.mechanism).pushes
            return (Worth("a text", up, down, known=False, stands_out=True),)
        points = PureMechanism.of(cells.mechanism)
        most = 1 / (points.p - points.q)
        return (Worth("a text that all rows tell", most, most, stands_out=True),)

    def unpublished(self, asked: Asked) -> str:
        """Refuse texts without a list."""
        if not asked.candidates:
            return "needs candidates: the totals of a text are those of a list that the registry names"
        return ""

    def released_names(self, asked: Asked) -> tuple[str, ...]:
        """Return the registry's candidates, and what is no text."""
        untexts = TextDomain.of(asked.domain).untexts
        return (*(name for name in asked.candidates if name not in untexts), *untexts)

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of a text which nobody has: it is looked for in every row, and n is counted in each as well.

        For a memo it is that of its bucket in one cohort, of reports of different devices: at most, for texts that are
        in the same bucket make its own error larger. `releases.widened` knows of repeats.
        """
        points = PureMechanism.of(cells.mechanism)
        if cells.memoized:
            wider = noise.wider(points, max(1, n // cells.count))
            return wider, wider
        q = float(points.q)
        wider = sqrt(1 + noise.variance * cells.count * (1 + q**2) / (n * q * (1 - q)))
        return wider, wider


def memo_of(mechanism: Mechanism) -> RAPPOR | MemoizedTwoLevel:
    """Return what randomizes a memoized text."""
    return mechanism if isinstance(mechanism, RAPPOR) else MemoizedTwoLevel.of(mechanism)


PRECISIONS = Installed[type[KindPrecision[Any]]](
    "dither.precisions",
    {
        "flag": FlagPrecision,
        **dict.fromkeys(("choice", "choices"), ListedPrecision),
        "text": TextPrecision,
        **{
            name: f"dither_shared.kinds.{name}_precision:{name.capitalize()}Precision"
            for name in ("number", "table", "words")
        },
    },
)
"""By the name of a kind."""


def precision_of(kind: Kind[Any, Any]) -> KindPrecision[Any]:
    """Return the precision of a kind; raise ConfigurationError where no class of it is listed."""
    try:
        precision = PRECISIONS[kind.name]
    except KeyError:
        needed = f"the kind {kind.name} needs a class in dither.precisions: aggregator/README.md"
        raise ConfigurationError(needed) from None
    return precision(kind)
