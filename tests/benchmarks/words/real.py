"""Real reports: from an answer through the device and HTTP to the store's tally, device by device."""

import os
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dither_aggregator.analysis.words import FoundWords, Wanted, search_tally
from dither_aggregator.simulate.fleet import Fleet
from dither_shared.registry import Registry, utc_today
from tests.benchmarks.words.vocabulary import devices, vocabulary
from tests.support.aggregators import aggregator
from tests.support.keys import write_key

WORD = "word"


def registry_text(epsilon: str) -> str:
    """Return the text of a registry that asks for words."""
    return f"""
[registry]
app = "benchmark"
device_epsilon = {epsilon}
quiet_days = 0

[metric.{WORD}]
rev = 1
kind = "words"
question = "Which word is yours?"
epsilon = {epsilon}
reports = 1
presence = "public"
period = "1d"
schedule = "early"
owners = ["team@example.org"]
sensitivity = "low"
expires = {utc_today() + timedelta(days=180)}
"""


def find(n: int, epsilon: str, zipf: float, seed: int) -> FoundWords:
    """Return the words that n devices' uploads tell: each draws its noise, and sends over HTTP."""
    held = devices(n, zipf, np.random.default_rng(seed)).tolist()
    said = [word for word, number in zip(vocabulary(), held, strict=True) for _ in range(number)]
    text = registry_text(epsilon)
    registry = Registry.parse(text)
    with TemporaryDirectory() as directory, aggregator(registry, Path(directory)) as (url, service):
        path = Path(directory) / "metrics.toml"
        path.write_text(text, encoding="utf-8")
        with Fleet(path, url, write_key(service.store), processes=os.cpu_count() or 1) as fleet:
            for done in fleet.send({WORD: said}):
                assert done.unsent == 0
        for shard in range(service.store.shards):
            service.store.fold_all(shard)
        metric = registry.metrics[WORD]
        tally = service.store.tally(metric.plan, service.store.today())
        assert tally.n == n
        return search_tally(metric.plan, tally, Wanted())[1]
