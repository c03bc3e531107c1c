"""`serve --public` shows a published site to everybody and without a key, and nothing else of it or of the disk."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
import requests

from dither_aggregator.ingest.service import WholeService
from dither_aggregator.publishing.site import about, render, write
from dither_aggregator.store.document_kinds import READ
from dither_aggregator.store.release_ledger import seal
from dither_aggregator.web.addresses import BasePath
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.public_site import PublicSite
from dither_aggregator.web.reader_process import in_threads
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.request_limits import Limits
from dither_shared.wire.reading import Problem
from tests.support.aggregators import http_server, serve, sqlite_store
from tests.support.registries import registry_text
from tests.support.releases import people_of, published, release_of

REGISTRY = published()
BASE = "/telemetry"


@dataclass
class Shown:
    """A server that shows a site, below a path, and whose readers need a key."""

    url: str
    site: Path

    def get(self, path: str, method: str = "GET", **headers: str) -> requests.Response:
        return requests.request(method, self.url + path, headers=headers, allow_redirects=False, timeout=60)

    def raw(self, target: str, *, method: str = "GET", host: str = "localhost") -> bytes:
        """Return the answer to a request whose target is sent as it is: `requests` would tidy it up."""
        port = int(self.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def write_site(directory: Path) -> None:
    plan, rng = REGISTRY.metrics["color"].plan, np.random.default_rng(1)
    release, _ = release_of(plan, people_of(plan, 20_000), rng)
    audit = b"<!doctype html>\n<title>Audit</title>\n"
    facts = about(REGISTRY, release.last, audit=audit)
    write(directory, render(facts, [{**release.published(), "seal": seal(release, b"a secret of 16 b")}], audit))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    top = tmp_path_factory.mktemp("shown")
    write_site(top / "site")
    (top / "secret.json").write_text('{"about.json": "secret"}')
    with sqlite_store(REGISTRY, top / "data") as store, WholeService(store) as service:
        store.create_key(READ)
        app = create_app(service, in_threads(store), reachable=True, public=PublicSite(top / "site"))
        server = http_server(app, admission=Admission(service, Limits(), BasePath(BASE)))
        with server.in_background():
            yield Shown(server.url, top / "site")


def test_each_file_of_the_site_is_shown_to_everybody(shown: Shown) -> None:
    names = [path.relative_to(shown.site).as_posix() for path in shown.site.rglob("*") if path.is_file()]
    assert len(names) >= 11
    for name in names:
        answer = shown.get(f"{BASE}/public/{name}")
        assert answer.status_code == 200, name
        assert answer.content == (shown.site / name).read_bytes()
        assert answer.headers["cache-control"] == "public, max-age=300"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "script-src" not in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers
        page = name.endswith((".html", ".css"))
        assert answer.headers["cross-origin-resource-policy"] == ("same-origin" if page else "cross-origin")
        assert answer.headers.get("access-control-allow-origin") == (None if page else "*")
        assert "access-control-allow-credentials" not in answer.headers
    index = shown.get(f"{BASE}/public/")
    assert index.content == (shown.site / "index.html").read_bytes()
    assert index.headers["content-type"] == "text/html; charset=utf-8"
    assert shown.get(f"{BASE}/public").headers["location"] == f"{BASE}/public/"


def test_a_file_that_a_browser_has_is_not_sent_again(shown: Shown) -> None:
    first = shown.get(f"{BASE}/public/feed.xml")
    for tag in (first.headers["etag"], f'"other", {first.headers["etag"]}', f"W/{first.headers['etag']}", "*"):
        again = shown.get(f"{BASE}/public/feed.xml", **{"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
    assert shown.get(f"{BASE}/public/feed.xml", **{"if-none-match": '"other"'}).status_code == 200
    head = shown.get(f"{BASE}/public/feed.xml", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"])
def test_nothing_is_taken_there(shown: Shown, method: str) -> None:
    answer = shown.get(f"{BASE}/public/index.html", method, origin="https://elsewhere.example")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert "access-control-allow-origin" not in answer.headers


ESCAPES = (
    *("../secret.json", "..%2fsecret.json", "%2e%2e/secret.json", "color/../../secret.json", "..%5csecret.json"),
    *("//etc/passwd", "/etc/passwd", "%2fetc%2fpasswd", "....//secret.json", "color/..;/secret.json", ".%00./x"),
    *("index.html%00", "index.html/", "index.html.new", ".index.html.new", "INDEX.HTML", "index%2ehtml", "color"),
    *("color/", "./index.html", "color//index.html", "color/index.html%20", "more.html", "color/more.csv", "link.html"),
    *(
        "\\index.html",
        "index.html;x",
        "color\\index.html",
        "\N{FULLWIDTH FULL STOP}\N{FULLWIDTH FULL STOP}/secret.json",
    ),
)


@pytest.mark.parametrize("path", ESCAPES)
def test_nothing_else_is_shown(shown: Shown, path: str) -> None:
    """Other spellings, files that the manifest does not name, links, what lies beside the site."""
    (shown.site / "more.html").write_text("more")
    (shown.site / "color" / "more.csv").write_text("more")
    if not (shown.site / "link.html").is_symlink():
        (shown.site / "link.html").symlink_to(shown.site.parent / "secret.json")
    target = path if path.isascii() else quote(path)
    answer = shown.raw(f"{BASE}/public/{target}")
    assert answer.split(b" ", 2)[1] in (b"404", b"400"), answer
    assert b"root:" not in answer
    assert b"secret" not in answer
    assert b"more" not in answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "path", ["/v1/metrics", "/", "/metrics/color", "/publicly", "/public.json", "/v1/admin/journal"]
)
def test_the_rest_needs_a_key_as_before(shown: Shown, path: str) -> None:
    assert shown.get(BASE + path).status_code in (303, 401, 404)
    assert shown.get(path).status_code in (303, 401, 404)


def test_a_name_that_is_not_allowed_reads_nothing(shown: Shown) -> None:
    assert b" 421 " in shown.raw(f"{BASE}/public/index.html", host="rebound.example").split(b"\r\n")[0]


def test_what_was_changed_is_not_shown(shown: Shown, tmp_path: Path) -> None:
    """A file that is another than the manifest says, a link in its place, a pipe, a manifest that is none."""
    site = PublicSite(tmp_path / "site")
    shutil.copytree(shown.site, tmp_path / "site", symlinks=True)
    index, manifest = tmp_path / "site" / "index.html", tmp_path / "site" / "manifest.json"
    assert site._read("index.html")[0] == index.read_bytes()

    def refused(name: str = "index.html") -> str:
        with pytest.raises(Problem) as caught:
            site._read(name)
        return caught.value.slug

    good = index.read_bytes()
    index.write_bytes(good + b" ")
    assert refused() == "read-failed"
    index.unlink()
    assert refused() == "read-failed"
    index.symlink_to(shown.site / "index.html")
    assert refused() == "read-failed"
    index.unlink()
    os.mkfifo(index)
    assert refused() == "read-failed"
    kept = manifest.read_text()
    for bad in ("[]", "{", '{"about.json": "x", "../secret.json": "y"}', "{}"):
        manifest.write_text(bad)
        assert refused("manifest.json") == "read-failed"
    manifest.unlink()
    assert refused() == "not-found"
    index.unlink()
    index.write_bytes(good)
    manifest.write_text(kept)
    assert site._read("index.html")[0] == good  # it is looked at again
    assert json.loads(site._read("manifest.json")[0]) == json.loads(kept)


def test_serve_shows_a_site_that_is_written_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(registry_text())
    with serve(tmp_path / "metrics.toml", tmp_path / "data", "--port", 0, "--public", tmp_path / "site") as served:
        assert requests.get(f"{served.url}/public/", timeout=60).status_code == 404
        write_site(tmp_path / "site")
        assert "red" in requests.get(f"{served.url}/public/", timeout=60).text
