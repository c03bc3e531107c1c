"""Uploads are taken or refused when a request's head is there, before its body is read; logins and changes, likewise.

In order: how often the client's address may send, the key, capacity of the store, how often the key may send. So a
wrong key costs a token of its address, and cannot use up the key's. Each process counts for itself.
"""

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.request_limits import SECOND_NS, Limits
from dither_aggregator.ingest.service import Service
from dither_aggregator.operations.scopes import ADMIN, READING, WRITE
from dither_aggregator.store.access_keys import Key
from dither_aggregator.web.admin_requests import LOAD, another_is_read
from dither_aggregator.web.allowed_origins import KEY_IN_BODY, Origins, is_preflight
from dither_aggregator.web.authentication import ADMINISTRATION, shown_key
from dither_aggregator.web.client_addresses import Clients
from dither_aggregator.web.connection_bounds import Peers
from dither_aggregator.web.http_messages import Scope, headers_of
from dither_aggregator.web.listeners import HEALTH, Admitting
from dither_aggregator.web.login import LOGIN, LOGOUT, TRIES
from dither_aggregator.web.problems import note_refused
from dither_aggregator.web.process_messages import ASKED_BYTES_MAX
from dither_aggregator.web.token_buckets import PeerBuckets, TokenBuckets
from dither_aggregator.web.url_paths import BasePath, is_known
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

SAY_EVERY_S = 60.0
TRIERS_MAX = 10_000
"""Addresses and networks whose failed logins are remembered, a fifth of those of uploads."""
EVERYBODY = b""

_log = logging.getLogger("dither_aggregator")


class Admission(Admitting):
    """Says which uploads and logins a running service takes. For the loop's thread alone."""

    def __init__(self, service: Service, limits: Limits, base_path: BasePath | None = None) -> None:
        self.base_path = base_path or BasePath()
        self._service = service
        self._keys = TokenBuckets(limits.by_key) if limits.by_key else None
        self._addresses = PeerBuckets(limits.by_address) if limits.by_address else None
        self._failed = PeerBuckets(limits.failed_logins, TRIERS_MAX)
        self._all_failed = TokenBuckets(limits.all_failed_logins)
        self._long = TokenBuckets(limits.long_bodies)
        self._this_machine = bool(limits.this_machine or limits.trusted_proxies)
        self.origins = Origins(limits.origins)
        self._clients = Clients(limits.trusted_proxies)
        self.hits: Counter[str] = Counter()
        """How many requests each limit has refused: `address`, `key`, `login`, `long`, `backlog-full` and so on."""
        self._logged: Counter[str] = Counter()
        self._logged_at = -math.inf

    def admit(self, scope: Scope) -> Problem | None:
        """Return why a request is not taken, given its head; None where its body is to be read."""
        if HEALTH in scope["state"]:
            return None
        try:
            if is_preflight(scope):
                self.origins.check(scope)
            elif scope["method"] != "POST":
                return None
            elif scope["path"] == PATH:
                self._check_upload(scope)
            elif scope["path"] == LOGIN:
                scope["state"][TRIES] = tries = Tries(self, self._peers(scope))
                tries.check()
            elif scope["path"].startswith(ADMINISTRATION) and is_known(scope["path"]):
                self._check_change(scope)
            elif scope["path"] != LOGOUT and is_known(scope["path"]):
                self._check_asked(scope)
        except Problem as problem:
            note_refused(problem)
            return problem.with_traceback(None)
        return None

    def _check_upload(self, scope: Scope) -> None:
        if self._addresses:
            self._take("address", self._addresses.take(self._peers(scope)))
        simple = self.origins.is_simple(scope)
        key = None if simple else self._shown_key(scope, WRITE)
        if capacity_problem := self._service.capacity_problem:
            self._hit(capacity_problem.slug)
            raise capacity_problem.problem()
        if key:
            self.check_rate(key)
        else:
            scope["state"][KEY_IN_BODY] = self.check_rate

    def check_rate(self, key: Key) -> None:
        """Refuse an upload where too many come with its key."""
        if self._keys:
            self._take("key", self._keys.take(key.id.encode("ascii")))

    def _check_change(self, scope: Scope) -> None:
        """Refuse a change whose body would be read for nothing."""
        headers = headers_of(scope)
        self._shown_key(scope, ADMIN)
        if scope["path"] == LOAD:
            if self._service.loading.locked():
                raise another_is_read()
            self._take_long()
        elif b"transfer-encoding" in headers:
            raise Problem("length-required", "send Content-Length")
        elif int(headers.get(b"content-length", 0)) > ASKED_BYTES_MAX:
            raise Problem("too-large", f"the body must have at most {ASKED_BYTES_MAX:,} bytes")

    def _check_asked(self, scope: Scope) -> None:
        """Refuse a question whose body, a list of candidates, would be read for nothing, or comes too soon."""
        if self._service.store.keys.reading_needs_key:
            self._shown_key(scope, *READING)
        headers = headers_of(scope)
        if b"transfer-encoding" in headers or int(headers.get(b"content-length", 0)) > ASKED_BYTES_MAX:
            self._take_long()

    def _take_long(self) -> None:
        self._take("long", self._long.take(EVERYBODY), "long bodies come too often; send the same bytes again later")

    def _shown_key(self, scope: Scope, *scopes: str) -> Key:
        return shown_key(self._service.store.keys.find, headers_of(scope).get(b"authorization", b""), scopes)

    def check_login(self, peers: Peers) -> None:
        """Refuse a login where too many have failed."""
        wait_ns = max(self._failed.take(peers, 0), self._all_failed.take(EVERYBODY, 0))
        self._take("login", wait_ns, "too many logins failed: log in later; who is logged in stays so")

    def login_failed(self, peers: Peers) -> None:
        """Count a login that failed."""
        self._failed.take(peers)
        self._all_failed.take(EVERYBODY)

    def look(self) -> None:
        """Forget whom there is no need to know any more, and say what was refused. Cheap; to be called all the time."""
        for buckets in (self._keys, self._addresses, self._failed, self._all_failed, self._long):
            if buckets:
                buckets.forget()
        now = time.monotonic()
        if self.hits != self._logged and now - self._logged_at >= SAY_EVERY_S:
            new = self.hits - self._logged
            _log.warning(
                "refused by limits: %s", ", ".join(f"{count} ({limit})" for limit, count in sorted(new.items()))
            )
            self._logged, self._logged_at = self.hits.copy(), now

    def _peers(self, scope: Scope) -> Peers:
        """Return whom a request counts for; nobody where limits by address do not hold for it."""
        address = scope["client"][0] if scope["client"] else ""
        if not address or (_is_loopback(address) and not self._this_machine):
            return ()
        return self._clients.client_of(address, scope["headers"])

    def _take(self, limit: str, wait_ns: int, message: str = "") -> None:
        """Refuse a request that has to wait."""
        if wait_ns:
            self._hit(limit)
            message = message or f"more uploads came by this {limit} than may; send the same bytes again later"
            raise Problem("too-many", message, limit=limit, retry_after_s=math.ceil(wait_ns / SECOND_NS))

    def _hit(self, limit: str) -> None:
        """Count that a limit has refused a request."""
        self.hits[limit] += 1
        process_counters.limit_hit(limit.removesuffix("-full"))


@lru_cache(4_096)  # it is asked for each upload, and a connection brings many
def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback


@dataclass(frozen=True)
class Tries:
    """The logins of one client. They stand in the state of its request: authentication learns of them there."""

    admission: Admission
    peers: Peers

    def check(self) -> None:
        """Refuse a login where too many have failed; raise Problem."""
        self.admission.check_login(self.peers)

    def failed(self) -> None:
        """Count one that failed."""
        self.admission.login_failed(self.peers)
