"""Authentication lets in uploads with a write key, readers with a read or admin key, changes with an admin key.

Reading is open to everybody as long as nobody beyond this machine can ask and no read or admin key was ever made. Then,
and with an admin key, live figures and raw counts are told; a read key is told less (`analysis/reading.py`).
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256
from urllib.parse import parse_qs, quote

from itsdangerous import BadData, TimestampSigner

from dither_aggregator.ingest.service import Service
from dither_aggregator.store import Store
from dither_aggregator.store.document_kinds import ACTIVE, ADMIN, READING, REVOKED, WAITING, WRITE, Key
from dither_aggregator.web.addresses import EMBED, is_known, is_local, name_of
from dither_aggregator.web.http_messages import App, HttpAnswer, Scope, headers_of, list_of, media_type
from dither_aggregator.web.problems import API, DOCUMENT, nowhere
from dither_aggregator.web.process_messages import LIVE, SESSION
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem

# Sessions of people who read pages: a cookie with a key's id, signed, and worth as much as that key is at the moment.
#
# Nothing of a session is kept here. Logging out takes the cookie away; a copy that was made before is a session until
# it ends or the key is revoked.


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


ADMINISTRATION = f"{API}admin/"
STATIC = "/static/"
"""Style sheet, script and icon: the login page has them too."""
_PASSED_ON = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-prefix", b"x-real-ip")
"""Headers by which a proxy says that somebody else asks."""


class Authentication:
    """Lets requests in. `reachable` says that readers may come from beyond this machine."""

    def __init__(self, service: Service, *, reachable: bool) -> None:
        self._service = service
        self._reachable = reachable
        self._login = Login(service.store)

    def upload(self, authorization: bytes) -> Key:
        """Let an upload in by the key that it shows; raise Problem."""
        return self._bearer(authorization, WRITE)

    def administer(self, scope: Scope) -> str:
        """Return the id of the admin key that a request shows; raise Problem. A session is not enough."""
        return self._bearer(headers_of(scope).get(b"authorization", b""), ADMIN).id

    def _is_open(self, scope: Scope) -> bool:
        """Whether a request may read without a key: then it is the operator's."""
        if self._reachable or self._service.store.keys.reading_needs_key:
            return False
        return not any(name in _PASSED_ON for name, _ in scope["headers"])

    async def enter(self, scope: Scope, body: bytes, reading: App) -> HttpAnswer:
        """Have a request answered by `reading` if it may read, or here where it logs in or out; raise Problem."""
        headers, path = headers_of(scope), scope["path"]
        looks = scope["method"] in ("GET", "HEAD")  # what a session is good for: nothing that is posted
        if not looks and not is_known(path):  # a device that was led astray is told so, however the store is
            raise nowhere(scope["root_path"])
        if scope["method"] == "POST" and path in (LOGIN, LOGOUT):
            return self._form(scope, headers, body)
        if path.startswith(STATIC) or path == PATH:  # other methods than POST are told so
            return await reading(scope, body)
        if looks and path.startswith(EMBED):  # the link is the key, and the page reads it
            return unstored(await reading(scope, body))
        if self._is_open(scope):
            return await reading({**scope, LIVE: True}, body)
        if looks and (key := self._logged_in(headers)):
            return unstored(await reading({**scope, SESSION: True, LIVE: key.scope == ADMIN}, body))
        if looks and path == LOGIN:
            return unstored(await reading(scope, body))
        if looks and b"authorization" not in headers and is_known(path) and not path.startswith((API, DOCUMENT)):
            return to_login(scope)
        key = self._reading_key(scope, headers)
        return unstored(await reading({**scope, LIVE: key.scope == ADMIN}, body))

    def _form(self, scope: Scope, headers: dict[bytes, bytes], body: bytes) -> HttpAnswer:
        if scope["path"] == LOGOUT:
            return self._login.leave(headers, scope["root_path"])
        tries = scope["state"].get(TRIES)
        if tries:
            tries.check()  # again: others may have failed while the body came
        key, answer = self._login.enter(headers, body, scope["root_path"])
        if key:
            self._service.key_shown(key.id)
        elif tries:
            tries.failed()
        return answer

    def _logged_in(self, headers: dict[bytes, bytes]) -> Key | None:
        key = self._login.session(headers)
        if key:
            self._service.key_shown(key.id)
        return key

    def _reading_key(self, scope: Scope, headers: dict[bytes, bytes]) -> Key:
        """Return the key that may read; raise Problem, which tells everybody of an unknown address that it is one."""
        try:
            return self._bearer(headers.get(b"authorization", b""), *READING)
        except Problem:
            if is_known(scope["path"]):
                raise
            raise nowhere(scope["root_path"]) from None

    def _bearer(self, authorization: bytes, *scopes: str) -> Key:
        key = shown_key(self._service.store.keys.find, authorization, scopes)
        self._service.key_shown(key.id)
        return key


def shown_key(find: Callable[[bytes], Key | None], authorization: bytes, scopes: Collection[str]) -> Key:
    """Return the key of some scopes that a header shows; raise Problem."""
    scheme, _, given = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or not given.strip():
        raise Problem("key-missing", "send a key as Authorization: Bearer KEY")
    key = find(given.strip())
    if key is None or key.state == REVOKED:
        raise Problem("key-wrong", "the aggregator knows no such key, or no longer")
    if key.scope not in scopes:
        raise Problem("key-scope", f"this is a {key.scope} key, and {' or '.join(scopes)} is needed")
    if key.state == WAITING:
        raise Problem("key-waiting", "this key was replaced: the app's next version has another one")
    return key


def unstored(answer: HttpAnswer) -> HttpAnswer:
    """Have nothing of an answer kept by browsers and proxies: it is for who showed a key."""
    headers = [(name, value) for name, value in answer.headers if name != b"cache-control"]
    return replace(answer, headers=[*headers, (b"cache-control", b"no-store")])
