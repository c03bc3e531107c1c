"""Decoding RAPPOR: how many of the reports hold each candidate string, with intervals that hold.

A report of cohort c whose string sets bit b has that bit with probability q*, another one with p*. Debiased,

    y[c, b] = (tally[c, 1 + b] / N_c - p*) / (q* - p*)

is, up to noise, the share of the cohort's reports whose string sets bit b: the sum of the shares f_v of the strings v
that do. That makes m k linear equations for the candidates' shares. Strings that are not in the list are one more
column, the same in every row: a string sets a bit with probability 1 - (1 - 1/k)^h. Without it the candidates would
swallow what the list misses, and their intervals would be wrong.

Estimates are unbiased over the hash. Few candidates are fitted at once, by weighted least squares, unconstrained; the
rule is `Equations.few`. More than one for 20 equations would take too much from each other: they are fitted on all
cohorts but a 32nd part, none below zero, and each is estimated from what the others leave of that part
(cross_fitting.py).

Weights are 1 / variance, r (1 - r) / (N_c (q* - p*)^2) with r the bit's rate, by a first fit: the error is that of the
share in the population of which the reports are a random sample, and a little more than that of the share among the
reports. The residuals show all that the model does not explain, such as frequent strings that the list misses: every
standard error is multiplied by sqrt(max(1, chi-square / degrees of freedom)), taken within cohorts. Intervals hold on
average over the hash, too: what a missing string adds to a candidate's bits is the same in each decoding with the same
cohorts. With few cohorts such a string is no normal noise, so verdicts, and the intervals that are shown, are by a t
law (`Found.freedom`), and a verdict is that strings that nobody has hardly ever get as much, too (strangers.py).

`proportion` is another column, for looking at: only of candidates that somebody seems to have, none below zero. It is
biased; verdicts and intervals are made of the others.

Erlingsson, Pihur, Korolova 2014 (the mechanism, and least squares after selection); Benjamini, Hochberg 1995; Holm
1979; Efron 2008 (how many candidates nobody has); Satterthwaite 1946 (the t law). The prior of `proportion`: Kiefer,
Wolfowitz 1956; Jiang, Zhang 2009.

equations.py makes the equations. least_squares.py solves them and fitting.py turns the fit into estimates;
cross_fitting.py does that for many candidates, with the fits of message_passing.py. selection.py has the column for
looking at.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtrc, ndtri

from dither_aggregator.analysis.decoding.cross_fitting import infer_by_folds
from dither_aggregator.analysis.decoding.equations import Channel, Equations, Ints, make_equations, merge, reweighted
from dither_aggregator.analysis.decoding.fitting import Found, chances, infer_whole, know_nothing
from dither_aggregator.analysis.decoding.selection import selected_shares
from dither_aggregator.analysis.inference import Floats, Z
from dither_aggregator.analysis.multiplicity import adaptive, holm, selected_z
from dither_aggregator.counting.folding import Counts
from dither_shared.errors import InvalidParameter
from dither_shared.precision import ALPHA

__all__ = ["Candidate", "Channel", "Decoded", "decode"]

_NOT_OF_THE_FIT = ("rows", "error_freedom", "strangers")
MISFIT = 1e-3
"""A chi-square so improbable is said to be a misfit."""
MISFIT_OF_MANY = 1.5
"""So much for each degree of freedom is, of many candidates: their residuals hold the error of the fits, too."""
FEW = 0.1
"""When only a string with a larger share than this can be told from noise, reports are said to be few."""


@dataclass(frozen=True)
class Candidate:
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
    """Whether anybody has the string: of all called so at most `Decoded.false_share` are expected to be false."""
    significant_holm: bool
    """The same, stricter: not one false one among all candidates, with 95 %."""
    group: str
    """Empty, or the first of several candidates that set equal bits: the row is then of all of them together."""


@dataclass(frozen=True)
class Decoded:
    """A row for each candidate, in the given order, and what holds for the list as a whole."""

    rows: tuple[Candidate, ...]
    n: int
    unexplained: float
    """The share of reports whose string is not in the list: raw, with the ends of its 95 % interval."""
    unexplained_lower: float
    unexplained_upper: float
    chi_square: float
    degrees_of_freedom: int
    error_freedom: float
    """The degrees of freedom of the t law that says how rarely an estimate is so far from zero."""
    strangers: tuple[float, ...]
    """How often a string that nobody has gets as much as each row, by the hash alone."""
    seconds: float
    sentences: tuple[str, ...]
    false_share: float = ALPHA
    """At most such a share of the strings called significant is expected to be false."""

    def summary(self) -> dict[str, object]:
        """Return what is told of the fit, ready for JSON: every number is finite."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_OF_THE_FIT}

    def named(self, false_share: float) -> "Decoded":
        """Return the same, with those called significant of which at most such a share is expected to be false.

        It is above 0 and at most 1/2. `multiplicity` says what of it is proved, and what measured.
        """
        groups = {row.group or row.value: (row, often) for row, often in zip(self.rows, self.strangers, strict=True)}
        scores = np.array([row.estimate / row.std_error for row, _ in groups.values()])
        strangers = np.array([often for _, often in groups.values()])
        called = adaptive(chances(scores, self.error_freedom, strangers), false_share)
        significant = dict(zip(groups, called.tolist(), strict=True))
        rows = tuple(replace(row, significant=significant[row.group or row.value]) for row in self.rows)
        return replace(self, rows=rows, false_share=false_share)

    @property
    def shown(self) -> tuple[Candidate, ...]:
        """The rows with intervals by the t law, of those found wider: at most 5 % miss on average, although found."""
        apart = [row for row in self.rows if row.group in ("", row.value)]
        found = selected_z(sum(row.significant for row in apart), len(apart), ALPHA, self.error_freedom)
        other = selected_z(1, 1, ALPHA, self.error_freedom)
        reach = [(found if row.significant else other) * row.std_error for row in self.rows]
        return tuple(
            replace(row, lower=row.estimate - below, upper=row.estimate + below)
            for row, below in zip(self.rows, reach, strict=True)
        )

    def to_document(self) -> dict[str, object]:
        """Return what is shown and the summary, ready for JSON."""
        return {"rows": [{**vars(row)} for row in self.shown], "summary": self.summary()}


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
    patterns, group_of = merge(bits[:, reported] if reported.any() else bits)
    if reported.any():
        equations = make_equations(tally[reported], patterns, channel)
        if equations.few:
            equations = reweighted(equations)
        found = _infer(equations)
        proportion = selected_shares(equations, found)
    else:
        found, proportion = know_nothing(len(patterns)), np.zeros(len(patterns))
    lower, upper = found.unlisted_interval
    return Decoded(
        rows=_rows(candidates, group_of, found, proportion),
        n=int(tally[:, 0].sum()),
        unexplained=found.unlisted,
        unexplained_lower=lower,
        unexplained_upper=upper,
        chi_square=found.chi_square,
        degrees_of_freedom=found.degrees_of_freedom,
        error_freedom=found.freedom,
        strangers=tuple(found.strangers[group_of].tolist()),
        sentences=tuple(_sentences(tally, candidates, group_of, found)),
        seconds=time.perf_counter() - started,
    ).named(ALPHA)


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


def _infer(equations: Equations) -> Found:
    if equations.few:
        return infer_whole(equations)
    if min(equations.cohorts, equations.channel.k) > 1:
        return infer_by_folds(equations)
    return know_nothing(equations.patterns.shape[0])


def _rows(candidates: Sequence[str], group_of: Ints, found: Found, proportion: Floats) -> tuple[Candidate, ...]:
    surely = holm(found.chances, ALPHA)
    sizes = np.bincount(group_of)
    _, first = np.unique(group_of, return_index=True)
    rows = []
    for value, group in zip(candidates, group_of.tolist(), strict=True):
        estimate, error = float(found.estimate[group]), float(found.std_error[group])
        rows.append(
            Candidate(
                value=value,
                estimate=estimate,
                std_error=error,
                lower=estimate - Z * error,
                upper=estimate + Z * error,
                proportion=float(proportion[group]),
                significant=False,  # until it is among those that `Decoded.named` names
                significant_holm=bool(surely[group]),
                group=candidates[first[group]] if sizes[group] > 1 else "",
            )
        )
    return tuple(rows)


def _sentences(tally: Counts, candidates: Sequence[str], group_of: Ints, found: Found) -> list[str]:
    """Say in plain words what the numbers cannot be read without."""
    n, equations = int(tally[:, 0].sum()), int(np.count_nonzero(tally[:, 0])) * (tally.shape[1] - 1)
    if n == 0:
        return ["There are no reports: nothing is known."]
    sentences = [*_about_the_fit(found)]
    if found.split:
        sentences.append(
            f"{len(found.estimate):,} candidates are many for {equations:,} equations: each was estimated from what "
            "the others leave, fitted on other cohorts."
        )
    shared = np.bincount(group_of)[group_of] > 1
    if shared.any():
        first = candidates[int(np.flatnonzero(shared)[0])]
        sentences.append(
            f"{shared.sum():,} candidates set the same bits as another one wherever there are reports (the first: "
            f"{first!r}): their rows give what their group has together."
        )
    if not found.determined.all():
        sentences.append(
            f"These reports say nothing of {np.count_nonzero(~found.determined[group_of]):,} candidates: their rows "
            "have a standard error of 1."
        )
    critical = float(ndtri(1 - ALPHA / len(found.estimate)) * np.median(found.std_error))
    if critical > FEW:
        needed = (
            f"only a string that about {critical:.0%} of them hold" if critical < 1 else "not even one that all hold"
        )
        sentences.append(f"These reports are few, {n:,}: {needed} can be told from noise among so many candidates.")
    return sentences


def _about_the_fit(found: Found) -> list[str]:
    sentences = []
    freedom, low, high = found.degrees_of_freedom, *found.unlisted_interval
    least = MISFIT_OF_MANY * freedom if found.split else 0.0
    if freedom > 0 and found.chi_square > least and chdtrc(freedom, found.chi_square) < MISFIT:
        cause = "the list misses strings that many have" + (
            ", or has more than can be told apart" if found.split else ""
        )
        sentences.append(
            f"The candidates do not explain the reports: chi-square is {found.chi_square:,.0f} on {freedom:,} "
            f"degrees of freedom. Most likely {cause}. Standard errors are larger for it."
        )
    if low > 0:
        sentences.append(
            f"Strings that are not in the list hold about {found.unlisted:.1%} of the reports (95 % interval: "
            f"{low:.1%} to {high:.1%})."
        )
    return sentences
