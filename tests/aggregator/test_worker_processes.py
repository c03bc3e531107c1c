"""Real API, worker and beat processes on two real Redis: whatever becomes of tasks, the counts are exact."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.aggregators import dither, refused
from tests.support.clocks import DAY_S
from tests.support.http import Connection, upload
from tests.support.machines import Crowd, Machine, Site, end, is_running
from tests.support.nursery import Piped
from tests.support.soaking import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


COMMANDS = ("api", "worker", "beat")
HURRIED: dict[str, object] = {
    "dither_aggregator.commands.beat.LOOK_EVERY_S": 0.3,
    "dither_aggregator.ingest.service.REFRESH_EVERY_S": 0.3,
    "dither_aggregator.workers.tasks.RETRY_MAX_S": 1.0,
    "dither_aggregator.workers.tasks.STOP_WITHIN_S": 0.3,
}
"""So that what happens every few seconds happens in a short test."""


@contextmanager
def paused(process: "subprocess.Popen[Any] | Piped | None") -> Iterator[None]:
    """Let a process do nothing while the block runs."""
    assert process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, settings=HURRIED)
    with made.running():
        yield made


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site where nothing is changed but what a test puts back."""
    made = Site(tmp_path_factory.mktemp("prepared"))
    with made.running():
        yield made


@dataclass
class Calm:
    """A site where nothing goes wrong, and its commands."""

    site: Site
    crowd: Crowd
    api: Machine
    worker: Machine
    beat: Machine


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    """Commands that have nothing to say, and end on SIGINT with their processes."""
    site = Site(tmp_path_factory.mktemp("calm"), settings=HURRIED)
    with site.running(), site.all_machines() as (api, worker, beat):
        yield Calm(site, Crowd(site, api), api, worker, beat)
        children = worker.children()
        for one in (worker, beat, api):
            assert one.stop(signal.SIGINT) == (0, "")
        assert not any(map(is_running, children))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Crowd]]:
    """A site that outlives what tests do to it: at the end its commands end in order, and have said little.

    Its worker's processes are told to end just before their parent is.
    """
    site = Site(tmp_path_factory.mktemp("whole"), settings=HURRIED)
    with site.running(), site.all_machines() as (api, worker, beat):
        yield site, Crowd(site, api)
        for pid in worker.children():
            os.kill(pid, signal.SIGTERM)  # as a signal to the whole group would
        for one in (worker, api, beat):
            code, err = one.stop()
            assert code == 0
            assert "Traceback" not in err
            assert err.count("cannot be used now") < 30  # each process says it once an outage, not at each task


def test_sighup_and_a_signal_to_the_whole_group_end_nobody(calm: Calm) -> None:
    """A SIGHUP to all of dither must not harm processes that need not be told to load again."""
    children = calm.worker.children()
    assert len(children) == 2
    for pid in (calm.api.process.pid, calm.beat.process.pid, calm.worker.process.pid, *children):
        os.kill(pid, signal.SIGHUP)
    for pid in children:
        os.kill(pid, signal.SIGTERM)  # their parent is the one to end them
    calm.crowd.upload(20)
    wait_until(lambda: calm.site.backlog() == 0)
    calm.crowd.check_counted(calm.site)
    assert calm.worker.children() == children


def test_an_upload_is_folded_within_seconds_and_its_day_is_recorded_when_it_is_over(calm: Calm) -> None:
    site = calm.site
    with paused(calm.beat.process):  # it would publish, too
        calm.crowd.upload(1)
        wait_until(lambda: site.backlog() == 0)  # 10 ms when nothing else runs
        calm.crowd.check_counted(site)
        with site.store() as store:
            plan, day = site.registry.metrics["dark"].plan, store.today()
            store.set_clock_offset(DAY_S)
            with site.beat() as beat:
                wait_until(lambda: store.sealed() == day)
                wait_until(lambda: day in store.finals(plan))
                assert beat.stop() == (0, "")
            final = store.finals(plan)[day]
            assert final.digest == store.tally(plan, day).digest
            assert store.snapshot(final.snapshot)


def test_processes_that_have_only_begun_end_with_a_killed_parent(prepared: Site) -> None:
    """Nobody has asked yet for a signal at the parent's end, and each process holds the others' pipes open."""
    begun: list[int] = []
    with prepared.worker(ready=False) as worker:
        try:
            while len(begun) < 2:
                for pid in set(worker.children()) - set(begun):
                    os.kill(pid, signal.SIGSTOP)
                    begun.append(pid)
            worker.process.kill()
            worker.process.wait(60)
            for pid in begun:
                os.kill(pid, signal.SIGCONT)
            wait_until(lambda: not any(map(is_running, begun)))
        finally:
            for pid in filter(is_running, begun):
                end(pid)


def test_a_store_that_is_restarted_is_used_again_by_the_same_processes(whole: tuple[Site, Crowd]) -> None:
    site, crowd = whole
    before = crowd.refused
    with crowd.uploading():
        for _ in range(scaled(2, 20)):
            time.sleep(0.3)
            site.data.kill()
            time.sleep(0.5)
            site.data.start()
    wait_until(lambda: site.backlog() == 0)
    crowd.check_counted(site)
    assert crowd.refused > before


def test_a_broker_that_hangs_is_not_felt_by_uploads(whole: tuple[Site, Crowd]) -> None:
    site, crowd = whole
    with site.api() as api, crowd.at(api):
        crowd.slowest_s = 0
        before = crowd.refused
        crowd.upload(5)
        with paused(site.broker.process):
            crowd.upload(50)
            assert crowd.refused == before
            assert crowd.slowest_s < 5
            assert api.stop()[0] == 0
    wait_until(lambda: site.backlog() == 0)  # beat publishes what this API could not
    crowd.check_counted(site)


def test_while_workers_are_frozen_and_the_broker_is_away_for_ten_minutes_uploads_are_taken_to_the_backlogs_bound(
    site: Site,
) -> None:
    """Ten minutes by the store's clock, which is set. A soak waits them, too, with an upload a second."""
    bound = scaled(40, 1_000)
    with site.api(*site.places, "--backlog-max", bound) as api, site.worker() as worker:
        crowd, readiness = Crowd(site, api), api.said["health"] + "/readyz"

        def ill() -> set[str]:
            answer = requests.get(readiness, timeout=30)
            found = {check["check"] for check in answer.json()["checks"] if not check["ok"]}
            assert answer.status_code == (503 if full else 200)
            return found

        full = False
        crowd.upload(5)
        wait_until(lambda: site.backlog() == 0)
        frozen = [worker.process.pid, *worker.children()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        site.broker.stop()
        crowd.upload(5)
        for _ in range(scaled(0, 600)):
            time.sleep(1)
            crowd.upload(1)
            assert ill() <= {"folding", "work"}
        with site.store() as store:
            store.set_clock_offset(600)
        wait_until(lambda: "folding" in ill(), what="ten minutes without folding being told")
        assert crowd.refused == 0
        while site.backlog() < bound:
            assert ill() <= {"folding", "work"}
            crowd.upload(5)
        assert crowd.refused == 0
        full = True
        wait_until(lambda: requests.get(readiness, timeout=30).status_code == 503, what="the bound being noticed")
        assert "backlog" in ill()
        site.broker.start()
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        crowd.upload(1)  # it is sent until it is taken
        wait_until(lambda: site.backlog() == 0)
    with site.store() as store:
        rows = store.ledger()
    total = sum(crowd.sent)
    assert (sum(row.accepted for row in rows), sum(row.folded for row in rows)) == (total, total)
    assert crowd.refused > 0


def test_a_store_that_may_lose_reports_is_refused_unless_allowed(prepared: Site) -> None:
    with prepared.data.client() as redis:
        redis.config_set("appendfsync", "everysec")
        try:
            for command in ("api", "worker"):
                assert "acknowledged uploads can be lost" in refused(command, *prepared.places).stderr
            with prepared.worker("--allow-lossy-store") as worker:
                assert worker.said["app"] == "example"
        finally:
            redis.config_set("appendfsync", "always")


def test_the_stores_own_redis_is_refused_as_its_broker_under_any_name(prepared: Site) -> None:
    for broker in (prepared.data.url, f"redis://localhost:{prepared.data.port}/5"):
        for command in COMMANDS:
            done = refused(command, "--data", prepared.data.url, "--broker", broker)
            assert "is the store's own Redis" in done.stderr


def test_the_processes_of_an_api_let_no_more_by_than_the_limit(prepared: Site) -> None:
    options = ("--port", 0, "--processes", 2, "--limit-address", "0.01:10")
    with prepared.machine("api", *prepared.places, *options) as api, ExitStack() as opened:
        statuses: Counter[int] = Counter()
        for _ in range(40):
            made = Connection(int(api.said["url"].rsplit(":", 1)[1]))
            opened.callback(made.socket.close)
            made.send(upload(0))
            statuses[made.answer()[0]] += 1
    assert 5 <= statuses[401] <= 10  # without a key; who is limited is not asked for it
    assert statuses[429] == 40 - statuses[401]


def test_a_limit_that_cannot_be_divided_is_refused(prepared: Site) -> None:
    done = refused("api", *prepared.places, "--processes", 64, "--limit-key", "0.001:1")
    assert "a rate this low cannot be divided among 64 processes" in done.stderr


def test_passwords_come_by_the_environment_and_are_told_to_nobody(site: Site) -> None:
    for server in (site.data, site.broker):
        with server.client() as redis:
            redis.config_set("requirepass", "geheim")
    secret = {
        "DITHER_DATA": site.data.url.replace("//", "//:geheim@"),
        "DITHER_BROKER": site.broker.url.replace("//", "//:geheim@"),
    }
    with site.all_machines(secret) as machines:
        Crowd(site, machines[0]).upload(1)
        site.data.kill()
        site.broker.kill()
        for one in machines:
            heard = one.hear("127.0.0.1")
            assert "127.0.0.1" in heard
            assert "geheim" not in heard + one.stop()[1] + str(one.said)


def test_a_broker_that_refuses_the_password_is_named_without_it(prepared: Site) -> None:
    wrong = {"DITHER_DATA": prepared.data.url, "DITHER_BROKER": prepared.broker.url.replace("//", "//:falsch@")}
    with prepared.broker.client() as redis:
        redis.config_set("requirepass", "geheim")
        try:
            with prepared.machine("worker", ready=False, environment=wrong) as worker:
                said = worker.hear()
                assert "cannot be reached" in said
                assert "falsch" not in said + worker.stop()[1]
        finally:
            redis.config_set("requirepass", "")


def test_init_says_what_devices_need_and_never_replaces_a_store(prepared: Site, tmp_path: Path) -> None:
    done = prepared.init()
    assert done.returncode == 2
    assert "there is a store of example already: `dither metrics load REGISTRY`" in done.stderr
    made = dither("init", prepared.registry_path, "--data", tmp_path / "store")
    with prepared.store() as store:
        assert store.shards == 16
        assert [stored.plan.metric for stored in store.plans()] == ["color", "dark"]
    assert "made a store for example: 2 metrics, 1 shards" in made.stdout
    assert dither("init", prepared.registry_path, "--data", tmp_path / "store").returncode == 2
    assert "has one shard" in dither("init", prepared.registry_path, "--data", tmp_path / "s", "--shards", 2).stderr


def test_a_directory_is_served_by_dither_serve(prepared: Site, tmp_path: Path) -> None:
    for command in COMMANDS:
        done = refused(command, "--data", tmp_path, "--broker", prepared.broker.url)
        assert "`dither serve` serves it" in done.stderr
