"""Uploads are taken or refused when a request's head is there, before its body is read.

In order: how often the client's address may send, the key, room in the store, how often the key may send. So a wrong
key costs a token of its address, and cannot use up the key's. Each process counts for itself.
"""

import logging
import math
import time
from collections import Counter
from ipaddress import ip_address

from dither_aggregator import counters
from dither_aggregator.limits import SECOND_NS, Limits
from dither_aggregator.scopes import WRITE
from dither_aggregator.service import Service
from dither_aggregator.web.answers import Scope
from dither_aggregator.web.buckets import TokenBuckets
from dither_aggregator.web.clients import Clients
from dither_aggregator.web.doors import HEALTH
from dither_aggregator.web.gate import shown_key
from dither_aggregator.web.headers import headers_of
from dither_aggregator.web.problems import note_refused
from dither_shared.wire import PATH
from dither_shared.wire.problems import Problem

SAY_EVERY_S = 60.0

_log = logging.getLogger("dither_aggregator")


class Admission:
    """Says which uploads a running service takes. For the loop's thread alone."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service = service
        self._keys = TokenBuckets(limits.by_key) if limits.by_key else None
        self._addresses = TokenBuckets(limits.by_address) if limits.by_address else None
        self._this_machine = bool(limits.this_machine or limits.trusted_proxies)
        self._clients = Clients(limits.trusted_proxies)
        self.hits: Counter[str] = Counter()
        """How many uploads each limit has refused: `address`, `key`, `backlog-full`, `disk-full`."""
        self._said: Counter[str] = Counter()
        self._said_at = -math.inf

    def admit(self, scope: Scope) -> Problem | None:
        """Return why a request is not taken, given its head; None where its body is to be read."""
        if scope["path"] != PATH or scope["method"] != "POST" or HEALTH in scope["state"]:
            return None
        problem = self._fault(scope)
        if problem:
            note_refused(problem)
        return problem

    def _fault(self, scope: Scope) -> Problem | None:
        headers = headers_of(scope)
        authorization = headers.get(b"authorization", b"")
        address = scope["client"][0] if scope["client"] else ""
        try:
            self._take_of_address(address, scope)
            key = shown_key(self._service.store.keys.find, authorization, [WRITE])
            if lack := self._service.lack:
                self._hit(lack.slug)
                return lack.problem()
            if self._keys:
                self._take("key", self._keys, key.id.encode("ascii"))
        except Problem as problem:
            return problem.with_traceback(None)
        return None

    def look(self) -> None:
        """Forget whom there is no need to know any more, and say what was refused. Cheap; to be called all the time."""
        for buckets in (self._keys, self._addresses):
            if buckets:
                buckets.forget()
        now = time.monotonic()
        if self.hits != self._said and now - self._said_at >= SAY_EVERY_S:
            new = self.hits - self._said
            _log.warning("refused by limits: %s", ", ".join(f"{count} ({why})" for why, count in sorted(new.items())))
            self._said, self._said_at = self.hits.copy(), now

    def _take_of_address(self, address: str, scope: Scope) -> None:
        if self._addresses and address and (self._this_machine or not ip_address(address).is_loopback):
            client = self._clients.client_of(address, scope["headers"])
            self._take("address", self._addresses, client.encode("ascii"))

    def _take(self, limit: str, buckets: TokenBuckets, who: bytes) -> None:
        if wait_ns := buckets.take(who):
            self._hit(limit)
            said = f"more uploads came by this {limit} than may; send the same bytes again later"
            raise Problem("too-many", said, limit=limit, retry_after_s=math.ceil(wait_ns / SECOND_NS))

    def _hit(self, limit: str) -> None:
        """Count that a limit has refused an upload."""
        self.hits[limit] += 1
        counters.limit_hit(limit.removesuffix("-full"))
