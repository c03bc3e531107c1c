"""Strings that a decoder misses: how many it names if a share of them may be false, beside the original's two steps.

Populations are new ones by the laws of the original's regression cases: of 100, 1,000 and 3,000 strings, with ten times
too many candidates, and with half of the mass in no candidate. A false string is one that nobody has.

How near the share of false strings can come to what was asked has a limit, whatever the decoder. A population in which
nobody has the rarest strings sends nearly the same reports, and there they must count as false. `limit` is what the
best test between the two leaves of the asked share, if a decoder names as many as it may where it takes the strings for
there, and the share holds in the other population, too. It would have to know both. `reachable` is less: what a decoder
reaches that knows no more than that strings too rare to be seen may be nobody's, those whose estimates, added up, lie
at most two standard errors above zero.

`--truth` and `--asked` print a table each in place of the whole one. The first cuts both decoders' rankings where the
truth says that as many are false as the original has: a few strings in 20 seeds, so that the difference is told with
its standard error, by a jackknife over the seeds. `law` is our ranking if the fit knew how many candidates have which
share, in place of finding it out: about the best that there is. If the original finds more than that, too, the draws
are why. The second table asks for the original's share of false ones. There a decoder that cannot tell rare strings
from none has fewer false ones than that, and `could` is what our ranking would name with as many false ones as can be
reached. `--missed-seeds`, `--missed-first` and `--populations` choose what is drawn.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr, ndtri

from dither_aggregator.analysis.decoder import Channel, Decoded, decode
from dither_aggregator.analysis.decoder_equations import (
    ROUNDS_OF_ALL,
    Passed,
    Prior,
    gains_of,
    make_equations,
    merge,
    pass_messages,
)
from dither_aggregator.analysis.rows import FALSE_SHARE_MAX, FALSE_SHARE_MIN, Mask
from tests.benchmarks.rappor import (
    LAWS,
    TYPICAL,
    Draw,
    Floats,
    Ints,
    Score,
    channel_of,
    draw,
    law,
    map_of,
    score,
    true_at,
)

FIRST, SEEDS = 1000, 20
LEVELS = (0.05, 0.1)
OF_REACHABLE_MIN = 0.6
AS_MANY_MIN = 18
SHOWN = (0.94, 0.98)
ERRORS_MAX = 3.0
"""A mean may be so many of its standard errors beyond its aim."""
TWO_ERRORS = 2.0
"""The original reports what is so many standard errors above zero, however many candidates there are."""
SELECTED_MAX = 500
STEPS = 500


@dataclass(frozen=True)
class Population:
    """Strings under a law, some of them missing from the list, and candidates that nobody has."""

    size: str
    law: str
    strings: int
    n: int
    missing: float
    """The share of strings, every tenth, or of the mass, where it is half."""
    false: int
    channel: Channel = TYPICAL

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.size} {self.law}"


HALF = channel_of(8, 2, 128, f=0.5, p=0.25, q=0.75)
POPULATIONS = (
    *(Population("small", name, 100, 1_000_000, 0.1, 20) for name in LAWS),
    *(Population("medium", name, 1_000, 10_000_000, 0.1, 200) for name in LAWS),
    *(Population("large", name, 3_000, 100_000_000, 0.1, 600) for name in ("exp", "zipf1")),
    *(Population("tenfold", name, 100, 1_000_000, 0.1, 1_000) for name in LAWS),
    *(Population("half missing", name, 100, 100_000, 0.5, 20, HALF) for name in ("exp", "gauss", "zipf1")),
)


def draw_population(population: Population, seed: int) -> Draw:
    """Draw it once: which strings are missing, its devices, its noise and its hash."""
    rng, shares = np.random.default_rng([seed, *population.name.encode()]), law(population.law, population.strings)
    values = [f"{population.name} {number}" for number in range(population.strings + population.false)]
    bits = map_of(values, population.channel, seed * population.channel.m)
    tally, counts = draw(population.channel, bits[: population.strings], shares, population.n, rng)
    kept = np.ones(len(values), dtype=np.bool_)
    if population.missing == 0.5:
        order = rng.permutation(population.strings)
        kept[order[: int(np.searchsorted(np.cumsum(shares[order]), 0.5)) + 1]] = False
    else:
        kept[8 : population.strings : 10] = False
    listed, absent = np.flatnonzero(kept), np.zeros(population.false)
    truth, drawn = np.append(shares, absent)[listed], np.append(counts / population.n, absent)[listed]
    return Draw(tally, tuple(values[place] for place in listed), bits[listed], truth, drawn)


def originals_scores(tally: Ints, bits: Ints, channel: Channel) -> Floats:
    """Return how many standard errors each candidate is above zero by the original's two steps; -inf if not selected.

    A lasso with nothing below zero, at the end of its path and of 500 strings at most, selects where candidates are
    more than .8 of the equations. Least squares of the selected ones then have the usual standard errors.
    """
    sets = np.zeros((len(bits), channel.m, channel.k))
    np.put_along_axis(sets, bits, 1.0, axis=2)
    n, width = tally[:, :1], channel.q_star - channel.p_star
    rate = np.clip(tally[:, 1:] / n, 0.5 / n, 1 - 0.5 / n)
    root = (np.sqrt(n / (rate * (1 - rate))) * abs(width)).ravel()
    columns = sets.reshape(len(bits), -1) * root
    share = root * ((tally[:, 1:] / n - channel.p_star) / width).ravel()
    selected = np.arange(len(bits))
    if len(bits) > 0.8 * len(root):
        shares = _lasso(columns @ columns.T, columns @ share)
        order = np.argsort(-shares, kind="stable")[:SELECTED_MAX]
        selected = np.sort(order[shares[order] > 0])
    chosen = columns[selected]
    inverse = np.linalg.pinv(chosen @ chosen.T)
    fit = inverse @ (chosen @ share)
    residual = share - fit @ chosen
    scores = np.full(len(bits), -np.inf)
    scores[selected] = fit / np.sqrt(residual @ residual / (len(root) - len(selected)) * np.diag(inverse))
    return scores


def _lasso(gram: Floats, right: Floats) -> Floats:
    """Minimise by accelerated gradient steps (Beck, Teboulle 2009), at a hundredth of the penalty that leaves none."""
    largest = float(eigsh(gram, 1, v0=np.ones(len(gram)), return_eigenvectors=False)[0])
    penalty, step = right.max() / 100, 1 / largest
    shares = ahead = np.zeros(len(right))
    for number in range(STEPS):
        before, shares = shares, np.maximum(ahead - step * (gram @ ahead - right + penalty), 0.0)
        ahead = shares + number / (number + 3) * (shares - before)
    return shares


@dataclass(frozen=True)
class KnownLaw(Prior):
    """How many candidates have which share: `edges` are the shares, and `chance` the part of candidates with each."""

    def learn(self, estimate: Floats, error: Floats) -> tuple[Prior, Floats, Floats]:
        """Return itself, as nothing is left to learn, each share's mean given its estimate, and the mean's slope."""
        fit = -(((estimate[:, np.newaxis] - self.edges) / error[:, np.newaxis]) ** 2) / 2
        weight = np.exp(fit - fit.max(axis=1, keepdims=True)) * self.chance
        weight /= weight.sum(axis=1, keepdims=True)
        mean = weight @ self.edges
        return self, mean, (weight @ self.edges**2 - mean**2) / error**2


def scores_by_the_law(drawn: Draw, channel: Channel) -> Floats:
    """Return how many standard errors each candidate is above zero by a fit that knows how many have which share."""
    patterns, group_of = merge(drawn.bits)
    equations = make_equations(drawn.tally, patterns, channel)
    shares, numbers = np.unique(drawn.truth, return_counts=True)
    nothing, all_cohorts = np.zeros((len(patterns), 1)), np.ones((len(equations.weight), 1))
    start = Passed(nothing, 0 * all_cohorts, [KnownLaw(shares, numbers / numbers.sum())])
    passed = pass_messages(equations, all_cohorts, start, ROUNDS_OF_ALL)
    residual = passed.residual(equations)
    weight = equations.weights_by_cohort().sum(axis=1)
    norm = weight * (1 - weight / equations.weight.sum())
    estimate = passed.shares[:, 0] + equations.patterns @ gains_of(equations.weight, residual[:, 0]) / norm
    within = equations.within_cohorts(residual)[:, 0]
    scale2 = max(1.0, float(equations.weight @ within**2) / (len(within) - equations.cohorts))
    scores: Floats = (estimate * np.sqrt(norm / scale2))[group_of]
    return scores


@dataclass(frozen=True)
class Named:
    """The strings that a decoder names in one draw."""

    true: int
    false: int

    @property
    def false_share(self) -> float:
        """The share of them that nobody has; 0 where none is named."""
        return self.false / max(1, self.true + self.false)


@dataclass(frozen=True)
class Run:
    """One draw, decoded by both."""

    at: dict[float, Named]
    """This decoder's names, by the share that was asked for."""
    theirs: Named
    decoded: Decoded
    score: Score
    truth: Floats
    reachable: float
    """The part of the asked share that a decoder reaches to which strings too rare to be seen are nobody's."""
    limit: float
    """The part that no decoder passes."""
    seconds: float
    """The processor's, of this decoder alone."""
    by_the_law: Score | None = None
    """The same draw's, ranked by the fit that knows the law, where it is asked for."""


def named(called: Mask, truth: Floats) -> Named:
    """Return how many of those are true, and how many are not."""
    return Named(int((called & (truth > 0)).sum()), int((called & (truth == 0)).sum()))


def run_once(population: Population, seed: int, *, by_law: bool = False) -> Run:
    """Draw and decode, and rank by a fit that knows the law if that is asked for."""
    drawn = draw_population(population, seed)
    started = time.process_time()
    decoded = decode(drawn.tally, drawn.candidates, drawn.bits, population.channel)
    seconds = time.process_time() - started
    at = {level: named_at(decoded, drawn.truth, level) for level in LEVELS}
    theirs = named(originals_scores(drawn.tally, drawn.bits, population.channel) > TWO_ERRORS, drawn.truth)
    errors = np.array([row.std_error for row in decoded.rows])
    ours, best = score(decoded, drawn), None
    if by_law:
        scores = scores_by_the_law(drawn, population.channel)
        best = replace(ours, true_scores=scores[drawn.truth > 0], false_scores=scores[drawn.truth == 0])
    effects = drawn.truth / errors
    return Run(at, theirs, decoded, ours, drawn.truth, reachable(effects), limit(effects), seconds, best)


def named_at(decoded: Decoded, truth: Floats, level: float) -> Named:
    """Return what a decoding names where such a share may be false."""
    return named(np.array([row.significant for row in decoded.named(level).rows], dtype=np.bool_), truth)


def limit(effects: Floats) -> float:
    """Return the part of an asked share that no decoder passes, from what candidates have in standard errors.

    If the rarest u strings beside n that nobody has may be nobody's, too, and a decoder takes them for there, it may
    name (n + u) / n times as many of all those. If they are not, that is too many: it may do so in n / (n + u) of all
    draws. Their sum, which tells the two apart nearly as well as all of them do, lies d standard deviations apart, so
    that by the test of Neyman and Pearson it does so in Phi(d + Phi^-1(n / (n + u))) of draws if they are there.
    """
    nulls, held = np.count_nonzero(effects == 0), np.sort(effects[effects > 0])
    both = nulls + np.arange(1, len(held) + 1)
    chances = ndtr(np.cumsum(held) / np.sqrt(both) + ndtri(nulls / both))
    return float(chances.min(initial=1.0))


def reachable(effects: Floats) -> float:
    """Return the part of an asked share that is reached if strings too rare to be seen are nobody's."""
    nulls, held = np.count_nonzero(effects == 0), np.sort(effects[effects > 0])
    unseen = np.cumsum(held) <= 2 * np.sqrt(nulls + np.arange(1, len(held) + 1))
    return nulls / (nulls + int(unseen.sum()))


def measure(population: Population, seeds: int = SEEDS, first: int = FIRST, *, by_law: bool = False) -> list[Run]:
    """Draw and decode for each seed."""
    return [run_once(population, seed, by_law=by_law) for seed in range(first, first + seeds)]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options of this section."""
    parser.add_argument("--truth", action="store_true", help="of missed: rankings cut where the truth says, alone")
    parser.add_argument(
        "--asked", action="store_true", help="of missed: where the original's share is asked for, alone"
    )
    parser.add_argument("--missed-seeds", type=int, default=SEEDS, help="draws of each population")
    parser.add_argument("--missed-first", type=int, default=FIRST, help="the first draw's seed")
    parser.add_argument("--populations", default="", help="of missed: those whose names begin so; default: all")


def run(seeds: int = SEEDS, begins: str = "", first: int = FIRST, *, truth: bool = False, asked: bool = False) -> None:
    """Print the side-by-side; raise AssertionError when an aim is missed."""
    populations = [each for each in POPULATIONS if each.name.startswith(begins)]
    if truth or asked:
        compare(populations, seeds, first, truth=truth, asked=asked)
        return
    print(
        f"\n  means of {seeds} seeds; named: true strings, and the share of false ones, where .05 and .1 may be false;"
    )
    print("  reachable: of .05, where strings too rare to be seen are nobody's; limit: what no decoder passes; theirs:")
    print(
        "  true strings and the share of false ones by the original's two steps; ours at their share of false ones, cut"
    )
    print(
        "  where the truth says, and where that share is asked for; shown: how often the intervals of the strings named"
    )
    print("  at .05 hold")
    names = f"{'at .05':>15}{'reachable':>11}{'limit':>7}{'at .1':>15}{'theirs':>15}{'ours':>8}{'asked':>8}{'shown':>8}"
    print(f"  {'population':22}{names}")
    lines = []
    for population in populations:
        line = Line.of(population, measure(population, seeds, first))
        print(line, flush=True)
        lines.append(line)
    missed = [word for line in lines for word in line.missed]
    as_many, shown = sum(line.as_many for line in lines), float(np.mean([line.shown for line in lines]))
    perhaps = sum(line.ours >= line.theirs - ERRORS_MAX * line.error_of_more for line in lines)
    print(f"\n  as many true strings as theirs in {as_many} of {len(lines)}, within {ERRORS_MAX:g} standard errors")
    print(f"  in {perhaps}; intervals of what is named hold {shown:.3f}")
    missed += [f"as many in {as_many}"] if as_many < AS_MANY_MIN * len(lines) / len(POPULATIONS) else []
    missed += [f"shown intervals hold {shown:.3f}"] if not SHOWN[0] <= shown <= SHOWN[1] else []
    assert not missed, "; ".join(missed)


def compare(populations: Sequence[Population], seeds: int, first: int = FIRST, *, truth: bool, asked: bool) -> None:
    """Print the tables that are asked for, of the same draws."""
    print(f"\n  means of {seeds} seeds; theirs: true strings and the share of false ones by the original's two steps")
    titles = f"{'theirs':>15}" + f"{'truth':>9}{'more':>8}{'error':>7}{'law':>8}" * truth
    print(f"  {'population':22}{titles}" + f"{'asked':>9}{'false':>8}{'could':>9}" * asked + f"{'CPU ms':>9}")
    as_many, as_many_by_law, as_many_asked = 0, 0, 0
    for population in populations:
        runs = measure(population, seeds, first, by_law=truth)
        line = Line.of(population, runs)
        cells = f"  {line.name:22}{line.theirs:9.1f}{line.their_false:6.3f}"
        if truth:
            best = at_the_truth(runs, by_law=True)
            as_many_by_law += best >= line.theirs
            cells += f"{line.ours:9.1f}{line.ours - line.theirs:+8.1f}{line.error_of_more:7.1f}{best:8.1f}"
        if asked:
            cells += f"{line.asked:9.1f}{line.asked_false:8.3f}{could(runs, line.their_false):9.1f}"
        print(f"{cells}{1e3 * np.mean([each.seconds for each in runs]):9.0f}", flush=True)
        as_many += line.as_many
        as_many_asked += line.asked >= line.theirs
    print(
        f"\n  as many as theirs, of {len(populations)}:"
        + f" {as_many} (truth), {as_many_by_law} (law)" * truth
        + f" {as_many_asked} (asked)" * asked
    )


def error_of_more(runs: Sequence[Run]) -> float:
    """Return the standard error of how many more true strings are found at the truth's cut: a jackknife over seeds."""
    if len(runs) < 2:
        return 0.0
    left_out = [[*runs[:place], *runs[place + 1 :]] for place in range(len(runs))]
    more = [at_the_truth(rest) - float(np.mean([each.theirs.true for each in rest])) for rest in left_out]
    return float(np.std(more)) * sqrt(len(runs) - 1)


def at_the_truth(runs: Sequence[Run], *, by_law: bool = False) -> float:
    """Return how many true strings are found at the lowest score with no more false ones than the original's."""
    scores = [each.by_the_law if by_law and each.by_the_law else each.score for each in runs]
    return true_at(scores, float(np.mean([each.theirs.false_share for each in runs])))


def could(runs: Sequence[Run], level: float) -> float:
    """Return how many true strings are found with as large a share of false ones as can be reached at a level."""
    return true_at([each.score for each in runs], level * float(np.mean([each.reachable for each in runs])))


@dataclass(frozen=True)
class Line:
    """The means of one population."""

    name: str
    true: tuple[float, ...]
    """By level."""
    false: tuple[float, ...]
    error: tuple[float, ...]
    """The standard errors of `false`."""
    reachable: float
    limit: float
    theirs: float
    their_false: float
    ours: float
    """True strings at the lowest score with no more false ones than theirs."""
    error_of_more: float
    """The standard error of `ours` less `theirs`."""
    asked: float
    """True strings where their share of false ones is asked for."""
    asked_false: float
    """The share of false ones there."""
    shown: float

    @classmethod
    def of(cls, population: Population, runs: Sequence[Run]) -> "Line":
        """Return the means of runs."""
        shares = np.array([[each.at[level].false_share for level in LEVELS] for each in runs])
        their_false = float(np.mean([each.theirs.false_share for each in runs]))
        level = min(max(their_false, FALSE_SHARE_MIN), FALSE_SHARE_MAX)
        at_theirs = [named_at(each.decoded, each.truth, level) for each in runs]
        return cls(
            population.name,
            tuple(float(np.mean([each.at[level].true for each in runs])) for level in LEVELS),
            tuple(shares.mean(axis=0).tolist()),
            tuple((shares.std(axis=0) / sqrt(len(runs))).tolist()),
            float(np.mean([each.reachable for each in runs])),
            float(np.mean([each.limit for each in runs])),
            float(np.mean([each.theirs.true for each in runs])),
            their_false,
            at_the_truth(runs),
            error_of_more(runs),
            float(np.mean([each.true for each in at_theirs])),
            float(np.mean([each.false_share for each in at_theirs])),
            float(np.mean([each.score.shown_held for each in runs])),
        )

    @property
    def as_many(self) -> bool:
        """Whether at least as many true strings are found at their share of false ones."""
        return self.ours >= self.theirs

    @property
    def missed(self) -> list[str]:
        """The aims that are missed."""
        words = []
        for level, false, error in zip(LEVELS, self.false, self.error, strict=True):
            words += [f"{self.name}: {false:.3f} at {level}"] if false > level + ERRORS_MAX * error else []
            least = OF_REACHABLE_MIN * level * self.reachable - ERRORS_MAX * error
            words += [f"{self.name}: {false:.3f} at {level} is little"] if false < least else []
        return words

    def __str__(self) -> str:
        """Return the line of the table."""
        at = [f"{true:.1f} {false:.3f}" for true, false in zip(self.true, self.false, strict=True)]
        theirs = f"{self.theirs:.1f} {self.their_false:.3f}"
        return (
            f"  {self.name:22}{at[0]:>15}{LEVELS[0] * self.reachable:11.3f}{LEVELS[0] * self.limit:7.3f}"
            f"{at[1]:>15}{theirs:>15}{self.ours:8.1f}{self.asked:8.1f}{self.shown:8.3f}"
        )
