"""The words on a metric's page, over many populations: read as a person reads its HTML, not as it was computed."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import binom

from dither_aggregator.analysis import shares as shares_module
from dither_aggregator.analysis.pure import estimate_shares
from dither_aggregator.web.pages.report import weekly
from tests.support.number_pages import words
from tests.support.registries import registry
from tests.support.sites import EXPIRES, Seen, Site, share, site, zipf
from tests.support.soaking import scaled, thinned


def populations(one: Site, d: int, number: int, seed: int) -> tuple[int, int, int, int]:
    """Return how many pages were right in all that they show, of how many, and how many intervals held, of how many."""
    rng = np.random.default_rng(seed)
    right = held = shown = 0
    for _ in range(number):
        n = int(rng.integers(3_000, 20_001))
        counts = rng.multinomial(n, zipf(d)).astype(np.int64)
        one.put(counts, rng)
        rows = one.page().rows
        truth = dict(zip(one.plan.values, (counts / n).tolist(), strict=True))
        inside = [lower <= truth[value] <= upper for value, (_, _, lower, upper) in rows.items()]
        right, held, shown = right + all(inside), held + sum(inside), shown + len(inside)
    return right, number, held, shown


@pytest.mark.slow
@pytest.mark.parametrize(("d", "number"), thinned([(30, 400), (300, scaled(35, 400)), (4_000, 200)], 1))
def test_what_a_page_shows_holds(d: int, number: int, tmp_path: Path) -> None:
    """Seeded populations, 1,000 in a soak. Pages with a wrong interval: 5 % at most, and so fewer than 12 % of 200
    (1e-5) or 10 % of 400 (1e-5), if the claim were only just true; what is seen is below 2 %."""
    with site(tmp_path, d, 'mechanism = "oue"') as one:
        right, pages, held, shown = populations(one, d, number, seed=d)
    assert shown > 3 * pages
    assert held / shown >= 0.95
    assert right / pages >= 0.94


@pytest.mark.slow
def test_intervals_that_hold_each_on_its_own_would_be_seen(tmp_path: Path) -> None:
    def each_alone(*args: object, **how: object) -> object:
        return estimate_shares(*args, **{**how, "simultaneous": False})  # type: ignore[arg-type]

    with site(tmp_path, 300, 'mechanism = "oue"') as one, patch.object(shares_module, "estimate_shares", each_alone):
        right, pages, *_ = populations(one, 300, 20, seed=1)
    assert right / pages < 0.7


@pytest.mark.slow
def test_nothing_stands_out_of_noise(tmp_path: Path) -> None:
    """Pages of 300 values that nobody has: of 200 fewer than 27 with one that stands out (5 % each: 3e-6)."""
    rng, out, pages = np.random.default_rng(3), 0, scaled(20, 200)
    counts = np.zeros(300, dtype=np.int64)
    counts[-1] = 3_000
    with site(tmp_path, 300, 'mechanism = "oue"') as one:
        for _ in range(pages):
            one.put(counts, rng)
            seen = one.page()
            alone = seen.headline.startswith("None of 299 values stands out from the noise. A value that ")
            assert alone == (list(seen.rows) == ["other"])
            out += not alone
    assert out <= binom.isf(3.1e-6, pages, 0.05)


def test_many_values_and_few_reports_show_no_dot_below_the_line(tmp_path: Path) -> None:
    with site(tmp_path, 4_000, 'mechanism = "oue"') as one:
        one.put(np.random.default_rng(1).multinomial(3_000, zipf(4_000)).astype(np.int64), np.random.default_rng(2))
        seen = one.page()
        critical = share(re.findall(r"beyond the dashed line, at (.*?%)\.", seen.html)[0])
        rows = {value: row for value, row in seen.rows.items() if value != "other"}
        assert rows
        assert all(estimate > critical - 0.0006 and lower >= 0 for _, estimate, lower, _ in rows.values())
        assert f"{3_999 - len(rows):,} more listed values, not ranked" in seen.html
        assert len(seen.html) < 300_000


# Every state has its sentence.


def test_the_default_is_the_last_sealed_week_whatever_today_brings(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with site(tmp_path, 12) as one:
        assert one.page().headline == "No reports of these days are counted."
        one.put(np.full(12, 50), rng, days_ago=0)
        assert one.page().headline == "No reports of these days are counted."
        assert one.page().states == [f"There are reports of {one.store.today()} under rev 1."]
        for day in (1, 3, 6):
            one.put(np.full(12, 100), rng, days_ago=day)
        one.put(np.full(12, 100), rng, days_ago=8)
        seen = one.page()
        assert "3,600 reports" in seen.html
        assert "7 days (UTC)" in seen.html
        one.put(np.array([*np.zeros(11, np.int64), 2]), rng, days_ago=0)
        assert one.page().html == seen.html
        today = one.page("window=today")
        assert today.headline.startswith("Nothing can be told yet: 2 reports; about ")
        assert "Provisional: more reports may come." in today.states
        assert one.page("window=28").html.count("4,800 reports") == 1


@pytest.mark.parametrize(("n", "words"), [(1, "Nothing can be told yet: 1 report; about ")])
def test_few_reports_are_words_and_no_dot(n: int, words: str, tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.array([n, *np.zeros(11, np.int64)]), np.random.default_rng(1))
        seen = one.page("search=model+0")
        assert seen.headline.startswith(words)
        assert seen.dots == 0
        assert "No value has" not in seen.html


def test_a_value_is_looked_up_and_ranks_are_told_in_words(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.array([9_000, 4_000, 4_000, 3_000, *np.zeros(8, np.int64)]), np.random.default_rng(1))
        seen = one.page("level=99&search=MODEL+1")
        assert re.fullmatch(
            r"model 0 leads with 4\d\.\d % \(4\d\.\d to 4\d\.\d\); model 1 and model 2 follow, not told apart\.",
            seen.headline.replace("model 2 and model 1", "model 1 and model 2"),
        )
        assert "4 of 11 values stand out from the noise" in seen.html
        assert "no text or too long" not in seen.html
        assert [row[0] for row in seen.rows.values()] == ["1st", "2 to 3", "2 to 3", "4th", ""]
        assert "99 % interval" in seen.html
        found = re.findall(r"<bdi>(model 1\d*)</bdi> <span class=\"verdict\">(.*?)</span>", seen.html)
        assert found == [("model 1", "stands out"), ("model 10", "cannot be told from zero")]
        assert "No value has “<bdi>&lt;b&gt;</bdi>” in it." in one.page("search=%3Cb%3E").html


def test_a_flag_is_one_row_from_0_to_100(tmp_path: Path) -> None:
    with site(tmp_path, 12, epsilon="2.0") as one:
        plan = one.store.plans("dark")[0].plan
        one.put(np.array([700, 300]), np.random.default_rng(1), plan=plan)
        seen = one.page(metric="dark")
        assert list(seen.rows) == ["yes"]
        assert 'name="search"' not in seen.html
        assert "No value has" not in one.page("search=no", metric="dark").html
        assert re.fullmatch(r"\d\d % \(\d\d to \d\d\) say yes\.", seen.headline)
        assert [each for each in ("0\xa0%", "100\xa0%") if f">{each}</text>" in seen.html] == ["0\xa0%", "100\xa0%"]


REFUSED = [
    ("window=9", "window must be 7 or 28 or 1 or today"),
    ("from=2026-11-01", "go together"),
    ("from=2026-11-02&to=2026-11-01", "from must not be after to"),
    ("from=2020-11-02&to=2026-11-01", "at most 366 days"),
    ("from=2100-01-01&to=2100-01-02", "days must not begin after today"),
    ("epoch=2100-01-01", "days must not begin after today"),
    ("level=49", "level must be a percentage from 50 to 99.9"),
    ("page=2", "page must be a number from 1 to 1"),
    ("page=x", "page must be a number"),
    ("levle=80", "there is no parameter &#39;levle&#39; here, only: false_share, level, plan,"),
    ("level=80&level=95", "level was given 2 times"),
]


def test_a_view_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.full(12, 100), np.random.default_rng(1))
        for query, detail in REFUSED:
            answer = one.client.get(f"/metrics/color?{query}")
            assert (answer.status_code, answer.mimetype, detail in answer.text) == (400, "text/html", True), query


def test_a_day_that_is_not_closed_has_no_verdict_anywhere(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.array([9_000, *np.full(11, 10)]), np.random.default_rng(1), days_ago=0)
        seen = one.page("window=today&search=model+0")
        assert seen.headline == "More reports may come: of 9,110 so far nothing is called found, and nothing ranked."
        assert "<bdi>model 0</bdi></th>" in seen.html
        for word in ("stands out", "cannot be told", "dashed line", ">1st<"):
            assert word not in seen.html
        assert list(seen.rows) == [*(f"model {number}" for number in range(11)), "other"]


def test_another_rev_of_these_days_is_said(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        old = one.plan
        one.store.load(registry(rev=2, reports=1, device_epsilon="400.0", expires=EXPIRES))
        for day in (2, 3):
            one.put(np.full(12, 100), np.random.default_rng(day), days_ago=day, plan=old)
        seen = one.page()
        assert seen.headline == "No reports of these days are counted."
        assert seen.states[-1].endswith("under rev 1.")
        one.put(np.full(4, 100), np.random.default_rng(1), plan=one.store.plans("color")[0].plan)
        assert one.page().states == ["Another rev has reports on 2 of the 7 days to here: they do not join."]
        assert "This is an older plan, rev 1" in one.page(f"plan={old.digest}").states[0]


def test_the_form_keeps_the_days_that_are_shown(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        first, last = one.store.today() - timedelta(days=5), one.store.today() - timedelta(days=3)
        one.put(np.full(12, 100), np.random.default_rng(1), days_ago=4)
        seen = one.page(f"from={first}&to={last}&level=80")
        assert f'name="from" value="{first}"' in seen.html
        assert '<option value="80" selected>' in seen.html
        again = one.page(f"from={first}&to={last}&level=99&search=")
        assert f"{first} to {last}, 3 days" in again.html
        assert "1,200 reports" in one.page("from=&to=").html
        presets = re.findall(r'<nav aria-label="days">(.*?)</nav>', seen.html, re.DOTALL)[0]
        assert "aria-current" not in presets
        assert "1,200 reports" in one.client.get(unescape(re.findall('href="([^"]*)"', presets)[-1])).text
        tabs = re.findall(r'<nav class="tabs".*?</nav>', seen.html, re.DOTALL)[0]
        for address in re.findall('href="([^"]*)"', tabs):  # each view has the same days
            assert f"{first} to {last}" in one.client.get(unescape(address)).text
        for address in re.findall(r'href="(/v1/.*?)"', seen.html):
            answer = one.client.get(unescape(address))
            assert answer.status_code == 200
            if "format" not in address:
                shown = answer.get_json()["meta"]
                assert (shown["from"], shown["to"], shown["n"]) == (str(first), str(last), 1_200)
                assert (shown["level"], shown["intervals"]) == (80, "simultaneous")
                assert shown["interval_method"] == "clopper-pearson"


def test_the_form_names_the_days_in_one_way(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.full(12, 100), np.random.default_rng(1))
        for query in ("", "window=today", "window=28", "epoch=2026-01-01", "from=2026-01-01&to=2026-01-02"):
            form = re.findall(r'<form class="controls".*?</form>', one.page(query).html, re.DOTALL)[0]
            assert [name for name in ("window", "from", "to") if f'name="{name}"' in form] == ["from", "to"], query


def test_the_default_window_begins_where_counts_are_kept(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        for day in range(1, 10):
            one.put(np.full(12, 100), np.random.default_rng(day), days_ago=day)
        kept = one.store.today() - timedelta(days=3)
        with patch.object(one.store, "tallies_from", lambda: kept):
            assert "3,600 reports" in one.page().html


def test_odd_days_are_days_without_reports(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put(np.full(12, 100), np.random.default_rng(1))
        for query in ("epoch=0001-01-01", "from=0001-01-01&to=0001-01-02"):
            assert one.page(query).headline == "No reports of these days are counted."


def test_who_has_nothing_to_say_is_shown_beside_yes(tmp_path: Path) -> None:
    with site(tmp_path, 12, epsilon="2.0", presence="hidden") as one:
        plan = one.store.plans("dark")[0].plan
        one.put(np.array([1_000, 1_000, 8_000]), np.random.default_rng(1), plan=plan)
        seen = one.page(metric="dark")
        assert list(seen.rows) == ["yes", "none"]
        assert "those included that have nothing to say" in seen.headline


def test_values_are_chosen_by_address_and_no_interval_is_narrower_for_it(tmp_path: Path) -> None:
    """The choice goes along to the other views and the files; what is not there is said."""
    with site(tmp_path, 30, 'mechanism = "oue"') as one:
        for back in range(1, 15):
            one.put((zipf(30) * 400).astype(np.int64), np.random.default_rng(back), back)
        whole, query = one.page().rows, "values=model+2&values=model+28"
        seen = one.page(query)
        assert list(seen.rows) == ["model 2 stands out", "model 28 cannot be told from zero"]
        assert seen.rows["model 2 stands out"][1:] == whole["model 2"][1:]
        assert "2 chosen values" in words(seen.html)
        chosen = "values=model+2&amp;values=model+28"
        for view in ("Answer", "Day by day", "What moved"):
            assert re.search(f'<a href="[^"]*{re.escape(chosen)}[^"]*"[^>]*>{view}</a>', seen.html), view
        assert re.search(f'<a href="/v1/[^"]*{re.escape(chosen)}[^"]*format=csv"', seen.html)
        page = one.client.get("/compare?metric=color&values=model+2&values=model+28").text
        compared = {row["value"]: row for row in one.client.get("/v1/compare?metric=color").get_json()["rows"]}
        both = one.client.get("/v1/compare?metric=color&values=model+28&values=model+2").get_json()["rows"]
        assert both == [compared["model 28"], compared["model 2"]]
        assert len(re.findall("<bdi>model ", page.split('<table class="shown">')[1])) == 2
        found = one.page("search=model+2").html
        (link,) = re.findall(r'<a href="([^"]*)">Show these alone</a>', found)
        assert len(one.page(unescape(link).partition("?")[2]).rows) == 10  # 2, and 20 to 28


NOT_CHOSEN = [
    ("/metrics/dark?values=yes", "values are of metrics with a list"),
    ("/metrics/color?values=model+2&group=x", "values and group do not go together"),
    ("/metrics/color?" + "&".join(f"values={number}" for number in range(51)), "may be given 50 times at most"),
    ("/metrics/color?values=nobody", "there is no value"),
    ("/compare?metric=color&values=nobody", "there is no value"),
]


def test_a_choice_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with site(tmp_path, 30) as one:
        for back in (1, 2):
            one.put((zipf(30) * 20_000).astype(np.int64), np.random.default_rng(back), back)
        for address, detail in NOT_CHOSEN:
            answer = one.client.get(address)
            assert (answer.status_code, detail in answer.text) == (400, True), answer.text


def test_a_few_values_that_do_not_stand_out_are_named(tmp_path: Path) -> None:
    with site(tmp_path, 5) as one:
        one.put(np.array([2_000, 0, 0, 0, 0]), np.random.default_rng(1))
        seen = one.page()
        assert "3 more listed values, not ranked" in seen.html
        assert "None of these can be told from zero: model 1, model 2, model 3." in seen.html
        assert "histogram" not in seen.html


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ((200, 1_800, 0), r"model 0 fell from 90 % \(\d+ to \d+\) on {first} to 10 % \(\d+ to \d+\) on {last}\."),
        (
            (1_790, 210, 0),
            r"model 0: 90 % .* on {first}, 90 % .* on {last}\. By these two days it cannot be told to have moved\.",
        ),
    ],
)
def test_days_open_with_the_first_and_the_last_of_them(last: tuple[int, ...], says: str, tmp_path: Path) -> None:
    """Today is not over, and not among them."""
    with site(tmp_path, 3) as one:
        for back, counts in ((3, (1_800, 200, 0)), (2, (1_000, 1_000, 0)), (1, last), (0, (1_000, 1_000, 0))):
            one.put(np.array(counts), np.random.default_rng(back), days_ago=back)
        seen = Seen(one.client.get("/metrics/color/time?values=model 0").text)
        pattern = (
            says.format(first=one.day(3), last=one.day(1))
            .replace("90 %", r"(?:89|90|91) %")
            .replace("10 %", r"(?:9|10|11) %")
        )
        assert re.fullmatch(pattern, re.sub(r"(\d)\.\d", r"\1", seen.headline))
        assert (
            "4 of 4 days have reports. If the bands of two days do not meet, the share was not the same." in seen.states
        )


def test_a_page_and_an_answer_read_once_how_far_the_shards_are(tmp_path: Path) -> None:
    """Else a day that closes meanwhile stands in a part of a page, and a store in Redis is asked a hundred times."""
    with site(tmp_path, 5) as one:
        one.put(np.array([400, 300, 200, 100, 0]), np.random.default_rng(1))
        for address in ("/", "/changes", "/metrics/color", "/metrics/color/time", "/v1/metrics"):
            with patch.object(one.store, "_read_status", wraps=one.store._read_status) as read:
                assert one.client.get(address).status_code == 200
            assert read.call_count == 1, address


def test_a_reader_chooses_whose_intervals_are_shown_and_is_told_what_it_costs(tmp_path: Path) -> None:
    """A flag at epsilon 4: those of people are 3.5 times as wide as those of these reports."""
    with site(tmp_path, 12) as one:
        dark = one.store.plans("dark")[0].plan
        one.put(np.array([69_000, 31_000]), np.random.default_rng(1), plan=dark)
        people, reports = one.page("", "dark"), one.page("error_of=reports", "dark")
        for page, says in (
            (people, "Those of these reports alone would be up to about 3.5 times narrower."),
            (reports, "Those of all devices like these would be up to about 3.5 times as wide."),
        ):
            assert says in words(page.html)
        assert "error_of=reports" in people.html
        assert re.search('error_of=reports[^"]*window=28', reports.html)  # other days keep the choice
        assert '<input type="hidden" name="error_of" value="reports">' in reports.html
        widths = []
        for error_of in ("population", "reports"):
            (row,) = one.client.get(f"/v1/metrics/dark/estimates?error_of={error_of}").get_json()["rows"]
            widths.append(row["upper"] - row["lower"])
        assert 3.4 < widths[0] / widths[1] < 3.6


def test_a_value_that_hardly_anybody_has_costs_nothing_and_groups_have_no_choice(tmp_path: Path) -> None:
    with site(tmp_path, 40, epsilon="1.0") as one:
        one.put((zipf(40) * 3_000).astype(np.int64), np.random.default_rng(1))
        assert "times narrower" not in one.page().html
        answer = one.client.get("/metrics/color?error_of=reports&group=x")
        assert (answer.status_code, "error_of and group do not go together" in answer.text) == (400, True)
        assert one.client.get("/metrics/color?error_of=nobody").status_code == 400


def test_page_list_preview_report_and_api_have_one_answer(tmp_path: Path) -> None:
    with site(tmp_path, 12) as one:
        one.put((zipf(12) * 9_000).astype(np.int64), np.random.default_rng(1))
        page = one.page()
        (preview,) = re.findall('property="og:description" content="(.*?)"', page.html)
        told = {
            words(preview),
            words(one.client.get("/v1/metrics/color/estimates").get_json()["meta"]["answer"]),
            *(words(each) for each in re.findall('<p class="answer">(.*?)</p>', one.client.get("/").text)[:1]),
        }
        assert told == {page.headline}
        assert page.headline in weekly(one.store).text.replace("\N{NO-BREAK SPACE}", " ")
