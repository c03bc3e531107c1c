"""Authentication lets in uploads with a write key, readers with a read or admin key, changes with an admin key.

Reading is open to everybody as long as nobody beyond this machine can ask and no read or admin key was ever made. Then,
and with an admin key, live figures and raw counts are told; a read key is told less (`analysis/disclosure.py`).
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from dither_aggregator.ingest.service import Service
from dither_aggregator.operations.scopes import ADMIN, READING, WRITE
from dither_aggregator.store.access_keys import REVOKED, WAITING, Key
from dither_aggregator.web.http_messages import App, HttpAnswer, Scope, headers_of
from dither_aggregator.web.login import LOGIN, LOGOUT, TRIES, Login, to_login
from dither_aggregator.web.problems import API, DOCUMENT, nowhere
from dither_aggregator.web.process_messages import LIVE, SESSION
from dither_aggregator.web.url_paths import EMBED, is_known
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

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
