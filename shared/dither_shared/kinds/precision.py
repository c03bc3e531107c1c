"""How precisely reports of each kind are read, and what made-up reports and the noise of a release do to that.

First how small a share n reports can show and how far made-up ones move an estimate, then shares of listed values and
texts, then words that nobody lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, log, prod, sqrt
from statistics import NormalDist
from typing import Any, Generic, Protocol, TypeVar

from dither_shared.domains import Coded, Domain, TextDomain, Values
from dither_shared.errors import ConfigurationError
from dither_shared.frozen import frozen, replaced
from dither_shared.installed import Installed
from dither_shared.kinds.kind import Asked, Kind
from dither_shared.mechanisms import RAPPOR, Cells, Mechanism, MemoizedTwoLevel, PureMechanism
from dither_shared.words.code import KEPT_MAX, PROPOSED, STANDS_OUT, Layout

# How small a share n reports can show: the noise floor, the critical share and the detectable share.
#
#     noise floor     s0 = sqrt(q (1 - q) / n) / (p - q)      the standard error of a value that nobody has
#     critical        z(1 - alpha / d) s0                     an estimate above it is not noise: with all d values
#                                                             watched, noise passes it once in 1 / alpha times at most
#     detectable      (z(1 - alpha / d) + z(power)) s0        a value with this share passes it with that power
#
# A value whose true share is just critical is seen half of the time. alpha is 5 %, the power 80 %. These are planning
# figures, by the normal law: it holds where a bit or symbol is expected thousands of times, n q; at a hundred times
# noise passes the critical share some times as often. The aggregator computes both from the binomial law.

ALPHA = 0.05
POWER = 0.8

NUMBERS_MIN = 3_000
"""Fewer devices tell nothing of quantiles: the bounds of a shape hold less often than they say."""
MEANS_MIN = 300
"""A mean alone needs fewer: a sum of so many bounded terms is nearly normal."""
QUESTION_MIN = 300
"""The same of one question of a table: shares of its columns, and what goes with what."""

DETECTABLE = "detectable share"
"""The name of what most kinds tell."""

_NORMAL = NormalDist()
SIDES = 2 * _NORMAL.inv_cdf(1 - ALPHA / 2)
"""The width of a 95 % interval, in standard errors."""


@frozen
class Told:
    """The least that so many reports tell: what it is, and its size as a part of 1."""

    what: str
    part: float
    least: float = 0.0
    """The part that no number of reports goes below."""

    def times_as_many(self, part: float) -> float | None:
        """Return how many times as many reports tell a part so small; None where none do."""
        return ((self.part - self.least) / (part - self.least)) ** 2 if part > self.least else None

    def __str__(self) -> str:
        return "nothing" if self.part > 1 else percent(self.part)


def percent(part: float) -> str:
    """Return a part of 1 in percent, with two digits that count."""
    return "100 %" if 0.995 <= part < 1.005 else f"{100 * part:.2g} %" if part < 1 else f"{100 * part:,.0f} %"


class Noisy(Protocol):
    """A mechanism, or a metric, whose estimates of zero have this variance, times n."""

    @property
    def noise_variance(self) -> Fraction:
        """Return it."""


def noise_floor(noisy: Noisy, n: int) -> float:
    """Return the standard error of a share of zero among n >= 1 reports; for texts as if no two had a bit in common."""
    return sqrt(noisy.noise_variance / n)


def critical_share(noisy: Noisy, d: int, n: int) -> float:
    """Return about the least estimate that n >= 1 reports tell from noise, whichever of d values it is of."""
    return -_NORMAL.inv_cdf(ALPHA / d) * noise_floor(noisy, n)


def detectable_share(noisy: Noisy, d: int, n: int) -> float:
    """Return about the true share that n >= 1 reports tell from noise in 80 % of cases."""
    return critical_share(noisy, d, n) + _NORMAL.inv_cdf(POWER) * noise_floor(noisy, n)


# How far made-up reports move an estimate. They look like honest ones, and nothing can tell them apart.
#
# Let an estimate be the mean of w(y) over the reports of some cells, with w fixed beforehand and its mean right for
# every honest answer. Somebody chooses m of n reports. A device names its cell itself, so all m can be among those
# reports, while of the n - m honest ones a share s is expected there:
#
#     part = m / (m + s (n - m))                 the part of the reports that are read which is made up
#     E[estimate] - f = part (w of the chosen reports, on average, - f)
#
# Here f is what the honest answers hold. So the estimate moves by at most
#
#     part (up - f)  upward        part (down + f)  downward        up = max w(y)      down = - min w(y)
#
# Both are reached: send a report of the largest w, or of the least, m times. With f in [0, 1] upward the worst is
# f = 0, and downward f = 1. No mechanism prevents this (Cheu, Smith, Ullman 2021). An estimate that is not linear in
# the counts has no such w. There `known` is false, and m chosen reports move it at least as far: they make the counts
# that as much more, or as much less, of it is expected to make.


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


# How precisely reports of each kind are read, and what made-up reports and the noise of a release do to that.
#
# Planning, releases and audits ask it, and no device: dither-aggregator brings it. A kind of another distribution has a
# class here by an entry point of the group `dither.precisions`, under the kind's name.

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
        each = ((PureMechanism.of(part.mechanism), max(1, n * part.weight // cells.weights)) for part in cells.parts)
        most = max(noise.wider(mechanism, reports) for mechanism, reports in each)
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


# How many devices a word needs, before anything is sent.
#
# A word of share f is named when it stands out in each level that its code reaches, and passes the line of the verdict,
# by the reports of the verification group and of the levels behind the end of its code together. From n reports its
# estimate is about normal, with mean f and the standard error e of a word that nobody has, so it passes a line of t
# standard errors with probability Phi(f / e - t). The lines are
#
#     a level        STANDS_OUT, or where more than KEPT_MAX noisy prefixes pass that, what so many pass
#     the verdict    z(1 - .05 / 100), for two-sided intervals of the 50 texts that a search usually proposes
#
# and each is of different reports, so the probabilities multiply. All of them depend on f / e alone: a word of half the
# share needs four times the devices.

USUAL_BITS = 30
"""The code of a word of seven letters."""
FALSE_WORDS = 0.05
SURE_OF_N = 10
"""As `analysis.released` of an aggregator has it."""
SIGNAL_MAX = 1_000.0
WIDEST = 4
"""Standard deviations by which the report that supports the most texts of a list passes the mean of all."""


@cache
def signal_needed(layout: Layout, bits: int = USUAL_BITS) -> float:
    """Return the share of such a word in standard errors: those that a group of all reports would have."""
    few, many = 0.0, SIGNAL_MAX
    while many - few > few / 10_000:
        signal = (few + many) / 2
        few, many = (few, signal) if _power(signal, layout, bits) >= POWER else (signal, many)
    return many


def told_named(layout: Layout, cells: Cells, n: int) -> Told:
    """Return the share of a word that n >= 1 reports name with probability POWER, about, if its code has USUAL_BITS."""
    every = PureMechanism.of(cells.mechanism_of(0)).noise_variance
    return Told(DETECTABLE, signal_needed(layout) * sqrt(every / n))


def judged_part(layout: Layout, bits: int = USUAL_BITS) -> float:
    """Return the part of the reports that judge such a word when a search has found it: all that tell it whole.

    The level in which its code ends chose it, and is none of these.
    """
    *behind, verification = layout.weights[1:]
    told = (weight for ended, weight in zip(layout.levels, behind, strict=False) if bits <= ended)
    return (verification + sum(told)) / sum(layout.weights)


def verdict_line() -> float:
    """Return the standard errors of the reports that judge a word which it passes."""
    return -NormalDist().inv_cdf(FALSE_WORDS / PROPOSED / 2)


def _power(signal: float, layout: Layout, bits: int) -> float:
    """Return the probability that a word is named whose share is so many standard errors of all reports."""
    normal = NormalDist()
    lines = _lines(layout.levels, bits)
    parts = [weight / sum(layout.weights) for weight in layout.weights[: len(lines)]]
    each = zip([*parts, judged_part(layout, bits)], [*lines, verdict_line()], strict=True)
    return prod(normal.cdf(signal * sqrt(part) - line) for part, line in each)


def _lines(levels: Sequence[int], bits: int) -> list[float]:
    """Return the lines of the levels that a code of so many bits reaches, up to the first at which it has ended."""
    lines = []
    looked_at = 1
    for before, level in zip((0, *levels), levels, strict=False):
        looked_at <<= level - before
        lines.append(max(STANDS_OUT, -NormalDist().inv_cdf(min(KEPT_MAX / looked_at, 0.5))))
        if level >= bits:
            break
        looked_at = KEPT_MAX
    return lines


def searched_from(cells: Cells, noise: CountNoise) -> int:
    """Return from about how many reports on, of all groups together, the search of a release reads every level.

    It reads a row whose noisy number of reports is SURE_OF_N times the error that the noise gives it.
    """
    *levels, _ = cells.parts
    sure = (
        SURE_OF_N * sqrt(part.mechanism.shape.size * noise.variance) * cells.weights / part.weight for part in levels
    )
    return ceil(max(sure))


class WordsPrecision(TextPrecision):
    """Words that are found without a list."""

    def unpublished(self, asked: Asked) -> str:
        """Return "": which words are looked up in a release is found in noisy counts."""
        return ""

    def released_names(self, asked: Asked) -> tuple[str, ...]:
        """Return nothing: each release has names of its own."""
        return ()

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of a text that is looked up, among as many as usual, and of the level with the fewest reports.

        A report of the verification group supports about `width` of the usual texts at most, and noise is for so many
        counts.
        """
        *levels, last = cells.parts
        points = PureMechanism.of(last.mechanism)
        q, told = float(points.q), n * last.cells * last.weight / cells.weights
        width = 1 + PROPOSED * q + WIDEST * sqrt(PROPOSED * q * (1 - q))
        looked_up = sqrt(1 + width**2 * noise.variance * last.cells * (1 + q**2) / (told * q * (1 - q)))
        return looked_up, max(noise.wider(points, max(1, n * part.weight // cells.weights)) for part in levels)

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of the verification group, of a text that nobody has."""
        last = cells.parts[-1]
        return PureMechanism.of(last.mechanism).noise_variance * Fraction(cells.weights, last.cells * last.weight)

    def tells(self, asked: Asked, n: int) -> Told:
        """Return the share of a word of usual length that is named: its levels must propose it first."""
        weights = tuple(part.weight for part in asked.cells.parts)
        return told_named(Layout(Coded.of(asked.domain).levels, weights), asked.cells, n)

    def poisoning(self, domain: TextDomain, cells: Cells) -> tuple[Worth, ...]:
        """Return that of the share of a text that is looked up: in the verification group, from all of its rows.

        With B buckets it is the mean of w = (B (S - q) / (p - q) - 1) / (B - 1). To be named the text must be proposed
        as well, by reports of the levels. One whose code ends early is then judged by later levels, too, among whose
        reports a made-up one weighs less: whoever makes them up takes a text that is longer.
        """
        last = cells.parts[-1]
        share = Fraction(last.cells * last.weight, cells.weights)
        points = PureMechanism.of(last.mechanism)
        p, q, others = points.p, points.q, points.d - 1
        up, down = ((points.d * weight / (p - q) - sign) / others for weight, sign in ((1 - q, 1), (q, -1)))
        return (Worth("a text", up, down, share, stands_out=True),)


# All of them.

PRECISIONS = Installed[type[KindPrecision[Any]]](
    "dither.precisions",
    {
        "flag": FlagPrecision,
        **dict.fromkeys(("choice", "choices"), ListedPrecision),
        "text": TextPrecision,
        "words": WordsPrecision,
        "number": "dither_shared.kinds.number_precision:NumberPrecision",
        "table": "dither_shared.kinds.table_precision:TablePrecision",
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
