"""Real reports: from an answer through the kind, the cells and the randomizer to a tally, device by device."""

import random
from collections import defaultdict
from datetime import timedelta
from typing import cast

import numpy as np

from dither_aggregator.analysis.words.reading import search_tally
from dither_aggregator.analysis.words.verdict import FoundWords, Wanted
from dither_aggregator.counting.folding import fold_cells
from dither_aggregator.store import Tally
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.rng import Rng
from dither_shared.shapes import Symbols
from tests.benchmarks.words.vocabulary import devices, vocabulary


def metric_of(epsilon: str) -> Metric:
    """Return a metric that asks for words."""
    text = f"""
[registry]
app = "benchmark"
device_epsilon = {epsilon}
quiet_days = 0

[metric.word]
rev = 1
kind = "words"
question = "Which word is yours?"
epsilon = {epsilon}
reports = 1
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {utc_today() + timedelta(days=180)}
"""
    return Registry.parse(text).metrics["word"]


def find(n: int, epsilon: str, zipf: float, seed: int) -> FoundWords:
    """Return the words that n devices' real reports tell."""
    metric = metric_of(epsilon)
    chance = random.Random(seed)
    rng = Rng(chance.getrandbits)
    reports: dict[int, list[int]] = defaultdict(list)
    for word, number in zip(vocabulary(), devices(n, zipf, np.random.default_rng(seed)).tolist(), strict=True):
        for _ in range(number):
            cell = metric.cells.draw(rng)
            seen = metric.class_of(metric.read(word), cell, rng)
            reports[cell].append(metric.cells.mechanism_of(cell).randomize(seen, rng))
    width = cast("Symbols", metric.cells.mechanism_of(0).shape).width
    packed = {cell: np.array(each, dtype=f"<u{width}").tobytes() for cell, each in reports.items()}
    return search_tally(metric.plan, Tally(n, fold_cells(metric.cells, packed)), Wanted())[1]
