"""Pages in a real Chromium do what they say, plans and forms among them. `test_page_states.py` has how they look."""

import random
from collections.abc import Iterator

import pytest
import requests

from dither_aggregator.operations import maintenance
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import encode_upload, new_upload_id
from tests.support.aggregators import aggregator
from tests.support.browsing import CONTRAST, Tab
from tests.support.clocks import Clock
from tests.support.keys import write_key
from tests.support.laws import pure
from tests.support.registries import registry
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

VALUES = (*(f"Browser {number}" for number in range(60)), "A value with quite a long name, <b>&amp;</b> all")
ASKED = registry(values=VALUES)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    clock = Clock()
    with aggregator(ASKED, tmp_path_factory.mktemp("pages"), clock) as (address, service):
        for metric in ("color", "dark"):
            body = encode_upload(new_upload_id(random.getrandbits), [(metric, *reports(ASKED, metric))])
            answer = requests.post(
                f"{address}/v1/reports",
                data=body,
                headers={"Authorization": f"Bearer {write_key(service.store)}", "Content-Type": "application/json"},
                timeout=30,
            )
            assert answer.status_code == 202, answer.text
        wait_until(lambda: not service.store.backlog())
        clock.travel(1)
        maintenance.maintain(service.store, 0)
        yield address


def reports(asked: Registry, metric: str) -> tuple[str, list[int | str]]:
    plan = asked.metrics[metric].plan
    rng = Rng(random.Random(1).getrandbits)
    drawn = (
        plan.mechanism.randomize(pure(plan).class_of([number % 7 % len(plan.values)]), rng) for number in range(1500)
    )
    return plan.digest, [plan.mechanism.shape.to_wire(report) for report in drawn]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_plot_shows_what_the_table_says(tab: Tab, url: str, width: int) -> None:
    page = tab.visit(f"{url}/metrics/color", width, "light")
    page.get_by_text("The same numbers").click()
    labels = page.locator("text.label").all_text_contents()
    values = page.locator("text.value").all_text_contents()
    table = [row.split("\t") for row in page.locator("table.shown tbody tr").all_inner_texts()]
    raw = [row[2] for row in table]
    assert values == ["not told" if "\N{MINUS SIGN}" in each else each for each in raw]
    assert labels == [row[0] for row in table]
    assert 5 <= len(labels) <= 12
    assert labels[-1] == "other"
    assert page.locator("circle.dot").count() == len(labels) - values.count("not told")
    box = page.locator("svg").first.bounding_box()
    assert box
    for dot in page.locator("circle.dot").all():
        inner = dot.bounding_box()
        assert inner
        assert box["x"] - 8 <= inner["x"] <= box["x"] + box["width"] + 8


def test_a_value_is_looked_up_through_the_form(tab: Tab, url: str) -> None:
    page = tab.visit(f"{url}/metrics/color", 390, "light")
    page.get_by_label("search").fill("<b>")
    page.get_by_label("level").select_option("80")
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("button", name="Show").click()
    assert page.locator("table.found tbody tr").count() == 1
    assert VALUES[-1] in page.locator("table.found").inner_text()
    assert "cannot be told from zero" in page.locator("table.found").inner_text()
    assert page.locator("b").count() == 0
    assert page.get_by_label("level").input_value() == "80"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.complaints == []


def test_the_rest_is_drawn_against_the_curve_of_noise(tab: Tab, url: str) -> None:
    page = tab.visit(f"{url}/metrics/color", 1280, "dark")
    words = page.locator(".rest h2").inner_text()
    head = page.locator("table.shown tbody tr").count() - 1
    assert words == f"{len(VALUES) - head} more listed values, not ranked"
    bars = [bar.bounding_box() for bar in page.locator("rect.bar").all()]
    assert sum(bool(bar and bar["height"] > 0) for bar in bars) > 5
    box = page.locator("svg.histogram").bounding_box()
    curve = page.locator("polyline.curve").bounding_box()
    assert box
    assert curve
    assert box["y"] <= curve["y"]
    assert curve["y"] + curve["height"] <= box["y"] + box["height"] + 6
    assert curve["width"] > 0.8 * box["width"]


def test_dots_and_noise_band_are_where_the_numbers_are(tab: Tab, url: str) -> None:
    """The axis, read back from two ticks in pixels, gives each dot's estimate."""
    page = tab.visit(f"{url}/metrics/color", 1280, "light")
    reading = requests.get(f"{url}/v1/metrics/color/estimates?window=7", timeout=10).json()
    x = "element => { const box = element.getBoundingClientRect(); return box.x + box.width / 2 }"
    plot = page.locator("figure").first
    lines = plot.locator("line.tick, line.zero").evaluate_all(f"lines => lines.map({x})")
    labels = [
        float(text.split("\xa0")[0].replace("\N{MINUS SIGN}", "-")) / 100
        for text in plot.locator("text.axis").all_text_contents()
    ]
    lines = lines[: len(labels)]  # each row has all of them
    scale = (lines[-1] - lines[0]) / (labels[-1] - labels[0])
    dots = page.locator("circle.dot").evaluate_all(f"dots => dots.map({x})")
    by_name = {row["value"]: row["estimate"] for row in reading["rows"]}
    estimates = [by_name[label] for label in page.locator("text.label").all_text_contents()]
    estimates = [estimate for estimate in estimates if estimate >= 0]  # the others have no dot
    assert [labels[0] + (dot - lines[0]) / scale for dot in dots] == pytest.approx(estimates, abs=0.003)
    band = page.locator("rect.noise").first.bounding_box()
    assert band
    assert band["width"] / scale == pytest.approx(1.96 * reading["meta"]["noise_floor"], rel=0.02)


def test_the_list_leads_to_a_metric(tab: Tab, url: str) -> None:
    page = tab.visit(url, 390, "dark")
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("link", name="dark").click()
    assert page.locator("h1").inner_text() == "Do people use the dark theme?"
    for fact in ("1,500 reports", " say yes.", "88.1", "above 99", "All that can be seen"):
        assert page.get_by_text(fact).count() >= 1


# Pages that plan and explain.


@pytest.mark.parametrize("width", [390, 1280])
def test_a_plan_is_made_by_keyboard_alone(tab: Tab, url: str, width: int) -> None:
    page = tab.visit(f"{url}/plan", width, "light")
    page.get_by_role("textbox", name="reports, n").fill("")
    page.get_by_label("detectable share in %").fill("3")
    with page.expect_navigation(wait_until="load"):
        page.keyboard.press("Enter")
    headline = page.locator(".headline").inner_text().replace("\xa0", " ")
    assert headline == (
        "With 60,379 reports at epsilon 1.0, a value that 3.0 % have stands out from the noise four times in five."
    )
    assert page.get_by_role("textbox", name="reports, n").input_value() == ""
    with page.expect_navigation(wait_until="load"):
        page.get_by_role("link", name="How to read these words").press("Enter")
    assert page.locator("h1").inner_text() == "How to read these pages"
    assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_noise_and_truth_lie_within_their_picture(tab: Tab, url: str, width: int) -> None:
    page = tab.visit(f"{url}/help/reading", width, "dark")
    box = page.locator("figure svg[role=img]").bounding_box()
    assert box
    for mark in page.locator("circle.dot, line.truth").all():
        inner = mark.bounding_box()
        assert inner
        assert box["x"] - 8 <= inner["x"] <= box["x"] + box["width"] + 8
    assert tab.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_and_words_can_be_told_from_the_page(tab: Tab, url: str, scheme: str) -> None:
    page = tab.visit(f"{url}/help/reading", 1280, scheme)
    for selector, least in (("line.truth", 3), ("line.interval", 3), (".words dt", 4.5), ("figcaption", 4.5)):
        assert page.locator(selector).first.evaluate(CONTRAST) >= least, selector
