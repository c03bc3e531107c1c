"""Ours: the levels and the verification group of a layout, with reports drawn from their exact law."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from dither_aggregator.analysis.words import FoundWords, Level, Numbers, Sketch, find_words, search
from dither_shared.mechanisms import PGR
from dither_shared.words.code import BUCKETS, ROWS, Groups, Layout
from tests.benchmarks.words.vocabulary import Counts, vocabulary
from tests.support.points import draw_points


def draw(
    mechanism: PGR, groups: Groups, weights: Sequence[int], held: Counts, rng: np.random.Generator
) -> list[Counts]:
    """Draw the tallies of all groups, int64[rows, 1 + K] each, of devices of which held[w] have the word w."""
    return draw_rows(mechanism, groups, weights, held, rng, numbers_of)


def draw_rows(
    mechanism: PGR,
    groups: Groups,
    weights: Sequence[int],
    held: Counts,
    rng: np.random.Generator,
    numbers: Callable[[tuple[int, ...], int], Numbers],
) -> list[Counts]:
    """Draw as `draw` does, where `numbers` says what each group's reports hash of every word."""
    cells = np.repeat(np.array(weights) / sum(weights) / ROWS, ROWS)
    tallies = []
    left, share = held.copy(), 1.0
    for cell, part in enumerate(cells.tolist()):
        group, row = divmod(cell, ROWS)
        # One multinomial over the cells, word by word: those that are left choose this cell.
        here = rng.binomial(left, min(part / share, 1.0)) if cell < len(cells) - 1 else left
        left, share = left - here, share - part
        factor = np.uint64(groups.multiplier(group, row))
        buckets = (numbers(groups.levels, group) * factor >> np.uint64(47)).astype(np.int64)
        counts = np.bincount(buckets, weights=here, minlength=BUCKETS).astype(np.int64)
        tallies.append(np.concatenate([[here.sum()], draw_points(mechanism, counts, rng)]))
    return [np.array(tallies[first : first + ROWS]) for first in range(0, len(tallies), ROWS)]


@cache
def numbers_of(levels: tuple[int, ...], group: int) -> Numbers:
    """Return what a group's reports hash of every word."""
    coded = Groups("", levels)
    return np.array([coded.number(word.encode("utf-8"), group) for word in vocabulary()], dtype=np.uint64)


def sketches(mechanism: PGR, groups: Groups, tallies: Sequence[Counts]) -> list[Sketch]:
    """Decode the tallies of all groups."""
    return [
        Sketch.of_tally(mechanism, tally, [groups.multiplier(group, row) for row in range(ROWS)])
        for group, tally in enumerate(tallies)
    ]


def find(mechanism: PGR, groups: Groups, tallies: Sequence[Counts]) -> FoundWords:
    """Find the words of tallies."""
    *levels, verification = sketches(mechanism, groups, tallies)
    proposed = search([Level(*each) for each in zip(groups.levels, levels, strict=True)], alphabet=groups.alphabet)
    return find_words(proposed, levels[-1], verification)


def groups_of(layout: Layout, seed: int) -> Groups:
    """Return the groups of a metric whose hashes no other seed has."""
    return Groups(f"benchmark_{seed}", layout.levels)
