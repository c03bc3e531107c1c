"""Pages of fresh texts and words in a real Chromium: axe, sizes, overlaps, texts that turn what follows round."""

from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest

from dither_aggregator.analysis import words
from dither_shared.registry import Registry
from tests.aggregator.test_snapshot_page import keep
from tests.aggregator.words.test_reading import tally_of
from tests.support.browsing import Pages, Tab, address_of, axe_of, check_state, served
from tests.support.registries import metrics_text
from tests.support.sites import EXPIRES, site_of
from tests.support.soaking import scaled, thinned

pytestmark = pytest.mark.slow

REPORTS = scaled(1_500, 3_000)
LOOKED_AT_MAX = scaled(500, 2_000)
"""Continuations that a search reads: those of noise come last, and no page shows them."""
WIDE, TURNED = "W" * 200, "a \N{RIGHT-TO-LEFT OVERRIDE}b"
METRICS: dict[str, dict[str, object]] = {
    "site": {"kind": "text", "candidates": ["firefox", "chrome", "opera", WIDE, "a \u05d0b"]},
    "unlisted": {"kind": "text", "candidates": ["opera"]},
    "bare": {"kind": "text"},
    "word": {"kind": "words", "casefold": True},
    "phrase": {"kind": "words", "length": "long"},
    "quiet": {"kind": "words"},
}
COMMON: dict[str, object] = {"question": "What do people say?", "epsilon": 6, "reports": 20, "expires": EXPIRES}
MOVED = thinned(("site", "word"), 0)
BEFORE = {"firefox": 0.5, TURNED: 0.3, None: 0.1}
AFTER = {"firefox": 0.2, "chrome": 0.3, TURNED: 0.3, None: 0.1}
STATES = {
    "/": "lead",
    "/metrics/site": "stand out from the noise",
    "/metrics/unlisted": "not in the list",
    "/metrics/bare": "No text is looked for: list candidates",
    "/metrics/site?window=today": "More reports may come",
    "/metrics/word": "proposed texts stand out from the noise",
    "/metrics/word?window=today": "More reports may come",
    "/metrics/word?search=fire": "Search",
    "/metrics/phrase": "stand out from the noise",
    "/metrics/quiet": "No reports of these days",
    "/metrics/site/time": "days have reports",
    "/metrics/word/time": "days have reports",
    "/compare?metric=site": "moved",
    "/compare?metric=word": "moved",
    "/changes": "Something moved",
    "/plan?kind=text&d=100&n=100000&epsilon=2": "is found four times in five",
    "/plan?kind=words&share_percent=1&epsilon=2": "is found four times in five",
    "/s/word": "a snapshot: it never changes",
    "/s/site": "a snapshot: it never changes",
}
"""Addresses of all states with what each of them says; a snapshot is addressed by its metric."""
SEEN = thinned([*STATES], 0, 1, 3, 5, 9, 10, 12, 14, 15, 18)
"""One of each kind of page, of fresh texts and of words; a soak sees all."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A day of each, and of those that move two more; yield the address, and the id of each snapshot."""
    asked = {name: {**COMMON, **keys} for name, keys in METRICS.items()}
    made = Registry.parse(metrics_text(asked, device_epsilon=120 * len(METRICS)))
    with site_of(made, tmp_path_factory.mktemp("texts")) as one, patch.object(words, "LOOKED_AT_MAX", LOOKED_AT_MAX):
        for name in METRICS.keys() - {"quiet"}:
            metric = made.metrics[name]
            for back, shares in ((2, BEFORE), (1, AFTER), (0, AFTER)) if name in MOVED else ((1, AFTER),):
                one.hold(metric.plan, tally_of(metric, REPORTS + back, shares), days_ago=back)
        day = one.store.today() - timedelta(days=1)
        kept = [one.store.plans(name)[0] for name in ("word", "site")]
        ids = {each.plan.metric: keep(one.store, each, one.tallies[each.plan.digest, day]) for each in kept}
        one.client.get("/")  # which computes the searches of two windows; a browser waits 30 s for them at most
        with served(one) as url:
            yield url, ids


@pytest.mark.parametrize("path", SEEN)
def test_a_page_is_accessible_fits_and_is_no_larger_than_need_be(tab: Tab, pages: Pages, path: str) -> None:
    check_state(tab, address_of(pages, path), STATES[path], axe_of(path, SEEN))


@pytest.mark.parametrize("metric", ["site", "word"])
def test_a_text_that_turns_others_round_is_in_no_row(tab: Tab, pages: Pages, metric: str) -> None:
    page = tab.visit(address_of(pages, f"/metrics/{metric}"), 1280)
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page.content()
    assert r"\u{202e}" not in page.inner_text("main")
