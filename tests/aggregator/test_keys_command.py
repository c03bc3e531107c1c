"""`dither keys` and `dither journal`, as an operator meets them, on stores of both kinds."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.aggregators import dither
from tests.support.redis_servers import running_redis
from tests.support.registries import registry_text

Run = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def place(kind: str, home: Path) -> Iterator[object]:
    if kind == "sqlite":
        yield home / "data"
        return
    with running_redis(home / "redis") as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Return what runs a command on a store that was just made."""
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    with place(request.param, tmp_path) as data:
        made = dither("init", tmp_path / "metrics.toml", "--data", data)
        assert made.returncode == 0, made.stderr
        assert re.search(r"^key for devices: dither_write_[0-9a-f]{8}_[a-z2-7]{32}$", made.stdout, re.MULTILINE)
        yield lambda *arguments: dither(*arguments, "--data", data)


def test_keys_are_made_listed_and_revoked_and_the_journal_says_so(run: Run) -> None:
    made = run("keys", "create", "read", "--label", "the web team")
    key = made.stdout.removesuffix("\n")  # alone, so that `> key.txt` makes a file that --read-key-file takes
    words, opens = made.stderr.splitlines()
    found = re.fullmatch(r"dither_read_([0-9a-f]{8})_[a-z2-7]{32}", key)
    assert found
    assert words == f"a read key, {found[1]}; it is not shown again: the store has a hash of it"
    assert opens == "from now on nobody reads without a read or admin key"
    second = json.loads(run("keys", "create", "write", "--json").stdout)
    listed = run("keys", "list").stdout
    assert re.search(rf"^{found[1]}  read   active   \S+  never       the web team$", listed, re.MULTILINE)
    assert listed.endswith("3 of at most 1,000 keys\n")
    assert "dither_" not in listed
    waiting = run("keys", "revoke", second["id"], "--wait")
    assert waiting.stdout.endswith("are to come again later: a device keeps one for six days at most\n")
    assert run("keys", "revoke", found[1]).stdout == f"{found[1]} lets nobody in any more\n"
    states = {row["id"]: row["state"] for row in json.loads(run("keys", "list", "--json").stdout)["keys"]}
    assert (states[found[1]], states[second["id"]]) == ("revoked", "waiting")
    rows = [re.split(r"  +", line) for line in run("journal").stdout.splitlines()]
    assert [row[1:] for row in rows[-4:]] == [
        ["command line", "key create", f"{found[1]} read the web team"],
        ["command line", "key create", f"{second['id']} write"],
        ["command line", "key revoke", f"{second['id']}, to wait"],
        ["command line", "key revoke", found[1]],
    ]
    assert [row[2] for row in rows[:-4]] == ["registry load", "key create"]
    last = json.loads(run("journal", "--last", "1", "--json").stdout)["journal"]
    assert [entry["what"] for entry in last] == [found[1]]


def test_every_command_that_changes_what_admin_keys_may_has_an_entry(run: Run, tmp_path: Path) -> None:
    (tmp_path / "next.toml").write_text(registry_text(rev=2), encoding="utf-8")
    assert run("metrics", "load", tmp_path / "next.toml").returncode == 0
    assert run("metrics", "retire", "dark", "--rev", "1").returncode == 0
    assert run("metrics", "retire", "dark", "--rev", "1", "--undo").returncode == 0
    assert run("mark", "add", "2026-11-20", "version 158").returncode == 0
    assert run("mark", "remove", "2026-11-20").returncode == 0
    assert run("quarantine", "drop", "0-1").returncode == 1
    assert run("quarantine", "aside").returncode == 0
    entries = json.loads(run("journal", "--json").stdout)["journal"]
    assert [(entry["action"], entry["what"]) for entry in entries[2:]] == [
        ("registry load", "example: color, dark"),
        ("plan retire", "dark rev 1"),
        ("plan take again", "dark rev 1"),
        ("mark add", "2026-11-20 version 158"),
        ("mark remove", "2026-11-20"),
        ("quarantine aside", "damaged entries of the log"),
    ]
    assert {entry["actor"] for entry in entries} == {"command line"}


def test_a_registry_that_is_refused_or_changes_nothing_has_no_entry(run: Run, tmp_path: Path) -> None:
    before = run("journal").stdout
    (tmp_path / "same.toml").write_text(registry_text(), encoding="utf-8")
    assert run("metrics", "load", tmp_path / "same.toml").returncode == 0
    (tmp_path / "other.toml").write_text(registry_text(app="other"), encoding="utf-8")
    assert "the store belongs to the app 'example'" in run("metrics", "load", tmp_path / "other.toml").stderr
    (tmp_path / "rev.toml").write_text(registry_text(values=("cyan", "ochre")), encoding="utf-8")
    assert "give the changed metric the next rev" in run("metrics", "load", tmp_path / "rev.toml").stderr
    assert run("journal").stdout == before


def test_a_whole_key_in_place_of_its_id_is_in_no_entry_and_no_answer(run: Run) -> None:
    made = json.loads(run("keys", "create", "write", "--json").stdout)
    done = run("keys", "revoke", made["key"])
    assert done.returncode == 0
    assert made["key"] not in done.stdout + done.stderr
    told = run("journal", "--json").stdout
    assert json.loads(told)["journal"][-1]["what"] == made["id"]
    assert made["key"] not in told
    assert run("mark", "add", "2026-11-20", made["key"]).returncode == 0
    assert made["key"] not in run("journal").stdout


def test_an_entry_is_one_line_whatever_was_said(run: Run) -> None:
    assert run("keys", "create", "read", "--label", "x\ny").returncode == 2
    assert run("mark", "add", "2026-11-20", "a\x1b[2Jb\u202ec").returncode in (0, 2)
    with_escapes = run("journal").stdout
    assert "\x1b" not in with_escapes
    assert "\u202e" not in with_escapes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys", "revoke", "00000000"), "there is no key '00000000'; `dither keys list` shows all"),
        (("keys", "create", "root"), "invalid choice: 'root'"),
        (("keys", "create", "read", "--label", "x" * 101), "a label must be one line of at most 100 characters"),
        (("journal", "--last", "0"), "must be a number from 1 to 100000, got '0'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(run: Run, arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
