"""Decoding RAPPOR: how many of the reports hold each candidate string, with intervals that hold.

A report of cohort c whose string sets bit b has that bit with probability q*, another one with p*. Debiased,

    y[c, b] = (tally[c, 1 + b] / N_c - p*) / (q* - p*)

is, up to noise, the share of the cohort's reports whose string sets bit b: the sum of the shares f_v of the strings v
that do. That makes m k linear equations for the candidates' shares. Strings that are not in the list are one more
column, the same in every row: a string sets a bit with probability 1 - (1 - 1/k)^h. Without it the candidates would
swallow what the list misses, and their intervals would be wrong.

Estimates are those of weighted least squares, unconstrained, hence unbiased over the hash. Weights are 1 / variance,
r (1 - r) / (N_c (q* - p*)^2) with r the bit's rate, by a first fit: the error is that of the share in the population
of which the reports are a random sample, and a little more than that of the share among the reports. What the model
does not explain, such as frequent strings that the list misses, shows in the residuals: every standard error is
multiplied by sqrt(max(1, chi-square / degrees of freedom)), taken within cohorts. Intervals hold on average over the
hash, too: what a missing string adds to a candidate's bits is the same in each decoding with the same cohorts.

With more candidates than equations can bear, the cohorts are split. One half picks candidates, the other half fits
them, and one by one each of the others added to them; then the halves change roles and the two answers are averaged.
What is picked has not seen what is fitted, so picking the largest biases nothing.

`proportion` is another column, for looking at: only of candidates that somebody seems to have, none below zero. It is
biased; verdicts and intervals are made of the others.

Erlingsson, Pihur, Korolova 2014 (the mechanism, and least squares after selection); Benjamini, Hochberg 1995; Holm
1979. Sample splitting: Wasserman, Roeder 2009. The prior of `proportion`: Kiefer, Wolfowitz 1956; Jiang, Zhang 2009.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.optimize import nnls
from scipy.sparse import csr_array, vstack
from scipy.sparse.linalg import lsqr
from scipy.special import chdtrc, ndtr, ndtri

from dither_aggregator.estimate import Floats, Z
from dither_aggregator.fold import Counts
from dither_shared.errors import InvalidParameter

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ALPHA = 0.05
BEARABLE = 0.8
"""The most candidates that are fitted at once, as a share of the equations."""
PICKED_MAX = 500
"""The most candidates that are picked from a long list, and that have a proportion."""
PICK_SCORE = 3.0
"""How many standard errors a candidate of a long list must stand out to be picked."""
GRID, ITERATIONS = 60, 200
"""Of the prior of `proportion`."""
MISFIT = 1e-3
"""A chi-square so improbable is said to be a misfit."""
FEW = 0.1
"""When only a string with a larger share than this can be told from noise, reports are said to be few."""
FIRST_FIT_STEPS = 100
"""Of the fit that weights are made of: it need not be exact."""
_TINY = 1e-9
_BLOCK = 512


@dataclass(frozen=True)
class Channel:
    """What happens to a string's bits on the way: k bits, h hashes, m cohorts, two stages of noise."""

    k: int
    h: int
    m: int
    p_star: float
    """P[a bit is sent as 1 | the Bloom filter has 0], after both stages."""
    q_star: float
    """P[a bit is sent as 1 | the Bloom filter has 1]."""

    def __post_init__(self) -> None:
        if min(self.k, self.h, self.m) < 1:
            raise InvalidParameter(f"k, h and m must be at least 1, got {self.k}, {self.h} and {self.m}")
        if not (0 <= self.p_star <= 1 and 0 <= self.q_star <= 1):
            raise InvalidParameter(f"p* and q* must lie in [0, 1], got {self.p_star} and {self.q_star}")
        if abs(self.q_star - self.p_star) < _TINY:
            raise InvalidParameter(f"p* and q* must differ, or reports say nothing, got {self.p_star} for both")

    @property
    def unlisted(self) -> float:
        """The probability that a string nobody listed sets a given bit."""
        return float(1 - (1 - 1 / self.k) ** self.h)


@dataclass(frozen=True)
class Row:
    """One candidate. Shares are of all n reports; `estimate` and its interval are raw, so they may leave [0, 1]."""

    value: str
    estimate: float
    std_error: float
    """How far the estimate may lie from the share in the population that the reports are a random sample of."""
    lower: float
    upper: float
    proportion: float
    """The selected, constrained share: never below zero, zero when not selected. Biased, and no verdict."""
    significant: bool
    """Whether anybody has the string: of all that are called significant at most 5 % are false, on average."""
    significant_holm: bool
    """The same, stricter: not one false one among all candidates, with 95 %."""
    group: str
    """Empty, or the first of several candidates that set equal bits: the row is then of all of them together."""


@dataclass(frozen=True)
class Decoded:
    """A row for each candidate, in the given order, and what holds for the list as a whole."""

    rows: tuple[Row, ...]
    n: int
    unexplained: float
    """The share of reports whose string is not in the list: raw, with the ends of its 95 % interval."""
    unexplained_lower: float
    unexplained_upper: float
    chi_square: float
    degrees_of_freedom: int
    seconds: float
    sentences: tuple[str, ...]

    def to_document(self) -> dict[str, object]:
        """Return rows and summary, ready for JSON: every number is finite."""
        summary = {name: value for name, value in vars(self).items() if name not in ("rows", "sentences")}
        return {"rows": [{**vars(row)} for row in self.rows], "summary": {**summary, "sentences": list(self.sentences)}}


def decode(tally: Counts, candidates: Sequence[str], bits: Ints, channel: Channel) -> Decoded:
    """Estimate the share of each candidate.

    `tally` is int64[m, k + 1]: of each cohort the number of reports, then the count of each bit. `bits` is
    int64[S, m, h]: the bit that each hash of each candidate sets in each cohort; one that is set twice counts once.
    Deterministic, but for `seconds`. Raises InvalidParameter when shapes or counts cannot be. Not promised: a verdict
    on strings that are not in the list, beyond how much they hold together.
    """
    started = time.perf_counter()
    _check(tally, candidates, bits, channel)
    reported = tally[:, 0] > 0
    patterns, group_of = _merge(bits[:, reported] if reported.any() else bits)
    if reported.any():
        equations = _equations(tally[reported], patterns, channel)
        if equations.few:
            equations = _reweighted(equations, np.arange(len(patterns)))
        found = _infer_whole(equations) if equations.few else _infer_split(equations)
        proportion = _selected(equations, found)
    else:
        found, proportion = _know_nothing(len(patterns)), np.zeros(len(patterns))
    lower, upper = found.unlisted_interval
    return Decoded(
        rows=_rows(candidates, group_of, found, proportion),
        n=int(tally[:, 0].sum()),
        unexplained=found.unlisted,
        unexplained_lower=lower,
        unexplained_upper=upper,
        chi_square=found.chi_square,
        degrees_of_freedom=found.degrees_of_freedom,
        sentences=tuple(_sentences(tally, candidates, group_of, found)),
        seconds=time.perf_counter() - started,
    )


def _check(tally: Counts, candidates: Sequence[str], bits: Ints, channel: Channel) -> None:
    k, h, m = channel.k, channel.h, channel.m
    if tally.shape != (m, k + 1):
        raise InvalidParameter(f"the tally must have {m} rows of {k + 1} counts, got the shape {tally.shape}")
    if not len(candidates):
        raise InvalidParameter("at least one candidate is needed, got none")
    if bits.shape != (len(candidates), m, h):
        raise InvalidParameter(f"bits must have the shape {(len(candidates), m, h)}, got {bits.shape}")
    if tally.dtype.kind not in "iu" or bits.dtype.kind not in "iu":
        raise InvalidParameter(f"counts and bits must be whole numbers, got {tally.dtype} and {bits.dtype}")
    for cohort in np.flatnonzero((tally.min(axis=1) < 0) | (tally.max(axis=1) > tally[:, 0]))[:1]:
        raise InvalidParameter(f"counts must lie between 0 and the cohort's reports, got otherwise in cohort {cohort}")
    if bits.min() < 0 or bits.max() >= k:
        raise InvalidParameter(f"bits must lie in 0..{k - 1}, got {bits.min()}..{bits.max()}")


# The equations.


@dataclass(frozen=True)
class _Equations:
    """One equation for each bit of each cohort that has reports: R of them, for G distinct candidates."""

    patterns: csr_array
    """float64[G, R]: 1 where a candidate sets the bit."""
    share: Floats
    """float64[R]: the debiased share of reports whose string sets the bit."""
    weight: Floats
    """float64[R]: 1 / variance of it."""
    cohort: Ints
    """int64[R]: to tell the halves apart; cohorts without reports are not counted."""
    reports: Ints
    """int64[R]: the cohort's reports."""
    unlisted: float
    common: float
    """What the h bits of a string share of the sampling variance, (1 - 1 / h) / n."""
    channel: Channel

    @property
    def few(self) -> bool:
        """Whether the candidates are few enough to be fitted all at once."""
        return bool(self.patterns.shape[0] < BEARABLE * len(self.share))

    def of(self, rows: Mask) -> "_Equations":
        """Return some of the equations."""
        columns = np.flatnonzero(rows)
        parts = (self.share[rows], self.weight[rows], self.cohort[rows], self.reports[rows])
        return _Equations(csr_array(self.patterns[:, columns]), *parts, self.unlisted, self.common, self.channel)


def _merge(bits: Ints) -> tuple[Ints, Ints]:
    """Return the distinct patterns, int64[G, m, h] with -1 for repeated bits, and each candidate's place among them."""
    ordered = np.sort(bits, axis=2)
    ordered[:, :, 1:][ordered[:, :, 1:] == ordered[:, :, :-1]] = -1
    ordered = np.sort(ordered, axis=2)
    places: dict[bytes, int] = {}
    group_of = np.array([places.setdefault(pattern.tobytes(), len(places)) for pattern in ordered], dtype=np.int64)
    _, first = np.unique(group_of, return_index=True)
    return ordered[first], group_of


def _equations(tally: Counts, patterns: Ints, channel: Channel) -> _Equations:
    p, q = channel.p_star, channel.q_star
    n, counts = tally[:, :1], tally[:, 1:]
    mean = np.full(counts.shape, counts.sum() / (n.sum() * channel.k))
    return _Equations(
        patterns=_as_sparse(patterns, channel.k),
        share=((counts / n - p) / (q - p)).ravel(),
        weight=_weights(mean, n, channel).ravel(),
        cohort=np.repeat(np.arange(len(n)), channel.k),
        reports=np.repeat(n.ravel(), channel.k),
        unlisted=channel.unlisted,
        common=float((1 - 1 / channel.h) / n.sum()),
        channel=channel,
    )


def _weights(rate: Floats, n: Ints, channel: Channel) -> Floats:
    """Return 1 / variance of debiased shares whose bits are sent at these rates."""
    p, q = channel.p_star, channel.q_star
    # They lie between p* and q*; half a count keeps the variance above zero where those are 0 and 1.
    edge = 0.5 / (n + 1)
    rate = np.clip(rate, np.maximum(min(p, q), edge), np.minimum(max(p, q), 1 - edge))
    weights: Floats = n * (q - p) ** 2 / (rate * (1 - rate))
    return weights


def _reweighted(equations: _Equations, chosen: Ints) -> _Equations:
    """Return the equations with the weights of the rates that a first fit of some candidates finds.

    Weights made of the counts themselves would favour the bits that came out low by chance: with few reports in a
    cohort every estimate would be too small, and the unlisted one far below zero.
    """
    root = np.sqrt(equations.weight)
    columns = vstack([equations.patterns[chosen], csr_array(np.full((1, len(root)), equations.unlisted))]).multiply(
        root
    )
    coefficients = lsqr(columns.T, root * equations.share, iter_lim=FIRST_FIT_STEPS)[0]
    fitted = equations.patterns[chosen].T @ coefficients[:-1] + equations.unlisted * coefficients[-1]
    p, q = equations.channel.p_star, equations.channel.q_star
    return replace(equations, weight=_weights(p + (q - p) * fitted, equations.reports, equations.channel))


def _as_sparse(patterns: Ints, k: int) -> csr_array:
    columns = (np.arange(patterns.shape[1]) * k)[:, np.newaxis] + patterns
    present = patterns >= 0
    ends = np.concatenate([[0], np.cumsum(present.sum(axis=(1, 2)))])
    shape = (len(patterns), patterns.shape[1] * k)
    return csr_array((np.ones(ends[-1]), columns[present], ends), shape=shape)


# Least squares.


@dataclass(frozen=True)
class _Fit:
    """Weighted least squares of the share on some candidates and, last, the column of unlisted strings."""

    chosen: Ints
    coefficients: Floats
    root: Floats
    """root' root is the coefficients' covariance, before it is scaled."""
    determined: Mask
    """False for a coefficient that the equations say nothing about."""
    residual: Floats
    chi_square: float
    degrees_of_freedom: int
    scale: float
    """By how much standard errors are larger than the noise alone would make them."""

    @property
    def variances(self) -> Floats:
        """The coefficients' variances, before they are scaled."""
        variances: Floats = (self.root**2).sum(axis=0)
        return variances

    @property
    def scores(self) -> Floats:
        """How many standard errors each chosen candidate lies above zero."""
        scores = self.coefficients[:-1] / (self.scale * np.sqrt(np.maximum(self.variances[:-1], _TINY**2)))
        return np.where(self.determined[:-1], scores, 0.0)


def _fit(equations: _Equations, chosen: Ints) -> _Fit:
    weight, unlisted = equations.weight, equations.unlisted
    patterns = csr_array(equations.patterns[chosen])
    weighted_share = weight * equations.share
    right = np.append(patterns @ weighted_share, unlisted * weighted_share.sum())
    root, determined, rank = _root_of_inverse(_gram(patterns, weight, unlisted))
    coefficients = root.T @ (root @ right)
    residual = equations.share - patterns.T @ coefficients[:-1] - unlisted * coefficients[-1]
    chi_square, freedom = float((weight * residual**2).sum()), len(weight) - rank
    scale = _scale(equations, residual, rank) if freedom > 0 else 1.0
    return _Fit(chosen, coefficients, root, determined, residual, chi_square, freedom, scale)


def _scale(equations: _Equations, residual: Floats, rank: int) -> float:
    """Return the root of the residual chi-square by its degrees of freedom, of differences within cohorts; at least 1.

    A string sets about h bits in every cohort. What unlisted strings add to one bit they take from the others, so
    residuals differ more within a cohort than their sizes say, by k / (k - 1) in variance, and such differences are
    what candidates are estimated from. The cohorts' sums are left out, and with them all degrees of freedom of theirs
    but one, which is the unlisted column's.
    """
    weight, cohort = equations.weight, equations.cohort
    sums = np.bincount(cohort, weight)
    totals = np.bincount(cohort, weight * residual) / np.where(sums > 0, sums, 1.0)
    freedom = len(weight) - rank - (np.count_nonzero(sums) - 1)
    return sqrt(max(1.0, float((weight * (residual - totals[cohort]) ** 2).sum()) / freedom)) if freedom > 0 else 1.0


def _gram(patterns: csr_array, weight: Floats, unlisted: float) -> Floats:
    """Return Z' W Z, with Z the candidates' columns and the unlisted one: float64[G + 1, G + 1]."""
    size = patterns.shape[0]
    gram = np.empty((size + 1, size + 1))
    transposed = csr_array(patterns.T)
    # By blocks: a sparse product of them all would take three times the memory of the result.
    for start in range(0, size, _BLOCK):
        block = csr_array(patterns[start : start + _BLOCK]) * weight
        gram[start : start + block.shape[0], :size] = (block @ transposed).toarray()
    gram[:size, size] = gram[size, :size] = unlisted * (patterns @ weight)
    gram[size, size] = unlisted**2 * weight.sum()
    return gram


def _root_of_inverse(gram: Floats) -> tuple[Floats, Mask, int]:
    """Return a root of the inverse of a Gram matrix, which of its coefficients are determined, and its rank.

    When columns depend on each other it is of the pseudo-inverse, and a coefficient is determined when its unit vector
    lies in the space that the columns span. A root is all that is needed: the whole inverse starts threads, for which a
    busy machine makes it wait a thousand times as long as it computes.
    """
    size = len(gram)
    scale = 1 / np.sqrt(np.maximum(np.diag(gram), _TINY**2))
    correlation = gram * scale * scale[:, np.newaxis]
    factor, failed = lapack.dpotrf(correlation, lower=1)
    if not failed and np.diag(factor).min() > 1e-5:
        root, _ = lapack.dtrtri(factor, lower=1)
        return root * scale, np.ones(size, dtype=np.bool_), size
    values, vectors = np.linalg.eigh(correlation)
    kept = values > _TINY * values.max()
    spanned = vectors[:, kept]
    determined = (spanned**2).sum(axis=1) > 1 - 1e-6
    return (spanned / np.sqrt(values[kept])).T * scale, determined, int(kept.sum())


@dataclass(frozen=True)
class _Added:
    """What each candidate's coefficient would be in a fit with it added, all by one bordered inverse: arrays of G.

    With r the residual of the fit on Z, and x the candidate's column less its projection on Z,

        f = x' W r / x' W x          variance 1 / x' W x          the unlisted one falls by f (Z' W Z)^-1 Z' W column
    """

    estimate: Floats
    variance: Floats
    determined: Mask
    moved: Floats
    """By how much the unlisted coefficient falls for each unit of the estimate."""
    projection: Floats
    """float64[G, chosen + 1]: the coefficients of the candidate's column on Z."""


def _add_each(equations: _Equations, fit: _Fit) -> _Added:
    patterns, weight = equations.patterns, equations.weight
    chosen = csr_array(patterns[fit.chosen])
    norm = patterns @ weight
    inner = np.empty((patterns.shape[0], len(fit.chosen) + 1))
    inner[:, :-1] = patterns @ (chosen * weight).T.toarray()
    inner[:, -1] = equations.unlisted * norm
    along = inner @ fit.root.T
    projection: Floats = along @ fit.root
    left = norm - (along**2).sum(axis=1)
    determined = left > 1e-6 * norm
    determined[fit.chosen] = False
    pivot = np.where(determined, left, 1.0)
    estimate = np.where(determined, (patterns @ (weight * fit.residual)) / pivot, 0.0)
    return _Added(estimate, 1 / pivot, determined, projection[:, -1], projection)


# Inference.


@dataclass(frozen=True)
class _Found:
    """Estimates of the G distinct candidates and of what is in none of them, with standard errors."""

    estimate: Floats
    std_error: Floats
    determined: Mask
    unlisted: float
    unlisted_error: float
    chi_square: float
    degrees_of_freedom: int
    split: bool = False

    @property
    def unlisted_interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of what is in none of the candidates."""
        return self.unlisted - Z * self.unlisted_error, self.unlisted + Z * self.unlisted_error


def _know_nothing(candidates: int) -> _Found:
    unknown = np.zeros(candidates + 1)
    return _settle(unknown, unknown, unknown > 0, 0.0, 0, common=0.0)


def _infer_whole(equations: _Equations) -> _Found:
    """Fit all candidates at once."""
    fit = _fit(equations, np.arange(equations.patterns.shape[0]))
    variance = fit.scale**2 * fit.variances
    return _settle(
        fit.coefficients, variance, fit.determined, fit.chi_square, fit.degrees_of_freedom, common=equations.common
    )


def _settle(
    coefficients: Floats,
    variance: Floats,
    determined: Mask,
    chi_square: float,
    freedom: int,
    *,
    common: float,
    split: bool = False,
) -> _Found:
    """Complete the variances, and call an estimate nothing, 0 with a standard error of 1, where that is what is known.

    How many of a cohort's reports hold a string is by chance, f (1 - f) / N, and all h bits of it share that chance:
    equations that are taken as independent average it out over h bits, so the rest of it is added.
    """
    share = np.clip(coefficients, 0.0, 1.0)
    error = np.sqrt(np.maximum(variance, 0.0) + common * share * (1 - share))
    known = determined & (error < 1)
    estimate, error = np.where(known, coefficients, 0.0), np.where(known, error, 1.0)
    unlisted = float(estimate[-1]), float(error[-1])
    return _Found(estimate[:-1], error[:-1], known[:-1], *unlisted, chi_square, freedom, split)


def _infer_split(equations: _Equations) -> _Found:
    """Fit on each half of the cohorts what the other half has picked, and average by reports."""
    odd = equations.cohort % 2 == 1
    halves = [(odd, ~odd), (~odd, odd)] if odd.any() else [(odd, ~odd)]
    total, variance, share = np.zeros((3, equations.patterns.shape[0] + 1))
    chi_square, freedom = 0.0, 0
    for picking, fitting in halves:
        half = equations.of(fitting)
        picked = _pick(equations.of(picking)) if picking.any() else np.arange(0)
        half = _reweighted(half, picked)
        fit = _fit(half, picked)
        coefficients, variances, determined = _estimate_all(half, fit)
        # A candidate that one half cannot tell has the other half's answer alone.
        part = np.where(determined, float(half.reports.sum()), 0.0)
        total, share = total + part * coefficients, share + part
        variance = variance + part**2 * variances
        chi_square, freedom = chi_square + fit.chi_square, freedom + fit.degrees_of_freedom
    known = share > 0
    share = np.where(known, share, 1.0)
    return _settle(total / share, variance / share**2, known, chi_square, freedom, common=equations.common, split=True)


def _estimate_all(equations: _Equations, fit: _Fit) -> tuple[Floats, Floats, Mask]:
    """Return coefficient, variance and whether it is determined: of all candidates and, last, of unlisted strings.

    A candidate outside the fit has those of the fit with it added. The unlisted coefficient of the fit holds, beside
    what the list misses, the candidates outside the fit; what those are estimated to have is taken off it.
    """
    added, scale2 = _add_each(equations, fit), fit.scale**2
    estimate, variance, determined = added.estimate.copy(), added.variance.copy(), added.determined.copy()
    estimate[fit.chosen] = fit.coefficients[:-1]
    variance[fit.chosen] = fit.variances[:-1]
    determined[fit.chosen] = fit.determined[:-1]
    share = np.where(added.determined, added.moved * added.variance, 0.0)
    along = share @ added.projection
    column = equations.patterns.T @ share - along[-1] * equations.unlisted
    column -= csr_array(equations.patterns[fit.chosen]).T @ along[:-1]
    unlisted = fit.coefficients[-1] - (column * equations.weight) @ fit.residual
    unlisted_variance = fit.variances[-1] + (equations.weight * column**2).sum()
    return (
        np.append(estimate, unlisted),
        scale2 * np.append(variance, unlisted_variance),
        np.append(determined, fit.determined[-1]),
    )


def _pick(equations: _Equations) -> Ints:
    """Return the candidates that stand out of the residual of those picked before, round by round.

    Their variance is taken as if only the unlisted column were in the fit: near enough for picking, and much faster.
    """
    weight, weights = equations.weight, equations.weight.sum()
    norm = equations.patterns @ weight
    left = norm * (1 - norm / weights)
    spread = np.sqrt(np.where(left > 1e-6 * norm, left, np.inf))
    limit = min(PICKED_MAX, len(weight) // 4)
    picked: Ints = np.arange(0)
    while True:
        fit = _fit(equations, picked)
        scores = (equations.patterns @ (weight * fit.residual)) / (spread * fit.scale)
        scores[picked] = 0.0
        # At most as many as there are: the next round sees what these leave.
        room = min(limit - len(picked), max(5, len(picked)))
        best = np.argsort(-scores, kind="stable")[: max(room, 0)]
        new = best[scores[best] > PICK_SCORE]
        if not len(new):
            return picked[fit.scores > PICK_SCORE - 1]
        picked = np.sort(np.concatenate([picked, new]))


# The column for looking at.


def _selected(equations: _Equations, found: _Found) -> Floats:
    """Return the shares of the candidates that anybody seems to have, float64[G]: none below zero, at most 1 in all.

    Half way between two answers, of which each is better somewhere. One takes candidates alone: the median of what a
    candidate's share may be, given its estimate and how the shares of all of them are spread. Where that is zero the
    candidate is not selected. The other fits the selected ones together, with the unlisted column and none below zero.
    Where one of them is far off the other pulls it back: over the benchmark's cases neither alone does as well.
    """
    estimate, error, determined = found.estimate, found.std_error, found.determined
    if found.split:  # For looking at, both halves may be used twice.
        fit = _fit(equations, _pick(equations))
        coefficients, variances, known = _estimate_all(equations, fit)
        estimate, error, determined = coefficients[:-1], np.sqrt(np.maximum(variances[:-1], _TINY**2)), known[:-1]
    alone = np.zeros(len(estimate))
    usable = determined & (error < 1)
    if usable.any():
        alone[usable] = _medians(estimate[usable], error[usable])
    order = np.argsort(-estimate / error, kind="stable")[: min(PICKED_MAX, len(equations.share) // 2)]
    selected = np.sort(order[alone[order] > 0])
    kept = np.zeros(len(estimate))
    kept[selected] = alone[selected]
    return (_at_most_one(kept) + _at_most_one(_constrained(equations, selected))) / 2


def _medians(estimate: Floats, error: Floats) -> Floats:
    """Return for each of G estimates the median of its share's posterior, under the prior that explains them all best.

    The prior lies on zero, on a grid and on the largest estimates, so that none of those is moved to its neighbour on
    the grid. It is the one that makes the estimates likeliest, found by expectation maximisation.
    """
    typical = float(np.median(error))
    grid = np.geomspace(typical / 5, max(float(estimate.max()), typical), GRID)
    grid = np.unique(np.concatenate([[0.0], grid, np.maximum(np.sort(estimate)[-GRID:], 0.0)]))
    fit = -(((estimate[:, np.newaxis] - grid) / error[:, np.newaxis]) ** 2) / 2
    likelihood = np.exp(fit - fit.max(axis=1, keepdims=True))
    prior = np.append(0.5, np.full(len(grid) - 1, 0.5 / (len(grid) - 1)))
    for _ in range(ITERATIONS):
        prior *= (1 / (likelihood @ prior)) @ likelihood / len(estimate)
    below = np.cumsum(likelihood * prior, axis=1)
    medians: Floats = grid[(below < below[:, -1:] / 2).sum(axis=1)]
    return medians


def _constrained(equations: _Equations, chosen: Ints) -> Floats:
    """Fit the chosen candidates and the unlisted column, with nothing below zero: float64[G], zero for the others."""
    shares = np.zeros(equations.patterns.shape[0])
    gram = _gram(csr_array(equations.patterns[chosen]), equations.weight, equations.unlisted)
    # A triangle in place of all rows: the same minimum, in far less time. The ridge is for columns that depend.
    triangle = np.linalg.cholesky(gram + _TINY * gram.max() * np.eye(len(gram))).T
    shares[chosen] = nnls(triangle, triangle @ _fit(equations, chosen).coefficients)[0][:-1]
    return shares


def _at_most_one(shares: Floats) -> Floats:
    return shares / max(1.0, float(shares.sum()))


# What people read.


def _rows(candidates: Sequence[str], group_of: Ints, found: _Found, proportion: Floats) -> tuple[Row, ...]:
    p_values = ndtr(-found.estimate / found.std_error)
    reported = _benjamini_hochberg(p_values), _holm(p_values)
    sizes = np.bincount(group_of)
    _, first = np.unique(group_of, return_index=True)
    rows = []
    for value, group in zip(candidates, group_of.tolist(), strict=True):
        estimate, error = float(found.estimate[group]), float(found.std_error[group])
        rows.append(
            Row(
                value=value,
                estimate=estimate,
                std_error=error,
                lower=estimate - Z * error,
                upper=estimate + Z * error,
                proportion=float(proportion[group]),
                significant=bool(reported[0][group]),
                significant_holm=bool(reported[1][group]),
                group=candidates[first[group]] if sizes[group] > 1 else "",
            )
        )
    return tuple(rows)


def _benjamini_hochberg(p_values: Floats) -> Mask:
    """Call the i smallest true, for the largest i whose p-value is at most i alpha / G."""
    ordered = np.sort(p_values)
    below = np.flatnonzero(ordered <= ALPHA * np.arange(1, len(ordered) + 1) / len(ordered))
    return p_values <= (ordered[below[-1]] if len(below) else -1.0)


def _holm(p_values: Floats) -> Mask:
    """Call the smallest true, one after the other, while the i-th is at most alpha / (G + 1 - i)."""
    ordered = np.sort(p_values)
    above = np.flatnonzero(ordered > ALPHA / np.arange(len(ordered), 0, -1))
    return p_values < (ordered[above[0]] if len(above) else 2.0)


def _sentences(tally: Counts, candidates: Sequence[str], group_of: Ints, found: _Found) -> list[str]:
    """Say in plain words what the numbers cannot be read without."""
    n, equations = int(tally[:, 0].sum()), int(np.count_nonzero(tally[:, 0])) * (tally.shape[1] - 1)
    if n == 0:
        return ["There are no reports: nothing is known."]
    said = [*_about_the_fit(found)]
    if found.split:
        said.append(
            f"{len(found.estimate):,} candidates are more than {equations:,} equations can bear: one half of the "
            "cohorts picked strings, the other half fitted these, and each of the others beside them."
        )
    shared = np.bincount(group_of)[group_of] > 1
    if shared.any():
        first = candidates[int(np.flatnonzero(shared)[0])]
        said.append(
            f"{shared.sum():,} candidates set the same bits as another one wherever there are reports (the first: "
            f"{first!r}): their rows give what their group has together."
        )
    if not found.determined.all():
        said.append(
            f"Of {np.count_nonzero(~found.determined[group_of]):,} candidates these reports say nothing: their rows "
            "have a standard error of 1."
        )
    critical = float(ndtri(1 - ALPHA / len(found.estimate)) * np.median(found.std_error))
    if critical > FEW:
        told = f"only a string that about {critical:.0%} of them hold" if critical < 1 else "not even one that all hold"
        said.append(f"These reports are few, {n:,}: {told} can be told from noise among so many candidates.")
    return said


def _about_the_fit(found: _Found) -> list[str]:
    said = []
    freedom, low, high = found.degrees_of_freedom, *found.unlisted_interval
    if freedom > 0 and chdtrc(freedom, found.chi_square) < MISFIT:
        cause = "the list misses strings that many have" + (
            ", or has more than can be told apart" if found.split else ""
        )
        said.append(
            f"The candidates do not explain the reports: chi-square is {found.chi_square:,.0f} on {freedom:,} "
            f"degrees of freedom. Most likely {cause}. Standard errors are larger for it."
        )
    if low > 0:
        said.append(
            f"Strings that are not in the list hold about {found.unlisted:.1%} of the reports (95 % interval: "
            f"{low:.1%} to {high:.1%})."
        )
    return said
