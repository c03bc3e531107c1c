"""Forms are made of what parameters declare of themselves, as the API and its description are."""

from collections.abc import Iterator
from decimal import Decimal
from re import findall

import pytest
from marshmallow import ValidationError

from dither_aggregator.web.api import description
from dither_aggregator.web.api.tables import PlanRowsAsked
from dither_aggregator.web.pages.compare import ComparePageAsked
from dither_aggregator.web.pages.metric import MetricAsked
from dither_aggregator.web.pages.planning import PlanningAsked
from dither_aggregator.web.pages.presentation import form
from dither_aggregator.web.queries import SeriesAsked
from dither_aggregator.web.query_parameters import FalseShareAsked, Whole
from tests.support.sites import Site, site


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("store"), 4) as made:
        yield made


@pytest.fixture
def moons(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A parameter more, of plans. It is added to the derived schema, too, into which marshmallow copied all others."""
    declared = Whole(1, 9, "how many moons it has", "moons (planets only)", size=2, load_default=3)
    for schema in (PlanningAsked, PlanRowsAsked):
        monkeypatch.setitem(schema._declared_fields, "moons", declared)
    description._document.cache_clear()
    yield
    description._document.cache_clear()


@pytest.mark.usefixtures("moons")
def test_a_parameter_is_declared_once_for_form_api_and_description(one: Site) -> None:
    field = (
        r'<label>moons \(planets only\) <input name="moons" value="(.*?)" inputmode="decimal" [^>]*size="2"></label>'
    )
    assert findall(field, one.client.get("/plan").text) == ["3"]
    assert findall(field, one.client.get("/plan?moons=7&n=9000&epsilon=1.5").text) == ["7"]
    wrong = one.client.get("/plan?moons=12&n=9000&epsilon=1.5")
    assert (wrong.status_code, findall(field, wrong.text)) == (400, ["12"])
    refused = one.client.get("/v1/plan?moons=12&n=9000&epsilon=1.5").get_json()
    assert refused["detail"] == "moons must be a number from 1 to 9 in digits alone, got '12'"
    assert one.client.get("/v1/plan?moons=7&n=9000&epsilon=1.5").status_code == 200
    asked = one.client.get("/openapi.json").get_json()["paths"]["/v1/plan"]["get"]["parameters"]
    assert [each for each in asked if each["name"] == "moons"] == [
        {
            "in": "query",
            "name": "moons",
            "description": "how many moons it has",
            "schema": {"type": "integer", "default": 3, "minimum": 1, "maximum": 9},
            "required": False,
        }
    ]


def test_a_form_has_what_has_a_label_and_is_shown() -> None:
    assert [each.name for each in form(SeriesAsked, {}) if each.name != "values"] == ["level", "window", "from", "to"]
    assert [each.name for each in form(MetricAsked, {"of": None, "by": None, "window": None}, first=("search",))] == [
        *("search", "false_share", "level", "plan", "from", "to")
    ]


def test_a_page_may_have_other_labels_than_the_address_beside_it() -> None:
    labels = {each.name: each.label for each in form(ComparePageAsked, {})}
    assert (labels["base_from"], labels["from"]) == ("before, from", "after, from")


def test_choices_have_words_in_an_order_of_their_own() -> None:
    (level,) = (each for each in form(SeriesAsked, {"level": "99"}) if each.name == "level")
    assert (level.value, level.choices) == ("99", {"80": "80 %", "95": "95 %", "99": "99 %"})
    (plan,) = (each for each in form(MetricAsked, {"plan": "b"}, {"plan": {"a": "1", "b": "2"}}) if each.name == "plan")
    assert (plan.label, plan.value, plan.choices) == ("rev", "b", {"a": "1", "b": "2"})


def test_a_list_has_a_field_for_each_of_its_values_and_one_that_offers_others(one: Site) -> None:
    *most, last = (
        each for each in form(SeriesAsked, {"values": ["a"]}, {"values": ["b", "c"]}) if each.name == "values"
    )
    assert [each.label for each in (*most, last)] == ["value 1", "value 2"]
    assert [each.value for each in (*most, last)] == ["a", ""]
    assert ({each.offers is None for each in most}, last.offers) == ({True}, {"b": "b", "c": "c"})
    html = one.client.get("/metrics/color/time?values=model+0").text
    assert (html.count('list="values"'), html.count('<datalist id="values">')) == (2, 1)
    assert "model 2" in html.partition("<datalist")[2].partition("</datalist>")[0]


@pytest.mark.parametrize(("written", "share"), [(".05", "0.05"), ("0.05", "0.05"), (".5", "0.5")])
def test_a_share_may_begin_with_its_point(written: str, share: str) -> None:
    """As `dither rappor decode --false-share` reads it."""
    assert FalseShareAsked().load({"false_share": written}) == {"false_share": Decimal(share)}


@pytest.mark.parametrize("written", [".", "5.", ".0005", "-.05", "1e-2"])
def test_what_is_no_share_is_refused(written: str) -> None:
    with pytest.raises(ValidationError, match=r"must be a number from 0\.001 to 0\.5"):
        FalseShareAsked().load({"false_share": written})
