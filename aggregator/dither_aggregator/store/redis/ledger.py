"""The ledger of the Redis store.

The rows of a sealed day can change in one way alone: a group is taken out of the quarantine. So the sealed days, the
most of them, are read in pieces, then the open ones in one step, with how often that has happened. A piece holds Redis
up for a moment; all of them would for long.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from dither_aggregator.store.interface.ledger import Ledger, with_pending
from dither_aggregator.store.interface.log import READ_UPLOADS_MAX
from dither_aggregator.store.packing import day_number
from dither_aggregator.store.records import Counted, StoreUnavailable, TallyKey
from dither_aggregator.store.redis import shard_scripts
from dither_aggregator.store.redis.calls import INSTANT_ATTEMPTS, PLANS_AT_ONCE, chunks
from dither_aggregator.store.redis.client import Command
from dither_aggregator.store.redis.log import READ_REDIS_BYTES_MAX
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import count_marked, ledger_of, tally_of
from dither_shared.plan import Plan


class Settled(NamedTuple):
    """A shard's rows that were read in pieces: of the days that it had sealed, and of those still open."""

    day: int
    sealed: int
    taken: int
    seen_days: list[int]
    tallies: int
    rows: dict[TallyKey, Counted]
    open_days: list[int]


class RedisLedger(RedisOpened, Ledger):
    """A hash a plan in each shard, without what is pending."""

    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return the ledger as it is at one instant, with what the log held then.

        A long log is read in pieces too: what was in it stays what it was, and is read from its end that is folded
        first. If the counters are faster, all is read again, and at last in one step.
        """
        settled = self._settled(shard)
        for _ in range(INSTANT_ATTEMPTS):
            now = self._client.run(*self._ledger_now(shard, settled))
            rows = self._rows_of(settled, now)
            if rows is None:
                settled = self._settled(shard)
                continue
            _, _, cursor, length, _ = now
            pending = self._pending(shard, cursor, cursor + length)
            if pending is not None:
                return with_pending(rows, pending)
        now, (_, _, _, *entries) = self._client.read_at_once(
            [self._ledger_now(shard, settled), self._call(shard_scripts.READ, shard, "", 1 << 52, 1 << 52)]
        )
        rows = self._rows_of(settled, now)
        if rows is None:
            raise self._too_fast(shard)
        return with_pending(rows, count_marked(entries))

    def _too_fast(self, shard: int) -> StoreUnavailable:
        return StoreUnavailable(f"{self._client.name}: shard {shard} changes faster than it can be read; try again")

    def _settled(self, shard: int) -> Settled:
        day, sealed, taken, seen_days, tallies, plans = self._run(shard_scripts.OUTLINE, shard)
        rows = ledger_of((plan, fields) for plan in plans for fields in self._scan(shard_scripts.LEDGER, shard, plan))
        days = {day_number(epoch) for _, epoch in rows}
        return Settled(
            day,
            sealed,
            taken,
            [int(seen) for seen in seen_days],
            tallies,
            {key: row for key, row in rows.items() if day_number(key[1]) <= sealed},
            sorted({day, *(open_ for open_ in days if open_ > sealed)}),
        )

    def _ledger_now(self, shard: int, settled: Settled) -> Command:
        return self._call(shard_scripts.LEDGER_NOW, shard, *settled.open_days)

    def _rows_of(self, settled: Settled, now: Any) -> dict[TallyKey, Counted] | None:
        """Return the whole ledger as it was at the instant `now`; None where what was settled has changed since."""
        day, taken, _, _, rows = now
        if (day, taken) != (settled.day, settled.taken):
            return None
        return settled.rows | ledger_of(zip(rows[::2], rows[1::2], strict=True))

    def _pending(self, shard: int, low: int, high: int) -> dict[TallyKey, int] | None:
        """Count the log above `low` and up to `high`; None where the beginning is not there any more."""
        pending: dict[TallyKey, int] = {}
        while low < high:
            uploads = min(high - low, READ_UPLOADS_MAX)
            _, _, _, *entries = self._run(shard_scripts.READ, shard, low, uploads, READ_REDIS_BYTES_MAX)
            if not entries:
                return None
            low += len(entries)
            for key, n in count_marked(entries).items():
                pending[key] = pending.get(key, 0) + n
        return pending

    def epochs(self, plan: Plan) -> list[date]:
        """Return the days on which reports of the plan were accepted."""
        id_ = self._plans.get(plan).id
        return self._epochs([id_]).get(id_, [])

    def all_epochs(self) -> dict[int, list[date]]:
        """Return the days on which reports of each plan were accepted."""
        return self._epochs(self._plan_ids())

    def _epochs(self, ids: Sequence[int]) -> dict[int, list[date]]:
        days: dict[int, set[date]] = {}
        for plans in chunks(ids, PLANS_AT_ONCE):
            for names in self._of_each_shard(shard_scripts.EPOCHS, *plans):
                for plan, epoch in map(tally_of, names):
                    days.setdefault(plan, set()).add(epoch)
        return {plan: sorted(found, reverse=True) for plan, found in days.items()}
