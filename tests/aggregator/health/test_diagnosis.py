"""`dither doctor` finds what an operator would, says what to do, and changes nothing; beside a running server, too."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from dither.testing import aggregator as loopback
from dither_aggregator.health import diagnosis
from dither_aggregator.health.capacity import days_until_full
from dither_aggregator.store.sqlite import FILE_NAME, schema
from dither_shared.safe_output import is_visible
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem, parse_upload
from tests.pinned.files import FILES, unpack
from tests.support.aggregators import Served, dither, serve, sqlite_store
from tests.support.clocks import Clock
from tests.support.redis_servers import running_redis
from tests.support.registries import registry, registry_text
from tests.support.stores import append, body_of, fold_all, seal_all, store_on

pytestmark = pytest.mark.slow

ASKED = registry()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with a store, some reports of which are folded."""
    directory = tmp_path / "data"
    with sqlite_store(ASKED, directory) as store:
        append(store, body_of(ASKED, {"dark": [1, 0], "color": [1]}))
        fold_all(store)
    return directory


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    with serve(path, tmp_path / "data") as one:
        yield one


def examined(*arguments: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code and the checks by name."""
    done = dither("doctor", *arguments, "--json")
    assert done.stderr == ""
    document = json.loads(done.stdout)
    checks = {check["check"]: check for check in document["checks"]}
    assert document["ok"] == all(check["ok"] for check in checks.values()) == (done.returncode == 0)
    assert all(check["hint"] and check["value"] and check["limit"] for check in checks.values())
    return done.returncode, checks


def ill(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in checks.items() if not check["ok"]}


def test_a_store_that_is_served_is_well(served: Served, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {served.key}", "Content-Type": "application/json"}
    assert requests.post(served.url + PATH, data=body_of(ASKED, {"dark": [1]}), headers=headers, timeout=30).ok
    code, checks = examined("--data", tmp_path / "data", "--health", served.health)
    assert (code, ill(checks)) == (0, set())
    assert {"opening", "versions", "folding", "capacity", "ledger", "files", "permission", "server"} <= checks.keys()
    table = dither("doctor", "--data", tmp_path / "data", "--health", f"{served.health}/readyz").stdout
    assert table.splitlines()[-1] == f"{len(checks)} checks: all is well"
    assert served.stop() == ""


def test_what_is_damaged_is_found_with_what_to_do(data: Path) -> None:
    """Planted: a report leaves the ledger, and the directory is open to all."""
    with closing(sqlite3.connect(data / FILE_NAME)) as db, db:
        db.execute("UPDATE ledger SET folded = folded - 1 WHERE plan = 1")
    data.chmod(0o755)
    code, checks = examined("--data", data)
    assert (code, ill(checks)) == (1, {"ledger", "secrecy"})
    assert checks["ledger"]["value"].startswith("1 row off by 1 reports")
    done = dither("doctor", "--data", data)
    assert done.returncode == 1
    assert "dither ledger shows the rows that do not balance" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("checks: 2 need a look")


def test_a_file_that_is_damaged_is_found(data: Path) -> None:
    path = data / FILE_NAME
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name GLOB 'seen_*'")
        ((size,),) = db.execute("PRAGMA page_size")
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(os.urandom(size))
    code, checks = examined("--data", data)
    assert code == 1
    assert "files" in ill(checks)


@pytest.mark.parametrize(
    ("ids", "free", "days"),
    [
        *(([100], 600, 7), ([100], 700, None), ([100] * 8, 0, None), ([10] * 7 + [100], 100, 2), ([0, 100], 0, 1)),
        ([], 0, None),
    ],
)
def test_days_until_ids_fill_what_is_free_are_those_of_days_as_busy_as_the_busiest(
    ids: list[int], free: int, days: int | None
) -> None:
    """A store's first eight days only add; then one day's ids go when another's come."""
    assert days_until_full(ids, 1, free) == days


@pytest.mark.parametrize(("sent", "well"), [([0] * 200, False), ([0, 1, 2, 3] * 50, True)])
def test_metrics_whose_last_day_honest_devices_do_not_send_are_named(
    sent: list[int], well: bool, tmp_path: Path
) -> None:
    """A value that none of 200 reports names: about one in nine would, whatever people answer."""
    clock = Clock()
    with sqlite_store(ASKED, tmp_path / "data", clock) as store:
        append(store, body_of(ASKED, {"dark": [0, 1] * 100, "color": sent}))
        fold_all(store)
        clock.travel(1)
        seal_all(store)
        day = store.sealed()
    _, checks = examined("--data", tmp_path / "data")
    assert checks["quality"]["ok"] == well
    assert checks["quality"]["value"] == (f"nothing found in 2 tallies of {day}" if well else f"color on {day}")


def test_a_store_that_serve_would_bring_to_this_layout_is_no_finding(tmp_path: Path) -> None:
    unpack(FILES / "store-4-changes.sqlite3.gz", tmp_path / "data", FILE_NAME)
    (tmp_path / "data").chmod(0o700)
    (tmp_path / "data" / FILE_NAME).chmod(0o600)
    code, checks = examined("--data", tmp_path / "data")
    assert (code, ill(checks)) == (0, set())
    assert f"`dither serve` brings it from layout 4 to {schema.VERSION}" in checks["opening"]["value"]
    assert "dither serve brings it from layout 4" in dither("doctor", "--data", tmp_path / "data").stdout
    done = dither("ledger", "--data", tmp_path / "data")
    assert (done.returncode, "brings it to that" in done.stderr) == (2, True)


@pytest.mark.parametrize(("version", "hint"), [(schema.VERSION + 1, "A newer dither"), (3, "An older dither")])
def test_a_store_that_no_serve_of_this_version_takes_is_told_with_its_own_hint(
    data: Path, version: int, hint: str
) -> None:
    with closing(sqlite3.connect(data / FILE_NAME)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    code, checks = examined("--data", data)
    assert (code, ill(checks)) == (1, {"opening"})
    assert f"it has version {version}; this dither reads {schema.VERSION}" in checks["opening"]["value"]
    assert checks["opening"]["hint"].startswith(hint)


def test_where_there_is_no_store_and_no_server_both_are_told(tmp_path: Path) -> None:
    code, checks = examined("--data", tmp_path, "--health", "http://127.0.0.1:1")
    assert code == 1
    assert {"opening", "server"} <= ill(checks)
    assert "holds no store" in checks["opening"]["value"]
    assert checks["server"]["value"] == "no answer (ConnectionError)"


def test_a_server_of_another_kind_is_no_server_of_ours(served: Served, tmp_path: Path) -> None:
    code, checks = examined("--data", tmp_path / "data", "--health", served.url)
    assert (code, ill(checks)) == (1, {"server"})


@pytest.mark.parametrize(
    "reply",
    [
        loopback.Reply(200, b"[" * 60_000),
        loopback.Reply(200, b'{"status": "ready", "checks": [{"ok": false}], "dither": "1", "python": "3"}'),
        loopback.Reply(200, b'{"checks": 7}'),
        loopback.Reply(200, b" " * 200_000 + b"{}"),
        loopback.Reply(302, b"", {"Location": "/readyz"}),
        loopback.Reply(200, b" " * 1_000, drip_s=0.05),
    ],
    ids=["nested", "without words", "of another shape", "too long", "a redirect without end", "drop by drop"],
)
def test_whatever_a_server_answers_is_no_more_than_no_answer(
    reply: loopback.Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "ASK_WITHIN_S", 1.0)
    began = time.monotonic()
    with loopback.Loopback(lambda _: reply) as server:
        (check,) = diagnosis._server(server.url)
        took_s = time.monotonic() - began
    assert check.value.startswith("no answer")
    assert took_s < 10


def test_of_a_servers_checks_no_more_are_shown_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    check = {"ok": False, **dict.fromkeys(("check", "value", "limit", "hint"), "x")}
    document = {"status": "ready", "checks": [check] * 1_000, "dither": "1", "python": "3"}
    monkeypatch.setattr(diagnosis, "_asked", lambda health, path: document)
    assert len(list(diagnosis._server("http://127.0.0.1:1"))) == 2 + diagnosis.SERVERS_CHECKS_MAX


def test_a_servers_refused_origins_are_told_and_are_no_finding(served: Served, tmp_path: Path) -> None:
    origin = {"Origin": "https://app.example", "Content-Type": "text/plain"}
    assert requests.post(served.url + PATH, data=b"{}", headers=origin, timeout=30).status_code == 403
    code, checks = examined("--data", tmp_path / "data", "--health", served.health)
    assert code == 0
    assert (
        checks["server's origins"]["value"] == "1 request refused since the start; in the last day https://app.example"
    )
    assert "`--allow-origin`" in checks["server's origins"]["hint"]


def test_a_servers_wrong_keys_are_counted_and_are_a_finding_where_they_are_most(served: Served, tmp_path: Path) -> None:
    def told() -> tuple[bool, str]:
        code, checks = examined("--data", tmp_path / "data", "--health", served.health)
        assert code == (not checks["server's keys"]["ok"])
        assert "`dither keys list`" in checks["server's keys"]["hint"]
        return checks["server's keys"]["ok"], checks["server's keys"]["value"]

    def send(key: str, body: bytes) -> int:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return requests.post(served.url + PATH, data=body, headers=headers, timeout=30).status_code

    assert told() == (True, "none refused")
    for _ in range(2):
        assert send("dither_write_of_another_store", b"{}") == 401
    assert told() == (False, "2 requests with a key that is not known, 0 uploads taken, since the start")
    for _ in range(2):
        assert send(served.key, body_of(ASKED, {"dark": [1]})) == 202
    assert told() == (True, "2 requests with a key that is not known, 2 uploads taken, since the start")


def test_reports_of_another_registry_are_counted_and_are_a_finding_where_they_are_most(data: Path) -> None:
    """The same metric under another plan: as many as were taken are told, one more is a finding."""
    other = registry(values=("red", "green", "blue", "black", "white"))
    with sqlite_store(ASKED, data.parent / "other") as store:
        append(store, body_of(ASKED, {"color": [1] * 3}))
        for taken in (True, True, True, False):
            refused = parse_upload(body_of(other, {"color": [1]}), store.find_plan)
            assert isinstance(store.append([(refused, b"")])[0], Problem)
            (found,) = (each for each in diagnosis._store(str(data.parent / "other")) if each.what == "refusals")
            assert found.well is taken
    assert found.value == "4 unknown plan of the metric, of 7 reports since yesterday"
    assert "`dither metrics load metrics.toml`" in found.hint


def test_a_servers_words_are_parts_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "\x1b[2J\u202e\n9 checks: all is well" + "x" * 9_999
    check = {"ok": False, **dict.fromkeys(("check", "value", "limit", "hint"), hostile)}
    document = {"status": hostile, "checks": [check], "dither": hostile, "python": hostile}
    monkeypatch.setattr(diagnosis, "_asked", lambda health, path: document)
    checks = list(diagnosis._server("http://127.0.0.1:1"))
    words = [word for check in checks for word in (check.what, check.value, check.limit, check.hint)]
    assert sum(r"\u{1b}[2J\u{202e}\u{a}9 checks" in word for word in words) == 6
    assert all(is_visible(word) and len(word) < 600 for word in words)


def test_a_redis_that_may_lose_reports_and_one_that_is_full_are_told(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server, closing(store_on(server, ASKED)) as store:
        append(store, body_of(ASKED, {"dark": [1, 0]}))
        assert examined("--data", server.url)[0] == 0
        with server.client() as redis:
            used = redis.info()["used_memory"]
            redis.config_set("appendfsync", "everysec")
            redis.config_set("maxmemory", used // 2)
        code, checks = examined("--data", server.url)
        assert (code, ill(checks)) == (1, {"durability", "capacity", "ids"})


@pytest.mark.parametrize("url", ["127.0.0.1:x", "ftp://127.0.0.1", ":8081"])
def test_what_is_no_address_is_refused(url: str, tmp_path: Path) -> None:
    done = dither("doctor", "--data", tmp_path, "--health", url)
    assert done.returncode == 2
    assert "argument --health: must be" in done.stderr
