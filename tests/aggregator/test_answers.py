"""Answers: sentences that state only what intervals tell, and are as rarely false as these."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import words
from dither_aggregator.analysis.estimands import estimand_of, estimate
from dither_aggregator.analysis.numbers import LEADING, Statistics, fit_tally
from dither_aggregator.analysis.reading import Reading, View
from dither_aggregator.analysis.rows import Row
from dither_aggregator.analysis.shares import Shares
from dither_aggregator.analysis.tables.reading import TablesReading
from dither_aggregator.analysis.words import LONGER, Sketched, Wanted, Word, WordsReading
from dither_aggregator.store import StoredPlan, Tally
from dither_aggregator.web.charts import Measure
from dither_aggregator.web.pages import overview
from dither_aggregator.web.pages.presentation import ReadingAnswer, presentation_of
from dither_aggregator.web.pages.shares import leaders_in_words
from dither_shared.mechanisms import PGR
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng
from tests.aggregator.words.test_reading import tally_of
from tests.support.drawn_numbers import DAY, Population, draw_numbers, population, stored_number
from tests.support.drawn_tables import alone, draw_table, stored_table
from tests.support.laws import pure
from tests.support.points import draw_points
from tests.support.registries import metrics_text, registry
from tests.support.sites import EXPIRES, Site, site, site_of
from tests.support.soaking import exceed, scaled
from tests.support.tables import table
from tests.support.tallies import draw_tally

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
        ([A, C, B, D], 0.3, "a leads with 45 % (40 to 50); 3 more stand out from the noise."),
        ([A, E, D], 0.1, "a and e lead, not told apart, with 45 % (40 to 50) and 43 % (40 to 46)."),
        ([A, E, D], 0.41, "Which value leads cannot be told: 3 stand out, a with 45 % (40 to 50)."),
        ([A] * 7, 0.1, "7 values lead, not told apart: a has 45 % (40 to 50)."),
        ([A, E, A, E], 0.1, "a, e and 2 more lead, not told apart: a has 45 % (40 to 50)."),
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


def false_pages(one: Site, pages: int) -> Iterator[bool]:
    """Yield whether a headline is false, of values of which 28 are as large."""
    rng, counts = np.random.default_rng(8), np.array([150] * 28 + [100, 50, 0, 600])
    shares = counts / counts.sum()
    truth = {f"model {at}": float(shares[at]) for at in range(len(counts) - 1)}
    for _ in range(pages):
        one.put(rng.multinomial(5_000, shares).astype(np.int64), rng)
        yield is_false(one.page().headline, truth)


def test_a_headline_is_false_on_at_most_5_percent_of_pages(tmp_path: Path) -> None:
    """70 pages, or 1,500: a false alarm of 1e-6. Intervals that hold each alone are caught."""
    pages = scaled(70, 1_500)
    most = binom.isf(ALARM, pages, 0.05)
    with site(tmp_path, 32) as one:
        assert not exceed(false_pages(one, pages), most)
        with patch.object(
            Shares, "opening", lambda self, days, confidence=0.95: View(days=days, confidence=confidence)
        ):
            assert exceed(false_pages(one, pages), most)


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
    """In one of 41 metrics is something. A false alarm is 1e-6: e^(-worlds KL(limit, .05)), Hoeffding 1963, theorem 1.

    Without the false discovery rate two of 40 metrics of noise say something, beside the one that has it: caught.
    """
    worlds, limit = scaled(12, 400), scaled(602, 118) / 1_000

    def each_by_itself(_: object, __: object, ___: object, answers: Mapping[str, ReadingAnswer]) -> object:
        return {name: answer for name, answer in answers.items() if answer.rows}

    head = '[registry]\napp = "example"\ndevice_epsilon = 1000.0\nquiet_days = 0\n'
    with site_of(Registry.parse(head + METRICS), tmp_path) as one:
        assert false_parts(one, worlds) <= limit
        alone = lambda _, days, confidence=0.95: View(days=days, confidence=confidence)  # noqa: E731
        with patch.object(overview, "_stand_out", each_by_itself), patch.object(Shares, "opening", alone):
            assert false_parts(one, worlds) > limit


# The same, of the other kinds. Listed values, cards and groups (`test_groups.py`) have tests of their own.

SURE, UNSURE = 0.95, 0.2
"""The confidence of a page, whose intervals hold at once; and one that must be caught, of each by itself."""


def reading_of(stored: StoredPlan, tally: Tally, confidence: float, values: tuple[str, ...] | None = None) -> Reading:
    """Return what a metric's page opens with, or some of its rows."""
    view = estimand_of(stored.plan).opening(1, confidence)
    return estimate(
        stored, DAY, tally, replace(view, values=values, simultaneous=view.simultaneous and confidence == SURE)
    )


def says(reading: Reading) -> str:
    """Return the sentence of a reading, its spaces plain."""
    return presentation_of(reading.stored.plan).answered(reading).sentence.replace("\N{NO-BREAK SPACE}", " ")


def is_beside(sentence: str, truth: float) -> bool:
    """Tell whether a sentence's one interval, in parentheses, misses the truth."""
    ((lower, upper),) = re.findall(r"\((\S+) to (\S+?)\)", sentence)
    return not float(lower) <= truth <= float(upper)


def quantile_is_beside(words: str, truth: float) -> bool:
    """Tell whether "are below 2 to 3 s", "reach 9 s or more" or "are at most 1 s" misses a quantile."""
    numbers = [float(each) for each in re.findall(r"\d+(?:\.\d+)?", words)]
    if "or more" in words:
        return truth < numbers[0]
    return not (0.0 if "at most" in words else numbers[0]) <= truth <= numbers[-1]


def one_share(seed: int, confidence: float) -> bool:
    """A flag: 31 of 100 say yes."""
    metric = registry(epsilon="1").metrics["dark"]
    stored = StoredPlan(0, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)
    rng = np.random.default_rng([seed, 1])
    counts = rng.multinomial(900, [0.69, 0.31])
    drawn = np.concatenate([[900], draw_tally(pure(metric.plan), counts, rng)])
    return is_beside(says(reading_of(stored, Tally(900, drawn), confidence)), 31.0)


WAITS = population(np.exp(np.linspace(-2.5, 2.5, 201)) * 3, np.exp(-(np.linspace(-2.5, 2.5, 201) ** 2) / 2))


def drawn_numbers(stored: StoredPlan, whole: Population, n: int, seed: int) -> Tally:
    return draw_numbers(stored.plan, whole.places(stored.plan), n, np.random.default_rng([seed, 2]))


def quantiles(seed: int, confidence: float) -> bool:
    """Half, and nine in ten, of numbers in 40 ranges.

    Narrow intervals are of whole ranges, too, and hold: what must be caught are people who wait half as long again.
    """
    asked = WAITS if confidence == SURE else replace(WAITS, numbers=WAITS.numbers * 1.5)
    stored = stored_number('low = 0.1\nhigh = 60\nbuckets = 40\nscale = "log"', epsilon="4")
    sentence = says(reading_of(stored, drawn_numbers(stored, asked, 20_000, seed), confidence, LEADING))
    half, most = sentence.removesuffix(".").split("; ")
    assert half.startswith("The median is ")
    return quantile_is_beside(half, WAITS.quantile(0.5)) or quantile_is_beside(most, WAITS.quantile(0.9))


def a_mean(seed: int, confidence: float) -> bool:
    """A mean that is all that is asked."""
    stored = stored_number('low = 0\nhigh = 60\nasks = ["mean"]', epsilon="2")
    sentence = says(reading_of(stored, drawn_numbers(stored, WAITS, 3_000, seed), confidence))
    return is_beside(sentence, WAITS.mean(0, 60))


def bars(seed: int, confidence: float) -> bool:
    """Neighbouring ranges that are one bar, by a rule of the plan and n."""
    stored = stored_number("low = 0\nhigh = 64\nbuckets = 64", epsilon="4")
    tally, view = drawn_numbers(stored, WAITS, 5_000, seed), replace(VIEW, confidence=confidence)
    told = list(Statistics(stored.plan, fit_tally(stored, tally, view), view, ()).blocks())
    assert 4 < len(told) < 64
    last = len(told) - 1
    return any(
        not row.lower <= WAITS.share(row.low if place else None, row.high if place < last else None) <= row.upper
        for place, row in enumerate(told)
    )


VIEW = View(simultaneous=True, error_of="population")
EFFECTS = (
    alone((0.7, 0.29, 0.01), (0.5, 0.49, 0.01), (0.2, 0.79, 0.01)),
    alone((0.8, 0.19, 0.01), (0.5, 0.49, 0.01), (0.2, 0.79, 0.01)),
)
DIFFERENCE = r"With arm “(\d)”, “(\S+)” is “(\S+)” in .*? \((\S+) to (\S+) points (more|less)\)"


def an_effect(seed: int, confidence: float) -> bool:
    """An experiment of two arms: one column differs by 10 points, two do not, and no columns go together."""
    stored = stored_table(table("a = ['n', 'y'], b = ['n', 'y'], c = ['n', 'y']".replace("'", '"'), 'arm = ["1", "2"]'))
    tally = draw_table(stored.plan, EFFECTS, (20_000, 20_000), np.random.default_rng([seed, 3]))
    reading = reading_of(stored, tally, confidence)
    assert isinstance(reading, TablesReading)
    found = {frozenset((row.column, row.group_column)) for row in reading.of("association")}
    told = {
        frozenset((row.column, row.group_column)) for row in reading.of("association") if row.verdict == "associated"
    }
    assert {frozenset(pair) for pair in combinations("abc", 2)} <= found
    if any("arm" not in pair for pair in told):
        return True
    for arm, column, label, lower, upper, way in re.findall(DIFFERENCE, says(reading)):
        truth = {("n", "1"): -10.0, ("y", "1"): 10.0, ("n", "2"): 10.0, ("y", "2"): -10.0}[label, arm]
        least, most = sorted(float(end) for end in (lower, upper))
        if column != "a" or (truth > 0) != (way == "more") or not least <= abs(truth) <= most:
            return True
    return False


TEXTS: dict[str | None, float] = {"opera": 0.3, "chrome": 0.2, "firefox": 0.2, "lynx": 0.1}


def texts(seed: int, confidence: float) -> bool:
    """Texts, looked for in a list in which some are missing and others are nobody's."""
    lines = {"kind": "text", "candidates": ["opera", "chrome", "firefox", *map(str, range(20))], "epsilon": 3}
    metric = Registry.parse(metrics_text({"site": {**lines, "reports": 1, "expires": EXPIRES}})).metrics["site"]
    stored = StoredPlan(
        0, metric.plan, metric.question, metric.asked.candidates, metric.reservation, metric.expires, current=True
    )
    reading = reading_of(stored, tally_of(metric, 1_500, TEXTS, seed + 2), confidence)
    if confidence == UNSURE:  # the page takes intervals that hold each on its own for those that hold at once
        reading = replace(reading, view=replace(reading.view, simultaneous=True))
    return is_false(says(reading), {name: TEXTS.get(name, 0.0) for name in metric.asked.candidates})


WORDS = {"opera": 0.3, "a-long-name-of-a-browser": 0.2, "firefox": 0.2, "lynx": 0.1}
STRANGERS = [f"{number:05}" for number in range(200)]
"""Texts of the other devices: hardly two have the same one."""


def words_tally(metric: Metric, n: int, seed: int) -> Tally:
    """Return the tally of n devices that have words and strange texts, cell by cell."""
    rng, answers = np.random.default_rng([seed, 5]), [*WORDS, *STRANGERS]
    strange = (1 - sum(WORDS.values())) / len(STRANGERS)
    held = rng.multinomial(n, [*WORDS.values(), *[strange] * len(STRANGERS)])
    parts = [part for part in metric.cells.parts for _ in range(part.cells)]
    weights = np.array([part.weight / part.cells for part in parts])
    counts, coins = [], Rng(random.Random(seed).getrandbits)
    for cell, (part, here) in enumerate(zip(parts, rng.multinomial(held, weights / weights.sum()).T, strict=True)):
        seen = [metric.class_of(metric.read(answer), cell, coins) for answer in answers]
        assert isinstance(part.mechanism, PGR)
        drawn = draw_points(part.mechanism, np.bincount(seen, weights=here).astype(np.int64), rng)
        counts += [np.array([here.sum()]), drawn]
    return Tally(n, np.concatenate(counts))


def some_words(seed: int, confidence: float) -> bool:
    """Words that nobody listed, one of them longer than what is told: a word that nobody has makes a page false, too.

    To be caught: an interval and a verdict of each proposed text by itself.
    """
    metric = registry(kind="words", reports=1, epsilon="4", color="").metrics["color"]
    stored = StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)

    def judged(texts: Sequence[bytes], estimates: Sketched, together: int, wanted: Wanted) -> tuple[Word, ...]:
        return each_judged(texts, estimates, together if confidence == SURE else 1, wanted)

    each_judged, few = words._judged, scaled(500, words.LOOKED_AT_MAX)
    with patch.object(words, "_judged", judged), patch.object(words, "LOOKED_AT_MAX", few):
        reading = reading_of(stored, words_tally(metric, 8_000, seed), confidence)
    assert isinstance(reading, WordsReading)
    starts = [row.value.removesuffix(LONGER) for row in reading.rows if not row.whole]
    truth = {word: share for word, share in WORDS.items() if not any(word.startswith(start) for start in starts)}
    truth |= {start + LONGER: sum(WORDS[word] for word in WORDS if word.startswith(start)) for start in starts}
    truth |= {row.value: (1 - sum(WORDS.values())) / len(STRANGERS) for row in reading.rows if row.value in STRANGERS}
    nobodys = {row.value for row in reading.rows if row.named and row.value not in truth}
    return bool(nobodys) or any(not truth[start + LONGER] for start in starts) or is_false(says(reading), truth)


PAGES: dict[Callable[[int, float], bool], tuple[int, int]] = {
    one_share: (40, 1_500),
    quantiles: (20, 1_000),
    a_mean: (20, 1_500),
    bars: (20, 1_500),
    an_effect: (12, 1_000),
    texts: (7, 500),
    some_words: (5, 500),
}
"""How many pages of each kind are drawn, in `make test` and in a soak."""


@pytest.mark.parametrize("kind", PAGES)
def test_a_sentence_of_any_kind_is_false_on_at_most_5_percent_of_pages(kind: Callable[[int, float], bool]) -> None:
    """A false alarm of 1e-6 for each kind; the sentences of intervals that hold too rarely are caught."""
    pages = scaled(*PAGES[kind])
    most = binom.isf(ALARM, pages, 0.05)
    assert not exceed((kind(seed, SURE) for seed in range(pages)), most)
    assert exceed((kind(seed, UNSURE) for seed in range(pages)), most)
