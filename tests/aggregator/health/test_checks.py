"""Monitors are told checks with values, limits and hints, versions, and the metrics, over real servers."""

import json
import math
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dither_aggregator.health import checks
from dither_aggregator.health.capacity import FreeSpace, Trouble
from dither_aggregator.health.checks import CHECKS, Gauge, HealthCheck, HealthFinding, Observed, Teller, told
from dither_aggregator.health.checks import found as a_finding
from dither_aggregator.health.diagnosis import examine
from dither_aggregator.health.status import Audit, Ids
from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest import service as service_module
from dither_aggregator.ingest.service import Service, WholeService
from dither_aggregator.store import StoreUnavailable
from dither_aggregator.store.records import DAY_S, Counted
from dither_aggregator.store.sqlite import FILE_NAME
from dither_aggregator.web.endpoints import answer_health, health_findings
from dither_aggregator.web.http_messages import Peers
from dither_aggregator.web.listeners import Door
from dither_shared.wire import PATH, REASONS
from tests.support.aggregators import operators_app, serve, sqlite_store
from tests.support.clusters import one_machine, several_machines, wait_until
from tests.support.failing import Orders
from tests.support.keys import STRONG
from tests.support.registries import registry, registry_text
from tests.support.stores import answer, append, body_of, fold_all

ASKED = registry()
PAGE = Path(__file__).parents[3] / "aggregator" / "health.md"
ALERTS = PAGE.parents[1] / "deploy" / "monitoring" / "alerts.yaml"
ADDRESS = "127.0.0.9"
OF_SERVER = [check.name for check in CHECKS if Teller.SERVER in check.places]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def promtool(text: str) -> str:
    """Return what Prometheus' own rules find wrong with an exposition. A test that needs them fails without them."""
    path = os.environ.get("PROMTOOL") or shutil.which("promtool")
    assert path, "the tests run promtool: apt-get install prometheus, or set PROMTOOL to the path of one"
    done = subprocess.run([path, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}" or "it failed" * (done.returncode != 0)


def samples(text: str) -> Samples:
    """Return what was exposed, by name and labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@dataclass
class Monitored:
    """A service that is asked as its health's listener asks it."""

    service: Service

    def ask(self, path: str) -> tuple[int, str]:
        answer = answer_health(self.service, {"method": "GET", "path": path})
        return answer.status, answer.content.decode()

    def metrics(self) -> Samples:
        return samples(self.ask("/metrics")[1])

    def checks(self) -> dict[str, HealthFinding]:
        return {finding.what: finding for finding in health_findings(self.service)}


@pytest.fixture
def monitored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitored]:
    for often in ("AUDIT_EVERY_S", "REFRESH_EVERY_S"):
        monkeypatch.setattr(service_module, often, 0.05)
    with sqlite_store(ASKED, tmp_path) as store, Service(store) as service:
        wait_until(lambda: service.audit and service.store_status, "a first look")
        yield Monitored(service)


def again(service: Service) -> None:
    """Wait until the ledger was read from its begin."""
    began = time.monotonic()
    wait_until(lambda: service.audit and service.audit.began > began, "another look at the ledger")


def test_each_check_has_a_value_a_limit_and_a_hint(monitored: Monitored) -> None:
    found = monitored.checks()
    assert list(found) == OF_SERVER
    for check in found.values():
        assert check.well, check
        assert check.value
        assert check.limit
        assert check.hint.endswith((".", "?"))


def test_the_ledger_s_totals_are_shown(monitored: Monitored) -> None:
    store = monitored.service.store
    append(store, body_of(ASKED, {"dark": [1, 0, 1], "color": [1]}))
    fold_all(store)
    append(store, body_of(ASKED, {"dark": [1, 0]}))
    again(monitored.service)
    wait_until(lambda: monitored.service.backlog == 1, "the backlog being seen")
    found = monitored.metrics()
    assert [value(found, f"dither_reports_{name}") for name in ("accepted_total", "folded_total", "pending")] == [
        6,
        4,
        2,
    ]
    assert value(found, "dither_uploads_accepted_total") == 2
    assert value(found, "dither_uploads_folded_total") == 1
    assert value(found, "dither_backlog_uploads") == 1
    assert value(found, "dither_ledger_imbalance_reports") == 0
    assert 0 < value(found, "dither_seal_age_seconds") < 90_000
    (expires,) = {metric.expires for metric in ASKED.metrics.values()}
    assert datetime.fromtimestamp(value(found, "dither_last_expiry_timestamp_seconds"), UTC).date() == expires
    assert value(found, "dither_disk_free_bytes") < value(found, "dither_disk_size_bytes")


def test_an_imbalance_is_told_by_how_much(monitored: Monitored, tmp_path: Path) -> None:
    """Planted: one report too many here and two too few there, which the sum alone would show as one."""
    append(monitored.service.store, body_of(ASKED, {"dark": [1, 0], "color": [1, 1]}))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("UPDATE ledger SET folded = folded + 1 WHERE plan = 1")
        db.execute("UPDATE ledger SET folded = folded - 2 WHERE plan = 2")
    again(monitored.service)
    check = monitored.checks()["ledger"]
    assert not check.well
    assert check.value.startswith("2 rows off by 3 reports, read ")
    assert value(monitored.metrics(), "dither_ledger_imbalance_reports") == 3
    assert value(monitored.metrics(), "dither_check_ok", check="ledger") == 0
    assert monitored.ask("/readyz")[0] == 200  # uploads may come: they are not what is wrong


def test_refused_groups_are_counted_by_reason(monitored: Monitored) -> None:
    old = registry(rev=9)
    answer(monitored.service.store, body_of(old, {"dark": [1, 0, 1]}))
    again(monitored.service)
    found = monitored.metrics()
    assert {reason: value(found, "dither_groups_refused_total", reason=reason) for reason in REASONS} == {
        reason: float(reason == "unknown-plan") for reason in REASONS
    }
    assert value(found, "dither_reports_refused_total", reason="unknown-plan") == 3


def test_little_room_is_told_before_it_is_gone(monitored: Monitored) -> None:
    store_status = monitored.service.store_status
    assert store_status
    for free, size, well in ((10, 100, True), (4, 100, False), (5 << 30, 1 << 40, True), (3 << 30, 1 << 40, False)):
        given = replace(store_status, left=FreeSpace("memory", free, size))
        check = checks._capacity.find(Observed(given))
        assert check.well == well, check


def test_a_ledger_that_was_not_read_for_long_is_told() -> None:
    total, now = Counted(5, 5), time.monotonic()
    early, late = (
        checks._ledger.find(Observed(audit=Audit(total, 0, 0, {}, {}, None, Ids([], 33), 0, now - age)))
        for age in (5.0, 2 * checks.AUDIT_AGE_MAX_S)
    )
    assert early.well
    assert not late.well
    assert late.value == "balances, read 2 h ago"


def test_backups_that_have_stopped_are_told_and_a_store_without_any_is_not(monitored: Monitored) -> None:
    assert (monitored.checks()["backup"].well, monitored.checks()["backup"].value) == (True, "none was made")
    monitored.service.store.backed_up(1_000)
    again(monitored.service)
    assert 0 <= value(monitored.metrics(), "dither_backup_age_seconds") < 60
    audit = monitored.service.audit
    assert audit
    for age, well in ((35.0, True), (37.0, False), (-1.0, False)):
        check = checks._backup.find(Observed(audit=replace(audit, backup_age_s=age * 3_600)))
        assert check.well == well, check


def test_everybody_is_told_within_how_many_days_ids_fill_the_room(monitored: Monitored) -> None:
    """Three ids fit beside the one of today, and one comes a day: the fourth does not."""
    assert value(monitored.metrics(), "dither_ids_full_seconds") == math.inf
    store = monitored.service.store
    answer(store, body_of(registry(), {"dark": [1]}))
    again(monitored.service)
    store_status, audit = monitored.service.store_status, monitored.service.audit
    assert store_status
    assert audit
    few = replace(store_status, left=FreeSpace("memory", 3 * store.id_bytes, 1 << 30))
    for teller, seen in (
        (Teller.SERVER, Observed(few, audit=audit)),
        (Teller.DOCTOR, Observed(few, audit=audit, asked=store)),
        (Teller.PAGE, Observed(few, asked=store)),
    ):
        (check,) = (each for each in told(teller, seen) if each.name == "ids")
        finding = check.find(seen)
        assert (finding.well, finding.value) == (False, "about 0 MiB of ids, full within 4 days")
        assert [gauge.value for gauge in finding.gauges] == [4 * DAY_S]


def test_no_check_names_a_path_or_an_address(monitored: Monitored, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "/secret/place on 10.1.2.3:6379"
    names, kinds = ("writer", "counter", "scheduler", "finalizing of dark"), (Trouble.STORE, Trouble.SETTINGS)
    monkeypatch.setattr(monitored.service, "own_trouble", lambda: dict.fromkeys(names, where))
    monkeypatch.setattr(monitored.service.store, "_trouble", lambda: dict.fromkeys(kinds, where))
    wait_until(lambda: monitored.service.store_trouble, "the watcher seeing it")
    found = monitored.checks()
    assert {what for what, check in found.items() if not check.well} == {
        *("writing", "work", "store", "durability"),
    }
    for path in ("/readyz", "/metrics"):
        text = monitored.ask(path)[1]
        assert "secret" not in text
        assert "10.1.2.3" not in text


def test_a_store_that_is_away_is_told_beside_what_was_last_read(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("redis at 10.1.2.3:6379/0 cannot be used now")

    store = monitored.service.store
    append(store, body_of(ASKED, {"dark": [1, 0]}))
    again(monitored.service)
    for method in ("status", "shard_ledger", "trouble", "left"):
        monkeypatch.setattr(store, method, away)
    wait_until(lambda: monitored.service.store_trouble, "the watcher seeing it")
    status, ready = monitored.ask("/readyz")
    assert status == 503
    assert "the store cannot be read; the log says why" in ready
    found = monitored.metrics()
    assert value(found, "dither_reports_accepted_total") == 2
    assert value(found, "dither_ready") == value(found, "dither_check_ok", check="store") == 0
    wait_until(lambda: value(monitored.metrics(), "dither_status_age_seconds") > 2, "its age being told")


READY_WITH = (Trouble.FOLDING, Trouble.AWAY)


@pytest.mark.parametrize("kind", [*READY_WITH, "tasks", "counter", "scheduler", "finalizing", "finalizing of dark"])
def test_a_server_that_stores_uploads_is_ready_whatever_else_waits(
    kind: str, monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer that sent nothing more would make a broker that is away an outage."""
    monkeypatch.setattr(monitored.service, "trouble", lambda: {kind: "it is not well"})
    assert monitored.ask("/readyz")[0] == 200
    assert value(monitored.metrics(), "dither_ready") == 1


@pytest.mark.parametrize("kind", ["writer", "watcher", *(kind for kind in Trouble if kind not in READY_WITH)])
def test_a_server_that_would_not_store_an_upload_under_a_right_day_is_not_ready(
    kind: str, monitored: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitored.service, "trouble", lambda: {kind: "it is not well"})
    status, text = monitored.ask("/readyz")
    assert (status, list(json.loads(text)["trouble"])) == (503, [kind])
    assert value(monitored.metrics(), "dither_ready") == 0


def test_versions_are_told_and_no_names(monitored: Monitored) -> None:
    status, text = monitored.ask("/version")
    assert status == 200
    assert re.fullmatch(r'\{"dither": "[\w.]+", "python": "3\.\d+\.\d+", "store": "SQLite", "layout": "\d+"\}\n', text)


def test_a_service_that_could_not_look_yet_answers(tmp_path: Path) -> None:
    with sqlite_store(ASKED, tmp_path) as store:
        service = WholeService(store)  # its threads do not run
        one = Monitored(service)
        assert one.ask("/readyz")[0] == 503
        assert not one.checks()["work"].well
        assert value(one.metrics(), "dither_ready") == 0


def test_prometheus_finds_nothing_to_mend(monitored: Monitored) -> None:
    process_counters.limit_hit("disk")
    text = monitored.ask("/metrics")[1]
    assert promtool(text) == ""
    names = {family.name for family in text_string_to_metric_families(text)}
    assert all(name.startswith("dither_") for name in names)
    assert len(text.splitlines()) < 200


def test_promtool_finds_what_is_wrong() -> None:
    found = promtool("# HELP dither_things Things.\n# TYPE dither_things counter\ndither_things 1\n")
    assert 'counter metrics should have "_total" suffix' in found


def test_nobody_adds_a_series() -> None:
    with pytest.raises(KeyError):
        process_counters.limit_hit("sent by somebody")
    with pytest.raises(KeyError):
        process_counters.request_refused("sent by somebody")


def test_a_limit_that_is_hit_is_counted(monitored: Monitored) -> None:
    def hit() -> float:
        return value(monitored.metrics(), "dither_limits_hit_total", limit="connections")

    before, door = hit(), Door(connections=4, body_bytes=100)
    for _ in range(3):
        assert door.enter(Waiter())
    assert hit() == before
    assert door.enter(Waiter())  # in the place of another one of its address
    assert hit() == before + 1


class Waiter:
    """A connection that waits for its client."""

    peers: Peers = (ADDRESS,)
    buffered = 0

    def displace(self) -> None:
        pass


# Names.


def asked_as(health: str, *hosts: str, version: str = "1.1") -> int:
    """Ask for health under these names; return the status."""
    address = urlsplit(health)
    lines = [f"GET /livez HTTP/{version}", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        return int(connection.recv(65_536).split()[1])


def test_health_is_told_under_names_that_are_allowed_to_addresses_and_to_who_says_no_name(tmp_path: Path) -> None:
    """A browser says the name that its page came from, which may lead here; a monitor may say none."""
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    (tmp_path / "read.key").write_text(STRONG)
    options = ("--port", 0, "--allow-host", "api.example", "--read-key-file", tmp_path / "read.key")
    with serve(tmp_path / "metrics.toml", tmp_path / "data", *options) as one:
        port = urlsplit(one.health).port
        for names in ("localhost", "LOCALHOST.", "127.0.0.1", "10.1.2.3", "[::1]", "api.example", "API.example."):
            for host in (names, f"{names}:{port}"):
                assert asked_as(one.health, host) == 200, host
        for name in (
            *("attacker.example", "127.0.0.1.nip.io", "localhost.attacker.example", "api.example.org", "", "\xe9"),
        ):
            for host in (name, f"{name}:{port}"):
                assert asked_as(one.health, host) == 421, host
        assert asked_as(one.health, version="1.0") == 200  # as a load balancer asks
        assert asked_as(one.health, "localhost", "attacker.example") == 400
        for path in ("/readyz", "/version", "/metrics"):
            answer = requests.get(one.health + path, headers={"Host": "attacker.example"}, timeout=30)
            assert (answer.status_code, "store" in answer.text) == (421, False)


# A check is one object.


def test_a_check_from_outside_is_told_everywhere(
    monitored: Monitored, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toy = HealthCheck("toys", "all in the box", "Run `dither tidy`.", alerts=("DitherToys",))
    gauge = Gauge("dither_toys_scattered", "Toys that are not in the box.", 3)
    monkeypatch.setitem(CHECKS, toy, lambda seen: a_finding("3 toys lie about", False, [gauge]))
    (ready,) = (one for one in json.loads(monitored.ask("/readyz")[1])["checks"] if one["check"] == "toys")
    assert ready == {
        "check": "toys",
        "value": "3 toys lie about",
        "limit": "all in the box",
        "ok": False,
        "hint": "Run `dither tidy`.",
    }
    found = monitored.metrics()
    assert (value(found, "dither_check_ok", check="toys"), value(found, "dither_toys_scattered")) == (0, 3)
    html = operators_app(monitored.service.store).test_client().get("/pipeline").text
    assert "<td>3 toys lie about</td><td>all in the box</td><td>look here</td>" in html
    assert "<strong>toys:</strong> Run <code>dither tidy</code>." in html
    assert [one.value for one in examine(str(tmp_path), None) if one.what == "toys"] == ["3 toys lie about"]


def test_every_trouble_of_a_store_has_its_check() -> None:
    told = [check.trouble for check in CHECKS if check.trouble]
    assert sorted(told) == sorted(Trouble)
    for trouble in Trouble:
        (check,) = (check for check in CHECKS if check.trouble == trouble)
        if Teller.SERVER in check.unread:
            assert not check.find(Observed(trouble={trouble: "it is not"})).well


def test_each_alert_about_a_number_of_a_check_is_named_by_it(monitored: Monitored) -> None:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    monitored.service.store.backed_up(1_000)
    again(monitored.service)
    asked = {rule["alert"]: set(re.findall(r"dither_\w+", rule["expr"])) for rule in group["rules"]}
    for check in CHECKS:
        if Teller.SERVER in check.places:
            gauges = {gauge.name for gauge in monitored.checks()[check.name].gauges}
            assert set(check.alerts) == {name for name, names in asked.items() if names & gauges}, check.name


# The page.


def page_names(heading: str) -> list[str]:
    """Return what the first columns of the tables beneath a heading of the page name."""
    part = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?`) \|", part, re.MULTILINE)
    return [name for cell in cells for name in re.findall("`([^`]+)`", cell)]


def test_the_page_has_every_metric_and_every_limit(monitored: Monitored) -> None:
    service = monitored.service
    service.store.backed_up(1_000)
    again(service)
    assert service.store_status
    families = [*text_string_to_metric_families(monitored.ask("/metrics")[1])]
    service.store_status = replace(service.store_status, left=FreeSpace("memory", 1, 1))
    families += text_string_to_metric_families(monitored.ask("/metrics")[1])
    shown = {family.name + "_total" * (family.type == "counter") for family in families}
    named = page_names("Metrics")
    assert len(named) == len(set(named))
    assert set(named) == shown | set(process_counters.LIMITS)
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{limit}` | {what} |" in page for limit, what in process_counters.LIMITS.items())
    assert f"`reason` is one of {', '.join(REASONS)};" in page


def test_the_page_has_every_check(monitored: Monitored, tmp_path: Path) -> None:
    named = page_names("Checks")
    assert named[: len(OF_SERVER)] == OF_SERVER
    told = {check.what for check in examine(str(tmp_path), "http://127.0.0.1:1")} - set(OF_SERVER)
    assert set(named[len(OF_SERVER) :]) == {*told, "reading", "server's version"}


def test_the_page_has_the_limits_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert checks.LAG_MAX_S == 120
    assert "within 2 minutes" in page
    assert f"at most {checks.BACKLOG_MAX:,} uploads" in page
    assert f"over for {(DAY_S + checks.SEAL_GRACE_S) / 3_600:.0f} hours at most" in page
    assert (checks.FREE_SHARE, checks.FREE_BYTES) == (1 / 20, 4 << 30)
    assert "a twentieth of the disk" in page
    assert "or 4 GiB" in page
    assert checks.BACKUP_AGE_MAX_S == 36 * 3_600
    assert "at most 36 hours old" in page
    assert checks.AUDIT_AGE_MAX_S == 3_600
    assert "read within the hour" in page


# Real servers.


@pytest.mark.slow
def test_several_processes_count_together_and_one_that_is_replaced_goes_on(tmp_path: Path) -> None:
    often = Orders(tmp_path / "faults", settings={"dither_aggregator.ingest.service.AUDIT_EVERY_S": 0.5})
    with several_machines(tmp_path, registry_text(), often, processes=2, workers=0, beats=0) as cluster:
        api, (url,), (health,), key = cluster["api-0"], cluster.urls, cluster.health, cluster.key

        def send(body: bytes) -> int:  # each on a connection of its own, so that every process has some
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            return requests.post(url + PATH, data=body, headers=headers, timeout=30).status_code

        def seen() -> Samples:
            return samples(requests.get(f"{health}/metrics", timeout=30).text)

        def all_seen(name: str, wanted: float) -> Callable[[], bool]:
            return lambda: all(seen().get((name, ())) == wanted for _ in range(6))

        bodies = [body_of(ASKED, {"dark": [1]}) for _ in range(30)]
        assert {send(body) for body in bodies * 2} == {202}
        assert {send(b"{}") for _ in range(9)} == {400}
        before = seen()
        assert value(before, "dither_uploads_duplicate_total") == 30
        assert value(before, "dither_requests_refused_total", problem="malformed") == 9
        assert 1 <= value(before, "dither_commit_duration_seconds_count") <= 60
        wait_until(all_seen("dither_reports_accepted_total", 30), "the ledger being read by each process")
        for pid in api.children():
            subprocess.run(["kill", "-9", str(pid)], check=True)
        wait_until(lambda: _answers(health), "the processes being replaced")
        assert value(seen(), "dither_uploads_duplicate_total") == 30
        assert value(seen(), "dither_commit_duration_seconds_count") == value(
            before, "dither_commit_duration_seconds_count"
        )
        wait_until(all_seen("dither_reports_accepted_total", 30), "the ledger being read again")
        assert promtool(requests.get(f"{health}/metrics", timeout=30).text) == ""


def _answers(health: str) -> bool:
    try:
        return all(requests.get(f"{health}/readyz", timeout=5).status_code == 200 for _ in range(6))
    except requests.RequestException:
        return False


@pytest.mark.slow
def test_uploads_come_to_a_server_whose_workers_hang_and_whose_broker_is_away(tmp_path: Path) -> None:
    """Its lag is told at once, for two minutes are made none, until the backlog is as large as it may be."""
    soon = Orders(tmp_path / "faults", settings={"dither_aggregator.ingest.service.LAG_MAX_S": -1.0})
    with several_machines(tmp_path, registry_text(), soon, workers=1, beats=0) as cluster:
        cluster.servers["broker"].kill()
        for pid in cluster["worker-0"].group():
            os.kill(pid, signal.SIGSTOP)
        headers = {"Authorization": f"Bearer {cluster.key}", "Content-Type": "application/json"}
        for _ in range(10):
            body = body_of(ASKED, {"dark": [1]})
            assert requests.post(cluster.urls[0] + PATH, data=body, headers=headers, timeout=30).status_code == 202
        wait_until(lambda: cluster.ready().json()["backlog"] == 10, "the backlog being seen")
        wait_until(
            lambda: not {one["check"]: one for one in cluster.ready().json()["checks"]}["folding"]["ok"], "the lag"
        )
        assert cluster.ready().status_code == 200


@pytest.mark.slow
def test_a_restart_loses_no_total(tmp_path: Path) -> None:
    with one_machine(tmp_path, registry_text()) as cluster:
        headers = {"Authorization": f"Bearer {cluster.key}", "Content-Type": "application/json"}
        body = body_of(ASKED, {"dark": [1, 0]})
        assert requests.post(cluster.urls[0] + PATH, data=body, headers=headers, timeout=30).status_code == 202
        cluster.restart_store()

        def accepted() -> float:
            found = samples(requests.get(f"{cluster.health[0]}/metrics", timeout=30).text)
            return found.get(("dither_reports_accepted_total", ()), 0)

        wait_until(lambda: accepted() == 2, "the ledger being read")
