"""The epochs of the Redis store: days are sealed by shard, and finalized for all."""

from datetime import date, timedelta

from dither_aggregator.store.interface.epochs import Epochs
from dither_aggregator.store.interface.log import DEDUPE, DEDUPE_DAYS_MIN
from dither_aggregator.store.interface.refused import REFUSED_DAYS
from dither_aggregator.store.packing import day_number, day_of
from dither_aggregator.store.records import Final, Retention, TallyKey
from dither_aggregator.store.redis import shard_scripts, store_scripts
from dither_aggregator.store.redis.calls import PLANS_AT_ONCE, chunks
from dither_aggregator.store.redis.opened import RedisOpened
from dither_aggregator.store.redis.packing import pack_final, pairs, tally_of, unpack_final
from dither_shared.plan import Plan

FORGET_ITEMS = 500


class RedisEpochs(RedisOpened, Epochs):
    """Days of each shard, and what is recorded of them."""

    def seal(self, shard: int) -> date:
        """Close what is over in one script."""
        return day_of(self._run(shard_scripts.SEAL, shard))

    def finals(self, plan: Plan) -> dict[date, Final]:
        """Return what is kept of a plan's finalized epochs."""
        return self._finals(self._plans.get(plan).id)

    def _finals(self, plan: int) -> dict[date, Final]:
        rows = pairs(self._run_global(store_scripts.FINALS, plan))
        return {day_of(day): unpack_final(rows[str(day).encode()]) for day in sorted(map(int, rows))}

    def all_finals(self) -> set[TallyKey]:
        """Return the plans and epochs that are finalized."""
        commands = [
            self._call_global(store_scripts.FINAL_EPOCHS, *plans) for plans in chunks(self._plan_ids(), PLANS_AT_ONCE)
        ]
        return {tally_of(name) for names in self._client.run_each(commands) for name in names}

    def finalize(self, plan: Plan, epoch: date, final: Final, snapshot: bytes) -> Final:
        """Record an epoch's final digest with its snapshot, once."""
        return self._finalize(self._plans.get(plan).id, epoch, final, snapshot)

    def _finalize(self, plan: int, epoch: date, final: Final, snapshot: bytes | None) -> Final:
        content = [] if snapshot is None else [snapshot]
        arguments = plan, day_number(epoch), pack_final(final), final.snapshot, *content
        return unpack_final(self._run_global(store_scripts.FINALIZE, *arguments))

    def snapshot(self, id_: str) -> bytes | None:
        """Return a snapshot's content."""
        content: bytes | None = self._run_global(store_scripts.SNAPSHOT, id_)
        return content

    # Retention.

    def retention(self) -> Retention:
        """Return for how long tallies and snapshots are kept."""
        tallies, snapshots = self._run_global(store_scripts.GET, "tallies_days", "snapshots_days")
        return Retention(*(int(days) if days is not None else None for days in (tallies, snapshots)))

    def set_retention(self, retention: Retention) -> None:
        """Change for how long they are kept."""
        fields = [part for key, days in vars(retention).items() for part in (key, "" if days is None else days)]
        self._run_global(store_scripts.SET, *fields)

    def tallies_from(self) -> date:
        """Return the earliest epoch whose tallies are kept."""
        (day,) = self._run_global(store_scripts.GET, "tallies_from")
        return day_of(int(day))

    def forget_answers(self, shard: int) -> None:
        """Cut the answers of sealed days to what is kept of them, some by each script."""
        sealed, days = self._run(shard_scripts.ANSWERED, shard)
        for day in days:
            cursor: object = 0
            while cursor != b"0":
                cursor = self._run(shard_scripts.FORGET_ANSWERS, shard, day, cursor, FORGET_ITEMS)
        if days:
            self._run(store_scripts.SET, shard, "bare", sealed)

    def forget(self, shard: int) -> None:
        """Forget old ids and counts, and old tallies that are finalized: that they go is known before they do."""
        today = self._run(shard_scripts.FORGET_DAYS, shard, DEDUPE.days, DEDUPE_DAYS_MIN, REFUSED_DAYS)
        first = self._run_global(store_scripts.TALLIES_FROM, today)
        if first is None:
            return
        while self._run_global(store_scripts.FORGET_READINGS, first, FORGET_ITEMS):
            pass
        for names in chunks(self._run(shard_scripts.TALLIES_BEFORE, shard, first), FORGET_ITEMS):
            if final := self._run_global(store_scripts.ARE_FINAL, *names):
                self._run(shard_scripts.FORGET_TALLIES, shard, *final)

    def forget_snapshots(self) -> None:
        """Forget old snapshots."""
        days = self.retention().snapshots_days
        if days is not None:
            first = day_number(self.today() - timedelta(days=days))
            while self._run_global(store_scripts.FORGET_SNAPSHOTS, first, FORGET_ITEMS):
                pass
