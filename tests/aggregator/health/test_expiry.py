"""An operator hears of metrics that expire: from the doctor, the log and the first page."""

import json
import signal
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import pytest

from dither_aggregator.health.status import NAMED_MAX, Expiries
from dither_aggregator.operations.administration import Administration
from dither_aggregator.store import SQLiteStore
from dither_shared.registry import Registry, utc_today
from tests.support.aggregators import dither, serve, sqlite_store, start
from tests.support.clocks import Clock
from tests.support.redis_servers import running_redis
from tests.support.registries import registry, registry_text
from tests.support.sites import site_of
from tests.support.stores import store_on
from tests.support.waiting import wait_until

TODAY = date(2026, 11, 20)
SOON, LATER = TODAY + timedelta(days=9), TODAY + timedelta(days=300)
PAST = date(2020, 1, 1)


def expiring(color: date, dark: date) -> str:
    """Return a registry of two metrics with these last days."""
    text = registry_text(expires=color)
    head, _, flag = text.partition("[metric.dark]")
    return f"{head}[metric.dark]{flag.replace(str(color), str(dark))}"


@pytest.mark.parametrize(
    ("color", "dark", "words", "all_over"),
    [
        (TODAY + timedelta(days=61), LATER, "", False),
        (TODAY + timedelta(days=60), LATER, "expires within 60 days: color on 2027-01-19", False),
        (TODAY + timedelta(days=1), LATER, "expires within 60 days: color on 2026-11-21", False),
        (TODAY, LATER, "expired: color on 2026-11-20", False),
        (SOON, PAST, "expired: dark on 2020-01-01; expires within 60 days: color on 2026-11-29", False),
        (TODAY, PAST, "expired: dark on 2020-01-01, color on 2026-11-20", True),
    ],
)
def test_metrics_that_have_expired_or_soon_will_are_named(
    color: date, dark: date, words: str, all_over: bool, tmp_path: Path
) -> None:
    with sqlite_store(Registry.parse(expiring(color, dark)), tmp_path, Clock()) as store:
        found = Expiries.of(store.plans(), store.today())
    assert (found.words, found.all_over) == (words, all_over)


def test_what_was_retired_or_left_the_registry_expires_nobody(tmp_path: Path) -> None:
    with sqlite_store(registry(expires=PAST), tmp_path, Clock()) as store:
        store.load(registry(expires=LATER, rev=2))
        assert Expiries.of(store.plans(), TODAY).words == ""
        store.retire("color", 2)
        store.retire("dark", 2)
        assert not Expiries.of(store.plans(), LATER).all_over


def test_of_many_the_first_are_named(tmp_path: Path) -> None:
    with sqlite_store(registry(expires=PAST), tmp_path, Clock()) as store:
        found = Expiries.of(store.plans() * 8, TODAY)
    assert found.words.count(" on 2020-01-01") == NAMED_MAX
    assert found.words.endswith(" and 6 more")


@pytest.mark.parametrize(("dark", "well"), [(PAST, False), (utc_today() + timedelta(days=300), True)])
def test_the_doctor_finds_a_registry_that_is_over_and_names_one_metric_that_is(
    dark: date, well: bool, tmp_path: Path
) -> None:
    with sqlite_store(Registry.parse(expiring(PAST, dark)), tmp_path / "data"):
        pass
    (tmp_path / "data").chmod(0o700)
    done = dither("doctor", "--data", tmp_path / "data", "--json")
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["expiry"]["ok"]) == (0 if well else 1, well)
    assert checks["expiry"]["value"].startswith("expired: color on 2020-01-01")
    assert all(check["ok"] for name, check in checks.items() if name != "expiry")


def test_loading_a_registry_says_what_expires(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with sqlite_store(registry(expires=PAST), tmp_path, Clock()) as store:
        Administration(store).start_with(registry(expires=PAST))
        Administration(store).load(Registry.parse(expiring(TODAY + timedelta(days=3), LATER)))
        Administration(store).load(registry(expires=LATER))
    assert caplog.messages == [
        "no metric is left that has not expired: devices report nothing more "
        "(expired: color on 2020-01-01, dark on 2020-01-01)",
        "metrics of the registry: expires within 60 days: color on 2026-11-23",
    ]


def dates_in(directory: Path) -> set[date]:
    with closing(SQLiteStore(directory, read_only=True)) as store:
        return {stored.expires for stored in store.plans()}


@pytest.mark.slow
def test_a_server_says_it_when_it_starts_and_when_it_reads_its_registry_again(tmp_path: Path) -> None:
    path, soon = tmp_path / "metrics.toml", utc_today() + timedelta(days=20)
    path.write_text(registry_text(expires=PAST), encoding="utf-8")
    with serve(path, tmp_path / "data") as served:
        path.write_text(registry_text(expires=soon), encoding="utf-8")
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: dates_in(tmp_path / "data") == {soon})
        said = served.stop()
    assert "no metric is left that has not expired" in said
    assert f"expires within 60 days: color on {soon}" in said


@pytest.mark.slow
def test_an_api_says_it_when_it_starts(tmp_path: Path) -> None:
    with running_redis(tmp_path / "redis") as server:
        store_on(server, registry(expires=PAST)).close()
        process = start("api", "--data", server.url, "--port", 0, "--processes", 1, "--json")
        try:
            assert process.stdout
            assert process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
            process.communicate()
    assert said.count("no metric is left that has not expired") == 1


@pytest.mark.parametrize(("expires", "said"), [(PAST, True), (LATER, False)])
def test_the_first_page_says_that_every_metric_has_expired(expires: date, said: bool, tmp_path: Path) -> None:
    with site_of(registry(expires=expires), tmp_path) as one:
        assert ("Every metric has expired" in one.client.get("/").text) == said
