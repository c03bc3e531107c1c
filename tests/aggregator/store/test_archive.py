"""A backup's file that no store wrote: it is refused in words, within bounds, whatever is in it."""

import gzip
import hashlib
import json
import random
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dither_aggregator.counting import BadTally, Counts
from dither_aggregator.store import dump
from dither_aggregator.store.document_kinds import LastBackup
from dither_aggregator.store.dump import DocumentsRecord, Record, ShardRecord
from dither_aggregator.store.records import StoreError, pack_counts, plain_counts, unpack_counts
from tests.pinned.files import filled
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.soaking import scaled

GROWTH_KB_MAX = scaled(80, 1_500) * 1024
PROCESSOR_S_MAX = scaled(5, 120)
SMALLER = scaled(32, 1)
"""Bounds are this much smaller: what is held against them takes less time to write, too."""
READER = f"""
import os, resource, sys, time
from pathlib import Path
from dither.cli import main
from dither_aggregator.commands import restore
from dither_aggregator.store import dump as archive
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # code that fails takes no more of the machine
for name in ("LINE_BYTES_MAX", "VALUES_MAX", "HELD_BYTES_MAX"):
    if hasattr(archive, name):
        setattr(archive, name, getattr(archive, name) // {SMALLER})
out = os.fdopen(os.dup(1), "w")
def size():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
main(["restore", "/dev/null", "--data", sys.argv[1]])
before, began = size(), time.process_time()
for number, path in enumerate(sys.argv[2:]):
    ended = main(["restore", path, "--data", f"{{sys.argv[1]}}/{{number}}"])
    print(ended, size() - before, time.process_time() - began, file=out, flush=True)
    before, began = size(), time.process_time()
"""
"""Restores files one after the other; says how that ended, by how many KiB it grew and how long it took."""


def signed(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines of a backup with an end that fits them."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line)
        yield line
    yield json.dumps({"end": {"records": len(lines), "sha256": digest.hexdigest()}}).encode() + b"\n"


def write(path: Path, lines: list[bytes]) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(signed(lines))
    return path


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The lines of a store's backup, without the end."""
    home = tmp_path_factory.mktemp("backup")
    filled("quarantine", home / "data")
    assert dither("backup", home / "made.gz", "--data", home / "data").returncode == 0
    with gzip.open(home / "made.gz") as file:
        return file.readlines()[:-1]


HEAD = b'{"format": "dither backup", "version": 3, "app": "example", "generation": "x"}\n'
BIG = 300_000_000 // SMALLER
SHARD = (
    b'{"shard":{"shard":0,"day":"2026-01-01","sealed":"2026-01-01","cursor":0,"ledger":[],"quarantine":[],'
    b'"entries":["%b"]}}\n'
)
HOSTILE: dict[str, Callable[[], list[bytes]]] = {
    "a line without end": lambda: [b" " * BIG],
    "a text without end": lambda: [HEAD, b'{"marks": "' + b"a" * BIG + b'"}\n'],
    "lists": lambda: [HEAD, b'{"marks":[' + b"[]," * (BIG // 6) + b"[]]}\n"],
    "tables": lambda: [HEAD, b'{"marks":[' + b'{"a":0},' * (BIG // 16) + b"0]}\n"],
    "lists in lists": lambda: [HEAD, b'{"marks":' + b"[" * 100_000 + b"\n"],
    "uploads": lambda: [HEAD, *[SHARD % (b"AAAA" * (BIG // 40))] * 60],
    "plans": lambda: [HEAD, *[b'{"plan":{"question":"' + b"a" * (BIG // 20) + b'"}}\n'] * 120],
    "digits": lambda: [HEAD, b'{"marks":' + b"9" * 1_000_000 + b"}\n"],
    "a list": lambda: [b"[]\n"],
    "half a character": lambda: [HEAD, b'{"marks":{"marks":[{"day":"2026-01-01","text":"\\ud800"}]}}\n'],
    "two kinds": lambda: [HEAD, b'{"marks":{}, "plan":{}}\n'],
}


def test_a_hostile_file_is_refused_in_words_within_bounds(tmp_path: Path, lines: list[bytes]) -> None:
    paths = [write(tmp_path / f"{number}.gz", made()) for number, made in enumerate(HOSTILE.values())]
    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path / "data"), *map(str, paths)],
        capture_output=True, text=True, env=ENVIRONMENT, timeout=280, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert len(told) == len(HOSTILE), done.stderr
    for name, path, (ended, grown_kb, took_s) in zip(HOSTILE, paths, told, strict=True):
        assert ended == "2", name
        assert int(grown_kb) < GROWTH_KB_MAX, name
        assert float(took_s) < PROCESSOR_S_MAX, name
        (said,) = (line for line in done.stderr.splitlines() if str(path) in line)
        assert len(said) < 400, name


def test_any_number_of_records_of_a_shard_is_merged_at_once(tmp_path: Path, lines: list[bytes]) -> None:
    """A file of 9 KB had them merged one by one, for minutes."""
    at = next(place for place, line in enumerate(lines) if line.startswith(b'{"shard"'))
    made = write(tmp_path / "made.gz", [*lines[:at], *[SHARD % b"AAAA"] * 4_000, *lines[at:]])
    began = time.process_time()
    assert dither("restore", made, "--data", tmp_path / "data").returncode == 0
    assert time.process_time() - began < PROCESSOR_S_MAX


def test_short_uploads_count_for_the_memory_that_they_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "HELD_BYTES_MAX", 4 << 20)
    made = write(tmp_path / "made.gz", [HEAD, *[SHARD % b'","'.join([b"AAA="] * 2_000)] * 400])
    kept: list[Record] = []
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match="has more than 4,194,304 bytes of documents and of uploads"):
            kept.extend(dump.read(made))
        assert 0 < tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


VALUES: list[Any] = [
    None,
    -1,
    0,
    1 << 40,
    1 << 70,
    1e300,
    "",
    "x",
    "A" * 50,
    "2026-01-01",
    [],
    [[]],
    {},
    {"a": {}},
    True,
]


def changed(line: bytes, rng: random.Random) -> bytes:
    """Return a line of which one value is another, or is gone."""
    document = json.loads(line)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(document)
    where, key = rng.choice(places or [(document, "x")])
    if rng.random() < 0.2 and key in where and isinstance(where, dict):
        del where[key]
    else:
        where[key] = rng.choice(VALUES)
    return json.dumps(document).encode() + b"\n"


def test_a_changed_record_is_restored_or_refused_in_words(tmp_path: Path, lines: list[bytes]) -> None:
    rng = random.Random(37)
    ended = set()
    for number in range(scaled(30, 4_000)):
        made = list(lines)
        for _ in range(rng.choice([1, 1, 2])):
            place = rng.randrange(1, len(made))
            made[place] = changed(made[place], rng)
        done = dither("restore", write(tmp_path / "made.gz", made), "--data", tmp_path / str(number))
        ended.add(done.returncode)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2), done.stderr
    assert ended == {0, 2}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("identity", "app", 1 << 63),
        ("identity", "generation", {}),
        ("identity", "secret", 3),
        ("retention", "tallies_days", "x"),
        ("keys", "scope", None),
        ("keys", "label", {}),
        ("plans", "question", 1),
        ("plans", "id", "x"),
        ("plans", "candidates", [1]),
        ("plans", "current", 3),
        ("documents", "kind", "rumours"),
        ("documents", "documents", 3),
    ],
)
def test_a_field_of_another_kind_is_refused_in_words(
    tmp_path: Path, lines: list[bytes], kind: str, field: str, value: object
) -> None:
    kept = {"kind": "retention", "documents": [{"tallies_days": 30, "snapshots_days": None}]}
    made = [*map(json.loads, lines), {"documents": kept}]
    of_kinds = {line["documents"]["kind"]: line["documents"]["documents"][0] for line in made if "documents" in line}
    records = {name: record for line in made for name, record in line.items()}
    {**records, **of_kinds}[kind][field] = value
    path = write(tmp_path / "made.gz", [json.dumps(line).encode() + b"\n" for line in made])
    done = dither("restore", path, "--data", tmp_path / "data")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_tally_is_inflated_no_further_than_it_may_be() -> None:
    counts: Counts = np.arange(100, dtype=np.int64)
    packed = pack_counts(counts)
    assert (unpack_counts(packed, 100) == counts).all()
    head, _ = plain_counts(counts)
    bomb = head + zlib.compress(b"\0" * 10_000_000)
    with pytest.raises(BadTally, match="more counts than it says"):
        unpack_counts(bomb, 100)
    with pytest.raises(BadTally, match="cut off"):
        unpack_counts(packed[:-6], 100)


def test_a_long_record_is_written_in_parts_that_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("quarantine", tmp_path / "data")
    whole = dither("backup", tmp_path / "whole.gz", "--data", tmp_path / "data")
    monkeypatch.setattr(dump, "PART_ITEMS", 2)
    monkeypatch.setattr(dump, "PART_BYTES", 64)
    parts = dither("backup", tmp_path / "parts.gz", "--data", tmp_path / "data", "--json")
    assert whole.returncode == parts.returncode == 0
    records = list(dump.read(tmp_path / "parts.gz"))
    shards = [record for record in records if isinstance(record, ShardRecord)]
    assert len(shards) > 2
    assert all(len(record.entries) <= 2 and len(record.ledger) <= 2 for record in shards)
    told: list[list[Record]] = []
    for name in ("whole.gz", "parts.gz"):
        assert dither("restore", tmp_path / name, "--data", tmp_path / f"of-{name}").returncode == 0
        assert (
            dither("backup", tmp_path / f"again-{name}", "--data", tmp_path / f"of-{name}", "--force").returncode == 0
        )
    monkeypatch.undo()
    for name in ("whole.gz", "parts.gz"):
        assert (
            dither("backup", tmp_path / f"again-{name}", "--data", tmp_path / f"of-{name}", "--force").returncode == 0
        )
        read = list(dump.read(tmp_path / f"again-{name}"))[1:]
        told.append([each for each in read if not (isinstance(each, DocumentsRecord) and each.kind is LastBackup)])
    assert told[0] == told[1]
