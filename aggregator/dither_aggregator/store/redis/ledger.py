"""The ledger of the Redis store."""

from collections.abc import Sequence
from datetime import date

from dither_aggregator.store.interface.ledger import Ledger, with_pending
from dither_aggregator.store.interface.log import READ_UPLOADS_MAX
from dither_aggregator.store.records import Counted, TallyKey
from dither_aggregator.store.redis import scripts
from dither_aggregator.store.redis.calls import INSTANT_ATTEMPTS, PLANS_AT_ONCE, chunks
from dither_aggregator.store.redis.log import READ_REDIS_BYTES_MAX
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import count_marked, ledger_of, tally_of
from dither_shared.plan import Plan


class RedisLedger(RedisOpened, Ledger):
    """A hash a plan in each shard, without what is pending."""

    def shard_ledger(self, shard: int) -> dict[TallyKey, Counted]:
        """Return the ledger as it is at one instant, with what the log held then.

        A long log is read in pieces, for each holds up every other call: what was in it stays what it was, and is read
        from its end that is folded first. Where the counters are faster all is done again, and at last in one step.
        """
        for _ in range(INSTANT_ATTEMPTS):
            cursor, length, *rows = self._run(scripts.LEDGER, shard)
            pending = self._pending(shard, cursor, cursor + length)
            if pending is not None:
                return with_pending(ledger_of(rows), pending)
        (_, length, *rows), (_, _, _, *entries) = self._client.read_at_once(
            [
                self._call(scripts.LEDGER, shard),
                self._call(scripts.READ, shard, "", 1 << 52, 1 << 52),
            ],
        )
        return with_pending(ledger_of(rows), count_marked(entries))

    def _pending(self, shard: int, low: int, high: int) -> dict[TallyKey, int] | None:
        """Count the log above `low` and up to `high`; None where the beginning is not there any more."""
        pending: dict[TallyKey, int] = {}
        while low < high:
            uploads = min(high - low, READ_UPLOADS_MAX)
            _, _, _, *entries = self._run(scripts.READ, shard, low, uploads, READ_REDIS_BYTES_MAX)
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
            for names in self._of_each_shard(scripts.EPOCHS, *plans):
                for plan, epoch in map(tally_of, names):
                    days.setdefault(plan, set()).add(epoch)
        return {plan: sorted(found, reverse=True) for plan, found in days.items()}
