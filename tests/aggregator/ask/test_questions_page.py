"""Questions on the page and over the API: examples run, errors show their place, intervals are told with what they hold
for, and a notebook reads the same.
"""

import io
import json
import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from email.message import Message
from html import unescape
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest

import dither_aggregator
from dither_aggregator.ask.answering import Asking
from dither_aggregator.ask.dashboard import analyses, examples, names
from dither_aggregator.ask.language import BadQuestion, parse
from dither_aggregator.notebook import NotAnswered, NotebookAnswer, _refused
from dither_aggregator.store.document_kinds import READ
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Registry
from dither_shared.safe_output import visible
from tests.aggregator.ask.test_asking import METRICS, PAGE
from tests.support.aggregators import aggregator, operators_app, sqlite_store
from tests.support.registries import metrics_text
from tests.support.sites import Site, site
from tests.support.soaking import scaled

MODELS = ("Chrome 100", "Chrome 101", "Firefox 9", '<b>&\u202e"\\', "مرحبا بالعالم")
KINDS: dict[str, Any] = {
    **METRICS,
    "hobbies": {"kind": "choices", "values": ["chess", "tea"], "ticks_max": 2, "epsilon": 2, "reports": 3},
    "found": {"kind": "words", "epsilon": 4, "reports": 3},
    "typed": {"kind": "text", "candidates": ["one", "two"], "candidates_expected": 5, "epsilon": 2, "reports": 3},
}
"""A metric of each kind."""


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two weeks of a list with hostile values, and of a flag."""
    rng = np.random.default_rng(44)
    values = tuple(value for value in MODELS if "\u202e" not in value)
    with site(tmp_path_factory.mktemp("site"), 5, values=values) as made:
        dark = made.store.plans("dark")[0].plan
        for back in range(1, 15):
            made.put(np.array([60_000, 40_000, 20_000, 3000, 0]), rng, back)
            made.put(np.array([40_000, 23_000]), rng, back, dark)
        yield made


def ask(one: Site, q: str, **more: str) -> tuple[int, Any]:
    answer = one.client.get("/v1/query", query_string={"q": q, **more})
    return answer.status_code, answer.get_json()


def post(one: Site, *questions: str) -> tuple[int, Any]:
    answer = one.client.post("/v1/query", json={"questions": questions})
    return answer.status_code, answer.get_json()


# Over the API.


def test_questions_that_are_fixed_together_hold_together_alone(one: Site) -> None:
    texts = ['share(dark = "yes") by week', 'share(color = "Chrome 100")']
    free = [row for text in texts for row in ask(one, text)[1]["rows"]]
    status, fixed = post(one, *texts)
    assert (status, fixed["meta"]["questions"]) == (200, texts)
    assert {row["family"] for row in fixed["rows"]} == {"asked"}
    assert {row["together"] for row in fixed["rows"]} == {len(fixed["rows"])}
    for narrow, wide in zip(fixed["rows"], free, strict=True):
        assert narrow["estimate"] == pytest.approx(wide["estimate"])
        assert narrow["upper"] - narrow["lower"] < wide["upper"] - wide["lower"]
        assert wide["together"] > 100_000


def test_several_lines_are_several_questions_that_hold_whatever_is_asked_next(one: Site) -> None:
    status, document = ask(one, 'share(dark = "yes")\n\nshare(color = "Chrome 100")\r\n')
    assert (status, len(document["rows"])) == (200, 2)
    assert {row["family"] for row in document["rows"]} == {"single"}


def test_the_weights_make_the_estimate(one: Site) -> None:
    status, document = ask(one, '2 * share(color in "Chrome *") - share(dark = "yes") + 1', weights="true")
    shares = {
        (metric, row["value"]): row["estimate"]
        for metric in ("color", "dark")
        for row in one.client.get(f"/v1/metrics/{metric}/estimates?error_of=population").get_json()["rows"]
    }
    weights = document["meta"]["weights"]
    assert (status, len(weights)) == (200, 4)
    made = sum(each["weight"] * shares.get((each["metric"], each["value"]), 1.0) for each in weights)
    assert made == pytest.approx(document["rows"][0]["estimate"])
    assert document["rows"][0]["unit"] == "1"
    ratio = ask(one, 'share(dark = "yes") / share(color = "Chrome 100")', weights="true")[1]["meta"]["weights"]
    assert [(each["part"], each["ratio"]) for each in ratio] == [("numerator", 1), ("denominator", 1)]
    assert ask(one, 'share(dark = "yes")')[1]["meta"]["weights"] is None
    body = {"questions": ["top(color, 2)"], "weights": True}
    of_rows = one.client.post("/v1/query", json=body).get_json()
    assert len({frozenset(row) for row in of_rows["rows"]}) == 1, "a JSON path finds as many of each field"
    weights = {each["name"]: (each["metric"], each["value"], each["weight"]) for each in of_rows["meta"]["weights"]}
    assert weights == {row["name"]: ("color", row["name"], 1.0) for row in of_rows["rows"]}
    spoiled = one.client.post("/v1/query", json={**body, "weights": "yes"})
    assert (spoiled.status_code, spoiled.get_json()["detail"]) == (400, "weights must be true or false")


@pytest.mark.parametrize(
    ("q", "says"),
    [
        ("share(dark = yes)", 'at character 14: expected a value in double quotes, such as "yes", got'),
        ('share(dark = "yes") +\nmean(', "at character 22: expected"),
        ('share(dark = "yes") + share(theme = "x")', "at character 29: there is no metric or column 'theme'"),
        ('share(color in "[C]*")', "at character 16: color has no value that"),
        ('share(dark = "no way")', "at character 14: dark has no value that"),
        ('share(dark = "yes")\nshare(dark = "no way")', "q, question 2: at character 14: dark has no value that"),
        ('share(dark = "yes") in 2099', "at character 24: 2099-01-01 is not over"),
        ('share(dark = "yes") by day since 1926-01-01', "a period has at most 366 days"),
        (
            f"{' + '.join([f'share(dark = {chr(34)}yes{chr(34)}, last {back} days)' for back in range(1, 56)])}",
            "at most",
        ),
        (" + ".join(f'share(color in "{at}*")' for at in range(9)) + " by day", "color has no value that"),
    ],
)
def test_a_question_that_cannot_be_asked_is_a_400_with_its_place(one: Site, q: str, says: str) -> None:
    status, problem = ask(one, q)
    assert status == 400, problem
    assert says in problem["detail"]
    assert re.search(r"^q(, question \d)?: at character \d+: ", problem["detail"])


def test_too_much_work_is_refused_before_any_count_is_read(one: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one.store, "tally", None)
    texts = [f'share(dark = "yes") + {n} * share(color = "Chrome 100") by day last 14 days' for n in range(1, 51)]
    status, problem = post(one, *texts)
    assert status == 400
    assert re.search(r"50 questions of [0-9,]+ parts in all are too many at once", problem["detail"])
    for body, says in {
        json.dumps({"questions": ['share(dark = "yes")'] * 51}): "questions must be 1 to 50 questions",
        '{"questions": []}': "questions must be 1 to 50 questions",
        '{"questions": "x"}': "questions must be a list of questions",
        '{"questions": [3]}': "questions must be texts",
        '{"questions": [""]}': "questions must be texts of 1 to 2,000 characters",
        **dict.fromkeys(
            ("[]", '{"questions": [[]]}', '{"questions": ["\\ud800"]}'),
            "the body must be a JSON object, in UTF-8, of words, numbers and lists of these",
        ),
    }.items():
        answer = one.client.post("/v1/query", data=body)
        assert (answer.status_code, answer.get_json()["detail"]) == (400, says)


@pytest.mark.parametrize(("values", "z"), [(41, 10.4), (301, 21.2), (1_500, None)])
def test_sums_of_many_values_hold_together_or_are_refused(tmp_path: Path, values: int, z: float | None) -> None:
    """By Python's own law the chance of 8.3 standard errors is 0: such questions ended in a traceback."""
    many = {"color": {"kind": "choice", "values": [f"v {at}" for at in range(values)], "epsilon": 4, "reports": 3}}
    with sqlite_store(Registry.parse(metrics_text(many, device_epsilon=400)), tmp_path) as store:
        asking, question = Asking(store), parse('share(color in "v *")')
        if z is None:
            with pytest.raises(BadQuestion, match="at character 7: sums of 1,501 values do not hold all at once"):
                asking.answer_all([question], fixed=False)
            assert asking.answer_all([question], fixed=True)
            return
        ((answer,),) = asking.answer_all([question], fixed=False)
        assert answer.z == pytest.approx(z, abs=0.4)


def test_no_chance_is_too_small_to_be_told(one: Site) -> None:
    """One of very many questions misses with 1e-18, and 1 less that is 1: ratios ended in a traceback."""
    widths = []
    for number in (100, 10**17):
        question = parse('share(color = "Chrome 100") / share(color = "Firefox 9")')
        (answer,) = Asking(one.store).answer(question, alone=number)
        widths.append((answer.upper or 0) - (answer.lower or 0))
    assert 0 < widths[0] < widths[1]


def test_patterns_of_many_values_are_bounded(tmp_path: Path) -> None:
    """195 patterns of 50,000 values took five seconds, once for each answer."""
    many = {"color": {"kind": "choice", "values": [f"v {at}" for at in range(6_000)], "epsilon": 4, "reports": 3}}
    with sqlite_store(Registry.parse(metrics_text(many, device_epsilon=400)), tmp_path) as store:
        asking = Asking(store)
        few, all_of_them = (", ".join(f'"*{at}*"' for at in range(number)) for number in (160, 200))
        with pytest.raises(BadQuestion, match="at character 7: 200 patterns are too many for 6,001 values"):
            asking.windows(parse(f"share(color in ({all_of_them}))"))
        assert asking.windows(parse(f"share(color in ({few}))"))


# The page.


def page(one: Site, q: str = "", status: int = 200) -> str:
    answer = one.client.get("/ask", query_string={"q": q} if q else {})
    assert answer.status_code == status, answer.text
    return answer.text


def headline(html: str) -> str:
    return unescape(re.search(r'class="headline"[^>]*><bdi>(.*?)</bdi>', html)[1]).replace("\xa0", " ")  # type: ignore[index]


def test_the_page_answers_with_an_interval_and_what_it_holds_for(one: Site) -> None:
    html = page(one, 'share(dark = "yes")')
    assert re.fullmatch(r"3\d(\.\d)? % \(3\d(\.\d)? to \d\d(\.\d)?\)", headline(html)), headline(html)
    assert "Intervals hold with 95 % for all questions of single names together" in html
    assert html.count('<circle class="dot"') == 1
    (link,) = re.findall(r'href="(/v1/query[^"]*format=csv)"', html)
    assert one.client.get(unescape(link)).text.startswith("question,from,to,n,")


def test_a_difference_is_told_in_points_and_a_ratio_without_a_unit(one: Site) -> None:
    html = page(one, 'share(color = "Chrome 100") - share(color = "Firefox 9")')
    assert re.fullmatch(r"\+\d+(\.\d+)? \(\d+.* points\)", headline(html)), headline(html)
    html = page(one, 'share(color = "Chrome 100") / share(color = "Firefox 9")')
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", headline(html)), headline(html)


def test_ends_of_multiples_and_sums_of_shares_are_not_cut_at_all_devices(one: Site) -> None:
    def ends(q: str) -> tuple[float, float]:
        low, high = re.findall(r"\((.*) to (.*)\)", headline(page(one, q)))[0]
        return float(low.replace(",", "")), float(high.replace(",", ""))

    for q in (
        '3 * share(dark = "yes")',
        'share(dark = "yes") + 2 * share(dark in "*")',
        '1000000 * share(dark = "yes")',
    ):
        ((row,), (low, high)) = ask(one, q)[1]["rows"], ends(q)
        assert low <= 100 * row["lower"] < 100 * row["upper"] <= high
        assert high > 100
    for q in ('share(dark in "*")', '0.5 * share(dark = "yes") + 0.5 * share(dark = "no")'):
        assert ends(q)[1] <= 100


def test_steps_are_a_line_and_several_lines_a_chart_of_rows(one: Site) -> None:
    html = page(one, 'share(dark = "yes") by day')
    assert "the last of 14 days that can be told" in headline(html)
    assert html.count('class="curve"') == 1
    assert html.count('<circle class="dot"') == 14
    assert page(one, 'share(dark = "yes") by week').count("curve") == 1
    html = page(one, 'share(color = "Chrome 100")\nshare(color = "Firefox 9")')
    assert html.count('<circle class="dot"') == 2
    assert headline(html) == "2 of 2 answers can be told."


def test_an_error_marks_its_place_and_keeps_the_question(one: Site) -> None:
    html = page(one, 'share(dark = "<yes>") + share(\u202etheme = "x")', 400)
    assert "<pre" in html
    assert "<mark>" in html
    assert "&lt;yes&gt;" in html
    assert "<yes>" not in html
    assert "\u202e" not in html.replace(re.search(r"<textarea.*?</textarea>", html, re.S)[0], "")  # type: ignore[index]


@pytest.mark.parametrize(
    "q",
    [
        "(" * 1_990,
        "-" * 1_990 + "1",
        "1" + "+1" * 990,
        "9" * 1_900 + " * mean(dark)",
        "(" * 900 + 'share(dark = "yes")' + ")" * 900,
        'share(color in ("' + '","'.join(f"*{at}*" for at in range(270)) + '"))',
        'share(color in "' + "*a" * 900 + '")',
        'share(dark = "yes") since 1926-01-01 by day',
        'share(dark = "yes") in 0001-01-01',
        'share(dark = "yes") between 9999-12-31 and 9999-12-31 by month',
        "<script>alert(1)</script>",
        "\x00\x1b[31m\u202e",
        "q" * 65_536,
    ],
)
def test_hostile_questions_are_refused_or_answered_at_once(one: Site, q: str) -> None:
    answer = one.client.get("/ask", query_string={"q": q})
    assert answer.status_code in (200, 400)
    assert "<script>alert" not in answer.text
    assert ask(one, q)[0] == answer.status_code or "(" * 900 in q


def test_examples_of_every_kind_can_be_asked_and_are_shown(tmp_path: Path) -> None:
    with sqlite_store(Registry.parse(metrics_text(KINDS, device_epsilon=400)), tmp_path) as store:
        asking = Asking(store)
        found = examples(asking)
        assert len(found) == 8
        for text in found:
            assert list(asking.answer(parse(text)))
        kinds = {asking.resolve(figure).plan.kind.name for text in found for figure in parse(text).expression.asked}
        assert kinds >= {"choice", "flag", "number", "table", "choices", "text"}
        html = operators_app(store).test_client().get("/ask").text
        assert [unescape(each) for each in re.findall(r'<code dir="ltr">(.*?)</code>', html)] == [
            *found,
            *analyses(asking),
        ]
        words = [word for each in re.findall(r'data-words="(.*?)"', html) for word in json.loads(unescape(each))]
        assert '"Chrome 100"' in words
        assert "stability.crashed" in words
        assert {each.name for each in names(asking)} >= {"browser", "stability.version", "load_time"}


# Any text.

PIECES = (
    *(
        *("share(", "mean(", "quantile(", ")", "(", '"Chrome *"', '"yes"', "browser", "dark", "load_time"),
        "stability.crashed",
    ),
    *(" in ", " = ", " > ", " < ", " | ", ", ", " + ", " - ", " * ", " / ", "0", ".5", "3 s", "1e9", "2026", "2026-11"),
    *(
        "2026-11-31",
        " by day",
        " by week",
        " last 7 days",
        " since 2026-01-01",
        " between ",
        " and ",
        '"',
        "\\",
        "\x00",
        *("é", "時", "\uff57", "e\u0301"),
    ),
)


def refusal(asking: Asking, text: str) -> BadQuestion | None:
    """Return why a text cannot be asked."""
    try:
        asking.windows(parse(text))
    except BadQuestion as error:
        return error
    return None


def test_any_text_is_asked_or_refused_with_its_place(tmp_path: Path) -> None:
    """Drawn pieces, and questions that were changed in some places: never another error."""
    rng = random.Random("questions")
    good = [line.strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("    ")]
    asked = 0
    with sqlite_store(Registry.parse(metrics_text(KINDS, device_epsilon=400)), tmp_path) as store:
        asking = Asking(store)
        for number in range(scaled(1_000, 60_000)):
            text = rng.choice(good)
            if number % 3 == 0:
                text = "".join(rng.choices(PIECES, k=rng.randrange(1, 14)))
            else:
                for _ in range(rng.randrange(1, 4)):
                    at, until = sorted(rng.randrange(len(text) + 1) for _ in range(2))
                    until = min(until, at + rng.randrange(4))
                    text = text[:at] + rng.choice((*PIECES, "", chr(rng.randrange(0x3000)))) + text[until:]
            refused = refusal(asking, text)
            asked += refused is None
            if refused:
                assert_place(asking, text, refused)
    assert asked > 3


def assert_place(asking: Asking, text: str, refused: BadQuestion) -> None:
    """The caret is below the character that cannot stand there; what is before it could begin a question."""
    assert refused.at is not None, text
    message, shown, caret = str(refused).rsplit("\n", 2)
    assert message.startswith(f"at character {refused.at + 1}: "), text
    assert 0 <= refused.at <= len(text)
    before, after = refused.around
    assert shown == f"  {before}{after}"
    assert width(caret) == width(f"  {before}") + 1
    assert visible(text[refused.at : refused.at + 20]) in f"{after} ", text
    if refused.why.startswith(("expected", "this cannot be read")):
        earlier = refusal(asking, text[: refused.at])
        assert earlier is None or (earlier.at or 0) >= len(text[: refused.at].rstrip()) or is_meant(earlier), text


def is_meant(refused: BadQuestion) -> bool:
    """Tell whether a text can be read, and means what cannot be asked."""
    return not refused.why.startswith(("expected", "this cannot be read"))


def width(shown: str) -> int:
    """Return how many places a text takes on a terminal."""
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in shown)


# From a notebook.


def test_a_notebook_asks_a_real_server(tmp_path: Path) -> None:
    asked = Registry.parse(metrics_text(METRICS, device_epsilon=400))
    with aggregator(asked, tmp_path) as (url, service):
        _, key = service.store.create_key(READ)
        reader = dither_aggregator.read(url, key)
        (answer,) = reader.ask('share(dark = "yes")')
        assert answer.estimate is None
        assert "no report of dark" in answer.untold
        assert "cannot be told: no report of dark" in str(answer)
        answers = reader.ask('share(dark = "yes") last 3 days by day', "mean(load_time)", weights=True)
        assert len(answers) == 4
        assert {each.others["family"] for each in answers} == {"asked"}
        assert answers[-1].unit == "s"
        assert answers.meta["weights"][-1]["metric"] == "load_time"
        frame = answers.frame()
        assert list(frame["n"]) == [0] * 4
        assert frame["from"].dt.year.min() >= 2026
        with pytest.raises(NotAnswered, match="at character 14: expected a value in double quotes"):
            reader.ask("share(dark = yes)")
        with pytest.raises(ConfigurationError, match="half of a surrogate pair"):
            reader.ask('share(dark = "\ud800")')
        with pytest.raises(ConfigurationError, match="no key has") as refused:
            dither_aggregator.read(url, f"{key}\n")
        assert key not in str(refused.value)
        with pytest.raises(NotAnswered, match="no such key"):
            dither_aggregator.read(url, "wrong").ask('share(dark = "yes")')
        assert key not in repr(reader)
    with pytest.raises(NotAnswered, match="did not answer"):
        reader.ask('share(dark = "yes")')
    with pytest.raises(ConfigurationError, match="https beyond this machine"):
        dither_aggregator.read("http://telemetry.example.org", key)
    with pytest.raises(ConfigurationError, match="ask a question"):
        reader.ask()


@pytest.mark.parametrize(("status", "says"), [(500, "it failed, or what stands before it"), (404, "is this an")])
def test_a_notebook_says_whose_fault_a_refusal_without_words_is(status: int, says: str) -> None:
    refused = HTTPError("https://telemetry.example.org", status, "", Message(), io.BytesIO(b"<html>"))
    assert f" answered {status}: {says}" in str(_refused(refused))


def test_a_notebook_prints_which_row_of_an_analysis_is_meant() -> None:
    day = date(2026, 11, 20)
    row = NotebookAnswer("logistic(a on b)", day, day, 9, 9, 0.5, 0.25, 0.75, "1", "", {"name": "b = yes"})
    assert str(row) == "logistic(a on b), 2026-11-20, b = yes: 0.5 (0.25 to 0.75)"
    assert str(replace(row, lower=None, upper=None)) == "logistic(a on b), 2026-11-20, b = yes: 0.5"  # of a model


def test_a_notebook_without_pandas_is_told_so(one: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from dither_aggregator.notebook import Answers

    monkeypatch.setitem(sys.modules, "pandas", None)
    answers = Answers(ask(one, 'share(dark = "yes")')[1])
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        answers.frame()
