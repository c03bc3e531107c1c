"""Setting damaged entries of a log apart, so that what is behind them is folded. An operator asks for it.

An entry is damaged when it cannot be unpacked, or names a plan that the store does not have. Its reports cannot be
read, but the ledger knows how many they are: those accepted and not folded, not in quarantine, and in no sound entry.
No fold and no append changes that difference, so it can be computed before the step that uses it.

Those reports go into the quarantine, a group for each plan and epoch, with the damaged entries as they are on the disk.
The ledger balances again. The reports can be dropped, and not be replayed: nothing is left to count. If several entries
of a shard are damaged at once, nobody knows which held what: they are set apart together.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import islice, takewhile
from typing import NamedTuple

from dither_aggregator.store.contract import Store
from dither_aggregator.store.records import (
    NO_CELL,
    DamagedEntry,
    LogEntry,
    LogGroup,
    LogRead,
    Poison,
    StoreError,
    StoreUnavailable,
    TallyKey,
    count_pending,
    day_number,
    entry_day,
    fold_read,
    pack_entry,
    unpack_entry,
)

ATTEMPTS = 10
FOLD_UPLOADS_MAX = 500


class Damaged(NamedTuple):
    """An entry that cannot be folded by anybody."""

    one: LogEntry
    reason: str
    day: date
    """The day of the entries around it: its own cannot be trusted."""

    @property
    def kept(self) -> bytes:
        """All of it, as it is on the disk."""
        return self.one.mark + self.one.entry


class SetApart(NamedTuple):
    """The damaged entries of a shard that were set apart."""

    shard: int
    entries: list[Damaged]
    held: dict[TallyKey, int]
    """How many reports were in them, by what the ledger misses."""


def set_apart(store: Store, shard: int) -> SetApart | None:
    """Set the damaged entries of a shard's log apart; None where there are none.

    Raises StoreError where the ledger does not say what they held: then it is damaged as well.
    """
    for _ in range(ATTEMPTS):
        found = find_damaged_entries(store, shard)
        if not found:
            return None
        _fold_before(store, shard, found[0].one)
        held = _held(store, shard, found)
        if not held and find_damaged_entries(store, shard) == found:  # else somebody else has set them apart
            raise StoreError(
                f"shard {shard}: the ledger does not say what the {len(found)} damaged entries of its log held, so it "
                "is damaged as well. Restore a backup: `dither restore`"
            )
        oldest, *others = found
        empty = {each.one: pack_entry(day_number(each.day), b"") for each in others}
        if store.set_apart(shard, oldest.one, empty, list(_poisons(found, held))):
            return SetApart(shard, found, held)
    raise StoreUnavailable(f"the log of shard {shard} changes faster than it can be read; try again")


def find_damaged_entries(store: Store, shard: int) -> list[Damaged]:
    """Return the damaged entries of a shard's log, oldest first."""
    found: list[tuple[LogEntry, str, date | None]] = []
    first = last = None
    for one in store.log_entries(shard):
        if reason := _damage(store, one.entry):
            found.append((one, reason, last))
        else:
            last = entry_day(one.entry)
            first = first or last
    today = store.status()[shard].day
    return [Damaged(one, reason, before or first or today) for one, reason, before in found]


def _damage(store: Store, entry: bytes) -> str:
    try:
        for group in unpack_entry(entry):
            store.plan_by_id(group.plan)
    except DamagedEntry as error:
        return error.how
    except KeyError as error:
        return f"it is of plan {error}, which the store does not have"
    return ""


def _fold_before(store: Store, shard: int, oldest: LogEntry) -> None:
    """Fold the sound entries before the oldest damaged one: who counts reads it with them, and gives up."""
    while before := list(
        islice(takewhile(lambda one: one.place < oldest.place, store.log_entries(shard)), FOLD_UPLOADS_MAX)
    ):
        groups = [group for one in before for group in unpack_entry(one.entry)]
        read = LogRead(before[0].place - 1, before[-1].place, groups, before[-1].mark)
        plans = {group.plan: store.plan_by_id(group.plan).plan.cells for group in groups}
        store.commit_fold(shard, read, *fold_read(read, plans))


def _held(store: Store, shard: int, found: Sequence[Damaged]) -> dict[TallyKey, int]:
    """Return how many reports of each plan and epoch the ledger misses; nothing where that cannot be what they held."""
    missing = {
        key: row.accepted - row.folded - row.pending - row.quarantined for key, row in store.shard_ledger(shard).items()
    }
    for key, n in count_pending(each.one.entry for each in found).items():  # the ledger took those for sound
        missing[key] = missing.get(key, 0) + n
    held = {key: n for key, n in sorted(missing.items()) if n}
    return held if min(held.values(), default=0) > 0 else {}


def _poisons(found: Sequence[Damaged], held: Mapping[TallyKey, int]) -> Iterator[Poison]:
    which = ", ".join(f"{each.one.place} ({len(each.kept):,} bytes: {each.reason})" for each in found)
    kept = b"".join(each.kept for each in found)
    for (plan, epoch), n in held.items():
        yield Poison(LogGroup(plan, NO_CELL, epoch, n, kept), f"damaged in the log: {which}")
