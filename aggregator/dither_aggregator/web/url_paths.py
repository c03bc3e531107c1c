"""The addresses that there are, and the path of a site below which they stand.

An address is compared as it was sent: none has a character that wants escaping, so none has two spellings, and no rule
of a proxy for one of them is passed by. The upload's own alone may have more slashes: a proxy that puts them there
would keep devices from reporting.
"""

import logging
import re
from collections.abc import Sequence
from typing import Any

from dither_aggregator.web.request_limits import Clients, Network
from dither_shared.errors import ConfigurationError
from dither_shared.wire import PATH

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
