"""Uploads are taken or refused when a request's head is there, before its body is read; logins and changes, likewise.

In order: how often the client's address may send, the key, capacity of the store, how often the key may send. So a
wrong key costs a token of its address, and cannot use up the key's. Each process counts for itself.
"""

import hashlib
import logging
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from dither_aggregator.ingest import process_counters
from dither_aggregator.ingest.service import Service
from dither_aggregator.store.document_kinds import ADMIN, READING, WRITE, Key
from dither_aggregator.web.addresses import KEY_IN_BODY, BasePath, Origins, is_known, is_preflight
from dither_aggregator.web.authentication import ADMINISTRATION, LOGIN, LOGOUT, TRIES, shown_key
from dither_aggregator.web.endpoints import LOAD, another_is_read
from dither_aggregator.web.http_messages import Peers, Scope, headers_of
from dither_aggregator.web.listeners import HEALTH, Admitting
from dither_aggregator.web.problems import note_refused
from dither_aggregator.web.process_messages import ASKED_BYTES_MAX
from dither_aggregator.web.request_limits import HOUR_NS, SECOND_NS, Clients, Limits, Rate
from dither_shared.wire import PATH
from dither_shared.wire.reading import Problem

# Token buckets, many and small: how often each key, and each address, may send an upload.
#
# A bucket is one integer, the moment at which it is full again: as an arithmetic, the same as tokens that drip in. A
# bucket that is full is the same as none. The owner of a bucket is kept under a keyed hash. Its key is drawn anew each
# hour, and a bucket moves to the new key when it is used again. One that is not used is full by then, because no bucket
# takes longer than an hour to fill: so nobody gets a second burst by the change. The old hour's key and buckets are
# forgotten as soon as all of them are full.


BUCKETS_MAX = 50_000
"""A process keeps at most so many buckets that are not full, about 10 MB. A new one takes the place of the one that
was used longest ago."""

NETWORK_RATE = 4
"""Times as much for an IPv6 network of 48 bits as for one of 64. A mobile operator gives each phone one of 64: as many
as behind a large NAT may share one of 48."""


class _Hour:
    """TokenBuckets under one key: who it is of, hashed, and when it is full. The one used longest ago comes first."""

    def __init__(self, now: int) -> None:
        self.since = now
        self.full_at: OrderedDict[bytes, int] = OrderedDict()  # a dict walks over all that it let go of in front
        self._key = secrets.token_bytes(32)

    def forget(self, now: int) -> None:
        """Forget who is full, as far as they come first."""
        while self.full_at and next(iter(self.full_at.values())) <= now:
            self.full_at.popitem(last=False)

    def name(self, who: bytes) -> bytes:
        """Return under which name somebody is kept."""
        return hashlib.blake2b(who, key=self._key, digest_size=12).digest()


class TokenBuckets:
    """A bucket for each that asks, of one process and one thread. `clock` never goes back, in nanoseconds."""

    def __init__(
        self, rate: Rate, buckets_max: int = BUCKETS_MAX, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._rate = rate
        self._max = buckets_max
        self._clock = clock
        self._hour = _Hour(clock())
        self._before: _Hour | None = None

    @property
    def held(self) -> int:
        """How many buckets are remembered."""
        return len(self._hour.full_at) + (len(self._before.full_at) if self._before else 0)

    def take(self, who: bytes, tokens: int = 1) -> int:
        """Take a token, or with `tokens` 0 look for one; return 0, or after how many nanoseconds there will be one."""
        now = self._clock()
        self._turn(now)
        name = self._hour.name(who)
        full_at = self._hour.full_at.pop(name, None)
        if full_at is None and self._before:
            full_at = self._before.full_at.pop(self._before.name(who), None)
        full_at = max(full_at or now, now)
        wait_ns = max(full_at + self._rate.interval_ns - now - self._rate.full_after_ns, 0)
        full_at += 0 if wait_ns else tokens * self._rate.interval_ns
        if full_at > now:
            self._hour.full_at[name] = full_at
        if self.held > self._max:
            (self._before or self._hour).full_at.popitem(last=False)
            self._turn(now)
        return wait_ns

    def forget(self) -> None:
        """Forget what is full, and who it was of. To be called now and then where nobody may ask for long."""
        now = self._clock()
        self._turn(now)
        for hour in (self._hour, self._before):
            if hour:
                hour.forget(now)

    def _turn(self, now: int) -> None:
        """Begin a new hour when one is over; let go of the old one when nothing of it matters."""
        if now - self._hour.since >= HOUR_NS:
            self._hour, self._before = _Hour(now), self._hour
        if self._before and (not self._before.full_at or now - self._hour.since >= self._rate.full_after_ns):
            self._before = None


class PeerBuckets:
    """A bucket for each of the networks that a client is in: a wider one has NETWORK_RATE times as much."""

    def __init__(
        self, rate: Rate, buckets_max: int = BUCKETS_MAX, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._levels = [TokenBuckets(each, buckets_max, clock) for each in (rate, rate.times(NETWORK_RATE))]

    def take(self, peers: Peers, tokens: int = 1) -> int:
        """Take a token of each, or look; return 0, or how long there is none. One without leaves the wider one alone.

        So a client that asks too often uses up nothing of its neighbours'.
        """
        for buckets, peer in zip(self._levels, peers, strict=False):
            if wait_ns := buckets.take(peer.encode("ascii"), tokens):
                return wait_ns
        return 0

    def forget(self) -> None:
        """Forget what is full, and whose it was."""
        for buckets in self._levels:
            buckets.forget()


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
