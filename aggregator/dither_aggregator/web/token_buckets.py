"""Token buckets, many and small: how often each key, and each address, may send an upload.

A bucket is one integer, the moment at which it is full again: as an arithmetic, the same as tokens that drip in. A
bucket that is full is the same as none. The owner of a bucket is kept under a keyed hash. Its key is drawn anew each
hour, and a bucket moves to the new key when it is used again. One that is not used is full by then, because no bucket
takes longer than an hour to fill: so nobody gets a second burst by the change. The old hour's key and buckets are
forgotten as soon as all of them are full.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from dither_aggregator.ingest.request_limits import HOUR_NS, Rate
from dither_aggregator.web.connection_bounds import Peers

BUCKETS_MAX = 50_000
"""That are not full, in one process: about 10 MB. More take the place of the one that was used longest ago."""

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
