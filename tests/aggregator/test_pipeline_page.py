"""The pipeline's page says where every report is: of real stores that are held back, damaged and kept waiting."""

import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import date, timedelta
from html import unescape
from pathlib import Path
from unittest.mock import patch

import pytest
import requests
from flask.testing import FlaskClient

from dither_aggregator import counting
from dither_aggregator.counting import Counts
from dither_aggregator.health.capacity import Trouble
from dither_aggregator.health.checks import LAG_MAX_S
from dither_aggregator.health.status import REASONS_IN_WORDS
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from dither_shared.shapes import ReportShape
from dither_shared.wire import PATH, REASONS, new_upload_id
from tests.support.aggregators import aggregator, operators_app, sqlite_store
from tests.support.clocks import Clock
from tests.support.keys import write_key
from tests.support.registries import registry, registry_text
from tests.support.stores import answer, append, body_of, fold_all

EXPIRES = date(2027, 3, 1)
ASKED = registry(expires=EXPIRES)
POISON = b"\x02\x02\x02"


@dataclass
class Pipeline:
    """A store, its clock and its page."""

    store: SQLiteStore
    clock: Clock
    client: FlaskClient
    asked: Registry

    def send(self, reports: dict[str, list[int]], fold: bool = True) -> None:
        append(self.store, body_of(self.asked, reports))
        if fold:
            fold_all(self.store)

    def html(self) -> str:
        answer = self.client.get("/pipeline")
        assert answer.status_code == 200, answer.text
        return answer.text

    def look(self) -> str:
        """Return the page's words."""
        return words(self.html())


def words(html: str) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub("<.*?>", " ", html))).replace("\N{NO-BREAK SPACE}", " ")


def headline(html: str) -> str:
    (text,) = re.findall(r'<p class="headline">(.*?)</p>', html)
    return unescape(text)


def table(html: str, name: str) -> list[list[str]]:
    found = re.search(rf'<table class="{name}">.*?<tbody>(.*?)</tbody>', html, re.DOTALL)
    rows = re.findall("<tr>(.*?)</tr>", found[1] if found else "", re.DOTALL)
    return [
        [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def checks(html: str) -> dict[str, tuple[str, str]]:
    """Return the value and the verdict of each health check."""
    return {what: (value, verdict) for what, value, _, verdict in table(html, "checks")}


def ill(html: str) -> set[str]:
    return {what for what, (_, verdict) in checks(html).items() if verdict != "well"}


@contextmanager
def pipeline(tmp_path: Path, asked: Registry = ASKED) -> Iterator[Pipeline]:
    clock = Clock()
    with sqlite_store(asked, tmp_path, clock) as store:
        maintenance.maintain(store, 0)
        yield Pipeline(store, clock, operators_app(store).test_client(), asked)


@contextmanager
def poisonous(why: str = "poison") -> Iterator[None]:
    fold = counting.fold

    def fail(shape: ReportShape, reports: bytes) -> Counts:
        if POISON in reports:
            raise ValueError(why)
        return fold(shape, reports)

    with patch.object(counting, "fold", fail):
        yield


def test_a_store_without_reports_is_well(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        html = one.html()
        assert headline(html) == "0 accepted = 0 folded + 0 pending + 0 quarantined: all is well."
        assert ill(html) == set()
        assert "No upload waits to be folded." in html
        assert "Nothing waits in quarantine." in html


def test_the_page_agrees_with_the_ledger_and_tells_no_secret(tmp_path: Path) -> None:
    """Over a real server, which also refuses a group: that one is in no number of the ledger."""
    with aggregator(ASKED, tmp_path, Clock()) as (url, service), requests.Session() as session:
        session.trust_env = False
        ids = [new_upload_id(random.getrandbits) for _ in range(3)]
        for id_ in ids:
            document = json.loads(body_of(ASKED, {"dark": [1, 0], "color": [1]}, id_))
            document["groups"].append({"metric": "nothing", "plan": "0" * 16, "reports": [1] * 7})
            answer = session.post(
                url + PATH,
                data=json.dumps(document).encode(),
                headers={"Authorization": f"Bearer {write_key(service.store)}", "Content-Type": "application/json"},
                timeout=30,
            )
            assert answer.json()["rejected"] == [{"group": 2, "reason": "unknown-metric", "count": 7}]
        html = session.get(f"{url}/pipeline", timeout=30).text
        rows = service.store.ledger()
        assert sum(row.accepted for row in rows) == 9
        assert headline(html).startswith("9 accepted = ")
        assert [row[0] for row in table(html, "ledger")] == ["all time", "today"]
        for _, accepted, folded, pending, quarantined in table(html, "ledger"):
            assert int(accepted) == 9 == int(folded) + int(pending) + int(quarantined)
        day = service.store.today().isoformat()
        assert table(html, "refused") == [["unknown metric", "none of this store", "3", "21", day]]
        assert "In the last 7 days, 3 groups of reports were refused, with 21 reports." in words(html)
        assert "nothing" not in {row[0] for row in table(html, "rows")}
        address = url.removeprefix("http://")
        for secret in (write_key(service.store), service.store.generation, str(tmp_path), address, FILE_NAME, *ids):
            assert secret not in html
        assert re.findall("<script.*", html) == ['<script src="/static/dither.js" defer></script>']
        assert "default-src 'none'" in session.get(f"{url}/pipeline", timeout=30).headers["Content-Security-Policy"]


def test_what_is_not_folded_is_pending_and_told_when_it_waits_too_long(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        one.send({"dark": [1, 0]})
        one.send({"dark": [1]}, fold=False)
        one.send({"color": [1]}, fold=False)
        html = one.html()
        assert headline(html) == "4 accepted = 2 folded + 2 pending + 0 quarantined: all is well."
        assert [(row[0], row[4]) for row in table(html, "rows")] == [("color", "1"), ("dark", "1")]
        assert ill(html) == set()
        one.clock.now += LAG_MAX_S + 60
        html = one.html()
        assert ill(html) == {"folding"}
        assert "2 uploads wait to be folded; nothing was folded for 3 min." in html
        assert checks(html)["folding"][0] == "nothing folded for 3 min"
        assert "dither fsck names damaged entries" in words(html)
        assert headline(html).endswith("it balances, and one health check below needs a look.")
        assert table(html, "shards")[0][:5] == ["0", "3", "1", "2", "3 min"]
        fold_all(one.store)
        assert ill(one.html()) == set()


def test_a_ledger_that_does_not_balance_says_what_to_do(tmp_path: Path) -> None:
    """Planted: reports leave the log and come nowhere, as no fold may let them."""
    with pipeline(tmp_path) as one:
        for reports in ([1, 0], [1]):
            one.send({"dark": reports, "color": [1]}, fold=False)
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
            db.execute("UPDATE log SET entry = substr(entry, 1, length(entry) - 1) WHERE seq = 1")
        html = one.html()
        assert headline(html) == "5 accepted = 0 folded + 2 pending + 0 quarantined: it does not balance."
        assert [(row[0], row[6]) for row in table(html, "rows")] == [
            ("color", "not balanced"),
            ("dark", "not balanced"),
        ]
        assert "in 2 rows of the ledger the numbers do not add up. dither fsck names" in words(html)
        assert "Balanced: in every metric" not in html


def test_rows_that_balance_only_together_are_told_apart(tmp_path: Path) -> None:
    """Planted: one report too many here and one too few there, so that the sum is right."""
    with pipeline(tmp_path) as one:
        one.send({"dark": [1, 0], "color": [1, 1]})
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
            db.execute("UPDATE ledger SET folded = folded + 1 WHERE plan = 1")
            db.execute("UPDATE ledger SET folded = folded - 1 WHERE plan = 2")
        html = one.html()
        assert headline(html) == "4 accepted = 4 folded + 0 pending + 0 quarantined: it does not balance."
        assert len(table(html, "rows")) == 2


def test_quarantine_is_told_by_reason(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        for why, times in (("<b>beyond</b>" + "x" * 900, 1), ("other", 2)):
            for _ in range(times):
                with poisonous(why):
                    one.send({"color": [2, 2, 2], "dark": [1]})
        html = one.html()
        assert headline(html).startswith(
            "12 accepted = 3 folded + 0 pending + 9 quarantined: it balances, and one health check"
        )
        assert ill(html) == {"quarantine"}
        (other, odd) = table(html, "reasons")
        assert other == ["ValueError: other", "2", "6"]
        assert odd[0].startswith("ValueError: <b>beyond</b>xxx")
        assert len(odd[0]) == 200
        assert "<b>" not in html
        assert [(row[0], row[5]) for row in table(html, "rows")] == [("color", "9")]
        for group in one.store.quarantined():
            assert one.store.drop(group.id)
        html = one.html()
        assert ill(html) == set()
        assert "9 reports were given up: they stay counted as quarantined." in html
        assert table(html, "rows") == []


def test_refused_groups_are_told_by_reason_and_metric_with_what_to_do(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        assert "No group of reports was refused in the last 7 days." in one.look()
        old = registry(rev=9, expires=EXPIRES)
        answer(one.store, body_of(old, {"dark": [1]}))
        one.clock.travel(1)
        answer(one.store, body_of(old, {"dark": [1, 0], "color": [1]}))
        one.clock.travel(6)
        one.store.retire("color", 1)
        answer(one.store, body_of(ASKED, {"color": [1] * 1_000}))
        html = one.html()
        assert table(html, "refused") == [
            ["plan retired", "color", "1", "1,000", "2026-11-27"],
            ["unknown plan of the metric", "dark", "1", "2", "2026-11-21"],
            ["unknown plan of the metric", "color", "1", "1", "2026-11-21"],
        ]
        assert "In the last 7 days, 3 groups of reports were refused, with 1,003 reports." in words(html)
        assert "plan retired: An operator retired the plan. dither metrics retire NAME --rev N --undo takes" in words(
            html
        )
        assert "<code>dither metrics load metrics.toml</code>" in html
        assert "metric expired:" not in html
        assert headline(html).startswith("0 accepted = ")


def test_every_reason_has_words_and_a_hint() -> None:
    assert tuple(REASONS_IN_WORDS) == REASONS


def test_days_that_are_not_closed_are_told(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        one.send({"dark": [1, 0]})
        one.clock.travel(2)
        assert ill(one.html()) == {"sealing"}
        one.store.seal(0)
        assert ill(one.html()) == {"merging"}
        one.store.merge(0)
        html = one.html()
        assert ill(html) == {"finalizing"}
        assert checks(html)["finalizing"][0] == "missing for 1 metric"
        maintenance.finalize(one.store, "dark")
        assert ill(one.html()) == set()


def test_a_clock_that_is_behind_is_told(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        one.send({"dark": [1]})
        one.clock.travel(-3)
        html = one.html()
        assert ill(html) == {"clock"}
        assert checks(html)["clock"][0].startswith("2026-11-17; the store's day is wrong, which is 2026-11-20:")


def test_trouble_of_the_store_is_told_without_paths(tmp_path: Path) -> None:
    trouble = {Trouble.STORE: "/secret/place is not the file that was opened", Trouble.SETTINGS: "10.1.2.3:6379 is odd"}
    with pipeline(tmp_path) as one, patch.object(one.store, "_trouble", lambda: trouble):
        html = one.html()
        assert ill(html) == {"store", "durability"}
        assert "the store cannot be read; the log says why" in html
        assert "secret" not in html
        assert "10.1.2.3" not in html


def test_a_store_that_may_lose_reports_is_not_well(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one, patch.object(one.store, "lossy", "appendfsync everysec"):
        assert ill(one.html()) == {"durability"}


def test_what_is_kept_is_told(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        assert "Tallies are kept for ever. Snapshots are kept for ever." in one.look()
        one.clock.travel(40)
        one.store.put(Retention(tallies_days=30, snapshots_days=400))
        maintenance.maintain(one.store, 0)
        seen = one.look()
        assert "Tallies are kept for 30 days after their day. Snapshots are kept for 400 days after" in seen
        assert "Tallies of days before 2026-11-30 were given up" in seen


@pytest.mark.parametrize(
    ("days", "said"),
    [
        (15, None),
        (14, "expires in 14 days, on 2026-12-04"),
        (1, "expires in 1 day, on 2026-11-21"),
        (0, "expired on 2026-11-20; reports that were on their way are taken before 2026-11-27"),
        (-6, "expired on 2026-11-14; reports that were on their way are taken before 2026-11-21"),
        (-7, None),
    ],
)
def test_metrics_that_expire_soon_are_listed(days: int, said: str | None, tmp_path: Path) -> None:
    with pipeline(tmp_path, registry(expires=date(2026, 11, 20) + timedelta(days=days))) as one:
        seen = one.look()
        assert (f"color {said} dark {said}" in seen) == (said is not None)
        assert ("No metric of the registry expires" in seen) == (said is None)


def test_of_many_shards_those_that_lag_are_listed(tmp_path: Path) -> None:
    with pipeline(tmp_path) as one:
        (status,) = one.store.status()
        many = [replace(status, shard=number, written=10, cursor=10, backlog=0) for number in range(40)]
        many[7] = replace(many[7], backlog=3, cursor=7, waiting_s=500.0)
        many[30] = replace(many[30], sealed=status.sealed - timedelta(days=1))
        with patch.object(one.store, "status", lambda: many):
            html = one.html()
        assert [row[:5] for row in table(html, "shards")] == [
            ["all 40", "400", "397", "3", "8 min"],
            ["7", "10", "7", "3", "8 min"],
            ["30", "10", "10", "0", ""],
        ]
        assert "3 uploads wait to be folded; of the shard that has waited longest nothing was folded for 8 min." in html


def test_a_page_of_a_thousand_metrics_is_short(tmp_path: Path) -> None:
    head, _, dark = registry_text(expires=date(2026, 11, 25), epsilon="0.1", reports=1).partition("[metric.color]")
    flag = dark[dark.index("[metric.dark]") :]
    text = head.replace("40.0", "1000.0") + "".join(
        flag.replace("metric.dark", f"metric.{'a' * 50}_{number:04d}") for number in range(1_000)
    )
    with pipeline(tmp_path, Registry.parse(text)) as one:
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
            rows = [(number, one.store.today().isoformat(), 1_000_000 + number, 999_999) for number in range(1, 1_001)]
            db.executemany("INSERT INTO ledger (plan, epoch, accepted, folded) VALUES (?, ?, ?, ?)", rows)
        html = one.html()
        assert len(html.encode()) < 300_000
        assert len(table(html, "rows")) == 100
        assert "and 900 more rows" in html
        assert "and 900 more metrics" in html
        assert "in 1,000 rows of the ledger" in html
