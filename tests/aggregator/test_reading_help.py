"""The page that explains: its noise follows the law, its two readings are the ordinary ones, chart and tables agree."""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import partial
from html import unescape
from re import DOTALL, findall, sub
from unittest.mock import patch

import numpy as np
import pytest
from flask.testing import FlaskClient

from dither_aggregator.analysis import noise_demo, numbers
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.noise_demo import LARGEST, ROLLS, average, population, roll
from dither_aggregator.analysis.pure import estimate_shares, significance_shares
from dither_aggregator.analysis.reading import View
from dither_aggregator.analysis.tables import arms, ratios
from dither_aggregator.store import Tally
from dither_aggregator.web.charts.beside import draw_beside
from dither_shared.mechanisms import choose
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.registries import registry

USUAL = (8_000, 300, Decimal(4))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with sqlite_store(registry(), tmp_path_factory.mktemp("reading")) as store:
        yield operators_app(store).test_client()


@pytest.mark.parametrize(("n", "d"), [(8_000, 300), (7, 300), (1, 2), (10**9, 5_000)])
def test_the_population_has_n_reports_and_the_first_values_are_the_most_common(n: int, d: int) -> None:
    counts = population(d, n)
    assert (counts.sum(), counts[-1], len(counts)) == (n, 0, d)
    assert (np.diff(counts) <= 0).all()


def errors(rolls: int, move: float = 0.0) -> float:
    """Return the mean error of all estimates of many rolls, in standard errors of that mean; `move` plants a bias."""
    n, d, epsilon = USUAL
    mechanism, counts = choose(d, epsilon), population(d, n)
    truth = counts / n
    rng = np.random.default_rng(11)
    scores = []
    for _ in range(rolls):
        read = estimate_shares(mechanism, noise_demo._draw(mechanism, counts, n, rng), n)
        scores.append((read.estimate + move * read.noise_floor - truth) / read.noise_floor)
    return float(np.mean(scores) * np.sqrt(np.size(scores)))


def test_the_noise_follows_the_law_of_the_mechanism() -> None:
    """60,000 errors, seeded: their mean within 5 sigma of 0 (6e-7). A bias of a twentieth of an error is seen."""
    assert abs(errors(200)) < 5
    assert abs(errors(200, move=0.05)) > 10


def test_the_largest_are_cursed_and_values_named_beforehand_are_not() -> None:
    """Own 95 % intervals of values named beforehand miss 5 % in the mean, of the largest three times as many.

    40 rolls of the 25 most common: 50 misses expected, 15 to 85 within 5 sigma.
    """
    n, d, epsilon = USUAL
    cursed = average(n, d, epsilon)
    mechanism, counts = choose(d, epsilon), population(d, n)
    truth, rng, misses = counts[:LARGEST] / n, np.random.default_rng(3), 0
    for _ in range(ROLLS):
        read = estimate_shares(mechanism, noise_demo._draw(mechanism, counts, n, rng)[:LARGEST], n)
        misses += int(((read.lower > truth) | (read.upper < truth)).sum())
    assert 15 <= misses <= 85
    assert cursed.misses * ROLLS > 2 * 85 * 0.9
    assert cursed.strangers > 3
    assert cursed.exaggeration is not None
    assert cursed.exaggeration > 3


def test_one_roll_counts_as_the_average_counts() -> None:
    """The averages of the page are those of what it shows of a roll: 40 rolls of either kind, within 5 sigma."""
    n, d, epsilon = USUAL
    rolls = [roll(n, d, epsilon, seed).curse for seed in range(ROLLS)]
    mean = average(n, d, epsilon)
    for name in ("misses", "strangers", "below", "below_estimated", "below_true"):
        each = np.array([getattr(one, name) for one in rolls])
        assert getattr(mean, name) == pytest.approx(each.mean(), abs=5 * each.std() * np.sqrt(2 / ROLLS)), name


def test_the_second_reading_is_the_ordinary_code_s() -> None:
    """A unary code's tally is its support counts, so the ordinary way can read the same roll."""
    n, d, epsilon = 5_000, 40, Decimal(2)
    with patch.object(noise_demo, "choose", partial(choose, name="oue")):
        rolled = roll(n, d, epsilon, 5)
    support = noise_demo._draw(rolled.mechanism, population(d, n), n, np.random.default_rng(5))
    tally = Tally(n, np.concatenate([[n], support]))
    read = estimate(rolled.together.stored, date(2000, 1, 1), tally, View(simultaneous=True))
    assert read.rows == rolled.together.rows
    assert read.significance() == rolled.together.significance()
    significance = rolled.together.significance()
    assert significance is not None
    assert (significance.critical_share, significance.detectable_share) == significance_shares(rolled.mechanism, n)


# The page.


def tables(html: str) -> list[list[list[str]]]:
    """Return the rows of the tables with the numbers of a chart, as text."""
    bodies = findall(r'<table class="shown">.*?<tbody>(.*?)</tbody>', html, DOTALL)
    return [
        [
            [unescape(sub("<.*?>", "", cell)) for cell in findall("<t[hd].*?>(.*?)</t[hd]>", row)]
            for row in findall("<tr>(.*?)</tr>", body)
        ]
        for body in bodies
    ]


def share(text: str) -> float:
    return float(text.strip().removesuffix("\N{NO-BREAK SPACE}%").replace("\N{MINUS SIGN}", "-")) / 100


@pytest.mark.parametrize(
    ("query", "rounded"),
    [("", 0.0006), ("n=300&d=12&epsilon=2&seed=4", 0.0051), ("n=100000&d=5000&epsilon=6&seed=9", 0.0006)],
)
def test_the_charts_show_the_numbers_of_the_tables(query: str, rounded: float, client: FlaskClient) -> None:
    """The axis, read back from its ticks, gives each dot and bar the number in its row, as far as that is rounded."""
    html = client.get(f"/help/reading?{query}").text
    figures = findall(r"<figure>(.*?)</figure>", html, DOTALL)[:2]
    for figure, table in zip(figures, tables(html), strict=True):
        labels = findall(r'<text class="label".*?>(.*?)</text>', figure)
        values = [unescape(each) for each in findall(r'<text class="value".*?>(.*?)</text>', figure)]
        assert labels == [row[0].removesuffix(" misses") for row in table]
        assert values == [row[1] for row in table]
        dots = [float(each) for each in findall(r'<circle class="dot" cx="(.*?)%"', figure)]
        bars = [float(each) for each in findall(r'<line class="truth" x1="(.*?)%"', figure)]
        ticks = [float(each) for each in findall(r'<line class="(?:tick|zero)" x1="(.*?)%"', figure)]
        labelled = [share(unescape(each)) for each in findall(r'<text class="axis".*?>(.*?)</text>', figure)]
        scale = (ticks[-1] - ticks[0]) / (labelled[-1] - labelled[0])
        drawn = [labelled[0] + (place - ticks[0]) / scale for place in dots + bars]
        shares = [share(row[place]) for place in (1, 3) for row in table]
        assert drawn == pytest.approx(shares, abs=rounded)
        for row in table:
            lower, upper = row[2].split("to")
            inside = share(lower) <= share(row[3]) <= share(upper)
            assert inside != row[0].endswith(" misses"), row


def test_a_truth_is_drawn_on_the_scale_of_its_estimate() -> None:
    rolled = roll(*USUAL, 1)
    rows = [known.row for known in rolled.largest]
    drawn = draw_beside(rows, [row.estimate for row in rows], rolled.noise_floor, None)
    assert list(drawn.truths) == [mark.x for mark in drawn.plot.marks]
    far = draw_beside(rows, [2.0] * len(rows), rolled.noise_floor, None)
    assert set(far.truths) == {100.0}
    assert len(far.plot.marks) == len(rows)


def test_the_same_address_is_the_same_page_and_another_roll_has_another(client: FlaskClient) -> None:
    first = client.get("/help/reading").text
    assert client.get("/help/reading?n=8000&d=300&epsilon=4&seed=1").text == first
    (address,) = findall(r'<a href="(/help/reading\?.*?)">Roll the noise again', first)
    again = client.get(unescape(address)).text
    assert "seed=2" in address
    assert tables(again) != tables(first)
    assert findall(r"<td>[\d.]+</td></tr>", again)[:4] == findall(r"<td>[\d.]+</td></tr>", first)[:4]


def test_the_page_counts_the_misses_that_it_marks(client: FlaskClient) -> None:
    for seed in range(5):
        html = client.get(f"/help/reading?seed={seed}").text
        own, _ = tables(html)
        (misses,) = findall(r"of values named beforehand\)</th><td>(\d+)</td>", html)
        assert sum(row[0].endswith(" misses") for row in own) == int(misses)
        (strangers,) = findall(r"most common</th><td>(\d+)</td>", html)
        ranks = [int(row[0].split()[1]) for row in own]
        assert sum(rank > LARGEST for rank in ranks) == int(strangers)


def words(html: str) -> dict[str, str]:
    """Return what the page says of each word, by its anchor."""
    said = findall(r'<dt id="(.*?)">.*?</dt>\s*<dd>(.*?)</dd>', html, DOTALL)
    assert len(dict(said)) == len(said)
    return {anchor: unescape(sub("<.*?>", "", text)) for anchor, text in said}


def test_the_page_says_how_many_are_drawn_of_those_that_stand_out(client: FlaskClient) -> None:
    """The default population has too few that stand out, so nothing is said; here the largest ones alone are drawn."""
    says = r"values? stands? out from the noise; the first (\d+) are drawn\."
    assert findall(says, client.get("/help/reading?n=1000000000&d=100&epsilon=4").text) == [str(LARGEST)]
    assert not findall(says, client.get("/help/reading").text)


def test_the_words_of_tables_and_numbers_are_explained_by_the_limits_that_pages_have(client: FlaskClient) -> None:
    html = client.get("/help/reading").text
    said = words(html)
    assert {"rate", "rate-interval", "verdict", "too-few", "matrix", "n-of-a-pair"} < set(said)
    assert {"mean", "quantile", "shape"} < set(said)
    assert f"fewer than {arms.REPORTS_MIN} reports" in said["too-few"]
    assert f"not {ratios.SURE:g} standard errors above zero" in said["too-few"]
    assert numbers.WIDEST == 1 / 3
    assert "more than a third of the axis" in said["quantile"]
    assert f"needs {numbers.REPORTS_MIN:,} reports for quantiles" in html
    assert f"and {numbers.MEAN_REPORTS_MIN} where the mean is all" in html


@pytest.mark.parametrize(
    "query", ["n=1&d=2", "n=1&d=5000&epsilon=0.01", "n=1000000000&d=5000&epsilon=20", "epsilon=20"]
)
def test_the_edges_are_pages(query: str, client: FlaskClient) -> None:
    answer = client.get(f"/help/reading?{query}")
    assert answer.status_code == 200
    assert "nan" not in answer.text
    assert "simulation on made-up data" in answer.text


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("n=0", "n must be a number from 1 to 1000000000"),
        ("d=5001", "d must be a number from 2 to 5000"),
        ("epsilon=21", "epsilon must be a number from 0.01 to 20"),
        ("seed=-1", "seed must be a number from 0 to 999999"),
        ("reroll=1", "there is no parameter 'reroll' here"),
    ],
)
def test_what_cannot_be_drawn_is_refused(query: str, detail: str, client: FlaskClient) -> None:
    answer = client.get(f"/help/reading?{query}")
    assert answer.status_code == 400
    assert detail in unescape(answer.text)
