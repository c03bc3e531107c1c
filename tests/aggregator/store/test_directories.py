"""The door of a store in a directory: who owns it, who may write it, and where its keys and settings come from."""

import os
from contextlib import closing
from pathlib import Path
from stat import S_IMODE

import pytest

from dither_aggregator.health.diagnosis import examine
from dither_aggregator.store import SQLiteStore, StoreError
from dither_aggregator.store.sqlite import FILE_NAME, KEY_NAME, LOCK_NAME, exclusive
from dither_aggregator.store.sqlite.schema import NAMES
from dither_shared.registry import Registry
from tests.support.aggregators import dither, refused, serve
from tests.support.keys import STRONG
from tests.support.owners import ME, SOMEBODY, Owners
from tests.support.registries import registry_text


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a registry, and a store that nobody serves."""
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    SQLiteStore.create(tmp_path / "data", "example").close()
    return tmp_path


def test_serve_mends_what_all_may_write_and_says_so_first(home: Path) -> None:
    data = home / "data"
    data.chmod(0o777)
    (data / FILE_NAME).chmod(0o666)
    with serve(home / "metrics.toml", data) as served:
        said = served.stop()
    first, second, *more = said.splitlines()
    assert first.endswith(f"{data} was open to others (mode 777): it has mode 755 now")
    assert second.endswith(f"{data / FILE_NAME} was open to others (mode 666): it has mode 600 now")
    assert not more
    assert [S_IMODE(path.stat().st_mode) for path in (data, data / FILE_NAME)] == [0o755, 0o600]


def test_who_may_take_a_store_away_is_said_where_it_is_held_and_by_doctor(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home.chmod(0o775)
    Owners(monkeypatch).give(home, ME, SOMEBODY)
    said = f"group 4711 may write in {home} (mode 775), and so may take {home / 'data'} away"
    with exclusive(home / "data"):  # as `serve` does it before anything else
        assert [record.getMessage() for record in caplog.records] == [said]
    (check,) = [check for check in examine(str(home / "data"), None) if check.what == "secrecy"]
    assert said in check.value
    assert not check.well


def test_serve_refuses_a_directory_that_is_shared_and_takes_one_within_it(home: Path) -> None:
    shared = home / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for command in (("serve", home / "metrics.toml"), ("init", home / "metrics.toml")):
        done = (refused if command[0] == "serve" else dither)(*command, "--data", shared)
        assert done.returncode == 2
        assert "all may write in" in done.stderr
        assert "name a directory within it, yet to be made" in done.stderr
        assert list(shared.iterdir()) == []
    assert dither("init", home / "metrics.toml", "--data", shared / "own").returncode == 0
    assert S_IMODE((shared / "own").stat().st_mode) == 0o700


def test_another_user_s_directory_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Owners(monkeypatch).give(home / "data", SOMEBODY)
    with pytest.raises(StoreError, match="belongs to user 4711: run this as that user"), exclusive(home / "data"):
        pass
    with pytest.raises(StoreError, match="belongs to user 4711"):
        SQLiteStore(home / "data")
    SQLiteStore(home / "data", read_only=True).close()  # who only reads looks at what there is


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["link", "two names", "another's"])
def test_a_file_that_leads_elsewhere_is_refused_for_every_file_of_a_store(
    home: Path, asked: Registry, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    path, elsewhere = home / "data" / name, home / "elsewhere"
    path.touch()
    if kind == "link":
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
    elif kind == "two names":
        elsewhere.hardlink_to(path)
    else:
        Owners(monkeypatch).give(path, SOMEBODY)
    said = {"link": "is a link", "two names": "has 2 names", "another's": "belongs to user 4711"}[kind]
    with pytest.raises(StoreError, match=f"{name} {said}"), exclusive(home / "data"):
        pass
    with pytest.raises(StoreError, match=f"{name} {said}"):
        SQLiteStore(home / "data")


def test_a_store_has_no_file_that_is_not_looked_at(home: Path) -> None:
    with serve(home / "metrics.toml", home / "data"):
        there = {path.name for path in (home / "data").iterdir()}
    assert there >= {FILE_NAME, LOCK_NAME, KEY_NAME}
    assert there <= set(NAMES)


def test_keys_settings_and_backups_that_all_may_write_are_not_believed(home: Path, tmp_path: Path) -> None:
    key, settings, backup = tmp_path / "key", tmp_path / "dither.toml", tmp_path / "backup"
    key.write_text(STRONG)
    settings.write_text("port = 0\n")
    assert dither("backup", backup, "--data", home / "data").returncode == 0
    assert S_IMODE(backup.stat().st_mode) == 0o600
    calls = {
        key: ("init", home / "metrics.toml", "--data", tmp_path / "new", "--admin-key-file", key),
        settings: ("settings", "--settings", settings),
        backup: ("restore", backup, "--data", tmp_path / "again"),
    }
    for path, call in calls.items():
        path.chmod(0o646)
        done = dither(*call)
        assert done.returncode == 2
        assert f"all may write {path} (mode 646): look at what is in it, then `chmod o-w` it" in done.stderr
    secret = tmp_path / "address"
    secret.write_text("redis://127.0.0.1:1/0")
    secret.chmod(0o666)
    done = dither("ledger", DITHER_DATA_FILE=str(secret))
    assert (done.returncode, f"all may write {secret}" in done.stderr) == (2, True)
    for path, call in calls.items():
        path.chmod(0o644)
        if path != key:  # of which the first try has made a store
            assert dither(*call).returncode == 0


def test_a_backup_is_not_written_through_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "backup").symlink_to(tmp_path / "theirs")
    assert dither("backup", tmp_path / "backup", "--data", home / "data", "--force").returncode == 0
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not os.path.islink(tmp_path / "backup")  # noqa: PTH114
    with closing(SQLiteStore(home / "data")) as store:
        assert store.app == "example"
