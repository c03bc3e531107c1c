"""A snapshot's pages: the numbers are those of its JSON, byte for byte the same for ever, and safe to open."""

import csv
import hashlib
import io
import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import requests
from flask.testing import FlaskClient

from dither_aggregator.analysis import closed_days
from dither_aggregator.analysis.closed_days import Snapshot, _document, window_snapshot
from dither_aggregator.analysis.estimands import estimate
from dither_aggregator.analysis.reading import View, Window, for_readers, windows_of
from dither_aggregator.health.capacity import FreeSpace
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore, StoredPlan, Tally
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.records import Final
from dither_aggregator.store.sqlite import FILE_NAME
from dither_aggregator.web.charts import precise
from dither_aggregator.web.pages.days import _agrees
from dither_aggregator.web.query_parameters import LongList
from dither_shared.frozen import canonical_json
from dither_shared.registry import Registry
from dither_shared.safe_output import visible
from tests.support.aggregators import aggregator, operators_app, sqlite_store
from tests.support.clocks import Clock
from tests.support.laws import pure
from tests.support.registries import registry, registry_text
from tests.support.stores import append, body_of, fold_all
from tests.support.tallies import Counts, draw_tally

EXPIRES = date(2027, 3, 1)
ODD = ("=1+1", "<b>&amp;</b>", "\ufffe odd", "-5 to 5", "plain", "a long value, " * 10 + "indeed")
ASKED_TEXT = registry_text(values=ODD, epsilon="4.0", reports=1, device_epsilon="400.0", expires=EXPIRES)
ASKED = Registry.parse(ASKED_TEXT)
DAY = date(2026, 11, 19)
SVG = "{http://www.w3.org/2000/svg}"
Change = Callable[[dict[str, Any]], object]


def keep(store: SQLiteStore, stored: StoredPlan, tally: Tally, change: Change = lambda document: None) -> str:
    """Keep the snapshot of a tally, perhaps changed; return its id."""
    document = closed_days._document("example", stored, Window.ending(DAY, 1), tally)
    change(document)
    made = canonical_json(document)
    id_ = hashlib.sha256(made).hexdigest()
    store.finalize(stored.plan, DAY, Final(tally.digest, id_), zlib.compress(made))
    return id_


class Shelf:
    """A store with snapshots of tallies that a test draws."""

    def __init__(self, store: SQLiteStore) -> None:
        self.store = store
        self.client: FlaskClient = operators_app(store).test_client()

    def put(self, counts: Counts, metric: str = "color", change: Change = lambda document: None) -> str:
        """Keep the snapshot of so many devices that report each value, perhaps changed; return its id."""
        stored = self.store.plans(metric)[0]
        drawn = draw_tally(pure(stored.plan), counts, np.random.default_rng(1))
        return keep(self.store, stored, Tally(int(counts.sum()), np.concatenate([[counts.sum()], drawn])), change)

    def document(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(closed_days.content(self.store, id_) or b"")
        return found

    def page(self, id_: str) -> str:
        answer = self.client.get(f"/s/{id_}")
        assert answer.status_code == 200, answer.text
        return answer.text


@contextmanager
def shelf(tmp_path: Path, **asked: Any) -> Iterator[Shelf]:
    made = registry(**asked) if asked else ASKED
    with sqlite_store(made, tmp_path, Clock()) as store:
        yield Shelf(store)


def table(html: str) -> list[list[str]]:
    found = re.search(r'<table class="shown">.*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    rows = re.findall("<tr>(.*?)</tr>", found[1] if found else "")
    return [
        [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", row)] for row in rows
    ]


COUNTS = np.array([3_000, 4_000, 2_000, 50, 0, 1_000, 30])


def test_the_numbers_are_those_of_the_json(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        html, own = one.page(id_), {row["value"]: row for row in one.document(id_)["estimates"]["rows"]}
        plan = one.store.plans("color")[0]
        tally = closed_days.read_snapshot(one.store, id_)
        assert tally
        together = estimate(plan, DAY, tally.tally, View(simultaneous=True))
        anew = {row.value: row for row in together.rows}
        shown = table(html)
        assert {row[0] for row in shown} >= {ODD[0], ODD[1], visible(ODD[2]), ODD[5], "other"}
        values = {visible(value): value for value in own}
        for name, estimated, both, _, error, alone in shown:
            then, now = own[values[name]], anew[values[name]]
            assert estimated == precise(then["estimate"], then["std_error"])
            assert error == precise(then["std_error"], then["std_error"] / 20)
            assert alone == " to ".join(precise(then[end], then["std_error"]) for end in ("lower", "upper"))
            assert both == " to ".join(precise(end, now.std_error) for end in (now.lower, now.upper))
        assert "computed anew from its counts" in html
        for fact in (id_, plan.plan.digest, "n = 10,080", "those of this digest", "numpy", "/v1/snapshots/" + id_):
            assert fact in html


def test_a_flag_has_one_interval(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        html = one.page(one.put(np.array([700, 300]), "dark"))
        (row,) = table(html)
        assert row[0] == "yes"
        assert len(row) == 4
        assert "each alone" not in html


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([0] * 7, "No reports of this day are counted."),
        ([1, 1, 0, 0, 0, 0, 0], "Nothing can be told yet: 2 reports; about "),
    ],
)
def test_nothing_is_drawn_of_too_few(counts: list[int], words: str, tmp_path: Path) -> None:
    with shelf(tmp_path, values=ODD, epsilon="1.0", expires=EXPIRES) as one:
        id_ = one.put(np.array(counts))
        html = one.page(id_)
        assert words in html
        assert "<circle" not in html
        assert words in one.client.get(f"/s/{id_}.svg").text


def test_counts_of_another_digest_are_told(tmp_path: Path) -> None:
    """Planted: a snapshot whose maker wrote the digest of other counts."""
    with shelf(tmp_path) as one:
        html = one.page(one.put(COUNTS, change=lambda document: document["tally"].update(digest="0" * 64)))
        assert "are not those of the digest" in html
        assert "those of this digest" not in html


def test_numbers_that_this_version_would_not_give_are_told(tmp_path: Path) -> None:
    def other(document: dict[str, Any]) -> None:
        document["estimates"]["rows"][0]["estimate"] += 1e-6

    with shelf(tmp_path) as one:
        assert "estimates other numbers" in one.page(one.put(COUNTS, change=other))
    with shelf(tmp_path / "same") as one:
        assert "estimates other numbers" not in one.page(one.put(COUNTS))


def test_the_csv_has_every_row_exactly_and_runs_nothing(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        answer = one.client.get(f"/s/{id_}.csv")
        assert answer.content_type == "text/csv; charset=utf-8"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="color-{DAY}-{id_[:12]}.csv"'
        assert one.client.get(f"/s/{id_}.csv?bom=1").data == b"\xef\xbb\xbf" + answer.data
        assert "bom must be 1, got &#39;0&#39;" in one.client.get(f"/s/{id_}.csv?bom=0").text
        rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        wanted = one.document(id_)["estimates"]["rows"]
        assert [row["value"] for row in rows] == ["'=1+1", *ODD[1:3], "'-5 to 5", *ODD[4:], "other"]
        for row, then in zip(rows, wanted, strict=True):
            numbers = {name: float(row[name]) for name in ("estimate", "std_error", "lower", "upper") if row[name]}
            assert numbers | {"error_of": row["error_of"], "value": then["value"]} == then


def test_the_svg_stands_alone_and_says_what_the_page_says(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        answer = one.client.get(f"/s/{id_}.svg")
        assert answer.content_type == "image/svg+xml"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        root = ElementTree.fromstring(answer.text)
        assert root.tag == f"{SVG}svg"
        assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
        title, description = root.findtext(f"{SVG}title") or "", root.findtext(f"{SVG}desc") or ""
        assert ("color" in title, str(DAY) in title, id_ in description) == (True, True, True)
        assert {each.tag for each in root.iter()} <= {
            SVG + tag for tag in ("svg", "title", "desc", "rect", "text", "tspan", "line", "g", "circle")
        }
        assert not any(
            name in ("style", "href") or name.startswith("on") for each in root.iter() for name in each.attrib
        )
        marks = root.findall(f".//{SVG}g")
        said = [[text.text for text in mark.findall(f"{SVG}text")][1] for mark in marks]
        assert said == [f"{row[1]} ({row[2]})" for row in table(one.page(id_))]
        assert ODD[1] in [mark.findtext(f"{SVG}title") for mark in marks]


@pytest.mark.parametrize("address", ["/s/{}.csv", "/s/{}.svg", "/v1/snapshots/{}"])
def test_what_never_changes_is_kept_for_ever(address: str, tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        answer = one.client.get(address.format(id_))
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["ETag"] == f'W/"{id_}"'
        again = one.client.get(address.format(id_), headers={"If-None-Match": f'"{id_}"'})
        assert (again.status_code, again.data) == (304, b"")
        other = one.client.get(address.format(id_), headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.data) == (200, answer.data)


def test_a_snapshot_that_is_not_there_is_a_page_that_says_so(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        for address in ("/s/" + "0" * 64, "/s/x", "/s/x.csv", "/s/x.svg"):
            answer = one.client.get(address)
            assert (answer.status_code, answer.mimetype) == (404, "text/html")
            assert "there is no snapshot" in answer.text
        refused = one.client.get(f"/s/{one.put(COUNTS)}?level=80")
        assert refused.status_code == 400
        assert "there is no parameter" in refused.text


def test_a_damaged_snapshot_is_told_in_the_stores_words(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
            db.execute("UPDATE snapshot SET content = ?", (zlib.compress(b"{}"),))
        for address in (f"/s/{id_}", f"/s/{id_}.csv", f"/s/{id_}.svg"):
            answer = one.client.get(address)
            assert answer.status_code == 503
            assert f"the snapshot {id_} is damaged: run `dither fsck`" in answer.text


def test_a_snapshot_of_another_format_is_not_guessed_at(tmp_path: Path) -> None:
    with shelf(tmp_path) as one:
        answer = one.client.get(f"/s/{one.put(COUNTS, change=lambda document: document.update(v=2))}")
        assert answer.status_code == 503
        assert "has format 2; this dither reads 1" in answer.text


def test_a_page_of_very_many_values_is_short(tmp_path: Path) -> None:
    values = tuple(f"{number:05d} {'<&' * 40}" for number in range(800))
    asked = {"values": values, "epsilon": "6.0", "reports": 1, "device_epsilon": "400.0", "expires": EXPIRES}
    with shelf(tmp_path, **asked) as one:
        counts = np.zeros(801, dtype=np.int64)
        counts[:200] = 20_000
        id_ = one.put(counts)
        html = one.page(id_)
        assert len(html.encode()) < 300_000
        assert len(table(html)) == 51
        assert "150 more stand out: the CSV has every value." in html
        assert "600 more listed values, not ranked" in html
        assert len(one.client.get(f"/s/{id_}.csv").text.splitlines()) == 802
        assert len(one.client.get(f"/s/{id_}.svg").data) < 300_000


def test_a_text_keeps_the_candidates_of_its_day(tmp_path: Path) -> None:
    """The registry looks for others by now: the snapshot's are shown."""
    asked: dict[str, Any] = {"kind": "text", "epsilon": "4", "epsilon_permanent": "8", "expires": EXPIRES}
    first = registry(**asked, candidates=("alpha", "beta"))
    with sqlite_store(first, tmp_path, Clock()) as store:
        stored = store.plans("color")[0]
        id_ = keep(store, stored, Tally(0, np.zeros(stored.plan.cells.tally_size, dtype=np.int64)))
        store.load(registry(**asked, candidates=("gamma",)))
        snapshot = closed_days.read_snapshot(store, id_)
        assert snapshot
        assert snapshot.stored.candidates == ("alpha", "beta")
        assert "2 candidates" in operators_app(store).test_client().get(f"/s/{id_}").text


def test_a_questions_characters_are_shown_and_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turned = ASKED_TEXT.replace("Which colour", "Which \\u202ecolour")
    monkeypatch.setitem(globals(), "ASKED", Registry.parse(turned))
    with shelf(tmp_path) as one:
        id_ = one.put(COUNTS)
        for path in ("/", "/metrics/color", f"/s/{id_}", f"/s/{id_}.svg"):
            content = one.client.get(path).text
            assert "Which \\u{202e}colour" in content
            assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in content


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, SQLiteStore, Clock]]:
    """A real server, with the snapshots of one day, and a disk that nobody else writes to: a page says what is left."""
    monkeypatch.setattr(SQLiteStore, "left", lambda _: FreeSpace("disk", 64 << 30, 256 << 30))
    clock = Clock()
    asked = registry(expires=EXPIRES)
    with sqlite_store(asked, tmp_path, clock) as store:
        append(store, body_of(asked, {"dark": [1] * 60 + [0] * 40, "color": [1] * 50}))
        fold_all(store)
        clock.travel(1)
        maintenance.maintain(store, 0)
        assert maintenance.finalize(store, "dark") == 1
    with aggregator(asked, tmp_path, clock) as (url, service):
        assert isinstance(service.store, SQLiteStore)
        yield url, service.store, clock


def get(url: str, **headers: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(url, headers=headers, timeout=30)


def test_a_browser_that_has_a_page_is_told_so(served: tuple[str, SQLiteStore, Clock]) -> None:
    url, store, _ = served
    (final,) = store.finals(store.plans("dark")[0].plan).values()
    for path in (
        "/",
        "/metrics/dark",
        "/pipeline",
        f"/s/{final.snapshot}",
        f"/s/{final.snapshot}.csv",
        "/static/dither.css",
    ):
        first = get(url + path)
        assert first.status_code == 200
        assert first.headers["Date"].count("GMT") == 1
        again = get(url + path, **{"If-None-Match": first.headers["ETag"], "Accept-Encoding": "identity"})
        assert (again.status_code, again.content) == (304, b""), path
        assert "Content-Length" not in again.headers
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["Vary"] == "accept-encoding"


def test_a_metrics_page_leads_to_the_snapshot(served: tuple[str, SQLiteStore, Clock]) -> None:
    url, store, clock = served
    (final,) = store.finals(store.plans("dark")[0].plan).values()
    day = store.sealed()
    link = f'<a href="/s/{final.snapshot}">'
    assert link in get(f"{url}/metrics/dark?epoch={day}").text
    clock.travel(40)
    store.put(Retention(tallies_days=30))
    maintenance.maintain(store, 0)
    gone = get(f"{url}/metrics/dark?epoch={day}")
    assert gone.status_code == 410
    assert f"The counts of {day} are no longer kept. Their estimates are in {link}" in gone.text
    assert "60.0" not in gone.text
    shown = get(f"{url}/s/{final.snapshot}")
    assert shown.status_code == 200
    assert "100 reports" in shown.text


# Windows: made of the snapshots of their days.


class Days:
    """A store into which a test uploads, a day after the other."""

    def __init__(self, store: SQLiteStore, clock: Clock, asked: Registry) -> None:
        self.store, self.clock, self.asked = store, clock, asked
        self.client = operators_app(store).test_client()
        self.stored = store.plans("dark")[0]

    def upload(self, yes: int, no: int) -> None:
        """Take so many reports on a day, and let it be final on the next."""
        if yes + no:
            append(self.store, body_of(self.asked, {"dark": [1] * yes + [0] * no}))
        fold_all(self.store)
        self.clock.travel(1)
        maintenance.maintain(self.store, 0)
        maintenance.finalize(self.store, "dark")

    def window(self, days: int) -> Window:
        """Return the last so many sealed days."""
        return Window.ending(self.store.sealed(), days)

    def id_of(self, days: int) -> str:
        """Return the id of the snapshot of the last so many sealed days."""
        id_ = window_snapshot(self.store, self.stored, self.window(days))
        assert id_
        return id_

    def told(self, id_: str, path: str = "/v1/snapshots/{}") -> dict[str, Any]:
        """Return what the API tells of a snapshot."""
        answer = self.client.get(path.format(id_))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.get_json()
        return found


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Days]:
    """Four days of a flag: 100, 60, no and 40 reports."""
    clock, asked = Clock(), registry(expires=EXPIRES)
    with sqlite_store(asked, tmp_path, clock) as store:
        made = Days(store, clock, asked)
        for counts in ((60, 40), (30, 30), (0, 0), (35, 5)):
            made.upload(*counts)
        yield made


def test_a_windows_page_leads_to_its_snapshot_which_says_the_same(days: Days) -> None:
    id_, window = days.id_of(4), days.window(4)
    page = days.client.get(f"/metrics/dark?from={window.first}&to={window.last}").text
    assert f'<a href="/s/{id_}">snapshot <code>{id_.rpartition(".")[2][:12]}</code>' in page
    shown = days.client.get(f"/s/{id_}").text
    headline = re.findall(r'<p class="headline">(.*?)</p>', page)
    assert headline == re.findall(r'<p class="headline">(.*?)</p>', shown)
    assert "200 reports" in shown
    assert "estimates other numbers" not in shown
    document = days.told(id_)
    (row,) = document["estimates"]["rows"]
    rows = days.told(id_, f"/v1/metrics/dark/estimates?from={window.first}&to={window.last}&intervals=each")["rows"]
    assert (row["estimate"], row["lower"], row["upper"]) == tuple(
        rows[0][name] for name in ("estimate", "lower", "upper")
    )
    csv_row = days.client.get(f"/s/{id_}.csv").text.splitlines()[1].split(",")
    assert float(csv_row[1]) == row["estimate"]
    drawn = days.client.get(f"/s/{id_}.svg").text
    assert f"{window.first} to {window.last}, 4 days (UTC)" in drawn
    assert ElementTree.fromstring(drawn).tag == f"{SVG}svg"


@pytest.mark.parametrize("number", [1, 2])
def test_the_snapshot_of_chosen_days_has_what_their_page_has(days: Days, number: int) -> None:
    """A single day's page pays, too: for all windows of eight days, which are four and today, in steps."""
    window = Window.ending(days.window(3).first, number)
    page = days.client.get(f"/metrics/dark?from={window.first}&to={window.last}").text
    id_ = window_snapshot(days.store, days.stored, window, windows_of(8))
    assert id_
    assert f'<a href="/s/{id_}">snapshot <code>{id_.rpartition(".")[2][:12]}</code>' in page
    assert f".{window.last}.36." in id_
    shown, document = days.client.get(f"/s/{id_}").text, days.told(id_)
    assert re.findall(r'<p class="headline">(.*?)</p>', page) == re.findall(r'<p class="headline">(.*?)</p>', shown)
    assert "every interval holds for all 36 windows of days that could have been chosen" in shown
    assert "estimates other numbers" not in shown
    assert document["of"]["together"] == document["estimates"]["interval"]["together"] == 36
    told = days.told(id_, f"/v1/metrics/dark/estimates?from={window.first}&to={window.last}&intervals=each")
    assert told["meta"]["together"] == 36
    same = [{name: row[name] for name in ("estimate", "lower", "upper")} for row in told["rows"]]
    assert same == [{name: row[name] for name in same[0]} for row in document["estimates"]["rows"]]
    csv_row = days.client.get(f"/s/{id_}.csv").text.splitlines()[1].split(",")
    assert [float(each) for each in (csv_row[3], csv_row[4])] == [same[0]["lower"], same[0]["upper"]]
    assert "all 36 windows of days" in days.client.get(f"/s/{id_}.svg").text
    days.upload(10, 10)  # as days go by more can be chosen; what is cited stays
    days.clock.travel(30)
    assert days.client.get(f"/s/{id_}").text == shown
    assert id_ not in days.client.get(f"/metrics/dark?from={window.first}&to={window.last}").text


def test_a_snapshot_that_paid_nothing_stays_and_says_so(days: Days) -> None:
    """Those of chosen windows were such before they paid, and each day has one."""
    few = Window.ending(days.window(3).first, 2)
    for id_ in (
        window_snapshot(days.store, days.stored, few),
        window_snapshot(days.store, days.stored, days.window(1)),
    ):
        shown, document = days.client.get(f"/s/{id_}").text, days.told(id_ or "")
        assert re.search(r"Intervals are those of th(is day|ese days) alone", shown)
        assert "could have been chosen" not in shown
        assert "together" not in document["estimates"]["interval"]


def test_a_windows_id_is_the_digest_of_the_names_of_its_days(days: Days) -> None:
    id_, window = days.id_of(4), days.window(4)
    document = days.told(id_)
    assert id_ == f"dark.{window.first}.{window.last}.{hashlib.sha256(canonical_json(document['of'])).hexdigest()}"
    each = [days.told(name) for name in document["of"]["days"].values()]
    assert [one["tally"]["n"] for one in each] == [100, 60, 40]
    assert document["tally"]["n"] == 200
    assert days.id_of(1) == days.store.finals(days.stored.plan)[window.last].snapshot


def test_a_window_is_cited_only_when_all_of_its_days_are_final(days: Days) -> None:
    last, today = days.window(1), days.store.today()
    before = days.id_of(4)
    append(days.store, body_of(days.asked, {"dark": [1] * 50}))
    fold_all(days.store)
    for window in (Window(last.last, today), Window.ending(today, 1), Window.ending(last.last, 367)):
        assert window_snapshot(days.store, days.stored, window) is None
    assert window_snapshot(days.store, days.stored, Window(date(2020, 1, 1), date(2020, 1, 9))) is None
    days.clock.travel(1)
    maintenance.maintain(days.store, 0)  # sealed, and not final
    assert window_snapshot(days.store, days.stored, days.window(2)) is None
    maintenance.finalize(days.store, "dark")
    assert days.id_of(2)
    assert days.client.get(f"/s/{before}").status_code == 200


def test_a_window_outlives_its_tallies_and_ends_with_the_snapshots_of_its_days(days: Days) -> None:
    id_, window, later = days.id_of(4), days.window(4), days.id_of(3)
    chosen = window_snapshot(days.store, days.stored, window, windows_of(64))  # of the days that are gone, too
    shown = days.client.get(f"/s/{id_}").text
    days.clock.travel(40)
    days.store.put(Retention(tallies_days=30))
    maintenance.maintain(days.store, 0)
    gone = days.client.get(f"/metrics/dark?from={window.first}&to={window.last}")
    assert (gone.status_code, f'Their estimates are in <a href="/s/{chosen}">' in gone.text) == (410, True)
    assert days.client.get(f"/s/{id_}").text == shown
    days.store.put(Retention(tallies_days=30, snapshots_days=43))  # its first day is 44 days ago
    days.store.forget_snapshots()
    first = days.store.finals(days.stored.plan)[window.first].snapshot
    for path in (f"/s/{id_}", f"/s/{id_}.csv", f"/v1/snapshots/{id_}", f"/s/{first}", f"/v1/snapshots/{first}"):
        answer = days.client.get(path)
        assert (answer.status_code, "was given up by `store keep`" in answer.text) == (410, True), path
    assert days.client.get(f"/s/{later}").status_code == 200
    gone = days.client.get(f"/metrics/dark?from={window.first}&to={window.last}")
    last = days.store.finals(days.stored.plan)[window.last].snapshot
    assert f'The counts of {window.last} are no longer kept. Their estimates are in <a href="/s/{last}">' in gone.text
    days.store.put(Retention(tallies_days=30, snapshots_days=30))
    days.store.forget_snapshots()
    gone = days.client.get(f"/metrics/dark?from={window.first}&to={window.last}")
    assert f"The counts of {window.last} are no longer kept, nor is their snapshot." in gone.text
    assert 'href="/s/' not in gone.text
    told = days.client.get(f"/v1/metrics/dark/estimates?from={window.first}&to={window.last}").get_json()
    assert "snapshot" not in told
    assert told["detail"].endswith(f"{window.last} are no longer kept, nor is their snapshot")


def test_a_page_cites_no_snapshot_that_was_given_up_before_its_counts(days: Days) -> None:
    window = days.window(4)
    page = f"/metrics/dark?from={window.first}&to={window.last}"
    assert 'href="/s/' in days.client.get(page).text
    days.clock.travel(40)
    days.store.put(Retention(snapshots_days=43))
    days.store.forget_snapshots()
    shown = days.client.get(page)
    assert (shown.status_code, 'href="/s/' in shown.text) == (200, False)


def test_an_id_that_was_changed_in_any_part_is_none(days: Days) -> None:
    id_ = days.id_of(4)
    metric, first, last, digest = id_.split(".")
    chosen = window_snapshot(days.store, days.stored, days.window(4), windows_of(8))
    assert days.client.get(f"/s/{chosen}").status_code == 200
    for wrong in (
        *(f"color.{first}.{last}.{digest}", f"dark.{last}.{last}.{digest}", f"dark.{first}.{last}.{digest[:-1]}0x"),
        *(f"{metric}.{first.replace('-', '')}.{last}.{digest}", f"{id_}.{digest}", ".", "...", f"x.{id_}", "....."),
        f"{metric}.{last}.{first}.{digest}",
        *(f"{metric}.{first}.{last}.{paid}.{digest}" for paid in ("", "1", "36", "037", "5", "9" * 400, "-1")),
        *(f"{chosen}".replace(".36.", paid) for paid in (".", ".136.")),
    ):
        assert days.client.get(f"/s/{wrong}").status_code == 404, wrong


def test_a_read_key_is_told_of_a_window_what_its_page_tells(days: Days) -> None:
    """Days of a few reports are in none of their own snapshots, and in a window's with others."""
    reader = for_readers(days.store)
    id_, alone = days.id_of(4), days.id_of(1)
    assert window_snapshot(reader, days.stored, days.window(4)) == id_
    told, hidden = closed_days.read_snapshot(reader, id_), closed_days.read_snapshot(reader, alone)
    assert told
    assert hidden
    assert (told.tally.n, told.tally.left_out, hidden.tally.n) == (200, 0, 0)
    few = Window(
        days.window(1).first - timedelta(days=1), days.window(1).last
    )  # one day of 40 reports, and one of none
    of_few = closed_days.read_snapshot(reader, window_snapshot(reader, days.stored, few) or "")
    assert of_few
    assert (of_few.tally.n, of_few.tally.left_out) == (0, None)
    document = json.loads(closed_days.content(reader, of_few.id) or b"")
    assert (document["tally"]["n"], document["left_out"]["reports"]) == (0, None)


def test_long_lists_are_not_looked_for_in_a_reader(tmp_path: Path) -> None:
    """LongList is what makes a process of its own do it; the CSV looks for nothing."""
    asked: dict[str, Any] = {"kind": "text", "epsilon": "4", "epsilon_permanent": "8", "expires": EXPIRES}
    with sqlite_store(registry(**asked, candidates=("alpha", "beta")), tmp_path, Clock()) as store:
        stored = store.plans("color")[0]
        id_ = keep(store, stored, Tally(0, np.zeros(stored.plan.cells.tally_size, dtype=np.int64)))
        client = operators_app(store, candidates_max=1).test_client()
        for address in (f"/s/{id_}", f"/s/{id_}.svg"):
            with pytest.raises(LongList):
                client.get(address)
        assert client.get(f"/s/{id_}.csv").status_code == 200


# Digests of tallies and the content of snapshots are pinned: another release names the same counts the same.

METRIC = registry(expires=date(2027, 2, 28)).metrics["dark"]
STORED = StoredPlan(1, METRIC.plan, METRIC.question, (), METRIC.reservation, METRIC.expires, current=True)
TALLY = Tally(50, np.array([50, 30, 20]))


def test_the_digest_of_a_tally_is_pinned() -> None:
    """n, then of each cell its number and its counts, 64 bits each, little-endian."""
    numbers = (50, 50, 30, 20)
    plain = hashlib.sha256(b"".join(number.to_bytes(8, "little") for number in numbers)).hexdigest()
    assert TALLY.digest == plain == "59e45d64842b28f05e0c7a31c95940d50e9d7e657b746fa337f4becbfd2b08c2"


def test_a_flags_earlier_snapshot_which_has_the_row_of_no_too_agrees() -> None:
    day = date(2026, 11, 22)
    window = Window.ending(day, 1)
    document = _document("example", STORED, window, TALLY)
    estimates: Any = document["estimates"]
    (yes,) = estimates["rows"]
    no = {**yes, "value": "no", "estimate": 1 - yes["estimate"]}
    reading = estimate(STORED, day, TALLY, View(error_of=estimates["error_of"]))
    for rows, agrees in (([no, yes], True), ([yes], True), ([no, {**yes, "estimate": 0.9}], False), ([no], False)):
        earlier = Snapshot("", {**document, "estimates": {**estimates, "rows": rows}}, STORED, window, TALLY)
        assert _agrees(reading, earlier) is agrees


def test_the_content_of_a_snapshot_is_pinned() -> None:
    """But for the estimates, whose last digits are those of numpy and scipy, and the versions of these."""
    document = _document("example", STORED, Window.ending(date(2026, 11, 22), 1), TALLY)
    assert set(document.pop("made_with")) == {"dither", "numpy", "scipy"}  # type: ignore[call-overload]
    assert [row["value"] for row in document.pop("estimates")["rows"]] == ["yes"]  # type: ignore[index]
    assert document["plan"] == METRIC.plan.to_document()
    assert (
        hashlib.sha256(canonical_json(document)).hexdigest()
        == "098243d055739d90b36cec3f8bbfb04ba587dd213c22af11e5d9951d21a7db7f"
    )
