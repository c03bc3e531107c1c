"""A registry that comes while uploads are taken is read by a process with limits."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from dither_aggregator.operations import registry_process
from dither_aggregator.operations.registry_process import KnownPlans, NoRegistry, document_of, read_apart
from dither_aggregator.store import StoreError
from dither_aggregator.store.documents import Offered
from dither_aggregator.web import reader_process
from dither_aggregator.web.api import administering
from dither_aggregator.web.api.administering import RegistryBody
from dither_aggregator.web.process_messages import ReadAnswer
from dither_aggregator.web.query_parameters import body_parameters
from dither_aggregator.web.reader_process import respond
from dither_shared.errors import RegistryError
from dither_shared.kinds.kind import CANDIDATES_MAX
from dither_shared.registry import Registry
from tests.aggregator.store.test_administering import Hands, running
from tests.benchmarks.attackers import FOREIGN
from tests.shared.test_files import hostile
from tests.support.aggregators import ENVIRONMENT
from tests.support.registries import registry, registry_text
from tests.support.soaking import thinned
from tests.support.stores import SQLitePlace
from tests.support.waiting import wait_until

SIZE_KB_MAX = 48 * 1024
OWN_PROCESSOR_S = 0.5
HELD_S = 0.006
"""Seconds of a processor that the server's own thread takes for a registry of 2 MiB: uploads may wait for all of it."""


def body_of(text: str) -> bytes:
    return json.dumps({"registry": text}, separators=(",", ":")).encode("ascii")


@pytest.mark.parametrize("text", [registry_text(), registry_text(kind="text", candidates=("a", "\u20ac")), ""])
def test_it_says_what_reading_it_here_says(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(text, encoding="utf-8")
    if text:
        document = document_of(Registry.parse(text))
        assert read_apart(body_of(text)) == read_apart(path) == json.loads(json.dumps(document))
        assert Offered.from_document(document) == Offered.of(Registry.parse(text))
        return
    for given, source in ((body_of(text), "registry"), (path, str(path))):
        with pytest.raises(RegistryError) as here:
            Registry.parse(text, source)
        with pytest.raises(RegistryError) as apart:
            read_apart(given)
        assert str(apart.value) == str(here.value)


def test_a_file_beside_a_registry_is_read_and_half_a_character_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "values.txt").write_text("ochre\nteal", encoding="utf-8")
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text().replace('values = ["red", "green", "blue"]', 'values_file = "values.txt"'), "utf-8")
    assert Offered.from_document(read_apart(path)).plans[0].plan.values == ("ochre", "teal", "other")
    with pytest.raises(NoRegistry):
        read_apart(body_of(registry_text(values=("\ud800", "b"))))


def test_what_takes_too_long_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_process, "READ_WITHIN_S", 0.001)
    with pytest.raises(RegistryError, match=r"^registry: must be read within 20 seconds and 512 MiB of memory$"):
        read_apart(body_of(registry_text()))


@pytest.fixture(autouse=True)
def _waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no process begin anew by itself: tests ask which one it is, on busy machines too."""
    monkeypatch.setattr(registry_process, "STARVED_S", registry_process.READ_WITHIN_S)


def test_a_process_that_gets_no_time_begins_anew_with_some_for_this_registry_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_apart(body_of(registry_text()))
    started, begin = list[int](), registry_process.give_way

    def noted(niceness: int, process: int) -> None:
        started.append(niceness)
        begin(niceness, process)

    monkeypatch.setattr(registry_process, "give_way", noted)
    monkeypatch.setattr(registry_process, "STARVED_S", 0.0)
    assert registry_process._forker._process
    first = registry_process._forker._process.pid
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(registry_process, "starves", lambda process: process == first)
    assert read_apart(body_of(registry_text()))["app"] == "example"
    assert started == [registry_process.READING_NICENESS]
    assert read_apart(body_of(registry_text()))["app"] == "example"
    assert started == [registry_process.READING_NICENESS, registry_process.LOADING_NICENESS]


def test_a_server_that_was_started_nice_asks_nobody_to_go_before_it() -> None:
    """Which nobody but root may: a user's server ended by it."""
    code = (
        "import os; from dither_aggregator.operations.registry_process import READING_NICENESS, give_way; os.nice(19); "
        "os.geteuid() or os.setuid(65534); give_way(READING_NICENESS, os.getpid()); print(os.nice(0))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "19\n"


def test_a_process_that_is_slow_though_it_has_a_processor_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read_apart(body_of(registry_text()))
    monkeypatch.setattr(registry_process, "STARVED_S", 0.0)
    monkeypatch.setattr(registry_process, "starves", lambda process: False)
    with patch("subprocess.Popen", side_effect=AssertionError("another one is started")):
        assert read_apart(body_of(registry_text()))["app"] == "example"


@pytest.mark.parametrize(("limit", "value"), thinned([("MEMORY_BYTES_MAX", 60 << 20), ("PROCESSOR_S", 1)], 0))
def test_a_process_that_takes_too_much_ends(limit: str, value: int) -> None:
    slow = (
        ""
        if limit == "MEMORY_BYTES_MAX"
        else "registry_process.document_of = lambda registry: [0 for _ in iter(int, 1)];"
    )
    code = (
        f"import sys; from dither_aggregator.operations import registry_process; registry_process.{limit} = {value}; "
        f"{slow} sys.stdout.buffer.write(registry_process.forked(b'[\"\",null]', sys.stdin.buffer.read()))"
    )
    text = registry_text().replace("values = [", f"# {'x' * 30_000_000}\nvalues = [") if not slow else registry_text()
    done = subprocess.run(
        [sys.executable, "-c", code], input=body_of(text), capture_output=True, env=ENVIRONMENT, check=False, timeout=60
    )
    assert done.stdout == bytes([registry_process._TOO_MUCH])


def test_one_process_is_started_for_all_registries_and_another_where_it_has_ended() -> None:
    read_apart(body_of(registry_text()))
    with patch("subprocess.Popen", side_effect=AssertionError("another one is started")):
        assert read_apart(body_of(registry_text()))["app"] == "example"
    process = registry_process._forker._process
    assert process
    process.kill()
    wait_until(lambda: process.poll() is not None)
    assert read_apart(body_of(registry_text()))["app"] == "example"


def test_a_process_that_cannot_be_started_refuses_no_registry_once_it_can() -> None:
    registry_process._forker.end()
    with patch("subprocess.Popen", side_effect=BlockingIOError), pytest.raises(BlockingIOError):
        read_apart(body_of(registry_text()))
    assert read_apart(body_of(registry_text()))["app"] == "example"


def test_sigusr1_ends_no_process_that_reads_registries() -> None:
    read_apart(body_of(registry_text()))
    process = registry_process._forker._process
    assert process
    process.send_signal(signal.SIGUSR1)
    assert read_apart(body_of(registry_text()))["app"] == "example"
    assert registry_process._forker._process is process


@pytest.mark.parametrize("how", thinned([signal.SIGKILL, signal.SIGTERM], 0))
def test_the_process_ends_with_the_server(how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    code = (
        "import signal, sys; from pathlib import Path; from dither_aggregator.operations import registry_process; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit()); registry_process.STARVED_S = 60; "
        "registry_process.read_apart(Path('metrics.toml')); print(registry_process._forker._process.pid, flush=True); "
        "signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=ENVIRONMENT, cwd=tmp_path, text=True
    ) as server:
        assert server.stdout
        forker = int(server.stdout.readline())
        os.kill(forker, 0)
        server.send_signal(how)
        wait_until(lambda: not Path(f"/proc/{forker}").exists())


NO_OBJECT = "the body must be a JSON object, in UTF-8, of words, numbers and lists of these"


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[Hands]:
    with running(SQLitePlace(tmp_path), registry()) as hands:
        hands.post("registry/load", registry=registry_text())
        yield hands


def test_a_body_without_a_registry_is_refused_in_the_words_of_all_bodies(
    loaded: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies: dict[str | bytes, str] = {
        b'{"registry":"\xff"}': NO_OBJECT,
        '["registry"]': NO_OBJECT,
        '{"registry":[["a"]]}': NO_OBJECT,
        '{"registry":"a"': NO_OBJECT,
        "{}": "registry is needed",
        '{"registry":["a"]}': "registry Not a valid string.",
        '{"registry":0}': "registry Not a valid string.",
        '{"registry":null}': "registry Field may not be null.",
        '{"registry":"a","other":"b"}': "there is no parameter 'other' here, only: registry",
        '{"registry":null,"other":""}': "there is no parameter 'other' here, only: registry",
    }
    assert {body: loaded.refused("registry/load", body) for body in bodies} == {
        body: (400, words) for body, words in bodies.items()
    }

    def here(body: bytes, known: KnownPlans) -> Any:
        return body_parameters(RegistryBody, body)

    monkeypatch.setattr(administering, "read_apart", here)
    assert [loaded.refused("registry/load", body)[1] for body in bodies] == list(bodies.values())


def test_the_process_refuses_what_the_store_would_in_the_same_words(loaded: Hands) -> None:
    for text in (registry_text(values=("cyan", "ochre")), FOREIGN):
        with pytest.raises(StoreError, match=r"with another meaning|to 'another'; give") as error:
            loaded.store.load(Registry.parse(text))
        with patch.object(Offered, "from_document", side_effect=AssertionError("the server reads it")):
            assert loaded.refused("registry/load", {"registry": text}) == (422, str(error.value))


def test_a_registry_takes_little_time_of_the_server_s_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its thread's processor time, with which other programs interfere little, and in the best of three."""
    registry_process._forker.end()
    monkeypatch.setattr(registry_process, "LOADING_NICENESS", 0)  # beside busy programs the other takes a minute
    listed = ", ".join(f'"c{number:06d}"' for number in range(CANDIDATES_MAX))
    spent: list[float] = []

    def timed(*given: Any) -> ReadAnswer:
        began = time.thread_time()
        try:
            return respond(*given)
        finally:
            spent.append(time.thread_time() - began)

    with patch.object(reader_process, "respond", timed), running(SQLitePlace(tmp_path), registry()) as hands:
        for text in ("a = [" + "1," * 1_000_000 + "]", "[t]\n" * 400_000, f"{FOREIGN}candidates = [{listed}]\n"):
            spent.clear()
            while len(spent) < 3 and min(spent, default=1.0) > HELD_S:
                assert hands.refused("registry/load", body_of(text).decode())[0] == 422
            assert min(spent) < HELD_S, spent


def test_nothing_waits_for_a_registry_that_is_read_and_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = Event(), Event()

    def slowly(body: bytes, known: KnownPlans) -> dict[str, Any]:
        begun.set()
        assert let_go.wait(60)
        return read_apart(body, known)

    monkeypatch.setattr("dither_aggregator.web.api.administering.read_apart", slowly)
    with running(SQLitePlace(tmp_path), registry()) as hands, ThreadPoolExecutor(1) as pool:
        assert isinstance(hands, Hands)
        read = pool.submit(hands.post, "registry/load", registry=registry_text())
        try:
            assert begun.wait(60)
            (made,) = hands.post("keys/create", scope="read", label="a")
            assert hands.post("keys/revoke", id=made["id"], wait=False)
            status, detail = hands.refused("registry/load", {"registry": registry_text()})
            assert (status, detail) == (429, "another registry is being read; send the same bytes again later")
        finally:
            let_go.set()
        assert read.result(60) == []


def size_kb() -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def test_hostile_registries_and_bodies_are_refused_in_words_and_grow_the_server_little(tmp_path: Path) -> None:
    bodies = [
        *("[]", "[[[", "{", '{"ids":[' + "[]," * 600_000 + "[]]}", '{"ids":[' + '"",' * 600_000 + '""]}'),
        '{"ids":[{}]}',
    ]
    with running(SQLitePlace(tmp_path), registry()) as hands:
        assert isinstance(hands, Hands)
        hands.post("registry/load", registry=registry_text())
        Path("/proc/self/clear_refs").write_text("5")
        before = size_kb()
        for name, text in hostile().items():
            if len(body_of(text)) < 1_900_000:
                spent = time.process_time()  # by this process, which takes uploads: not by the one that reads
                status, detail = hands.refused("registry/load", {"registry": text})
                assert time.process_time() - spent < OWN_PROCESSOR_S, name
                assert status == 422, name
                assert detail.startswith("registry: "), name
        for body in bodies:
            for path in ("quarantine/drop", "marks/add", "registry/load", "keys/create"):
                assert hands.refused(path, body)[0] == (413 if len(body) > 65_536 and "registry" not in path else 400)
        assert size_kb() - before < SIZE_KB_MAX
        assert [plan.plan.rev for plan in hands.store.plans("color")] == [1]
