"""All of dither below a path of a site, behind proxies as README.md has them: whatever leads anywhere leads below it.

The rest of the site is another program's, which answers 418.
"""

import json
import random
import re
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from html.parser import HTMLParser
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import pytest
import requests

from dither.sending.transport import HttpTransport, Outcome
from dither_aggregator.commands.uploads import device_groups
from dither_aggregator.ingest.service import WholeService
from dither_aggregator.operations import maintenance
from dither_aggregator.store import SQLiteStore
from dither_aggregator.store.document_kinds import Dashboard, DayMark
from dither_aggregator.web.addresses import ADDRESSES, BasePath
from dither_aggregator.web.endpoints import create_app
from dither_aggregator.web.reader_process import in_threads
from dither_aggregator.web.request_admission import Admission
from dither_aggregator.web.request_limits import Limits
from dither_shared.registry import Registry
from dither_shared.rng import Rng
from dither_shared.wire import encode_upload, new_upload_id
from tests.deploy.composed import Server
from tests.support.aggregators import http_server, sqlite_store
from tests.support.clocks import Clock
from tests.support.ports import free_port
from tests.support.registries import registry_text
from tests.support.soaking import SOAK
from tests.support.stores import append, fold_all, seal_all
from tests.support.tools import tool
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

README = Path(__file__).parents[2] / "deploy" / "README.md"
BASE = "/telemetry"
SHOWN = re.findall(r"```nginx\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
TAKEN_AWAY = SHOWN.replace("127.0.0.1:8080;", "127.0.0.1:8080/;")
SAID = TAKEN_AWAY.replace('X-Forwarded-Prefix ""', f"X-Forwarded-Prefix {BASE}")
CADDY = "by Caddy"
WAYS = {
    "left": (BASE, SHOWN),
    "taken away": (BASE, TAKEN_AWAY),
    "said": ("", SAID),
    CADDY: (BASE, f"handle_path {BASE}/* {{\n reverse_proxy 127.0.0.1:8080\n}}\nrespond 418\n"),
}
"""The setting, and a proxy's lines. In the third way the proxy says the path, and there is no setting."""
FOLLOWED = ("said",)
"""On this way `make test` follows all that leads anywhere: what a proxy says may be lost on its way to a page."""
SLIP = "location /slip { proxy_pass http://127.0.0.1:8080/; }"
"""With a slash too few, as a bug report has it."""
DEVICES = 150
LIFE = """
rev = 1
epsilon = 4
reports = 3
schedule = "early"
presence = "public"
period = "1d"
owners = ["team@example.org"]
sensitivity = "low"
expires = 2027-03-01
"""
METRICS = {
    "wait": 'kind = "number"\nunit = "s"\nlow = 0\nhigh = 10\nbuckets = 5',
    "trip": 'kind = "table"\ncolumns.a = ["x", "y"]\ncolumns.b = ["x", "y"]\ncolumns.c = ["x", "y"]',
    "page": 'kind = "text"\ncandidates = ["alpha", "beta"]',
}
TEXT = registry_text(values=tuple(f"v{number}" for number in range(60)), device_epsilon="100.0") + "".join(
    f'\n[metric.{name}]\nquestion = "What?"\n{keys}\n{LIFE}' for name, keys in METRICS.items()
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLiteStore]:
    """Three days of reports of metrics of several kinds; two are sealed, with snapshots. One day has a mark."""
    asked, clock, rng = Registry.parse(TEXT), Clock(), Rng(random.Random(1).getrandbits)
    with sqlite_store(asked, tmp_path_factory.mktemp("store"), clock) as made:
        plans = [metric.plan for metric in asked.metrics.values()]
        for _ in range(3):
            for _ in range(DEVICES):
                append(made, encode_upload(new_upload_id(random.getrandbits), device_groups(plans, rng)))
            fold_all(made)
            clock.travel(1)
            seal_all(made)
            for shard in range(made.shards):
                maintenance.maintain(made, shard)
            for metric in asked.metrics:
                maintenance.finalize(made, metric)
        made.put(DayMark(made.sealed(), "version 158"))
        made.put(Dashboard.parse('[group.color]\nfirst = "v?"'))
        yield made


@contextmanager
def site(store: SQLiteStore, base: str, lines: str, directory: Path) -> Iterator[str]:
    """Run an aggregator and a proxy before it; yield the site's address."""
    port, trusted = free_port(), [ip_network("127.0.0.1")]
    with WholeService(store) as service:
        app = create_app(service, in_threads(store), reachable=True)
        server = http_server(
            app, admission=Admission(service, Limits(trusted_proxies=trusted), BasePath(base, trusted))
        )
        places = lines.replace("127.0.0.1:8080", server.url.removeprefix("http://"))
        proxy = caddy(directory, port, places) if lines == WAYS[CADDY][1] else nginx(directory, port, places)
        with server.in_background():
            proxy.start()
            try:
                wait_until(lambda: listens(port))
                yield f"http://127.0.0.1:{port}"
            finally:
                proxy.end()  # a killed nginx would leave its workers


def nginx(directory: Path, port: int, places: str) -> Server:
    (directory / "nginx.conf").write_text(
        f"pid {directory}/nginx.pid; daemon off; error_log stderr crit; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {directory}; proxy_temp_path {directory};\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ return 418; }}\n{places}\n}} }}\n"
    )
    return Server(directory, "nginx", [tool("nginx"), "-p", str(directory), "-c", f"{directory}/nginx.conf"], {})


def caddy(directory: Path, port: int, places: str) -> Server:
    path = directory / "Caddyfile"
    path.write_text(f"{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n{places}}}\n")
    command = [tool("caddy"), "run", "--adapter", "caddyfile", "--config", str(path)]
    return Server(directory, "caddy", command, dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(directory)))


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Leading(HTMLParser):
    """All that a page leads to: its links and assets, and its forms as they are sent when nothing was changed."""

    def __init__(self, page: str, text: str) -> None:
        super().__init__()
        self._page, self._form = page, ""
        self._fields: dict[str, list[tuple[str, str]]] = {}
        self.links: set[str] = set()
        self.posts: set[str] = set()
        self.feed(text)
        self.links |= {urljoin(to.partition("?")[0], f"?{urlencode(fields)}") for to, fields in self._fields.items()}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name, value in given.items():
            if name in ("href", "src") or (name != "value" and (value.startswith("/") or "://" in value)):
                self.links.add(urljoin(self._page, value).partition("#")[0])
        if tag == "form":
            self._form = urljoin(self._page, given.get("action") or self._page)
            if given.get("method") == "post":
                self.posts.add(self._form)
                self._form = ""
            else:
                self._fields[self._form] = []
        if tag == "select" and self._form:
            self._select = given.get("name", "")
        wanted = (tag == "input" and given.get("type") not in ("radio", "checkbox")) or "checked" in given
        if self._form and wanted and given.get("name"):
            self._fields[self._form].append((given["name"], given.get("value", "")))
        if tag == "option" and self._form and "selected" in given:
            self._fields[self._form].append((self._select, given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = ""


EXCEL = r'<a href="([^"]*)">CSV</a> \(<a href="\1(?:&amp;|\?)bom=1">for Excel</a>\)'
"""A link to a file of rows, and beside it the one for Excel."""


def leads(answer: requests.Response) -> set[str]:
    """Return all that an answer leads to."""
    kind = answer.headers["Content-Type"].partition(";")[0]
    found: set[str] = set()
    if kind == "text/html":
        assert answer.text.count(">CSV</a>") == len(re.findall(EXCEL, answer.text)), answer.url
        leading = Leading(answer.url, answer.text)
        found = leading.links | leading.posts
    elif kind == "text/css":
        found = {urljoin(answer.url, each.strip("'\"")) for each in re.findall(r"url\((.*?)\)", answer.text)}
    elif kind == "text/javascript":
        found = {urljoin(answer.url, each) for each in re.findall(r"[\"'`](/[^/*\"'`][^\"'`]*)", answer.text)}
    elif kind == "application/json":
        document = json.loads(answer.text)
        found = {
            urljoin(answer.url, f"{server['url'].removesuffix('/')}/v1/metrics")
            for server in document.get("servers", ())
        }
        if following := document.get("meta", {}).get("next"):
            found.add(urljoin(answer.url, following))
    return found


def is_below(url: str, address: str) -> bool:
    """Whether an address leads to dither."""
    return url.startswith((f"{address}{BASE}/", f"{address}{BASE}?")) or url == f"{address}{BASE}"


STARTS = ("/", "/openapi.json", "/v1/metrics/color/values?top=3")


def crawl(asked: requests.Session, address: str, day: date) -> set[str]:
    """Follow all that leads anywhere, once for each path and names of parameters; return the paths, below the path."""
    seen = set[tuple[str, str]]()
    waiting = deque(f"{address}{BASE}{path}" for path in (*STARTS, f"/metrics/dark?epoch={day}"))
    while waiting:
        url = waiting.popleft()
        parts = urlsplit(url)
        one = re.sub(r"/(snapshots|s)/[0-9a-f]+", r"/\1/<>", parts.path)
        names = " ".join(sorted({name for name, _ in parse_qsl(parts.query)}))
        if (one, names) in seen:
            continue
        seen.add((one, names))
        assert is_below(url, address), url
        if parts.path == f"{BASE}/logout":  # a form's: last of all
            continue
        answer = asked.get(url, allow_redirects=False, timeout=60)
        assert answer.status_code == 200, (url, answer.status_code, answer.text)
        found = leads(answer)
        assert all(is_below(each, address) for each in found), (
            url,
            [each for each in found if not is_below(each, address)],
        )
        waiting += sorted(found)
    paths = (path.removeprefix(BASE) for path, _ in seen)
    return {re.sub(r"/(metrics|static)/[^/]+", r"/\1/<>", path) for path in paths}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_leads_anywhere_leads_below_the_path(way: str, store: SQLiteStore, tmp_path: Path) -> None:
    base, lines = WAYS[way]
    with site(store, base, lines, tmp_path) as address, requests.Session() as asked:
        _, key = store.create_key("admin", way)
        asked.trust_env = False
        first = asked.get(f"{address}{BASE}/metrics/color?window=28", allow_redirects=False, timeout=60)
        assert first.headers["Location"] == f"{BASE}/login?next=%2Fmetrics%2Fcolor%3Fwindow%3D28"
        form = asked.get(address + first.headers["Location"], timeout=60)
        (action,) = Leading(form.url, form.text).posts
        assert action == f"{address}{BASE}/login"
        entered = asked.post(action, {"key": key, "next": "/metrics/color?window=28"}, timeout=60)
        assert (entered.status_code, entered.url) == (200, f"{address}{BASE}/metrics/color?window=28")
        assert {cookie.path for cookie in asked.cookies} == {BASE}
        assert all(is_below(each, address) for each in leads(entered))
        if SOAK or way in FOLLOWED:
            assert set(ADDRESSES) - crawl(asked, address, store.merged()) == NOT_LED_TO
        left = asked.post(f"{address}{BASE}/logout", timeout=60)
        assert (left.url, len(asked.cookies)) == (f"{address}{BASE}/login", 0)


NOT_LED_TO = {
    *(
        "/login",
        "/v1/reports",
        "/v1/plan",
        "/v1/questions",
        "/v1/marks",
        "/v1/metrics/<>/snapshots",
        "/v1/metrics/<>/quality",
        "/embed/<>",
        "/embed/<>.svg",
    ),
    *("/people", "/v1/people/active", "/v1/people/retention", "/v1/people/newcomers", "/v1/people/stickiness"),
    *(each for each in ADDRESSES if each.startswith("/v1/admin/")),
}
"""Addresses that no page leads to who is logged in. The description has them; pages show some as words, other
sites have the links to embed, and no metric here counts devices."""


@pytest.mark.parametrize("way", ["left", "taken away", "said"])
def test_a_device_reaches_it_and_so_it_does_where_the_proxy_makes_slashes(
    way: str, store: SQLiteStore, tmp_path: Path
) -> None:
    base, lines = WAYS[way][0], f"{WAYS[way][1]}\n{SLIP}"
    _, key = store.create_key("write", way)
    store.refresh()
    plans = [stored.plan for stored in store.plans()]
    with site(store, base, lines, tmp_path) as address:
        for place in (BASE, f"{BASE}/", "/slip"):
            id_ = new_upload_id(random.getrandbits)
            body = encode_upload(id_, device_groups(plans, Rng(random.getrandbits)))
            transport = HttpTransport(address + place, key)
            answer = transport.post(id_, body, lambda: None)
            transport.idle()
            assert answer.outcome == Outcome.ACCEPTED, (place, answer)
