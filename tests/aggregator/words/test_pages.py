"""Pages of words: what their rows are called, which intervals they show, and that a new word is told to have come."""

from collections.abc import Iterator

import pytest

from dither_aggregator.analysis import words
from dither_shared.kinds import words as words_kind
from dither_shared.words import code
from tests.aggregator.words.test_reading import tally_of
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Site, site_of
from tests.support.soaking import scaled

pytestmark = pytest.mark.slow
REPORTS = 2_500


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two days, of which the second has a word more: at epsilon 6 half of the devices are 30 standard errors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "KEPT_MAX", 10)  # a search in a tenth of the time, that still finds the largest
        patch.setattr(words, "LOOKED_AT_MAX", 100)
        for module in (words_kind, code):
            patch.setattr(module, "BUCKETS", scaled(1 << 12, code.BUCKETS))
        asked = registry(kind="words", reports=1, epsilon="6", device_epsilon="60", expires=EXPIRES)
        metric = asked.metrics["color"]
        with site_of(asked, tmp_path_factory.mktemp("words")) as made:
            made.hold(metric.plan, tally_of(metric, REPORTS, {"firefox": 0.9}), days_ago=2)
            made.hold(metric.plan, tally_of(metric, REPORTS, {"firefox": 0.4, "chrome": 0.5}), days_ago=1)
            yield made


def test_rows_are_called_texts_and_their_intervals_hold_at_once(one: Site) -> None:
    seen = one.page("window=1")
    assert "lead, not told apart, with" in seen.headline
    assert "proposed texts stand out from the noise" in seen.html
    assert "every interval here holds the true value" in seen.html
    assert "Noise alone reaches about this far in a long word, and less far in a short one" in seen.html
    assert "on average" not in seen.html
    assert "candidate" not in seen.html
    assert "“Other” means answers that were no text or too long" in seen.html


def test_a_word_that_only_the_second_window_proposes_rose(one: Site) -> None:
    rows = one.client.get("/v1/compare?metric=color").get_json()["rows"]
    told = {row["value"]: row["verdict"] for row in rows if row["verdict"] in ("rose", "fell")}
    assert told == {"firefox": "fell", "chrome": "rose"}


def test_a_word_that_no_search_proposes_is_looked_up_by_name(one: Site) -> None:
    asked = "/v1/metrics/color/estimates?window=1&values=chrome&values=opera"
    rows = {row["value"]: row for row in one.client.get(asked).get_json()["rows"]}
    assert set(rows) == {"chrome", "opera"}
    assert rows["chrome"]["verdict"] == "stands out"
    assert rows["opera"]["verdict"] == "cannot be told from zero"
    assert rows["opera"]["lower"] < 0 < rows["opera"]["upper"]
    assert one.client.get("/v1/metrics/color/estimates?values=chro…").status_code == 400
    every = {row["value"] for row in one.client.get("/v1/metrics/color/estimates?window=1").get_json()["rows"]}
    assert "opera" not in every
