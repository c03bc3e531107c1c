"""Questions about numbers that the API takes, and answers that are as they are described."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from dither_aggregator.analysis.numbers import QUANTILES
from tests.support.number_pages import ask, two_weeks_of_numbers
from tests.support.numeric import FORMS
from tests.support.reading_api import ROOT, faults, violations
from tests.support.sites import Site


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with two_weeks_of_numbers(tmp_path_factory.mktemp("numbers")) as made:
        yield made


@pytest.fixture(scope="module")
def described(one: Site) -> dict[str, Any]:
    document: dict[str, Any] = one.client.get("/openapi.json").get_json()
    return document


QUERIES = ("", "intervals=each", "window=today", "epoch=2020-01-01", "values=mean", "level=80", "offset=5")


@pytest.mark.parametrize("metric", FORMS)
def test_answers_are_as_described(one: Site, described: dict[str, Any], metric: str) -> None:
    path = "/v1/metrics/{metric}/"
    for query in QUERIES:
        answer = one.client.get(f"/v1/metrics/{metric}/estimates?{query}").get_json()
        assert faults(described, f"{path}estimates", "get", answer) == []
    for each in ("values", "series"):
        answer = one.client.get(f"/v1/metrics/{metric}/{each}").get_json()
        assert answer["rows"]
        assert faults(described, path + each, "get", answer) == []
    for address in ("/v1/changes", "/v1/compare"):
        query = f"?metric={metric}" * (address == "/v1/compare")
        answer = one.client.get(address + query).get_json()
        assert answer["rows"]
        assert faults(described, address, "get", answer) == []
    answer = one.client.get(f"/v1/metrics/{metric}/estimates").get_json()
    answer["rows"][0]["statistic"], answer["meta"]["untold"] = "median", "q99"
    assert len(faults(described, f"{path}estimates", "get", answer)) == 2


def test_three_lines_of_pandas_draw_a_shape(one: Site, tmp_path: Path) -> None:
    """api.md's lines, with this address in place of its own; the plot gets the shares of the ranges, lowest first."""
    import pandas  # it takes a third of a second, which processes that run other files would wait for

    text = (ROOT / "aggregator/api.md").read_text(encoding="utf-8").partition("## Numbers")[2]
    (shown,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (address,) = re.findall(r'"http://127.0.0.1:8080(.*?)"', shown)
    (tmp_path / "rows.csv").write_bytes(one.client.get(address.replace("/load_time/", "/load/")).data)
    drawn: list[Any] = []
    code = re.sub(r'"http://.*?"', repr(str(tmp_path / "rows.csv")), shown)
    with (
        patch.object(pandas.Series, "plot", SimpleNamespace(bar=lambda: None)),
        patch.object(pandas.DataFrame, "plot", SimpleNamespace(bar=lambda **how: drawn.append(how))),
    ):
        exec(compile(code, "api.md", "exec"), {"frames": drawn})
    assert drawn == [{"x": "low", "y": "fitted"}]


def test_the_rows_that_api_md_shows_are_as_described(one: Site, described: dict[str, Any]) -> None:
    """Each has the columns of an answer, and no other: but for what all rows have, which stands before them."""
    text = (ROOT / "aggregator/api.md").read_text(encoding="utf-8").partition("## Numbers")[2]
    shown = [json.loads(line) for line in re.findall(r"^    (\{.*\})$", text, re.MULTILINE)]
    _, rows = ask(one, "/v1/metrics/load/estimates")
    for row in shown:
        (like,) = [each for each in rows if each["value"] == row["value"]] or [rows[-2]]
        assert row.keys() <= like.keys()
        assert faults_of_row(described, {**like, **row}) == []
    assert {row["statistic"] for row in shown} == {"mean", "quantile", "share", "share_above"}


def faults_of_row(described: dict[str, Any], row: dict[str, Any]) -> list[str]:
    return violations(described, described["components"]["schemas"]["EstimateRow"], row)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("error_of=population", "error_of and normalised are for metrics whose values are listed"),
        ("normalised=mle", "error_of and normalised are for metrics whose values are listed"),
        ("top=3", "top is for metrics with many values: this one is of numbers"),
        ("values=q42", "there is no value 'q42' here"),
        ("level=40", "level must be"),
    ],
)
@pytest.mark.parametrize("metric", ["load", "age"])
def test_what_numbers_do_not_have_is_refused_in_words(one: Site, metric: str, query: str, says: str) -> None:
    answer = one.client.get(f"/v1/metrics/{metric}/estimates?{query}")
    assert answer.status_code == 400
    assert says in answer.get_json()["detail"]


def test_all_that_is_listed_can_be_asked_for(one: Site) -> None:
    for metric in FORMS:
        listed = ask(one, f"/v1/metrics/{metric}/values")[1]
        rows = ask(one, f"/v1/metrics/{metric}/estimates")[1]
        untold = ask(one, f"/v1/metrics/{metric}/estimates")[0]["untold"]
        kinds = {"mean": "statistic", "quantile": "statistic"}
        there = [(row["value"], kinds.get(row["statistic"], "share")) for row in rows]
        assert [(row["value"], row["kind"]) for row in listed if row["value"] not in untold] == there
        for row in rows[:2] + rows[-1:]:
            _, (same,) = ask(one, f"/v1/metrics/{metric}/estimates?values={row['value']}")
            assert same == row


def test_intervals_of_each_are_narrower_and_higher_levels_wider(one: Site) -> None:
    together, each, sure = (
        {row["value"]: row for row in ask(one, f"/v1/metrics/memo/estimates?{query}")[1]}
        for query in ("", "intervals=each", "level=99")
    )
    for value, row in together.items():
        own = each.get(value)
        assert own is None or own["upper"] - own["lower"] <= row["upper"] - row["lower"]
        wider = sure.get(value)
        assert wider is None or wider["upper"] - wider["lower"] >= row["upper"] - row["lower"]
    assert set(together) & set(QUANTILES)
