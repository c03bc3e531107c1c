"""`make bench ARGS=words`: words found among 100,000, beside the prefix extending method, at equal n and epsilon."""

import argparse
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from math import sqrt
from time import process_time
from typing import TypeVar

import numpy as np

from dither_aggregator.analysis.words import FoundWords
from dither_shared.kinds.precision import FALSE_WORDS
from dither_shared.mechanisms import PGR, choose
from dither_shared.words.code import BUCKETS, LAYOUTS, Groups
from tests.benchmarks.words import ours, pem, real
from tests.benchmarks.words.vocabulary import Counts, devices, vocabulary

T = TypeVar("T")

DEVICES = (100_000, 1_000_000, 10_000_000)
SEEDS = 10
REAL = 200_000
EPSILONS = ("1", "2", "4")
ZIPFS = (1.0, 1.5)
LAYOUT = LAYOUTS["short"]
AIM = (1_000_000, "2", 1.0)
FOUND_MIN, RECALL_MIN, SECONDS_MAX, MIB_MAX = 12, 0.95, 15, 1024


@dataclass
class Runs:
    """The finds of one way, run by run."""

    found: list[int] = field(default_factory=list)
    first_10: list[float] = field(default_factory=list)
    first_20: list[float] = field(default_factory=list)
    false: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, named: Sequence[str], ranks: dict[str, int], seconds: float) -> None:
        """Count the words that a run named."""
        true = [ranks[word] for word in named if word in ranks]
        self.found.append(len(set(true)))
        self.first_10.append(sum(rank < 10 for rank in set(true)) / 10)
        self.first_20.append(sum(rank < 20 for rank in set(true)) / 20)
        self.false.append(len(named) - len(true))
        self.seconds.append(seconds)

    def __str__(self) -> str:
        parts = (f"{np.mean(each):.2f}" for each in (self.first_10, self.first_20))
        spoiled = np.mean(np.array(self.false) > 0)
        return f"{np.mean(self.found):6.1f} {' '.join(parts)} {spoiled:5.2f} {np.mean(self.seconds):6.1f}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what this section can be asked."""
    parser.add_argument("--words-n", type=int, nargs="*", default=DEVICES, help="devices")
    parser.add_argument("--words-seeds", type=int, default=SEEDS, help="runs of each setting")


def run(sizes: Sequence[int] = DEVICES, seeds: int = SEEDS) -> None:
    """Print both ways, setting by setting, and what was aimed at."""
    print(f"{seeds} runs each: words found, recall of the first 10 and 20, runs that name a false word, seconds")
    print("      n zipf eps   ours                              prefix extending, 6 bits a character")
    spoiled: list[int] = []
    aimed: Runs | None = None
    for n in sizes:
        for zipf in ZIPFS:
            for epsilon in EPSILONS:
                mine, theirs = Runs(), Runs()
                for seed in range(seeds):
                    _compare(n, zipf, epsilon, seed, mine, theirs)
                print(f"{n:8.0e} {zipf:3} {epsilon:>3} {mine}  {theirs}", flush=True)
                spoiled += [number > 0 for number in mine.false]
                if (n, epsilon, zipf) == AIM:
                    aimed = mine
    _print_real()
    _print_aims(aimed, spoiled)


def _print_real() -> None:
    runs = Runs()
    words, seconds = timed(lambda: real.find(REAL, AIM[1], AIM[2], seed=0))
    runs.add(named_in(words), {word: rank for rank, word in enumerate(vocabulary())}, seconds)
    print(f"{REAL} real reports, epsilon {AIM[1]}, zipf {AIM[2]}, sent over HTTP: {runs}")


def named_in(words: FoundWords) -> list[str]:
    """Return the texts that are told to be there."""
    return [word.typed.decode("utf-8", "replace") for word in words.proposed if word.stands_out]


def _compare(n: int, zipf: float, epsilon: str, seed: int, mine: Runs, theirs: Runs) -> None:
    """Run both ways on the same devices."""
    mechanism = choose(BUCKETS, Decimal(epsilon), name=PGR.name)
    assert isinstance(mechanism, PGR)
    rng = np.random.default_rng(seed)
    held = devices(n, zipf, rng)
    groups = ours.groups_of(LAYOUT, seed)
    tallies = ours.draw(mechanism, groups, LAYOUT.weights, held, rng)
    words, seconds = timed(lambda: ours.find(mechanism, groups, tallies))
    mine.add(named_in(words), {word: rank for rank, word in enumerate(vocabulary())}, seconds)
    _run_pem(mechanism, Groups(groups.salt, pem.LEVELS), held, rng, theirs)


def _run_pem(mechanism: PGR, groups: Groups, held: Counts, rng: np.random.Generator, theirs: Runs) -> None:
    tallies = ours.draw_rows(mechanism, groups, pem.WEIGHTS, held, rng, pem.numbers_of)
    named, seconds = timed(lambda: pem.find(ours.sketches(mechanism, groups, tallies)))
    ranks: dict[str, int] = {}
    for rank, word in enumerate(vocabulary()):
        ranks.setdefault(word[: pem.CHARACTERS], rank)
    theirs.add(named, ranks, seconds)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what work returns, and the seconds that the processor took."""
    start = process_time()
    result = work()
    return result, process_time() - start


def _print_aims(aimed: Runs | None, spoiled: Sequence[int]) -> None:
    share = float(np.mean(spoiled))
    most = FALSE_WORDS + 2 * sqrt(FALSE_WORDS * (1 - FALSE_WORDS) / len(spoiled))
    print(f"runs with a false word: {share:.3f} of {len(spoiled)}, aim at most {most:.3f}")
    if aimed is not None:
        found, recall, seconds = (np.mean(each) for each in (aimed.found, aimed.first_10, aimed.seconds))
        print(f"n = 1e6, epsilon 2, zipf 1: {found:.1f} found, aim {FOUND_MIN}")
        print(f"recall at 10 {recall:.2f}, aim {RECALL_MIN}")
        print(f"{seconds:.1f} s, aim {SECONDS_MAX}; {_peak_mib():.0f} MiB, aim below {MIB_MAX}")


def _peak_mib() -> float:
    """Return the memory that finding takes at most, in MiB, beside the tallies."""
    mechanism = choose(BUCKETS, Decimal(AIM[1]), name=PGR.name)
    assert isinstance(mechanism, PGR)
    rng = np.random.default_rng(0)
    groups = ours.groups_of(LAYOUT, 0)
    tallies = ours.draw(mechanism, groups, LAYOUT.weights, devices(AIM[0], AIM[2], rng), rng)
    tracemalloc.start()
    ours.find(mechanism, groups, tallies)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return peak
