"""Groups: what a dashboard may say, who pays for a late one, and that sums hold on pages and in the API."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from dither_aggregator.analysis import differences as groups_module
from dither_aggregator.analysis.differences import dashboard_of, group_differences, read_groups
from dither_aggregator.analysis.estimands import estimand_of
from dither_aggregator.analysis.reading import View, WantedSum, Window
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import Tally
from dither_aggregator.store.document_kinds import Dashboard
from dither_shared.registry import Registry
from tests.support.aggregators import dither, serve, sqlite_store
from tests.support.laws import pure
from tests.support.number_pages import ask, words
from tests.support.numeric import draw_numbers, hump, number_site
from tests.support.registries import registry_text
from tests.support.sites import Site, site, zipf
from tests.support.soaking import exceed, scaled
from tests.support.tallies import draw_tally
from tests.support.waiting import wait_until

DASHBOARD = """
[group.color]
"Low" = "model ?"
"Two" = ["model 1", "model 11"]

[metric.color]
tags = ["web"]

[question]
"By week" = 'share(color in "model ?") by week'
"""
D, RUNS = 30, scaled(120, 2_000)
MISSES_MAX = int(binom.isf(1e-6, RUNS, 0.05))
RANGES = scaled(15, 1_000)


def load(one: Site, text: str) -> None:
    Administration(one.store).show(Dashboard.parse(text))


# The file.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[groups]", "there is no table groups"),
        ("[group]\ncolor = 3", r"group.color must be a table"),
        ('[group.color]\n"" = "a"', "a name must have 1 to 80 characters"),
        ('[group.color]\n"a\\nb" = "a"', "of one line"),
        ("[group.color]\nx = 3", "group.color.x must be texts"),
        ("[group.color]\nx = []", "must have a value or a pattern"),
        ("[group.color]\nx = {}", "needs from, below, or both"),
        ("[group.color]\nx = {from = 3, to = 4}", "there is no key to, only from and below"),
        ("[group.color]\nx = {from = 3, below = 3}", "from must be less than below"),
        ("[group.color]\nx = {from = true}", "must be a number"),
        ("[group.color]\nx = {from = inf}", "must be a number"),
        ("[metric.color]\nowner = 3", "there is no key owner, only tags"),
        ("[question]\nx = 3", "question.x must be texts"),
        ("[group.color]\n" + "\n".join(f'a{number} = "b"' for number in range(1_001)), "1,000 groups at most"),
    ],
)
def test_what_a_dashboard_cannot_say_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Dashboard.parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[group.colour]\nx = "red"', "the registry has no metric colour, only color, dark"),
        ("[metric.colour]\ntags = []", "the registry has no metric colour"),
        ('[group.color]\nx = "pink"', "group.color.x: color has no such value, only red, green, blue, other"),
        ("[group.color]\nx = {from = 3}", "color has no ranges"),
        ("[group", "dashboard.toml: "),
    ],
)
def test_a_group_of_nothing_is_refused_where_the_registry_is_loaded(text: str, says: str, tmp_path: Path) -> None:
    registry = tmp_path / "metrics.toml"
    registry.write_text(registry_text(), encoding="utf-8")
    with sqlite_store(Registry.load(registry), tmp_path / "data"):
        pass
    (tmp_path / "dashboard.toml").write_text(text, encoding="utf-8")
    done = dither("metrics", "load", registry, "--data", tmp_path / "data")
    assert done.returncode == 2
    assert says in done.stderr


def test_a_dashboard_changes_while_the_server_runs_and_a_wrong_one_stops_nothing(tmp_path: Path) -> None:
    registry, file = tmp_path / "metrics.toml", tmp_path / "dashboard.toml"
    registry.write_text(registry_text(), encoding="utf-8")
    file.write_text('[group.color]\n"warm" = "reed"\n', encoding="utf-8")
    with serve(registry, tmp_path / "data") as served:
        with sqlite_store(Registry.load(registry), tmp_path / "data") as store:
            assert dashboard_of(store) == Dashboard()
            file.write_text('[group.color]\n"warm" = "red"\n', encoding="utf-8")
            done = dither("metrics", "load", registry, "--data", tmp_path / "data")
            assert "dashboard: 1 groups, 0 questions" in done.stdout, done
            wait_until(lambda: bool(dashboard_of(store).groups))
            assert [entry.action for entry in store.journal()][-1] == "dashboard load"
        assert "the dashboard was not taken up" in served.stop()


# Who pays.


def test_a_group_that_was_written_after_reports_came_pays_for_all_sums(tmp_path: Path) -> None:
    with site(tmp_path, D) as one:
        load(one, '[group.color]\n"Low" = "model ?"\n"Gone" = "model 1?"')
        one.put(np.full(D, 500), np.random.default_rng(1))
        load(one, DASHBOARD)
        dashboard = dashboard_of(one.store)
        assert {each.name: each.late for each in dashboard.groups} == {"Low": False, "Two": True}
        assert dashboard.written == {"color": 2}  # the one that was taken away counts
        low, two = read_groups(one.store, one.store.plans("color")[0], Window(one.day(7), one.day(1)), 0.95)
        assert (low.family, two.family) == ("named", "free")
        assert (round(low.z, 2), round(two.z, 2)) == (3.16, 6.62)  # of .05 / 32, and of chi^2 with 30 degrees
        load(one, '[group.color]\n"Low" = "model 1?"')
        assert dashboard_of(one.store).groups[0].late  # another group under the name


def test_other_is_in_no_pattern_unless_it_is_named(tmp_path: Path) -> None:
    with site(tmp_path, D) as one:
        load(one, '[group.color]\n"All" = "*"\n"O" = ["o*", "other", "model 1"]')
        one.put(np.full(D, 500), np.random.default_rng(1))
        every, others = read_groups(one.store, one.store.plans("color")[0], Window(one.day(7), one.day(1)), 0.95)
        assert len(every.members) == D - 1
        assert others.members == ["model 1", "other"]


def misses(one: Site, alphas: list[float], worst: bool) -> Iterator[bool]:
    """Yield of each window whether an interval of some groups misses, or that of the sum that came out worst."""
    stored, rng = one.store.plans("color")[0], np.random.default_rng(41)
    truth, n = zipf(D), 20_000
    estimand, mechanism = estimand_of(stored.plan), pure(stored.plan)
    fixed = [list(range(first, first + 5)) for first in range(0, 25, 5)]
    for _ in range(RUNS):
        counts = draw_tally(mechanism, rng.multinomial(n, truth), rng)
        tally = Tally(n, np.append(n, counts))
        functionals = estimand.functionals(stored, tally, 1)
        assert functionals is not None
        chosen = [np.flatnonzero(functionals.shares > truth).tolist()] if worst else fixed
        rows = estimand.sums(stored, tally, View(), [WantedSum("x", places, alphas[0]) for places in chosen])
        yield any(
            row is None or not row.lower <= truth[places].sum() <= row.upper
            for row, places in zip(rows, chosen, strict=True)
        )


@pytest.mark.parametrize("mechanism", ["oue", "pgr"])
def test_groups_hold_at_once_and_the_sum_that_looks_best_of_all_does(mechanism: str, tmp_path: Path) -> None:
    """Windows with a miss (5 % each, more than this 1e-6); the worst sum misses an early group's interval."""
    with site(tmp_path, D, f'mechanism = "{mechanism}"', epsilon="2.0") as one:
        load(one, DASHBOARD)
        early = dashboard_of(one.store).groups[0]
        after = Dashboard.parse(DASHBOARD).following(Dashboard(), ["color"]).groups[0]
        named, late = (2 * norm.sf(groups_module._z(each, D, 5, 0.05)) for each in (early, after))
        assert not exceed(misses(one, [named], worst=False), MISSES_MAX)
        assert not exceed(misses(one, [late], worst=True), MISSES_MAX)
        assert exceed(misses(one, [named], worst=True), 2 * MISSES_MAX)


@pytest.mark.parametrize(("d", "told"), [(60, True), (1_500, False)])
def test_a_late_group_of_many_values_is_told_or_said_to_be_untold(d: int, told: bool, tmp_path: Path) -> None:
    with site(tmp_path, d, 'mechanism = "oue"') as one:
        one.put((zipf(d) * 50_000).astype(np.int64), np.random.default_rng(1))
        load(one, DASHBOARD)
        low, _ = read_groups(one.store, one.store.plans("color")[0], Window(one.day(1), one.day(1)), 0.95)
        assert (low.family, low.row is not None) == ("free", told)
        assert low.z > 8.3
        assert not low.row or low.row.lower <= zipf(d)[:10].sum() <= low.row.upper


def test_ranges_of_numbers_hold_at_once(tmp_path: Path) -> None:
    lines = 'unit = "s"\nedges = [0, 1, 2, 3, 5, 8]\nreports = 1\nepsilon = 2'
    text = '[group.wait]\n"short" = {below = 2}\n"middle" = {from = 1, below = 5}\n"long" = {from = 5}'
    rng, missed = np.random.default_rng(3), 0
    with number_site(tmp_path, {"wait": lines}) as one:
        load(one, text)
        stored = one.store.plans("wait")[0]
        shares = hump(stored.plan)
        told = shares[:7] / shares[:7].sum()
        truth = {"short": told[:3].sum(), "middle": told[2:5].sum(), "long": told[5:].sum()}
        for _ in range(RANGES):
            one.hold(stored.plan, draw_numbers(stored.plan, shares, 10_000, rng))
            read = read_groups(one.store, stored, Window(one.day(1), one.day(1)), 0.95)
            assert all(each.row for each in read)
            missed += any(each.row and not each.row.lower <= truth[each.group.name] <= each.row.upper for each in read)
        assert missed <= binom.isf(1e-6, RANGES, 0.05)
        _, rows = ask(one, "/v1/metrics/wait/estimates?group=middle")
        assert [row["value"] for row in rows] == ["1 to 2 s", "2 to 3 s", "3 to 5 s"]
        assert "middle" in one.page("group=middle", metric="wait").html


# Pages and API.


def test_a_group_has_the_same_numbers_on_its_page_and_in_the_api(tmp_path: Path) -> None:
    with site(tmp_path, D, 'mechanism = "oue"') as one:
        load(one, DASHBOARD)
        one.put((zipf(D) * 20_000).astype(np.int64), np.random.default_rng(1))
        _, (low, two) = ask(one, "/v1/metrics/color/groups")
        assert (low["group"], low["members"], low["family"], two["members"]) == ("Low", 10, "named", 2)
        truth = zipf(D)
        assert low["lower"] <= truth[:10].sum() <= low["upper"]
        html = one.page().html
        (link,) = re.findall(r'<a href="([^"]*)"><bdi>Low</bdi></a>', html)
        assert "named before the first report" in words(html)
        page = one.client.get(link.replace("&amp;", "&")).text
        section = re.search(r'<section class="groups">(.*?)</section>', page, re.DOTALL)
        assert section
        assert f"{100 * low['estimate']:.1f}" in section[1]
        assert section[1].count("<bdi>model ") == 10
        _, rows = ask(one, "/v1/metrics/color/estimates?group=Two")
        assert [row["value"] for row in rows] == ["model 1", "model 11"]
        _, rows = ask(one, "/v1/metrics/color/groups?group=Two")
        assert [row["group"] for row in rows] == ["Two"]
        for address in ("/metrics/color", "/v1/metrics/color/estimates", "/v1/metrics/color/groups"):
            assert one.client.get(f"{address}?group=Blue").status_code == 400


def test_a_group_of_too_few_reports_is_said_and_has_no_number(tmp_path: Path) -> None:
    with number_site(tmp_path, {"wait": 'unit = "s"\nedges = [0, 1, 2]\nreports = 1\nepsilon = 2'}) as one:
        load(one, '[group.wait]\n"long" = {from = 1}')
        stored = one.store.plans("wait")[0]
        one.hold(stored.plan, draw_numbers(stored.plan, hump(stored.plan), 100, np.random.default_rng(1)))
        _, (row,) = ask(one, "/v1/metrics/wait/groups")
        assert (row["n"], row["estimate"], row["lower"]) == (100, None, None)


def test_a_group_has_the_same_numbers_by_day_and_between_two_weeks_on_pages_and_in_the_api(tmp_path: Path) -> None:
    """A group falls from 85 % to 60 %; its days and its move hold the truth, and pages show what the API says."""
    before, after = zipf(D), np.full(D, 1 / D)
    with site(tmp_path, D, 'mechanism = "oue"') as one:
        load(one, DASHBOARD)
        for back in range(1, 15):
            shares = after if back <= 7 else before
            one.put((shares * 20_000).astype(np.int64), np.random.default_rng(back), back)
        truths = [each[:10].sum() for each in (before, after)]
        meta, rows = ask(one, "/v1/metrics/color/series?group=Low&window=7")
        assert (meta["values"], meta["unit"], {row["value"] for row in rows}, len(rows)) == (["Low"], "", {"Low"}, 7)
        assert all(row["lower"] <= truths[1] <= row["upper"] for row in rows)
        meta, (low,) = ask(one, "/v1/compare?metric=color&group=Low")
        assert (low["value"], low["verdict"], meta["unit"]) == ("Low", "fell", "")
        assert low["lower"] <= truths[1] - truths[0] <= low["upper"]
        page = one.client.get("/metrics/color/time?group=Low&window=7").text
        for row in rows:
            assert f"{100 * row['estimate']:.1f}" in page
        (link,) = re.findall(r'<a href="([^"]*)"[^>]*>What moved</a>', page)
        assert "group=Low" in link
        page = one.client.get(link.replace("&amp;", "&")).text
        section = re.search(r'<section class="groups">(.*?)</section>', page, re.DOTALL)
        assert section
        assert "fell" in section[1]
        assert f"{100 * low['before']:.1f}" in section[1]
        shown = re.search(r'<table class="shown">(.*?)</table>', page, re.DOTALL)
        assert shown
        assert len(re.findall("<bdi>model ", shown[1])) == 10
        assert "<bdi>Two</bdi>" in one.client.get("/compare?metric=color").text
        for query in ("group=Low&values=model+1", "group=Nobody"):
            for address in ("/metrics/color/time?", "/v1/metrics/color/series?", "/compare?metric=color&"):
                assert one.client.get(f"{address}{query}").status_code == 400, address + query


def test_nothing_is_told_of_a_group_in_a_week_that_is_not_over(tmp_path: Path) -> None:
    with site(tmp_path, D, 'mechanism = "oue"') as one:
        load(one, DASHBOARD)
        for back in (0, 1, 2):
            one.put((zipf(D) * 20_000).astype(np.int64), np.random.default_rng(back), back)
        assert ask(one, "/v1/compare?metric=color&group=Low&window=today")[1] == []
        assert "cannot be told" in one.client.get(f"/compare?metric=color&epoch={one.day(1)}").text


@pytest.mark.parametrize("late", [False, True])
def test_a_group_that_did_not_move_is_hardly_ever_told_to_have(late: bool, tmp_path: Path) -> None:
    """Pairs with a verdict (5 % each, more than this 1e-6); of a real move one is told every time."""
    shares = (zipf(D) * 20_000).astype(np.int64)
    told = 0
    with site(tmp_path, D, 'mechanism = "oue"', epsilon="2.0") as one:
        stored, rng = one.store.plans("color")[0], np.random.default_rng(5)
        if late:
            one.put(shares, rng)
        load(one, DASHBOARD)
        before, after = (Window(one.day(back), one.day(back)) for back in (2, 1))
        for _ in range(RUNS):
            for back in (2, 1):
                one.put(rng.multinomial(20_000, zipf(D)).astype(np.int64), rng, back)
            moves = group_differences(one.store, stored, before, after, 0.95)
            assert len(moves) == 2
            told += any(each.verdict for each in moves)
        assert told <= MISSES_MAX
        one.put(shares[::-1].copy(), rng, 1)
        assert all(each.verdict for each in group_differences(one.store, stored, before, after, 0.95)[:1])
