"""The page that explains: one picture of noise beside the truth, and words."""

from collections.abc import Iterator
from html import unescape
from re import DOTALL, findall, sub

import pytest
from flask.testing import FlaskClient

from dither_aggregator.analysis import inference, numbers
from dither_aggregator.analysis.tables import reading
from dither_aggregator.web.pages.reading_help import LARGEST, example
from dither_shared.kinds.precision import MEANS_MIN, NUMBERS_MIN
from tests.support.aggregators import operators_app, sqlite_store
from tests.support.registries import registry


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    with sqlite_store(registry(), tmp_path_factory.mktemp("reading")) as store:
        yield operators_app(store).test_client()


def share(text: str) -> float:
    return float(text.strip().removesuffix("\N{NO-BREAK SPACE}%").replace("\N{MINUS SIGN}", "-")) / 100


def test_the_picture_shows_the_numbers_of_the_table(client: FlaskClient) -> None:
    """The axis, read back from its ticks, gives each dot and bar the number in its row, as far as that is rounded."""
    html = client.get("/help/reading").text
    (figure,) = findall(r"<figure>(.*?)</figure>", html, DOTALL)
    (body,) = findall(r'<table class="shown">.*?<tbody>(.*?)</tbody>', html, DOTALL)
    table = [
        [unescape(sub("<.*?>", "", cell)) for cell in findall("<t[hd].*?>(.*?)</t[hd]>", row)]
        for row in findall("<tr>(.*?)</tr>", body)
    ]
    assert findall(r'<text class="label".*?>(.*?)</text>', figure) == [row[0] for row in table]
    assert [unescape(each) for each in findall(r'<text class="value".*?>(.*?)</text>', figure)] == [
        row[1] for row in table
    ]
    dots = [float(each) for each in findall(r'<circle class="dot" cx="(.*?)%"', figure)]
    bars = [float(each) for each in findall(r'<line class="truth" x1="(.*?)%"', figure)]
    ticks = [float(each) for each in findall(r'<line class="(?:tick|zero)" x1="(.*?)%"', figure)]
    labelled = [share(unescape(each)) for each in findall(r'<text class="axis".*?>(.*?)</text>', figure)]
    scale = (ticks[-1] - ticks[0]) / (labelled[-1] - labelled[0])
    drawn = [labelled[0] + (place - ticks[0]) / scale for place in dots + bars]
    assert drawn == pytest.approx([share(row[place]) for place in (1, 3) for row in table], abs=0.0006)


def test_the_picture_is_of_the_winner_s_curse(client: FlaskClient) -> None:
    """More intervals miss than the one or two of values named beforehand, and the page counts those that are drawn."""
    drawn = example()
    missed = [not mark.row.lower <= truth.estimate <= mark.row.upper for mark, truth, _ in drawn.beside]
    unknown = [int(truth.value.removeprefix("value ")) > LARGEST for _, truth, _ in drawn.beside]
    assert (len(missed), drawn.misses, drawn.strangers) == (LARGEST, sum(missed), sum(unknown))
    assert sum(missed) > 3
    assert sum(unknown) > 3
    too_large = [mark.row.estimate > truth.estimate for mark, truth, _ in drawn.beside]
    assert sum(too_large) > LARGEST / 2
    html = client.get("/help/reading").text
    assert f"So {sum(missed)} of {LARGEST} intervals miss the truth, and {sum(unknown)} of the values" in html


def test_the_page_takes_no_parameters(client: FlaskClient) -> None:
    answer = client.get("/help/reading?n=8000")
    assert answer.status_code == 400
    assert "there is no parameter 'n' here" in unescape(answer.text)


def words(html: str) -> dict[str, str]:
    """Return what the page says of each word, by its anchor."""
    said = findall(r'<dt id="(.*?)">.*?</dt>\s*<dd>(.*?)</dd>', html, DOTALL)
    assert len(dict(said)) == len(said)
    return {anchor: unescape(sub("<.*?>", "", text)) for anchor, text in said}


def test_the_words_of_tables_and_numbers_are_explained_by_the_limits_that_pages_have(client: FlaskClient) -> None:
    html = client.get("/help/reading").text
    said = words(html)
    assert {"rate", "rate-interval", "verdict", "too-few", "matrix", "n-of-a-pair"} < set(said)
    assert {"mean", "quantile", "shape"} < set(said)
    assert f"fewer than {reading.REPORTS_MIN} reports" in said["too-few"]
    assert f"is not {inference.SURE:g} standard errors above zero" in said["too-few"]
    assert numbers.WIDEST == 1 / 3
    assert "more than a third of the axis" in said["quantile"]
    assert f"needs {NUMBERS_MIN:,} reports for quantiles" in html
    assert f"and {MEANS_MIN} where only the mean is asked" in html
