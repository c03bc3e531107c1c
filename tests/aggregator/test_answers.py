"""Answers: sentences that state only what intervals tell, and are as rarely false as these."""

import re
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import Shares
from dither_aggregator.web.charts.scale import Measure
from dither_aggregator.web.pages import overview
from dither_aggregator.web.pages.presentation import ReadingAnswer
from dither_aggregator.web.pages.shares import leaders_in_words
from dither_shared.registry import Registry
from tests.support.sites import EXPIRES, Site, site, site_of
from tests.support.soaking import scaled

ALARM = 1e-6


def row(name: str, lower: float, upper: float) -> Row:
    return Row(name, (lower + upper) / 2, (upper - lower) / 4, lower, upper)


A, B, C, D, E = (
    row(*each) for each in (("a", 0.4, 0.5), ("b", 0.2, 0.3), ("c", 0.25, 0.31), ("d", 0.1, 0.15), ("e", 0.4, 0.46))
)


@pytest.mark.parametrize(
    ("out", "ceiling", "sentence"),
    [
        ([A], 0.1, "a leads with 45 % (40 to 50); no other value can be told from zero."),
        ([A], 0.45, "a has 45 % (40 to 50); no other value can be told from zero."),
        ([A, D], 0.05, "a leads with 45 % (40 to 50); d follows with 12 % (10 to 15)."),
        ([A, C, B, D], 0.1, "a leads with 45 % (40 to 50); c and b follow, not told apart."),
        ([A, C, B, D], 0.3, "a leads with 45 % (40 to 50); 3 more stand out."),
        ([A, E, D], 0.1, "a and e lead, not told apart, with 45 % (40 to 50) and 43 % (40 to 46)."),
        ([A, E, D], 0.41, "3 values stand out, none told to lead: a has 45 % (40 to 50)."),
        ([A, E, A, E], 0.1, "4 values lead, not told apart: a has 45 % (40 to 50)."),
    ],
)
def test_a_sentence_names_what_intervals_tell_apart_and_no_more(out: list[Row], ceiling: float, sentence: str) -> None:
    assert leaders_in_words(out, ceiling).replace("\N{NO-BREAK SPACE}", " ") == sentence


@pytest.mark.parametrize(
    ("estimate", "lower", "upper", "says"),
    [
        (0.2237, 0.2012, 0.2439, "22 % (20 to 25)"),
        (0.0123, 0.0101, 0.0149, "1.2 % (1.0 to 1.5)"),
        (0.99, 0.9, 1.1, "99 % (90 to 100)"),
        (0.2, 0.004, 0.4, "20.0 % (0.4 to 40.0)"),
    ],
)
def test_an_interval_in_a_sentence_is_rounded_outward(estimate: float, lower: float, upper: float, says: str) -> None:
    assert Measure().about(estimate, lower, upper).replace("\N{NO-BREAK SPACE}", " ") == says


def test_a_unit_has_a_singular_and_none_prints_nothing() -> None:
    assert [Measure("hours").edge(each) for each in (1, 2)] == ["1\xa0hour", "2\xa0hours"]
    assert [Measure(unit).edge(1) for unit in ("ms", "entries", "boxes", "1")] == [
        "1\xa0ms",
        "1\xa0entry",
        "1\xa0box",
        "1",
    ]


# How often sentences are false.


def is_false(sentence: str, truth: Mapping[str, float]) -> bool:
    """Tell whether a sentence on listed values states what is not so."""
    text = sentence.replace("\N{NO-BREAK SPACE}", " ")
    ordered = sorted(truth, key=lambda name: -truth[name])
    names = "|".join(re.escape(name) for name in truth)
    missed = [
        not float(lower) <= 100 * truth[name] <= float(upper)
        for name, lower, upper in re.findall(
            rf"({names}) (?:leads with|follows with|has) \S+ % \((\S+) to (\S+)\)", text
        )
    ]
    if led := re.match(rf"({names}) leads", text):
        missed.append(truth[led[1]] <= truth[ordered[1]] or led[1] != ordered[0])
        if follows := re.search(r"; (.*) (?:follow,|follows)", text):
            missed.append(max(truth[name] for name in re.findall(names, follows[1])) < truth[ordered[1]])
    elif tied := re.match(r"(.*) lead, not told apart, with", text):
        missed.append(ordered[0] not in re.findall(names, tied[1]))
        ends = re.findall(r"\((\S+) to (\S+?)\)", text)
        missed += [
            not float(lower) <= 100 * truth[name] <= float(upper)
            for name, (lower, upper) in zip(re.findall(names, tied[1]), ends, strict=True)
        ]
    return any(missed)


def false_pages(one: Site, pages: int) -> int:
    """Return how many headlines are false, of values of which 28 are as large."""
    rng, counts = np.random.default_rng(8), np.array([150] * 28 + [100, 50, 0, 600])
    shares = counts / counts.sum()
    truth = {f"model {at}": float(shares[at]) for at in range(len(counts) - 1)}
    false = 0
    for _ in range(pages):
        one.put(rng.multinomial(5_000, shares).astype(np.int64), rng)
        false += is_false(one.page().headline, truth)
    return false


def test_a_headline_is_false_on_at_most_5_percent_of_pages(tmp_path: Path) -> None:
    """150 pages, or 1,500: a false alarm of 1e-6. Intervals that hold each alone are caught."""
    pages = scaled(150, 1_500)
    with site(tmp_path, 32) as one:
        assert false_pages(one, pages) <= binom.isf(ALARM, pages, 0.05)
        with patch.object(
            Shares, "opening", lambda self, days, confidence=0.95: View(days=days, confidence=confidence)
        ):
            assert false_pages(one, pages) > binom.isf(ALARM, pages, 0.05)


NOISE, TRUE = 40, 1
METRICS = "".join(
    f"""
[metric.m{number:02}]
kind = "choice"
question = "Which one, for the {number}th time?"
values = ["a{number:02}", "b", "c", "d", "e", "f"]
rev = 1
epsilon = 1.0
reports = 1
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {EXPIRES}
"""
    for number in range(NOISE + TRUE)
)


def false_parts(one: Site, worlds: int) -> float:
    """Return which part of the cards that lead with a value do so falsely, on average over worlds."""
    rng, parts = np.random.default_rng(9), []
    for _ in range(worlds):
        for stored in one.store.plans():
            has_one = int(stored.plan.metric[1:]) >= NOISE
            one.put(np.array([900 * has_one, 0, 0, 0, 0, 0, 2_000 - 900 * has_one]), rng, plan=stored.plan)
        one.client.application.extensions.clear()
        found = re.findall(r'title="m(\d\d)".*?<p class="answer">(.*?)</p>', one.client.get("/").text, re.DOTALL)
        told = [int(number) < NOISE for number, sentence in found if re.match(r"(a\d\d|[b-f]) ", sentence)]
        parts.append(float(np.mean(told)) if told else 0.0)
    return float(np.mean(parts))


def test_cards_that_lead_with_noise_are_at_most_5_percent_on_average(tmp_path: Path) -> None:
    """In one of 41 metrics is something. By Hoeffding, a false alarm needs .05 + .53: 1e-6 for 25 worlds.

    Without the false discovery rate two of 40 metrics of noise say something, beside the one that has it: caught.
    """
    worlds = scaled(25, 400)
    limit = 0.05 + float(np.sqrt(np.log(1 / ALARM) / 2 / worlds))

    def each_by_itself(_: object, __: object, ___: object, answers: Mapping[str, ReadingAnswer]) -> object:
        return {name: answer for name, answer in answers.items() if answer.rows}

    head = '[registry]\napp = "example"\ndevice_epsilon = 1000.0\nquiet_days = 0\n'
    with site_of(Registry.parse(head + METRICS), tmp_path) as one:
        assert false_parts(one, worlds) <= limit
        alone = lambda _, days, confidence=0.95: View(days=days, confidence=confidence)  # noqa: E731
        with patch.object(overview, "_stand_out", each_by_itself), patch.object(Shares, "opening", alone):
            assert false_parts(one, worlds) > limit
