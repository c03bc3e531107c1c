"""Every kind of metric and every mechanism, from the app's answer to the API's estimate, over a real server."""

import json
import random
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from dither_aggregator.simulate.fleet import Answers, send
from dither_shared.registry import Registry, utc_today
from tests.support.aggregators import aggregator

DEVICES = 2_500
VALUES = [f"v{number}" for number in range(12)]
METRICS = {
    "flag": 'kind = "flag"\nreports = 1\nepsilon = 2',
    "flag_again": 'kind = "flag"\nmemoize = true\nanswers = 1\nepsilon = 1\nepsilon_permanent = 3',
    "named_grr": 'kind = "choice"\nreports = 1\nepsilon = 2\nmechanism = "grr"',
    "named_ss": 'kind = "choice"\nreports = 1\nepsilon = 2\nmechanism = "ss"',
    "named_pgr": 'kind = "choice"\nreports = 1\nepsilon = 2\nmechanism = "pgr"',
    "named_oue": 'kind = "choice"\nreports = 1\nepsilon = 2\nmechanism = "oue"',
    "memo_grr": 'kind = "choice"\nmemoize = true\nanswers = 1\nepsilon = 2\nepsilon_permanent = 4\nmechanism = "grr"',
    "memo_pgr": 'kind = "choice"\nmemoize = true\nanswers = 1\nepsilon = 2\nepsilon_permanent = 4\nmechanism = "pgr"',
    "memo_oue": 'kind = "choice"\nmemoize = true\nanswers = 1\nepsilon = 2\nepsilon_permanent = 4\nmechanism = "oue"',
    "text": 'kind = "text"\nmemoize = true\nanswers = 1\nepsilon = 4\nepsilon_permanent = 8\n'
    "candidates_expected = 20\ncandidates = " + json.dumps([*VALUES[:10], "unheard of"]),
    "several": 'kind = "choices"\nticks_max = 2\nreports = 1\nepsilon = 4',
    "several_again": 'kind = "choices"\nticks_max = 9\nmemoize = true\nanswers = 1\nepsilon = 4\nepsilon_permanent = 9',
}


def registry_text() -> str:
    values = "values = [" + ", ".join(f'"{value}"' for value in VALUES) + "]"
    parts = ['[registry]\napp = "kinds"\ndevice_epsilon = 100\nquiet_days = 0\n']
    for name, keys in METRICS.items():
        parts.append(
            f"[metric.{name}]\n{keys}\n{'' if 'flag' in name or name == 'text' else values}\n"
            f"{'' if 'memoize' in keys else 'schedule = ' + chr(34) + 'early' + chr(34)}\n"
            'rev = 1\nquestion = "What?"\npresence = "public"\nperiod = "1d"\nowners = ["team@example.org"]\n'
            f'sensitivity = "low"\nexpires = {utc_today() + timedelta(days=30)}\n'
        )
    return "\n".join(parts)


def draw_answers(registry: Registry, rng: random.Random) -> Answers:
    def one(kind: str) -> object:
        if kind == "flag":
            return rng.random() < 0.3
        if kind in ("choice", "text"):
            return rng.choices([*VALUES, None], range(13, 0, -1))[0]
        return rng.sample(VALUES, rng.randrange(3))

    return {name: [one(metric.kind.name) for _ in range(DEVICES)] for name, metric in registry.metrics.items()}


@pytest.mark.slow
def test_estimates_of_every_kind_hold_the_truth(tmp_path: Path) -> None:
    """Some 120 estimates, none 6 standard errors off: the noise is fresh each time, a false alarm of 3e-7 in a run."""
    registry = Registry.parse(registry_text())
    answers = draw_answers(registry, random.Random(11))
    done: list[int] = []
    with aggregator(registry, tmp_path) as (url, service):
        send(registry, url, service.store.key, answers, done.append)
        assert (len(done), sum(done)) == (DEVICES, 0)
        deadline = time.monotonic() + 30
        while service.store.backlog():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert all(row.balanced for row in service.store.ledger())
        for name, metric in registry.metrics.items():
            reading = requests.get(f"{url}/v1/metrics/{name}/estimates?window=today", timeout=30).json()
            truth = Counter(value for answer in answers[name] for value in metric.names(answer))
            assert reading["meta"]["n"] == DEVICES
            for row in reading["rows"]:
                off = row["estimate"] - truth[row["value"]] / DEVICES
                assert abs(off) < 6 * row["std_error"], (name, row)
