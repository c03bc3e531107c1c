"""A metric's page and the API on the quality of single days: they say nothing while nothing is found."""

import csv
import io
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither_aggregator.analysis.closed_days import ALPHA
from dither_aggregator.store import Tally
from tests.support.sites import Site, site, zipf

D = 20
ADDRESS = "/v1/metrics/color/quality"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    """Ten days of 3,000 devices, and today."""
    with site(
        tmp_path, D, 'mechanism = "oue"', values=(*(f"model {n}" for n in range(D - 2)), "<\N{ARABIC NUMBER SIGN}>")
    ) as made:
        rng = np.random.default_rng(1)
        for back in range(11):
            made.put(rng.multinomial(3_000, zipf(D)), rng, back)
        yield made


def spoil(one: Site, back: int, ones: int = 60) -> None:
    """Let so many devices more set all bits, some days ago."""
    held = one.store.tally(one.plan, one.day(back))
    one.hold(one.plan, Tally(held.n + ones, held.counts + ones), back)


def told(one: Site, query: str = "") -> str:
    found = re.search(r'<p class="state quality">(.*?)</p>', one.page(query).html)
    return unescape(found[1]) if found else ""


def ask(one: Site, query: str = "") -> dict[str, Any]:
    answer = one.client.get(f"{ADDRESS}?{query}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.get_json()
    return document


def test_a_page_of_sound_days_says_nothing_of_them(one: Site) -> None:
    assert told(one) == ""
    assert 'href="/help/reading#data-quality"' in one.page().html
    document = ask(one)
    assert (document["meta"]["days_checked"], document["meta"]["days_implausible"]) == (7, 0)
    assert {row["verdict"] for row in document["rows"]} == {"nothing found"}
    assert {row["check"] for row in document["rows"]} == {"shares", "ones"}


def test_a_day_of_clumsy_reports_is_named_with_the_rate_of_false_alarms(one: Site) -> None:
    spoil(one, 3)
    day = one.day(3)
    assert re.fullmatch(
        rf"Data quality: on {day}, there are [\d,]+ bits that are set, where about [\d,]+ are expected "
        r"whatever people answer: devices that add noise as they should do not send that\. A sound metric has such a "
        r"day by chance once in 1,000 at most\.",
        told(one),
    )
    assert str(day) in told(one, f"epoch={day}")
    assert told(one, f"epoch={one.day(4)}") == ""
    assert told(one, "window=28") == ""


def test_several_days_are_counted_and_the_surest_is_shown(one: Site) -> None:
    spoil(one, 3)
    spoil(one, 5, 300)
    assert f"on {one.day(5)}, " in told(one)
    assert " 1 other day shown has such counts." in told(one)


def test_what_a_value_says_is_shown_as_an_escape(one: Site) -> None:
    held = one.store.tally(one.plan, one.day(2))
    counts = held.counts.copy()
    counts[1 + D - 2] = 0
    one.hold(one.plan, Tally(held.n, counts), 2)
    assert r"there are 0 reports that support “<\u{600}>”, where" in told(one)
    assert "\N{ARABIC NUMBER SIGN}" not in told(one)


def test_a_day_that_is_not_over_has_no_verdict(one: Site) -> None:
    spoil(one, 0)
    assert told(one, "window=today") == ""
    assert ask(one, "window=today")["rows"] == []


def test_rows_say_each_check_of_each_day(one: Site) -> None:
    spoil(one, 3)
    document = ask(one, f"from={one.day(4)}&to={one.day(3)}")
    meta, rows = document["meta"], document["rows"]
    assert (meta["days_checked"], meta["days_implausible"], meta["false_alarms"]) == (2, 1, ALPHA)
    assert [(row["epoch"], row["check"]) for row in rows] == [
        (str(one.day(back)), check) for back in (4, 3) for check in ("shares", "ones")
    ]
    (bad,) = [row for row in rows if row["verdict"] == "implausible"]
    assert (bad["check"], bad["of"], bad["n"], bad["tests"]) == ("ones", "bits that are set", 3_060, 1)
    assert bad["expected_lower"] == pytest.approx(bad["expected_upper"])
    assert bad["observed"] > bad["expected_upper"]
    assert bad["p_value"] <= ALPHA < min(row["p_value"] for row in rows if row is not bad)
    table = list(csv.DictReader(io.StringIO(one.client.get(f"{ADDRESS}?format=csv&epoch={one.day(3)}").text)))
    assert [row["verdict"] for row in table] == ["nothing found", "implausible"]


def test_more_days_than_an_answer_may_take_are_refused(one: Site) -> None:
    answer = one.client.get(f"{ADDRESS}?from=2026-01-01&to=2026-03-01")
    assert answer.status_code == 400
    assert "at most 28 days are checked at a time, got 60" in answer.text
    assert one.client.get("/v1/metrics/none/quality").status_code == 404


def test_a_closed_day_is_checked_once(one: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(one)
    monkeypatch.setattr(one.store, "tally", lambda plan, epoch: pytest.fail("read again"))
    assert ask(one) == first
