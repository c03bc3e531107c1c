"""The reading API of texts, and the description that every answer holds to."""

import json
import random
import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
import requests

from dither_aggregator.analysis.reading import COLUMNS
from dither_aggregator.analysis.rows import says
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import DayMark
from dither_aggregator.web.api import OPERATIONS, description
from dither_aggregator.web.api.description import Operation
from dither_aggregator.web.api.rowsets import RowSet, respond
from dither_aggregator.web.charts import SHARES, end
from dither_aggregator.web.query_parameters import QueryParameters
from dither_shared.rng import Rng
from dither_shared.wire import encode_upload, new_upload_id
from tests.aggregator.test_web import Client
from tests.support.aggregators import aggregator
from tests.support.clocks import Clock
from tests.support.reading_api import ADDRESS, ask, check_answers, faults, listed, parquet, refused, violations
from tests.support.registries import registry, registry_text
from tests.support.sites import EXPIRES, Site


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with listed(tmp_path_factory.mktemp("store")) as made:
        yield made


# Texts, and several values.


def test_shares_of_several_ticks_are_not_normalised(tmp_path: Path) -> None:
    asked = registry(expires=EXPIRES, kind="choices", color="ticks_max = 2")
    clock = Clock()
    with aggregator(asked, tmp_path, clock) as (url, service):
        client = Client(url, service, clock)
        answer = client.get(f"{ADDRESS}?normalised=mle")
        assert answer.status_code == 400
        assert "several values" in answer.json()["detail"]
        client.session.close()


WORDS = ("alpha", "beta", "gamma", "delta", "unheard of")
TEXT: dict[str, Any] = {"kind": "text", "epsilon": "4", "epsilon_permanent": "8", "color": "candidates_expected = 9"}


@pytest.fixture(scope="module")
def day_of_texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Client]]:
    """Yield what an aggregator says of a day of texts before it is over, and that aggregator after it is sealed.

    It has 4,000 reports of alpha, beta and gamma, as 4 : 3 : 1, and its registry's candidates.
    """
    asked, clock, rng = registry(expires=EXPIRES, **TEXT, candidates=WORDS), Clock(), random.Random(4)
    color = asked.metrics["color"]
    shape = color.mechanism.shape
    by_cohort: dict[int, list[int | str]] = {}
    coins = Rng(rng.getrandbits)
    for place in range(4_000):
        cohort = rng.randrange(color.cells.count)
        word = WORDS[min(place % 8 // 4 + place % 8 // 7, 2)]
        report = color.mechanism.randomize(color.class_of(word, cohort, coins), coins)
        by_cohort.setdefault(cohort, []).append(shape.to_wire(report))
    with aggregator(asked, tmp_path_factory.mktemp("texts"), clock) as (url, service):
        client = Client(url, service, clock)
        for cohort, reports in by_cohort.items():
            body = encode_upload(new_upload_id(rng.getrandbits), [("color", color.plan.digest, reports, cohort)])
            assert client.post(body).status_code == 202
        client.folded()
        today = client.get(f"{ADDRESS}?window=today").json()
        clock.travel(1)
        service.store.seal(0)
        yield today, client
        client.session.close()


@pytest.fixture
def texts(day_of_texts: tuple[dict[str, Any], Client]) -> Client:
    return day_of_texts[1]


def test_a_day_of_texts_that_is_not_over_has_no_verdicts(day_of_texts: tuple[dict[str, Any], Client]) -> None:
    answer, _ = day_of_texts
    assert (answer["meta"]["provisional"], answer["meta"]["error_of"]) == (True, "population")
    assert {row["verdict"] for row in answer["rows"]} == {None}


def test_texts_are_looked_for_in_the_registrys_list(texts: Client) -> None:
    """None of 5 estimates is 6 standard errors off the truth: a false alarm of 1e-8, and the seed is fixed."""
    answer = texts.get(ADDRESS).json()
    meta, rows = answer["meta"], {row["value"]: row for row in answer["rows"]}
    assert (meta["n"], meta["mechanism"], meta["interval_method"]) == (4_000, "rappor", "wald")
    assert tuple(rows) == WORDS
    assert {tuple(row) for row in answer["rows"]} == {(*COLUMNS, "proportion", "group")}
    for word, share in zip(WORDS, (0.5, 0.375, 0.125, 0, 0), strict=True):
        assert abs(rows[word]["estimate"] - share) < 6 * rows[word]["std_error"]
        assert (rows[word]["verdict"] == "stands out") is (rows[word]["lower"] > 0) is (share > 0)
    assert [(rows[word]["rank_lower"], rows[word]["rank_upper"]) for word in WORDS[:3]] == [(1, 1), (2, 2), (3, 3)]
    assert abs(meta["fit"]["unexplained"]) < 0.1
    assert meta["noise_floor"] == sorted(row["std_error"] for row in answer["rows"])[1]
    page = texts.get("/metrics/color").text
    assert "3 of 5 candidates stand out from the noise." in page
    assert "over 0 values" not in page
    assert "None of these can be told from zero: delta, unheard of." in page
    assert "cannot be told from zero" in texts.get("/metrics/color?search=UNHEARD").text
    assert "text is looked for" not in texts.get("/").text


@pytest.mark.parametrize("level", [80, 95])
def test_headline_and_numbers_of_a_page_have_one_interval_of_a_text(texts: Client, level: int) -> None:
    rows = texts.get(f"{ADDRESS}?level={level}").json()["rows"]
    page = texts.get(f"/metrics/color?level={level}").text
    headline = re.findall('<p class="headline">(.*?)</p>', page)[0]
    first, second = (SHARES.about(row["estimate"], row["lower"], row["upper"]) for row in rows[:2])
    assert headline == f"{WORDS[0]} leads with {first}; {WORDS[1]} follows with {second}."
    for row in rows[:3]:
        ends = (end(row[name], row["std_error"]) for name in ("lower", "upper"))
        assert '{} <span class="to">to</span> {}'.format(*ends) in page
    said = f"On {level} of 100 such pages every interval here holds the true value."
    assert f"{said} At most {100 - level} % of the candidates" in page


def test_intervals_of_texts_are_wider_for_having_been_found(texts: Client) -> None:
    together, each = texts.get(ADDRESS).json(), texts.get(f"{ADDRESS}?intervals=each").json()
    for row, own in zip(together["rows"], each["rows"], strict=True):
        assert (row["estimate"], row["verdict"]) == (own["estimate"], own["verdict"])
        assert row["upper"] > own["upper"]
        assert own["upper"] - own["estimate"] == pytest.approx(1.959964 * own["std_error"], rel=1e-5)  # by a t law


def test_the_registrys_candidates_are_the_values(texts: Client) -> None:
    rows = texts.get("/v1/metrics/color/values").json()["rows"]
    assert [(row["value"], row["kind"]) for row in rows] == [(word, "candidate") for word in WORDS]


def test_other_candidates_are_looked_for_without_touching_a_device(texts: Client) -> None:
    def ask_for(body: object, path: str = ADDRESS) -> requests.Response:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return texts.session.post(texts.url + path, data=sent, timeout=30)

    answer = ask_for({"candidates": ["beta", "cafe\u0301"]}).json()
    assert [row["value"] for row in answer["rows"]] == ["beta", "caf\u00e9"]
    answer = ask_for({"candidates": ["beta", "epsilon"]}).json()
    assert [row["value"] for row in answer["rows"]] == ["beta", "epsilon"]
    assert answer["rows"][0]["verdict"] == "stands out"
    assert answer["meta"]["fit"]["unexplained"] > 0.4
    assert ask_for({"candidates": ["beta", "epsilon"]}, f"{ADDRESS}?top=3").json()["rows"] == answer["rows"][:1]
    for body, message in [
        ({}, "the body must be"),
        ({"candidates": []}, "with 1 to 100000 texts"),
        ({"candidates": ["a"], "more": 1}, "the body must be"),
        ({"candidates": ["a", "a"]}, "candidates must be different"),
        ({"candidates": [7]}, "must be a text of at most 200 characters"),
        ({"candidates": ["x" * 201]}, "must be a text of at most 200 characters"),
        ({"candidates": ["\ud800"]}, "UTF-8"),
        (b'{"candidates": ["\xff"]}', "UTF-8"),
        ({"candidates": ["x", "caf\u00e9", "cafe\u0301"]}, "candidates must be different, and numbers 2 and 3 are not"),
        ({"candidates": ["x", "a\u202eb"]}, "must be texts that can be seen, got U+202E in number 2"),
        (["a"], "the body must be"),
    ]:
        answer = ask_for(body)
        assert answer.status_code == 400, body
        assert message in answer.json()["detail"]
    assert "candidates are for texts" in ask_for({"candidates": ["a"]}, "/v1/metrics/dark/estimates").json()["detail"]
    assert "values are listed" in texts.get(f"{ADDRESS}?normalised=mle").json()["detail"]


def test_a_text_with_no_candidates_says_what_to_do(tmp_path: Path) -> None:
    asked, clock = registry(expires=EXPIRES, **TEXT), Clock()
    color = asked.metrics["color"]
    with aggregator(asked, tmp_path, clock) as (url, service):
        client = Client(url, service, clock)
        report = color.mechanism.shape.to_wire(color.mechanism.randomize(1, Rng(random.Random(1).getrandbits)))
        client.post(encode_upload(new_upload_id(random.getrandbits), [("color", color.plan.digest, [report], 3)]))
        client.folded()
        assert client.get(f"{ADDRESS}?window=today").json()["rows"] == []
        assert "list candidates in the registry" in client.get("/metrics/color?window=today").text
        client.session.close()


# The description.


@pytest.fixture(scope="module")
def described(one: Site) -> dict[str, Any]:
    document: dict[str, Any] = one.client.get("/openapi.json").get_json()
    return document


def test_the_description_is_openapi_and_names_every_address(
    one: Site, described: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        sys.modules, "rfc3987_syntax", None
    )  # a grammar of IRIs, which OpenAPI's schema asks for nowhere
    import openapi_spec_validator  # it takes seconds to import, which workers that run other files would wait for

    openapi_spec_validator.validate(described)
    rules = {
        (re.sub("<(.*?)>", r"{\1}", rule.rule), method.lower())
        for rule in one.client.application.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
        if rule.rule.startswith("/v1/")
    }
    operations = {(path, name) for path, item in described["paths"].items() for name in item if name != "parameters"}
    assert operations == rules
    asked = {each["name"] for each in described["paths"][ADDRESS.replace("color", "{metric}")]["get"]["parameters"]}
    assert {"from", "to", "window", "level", "intervals", "values", "search", "top", "offset"} < asked
    assert refused(one, "x=1", "/openapi.json").startswith("there is no parameter 'x'")


NEEDED = {"/v1/compare": "metric=color&", "/v1/plan": "n=9000&epsilon=1.5&", "/v1/query": 'q=share(dark="yes")&'}
"""Parameters without which an address cannot be got."""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/metrics/{metric}/estimates": {"candidates": ["alpha"]},
    "/v1/query": {"questions": ['share(dark = "yes")']},
    "/v1/admin/registry/load": {"registry": registry_text(expires=EXPIRES, **TEXT)},
    "/v1/admin/plans/retire": {"metric": "dark", "rev": 1, "undo": True},
    "/v1/admin/quarantine/replay": {"ids": ["1"]},
    "/v1/admin/quarantine/drop": {"ids": ["1"]},
    "/v1/admin/marks/add": {"day": "2026-11-20", "text": "version 158"},
    "/v1/admin/marks/remove": {"day": "2026-11-20"},
    "/v1/admin/keys/create": {"scope": "read", "label": ""},
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def test_every_answer_is_a_csv_with_excels_mark_where_it_is_asked_for_and_parquet_with_the_same_rows(
    described: dict[str, Any], tmp_path: Path
) -> None:
    with_csv = [
        (path, method, operation["parameters"])
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if method in ("get", "post") and "text/csv" in operation["responses"].get("200", {}).get("content", {})
    ]
    asked = registry(expires=EXPIRES, **TEXT)
    with aggregator(asked, tmp_path, Clock()) as (url, service), requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {service.store.create_key('admin')[1]}"

        def ask_for(path: str, method: str, query: str) -> requests.Response:
            revoked = {"id": service.store.create_key("write")[0].id} if path.endswith("/revoke") else None
            body = BODIES.get(path, revoked) if method == "post" else None
            address = (
                url
                + path.replace("{metric}", "color")
                + "?"
                + (NEEDED.get(path, "") if method == "get" else "")
                + query
            )
            return session.request(method, address, json=body, timeout=30)

        for path, method, parameters in with_csv:
            (said,) = (each for each in parameters if each["name"] == "bom")
            assert (said["in"], said["required"], said["schema"]["enum"]) == ("query", False, ["1"])
            plain, marked = (ask_for(path, method, f"format=csv{more}") for more in ("", "&bom=1"))
            assert (plain.status_code, marked.status_code) == (200, 200), (path, plain.text, marked.text)
            assert plain.content.partition(b"\r\n")[0] == marked.content.partition(b"\r\n")[0].removeprefix(
                BYTE_ORDER_MARK
            )
            assert marked.content.startswith(BYTE_ORDER_MARK), path
            table = ask_for(path, method, "format=parquet")
            assert table.status_code == 200, (path, table.text)
            rows, _ = parquet(table.content)
            assert not rows or plain.content.partition(b"\r\n")[0].decode() == ",".join(rows[0]), path
            if method == "get":
                assert rows == ask_for(path, method, "").json()["rows"], path
            assert (plain.content.count(BYTE_ORDER_MARK), marked.content.count(BYTE_ORDER_MARK)) == (0, 1)
            wrong = {f"format=csv&bom={each}": f"bom must be 1, got {each!r}" for each in ("0", "2", "true", "1 ")}
            for query, detail in {
                "bom=1": "bom goes with format=csv",
                **(wrong if path == with_csv[0][0] else {}),
            }.items():
                answer = ask_for(path, method, query)
                assert (answer.status_code, answer.json()["detail"]) == (400, detail), path
    assert len(with_csv) >= 22


class ToyMeta(TypedDict):
    moons: Annotated[int, says("of all planets")]


class ToyRow(msgspec.Struct):
    planet: str
    since: Annotated[date | None, says("the day that it was found")] = msgspec.field(name="from")


def toys(store: Store, asked: QueryParameters) -> RowSet[ToyMeta, ToyRow]:
    """Two planets, one of which everybody has always seen."""
    return RowSet({"moons": 28}, ToyRow, [ToyRow("Uranus", date(1781, 3, 13)), ToyRow("Mars", None)], "toys")


def test_a_column_is_declared_once_for_json_csv_and_the_description(one: Site) -> None:
    document = description._document((Operation("/toys", toys, "planets"),), ())
    meta, row = (document["components"]["schemas"][each] for each in ("ToyMeta", "ToyRow"))
    assert meta["properties"] == {"moons": {"type": "integer", "description": "of all planets"}}
    assert (meta["required"], "required" in row) == (["moons"], False)  # `fields` may ask for one column alone
    assert row["additionalProperties"] is False
    assert row["properties"]["planet"] == {"type": "string"}
    assert row["properties"]["from"]["description"] == "the day that it was found"
    with one.client.application.test_request_context():
        made = toys(one.store, {})
        answer, csv = (respond(made, {"format": form}).data for form in ("json", "csv"))
    assert faults(document, "/v1/toys", "get", json.loads(answer)) == []
    assert len(faults(document, "/v1/toys", "get", json.loads(answer.replace(b'"Mars"', b"7")))) == 1
    assert csv == b"planet,from\r\nUranus,1781-03-13\r\nMars,\r\n"


def test_a_column_of_two_estimands_is_described_by_both(described: dict[str, Any]) -> None:
    group = described["components"]["schemas"]["EstimateRow"]["properties"]["group"]
    assert re.fullmatch("for a text: .*; for a table: .*", group["description"])
    assert [violations(described, group, each) for each in ("a", None)] == [[], []]
    assert violations(described, group, 7)


QUERIES = (
    *("", "intervals=each", "window=today", "epoch=2020-01-01", "top=2", "values=other", "level=80"),
    "fields=value,upper",
    *("normalised=mle", "error_of=population", "offset=100"),
)


def test_every_kind_of_answer_is_as_described(one: Site, texts: Client, described: dict[str, Any]) -> None:
    path = "/v1/metrics/{metric}/estimates"
    for query in QUERIES:
        assert faults(described, path, "get", ask(one, query)) == []
    assert faults(described, path, "get", ask(one, address="/v1/metrics/dark/estimates")) == []
    for query in ("", "intervals=each", "epoch=2020-01-01"):
        assert faults(described, path, "get", texts.get(f"{ADDRESS}?{query}").json()) == []
    body = json.dumps({"candidates": ["alpha", "epsilon"]})
    posted = texts.session.post(f"{texts.url}{ADDRESS}?epoch=2026-11-20", data=body, timeout=30).json()
    assert faults(described, path, "post", posted) == []
    for each in ("metrics", "estimates", "metrics/{metric}/values", "metrics/{metric}/snapshots"):
        answer = texts.get("/v1/" + each.replace("{metric}", "color")).json()
        assert faults(described, f"/v1/{each}", "get", answer) == []
    one.store.put(DayMark(one.store.today(), "version 158"))
    for each in ("metrics/{metric}/series", "compare", "changes", "plan", "marks"):
        query = {"compare": "?metric=color", "plan": "?n=9000&epsilon=1.5"}.get(each, "")
        answer = ask(one, query[1:], "/v1/" + each.replace("{metric}", "color"))
        assert faults(described, f"/v1/{each}", "get", answer) == []
    for query in ("n=9000&epsilon=1.5", "asks=mean&n=9000&epsilon=1.5", "n=90&epsilon=1", "epsilon=1&width_percent=9"):
        assert faults(described, "/v1/plan", "get", ask(one, f"kind=number&{query}", "/v1/plan")) == []
    for query in (
        "kind=flag&installs=9000&epsilon=1.5",
        "kind=table&d=2&installs=9&reports=9&schedule=early&epsilon=1",
    ):
        assert faults(described, "/v1/plan", "get", ask(one, query, "/v1/plan")) == []
    for query in ("d=3&n=9000&epsilon=1.5", "d=3&n=90&epsilon=1", "d=2&arms=3&epsilon=1&effect_percent=9"):
        assert faults(described, "/v1/plan", "get", ask(one, f"kind=table&{query}", "/v1/plan")) == []
    posted["rows"][0]["colour"] = 1
    del posted["meta"]["n"]
    assert len(faults(described, path, "post", posted)) == 2


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_answers_are_as_described(one: Site, described: dict[str, Any], operation: Any) -> None:
    statuses = check_answers(one, described, operation)
    assert statuses
    assert set(statuses) <= {200, 400, 404}


def test_an_answer_that_is_not_as_described_is_seen(one: Site, described: dict[str, Any]) -> None:
    spoiled = json.loads(json.dumps(described))
    spoiled["components"]["schemas"]["EstimateRow"]["properties"]["value"] = {"type": "integer"}
    estimates = next(operation for operation in OPERATIONS if operation.name == "estimates")
    with pytest.raises(BaseExceptionGroup, match="integer"):
        check_answers(one, spoiled, estimates)
