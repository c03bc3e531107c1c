"""A real `dither serve` before a key is needed, and its first keys; where keys are kept, and who knows them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from dither_aggregator.store.sqlite import FILE_NAME, KEY_NAME, kept_key
from tests.support.aggregators import ENVIRONMENT, Served, dither, refused, serve
from tests.support.keys import STRONG, bearer
from tests.support.locked import ADMIN, ADMIN_ADDRESS, HURRIED, READ, SCOPES, WEAK, WRONG, Locked
from tests.support.machines import Site
from tests.support.registries import registry_text
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A server whose store has no more than the first write key, until the first test that asks it makes others."""
    home = tmp_path_factory.mktemp("one")
    (home / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    with serve(home / "metrics.toml", home / "data", settings=HURRIED) as served:
        yield Locked(served, home, {WEAK: served.key})


def test_reading_is_open_until_a_read_key_is_made_and_not_through_a_proxy(one: Locked) -> None:
    for path in ("/", "/pipeline", "/v1/metrics", "/openapi.json"):
        assert one.ask("GET", path).status_code == 200
        for name in ("X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"):  # somebody else asks, through a proxy
            assert one.ask("GET", path, headers={name: "for=192.0.2.1"}).status_code in (303, 401)
    assert one.ask("GET", f"{ADMIN_ADDRESS}keys").status_code == 401
    assert one.ask("GET", f"{ADMIN_ADDRESS}keys", headers=bearer(one.served.key)).status_code == 403
    one.made("write")
    assert one.ask("GET", "/").status_code == 200  # a write key changes nothing for readers
    id_, key = one.made("read")
    wait_until(lambda: one.ask("GET", "/").status_code == 303)
    assert dither("keys", "revoke", id_, "--data", one.data).returncode == 0
    wait_until(lambda: one.ask("GET", "/v1/marks", headers=bearer(key)).status_code == 401)
    assert one.ask("GET", "/").status_code == 303  # revoking the last one opens nothing


def test_the_first_write_key_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    data = tmp_path / "data"
    with serve(tmp_path / "metrics.toml", data) as first:
        assert kept_key(data) == first.key
        assert (data / KEY_NAME).stat().st_mode & 0o777 == 0o600
    with serve(tmp_path / "metrics.toml", data) as again:
        assert again.key == first.key
        assert Locked(again, tmp_path).upload(again.key).status_code == 202
    for spoil in (lambda path: path.write_text(STRONG), Path.unlink):
        spoil(data / KEY_NAME)
        with serve(tmp_path / "metrics.toml", data) as without:
            assert not without.key  # nobody can tell it any more
            assert Locked(without, tmp_path).upload(first.key).status_code == 202


def test_a_file_of_the_first_write_key_that_holds_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / KEY_NAME).write_text("secret")
    done = refused("serve", tmp_path / "metrics.toml", "--data", tmp_path / "data")
    assert done.stdout == ""
    assert done.stderr.startswith("dither: write.key: the key is too weak: ")
    assert done.stderr.endswith("take the file away, and one is made\n")


def test_init_tells_the_first_write_key_which_serve_takes_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    made = dither("init", tmp_path / "metrics.toml", "--data", tmp_path / "data", "--json")
    assert made.returncode == 0, made.stderr
    with serve(tmp_path / "metrics.toml", tmp_path / "data") as served:
        assert served.key == json.loads(made.stdout)["key"]
        assert Locked(served, tmp_path).upload(served.key).status_code == 202


def test_keys_come_from_files_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    drawn = {scope: f"{number}{STRONG}" for number, scope in enumerate(SCOPES)}
    for scope, text in drawn.items():
        (tmp_path / scope).write_text(f"{text}\n")
        monkeypatch.setitem(ENVIRONMENT, f"DITHER_{scope.upper()}_KEY_FILE", str(tmp_path / scope))
    with serve(tmp_path / "metrics.toml", tmp_path / "data") as served:
        one = Locked(served, tmp_path)
        assert not served.key  # none was made: there is one
        assert one.upload(drawn["write"]).status_code == 202
        assert "Set-Cookie" in one.login(drawn["read"]).headers  # a page would take a reader
        (listed,) = [row for row in keys_of(one) if row["scope"] == "read"]
        assert dither("keys", "revoke", listed["id"], "--data", one.data).returncode == 0
    (tmp_path / "write").write_text(f"next{STRONG}")
    with serve(tmp_path / "metrics.toml", tmp_path / "data") as served:
        one = Locked(served, tmp_path)
        assert [row["scope"] for row in keys_of(one)] == ["write", "write", "read", "admin"]
        assert one.upload(f"next{STRONG}").status_code == one.upload(drawn["write"]).status_code == 202
        assert one.ask("GET", "/v1/marks", headers=bearer(drawn["read"])).status_code == 401  # revoked, and stays so
        assert "Set-Cookie" not in one.login(drawn["read"]).headers


def keys_of(one: Locked) -> list[dict[str, Any]]:
    done = dither("keys", "list", "--data", one.data, "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["keys"]
    return rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("secret", "is too weak: it must have 160 random bits, which are 40 hexadecimal digits or 27 characters"),
        ("", "there is no key: "),
        ("two words of a key that is long enough 9f3c07b1e5d28a46", "printable ASCII characters without spaces"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_key_file_that_is_no_good_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, says: str
) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text(), encoding="utf-8")
    if text is not None:
        (tmp_path / "key").write_text(text)
    monkeypatch.setitem(ENVIRONMENT, "DITHER_READ_KEY_FILE", str(tmp_path / "key"))
    for command in ("serve", "init"):
        done = refused(command, tmp_path / "metrics.toml", "--data", tmp_path / command)
        assert done.stdout == ""
        assert done.stderr.startswith("dither: DITHER_READ_KEY_FILE=")
        assert says in done.stderr
        assert not text or text not in done.stderr


# Silence.


def test_no_key_is_in_any_file_or_log_or_answer_but_the_one_that_makes_it(
    one: Locked, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last to ask this server."""
    (_, one.keys[READ]), (_, one.keys[ADMIN]) = one.all_made(("read", ""), ("admin", ""))
    session, said = one.session(READ), []
    for path in ("/", "/pipeline", "/login", "/metrics/color", "/openapi.json"):
        said.append(one.ask("GET", path, headers=session).text)
    for path in ("keys", "journal", "quarantine"):
        said.append(one.ask("GET", ADMIN_ADDRESS + path, ADMIN).text)
    for key in (*one.keys.values(), WRONG):
        said += [one.upload(key).text, one.login(key).text, one.ask("GET", "/v1/marks", headers=bearer(key)).text]
        assert one.ask("GET", f"/v1/none?{key}", READ).status_code == 404
    assert dither("backup", tmp_path / "backup", "--data", one.data).returncode == 0
    log = one.served.stop()
    said += [log, gzip.decompress((tmp_path / "backup").read_bytes()).decode()]
    files = {path.name: path.read_bytes() for path in one.data.iterdir()}
    assert one.served.key.encode() in files.pop(KEY_NAME)
    assert FILE_NAME in files
    for text in one.keys.values():
        secret = text.rpartition("_")[2]
        assert not any(secret in each for each in said)
        assert not [name for name, content in files.items() if secret.encode() in content]
    assert session["Cookie"].partition("=")[2] not in log


# Several processes on a Redis.


def test_every_api_of_a_store_knows_its_keys_and_its_sessions(tmp_path: Path) -> None:
    site = Site(tmp_path, settings=HURRIED)
    with site.running(), site.api(ready=False) as one, site.api() as other:
        one.wait_ready()
        apis = [Locked(Served(each.process, each.said["url"], site.key, ""), tmp_path) for each in (one, other)]
        assert "key" not in one.said
        assert [each.ask("GET", "/v1/marks").status_code for each in apis] == [200, 200]
        assert [each.upload(site.key).status_code for each in apis] == [202, 202]
        made = {}
        for scope in ("read", "admin"):
            done = dither("keys", "create", scope, "--data", site.data.url, "--json")
            assert done.returncode == 0, done.stderr
            made[scope] = json.loads(done.stdout)
        for each in apis:
            each.wait_for("/v1/marks", {}, 401)
            each.wait_for("/v1/marks", bearer(made["admin"]["key"]), 200)
            assert each.ask("GET", "/").status_code == 303
        cookie = apis[0].login(made["read"]["key"]).headers["Set-Cookie"].partition(";")[0]
        assert apis[1].ask("GET", "/", headers={"Cookie": cookie}).status_code == 200
        administer = bearer(made["admin"]["key"])
        body = json.dumps({"id": made["read"]["id"]})
        assert apis[1].ask("POST", f"{ADMIN_ADDRESS}keys/revoke", data=body, headers=administer).status_code == 200
        for each in apis:
            each.wait_for("/", {"Cookie": cookie}, 303)
        journal = dither("journal", "--data", site.data.url)
        assert f"{made['admin']['id']:12}  key revoke         {made['read']['id']}" in journal.stdout


def test_an_api_is_not_reached_from_elsewhere_before_reading_needs_a_key(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.running():
        done = dither("api", "--data", site.data.url, "--port", 0, "--allow-host", "telemetry.example.org")
        assert (done.returncode, done.stdout) == (2, "")
        said = "--allow-host telemetry.example.org is a name for readers elsewhere, so reading must need a key"
        assert said in done.stderr
        assert dither("keys", "create", "admin", "--data", site.data.url).returncode == 0
        with site.api("--data", site.data.url, "--allow-host", "telemetry.example.org") as one:
            named = {"Host": "telemetry.example.org"}
            answer = requests.get(one.said["url"] + "/v1/marks", headers=named, timeout=60)
            assert answer.status_code == 401
