"""Sessions of people who read pages: a cookie with a key's id, signed, and worth as much as that key is at the moment.

Nothing of a session is kept here. Logging out takes the cookie away; a copy that was made before is a session until it
ends or the key is revoked.
"""

import re
from hashlib import sha256
from urllib.parse import parse_qs, quote

from itsdangerous import BadData, TimestampSigner

from dither_aggregator.operations.scopes import READING
from dither_aggregator.store import Store
from dither_aggregator.store.access_keys import ACTIVE, Key
from dither_aggregator.web.allowed_hosts import is_local, name_of
from dither_aggregator.web.http_messages import HttpAnswer, Scope, list_of, media_type
from dither_aggregator.web.url_paths import is_known
from dither_shared.wire.problems import Problem

LOGIN, LOGOUT = "/login", "/logout"
TRIES = "tries"
"""Stands in the state of a login that comes through a door with limits."""
COOKIE = "dither_session"
SESSION_S = 12 * 3600
FIELDS_MAX = 4
FORM_BYTES_MAX = 8 * 1024
"""Enough for a key and the longest address. Two megabytes of escapes would take half a second of the loop to read."""
FORM = b"application/x-www-form-urlencoded"
_OURS = re.compile(r"/[!-\[\]-~]{0,2000}")
"""The form of a place to go to. It has no backslash: browsers take that for a slash."""
_PAIR = re.compile(rb"(?:^|;)\s*dither_session=([!-:<-~]{1,200})")


class Login:
    """Gives sessions to those who show a read or admin key, and knows them again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def session(self, headers: dict[bytes, bytes]) -> Key | None:
        """Return the active key of a request's session, None where it has none."""
        found = _PAIR.search(headers.get(b"cookie", b""))
        if not found:
            return None
        key = self._store.keys.active(found[1].partition(b".")[0].decode("ascii"), READING)
        if key is None:
            return None
        try:
            self._signer(key).unsign(found[1], max_age=SESSION_S)
        except BadData:
            return None
        return key

    def enter(self, headers: dict[bytes, bytes], body: bytes, root: str) -> tuple[Key | None, HttpAnswer]:
        """Return the key that a form shows, and where its sender goes next; raise Problem for what is no form.

        `root` is the path of the site below which all addresses stand.
        """
        _must_be_from_here(headers)
        given = _read_form(headers, body)
        key = self._store.keys.find(given.get("key", "").strip().encode())
        place = given.get("next", "/")
        place = place if _is_ours(place) else "/"
        if key is None or key.state != ACTIVE or key.scope not in READING:
            return None, _see(f"{root}{LOGIN}?wrong=yes&next={quote(place, safe='')}")
        signed = self._signer(key).sign(key.id).decode("ascii")
        return key, _see(root + place, _cookie(headers, signed, SESSION_S, root))

    def _signer(self, key: Key) -> TimestampSigner:
        """Return what signs sessions of one key: who has an old copy of the store can sign none of a newer key."""
        secret = self._store.signing_secret(b"session " + key.digest)
        return TimestampSigner(secret, salt=b"dither session", digest_method=sha256)

    def leave(self, headers: dict[bytes, bytes], root: str) -> HttpAnswer:
        """Take a session's cookie away."""
        _must_be_from_here(headers)
        return _see(root + LOGIN, _cookie(headers, "", 0, root))


def to_login(scope: Scope) -> HttpAnswer:
    """Return the way to the login page, and back to what was asked for."""
    query = scope["query_string"].decode("ascii")
    place = scope["path"] + (f"?{query}" if query else "")
    login = scope["root_path"] + LOGIN
    return _see(f"{login}?next={quote(place, safe='')}" if _is_ours(place) and place != "/" else login)


def _is_ours(place: str) -> bool:
    """Tell whether a place is an address of ours, with a query or without, and so nowhere else.

    None has an escape: a proxy may take `%2f..` for a step up, and so out of the path of the site.
    """
    path = place.partition("?")[0]
    return bool(_OURS.fullmatch(place)) and "%" not in path and is_known(path)


def _see(place: str, *headers: tuple[bytes, bytes]) -> HttpAnswer:
    return HttpAnswer(303, [(b"location", place.encode("ascii")), (b"cache-control", b"no-store"), *headers], b"")


def _cookie(headers: dict[bytes, bytes], value: str, lasts_s: int, root: str) -> tuple[bytes, bytes]:
    """Return the header that sets the session's cookie. Only a browser on this machine may send it without TLS."""
    secure = "" if _is_local(headers) else "; Secure"
    cookie = f"{COOKIE}={value}; Max-Age={lasts_s}; Path={root or '/'}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", cookie.encode("ascii")


def _is_local(headers: dict[bytes, bytes]) -> bool:
    by_tls = list_of(headers.get(b"x-forwarded-proto", b"").lower())[:1] == [
        b"https"
    ]  # the first one's is the client's
    return is_local(name_of(headers.get(b"host", b""))) and not by_tls


def _must_be_from_here(headers: dict[bytes, bytes]) -> None:
    """Refuse a form that another site had a browser send. Browsers say so; a client that says nothing is no browser.

    Pages send no referrer, so on a connection that a browser does not trust its Origin is "null": keys need TLS.
    """
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin")
    if site is not None:
        fine = site in (b"same-origin", b"none")
    else:
        fine = origin is None or _names_origin(origin.lower(), headers.get(b"host", b"").lower())
    if not fine:
        raise Problem("malformed", "this form was not sent from a page of this site, or not over TLS")


def _names_origin(origin: bytes, host: bytes) -> bool:
    """Tell whether a Host is that of an Origin, which leaves out its scheme's own port."""
    scheme, _, name = origin.partition(b"://")
    return name in (host, host.removesuffix({b"http": b":80", b"https": b":443"}.get(scheme, b"")))


def _read_form(headers: dict[bytes, bytes], body: bytes) -> dict[str, str]:
    if len(body) > FORM_BYTES_MAX:
        raise Problem("too-large", f"a form must have at most {FORM_BYTES_MAX} bytes")
    if media_type(headers.get(b"content-type", b"")) != FORM:
        raise Problem("malformed", "send key=KEY as a form")
    try:
        given = parse_qs(body.decode("ascii"), strict_parsing=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise Problem("malformed", "send key=KEY as a form") from None
    return {name: values[-1] for name, values in given.items()}
