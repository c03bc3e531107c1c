"""The sum of the values that do not stand out: its law by enumeration, its intervals over many populations."""

import random
import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.inference import Floats
from dither_aggregator.analysis.reading import Reading, Sum, View, sum_shares
from dither_aggregator.store import StoredPlan, Tally
from dither_aggregator.web.charts import end, precise
from dither_shared.mechanisms import GRR, OUE, PGR, SUE, PrivSet, PureMechanism, SubsetSelection
from tests.support.laws import answers, law, pure, supports
from tests.support.registries import registry
from tests.support.sites import Site, share, site, zipf
from tests.support.soaking import scaled
from tests.support.tallies import Counts, draw_tally

DAY = date(2026, 11, 22)
E = Decimal(1)
HUGE = 10**12
"""So many reports that n / (n - 1) is one."""

SMALL: tuple[PureMechanism, ...] = (
    GRR.for_epsilon(4, E),
    *(SubsetSelection.for_weight(d, w, E) for d, w in ((2, 1), (4, 1), (5, 2), (5, 4))),
    *(PrivSet.for_weight(*a, E) for a in ((3, 2, 1), (3, 2, 2), (4, 1, 2), (4, 3, 2), (5, 2, 2))),
    *(kind.for_epsilon(d, E, ticks) for kind in (OUE, SUE) for d, ticks in ((3, 1), (4, 2), (3, 3))),
    *(PGR.for_design(d, r, t, E) for d, r, t in ((7, 2, 3), (5, 2, 3), (9, 3, 3), (15, 2, 4))),
)


@pytest.mark.parametrize("mechanism", [each for each in SMALL if each.pairs], ids=str)
def test_two_values_are_supported_as_often_as_enumeration_counts(mechanism: PureMechanism) -> None:
    assert mechanism.pairs is not None
    for answer in answers(mechanism):
        of_answer = law(mechanism, answer)
        for pair in combinations(range(mechanism.d), 2):
            held = len({*pair} & {*answer})
            exact = sum(
                (share for report, share in of_answer.items() if all(supports(mechanism, report, v) for v in pair)),
                Fraction(0),
            )
            assert exact == getattr(mechanism.pairs, ("neither", "one", "both")[held])


def moments(mechanism: PureMechanism, answer: Sequence[int], among: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Return the mean and the variance of how many of some values a report of an answer supports, by enumeration."""
    counted = [
        (sum(supports(mechanism, report, value) for value in among), share)
        for report, share in law(mechanism, answer).items()
    ]
    mean = sum((g * share for g, share in counted), Fraction(0))
    return mean, sum((g * g * share for g, share in counted), Fraction(0)) - mean**2


def expected(mechanism: PureMechanism, weights: dict[tuple[int, ...], Fraction]) -> Floats:
    """Return the expected tally of reports whose answers have these shares."""
    counts = np.zeros(mechanism.shape.size)
    for answer, weight in weights.items():
        for report, probability in law(mechanism, answer).items():
            if mechanism.geometry:
                counts[report] += float(weight * probability)
            else:
                held = [supports(mechanism, report, value) for value in range(mechanism.d)]
                counts[: mechanism.d] += float(weight * probability) * np.array(held)
    return np.asarray(HUGE * counts)


def drawn_weights(mechanism: PureMechanism, rng: random.Random) -> dict[tuple[int, ...], Fraction]:
    """Return shares of a few answers."""
    some = rng.sample(answers(mechanism), min(3, len(answers(mechanism))))
    parts = [rng.randint(1, 9) for _ in some]
    return {answer: Fraction(part, sum(parts)) for answer, part in zip(some, parts, strict=True)}


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_the_sum_and_its_variance_are_those_of_the_exact_law(mechanism: PureMechanism) -> None:
    """Exactly for answers of one value, and for unary codes; for PrivSet at least that, and at most 40 % more."""
    rng = random.Random(1)
    for _ in range(6):
        chosen = sorted(rng.sample(range(mechanism.d), rng.randint(1, mechanism.d - 1)))
        weights = drawn_weights(mechanism, rng)
        among = np.isin(np.arange(mechanism.d), chosen)
        counts = np.rint(expected(mechanism, weights)).astype(np.int64)
        made = sum_shares(mechanism, counts, HUGE, among, 0.95)
        assert made is not None
        truth = sum(weight * len({*answer} & {*chosen}) for answer, weight in weights.items())
        assert made.estimate == pytest.approx(float(truth), abs=1e-9)
        summed = chosen
        if mechanism.ticks == 1 and 2 * len(chosen) > mechanism.d:  # one less the others
            summed = [value for value in range(mechanism.d) if value not in chosen]
        inner = sum(weight * moments(mechanism, answer, summed)[1] for answer, weight in weights.items())
        exact = float(inner / (mechanism.p - mechanism.q) ** 2 / HUGE)
        if mechanism.name == "privset":
            assert exact * (1 - 1e-6) <= made.std_error**2 <= exact * 1.4
        else:
            assert made.std_error**2 == pytest.approx(exact, rel=1e-6)


def test_the_sum_of_variances_would_be_seen() -> None:
    """It is too large by a quarter and more for a GRR with few values; all of them together have no variance."""
    mechanism = GRR.for_epsilon(4, E)
    counts = np.array([400_000, 200_000, 200_000, 200_000])
    made = sum_shares(mechanism, counts, 1_000_000, np.array([False, True, True, True]), 0.95)
    assert made is not None
    of_each = float(sum(mechanism.q * (1 - mechanism.q) for _ in range(3)) / (mechanism.p - mechanism.q) ** 2)
    assert of_each > 1.25 * made.std_error**2 * 1_000_000


def test_no_reports_and_wide_intervals_tell_no_sum() -> None:
    mechanism, among = GRR.for_epsilon(30, Decimal(4)), np.arange(30) > 1
    for n, told in ((0, False), (1, False), (60, True), (2_000, True)):
        counts = np.full(30, n // 30)
        counts[0] += n - counts.sum()
        assert (sum_shares(mechanism, counts, n, among, 0.95) is not None) == told
    weak = OUE.for_epsilon(300, Decimal("0.2"))
    assert sum_shares(weak, np.full(300, 1_000), 2_000, np.arange(300) > 150, 0.95) is None


def test_most_of_many_values_are_told_by_the_few_others() -> None:
    """Bits of 295 values would have 59 times the variance of those of the other five."""
    mechanism = OUE.for_epsilon(300, Decimal(2))
    counts = np.rint(10_000 * (float(mechanism.q) + float(mechanism.p - mechanism.q) * zipf(300))).astype(np.int64)
    few, rest = (
        sum_shares(mechanism, counts, 10_000, among, 0.95) for among in (np.arange(300) < 5, np.arange(300) > 4)
    )
    assert few is not None
    assert rest == few.rest


def test_the_interval_of_a_crowd_that_few_points_support_reaches_further() -> None:
    """The values of one hyperplane: a single point of 31 supports all of them, and others a few."""
    mechanism = PGR.for_design(31, 2, 5, Decimal(2))
    on = np.array([supports(mechanism, 0, value) for value in range(31)])
    spread = np.random.default_rng(1).permutation(on)
    counts = np.full(31, 20)
    few, many = (sum_shares(mechanism, counts, 620, among, 0.95) for among in (on, spread))
    assert few is not None
    assert many is not None
    assert few.upper - few.estimate > 2.1 * few.std_error > (2.1 / 1.97) * (many.upper - many.estimate)


# Over many populations.

DESIGNS = (("grr", 30), ("pgr", 300), ("oue", 300), ("ss", 30))
POPULATIONS, PAGES = scaled(40, 1_000), scaled(10, 100)
DRAWS = {"grr": 24, "oue": 24, "pgr": 2, "ss": 2}
"""How often the days before are drawn: those that are slow to draw less often."""


def stored(mechanism: str, d: int, epsilon: str) -> StoredPlan:
    values = tuple(f"model {number}" for number in range(d - 1))
    metric = registry(values=values, color=f'mechanism = "{mechanism}"', epsilon=epsilon, reports=1).metrics["color"]
    return StoredPlan(1, metric.plan, metric.question, (), metric.reservation, metric.expires, current=True)


def tally(plan: StoredPlan, counts: Counts, rng: np.random.Generator) -> Tally:
    return Tally(int(counts.sum()), np.concatenate([[counts.sum()], draw_tally(pure(plan.plan), counts, rng)]))


def readings(
    number: int, seed: int, designs: Sequence[tuple[str, int]] = DESIGNS
) -> Iterator[tuple[Reading, Tally, Floats, Counts]]:
    """Yield readings of seeded populations that have a tail, with their tallies, the shares, and the true counts."""
    rng = np.random.default_rng(seed)
    for place in range(number):
        name, d = designs[place % len(designs)]
        plan = stored(name, d, str(rng.choice(["1.0", "2.0", "3.0", "4.0"])))
        counts = rng.multinomial(int(rng.integers(3_000, 20_001)), zipf(d)).astype(np.int64)
        made = tally(plan, counts, rng)
        reading = estimate(plan, DAY, made, View(simultaneous=True))
        if reading.has_tail:
            yield reading, made, zipf(d), counts


def tail_of(reading: Reading, counts: Counts) -> float:
    """Return the true share of the crowd."""
    significance = reading.significance()
    assert significance is not None
    crowd = {row.value for row in significance.rest}
    return float(sum(counts[v] for v, value in enumerate(reading.stored.plan.values) if value in crowd) / counts.sum())


def holds(made: Sum, truth: float) -> bool:
    return made.lower <= truth <= made.upper


@pytest.mark.slow
def test_the_sum_of_other_days_holds_for_their_reports() -> None:
    """Seeded populations, each with some draws of its days before: given the first window these are independent.

    Each sum holds with 95 %, and fewer do than the least with 6e-7: than 94 % of 11,500, 89 % of 460.
    """
    held = printed = 0
    rng = np.random.default_rng(7)
    for reading, _, shares, _ in readings(POPULATIONS, seed=6):
        for _ in range(DRAWS[reading.stored.plan.cells.name]):
            counts = rng.multinomial(int(rng.integers(3_000, 20_001)), shares).astype(np.int64)
            made = reading.sum_of_rest(tally(reading.stored, counts, rng))
            if made:
                printed, held = printed + 1, held + holds(made, tail_of(reading, counts))
    assert printed >= 11.5 * POPULATIONS
    assert held >= binom.ppf(6e-7, printed, 0.95)


def test_the_sum_of_the_same_window_is_caught() -> None:
    """The test above would see it: here noise decides much of who is in the tail."""
    held = [
        holds(total, tail_of(reading, counts))
        for reading, drawn, _, counts in readings(70, seed=8, designs=(("grr", 30), ("ss", 30)))
        if (total := reading.sum_of_rest(drawn))
    ]
    assert len(held) > 45
    assert np.mean(held) < 0.8


# On the page, and in the API.

SAID = re.compile(
    r"Before these days \((\S+) to (\S+), \d days\) they had (\S+ %) of (\S+) reports together; "
    r"the (\d\d) % interval is from (\S+ %) to (\S+ %)\. That leaves out “other”\."
)


def said(one: Site, query: str = "") -> str:
    """Return what a page says of the tail, "" where it says nothing."""
    return said_in(one.page(query).html)


def said_in(html: str) -> str:
    found = re.findall(r'<p class="tail">(.*?)</p>', html)
    return unescape(found[0]) if found else ""


def told(one: Site, query: str = "") -> dict[str, Any] | None:
    """Return what the API says of it."""
    answer = one.client.get(f"/v1/metrics/color/estimates?{query}")
    assert answer.status_code == 200, answer.text
    tail: dict[str, Any] | None = answer.get_json()["meta"]["tail"]
    return tail


def put_weeks(one: Site, d: int, rng: np.random.Generator, n: int = 9_000) -> Counts:
    """Let the last week and the one before have reports of one population; return the true counts of the latter."""
    one.put(rng.multinomial(n, zipf(d)).astype(np.int64), rng)
    before = rng.multinomial(n, zipf(d)).astype(np.int64)
    one.put(before // 2, rng, days_ago=8)
    one.put(before - before // 2, rng, days_ago=14)
    return before


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["grr", "ss"])
def test_the_sum_that_a_page_prints_holds(mechanism: str, tmp_path: Path) -> None:
    """Seeded populations, read from HTML: fewer than the least hold with 5e-7, 82 of 100."""
    held, rng = 0, np.random.default_rng(2)
    with site(tmp_path, 30, f'mechanism = "{mechanism}"', epsilon="2.0") as one:
        for _ in range(PAGES):
            before = put_weeks(one, 30, rng)
            page = one.page()
            head = set(page.rows)
            (found,) = SAID.findall(said_in(page.html).replace("\N{NO-BREAK SPACE}%", " %"))
            lower, upper = (share(each.replace(" %", "\N{NO-BREAK SPACE}%")) for each in found[-2:])
            truth = sum(before[v] for v, value in enumerate(one.plan.values) if value not in head) / before.sum()
            held += bool(lower <= truth <= upper)
    assert held >= binom.ppf(5e-7, PAGES, 0.95)


def test_page_and_api_say_the_same_of_the_days_before(tmp_path: Path) -> None:
    with site(tmp_path, 30, 'mechanism = "grr"') as one:
        put_weeks(one, 30, np.random.default_rng(3), n=4_000)
        tail, today = told(one), one.store.today()
        assert tail is not None
        (found,) = SAID.findall(said(one).replace("\N{NO-BREAK SPACE}%", " %"))
        first, last, estimated, n, level, *ends = found
        assert (first, last) == (tail["from"], tail["to"])
        assert (first, last) == (str(today - timedelta(days=14)), str(today - timedelta(days=8)))
        assert (n, tail["n"], level) == ("4,000", 4_000, "95")
        estimate, error = tail["estimate"], tail["std_error"]
        shown = [precise(estimate, error), *(end(tail[name], error) for name in ("lower", "upper"))]
        assert [estimated, *ends] == [each.replace("\N{NO-BREAK SPACE}", " ") for each in shown]
        assert f">{tail['values']} more listed values, not ranked<" in one.page().html
        assert told(one, "intervals=each") == tail == told(one, "top=1")
        wider = told(one, "level=99")
        assert wider is not None
        assert wider["upper"] - wider["lower"] > tail["upper"] - tail["lower"]


def test_no_sum_without_days_before_without_a_head_or_while_reports_may_come(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with site(tmp_path, 30, 'mechanism = "grr"', epsilon="1.0") as one:
        put_weeks(one, 30, rng)
        assert said(one)
        first = one.store.today() - timedelta(days=14)
        for query in ("window=today", f"from={first}&to={one.store.today() - timedelta(days=1)}", f"epoch={first}"):
            assert (said(one, query), told(one, query)) == ("", None)
        one.put(np.full(30, 100), rng)
        assert one.page().headline.startswith("None of 29 values stands out")
        assert (said(one), told(one)) == ("", None)


def test_no_sum_of_days_whose_counts_are_damaged_or_not_kept(tmp_path: Path) -> None:
    with site(tmp_path, 30, 'mechanism = "grr"', epsilon="2.0") as one:  # with any seed some values stand out
        put_weeks(one, 30, np.random.default_rng(4))
        kept = one.store.today() - timedelta(days=8)
        with patch.object(type(one.store), "tallies_from", lambda _: kept):
            tail = told(one)
            assert f"Before these days ({kept}) they had" in said(one)
        assert tail is not None
        assert tail["from"] == tail["to"] == str(kept)
        one.tallies[one.plan.digest, kept] = Tally(10, np.array([10, *[7] * 30]))
        one.forget()
        assert (said(one), told(one)) == ("", None)


def test_memoized_answers_have_no_sum(tmp_path: Path) -> None:
    """Their noise is the same on other days, so these know who was left out."""
    with site(tmp_path, 12, 'mechanism = "grr"', epsilon="2.0", epsilon_permanent="4.0") as one:
        put_weeks(one, 12, np.random.default_rng(6), n=2_000)
        assert "lead" in one.page().headline
        assert "listed values, not ranked" in one.page().html
        assert (said(one), told(one)) == ("", None)


def test_ticks_are_counted_by_a_hundred_reports(tmp_path: Path) -> None:
    """Answers of a common value and of ten rare ones: the interval holds the mean number of ticks, no share."""
    rng, n = np.random.default_rng(7), 20_000
    with site(tmp_path, 13, 'mechanism = "oue"\nticks_max = 2', kind="choices") as one:
        mechanism = pure(one.plan)
        held = np.zeros(mechanism.d, dtype=np.int64)
        held[0], held[1:11] = n // 2, n // 100
        for back in (1, 8):
            drawn = rng.binomial(held, float(mechanism.p)) + rng.binomial(n - held, float(mechanism.q))
            one.tallies[one.plan.digest, one.store.today() - timedelta(days=back)] = Tally(n, np.append(n, drawn))
        tail = told(one)
        assert tail is not None
        head = set(one.page().rows)
        truth = sum(held[v] for v, value in enumerate(one.plan.values) if value not in head) / n
        assert truth > 0.05
        assert tail["lower"] < truth < tail["upper"]
        hundred = precise(tail["estimate"], tail["std_error"]).removesuffix("\N{NO-BREAK SPACE}%")
        assert f"every hundred of 20,000 reports named {hundred} of them on average" in said(one)
