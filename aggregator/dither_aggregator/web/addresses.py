"""Addresses: which there are, the path of a site below which they stand, and the names under which somebody may ask.

**Paths.** An address is compared as it was sent: none has a character that wants escaping, so none has two spellings,
and no rule of a proxy for one of them is passed by. The upload's own alone may have more slashes: a proxy that puts
them there would keep devices from reporting.

**Hosts.** A page elsewhere can have its own name lead to a loopback address, and a browser beside the aggregator then
lets it read what comes back; but the browser says that name.
"""

import logging
import re
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from typing import Any

from dither_aggregator.ingest import process_counters
from dither_aggregator.web.http_messages import HttpAnswer, Scope, headers_of, media_type
from dither_aggregator.web.request_limits import Clients, Network
from dither_shared.errors import ConfigurationError
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem

ADDRESSES = (
    *("/", "/metrics/<>", "/metrics/<>/time", "/metrics/<>/privacy", "/changes", "/compare", "/ask", "/plan"),
    *("/metrics/<>/share", "/people"),
    *(
        "/pipeline",
        "/help/reading",
        "/s/<>",
        "/s/<>.csv",
        "/s/<>.svg",
        "/embed/<>",
        "/embed/<>.svg",
        "/login",
        "/logout",
        "/static/<>",
    ),
    *("/openapi.json", PATH),
    *(
        "/v1/metrics",
        "/v1/estimates",
        "/v1/compare",
        "/v1/changes",
        "/v1/people/active",
        "/v1/people/retention",
        "/v1/people/newcomers",
        "/v1/people/stickiness",
        "/v1/plan",
        "/v1/query",
        "/v1/questions",
        "/v1/marks",
    ),
    "/v1/snapshots/<>",
    *(f"/v1/metrics/<>/{part}" for part in ("values", "estimates", "groups", "snapshots", "series", "quality")),
    *(f"/v1/admin/{part}" for part in ("registry/load", "plans/retire", "marks/add", "marks/remove", "journal")),
    *(f"/v1/admin/quarantine{part}" for part in ("", "/replay", "/drop")),
    *(f"/v1/admin/keys{part}" for part in ("", "/create", "/revoke")),
)
"""All of them, `<>` for a name: a server knows which there are without what it takes to answer them."""
EMBED = "/embed/"
"""Below it nobody shows a key: the rest of an address is a signed link."""
BASE_PATH_CHARACTERS_MAX = 200
_FIRST_PARTS = frozenset(each.split("/")[1] for each in (*ADDRESSES, "/public"))
"""With that of `web/public_site.py`, whose addresses are those of its files."""
_KNOWN = re.compile("|".join(re.escape(each).replace("<>", "[^/]+") for each in ADDRESSES))
_BASE_PATH = re.compile(r"(/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.~-]+)+")
_FORWARDED_PREFIX = b"x-forwarded-prefix"

_log = logging.getLogger("dither_aggregator")


def is_known(path: str) -> bool:
    """Tell whether something is answered at an address, whatever the method, to whoever may ask for it."""
    return bool(_KNOWN.fullmatch(path))


def read_base_path(text: str) -> str:
    """Return the path of a site below which all stands, "" for the site's root; raise ConfigurationError."""
    path = text.removesuffix("/")
    if not path:
        return ""
    if len(path) > BASE_PATH_CHARACTERS_MAX or not _BASE_PATH.fullmatch(path):
        raise ConfigurationError(
            f"must be a path such as /telemetry, of at most {BASE_PATH_CHARACTERS_MAX} letters, digits and . _ ~ -, "
            f"got {text!r}"
        )
    if path.split("/")[1] in _FIRST_PARTS:
        raise ConfigurationError(f"must not begin as an address here does, got {text!r}")
    return path


class BasePath:
    """The path below which the addresses stand: the setting's, or what a trusted proxy says of a request."""

    def __init__(self, path: str = "", trusted: Sequence[Network] = ()) -> None:
        self.path = path
        self._clients = Clients(trusted)
        self._warned = False

    def place(self, scope: Any) -> None:
        """Have a request's scope say its address as `path`, and the path before it as `root_path`.

        A proxy takes that path away or leaves it: both are understood.
        """
        root = scope["root_path"] = self._root_of(scope)
        path = scope["raw_path"].decode("ascii")
        if path != PATH:
            plain = re.sub("/+", "/", path).removesuffix("/")
            if plain in (PATH, root + PATH):
                path = PATH
            elif root and f"{path}/".startswith(f"{root}/"):
                path = path.removeprefix(root) or "/"
        scope["path"] = path

    def _root_of(self, scope: Any) -> str:
        prefix = [value for name, value in scope["headers"] if name == _FORWARDED_PREFIX and value]
        if not prefix or not scope["client"] or not self._clients.trusts(scope["client"][0]):
            return self.path
        try:
            if len(prefix) == 1:
                return read_base_path(prefix[0].decode("latin-1"))
        except ConfigurationError:
            pass
        if not self._warned:  # without the header: anybody may have written it
            self._warned = True
            _log.warning("a trusted proxy sends an X-Forwarded-Prefix that is no path; the setting's counts")
        return self.path


# The names under which somebody may read, or ask for health.


ANY = "*"
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")


def check_reader(scope: Scope, allowed: Collection[str]) -> None:
    """Refuse a request that says no name, or one that is not allowed.

    Addresses in numbers are allowed: nobody can have them lead here.
    """
    given = [value for name, value in scope["headers"] if name == b"host"]
    if len(given) != 1 or not scope["query_string"].isascii():
        raise Problem("malformed", "send one Host, and a query in ASCII")
    name = name_of(given[0])
    if not (ANY in allowed or name == "localhost" or name in allowed or _is_address(name)):
        raise Problem("host-not-allowed", "nothing is read under this name; --allow-host allows it")


def check_monitor(scope: Scope, allowed: Collection[str]) -> None:
    """Do the same for a monitor, which may say no name: some load balancers do not, and every browser does."""
    if any(name == b"host" for name, _ in scope["headers"]):
        check_reader(scope, allowed)


def name_of(host: bytes) -> str:
    """Return the name that a Host header says, without its port; "" where it says none."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    return found[1].strip("[]").rstrip(".") if found else ""


def is_local(name: str) -> bool:
    """Whether a name leads to the machine itself, wherever it is asked for."""
    return name == "localhost" or (_is_address(name) and ip_address(name).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


# Pages of other sites, by origin, that may send uploads from a browser and read what is answered; nothing else (CORS).
#
# A page's upload is a simple request where it can be: plain text, its key in the body. It costs a browser one round
# trip less than one with a key in a header, which is asked for first. https://fetch.spec.whatwg.org/#http-cors-protocol


KEY_IN_BODY = "dither.key-in-body"
"""In a request's state: its key comes in the body. The value checks how often uploads come with it."""
PREFLIGHT_KEPT_S = 86_400
"""A browser may ask again sooner: Chromium does after two hours."""
_BEGIN = re.compile(rb'\{"v":1,"key":"([!#-\[\]-~]{1,200})",')

PREFLIGHT = HttpAnswer(
    204,
    [
        (b"access-control-allow-methods", b"POST"),
        (b"access-control-allow-headers", b"authorization, content-encoding, content-type"),
        (b"access-control-max-age", b"%d" % PREFLIGHT_KEPT_S),
    ],
    parts=(),
)
"""The answer to a browser that asks whether it may send an upload with a key in a header."""


def is_preflight(scope: Scope) -> bool:
    """Whether a browser asks what it may send."""
    names = {name for name, _ in scope["headers"]}
    return scope["method"] == "OPTIONS" and scope["path"] == PATH and b"access-control-request-method" in names


class Origins:
    """The origins whose pages may send uploads: exact ones, as `https://app.example`."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = frozenset(each.encode("ascii") for each in allowed)

    def check(self, scope: Scope) -> None:
        """Refuse what a page of an origin that is not allowed asks or sends; raise Problem."""
        origin = self._origin(scope)
        if origin not in self._allowed:
            process_counters.origin_refused(origin)
            raise Problem("origin-not-allowed", "no page of this origin may send reports; --allow-origin allows it")

    def is_simple(self, scope: Scope) -> bool:
        """Whether a page sends an upload with its key in the body; raise Problem where it may not."""
        headers = headers_of(scope)
        if b"authorization" in headers or media_type(headers.get(b"content-type", b"")) != b"text/plain":
            return False
        if not self._origin(scope):
            return False
        self.check(scope)
        return True

    def headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return what an answer to a request adds, so that a page that may read it can."""
        if not self._allowed or scope["path"] != PATH:
            return []
        vary = (b"vary", b"origin")
        origin = self._origin(scope)
        if origin not in self._allowed:
            return [vary]
        return [
            vary,
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"date, retry-after"),
        ]

    def _origin(self, scope: Scope) -> bytes:
        return headers_of(scope).get(b"origin", b"")


def taken_apart(body: bytes) -> tuple[bytes, bytes]:
    """Return the key that stands in a body, and the upload without it; raise Problem.

    The rest is the upload as every other client sends it: nothing of the key is stored.
    """
    found = _BEGIN.match(body)
    if not found:
        raise Problem("malformed", 'the body of a text/plain upload must begin with {"v":1,"key":"KEY",')
    return found[1], b'{"v":1,' + body[found.end() :]
