"""Clusters of a million devices: sums of squares over those of Lloyd's on true records, beside Lloyd's by rounds.

A world has five clouds of different sizes and widths in the unit cube. Ours clusters the table fitted to its pairs;
by rounds, each of five steps asks a fifth of the devices, anew, for their nearest centre and one coordinate of theirs,
drawn by lot and rounded to an end by a coin: one symbol of 2 k by GRR, which spends the whole epsilon.
"""

from decimal import Decimal
from itertools import combinations

import numpy as np

from dither_aggregator.analysis.tables.pairs import QuestionTally, pair_table
from dither_aggregator.analysis.tables.regression import apart, cluster, lloyd, places_of
from dither_aggregator.analysis.tables.synthesis import synthesise
from dither_shared.domains import Buckets
from dither_shared.mechanisms import choose
from tests.benchmarks.tables.census import Floats
from tests.support.tallies import draw_tally

N, K, ROUNDS = 1_000_000, 5, 5
KNOWN = 200_000
"""So many different devices: each stands for N / KNOWN."""
SCORED = 50_000
WORLDS = 20
CASES = {
    (2, "1", 8): 1.30,
    (2, "2", 10): 1.18,
    (2, "4", 12): 1.05,
    (4, "1", 6): 1.35,
    (4, "2", 8): 1.12,
    (4, "4", 8): 1.05,
}
"""By columns, epsilon and ranges of each: the mean ratio at most."""


def world(seed: int, columns: int) -> tuple[Floats, np.random.Generator]:
    """Return where devices are, float64[KNOWN, columns]."""
    rng = np.random.default_rng([44, seed, columns])
    centres, sizes, width = (
        rng.uniform(0.1, 0.9, (K, columns)),
        rng.dirichlet(np.full(K, 4.0)),
        rng.uniform(0.04, 0.1, K),
    )
    own = rng.choice(K, KNOWN, p=sizes)
    drawn = centres[own] + width[own][:, np.newaxis] * rng.standard_normal((KNOWN, columns))
    return np.clip(drawn, 0.0, 1 - 1e-9), rng


def asked(devices: Floats, ranges: int, epsilon: str, rng: np.random.Generator) -> list[QuestionTally]:
    """Return the reports of all pairs of columns, of so many ranges, two open ones and "other"."""
    size, pairs = ranges + 3, list(combinations(range(devices.shape[1]), 2))
    held, mechanism = 1 + (devices * ranges).astype(np.int64), choose((ranges + 3) ** 2, Decimal(epsilon))
    questions = []
    for one, other in pairs:
        known = np.bincount(held[:, one] * size + held[:, other], minlength=size**2)
        counts = rng.multinomial(N // len(pairs), known / known.sum())
        drawn = draw_tally(mechanism, counts, rng)
        questions.append(QuestionTally((one, other), (size, size), False, mechanism, drawn, int(counts.sum())))
    return questions


def ours(devices: Floats, ranges: int, epsilon: str, rng: np.random.Generator) -> Floats:
    """Return our centres."""
    questions = asked(devices, ranges, epsilon, rng)
    fit = synthesise(tuple(pair_table(each, (each.columns[0], each.columns[1])) for each in questions))
    places = [places_of(Buckets(tuple(range(ranges + 1)), 0, ""))] * devices.shape[1]
    return cluster(fit.weights, places, K, rng).centres


def true(devices: Floats, rng: np.random.Generator) -> Floats:
    """Return the centres of Lloyd's on true records: the best of some starts on a part, then steps on more of them."""
    few, more = devices[:4_000], devices[:SCORED]
    even = np.full(len(few), 1 / len(few))
    centres = min((lloyd(few, even, K, rng) for _ in range(6)), key=lambda found: found.within).centres
    for _ in range(8):
        nearest = apart(more, centres).argmin(axis=1)
        centres = np.array(
            [more[nearest == at].mean(axis=0) if (nearest == at).any() else centres[at] for at in range(K)]
        )
    return centres


def by_rounds(devices: Floats, epsilon: str, rng: np.random.Generator) -> Floats:
    """Return the centres of Lloyd's by rounds of fresh devices, from K of a public guess: even places."""
    columns = devices.shape[1]
    centres, mechanism = rng.uniform(0.1, 0.9, (K, columns)), choose(2 * K, Decimal(epsilon))
    p, q = float(mechanism.p), float(mechanism.q)
    for part in np.array_split(rng.permutation(devices), ROUNDS):
        nearest = apart(part, centres).argmin(axis=1)
        asked_for = rng.integers(columns, size=len(part))
        high = rng.random(len(part)) < part[np.arange(len(part)), asked_for]
        for column in range(columns):
            own = asked_for == column
            known = np.bincount(2 * nearest[own] + high[own], minlength=2 * K)
            n = N // ROUNDS // columns
            counts = rng.multinomial(n, known / known.sum())
            shares = (draw_tally(mechanism, counts, rng)[: 2 * K] / n - q) / (p - q)
            held = shares.reshape(K, 2).sum(axis=1)
            told = held > 0.01
            centres[told, column] = np.clip(shares[1::2][told] / held[told], 0.0, 1.0)
    return centres


def ratios(case: tuple[int, str, int], seed: int, *, rounds: bool = False) -> tuple[float, float]:
    """Return the sum of squares of ours, and by rounds, over that of true records, in one world."""
    columns, epsilon, ranges = case
    devices, rng = world(seed, columns)
    scored = devices[-SCORED:]

    def within(centres: Floats) -> float:
        return float(apart(scored, centres).min(axis=1).mean())

    best = within(true(devices, rng))
    own = within(ours(devices, ranges, epsilon, rng)) / best
    return own, within(by_rounds(devices, epsilon, rng)) / best if rounds else np.nan


def run(worlds: int = WORLDS) -> list[str]:
    """Print the mean, its standard error and the worst of each case; return what is missed."""
    print(f"\n  clusters: sums of squares over those of true records, {N:,} devices, {K} clusters, {worlds} worlds")
    missed = []
    for case, bound in CASES.items():
        found = np.array([ratios(case, seed, rounds=True) for seed in range(worlds)])
        mean, worst, error = found.mean(axis=0), found.max(axis=0), found[:, 0].std() / np.sqrt(worlds)
        columns, epsilon, ranges = case
        name = f"{columns} columns, eps {epsilon}, {ranges} ranges"
        print(f"  {name:32}{mean[0]:6.3f} ({error:.3f}; {worst[0]:.2f}), by rounds {mean[1]:6.2f}", flush=True)
        if mean[0] > bound:
            missed.append(f"clusters of {name} have {mean[0]:.2f} times the sum of squares, not {bound}")
    return missed
