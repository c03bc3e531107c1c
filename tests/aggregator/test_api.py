"""The reading API: every answer {meta, rows}, the same rows as CSV."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import msgspec
import numpy as np
import pytest

from dither_aggregator.analysis.reading import COLUMNS
from dither_aggregator.analysis.reading_cache import NotReady
from dither_aggregator.counting import BadTally, TallyGone
from dither_aggregator.web.api import OPERATIONS
from dither_aggregator.web.api.rowsets import RowSet, respond
from dither_aggregator.web.charts import SHARES
from dither_aggregator.web.problems import CONTENT_TYPE
from dither_shared.registry import Registry
from dither_shared.safe_output import to_csv
from tests.aggregator.test_web import Client
from tests.support.aggregators import aggregator
from tests.support.clocks import Clock
from tests.support.laws import pure
from tests.support.reading_api import ADDRESS, ROOT, D, N, ask, listed, parquet, refused
from tests.support.registries import registry, registry_text
from tests.support.sites import EXPIRES, Seen, Site, site_of

ESTIMATES = import_module("dither_aggregator.web.api.estimates")
"""The package has a function of this name."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with listed(tmp_path_factory.mktemp("store")) as made:
        yield made


# Estimates.


def test_the_answer_says_what_its_rows_are_of(one: Site) -> None:
    """Critical and detectable share are those of 30 values together, which fall on whole counts."""
    yesterday = (one.store.today() - timedelta(days=1)).isoformat()
    meta = ask(one)["meta"]
    assert re.fullmatch("[0-9a-f]{64}", meta.pop("tally"))
    assert re.fullmatch(r"model 0 leads with .* \(.* to .*\); model 1 follows with .*\.", meta.pop("answer"))
    floor = meta["noise_floor"]
    by_answers = 3.144**2 / N / 2
    critical = by_answers + (by_answers**2 + (3.144 * floor) ** 2) ** 0.5  # c = 3.144 (floor^2 + c / n)^.5
    assert meta == {
        "app": "example",
        "metric": "color",
        "question": "Which colour do people choose?",
        "kind": "choice",
        "plan": one.plan.digest,
        "rev": 1,
        "mechanism": "oue",
        "from": yesterday,
        "to": yesterday,
        "n": N,
        "left_out": 0,
        "provisional": False,
        "snapshot": None,
        "epsilon": 4.0,
        "epsilon_permanent": None,
        "epsilon_lifetime": 4.0,
        "noise_floor": floor,
        "level": 95,
        "intervals": "simultaneous",
        "together": 1,
        "interval_method": "wald",
        "error_of": "population",
        "critical_share": pytest.approx(critical, rel=0.08),  # whole counts
        "detectable_share": pytest.approx(critical + 0.842 * critical / 3.144, rel=0.08),
        "tail": None,
        "rows_total": D,
        "next": None,
    }


def test_rows_are_flat_and_the_same_in_json_and_csv(one: Site) -> None:
    rows = ask(one)["rows"]
    assert [row["value"] for row in rows] == list(one.plan.values)
    assert {tuple(row) for row in rows} == {COLUMNS}
    assert (
        *("metric", "rev", "from", "to", "value", "n", "estimate", "std_error", "lower", "upper"),
        *("error_of", "verdict", "rank_lower", "rank_upper", "provisional", "snapshot", "left_out"),
    ) == COLUMNS
    p, q = float(pure(one.plan).p), float(pure(one.plan).q)
    yesterday = one.tallies[one.plan.digest, one.store.today() - timedelta(days=1)]
    for row, count in zip(rows, yesterday.counts[1:].tolist(), strict=True):
        assert row["estimate"] == pytest.approx((count / N - q) / (p - q))
    answer = one.client.get(f"{ADDRESS}?format=csv")
    assert answer.content_type == "text/csv; charset=utf-8"
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert tuple(table[0]) == COLUMNS
    for line, row in zip(table, rows, strict=True):
        assert line == {name: _in_csv(value) for name, value in row.items()}
    (name,) = re.findall(r'attachment; filename="(.*)"', answer.headers["Content-Disposition"])
    assert name == f"color-{rows[0]['from']}-{rows[0]['to']}.csv"


def _in_csv(value: object) -> str:
    return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)


def test_verdicts_and_intervals_are_the_pages(one: Site) -> None:
    for row in ask(one)["rows"]:
        html = one.page(f"search={row['value']}").html
        found = re.search(rf"<bdi>{row['value']}</bdi>( <span class=.verdict.>(.*?)</span>)?", html)
        assert found
        assert found[2] == row["verdict"]
        assert (row["rank_lower"] is not None) == (row["verdict"] == "stands out") == (row["lower"] > 0)
    shown = Seen(one.page().html).rows
    rows = {row["value"]: row for row in ask(one)["rows"]}
    for value, (_, estimate, lower, upper) in shown.items():
        row = rows[value]
        assert (row["estimate"], row["lower"], row["upper"]) == pytest.approx((estimate, lower, upper), abs=0.0006)
    assert rows["other"]["verdict"] is None


def test_verdicts_are_of_simultaneous_intervals_whichever_are_shown(one: Site) -> None:
    each, together = ask(one, "intervals=each"), ask(one)
    assert each["meta"]["intervals"] == "each"
    told = ("estimate", "std_error", "verdict", "rank_lower", "rank_upper")
    for row, wide in zip(each["rows"], together["rows"], strict=True):
        assert [row[name] for name in told] == [wide[name] for name in told]
        assert row["upper"] - row["lower"] < 0.7 * (wide["upper"] - wide["lower"])
        assert row["upper"] - row["estimate"] == pytest.approx(1.959964 * row["std_error"])
    assert any(row["lower"] > 0 and row["verdict"] == "cannot be told from zero" for row in each["rows"])


def test_today_has_no_verdicts(one: Site) -> None:
    answer = ask(one, "window=today")
    assert answer["meta"]["provisional"] is True
    assert {(row["provisional"], row["verdict"], row["rank_lower"]) for row in answer["rows"]} == {(True, None, None)}
    assert ask(one, "window=today&top=5")["rows"] == []


def test_a_flag_is_one_row_and_no_is_its_complement_for_who_asks(one: Site) -> None:
    address = "/v1/metrics/dark/estimates"
    whole = ask(one, address=address)
    (yes,) = whole["rows"]
    assert yes["value"] == "yes"
    (no,) = ask(one, "values=no", address)["rows"]
    both = ask(one, "values=yes&values=no", address)
    assert (both["rows"], both["meta"]["rows_total"]) == ([no, yes], 2)
    assert no["estimate"] == pytest.approx(1 - yes["estimate"], abs=1e-12)
    assert (no["lower"], no["upper"]) == pytest.approx((1 - yes["upper"], 1 - yes["lower"]), abs=1e-9)
    assert both["meta"]["answer"] == whole["meta"]["answer"]
    normalised = ask(one, "normalised=norm_sub&values=no", address)["rows"]
    assert [row["value"] for row in normalised] == ["no"]


def test_a_flags_intervals_hold_each_on_its_own_unless_told_otherwise(one: Site) -> None:
    address = "/v1/metrics/dark/estimates"
    each, together = ask(one, address=address), ask(one, "intervals=simultaneous", address)
    assert (each["meta"]["intervals"], together["meta"]["intervals"]) == ("each", "simultaneous")
    assert {row["verdict"] for row in each["rows"]} == {None}
    for row, wide in zip(each["rows"], together["rows"], strict=True):
        assert row["upper"] < wide["upper"]
    assert "asks for one share" in refused(one, "top=1", address)


@pytest.mark.parametrize("presence", ["public", "hidden"])
def test_a_flags_answer_has_the_numbers_of_its_row(presence: str, tmp_path: Path) -> None:
    """Also of the page, whichever intervals and confidence are asked for: digits are those that the interval leaves."""
    address = "/v1/metrics/dark/estimates"
    with site_of(Registry.parse(registry_text(presence=presence)), tmp_path) as one:
        plan = one.store.plans("dark")[0].plan
        one.put(np.array([313, 9_687, *[700] * (presence == "hidden")]), np.random.default_rng(1), plan=plan)
        for view in ("", "intervals=each", "intervals=simultaneous", "error_of=reports", "level=70", "values=no"):
            told = ask(one, view, address)
            yes = (told if view != "values=no" else ask(one, "", address))["rows"][0]
            said = SHARES.about(yes["estimate"], yes["lower"], yes["upper"])
            assert told["meta"]["answer"].startswith(f"{said} say yes"), view
            if "intervals" not in view:
                page = "" if view == "values=no" else view
                assert one.page(page, metric="dark").headline == told["meta"]["answer"].replace("\xa0", " ")


def test_other_errors_and_levels_and_a_normalised_column(one: Site) -> None:
    plain, population, sure = ask(one), ask(one, "error_of=population"), ask(one, "level=99")
    assert (population["meta"]["error_of"], sure["meta"]["level"]) == ("population", 99)
    for row, wider, surer in zip(plain["rows"], population["rows"], sure["rows"], strict=True):
        assert row["estimate"] == wider["estimate"] == surer["estimate"]
        assert row["std_error"] <= wider["std_error"]
        assert row["upper"] < surer["upper"]
    for method in ("norm_sub", "mle"):
        shown = ask(one, f"normalised={method}")
        assert (shown["meta"]["normalised"]["method"], shown["meta"]["normalised"]["converged"]) == (method, True)
        assert sum(row["normalised"] for row in shown["rows"]) == pytest.approx(1)
        header = one.client.get(f"{ADDRESS}?normalised={method}&format=csv").text.splitlines()[0]
        assert header == ",".join([*COLUMNS, "normalised"])


# Which rows.


def test_the_largest_are_those_that_stand_out_in_the_order_of_their_ranks(one: Site) -> None:
    out = [row for row in ask(one)["rows"] if row["verdict"] == "stands out"]
    assert 5 < len(out) < D - 1
    answer, found = ask(one, "top=4"), []
    assert answer["meta"]["rows_total"] == len(out)
    found += answer["rows"]
    while following := answer["meta"]["next"]:
        answer = one.client.get(following).get_json()
        assert len(answer["rows"]) <= 4
        found += answer["rows"]
    assert found == sorted(out, key=lambda row: -row["estimate"])
    assert ask(one, "top=1000")["rows"] == found
    assert ask(one, f"top=4&offset={len(out)}")["rows"] == []
    assert "intervals=simultaneous" in refused(one, "top=4&intervals=each")


def test_rows_are_chosen_by_value_by_a_part_of_it_and_by_place(one: Site) -> None:
    rows = ask(one)["rows"]
    named = ask(one, "values=model 7&values=other&values=model 2")
    assert named["rows"] == [rows[2], rows[7], rows[-1]]
    assert ask(one, "search=MODEL 1")["rows"] == [row for row in rows if "model 1" in row["value"]]
    assert ask(one, "offset=28")["rows"] == rows[28:]
    assert ask(one, "offset=28")["meta"]["rows_total"] == D
    assert ask(one, "epoch=2020-01-01&values=model 7")["rows"] == []
    assert "there is no value 'model 99' here" in refused(one, "values=model 7&values=model 99")
    assert "at most 1000 times" in refused(one, "&".join(["values=other"] * 1_001))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_unknown_parameter_is_refused_by_name(one: Site, operation: Any) -> None:
    address = "/v1" + operation.address.replace("<metric>", "color").replace("<id_>", "0" * 64)
    answer = one.client.open(f"{address}?colour=red", method=operation.method, data=b"{}")
    assert (answer.status_code, answer.content_type) == (400, CONTENT_TYPE)
    assert "there is no parameter 'colour' here, only: " in answer.get_json()["detail"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("error_of=both", "error_of must be population or reports, got 'both'"),
        ("intervals=all", "intervals must be simultaneous or each"),
        ("normalised=yes", "normalised must be no or norm_sub or mle"),
        ("format=xml", "format must be json or csv or parquet"),
        ("level=40", "level must be"),
        ("top=0", "top must be a number from 1 to"),
        ("offset=-1", "offset must be a number from 0 to"),
        ("top=1&top=2", "top was given 2 times"),
        ("from=2026-11-01", "from and to go together"),
    ],
)
def test_what_a_parameter_must_be_is_said(one: Site, query: str, says: str) -> None:
    assert says in refused(one, query)


# Lists of metrics and values.


def test_the_metrics_are_listed(one: Site) -> None:
    listed = ask(one, address="/v1/metrics")
    assert (listed["meta"]["app"], listed["meta"]["lossy"]) == ("example", False)
    color, dark = listed["rows"]
    assert (color["metric"], color["kind"], color["values"], color["candidates"]) == ("color", "choice", D, 0)
    assert (dark["metric"], dark["kind"], dark["epsilon"], dark["values"]) == ("dark", "flag", 4.0, 2)
    table = list(csv.DictReader(io.StringIO(one.client.get("/v1/metrics?format=csv").text)))
    assert [line["metric"] for line in table] == ["color", "dark"]


def test_the_values_of_a_metric_are_listed(one: Site) -> None:
    address = "/v1/metrics/color/values"
    rows = ask(one, address=address)["rows"]
    assert [row["value"] for row in rows] == list(one.plan.values)
    assert [row["kind"] for row in rows] == ["listed"] * (D - 1) + ["other"]
    some = ask(one, "search=MODEL&top=2&offset=3", address)
    assert [row["value"] for row in some["rows"]] == ["model 3", "model 4"]
    assert (some["meta"]["rows_total"], some["meta"]["next"]) == (D - 1, f"{address}?search=MODEL&top=2&offset=5")
    assert one.client.get("/v1/metrics/none/values").status_code == 404


# CSV.


def test_no_spreadsheet_runs_a_cell() -> None:
    texts = ["=1+1", "+1", "-1", "@A1", "\tx", "\rx", "'=1", "a=b", "", 'say "x", y\nz']
    made = to_csv(["a", "b"], [(text, -1.5) for text in texts])
    header, *rows = csv.reader(io.StringIO(made, newline=""))
    assert header == ["a", "b"]
    assert [row[0] for row in rows] == ["'=1+1", "'+1", "'-1", "'@A1", "'\tx", "'\rx", *texts[6:]]
    assert {row[1] for row in rows} == {"-1.5"}
    assert to_csv(["a"], [(True,), (7,), (-0.25,)]) == "a\r\ntrue\r\n7\r\n-0.25\r\n"


def test_a_value_is_found_in_every_form_of_its_name(tmp_path: Path) -> None:
    asked = registry(values=("caf\u00e9", "tea"), expires=EXPIRES, reports=1)
    with aggregator(asked, tmp_path, Clock()) as (url, service):
        client = Client(url, service, Clock())
        for name in ("caf\u00e9", "cafe\u0301"):
            assert client.get(f"/v1/metrics/color/series?values={quote(name)}").status_code == 200
            assert client.get(f"/v1/metrics/color/values?search={quote(name)}").json()["meta"]["rows_total"] == 1
            assert client.get(f"/v1/metrics/color/estimates?values={quote(name)}").status_code == 200
        assert client.get("/v1/metrics/color/series?values=cafe").status_code == 400
        client.session.close()


def test_three_lines_of_pandas_draw_a_month(one: Site, tmp_path: Path) -> None:
    """api.md's lines, with this address in place of its own. matplotlib is not there: the numbers that it gets are."""
    import pandas  # it takes a third of a second, which processes that run other files would wait for

    shown, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "aggregator/api.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in shown.splitlines() if line]) == 3
    address = re.findall(r'"http://127.0.0.1:8080(.*?)"', shown)[0].replace("/theme/", "/color/")
    (tmp_path / "rows.csv").write_bytes(one.client.get(address).data)
    drawn: list[Any] = []
    code = re.sub(r'"http://.*?"', repr(str(tmp_path / "rows.csv")), shown)
    with patch.object(pandas.DataFrame, "plot", lambda frame: drawn.append(frame)):
        exec(compile(code, "api.md", "exec"), {})
    expected = ask(one, "", address.partition("?")[0])["rows"]
    assert expected
    for row in expected:
        assert drawn[0].loc[row["from"], row["value"]] == row["estimate"]


class Pair(msgspec.Struct):
    a: object
    b: object


def test_numbers_of_numpy_are_numbers(one: Site) -> None:
    made = RowSet({"n": np.int64(3), "share": np.float64("nan")}, Pair, [Pair(np.float64(0.25), None)], "file")
    with one.client.application.test_request_context():
        assert respond(made, {"format": "json"}).data == b'{"meta":{"n":3,"share":null},"rows":[{"a":0.25,"b":null}]}'
        assert respond(made, {"format": "csv"}).data == b"a,b\r\n0.25,\r\n"
        with pytest.raises(TypeError, match="object is nothing that JSON has"):
            respond(RowSet({}, Pair, [Pair(object(), None)], "file"), {"format": "json"})


def test_parquet_has_the_rows_with_their_types_and_what_is_said_of_all(one: Site) -> None:
    answer = one.client.get(f"{ADDRESS}?format=parquet")
    assert answer.headers["Content-Disposition"].endswith('.parquet"')
    told = ask(one, "", ADDRESS)
    assert parquet(answer.data) == (told["rows"], told["meta"])
    some, _ = parquet(one.client.get(f"{ADDRESS}?format=parquet&fields=estimate,value").data)
    assert some == [{name: row[name] for name in ("estimate", "value")} for row in told["rows"]]

    class Odd(msgspec.Struct):
        mixed: int | str
        many: list[int]
        none: float | None

    odd: RowSet[dict[str, int], Odd] = RowSet({}, Odd, [Odd(1, [2], None), Odd("a", [], np.float64("nan"))], "file")
    with one.client.application.test_request_context():
        rows, _ = parquet(respond(odd, {"format": "parquet"}).data)
        nothing, _ = parquet(respond(RowSet({}, Odd, [], "file"), {"format": "parquet"}).data)
    assert rows == [{"mixed": "1", "many": "[2]", "none": None}, {"mixed": "a", "many": "[]", "none": None}]
    assert nothing == []


def test_without_pyarrow_parquet_is_refused_with_what_to_do(one: Site) -> None:
    with patch.dict("sys.modules", {"pyarrow": None}):
        assert "pip install pyarrow" in refused(one, "format=parquet")


# All metrics at once.


def test_one_request_has_the_estimates_of_all_metrics_and_those_without_say_why(one: Site) -> None:
    meta, rows = ask(one, "", "/v1/estimates").values()
    assert (meta["metrics"], meta["metrics_missing"], meta["level"]) == (2, 0, 95)
    for metric in ("color", "dark"):
        mine = [row for row in rows if row["metric"] == metric]
        alone = ask(one, "", f"/v1/metrics/{metric}/estimates")["rows"]
        assert [{name: row[name] for name in mine[0] if name in row} for row in alone] == [
            {name: each for name, each in row.items() if name in alone[0]} for row in mine
        ]
    csv_rows = list(csv.DictReader(io.StringIO(one.client.get("/v1/estimates?format=csv").text)))
    assert [row["value"] for row in csv_rows] == [row["value"] for row in rows]
    missing = ask(one, "from=2026-01-01&to=2026-01-02", "/v1/estimates")
    assert missing["meta"]["metrics_missing"] == 2
    assert [(row["metric"], row["value"], row["missing"]) for row in missing["rows"]] == [
        ("color", None, "no reports"),
        ("dark", None, "no reports"),
    ]


def test_what_cannot_be_read_is_a_row_that_says_so(one: Site) -> None:
    whole = len(ask(one, "", "/v1/estimates")["rows"])
    for error, says in (
        (TallyGone(one.day(1), "x"), "gone"),
        (BadTally("x"), "damaged"),
        (NotReady("x", 0, 1), "being computed"),
    ):
        with patch.object(ESTIMATES, "read", side_effect=error):
            assert {row["missing"] for row in ask(one, "", "/v1/estimates")["rows"]} == {says}
    with patch.object(ESTIMATES, "ROWS_MAX", whole - 1):
        assert "ask for one metric at a time" in refused(one, "", "/v1/estimates")


def test_some_columns_of_any_answer_can_be_asked_for(one: Site) -> None:
    for address in (ADDRESS, "/v1/estimates", "/v1/metrics"):
        rows = ask(one, "", address)["rows"]
        some = ask(one, "fields=from,metric", address)["rows"]
        assert some == [{"from": row["from"], "metric": row["metric"]} for row in rows]
        assert list(some[0]) == ["from", "metric"]
    assert one.client.get(f"{ADDRESS}?format=csv&fields=value").text.startswith("value\r\nmodel 0\r\n")
    assert re.fullmatch("fields: there is no 'moon' here, only: metric, rev, .*", refused(one, "fields=value,moon"))


def test_no_window_may_begin_after_today(one: Site) -> None:
    days = (one.store.today() + timedelta(days=1)).isoformat()
    for address, names in (
        (ADDRESS, "from to"),
        ("/v1/estimates", "from to"),
        ("/v1/metrics/color/series", "from to"),
        ("/v1/metrics/color/groups", "epoch"),
        ("/v1/compare", "base_from base_to"),
    ):
        query = "&".join(["metric=color"] * address.endswith("compare") + [f"{name}={days}" for name in names.split()])
        assert "days must not begin after today" in refused(one, query, address)
