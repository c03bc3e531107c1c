"""The examples for web and task frameworks: each under its own server, workers of which are one device."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from celery import Celery

import dither
from dither_aggregator.ingest.service import Service
from dither_shared.registry import Registry
from tests.support.aggregators import ENVIRONMENT, aggregator
from tests.support.celery_workers import is_idle
from tests.support.examples import NOW, counted, gunicorn, point, shipped
from tests.support.keys import write_key
from tests.support.redis_servers import running_redis
from tests.support.soaking import scaled, thinned
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@dataclass
class Installed:
    """An example, installed by somebody who agrees, and the aggregator that it sends to."""

    program: Path
    registry: Registry
    url: str
    service: Service
    data: Path
    log: Path

    @contextmanager
    def running(self, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command beside the program, until the context ends."""
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.program.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **environment},
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()

    def device(self) -> dither.Telemetry:
        """Start the installation's telemetry once more, as its next start would."""
        key = write_key(self.service.store)
        return dither.start(self.registry, endpoint=self.url, key=key, data_dir=self.data / "telemetry", consent=True)

    def written(self) -> str:
        return self.log.read_text(encoding="utf-8")


@contextmanager
def installed(example: str, program: str, directory: Path) -> Iterator[Installed]:
    copy = shipped(example, directory, NOW)
    registry = Registry.load(copy / "metrics.toml")
    with aggregator(registry, directory / "aggregator") as (url, service):
        point(copy / program, url, write_key(service.store))
        yield Installed(copy / program, registry, url, service, directory / "data", directory / "log")


def test_a_django_site_under_gunicorn_is_one_device(tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = stack.enter_context(installed("django_app", "shop.py", tmp_path))
        served = gunicorn(site.program, site.log, SHOP_DATA=str(site.data), SHOP_TELEMETRY="on", workers=scaled(2, 4))
        master, address = stack.enter_context(served)

        def visit(_: int) -> str:
            return requests.get(address, timeout=20).text

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(visit, range(scaled(12, 40)))) == {"Welcome to the shop.\n"}
        wait_until(
            lambda: counted(site.service) == {"django": 1, "page_time": 1}
        )  # by themselves, by conf.py within a second
        master.terminate()
        assert master.wait(20) == 0
        assert not re.search(r"Traceback|Exception|CRITICAL|WORKER TIMEOUT", site.written())
        with site.device() as device:
            assert device.status().spent == {"django": 2.0, "page_time": 1.0}


@pytest.mark.parametrize("choice", thinned(["", "off"], 0))
def test_a_django_site_whose_owner_did_not_agree_says_nothing(choice: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        site = stack.enter_context(installed("django_app", "shop.py", tmp_path))
        served = gunicorn(site.program, site.log, SHOP_DATA=str(site.data), SHOP_TELEMETRY=choice, workers=1)
        master, address = stack.enter_context(served)
        assert requests.get(address, timeout=20).text == "Welcome to the shop.\n"
        master.terminate()
        assert master.wait(20) == 0
        assert counted(site.service) == {}
        assert not site.data.exists()


def test_a_fastapi_service_sends_what_waits_when_it_stops(tmp_path: Path) -> None:
    with installed("fastapi_app", "convert.py", tmp_path) as service:
        command = ("uvicorn", "--workers", "2", "--port", "0", "convert:app")
        with service.running(*command, CONVERT_DATA=str(service.data), CONVERT_TELEMETRY="on") as process:
            wait_until(lambda: service.written().count("Application startup complete") == 2)
            found = re.search(r"http://127\.0\.0\.1:\d+", service.written())
            assert found

            def convert(number: int) -> list[str]:
                to = ("upper", "title")[number % 2]
                answer = requests.post(f"{found[0]}/convert?to={to}", json=["one two"], timeout=20)
                converted: list[str] = answer.json()
                return converted

            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(convert, range(20))) == [["ONE TWO"], ["One Two"]] * 10
            assert counted(service.service) == {}
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) in (0, -signal.SIGTERM)
        assert counted(service.service) == {"lines": 1, "target": 1}
        assert not re.search(r"Traceback|Exception|Error", service.written())
        with service.device() as device:
            assert device.status().spent == {"lines": 1.0, "target": 1.0}


def test_a_celery_worker_and_its_children_are_one_device(tmp_path: Path) -> None:
    with ExitStack() as stack:
        thumbs = stack.enter_context(installed("celery_app", "tasks.py", tmp_path))
        broker = stack.enter_context(running_redis(tmp_path / "redis")).url
        environment = {"THUMBS_BROKER": broker, "THUMBS_DATA": str(thumbs.data), "THUMBS_TELEMETRY": "on"}
        alone = ("--without-gossip", "--without-mingle")  # no other worker is waited for
        children = ("--concurrency", "2", "--max-tasks-per-child", "4")  # so that one never runs all six
        patient = "import dither.sending.upload_thread\ndither.sending.upload_thread.SEND_WITHIN_S = 1e9\n"
        with thumbs.program.open("a", encoding="utf-8") as code:
            code.write(patient)  # else all of it waits at the end but for one run of some hundred
        command = ("celery", "-A", "tasks", "worker", *children, "--loglevel", "INFO", *alone)
        process = stack.enter_context(thumbs.running(*command, **environment))
        with Celery(broker=broker) as caller:
            for width in (320, 640, -1, 1280, 0, 64):
                caller.send_task("tasks.thumbnail", [width])
            wait_until(
                lambda: thumbs.written().count(" succeeded in ") == 4 and thumbs.written().count(" raised ") == 2, 60
            )
            wait_until(lambda: is_idle(caller))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert len(set(re.findall(r"ForkPoolWorker-\d+\] Task", thumbs.written()))) >= 2
        with thumbs.device() as device:  # its next start sends what waits
            assert device.status().waiting == 2
            assert device.flush(20) == dither.FlushResult(sent=2, waiting=0, detail="")
            assert device.status().spent == {"tasks": 1.0, "thumbnail_time": 1.0}
        assert counted(thumbs.service) == {"tasks": 1, "thumbnail_time": 1}
