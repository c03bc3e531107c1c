"""An operator's work on a store: look for damage, keep and drop, back up, move, change the registry."""

import gzip
import json
import os
import random
import signal
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
import requests

from dither_aggregator.operations import maintenance
from dither_aggregator.store import Receipt, SQLiteStore
from dither_aggregator.store.document_kinds import Retention
from dither_aggregator.store.invariants import check
from dither_aggregator.store.sqlite import FILE_NAME
from dither_shared.registry import Registry
from dither_shared.wire import encode_upload, new_upload_id
from dither_shared.wire.reading import Problem, parse_upload
from tests.support.aggregators import dither, serve, sqlite_store
from tests.support.clocks import Clock
from tests.support.registries import registry, registry_text
from tests.support.waiting import wait_until

ASKED = registry(expires=date(2027, 2, 28))
DARK = ASKED.metrics["dark"].plan
COLOR = ASKED.metrics["color"].plan


def body_of(reports: dict[str, list[int]], asked: Registry = ASKED) -> bytes:
    groups = [(name, asked.metrics[name].plan.digest, values) for name, values in reports.items()]
    return encode_upload(new_upload_id(random.getrandbits), groups)


def send(store: SQLiteStore, body: bytes) -> Receipt | Problem:
    return store.append([(parse_upload(body, store.find_plan), body)])[0]


def filled(directory: Path, clock: Clock | None = None) -> None:
    """Make a store with a recorded day of two folds, a quarantined group and a pending upload."""
    clock = clock or Clock()
    with sqlite_store(ASKED, directory, clock) as store:
        for _ in range(2):
            send(store, body_of({"color": [0, 1, 2], "dark": [1, 0]}))
            store.fold_all(0)
        clock.travel(1)
        store.seal(0)
        store.merge(0)
        for metric in maintenance.unfinalized(store):
            maintenance.finalize(store, metric)
        send(store, body_of({"dark": [1]}))
        with closing(sqlite3.connect(directory / FILE_NAME)) as db, db:
            db.execute("UPDATE log SET entry = CAST(substr(entry, 1, length(entry) - 1) || x'07' AS BLOB)")
        store.fold_all(0)
        send(store, body_of({"color": [3], "dark": [0]}))


def test_a_sound_store_has_no_findings(tmp_path: Path) -> None:
    filled(tmp_path)
    done = dither("fsck", "--data", tmp_path)
    assert (done.returncode, done.stdout) == (0, "the store of example is as it must be\n")
    assert json.loads(dither("fsck", "--data", tmp_path, "--json").stdout)["findings"] == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("UPDATE ledger SET accepted = accepted + 1 WHERE plan = 1", "5 accepted|7 accepted|2 accepted"),
        ("UPDATE ledger SET folded = folded - 1, accepted = accepted - 1 WHERE folded > 0", "the ledger says"),
        ("UPDATE ledger SET folded = -1 WHERE folded = 0", "negative number"),
        ("DELETE FROM log", "are not"),
        ("DELETE FROM tally WHERE plan = 1", "there is none, the ledger says 6 reports"),
        ("UPDATE tally SET n = n + 1 WHERE plan = 1", "it holds 7 reports, the ledger says 6"),
        (
            "INSERT INTO segment SELECT plan, epoch, 1, 2, 0, counts FROM tally",
            "a segment goes from 1 to 2, behind one",
        ),
        (
            "INSERT INTO segment SELECT plan, epoch, 2, 3, 0, counts FROM tally",
            "are not one segment each, of one range",
        ),
        ("UPDATE tally SET low = 1 WHERE plan = 1", "2026-11-20 is final, and its tallies are not one segment each"),
        ("UPDATE cursor SET seq = 1", "a segment ends at 2, beyond the cursor 1"),
        ("UPDATE tally SET counts = x'00'", "cannot be read"),
        ("DELETE FROM quarantine", "0 reports are in quarantine, 1 should be"),
        ("UPDATE log SET entry = x'00'", "is damaged"),
        (
            "UPDATE log SET entry = CAST(substr(entry, 1, 4) || x'63' || substr(entry, 6) AS BLOB)",
            "which the store does not have",
        ),
        ("UPDATE log SET entry = CAST(x'01' || substr(entry, 2) AS BLOB)", "which is sealed"),
        ("UPDATE final SET digest = 'no' WHERE plan = 1", "the tally is not the one that was recorded"),
        ("UPDATE snapshot SET content = x'00'", "is not what it was"),
        ("UPDATE state SET value = '2026-11-25' WHERE key = 'sealed'", "it has sealed 2026-11-25"),
        ("UPDATE state SET value = '2026-11-18' WHERE key = 'sealed'", "only 2026-11-18 is sealed"),
    ],
)
def test_every_damage_is_found(tmp_path: Path, damage: str, finding: str) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute(damage)
    with closing(SQLiteStore(tmp_path, read_only=True)) as store:
        found = "\n".join(check(store))
    assert any(part in found for part in finding.split("|")), found


def test_counts_that_so_many_reports_cannot_have_are_found(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("UPDATE tally SET n = 6 WHERE plan = 2")
        db.execute("UPDATE ledger SET folded = 6, accepted = 6 WHERE plan = 2 AND folded = 4")
    with closing(SQLiteStore(tmp_path, read_only=True)) as store:
        assert "its cells have 4 reports in place of 6" in "\n".join(check(store))


def test_the_quarantine_is_listed_shown_replayed_and_dropped(tmp_path: Path) -> None:
    filled(tmp_path)
    listed = json.loads(dither("quarantine", "list", "--data", tmp_path, "--json").stdout)["quarantined"]
    assert [(item["id"], item["metric"], item["reports"]) for item in listed] == [("0-1", "dark", 1)]
    assert "beyond" in listed[0]["reason"]
    assert "0-1" in dither("quarantine", "list", "--data", tmp_path).stdout
    assert json.loads(dither("quarantine", "show", "0-1", "--data", tmp_path, "--json").stdout)["packed"] == "07"
    assert dither("quarantine", "show", "0-2", "--data", tmp_path).returncode == 2
    assert dither("quarantine", "replay", "0-1", "--data", tmp_path).stdout == "replay: 1 of 1\n"
    assert dither("quarantine", "replay", "0-1", "--data", tmp_path).returncode == 1
    with closing(SQLiteStore(tmp_path)) as store:
        store.fold_all(0)  # the report is as bad as before
    assert dither("quarantine", "drop", "--all", "--data", tmp_path).stdout == "drop: 1 of 1\n"
    ledger = json.loads(dither("ledger", "--data", tmp_path, "--json").stdout)
    assert (ledger["balanced"], ledger["quarantined"]) == (True, 1)
    assert dither("fsck", "--data", tmp_path).returncode == 0


def damage_the_log(directory: Path) -> str:
    """Cut off the one entry that waits; return what is left of it."""
    with closing(sqlite3.connect(directory / FILE_NAME)) as db, db:
        db.execute("UPDATE log SET entry = CAST(substr(entry, 1, length(entry) - 1) AS BLOB)")
        ((entry,),) = db.execute("SELECT hex(entry) FROM log").fetchall()
    return str(entry).lower()


def test_a_damaged_entry_is_told_and_set_aside_and_what_is_left_is_kept(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    data = "--data", tmp_path / "a"
    assert dither("quarantine", "aside", *data).stdout == "no entry of the log is damaged\n"
    entry = damage_the_log(tmp_path / "a")
    done = dither("ledger", *data)
    assert (done.returncode, "NOT BALANCED: `dither fsck` says where" in done.stdout, done.stderr) == (1, True, "")
    done = dither("fsck", *data)
    assert done.returncode == 1
    assert "shard 0, log 4: an entry of the log is damaged: it is cut off" in done.stdout
    assert "`dither quarantine aside` sets it apart" in done.stdout
    done = dither("quarantine", "aside", *data)
    assert done.stdout.splitlines() == [
        f"shard 0, log 4: {len(entry) // 2} bytes: it is cut off",
        "shard 0: 2 reports were in it, and count as quarantined",
    ]
    ledger = json.loads(dither("ledger", *data, "--json").stdout)
    assert (ledger["balanced"], ledger["pending"], ledger["quarantined"]) == (True, 0, 3)
    assert dither("fsck", *data).returncode == 0
    backup = tmp_path / "backup.gz"
    assert dither("backup", backup, *data).returncode == 0
    assert dither("restore", backup, "--data", tmp_path / "b").returncode == 0
    data = "--data", tmp_path / "b"
    lost = json.loads(dither("quarantine", "list", *data, "--json").stdout)["quarantined"][1:]
    assert [(item["metric"], item["reports"]) for item in lost] == [("color", 1), ("dark", 1)]
    for item in lost:
        assert f"damaged in the log: 4 ({len(entry) // 2} bytes: it is cut off)" in item["reason"]
        assert json.loads(dither("quarantine", "show", item["id"], *data, "--json").stdout)["packed"] == entry
        done = dither("quarantine", "replay", item["id"], *data)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no reports to count; `dither quarantine drop` gives them up" in done.stderr
    assert dither("quarantine", "replay", "--all", *data).stdout == "replay: 1 of 1\n"
    assert dither("quarantine", "drop", "--all", *data).stdout == "drop: 2 of 2\n"
    assert dither("ledger", *data).returncode == 0


def test_what_was_set_aside_is_told_as_json_too(tmp_path: Path) -> None:
    filled(tmp_path)
    entry = damage_the_log(tmp_path)
    (told,) = json.loads(dither("quarantine", "aside", "--data", tmp_path, "--json").stdout)["aside"]
    damage = {"log": 4, "bytes": len(entry) // 2, "damage": "it is cut off"}
    assert told == {"shard": 0, "entries": [damage], "reports": 2}


def test_a_plan_that_there_is_not_is_a_row_of_the_ledger_and_no_traceback(tmp_path: Path) -> None:
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.execute("UPDATE log SET entry = CAST(substr(entry, 1, 4) || x'63' || substr(entry, 6) AS BLOB)")
    done = dither("ledger", "--data", tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "plan 99" in done.stdout
    assert "2 reports were in it" in dither("quarantine", "aside", "--data", tmp_path).stdout
    assert dither("fsck", "--data", tmp_path).returncode == 0


def test_a_backup_is_restored_with_everything_in_it(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    assert dither("keys", "create", "read", "--data", tmp_path / "a").returncode == 0
    file = tmp_path / "backup.gz"
    done = dither("backup", file, "--data", tmp_path / "a", "--json")
    assert json.loads(done.stdout)["bytes"] == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    assert dither("backup", file, "--data", tmp_path / "a").returncode == 2
    assert dither("restore", file, "--data", tmp_path / "b").returncode == 0
    ledgers = [dither("ledger", "--data", tmp_path / name).stdout for name in "ab"]
    assert ledgers[0] == ledgers[1]
    assert dither("fsck", "--data", tmp_path / "b").returncode == 0
    with closing(SQLiteStore(tmp_path / "a")) as one, closing(SQLiteStore(tmp_path / "b")) as other:
        assert one.keys.listed() == other.keys.listed() != []
        assert one.journal() == other.journal() != []
        assert one.generation != other.generation
        for plan in (COLOR, DARK):
            assert one.finals(plan) == other.finals(plan)
            assert all(one.tally(plan, day).digest == other.tally(plan, day).digest for day in one.epochs(plan))
    assert dither("restore", file, "--data", tmp_path / "b").returncode == 2


def test_a_backup_is_tried_where_nobody_serves_it(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    file, scratch = tmp_path / "backup.gz", tmp_path / "scratch"
    scratch.mkdir()
    dither("backup", file, "--data", tmp_path / "a")
    done = dither("backup", "verify", file, "--scratch", scratch, "--json")
    ledger = json.loads(dither("ledger", "--data", tmp_path / "a", "--json").stdout)
    told = json.loads(done.stdout)
    assert (done.returncode, told["findings"]) == (0, [])
    assert {name: told[name] for name in ("accepted", "folded", "pending", "quarantined")}.items() <= ledger.items()
    assert "brings back the store of example as it must be: 13 accepted = " in dither("backup", "verify", file).stdout
    assert dither("backup", "verify", file, "--scratch", file).returncode == 2
    with closing(SQLiteStore(tmp_path / "a")) as store, closing(sqlite3.connect(tmp_path / "a" / FILE_NAME)) as db, db:
        assert 0 <= (store.backup_age_s() or -1) < 600
        db.execute("UPDATE ledger SET folded = folded + 1 WHERE plan = 1")
    dither("backup", file, "--data", tmp_path / "a", "--force")
    done = dither("backup", "verify", file, "--scratch", scratch)
    assert (done.returncode, "does not balance" in done.stdout) == (1, True)
    assert list(scratch.iterdir()) == []


def test_a_backup_that_fails_leaves_the_time_of_the_one_before(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    assert dither("backup", tmp_path / "folder", "--data", tmp_path / "a", "--force").returncode == 2
    with closing(SQLiteStore(tmp_path / "a")) as store:
        assert store.backup_age_s() is None


def test_a_backup_that_is_cut_off_or_altered_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    file = tmp_path / "backup.gz"
    dither("backup", file, "--data", tmp_path / "a")
    whole = file.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    damaged = [
        whole[:40],
        whole[:-9],
        gzip.compress(b"".join(lines[:-1])),
        gzip.compress(b"".join(lines[:3] + lines[4:])),
        gzip.compress(b"".join(lines).replace(b'"dark"', b'"bark"')),
        gzip.compress(b'{"format": "dither backup", "version": 99}\n'),
        gzip.compress(b"[]\n"),
        b"",
        b"garbage",
    ]
    for place, content in enumerate(damaged):
        file.write_bytes(content)
        done = dither("restore", file, "--data", tmp_path / f"r{place}")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), (place, done)
        assert not (tmp_path / f"r{place}").exists()


def test_files_that_cannot_be_written_or_read_are_named_without_a_number_of_the_system(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    data = ("--data", tmp_path / "a")
    nowhere = tmp_path / "nowhere" / "backup.gz"
    said = f"dither: {nowhere} cannot be written: No such file or directory; nothing is left of it\n"
    assert dither("backup", nowhere, *data).stderr == said
    said = f"dither: {nowhere} cannot be read to its end: No such file or directory\n"
    assert dither("restore", nowhere, "--data", tmp_path / "b").stderr == said
    said = f"dither: {nowhere} must hold the address of a Redis: No such file or directory\n"
    assert dither("store", "copy", *data, "--to-file", nowhere).stderr == said


@pytest.mark.parametrize("kind", ["endless", "long", "no text"])
def test_a_small_file_that_a_command_names_is_read_no_further_than_it_may_be(tmp_path: Path, kind: str) -> None:
    filled(tmp_path / "a")
    file = tmp_path / "file"
    file.write_bytes(b"redis://127.0.0.1:1/0" + {"endless": b"", "long": b" " * 5_000, "no text": b"\xff"}[kind])
    if kind == "endless":
        file.unlink()
        os.mkfifo(file)  # which nobody ever writes to
    said = {"endless": "it is no regular file", "long": "it has more than 4,096 bytes", "no text": "can't decode"}[kind]
    copied = dither("store", "copy", "--data", tmp_path / "a", "--to-file", file)
    assert copied.returncode == 2
    assert copied.stderr.startswith(f"dither: {file} must hold the address of a Redis: ")
    assert said in copied.stderr


def test_a_file_that_is_no_backup_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    said = f"dither: {path} is no backup of dither: it does not begin as `dither backup` writes one\n"
    assert dither("restore", path, "--data", tmp_path / "b").stderr == said
    path.write_bytes(b"")
    assert "cut off" in dither("restore", path, "--data", tmp_path / "b").stderr
    os.mkfifo(pipe := tmp_path / "pipe")  # which nobody ever writes to
    for command in (("backup", "verify", pipe), ("restore", pipe, "--data", tmp_path / "b")):
        assert dither(*command).stderr == f"dither: {pipe} is no file: name one that `dither backup` wrote\n"


def test_a_restore_that_is_cut_off_leaves_nothing_that_can_be_opened(tmp_path: Path) -> None:
    store = SQLiteStore.create(tmp_path, "example", unfinished=True)
    store.close()
    done = dither("ledger", "--data", tmp_path)
    assert done.returncode == 2
    assert "was not filled to its end" in done.stderr


def test_tallies_and_snapshots_are_kept_as_long_as_is_said(tmp_path: Path) -> None:
    clock = Clock()
    filled(tmp_path, clock)
    with closing(SQLiteStore(tmp_path, clock)) as store:
        day = store.epochs(COLOR)[-1]
        final = store.finals(COLOR)[day]
        store.put(Retention(tallies_days=30, snapshots_days=60))
        clock.travel(29)
        maintenance.maintain(store, 0)
        assert store.tally(COLOR, day).n == 6
        clock.travel(2)
        maintenance.maintain(store, 0)
        store.forget_snapshots()
        assert store.tally(COLOR, day).n == 0
        assert store.snapshot(final.snapshot)
        assert list(check(store)) == []
        clock.travel(30)
        store.forget_snapshots()
        assert store.snapshot(final.snapshot) is None
        assert store.finals(COLOR)[day] == final
        assert list(check(store)) == []
    done = dither("store", "keep", "--tallies", "400", "--snapshots", "forever", "--data", tmp_path)
    assert done.stdout.splitlines() == [
        "tallies are kept for 400 days after their epoch",
        "snapshots are kept forever",
    ]
    kept = json.loads(dither("store", "keep", "--data", tmp_path, "--json").stdout)
    assert kept == {"tallies_days": 400, "snapshots_days": None}
    assert "must be a number of days" in dither("store", "keep", "--tallies", "0", "--data", tmp_path).stderr


def test_days_are_marked_listed_and_unmarked(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    data = "--data", tmp_path / "a"
    assert dither("mark", "list", *data).stdout == "no day is marked\n"
    assert dither("mark", "add", "2026-12-01", "a fair", *data).stdout == "marked: 2026-12-01 a fair\n"
    for added in (True, False):
        done = dither("mark", "add", "2026-11-20", "version 158", *data, "--json")
        assert (done.returncode, json.loads(done.stdout)["added"]) == (0, added)
    assert "marked before" in dither("mark", "add", "2026-11-20", "version 158", *data).stdout
    assert dither("mark", "list", *data).stdout == "2026-11-20  version 158\n2026-12-01  a fair\n"
    backup = tmp_path / "backup.gz"
    assert dither("backup", backup, *data).returncode == 0
    assert dither("restore", backup, "--data", tmp_path / "b").returncode == 0
    listed = json.loads(dither("mark", "list", "--data", tmp_path / "b", "--json").stdout)["marks"]
    assert listed == [{"day": "2026-11-20", "text": "version 158"}, {"day": "2026-12-01", "text": "a fair"}]
    done = dither("mark", "remove", "2026-11-20", "version 159", *data)
    assert (done.returncode, "has no such mark" in done.stdout) == (1, True)
    assert dither("mark", "remove", "2026-11-20", *data).stdout == "removed: 2026-11-20 version 158\n"
    assert json.loads(dither("mark", "remove", "2026-12-01", "a fair", *data, "--json").stdout)["removed"] == listed[1:]
    assert dither("mark", "remove", "2026-12-01", *data).returncode == 1
    assert dither("fsck", *data).returncode == 0


@pytest.mark.parametrize(
    ("day", "text", "says"),
    [
        ("20261120", "version 158", "must be a day such as 2026-11-20, got '20261120'"),
        ("2026-02-30", "version 158", "must be a day"),
        ("2026-11-20", "", "must have 1 to 80 characters, not spaces alone, got 0"),
        ("2026-11-20", "a" * 81, "must have 1 to 80 characters, not spaces alone, got 81"),
        ("2026-11-20", "a\x1b[2Jb", "must be one line without control characters"),
    ],
)
def test_what_cannot_be_a_mark_is_refused_in_words(tmp_path: Path, day: str, text: str, says: str) -> None:
    filled(tmp_path)
    done = dither("mark", "add", day, text, "--data", tmp_path)
    assert (done.returncode, done.stdout, "\x1b" in done.stderr) == (2, "", False)
    assert says in done.stderr


def test_the_store_is_shown(tmp_path: Path) -> None:
    filled(tmp_path)
    shown = json.loads(dither("store", "show", "--data", tmp_path, "--json").stdout)
    assert (shown["sealed"], shown["merged"], shown["erased"]) == ("2026-11-20", "2026-11-20", "0001-01-01")
    assert [shard["written"] for shard in shown["shards"]] == [4]
    table = dither("store", "show", "--data", tmp_path).stdout
    assert "app         example\n" in table
    assert "erased      never\n" in table


def test_a_registry_is_loaded_and_a_plan_retired_while_it_is_served(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    first = Registry.load(path)
    hurried: dict[str, object] = {"dither_aggregator.ingest.service.REFRESH_EVERY_S": 0.2}
    with serve(path, tmp_path / "data", settings=hurried) as served:

        def post(asked: Registry) -> int:
            return requests.post(
                f"{served.url}/v1/reports",
                data=body_of({"color": [0]}, asked),
                headers={"Authorization": f"Bearer {served.key}", "Content-Type": "application/json"},
                timeout=10,
            ).status_code

        def becomes(asked: Registry, status: int) -> None:
            wait_until(lambda: post(asked) == status)

        assert post(first) == 202
        path.write_text(registry_text(rev=2, values=("cyan", "ochre")), encoding="utf-8")
        second = Registry.load(path)
        assert post(second) == 422
        done = dither("metrics", "load", path, "--data", tmp_path / "data")
        assert "new: color rev 2" in done.stdout, done
        becomes(second, 202)
        assert post(first) == 202
        done = dither("metrics", "retire", "color", "--rev", 1, "--data", tmp_path / "data")
        assert done.returncode == 0, done
        becomes(first, 410)
        assert post(second) == 202
        dither("metrics", "retire", "color", "--rev", 1, "--undo", "--data", tmp_path / "data")
        becomes(first, 202)
        path.write_text(registry_text(rev=3, values=("teal", "plum")), encoding="utf-8")
        third = Registry.load(path)
        served.process.send_signal(signal.SIGHUP)
        becomes(third, 202)
        path.write_text("not a registry", encoding="utf-8")
        served.process.send_signal(signal.SIGHUP)
        assert served.process.stderr
        while "the registry was not loaded again" not in (said := served.process.stderr.readline()):
            assert said
        assert post(third) == 202
    done = dither("metrics", "retire", "color", "--rev", 9, "--data", tmp_path / "data")
    assert "there is no rev 9 of metric 'color'; there is 3, 2, 1" in done.stderr
    done = dither("metrics", "retire", "nope", "--rev", 1, "--data", tmp_path / "data")
    assert "there is no metric 'nope'; there is color, dark" in done.stderr
