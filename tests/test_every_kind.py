"""Every kind of metric and every mechanism, from the app's answer to the API's estimate, over a real server."""

import json
import random
import secrets
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import requests
from scipy.stats import binom

from dither.sending.transport import HEADERS
from dither_aggregator.analysis import words
from dither_aggregator.analysis.inference import Z
from dither_aggregator.ingest.service import Service
from dither_aggregator.simulate.fleet import Answers, send
from dither_shared.mechanisms import PureMechanism
from dither_shared.registry import Metric, Registry, utc_today
from dither_shared.rng import Rng
from dither_shared.wire import PATH, REPORTS_MAX, encode_upload, new_upload_id
from tests.support.aggregators import aggregator
from tests.support.keys import write_key
from tests.support.soaking import MEMORY, scaled
from tests.support.stores import fold_all
from tests.support.waiting import wait_until

DEVICES, ASKED_ALL = 3_000, scaled(500, 1_000)
"""Some are asked for all, the others for numbers of which fewer than 3,000 are not shown."""
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
    "text_fresh": 'kind = "text"\nreports = 1\nepsilon = 4\ncandidates = ' + json.dumps([*VALUES[:10], "unheard of"]),
    "words": 'kind = "words"\nreports = 1\nepsilon = 4',
    "several": 'kind = "choices"\nticks_max = 2\nreports = 1\nepsilon = 4',
    "number": 'kind = "number"\nunit = "s"\nreports = 1\nepsilon = 4\nlow = 0\nhigh = 10\nbuckets = 5',
    "number_mean": 'kind = "number"\nunit = "s"\nreports = 1\nepsilon = 4\nlow = 0\nhigh = 10\nasks = ["mean"]',
    "number_again": 'kind = "number"\nunit = "s"\nmemoize = true\nepsilon = 4\nepsilon_permanent = 8\n'
    "low = 0\nhigh = 10\nbuckets = 8\ndecimals = 2",
    "several_again": 'kind = "choices"\nticks_max = 9\nmemoize = true\nanswers = 1\nepsilon = 4\nepsilon_permanent = 9',
}


def registry_text(names: Collection[str] = METRICS) -> str:
    values = "values = [" + ", ".join(f'"{value}"' for value in VALUES) + "]"
    parts = ['[registry]\napp = "kinds"\ndevice_epsilon = 150\nquiet_days = 0\n']
    for name in names:
        keys = METRICS[name]
        parts.append(
            f"[metric.{name}]\n{keys}\n{'' if name.startswith(('flag', 'text', 'words', 'number')) else values}\n"
            f"{'' if 'memoize' in keys else 'schedule = ' + chr(34) + 'early' + chr(34)}\n"
            'rev = 1\nquestion = "What?"\npresence = "public"\nperiod = "1d"\nowners = ["team@example.org"]\n'
            f'sensitivity = "low"\nexpires = {utc_today() + timedelta(days=30)}\n'
        )
    return "\n".join(parts)


def draw_answers(registry: Registry, rng: random.Random) -> Answers:
    def one(kind: str) -> object:
        if kind == "flag":
            return rng.random() < 0.3
        if kind == "number":
            return rng.betavariate(2, 5) * 14 - 1 if rng.random() < 20 / 23 else rng.choice([None, "text", 0.0])
        if kind in ("choice", "text", "words"):
            return rng.choices([*VALUES, None], range(13, 0, -1))[0]
        return rng.sample(VALUES, rng.randrange(3))

    return {
        name: [one(metric.kind.name) for _ in range(DEVICES if name in ("number", "number_again") else ASKED_ALL)]
        for name, metric in registry.metrics.items()
    }


def send_at_once(metric: Metric, answers: Sequence[object], url: str, key: str) -> None:
    """Send the answers of further devices, which differ from the others in that one upload has all their reports."""
    coins, reports = Rng(secrets.randbits), dict[int, list[int | str]]()
    for answer in answers:
        cell = metric.cells.draw(coins)
        mechanism = metric.cells.mechanism_of(cell)
        report = mechanism.randomize(metric.class_of(metric.read(answer), cell, coins), coins)
        reports.setdefault(cell, []).append(mechanism.shape.to_wire(int(report)))
    if reports:
        cells = metric.cells.several
        groups = [(metric.name, metric.plan.digest, each, cell if cells else None) for cell, each in reports.items()]
        body, headers = encode_upload(new_upload_id(secrets.randbits), groups), {"Authorization": f"Bearer {key}"}
        assert requests.post(f"{url}{PATH}", body, headers=HEADERS | headers, timeout=120).status_code == 202


def check_numbers(name: str, answers: Sequence[object], rows: Sequence[dict[str, Any]]) -> None:
    """Shares are of those who gave a number. The other two forms count what is no number as the lowest."""
    told = [answer for answer in answers if isinstance(answer, float)]
    cut = [min(max(answer, 0.0), 10.0) for answer in told]
    if name != "number":
        cut += [0.0] * (len(answers) - len(told))
    by_statistic = Counter(row["statistic"] for row in rows)
    assert by_statistic["mean"] == 1
    assert by_statistic["share"] == {"number": 7}.get(name, by_statistic["share"])
    for row in rows:
        least, most, error = row["estimate"], row["estimate"], 3 * (row["upper"] - row["lower"])
        if row["statistic"] == "mean":
            truth = sum(cut) / len(cut)
            least, most = (end if row[key] is None else row[key] for key, end in (("low", least), ("high", most)))
        elif name == "number" and row["statistic"] == "share":
            low, high = (end if row[key] is None else row[key] for key, end in (("low", -inf), ("high", inf)))
            truth = sum(low <= answer < high for answer in told) / len(told)
        else:
            continue
        assert least - error < truth < most + error, (name, row)


def check_estimates(registry: Registry, answers: Answers, url: str, service: Service) -> None:
    """Assert that all reports are counted, and that each estimate is near the truth."""
    wait_until(lambda: not service.store.backlog())
    assert all(row.balanced for row in service.store.ledger())
    for name, metric in registry.metrics.items():
        reading = requests.get(f"{url}/v1/metrics/{name}/estimates?window=today", timeout=120).json()
        assert reading["meta"]["n"] == len(answers[name])
        if metric.kind.name == "number":
            check_numbers(name, answers[name], reading["rows"])
            continue
        truth = Counter(value for answer in answers[name] for value in metric.names(answer))
        # A value with too low a count has too small an error.
        error = max((row["upper"] - row["lower"]) / 2 / Z for row in reading["rows"])
        for row in reading["rows"]:
            off = row["estimate"] - truth[row["value"]] / ASKED_ALL
            assert abs(off) < 7 * error, (name, row)


@pytest.mark.slow
def test_estimates_of_every_kind_hold_the_truth() -> None:
    """Some 130 estimates, none of a list 7 standard errors off: the noise is fresh each time.

    The rate of false alarms stands below; by the normal law texts, words and numbers, at 6 or 7, add less than 2e-7.
    """
    registry = Registry.parse(registry_text())
    answers = draw_answers(registry, random.Random(11))
    done: list[int] = []
    with (
        TemporaryDirectory(dir=MEMORY) as home,
        aggregator(registry, Path(home), fold_every_s=3600) as (url, service),  # words are a large tally: once
    ):
        key = write_key(service.store)
        send(registry, url, key, {name: each[:ASKED_ALL] for name, each in answers.items()}, done.append)
        assert (len(done), sum(done)) == (ASKED_ALL, 0)
        for name, each in answers.items():
            for first in range(ASKED_ALL, len(each), REPORTS_MAX):
                send_at_once(registry.metrics[name], each[first : first + REPORTS_MAX], url, key)
        fold_all(service.store)
        with patch.object(words, "LOOKED_AT_MAX", scaled(500, 2_000)):  # those of noise come last
            check_estimates(registry, answers, url, service)


def test_the_check_of_lists_has_a_false_alarm_in_less_than_one_of_two_million_runs() -> None:
    """By the exact laws of supports, even if the error that a reading states is a tenth too small."""
    registry = Registry.parse(registry_text())
    answers = draw_answers(registry, random.Random(11))
    rates: list[float] = []
    for name, metric in registry.metrics.items():
        if metric.kind.name in ("flag", "choice", "choices"):
            mechanism = metric.mechanism
            assert isinstance(mechanism, PureMechanism)
            p, q = float(mechanism.p), float(mechanism.q)
            given = Counter(value for answer in answers[name] for value in metric.names(answer))
            have = np.array([given[value] for value in set(given) | set(VALUES if metric.kind.name != "flag" else ())])
            deviation = np.sqrt(have * p * (1 - p) + (ASKED_ALL - have) * q * (1 - q)).max()
            for number in have.tolist():
                of_them = binom.pmf(np.arange(number + 1), number, p)
                of_others = binom.pmf(np.arange(ASKED_ALL - number + 1), ASKED_ALL - number, q)
                support, mean = np.arange(ASKED_ALL + 1), number * p + (ASKED_ALL - number) * q
                far = np.abs(support - mean) >= 7 * 0.9 * deviation
                rates.append(float(np.convolve(of_them, of_others)[far].sum()))
    assert len(rates) > 100
    assert sum(rates) < 5e-7
