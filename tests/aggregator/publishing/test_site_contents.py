"""A site beside its estimates: history, feed, pictures, changes of the registry, the audit, and the first window."""

import json
import re
import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dither_aggregator.accounting import show_released
from dither_aggregator.publishing.releases import first_window, publish, read
from dither_aggregator.publishing.site import (
    about,
    changes_between,
    facts_in,
    publish_to,
    read_audit,
    render,
    verify,
    write,
)
from dither_aggregator.store.release_ledger import Release
from dither_shared.errors import ConfigurationError
from dither_shared.registry import Registry
from dither_shared.releases import counts_of
from tests.support.aggregators import sqlite_store
from tests.support.clocks import Clock
from tests.support.registries import metrics_text, registry_text
from tests.support.releases import ANSWERS, AUDIT, MONTHS, PUBLISHED, TODAY, URL, documents, published
from tests.support.stores import seal_all

PARTS = {"svg", "title", "desc", "rect", "text", "g", "path"}


def test_the_history_breaks_where_nothing_can_be_told_and_has_its_numbers_in_a_table(made: Path) -> None:
    text = (made / "color" / "index.html").read_text()
    assert text.count('<div class="plot panel">') == 3
    _, _, table = text.partition("The same numbers by release")
    windows = re.findall(r'<th scope="row">(2026-\d\d)</th>', table.partition("</table>")[0])
    assert windows == ["2026-10", "2026-09", "2026-07"]
    assert text.count('class="band"') == 3  # September and October join; July, and August, which tells nothing, do not


def test_the_feed_names_each_release_and_change_for_good(made: Path) -> None:
    atom = "{http://www.w3.org/2005/Atom}"
    feed = ElementTree.fromstring((made / "feed.xml").read_bytes())
    entries = feed.findall(f"{atom}entry")
    assert len(entries) == len(MONTHS) + 2
    days = [each.findtext(f"{atom}updated") or "" for each in entries]
    assert days == sorted(days, reverse=True)
    assert feed.findtext(f"{atom}updated") == days[0] == "2026-11-27T00:00:00Z"
    assert "2026-11-01T00:00:00Z" in days  # the day after October, and not the one on which it was published
    ids = {each.findtext(f"{atom}id") for each in entries}
    assert len(ids) == len(entries)
    assert all((each.find(f"{atom}link") or each[3]).attrib["href"].startswith(URL) for each in entries)
    assert feed.findtext(f"{atom}author/{atom}name") == "example"
    facts = json.loads((made / "about.json").read_text())
    later = render({**facts, "url": ""}, documents((*MONTHS, (11, 9_000))), AUDIT)["feed.xml"]
    assert ids < {each.findtext(f"{atom}id") for each in ElementTree.fromstring(later).findall(f"{atom}entry")}


def test_a_picture_has_its_source_and_nothing_that_runs(made: Path) -> None:
    for path in (made / "color").glob("*.svg"):
        picture = ElementTree.fromstring(path.read_bytes())
        assert {each.tag.rpartition("}")[2] for each in picture.iter()} <= PARTS
        texts = [each.text or "" for each in picture.iter() if each.tag.endswith("}text")]
        assert (
            texts[-1]
            == f"Source: example, {URL}color/index.html, color {'2026-10' if 'latest' in path.name else path.stem}."
        )
        told = r"2026-\S+ to 2026-\S+ \(UTC\): about [\d,]+ reports, give or take [\d,]+; 95 % .* epsilon 1\."
        assert re.search(told, " ".join(texts))
        if path.stem != "2026-08":  # which tells nothing
            assert re.search(r"Intervals: red [\d.]+ % to [\d.]+ %; green ", " ".join(texts))
            assert any(re.fullmatch(r"Not drawn: \d of 5 answers, “other” among them\.", each) for each in texts)


def test_changes_of_the_registry_are_said_once_with_their_day() -> None:
    first = about(published(), TODAY)
    assert first["changes"] == []
    same = about(published(), TODAY + timedelta(days=1), (), first)
    assert same == first
    days = [TODAY + timedelta(days=after) for after in (30, 60)]
    wider = published(values=("red", "green"), rev=2, reports=2)
    second = about(wider, days[0], (), same)
    said = [(each["day"], each["metric"], each["what"]) for each in second["changes"]]
    assert (days[0].isoformat(), "color", "answers left out: blue") in said
    assert (days[0].isoformat(), "color", "reports of a device: 2, before: 3") in said
    assert (days[0].isoformat(), "color", "epsilon of all reports of a device: 4, before: 6") in said
    facts = {**about(wider, days[1], (), second), "metrics": [], "unpublished": []}
    third = changes_between(second, facts, days[1])
    assert [each["what"] for each in third[:2]] == ["no longer asked", "no longer asked"]
    assert third[2:] == second["changes"]


def test_a_site_keeps_no_file_that_is_no_part_of_it_any_more(made: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(made, site)
    facts = {**json.loads((made / "about.json").read_text()), "audit": ""}
    write(site, render(facts, documents(MONTHS)))
    assert not (site / "audit.html").exists()
    assert verify(site) == []
    manifest = json.loads((site / "manifest.json").read_text())
    (site / "manifest.json").write_text(json.dumps({**manifest, "../mine.txt": "", "mine.txt": ""}))
    (tmp_path / "mine.txt").write_text("mine")
    (site / "mine.txt").write_text("mine")
    write(site, render(facts, documents(MONTHS)))
    assert (tmp_path / "mine.txt").exists()
    assert (site / "mine.txt").exists()
    (site / "mine.txt").unlink()
    write(site, render({**facts, "metrics": []}, []))
    assert verify(site) == []
    assert not (site / "color").exists()


def test_another_audit_than_the_facts_name_is_found(made: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(made, site)
    (site / "audit.html").write_bytes(AUDIT.replace(b"Audit", b"Found"))
    assert verify(site) == ["audit.html is not the page that about.json names"]
    for bad in (b"<!doctype html><script>1</script>", b"just text"):
        (tmp_path / "bad.html").write_bytes(bad)
        with pytest.raises(ConfigurationError, match="without a script"):
            read_audit(tmp_path / "bad.html")


def test_no_window_is_published_that_began_before_its_plan_was_loaded(tmp_path: Path) -> None:
    """Neither a month in which the store was made, nor one in which a rev began: reports of before are not in it."""
    clock, asked, newer = Clock(), published(), published(rev=2)  # from 20 November on

    def revs(days: int, registry: Registry) -> list[tuple[str, int]]:
        clock.travel(days)
        seal_all(store)
        return [(each.name, each.plan.rev) for each in publish(store, registry)[0]]

    with sqlite_store(asked, tmp_path / "data", clock) as store:
        assert revs(15, asked) == []
        assert revs(31, asked) == [("2026-12", 1)]
        store.load(newer)  # on 5 January
        facts = about(newer, store.clock_day(), store.plans())["metrics"][0]
        assert (facts["first_window"], facts["earlier_revs"]) == ("2027-02-01", [1])
        assert revs(31, newer) == [("2026-12", 1)]
        assert revs(28, newer) == [("2026-12", 1), ("2027-02", 2)]
    page = render(about(newer, TODAY, ()) | {"metrics": [facts]}, documents(MONTHS))["color/index.html"].decode()
    assert "may still answer rev 1: such reports are in no release of rev 2" in page


def test_how_sure_a_reader_becomes_counts_other_answers_twice_and_the_years_before_a_lower_bound() -> None:
    """Other reports in place of a device's are one device less and one more: with epsilon E, e^2E between two answers.

    e^0.5 / (1 + e^0.5) = 0.6225 and e / (1 + e) = 0.7311. With 3 releases of epsilon 1: e^3 / (1 + e^3) = 0.9526.
    """
    facts = {**about(published(), TODAY), "publish_micro_year": 500_000}
    text = render(facts, [])["index.html"].decode()
    assert "at most 62.3\N{NO-BREAK SPACE}% sure whether one device took part" in text
    assert "at most 73.2\N{NO-BREAK SPACE}% sure which of two answers it gave" in text
    lowered = render(facts, documents(MONTHS[:3]))["index.html"].decode()  # by releases that cost 3 in all
    assert "at most 95.3\N{NO-BREAK SPACE}% sure whether one device took part" in lowered
    assert "add up to 3 at most so far, and to 3 at most in any 366 days" in lowered


def test_the_wire_of_a_window_counts_each_memoized_answer_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    registry = published(epsilon_permanent="4", answers=2, device_epsilon=20)
    show_released(registry, [registry.metrics["color"]], as_json=True)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["reports"], told["epsilon_wire"]) == (31, 8.0)


def test_changes_of_the_registry_itself_and_of_ranges_columns_and_ticks_are_said() -> None:
    def facts(high: int, arm: list[str], ticks: int, **head: object) -> dict[str, object]:
        how = {"epsilon": 2.0, "publish": "month", "publish_epsilon": 1.0, "why": "To know."}
        asked = {
            "delay": {"kind": "number", "unit": "ms", "low": 0, "high": high, "asks": ["mean"], "reports": 4, **how},
            "arms": {"kind": "table", "columns": {"arm": arm, "crashed": ["no", "yes"]}, "reports": 4, **how},
            "tools": {"kind": "choices", "values": list("abcd"), "ticks_max": ticks, "reports": 4, **how},
        }
        return about(Registry.parse(metrics_text(asked, **{"publish_epsilon_year": 39, **head})), TODAY)

    was = facts(64, ["a", "b"], 2)
    now = facts(128, ["a", "c"], 3, publish_epsilon_year=60, device_epsilon=500)
    found = changes_between(was, now, TODAY)
    said = {each["metric"]: [other["what"] for other in found if other["metric"] == each["metric"]] for each in found}
    assert said["all questions"] == [
        "the most that releases of 366 days may cost a device: 60, before: 39",
        "the most that all reports may cost a device: 500, before: 400",
    ]
    assert "what is sent: A number, cut to 0 ms at least and 128 ms at most." in said["delay"][0]
    assert "arm: a, c; crashed: no, yes" in said["arms"][0]
    assert "values that count of an answer: 3, before: 2" in said["tools"]
    files = render({**now, "changes": found}, [])
    assert "cut to 0 ms at least and 128 ms at most" in files["delay/index.html"].decode()
    assert "more than 3 of them keeps those listed first" in files["tools/index.html"].decode()
    assert b"all questions: the most that releases" in files["feed.xml"]


def test_a_page_says_which_answers_read_too_low() -> None:
    asked = {"kind": "choices", "values": list("abcd"), "ticks_max": 2, "reports": 4, "publish": "month"}
    keys = {"tools": {**asked, "epsilon": 2.0, "publish_epsilon": 1.0, "why": "To know."}}
    registry = Registry.parse(metrics_text(keys, publish_epsilon_year=13))
    plan = registry.metrics["tools"].plan
    counts = tuple([3_000] * counts_of(plan.cells))
    release = Release("tools", "What?", plan, "month", date(2026, 10, 1), 1_000_000, 1, 1, counts=counts)
    page = render(about(registry, TODAY), [release.published()])["tools/index.html"].decode()
    assert "the shares of values listed last are too low then" in page


def test_a_plan_that_a_registry_has_again_begins_anew(tmp_path: Path) -> None:
    clock, asked = Clock(), published()  # from 20 November on
    other = Registry.parse(registry_text().replace("[metric.color]", "[metric.colour]"))
    with sqlite_store(asked, tmp_path / "data", clock) as store:
        clock.travel(12)
        store.load(other)  # on 2 December
        clock.travel(23)
        store.load(asked)
        clock.travel(20)
        seal_all(store)
        assert publish(store, asked) == ([], [])  # no December
        clock.travel(28)
        store.load(asked)  # which changes nothing
        seal_all(store)
        assert [each.name for each in publish(store, asked)[0]] == ["2027-01"]


@pytest.mark.parametrize(("loaded", "first"), [(7, date(2026, 12, 1)), (8, date(2027, 1, 1))])
def test_a_question_that_is_asked_on_after_its_reports_were_refused_begins_anew(
    tmp_path: Path, loaded: int, first: date
) -> None:
    """It expires on 10 December, and its reports are refused from the 17th: a December would lack some."""
    clock, asked, longer = Clock(), published(expires=date(2026, 12, 10)), published(expires=date(2027, 3, 1))
    with sqlite_store(asked, tmp_path / "data", clock) as store:
        clock.travel(19 + loaded)  # from 20 November to 9 December, and on
        store.load(longer)
        (stored,) = store.plans("color")
        assert first_window(stored, "month") == first
        store.load(longer)  # which changes nothing
        assert store.plans("color") == [stored]


@pytest.mark.parametrize(("expires", "windows"), [(date(2026, 12, 25), []), (date(2026, 12, 26), ["2027-01"])])
def test_nothing_is_published_of_days_after_the_last_report_that_may_come(
    tmp_path: Path, expires: date, windows: list[str]
) -> None:
    """Reports count for seven days after a question has expired: of 26 December until 1 January."""
    clock, asked = Clock(), published(expires=expires)
    with sqlite_store(asked, tmp_path / "data", clock) as store:
        clock.travel(80)
        seal_all(store)
        assert [each.name for each in publish(store, asked)[0]] == windows


@pytest.mark.parametrize(
    "spoiled",
    [
        *({"changes": 5}, {"changes": [{"day": "2026-06-31", "metric": "a", "what": "b"}]}, {"changes": [{"day": 1}]}),
        *(
            {"metrics": "x"},
            {"metrics": [{"values": 5, "metric": "color"}]},
            {"metrics": None},
            {"begun": 3},
            {"url": 7},
        ),
    ],
)
def test_damaged_facts_are_refused_in_words(tmp_path: Path, spoiled: dict[str, object]) -> None:
    facts = about(published(), TODAY)
    write(tmp_path, render(facts, []))
    assert facts_in(tmp_path) == facts
    (tmp_path / "about.json").write_text(json.dumps({**facts, **spoiled}))
    with pytest.raises(ConfigurationError, match=r"about\.json is damaged"):
        facts_in(tmp_path)
    (tmp_path / "about.json").write_text(json.dumps({"metrix": facts["metrics"]}))
    with pytest.raises(ConfigurationError, match=r"about\.json is damaged"):
        facts_in(tmp_path)


def test_reports_that_are_fewer_than_the_noise_are_bounded_above() -> None:
    release = Release.from_document({name: value for name, value in documents(MONTHS[:1])[0].items() if name != "seal"})
    noisy = replace(release, micro=10_000, counts=(-500, 100, 50, -200, 15))
    wide = f"{2 * read(noisy).n_error:,.0f}"
    assert read(noisy).about == f"no more than about {wide} reports"
    assert f"{wide} reports" in render(about(published(), TODAY), [noisy.published()])["color/index.html"].decode()
    assert read(release).about.startswith("about 22,0")


def test_a_blanket_is_not_told_where_the_noise_of_the_release_hides_more() -> None:
    release = Release.from_document({name: value for name, value in documents(MONTHS[:1])[0].items() if name != "seal"})
    blanket = read(release).blanket
    assert blanket is not None
    assert blanket[1] < 2 * release.epsilon
    assert read(replace(release, micro=int(blanket[1] * 480_000))).blanket is None


def test_the_page_of_a_metric_that_is_gone_says_so() -> None:
    facts = about(published(values=ANSWERS), TODAY)
    (color,) = facts["metrics"]
    for unpublished, said, listed in (
        ([color], "published no more", "still asked"),
        ([], "asked no more", "No longer asked"),
    ):
        files = render({**facts, "metrics": [], "unpublished": unpublished}, documents(MONTHS[:1]))
        page, top = (files[name].decode() for name in ("color/index.html", "index.html"))
        assert said in page
        assert '<a href="../index.html#changes">' in page
        assert listed in top
        assert top.count('<a href="color/index.html">') == 1 + len(unpublished)
    assert "no more" not in render(facts, documents(MONTHS[:1]))["color/index.html"].decode().partition("<h1>")[2][:600]


def test_a_closed_window_without_a_release_is_named(tmp_path: Path) -> None:
    """December cost 13, and a year allows 13 from then on: January is refused."""
    clock, site = Clock(), tmp_path / "site"  # 20 November

    def publishing(epsilon: int) -> Registry:
        text = registry_text(color=PUBLISHED.replace("1.0", str(epsilon)))
        return Registry.parse(text.replace("[registry]\n", f"[registry]\npublish_epsilon_year = {13 * epsilon}\n"))

    with sqlite_store(publishing(13), tmp_path / "data", clock) as store:
        for days, registry, refused in ((50, publishing(13), 0), (31, publishing(1), 1)):
            clock.travel(days)
            seal_all(store)
            assert len(publish_to(site, store, registry)[1]) == refused
    assert json.loads((site / "about.json").read_text())["missing"] == {"color": ["2027-01"]}
    text = (site / "color" / "index.html").read_text()
    assert "Closed without a release: 2027-01." in text
    assert "or nobody published it before the next one closed" in text
    assert verify(site) == []
