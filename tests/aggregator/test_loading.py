"""A registry that comes while uploads are taken is read by a process with limits."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dither_aggregator import loading
from dither_aggregator.loading import document_of, read_apart
from dither_aggregator.store.plans import Offered
from dither_shared.errors import RegistryError
from dither_shared.registry import Registry
from tests.aggregator.store.test_administering import Hands, running
from tests.shared.test_files import HOSTILE
from tests.support.aggregators import ENVIRONMENT
from tests.support.registries import registry, registry_text
from tests.support.stores import SQLitePlace

SIZE_KB_MAX = 48 * 1024
OWN_PROCESSOR_S = 0.5


@pytest.mark.parametrize("text", [registry_text(), registry_text(kind="text", candidates=("a", "\u20ac")), ""])
def test_it_says_what_reading_it_here_says(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(text, encoding="utf-8")
    if text:
        document = document_of(Registry.parse(text))
        assert read_apart(text) == read_apart(path) == json.loads(json.dumps(document))
        assert Offered.from_document(document) == Offered.of(Registry.parse(text))
        return
    for given, source in ((text, "registry"), (path, str(path))):
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
    with pytest.raises(RegistryError, match="without control characters"):
        read_apart(registry_text(values=("\ud800", "b")))


def test_what_takes_too_long_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "READ_WITHIN_S", 0.001)
    with pytest.raises(RegistryError, match=r"^registry: must be read within 20 seconds and 512 MiB of memory$"):
        read_apart(registry_text())


@pytest.mark.parametrize(("limit", "value"), [("MEMORY_BYTES_MAX", 60 << 20), ("PROCESSOR_S", 1)])
def test_a_process_that_takes_too_much_ends(limit: str, value: int) -> None:
    slow = "" if limit == "MEMORY_BYTES_MAX" else "loading.document_of = lambda registry: [0 for _ in iter(int, 1)];"
    code = (
        f"import sys; from dither_aggregator import loading; loading.{limit} = {value}; {slow} sys.exit(loading.main())"
    )
    text = registry_text().replace("values = [", f"# {'x' * 30_000_000}\nvalues = [") if not slow else registry_text()
    done = subprocess.run(
        [sys.executable, "-c", code], input=text.encode(), capture_output=True, env=ENVIRONMENT, check=False, timeout=60
    )
    assert done.returncode not in (0, 1, loading._REFUSED)
    assert done.stdout == b""


def test_nothing_waits_for_a_registry_that_is_read_and_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, let_go = Event(), Event()

    def slowly(text: str) -> dict[str, Any]:
        begun.set()
        assert let_go.wait(60)
        return read_apart(text)

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
        "[]",
        "[[[",
        "{",
        '{"ids":[' + "[]," * 600_000 + "[]]}",
        '{"ids":[' + '"",' * 600_000 + '""]}',
        '{"ids":[{}]}',
    ]
    with running(SQLitePlace(tmp_path), registry()) as hands:
        assert isinstance(hands, Hands)
        hands.post("registry/load", registry=registry_text())
        Path("/proc/self/clear_refs").write_text("5")
        before, began = size_kb(), time.monotonic()
        for name, text in HOSTILE.items():
            if len(text) < 1_900_000:
                spent = time.process_time()  # by this process, which takes uploads: not by the one that reads
                status, detail = hands.refused("registry/load", {"registry": text})
                assert time.process_time() - spent < OWN_PROCESSOR_S, name
                assert status == 422, name
                assert detail.startswith("registry: "), name
        for body in bodies:
            for path in ("quarantine/drop", "marks/add", "registry/load", "keys/create"):
                assert hands.refused(path, body)[0] == (413 if len(body) > 65_536 and "registry" not in path else 400)
        assert size_kb() - before < SIZE_KB_MAX
        assert time.monotonic() - began < 60
        assert [plan.plan.rev for plan in hands.store.plans("color")] == [1]
