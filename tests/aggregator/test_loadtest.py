"""`dither loadtest` measures a server of one's own, and leaves others alone."""

import asyncio
import json
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from dither.cli import main
from dither_aggregator.commands.loadtest import DAY_S, PEAK
from dither_shared.wire import PATH
from tests.support.aggregators import Served, dither, serve, start
from tests.support.certificates import certificate
from tests.support.clusters import wait_until
from tests.support.registries import registry, registry_text
from tests.support.stores import body_of

pytestmark = pytest.mark.slow


class Aim:
    """A server, and the load test's arguments for it, with files of this test."""

    def __init__(self, served: Served, data: Path, directory: Path) -> None:
        self.served, self.data = served, data
        self.key_file, self.metrics = directory / "write.key", directory / "metrics.toml"
        self.key_file.write_text(f"{served.key}\n")
        self.metrics.write_text(registry_text(), encoding="utf-8")

    def arguments(self, *more: object) -> tuple[object, ...]:
        return (self.served.url, "--key-file", self.key_file, "--metrics", self.metrics, "--json", *more)

    def run(self, *more: object) -> tuple[int, dict[str, Any], str]:
        done = dither("loadtest", *self.arguments(*more))
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def ledger(self) -> dict[str, Any]:
        total: dict[str, Any] = json.loads(dither("ledger", "--data", self.data, "--json").stdout)
        assert total["balanced"]
        return total


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server that tests share, and its data: the first of them find it empty, the last find it ended."""
    home = tmp_path_factory.mktemp("running")
    (home / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    with serve(home / "metrics.toml", home / "data") as served:
        yield served, home / "data"


@pytest.fixture
def tested(running: tuple[Served, Path], tmp_path: Path) -> Aim:
    return Aim(*running, tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.key_file.write_text("wrong"), "does not know the key in --key-file"),
        (lambda one: one.metrics.write_text(registry_text(rev=7)), "does not take all of --metrics (unknown-plan)"),
        (lambda one: one.metrics.write_text(registry_text(app="other")), "takes reports of 'example'"),
    ],
    ids=["key", "metrics", "app"],
)
def test_what_cannot_be_measured_is_said_before(change: Any, said: str, tested: Aim) -> None:
    change(tested)
    check_refused(said, tested)


def check_refused(said: str, tested: Aim) -> None:
    code, _, err = tested.run("--devices", 5)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


def test_what_it_measures_is_what_the_store_counts(tested: Aim) -> None:
    code, told, said = tested.run("--seconds", 1, "--connections", 8)
    assert code == 0, said
    assert told["statuses"] == {"202": told["accepted"]}
    assert told["uploads"] == told["accepted"] >= 8  # one for each connection
    assert told["reports"] == 2 * told["accepted"]  # of each device one of each metric
    assert tested.ledger()["accepted"] == told["reports"] + 2  # and the first upload, which only tries
    assert 0 < told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]
    assert told["devices_a_day"] == pytest.approx(told["uploads_per_s"] * DAY_S / PEAK, rel=0.01)
    assert "uploads answered" in said


def test_so_many_devices_and_no_more(tested: Aim) -> None:
    before = tested.ledger()["accepted"]
    code, told, _ = tested.run("--devices", 30, "--beside-others")
    assert (code, told["accepted"]) == (0, 30)
    assert tested.ledger()["accepted"] == before + 2 * 31
    words = [word for word in tested.arguments("--devices", 5, "--beside-others") if word != "--json"]
    done = dither("loadtest", *words)
    assert done.returncode == 0
    assert "5 uploads, 5 accepted with 10 reports" in done.stdout


def test_a_store_with_reports_is_left_alone(tested: Aim) -> None:
    headers = {"Authorization": f"Bearer {tested.served.key}", "Content-Type": "application/json"}
    body = body_of(registry(), {"dark": [1]})
    before = tested.ledger()["accepted"]
    assert requests.post(tested.served.url + PATH, data=body, headers=headers, timeout=30).status_code == 202
    code, _, said = tested.run("--devices", 5)
    assert code == 2
    assert "the store has reports already" in said
    assert tested.ledger()["accepted"] == before + 1
    assert tested.run("--devices", 5, "--beside-others")[0] == 0


@contextmanager
def behind_tls(url: str, context: ssl.SSLContext) -> Iterator[str]:
    """Stand before a server as a proxy with TLS does; yield the address."""
    to, loop = urlsplit(url), asyncio.new_event_loop()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while data := await reader.read(65_536):
                writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(to.hostname, to.port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    server = loop.run_until_complete(asyncio.start_server(relay, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(server.close)
        wait_until(lambda: not asyncio.run_coroutine_threadsafe(_others(), loop).result(20), "every connection's end")
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _others() -> list[object]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_it_goes_through_tls_to_a_certificate_that_is_trusted(tested: Aim, tmp_path: Path) -> None:
    shown = certificate(tmp_path, "127.0.0.1")
    with behind_tls(tested.served.url, shown.server_context()) as url:
        arguments = (url, *tested.arguments("--devices", 40, "--beside-others")[1:])
        before = tested.ledger()["accepted"]
        trusting = start("loadtest", *arguments, SSL_CERT_FILE=str(shown.authority))
        out, err = trusting.communicate(timeout=60)
        assert trusting.returncode == 0, err
        assert json.loads(out)["statuses"] == {"202": 40}
        done = dither("loadtest", *arguments)
        assert done.returncode == 2
        assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    assert tested.ledger()["accepted"] == before + 2 * 41


def test_ctrl_c_ends_it_with_what_was_measured(tested: Aim) -> None:
    before = tested.ledger()["accepted"]
    process = start("loadtest", *tested.arguments("--seconds", 60, "--beside-others"))
    assert process.stderr
    while "uploads answered" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    told = json.loads(out)
    assert told["uploads"] == told["accepted"]
    assert tested.ledger()["accepted"] == before + told["reports"] + 2


def test_a_server_that_ends_is_told(tested: Aim) -> None:
    process = start("loadtest", *tested.arguments("--seconds", 60, "--beside-others"))
    assert process.stderr
    while "uploads answered" not in process.stderr.readline():
        assert process.poll() is None
    tested.served.process.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "the server did not last" in err
    assert "Traceback" not in err


def test_a_server_that_is_not_there_is_told(tested: Aim) -> None:
    tested.served.process.kill()
    tested.served.process.wait(30)
    check_refused("does not answer as a dither does ([Errno 111] Connection refused)", tested)


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("--beyond-loopback",),
        ("--yes-i-own", "dither.example.org"),
        ("--beyond-loopback", "--yes-i-own", "other.example.org"),
    ],
)
def test_another_machine_is_left_alone_unless_told_twice(
    given: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--key-file", str(tmp_path / "key"), "--metrics", str(tmp_path / "metrics.toml"))
    assert main(["loadtest", "https://dither.example.org", *files, *given]) == 2
    assert "--beyond-loopback --yes-i-own dither.example.org" in capsys.readouterr().err
    assert (
        main(["loadtest", "https://dither.invalid", *files, "--beyond-loopback", "--yes-i-own", "dither.invalid"]) == 2
    )
    assert "No such file or directory" in capsys.readouterr().err  # the key's: it went on


@pytest.mark.parametrize("given", [("--seconds", "601"), ("--connections", "257"), ("--devices", "0")])
def test_it_is_bounded(given: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["loadtest", "http://127.0.0.1:1", "--key-file", str(tmp_path), "--metrics", str(tmp_path), *given])
    assert ended.value.code == 2
    assert "must be a number from 1 to" in capsys.readouterr().err
