"""Nothing of who sends is in any store, log, metric, page or error: not the address, the user agent, a key or an id.

Real servers of both kinds, at the most detailed level of the log, are sent good and bad uploads that bear canaries from
an address of their own. Then everything that they wrote, keep and answer is searched for these.
"""

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dither_aggregator.store.sqlite import KEY_NAME
from dither_shared.registry import Registry
from dither_shared.wire import PATH
from tests.fuzz.hostile import hostile_uploads
from tests.support.aggregators import ENVIRONMENT, dither
from tests.support.clusters import wait_until
from tests.support.keys import STRONG
from tests.support.machines import Machine, Site
from tests.support.redis_servers import RedisServer
from tests.support.registries import registry, registry_text
from tests.support.soaking import SOAK, scaled
from tests.support.stores import body_of

pytestmark = pytest.mark.slow

ASKED = registry()
ADDRESS = "127.0.0.77"
AGENT = "CanaryAgent/7.3"
WRONG_KEY = "CanaryKeyThatIsWrong"
ID = "CanaryIdOfAnUpload"
"""The first characters of every upload's id, of which whole bytes are the first 16."""
FORWARDED = "203.0.113.77"
METRIC = "canary_metric"
COOKIE = "CanaryCookie"
HOSTILE = scaled(20, 150)
LOUD = {"DITHER_LOG_LEVEL": "debug"}
PAGES = ("/", "/pipeline", "/metrics/dark", "/metrics/nothing", "/v1/metrics", "/v1/metrics/dark/estimates", "/nothing")
HEALTH = ("/livez", "/readyz", "/version", "/metrics", "/nothing")


def written(text: str) -> tuple[bytes, ...]:
    """Return how a text may be written down."""
    return text.encode(), text.encode().hex().encode(), base64.b64encode(text.encode()).rstrip(b"=")[:-1]


_ID_BYTES = base64.urlsafe_b64decode(ID[:16])
CANARIES: Mapping[str, tuple[bytes, ...]] = {
    "the address": written(ADDRESS),
    "the user agent": written(AGENT),
    "a wrong key": written(WRONG_KEY),
    "an upload's id": (*written(ID[:14]), _ID_BYTES, _ID_BYTES.hex().encode()),
    "what a proxy says": written(FORWARDED),
    "a metric of nobody's": written(METRIC),
    "a cookie": written(COOKIE),
}


@dataclass
class Found:
    """All that was written, kept and answered, by where."""

    keys: tuple[str, ...]
    """The right ones: a file of its own has the first for the operator, and nothing else any."""
    told: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)

    def canaries(self) -> set[tuple[str, str]]:
        """Return each canary that is somewhere, with the place."""
        there = {**self.told, **self.kept}
        found = {
            (name, place)
            for place, content in there.items()
            for name, forms in CANARIES.items()
            if any(form in content for form in forms)
        }
        known = {
            ("a right key", place)
            for place, content in there.items()
            for key in self.keys
            if key.encode() in content and not place.startswith(KEY_NAME)
        }
        return found | known


class Sender:
    """Sends what bears canaries, and keeps what is answered; a receipt is for the sender, who knows the id."""

    def __init__(self, said: Mapping[str, Any], asked: Registry) -> None:
        self._said, self._asked, self._ids = said, asked, count()
        self.answers: dict[str, bytes] = {}
        self.statuses: set[int] = set()

    def upload(self, **reports: list[int]) -> bytes:
        return body_of(self._asked, reports or {"dark": [1, 0]}, f"{ID}{next(self._ids):03}A")

    def send(self, method: str, path: str, body: bytes = b"", where: str = "url", **changed: str) -> int:
        """Send a request from an address of its own; return the status."""
        place = urlsplit(self._said[where])
        headers = {
            "Authorization": f"Bearer {self._said['key']}",
            "Content-Type": "application/json",
            "User-Agent": AGENT,
            "X-Forwarded-For": FORWARDED,
            "Forwarded": f"for={FORWARDED}",
            "Cookie": f"session={COOKIE}",
            "Referer": f"https://{COOKIE}.example.org/",
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        with closing(
            HTTPConnection(str(place.hostname), place.port or 0, timeout=60, source_address=(ADDRESS, 0))
        ) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = str(answer.headers).encode() + answer.read()
        self.statuses.add(answer.status)
        if answer.status != 202:
            self.answers[f"{answer.status} to {method} {path} ({len(self.answers)})"] = content
        return answer.status

    def send_all(self) -> None:
        """Send uploads of every kind, and look at every page."""
        first = self.upload()
        assert self.send("POST", PATH, first) == 202
        assert self.send("POST", PATH, first) == 202
        assert self.send("POST", PATH, first.replace(b"[1,0]", b"[1,1]")) == 409
        assert self.send("POST", PATH, self.upload(dark=[1], color=[0])) == 202
        unknown = json.loads(self.upload())
        unknown["groups"].append({"metric": METRIC, "plan": "0" * 16, "reports": [1]})
        assert self.send("POST", PATH, json.dumps(unknown).encode()) == 202
        unknown["groups"] = unknown["groups"][1:]
        unknown["upload"] = f"{ID}999A"
        assert self.send("POST", PATH, json.dumps(unknown).encode()) == 422
        assert self.send("POST", PATH, self.upload(), Authorization=f"Bearer {WRONG_KEY}") == 401
        assert self.send("POST", PATH, self.upload(), Authorization=f"Basic {WRONG_KEY}") == 401
        assert self.send("POST", PATH, self.upload(), Authorization=f"Bearer {self._said['read']}") == 403
        assert self.send("POST", PATH, self.upload(), Content_Type="text/plain") == 415
        assert self.send("POST", PATH, self.upload() + b" " * 300_000) == 413
        assert self.send("POST", PATH, self.upload(), X_Long="x" * 20_000) == 431
        assert self.send("PUT", PATH, self.upload()) == 405
        assert self.send("GET", "/", Host=f"{COOKIE}.example.org") == 421
        for headers, body in islice(hostile_uploads(19, self._asked), HOSTILE):
            own = re.sub(rb'("upload": ?")[A-Za-z0-9_-]{21}', rb"\g<1>" + f"{ID}hst".encode(), body)
            changed = {name.replace("-", "_"): value for name, value in headers.items()}
            assert 400 <= self.send("POST", PATH, own, **changed) < 500
        self.break_off()
        for path in PAGES:
            told = self.send("GET", path, Authorization=f"Bearer {self._said['read']}")
            assert told in ((403,) if path == "/pipeline" else (200, 404))
        for path in HEALTH:
            self.send("GET", path, where="health")

    def break_off(self) -> None:
        """Send what is no HTTP, and half of an upload."""
        place = urlsplit(self._said["url"])
        for raw in (f"{AGENT} {ID}\r\n\r\n".encode(), f"POST {PATH} HTTP/1.1\r\nUser-Agent: {AGENT}\r\n".encode()):
            connection = HTTPConnection(str(place.hostname), place.port or 0, timeout=60, source_address=(ADDRESS, 0))
            with closing(connection):
                connection.connect()
                connection.send(raw)
                if raw.endswith(b"\r\n\r\n"):
                    try:
                        self.answers["what is no HTTP"] = connection.sock.recv(65_536)
                    except (OSError, HTTPException):
                        self.answers["what is no HTTP"] = b""


def read_key(data: object) -> str:
    """Make a key to read with."""
    done = dither("keys", "create", "read", "--data", data, "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["key"])


def files(directory: Path) -> dict[str, bytes]:
    """Return all files beneath a directory."""
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def values(server: RedisServer) -> bytes:
    """Return everything that a Redis holds, in clear."""
    read = {
        b"string": lambda redis, key: redis.get(key),
        b"hash": lambda redis, key: redis.hgetall(key),
        b"list": lambda redis, key: redis.lrange(key, 0, -1),
        b"set": lambda redis, key: redis.smembers(key),
        b"zset": lambda redis, key: redis.zrange(key, 0, -1, withscores=True),
    }
    with server.client() as redis:
        return b"\n".join(key + b": " + _flat(read[redis.type(key)](redis, key)) for key in redis.scan_iter())


def _flat(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b" ".join(_flat(each) for pair in value.items() for each in pair)
    return b" ".join(map(_flat, value)) if isinstance(value, list | set | tuple) else str(value).encode()


@contextmanager
def served(directory: Path, plant: str = "") -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run `dither serve`, perhaps with a bug planted."""
    path = directory / "metrics.toml"
    path.write_text(registry_text(), encoding="utf-8")
    read = directory / "read.key"
    read.write_text(STRONG, encoding="ascii")
    code = f"{plant}\nimport sys\nfrom dither.cli import main\nsys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", path, "--data", directory / "data", "--port", "0", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **LOUD, "DITHER_READ_KEY_FILE": str(read)},
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, {**json.loads(line), "read": STRONG}
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def searched(directory: Path, plant: str = "") -> Found:
    """Return what is left of a visit to `dither serve`."""
    with served(directory, plant) as (process, said):
        found = Found((said["key"], said["read"]))
        sender = Sender(said, ASKED)
        sender.send_all()
        found.kept.update({f"{name} in use": content for name, content in files(directory / "data").items()})
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0, log
    assert sender.statuses >= {200, 202, 400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 431}
    assert "a request was refused: key-wrong" in log
    assert "thread MainThread:" in log
    found.told.update(sender.answers)
    found.told["the log"] = log.encode()
    found.kept.update(files(directory / "data"))
    return found


def test_one_machine_says_and_keeps_nothing_of_who_sends(tmp_path: Path) -> None:
    found = searched(tmp_path)
    assert any(name.endswith("-wal in use") for name in found.kept)
    assert found.canaries() == set()


def test_several_machines_say_and_keep_nothing_of_who_sends(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.running():
        read = read_key(site.data.url)
        places = {"DITHER_DATA": site.data.url, "DITHER_BROKER": site.broker.url}
        with site.all_machines({**LOUD, **places}) as (api, worker, beat):
            found = Found((site.key, read))
            sender = Sender({**api.said, "key": site.key, "read": read}, ASKED)
            sender.send_all()
            wait_until(lambda: site.backlog() == 0, "everything being folded")
            found.told.update(sender.answers)
            found.kept["the store"] = values(site.data)
            found.told["the broker"] = values(site.broker)
            found.told.update({f"the log of {name}": log_of(one) for name, one in each(api, worker, beat)})
        found.kept.update(files(tmp_path / "data"))
        found.told.update(files(tmp_path / "broker"))
    assert any(name.endswith(".aof") for name in found.kept)
    assert b"a request was refused: key-wrong" in found.told["the log of api"]
    assert found.canaries() == set()


def each(api: Machine, worker: Machine, beat: Machine) -> tuple[tuple[str, Machine], ...]:
    return ("api", api), ("worker", worker), ("beat", beat)


def log_of(one: Machine) -> bytes:
    """End a command, and return what it wrote."""
    code, log = one.stop()
    assert code == 0, log
    return log.encode()


AROUND_INGEST = """
import logging
from dither_aggregator.web import endpoints
log = logging.getLogger("dither_aggregator")
def around(take):
    async def answer(self, scope, body):
        {}
        return await take(self, scope, body)
    return answer
endpoints.Ingest.answer = around(endpoints.Ingest.answer)
"""
PLANTS = {
    "the user agent": AROUND_INGEST.format('log.debug("from %s", dict(scope["headers"]).get(b"user-agent"))'),
    "the address": AROUND_INGEST.format('log.error("from %s", scope["client"])'),
    "what a proxy says": AROUND_INGEST.format("""for name, value in scope["headers"]:
            name == b"x-forwarded-for" and print(value.decode(), file=__import__("sys").stderr)"""),
    "an upload's id": """
from dither_aggregator.store import SQLiteStore
digest = SQLiteStore.digest
SQLiteStore.digest = lambda self, data, *size: data if len(data) == 22 else digest(self, data, *size)
""",
    "a wrong key": """
from dither_aggregator.web import request_admission
from dither_shared.wire.reading import Problem
check = request_admission.shown_key
def shown_key(find, authorization, scopes):
    try:
        return check(find, authorization, scopes)
    except Problem as problem:
        raise Problem(problem.slug, f"{problem.detail}: {authorization.decode('latin-1')}")
request_admission.shown_key = shown_key
""",
    "a metric of nobody's": """
from dither_aggregator.store.documents import Plans
Plans.known = lambda self, metric: metric
""",
}


@pytest.mark.parametrize(
    "bugs", [[bug] for bug in PLANTS] if SOAK else [list(PLANTS)], ids=lambda bugs: ", ".join(bugs)
)
def test_a_bug_that_tells_is_found(bugs: list[str], tmp_path: Path) -> None:
    """Each tells of one canary: all of them together are found as each alone is."""
    refused = {"a right key"} if "a wrong key" in bugs else set()  # one to read with, shown with an upload
    found = searched(tmp_path, "\n".join(PLANTS[bug] for bug in bugs)).canaries()
    assert {name for name, _ in found} == {*bugs} | refused
