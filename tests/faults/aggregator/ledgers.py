"""The account that a shard gives of itself at any instant: its cursor, its days, its ledger and its segments."""

from collections.abc import Mapping, Sequence

from dither_aggregator.store.records import Counted, Segment, ShardStatus, TallyKey

ShardLedger = Mapping[TallyKey, Counted]


def check_status(status: ShardStatus, before: ShardStatus | None) -> None:
    name = f"shard {status.shard}"
    assert 0 <= status.cursor <= status.written, f"{name}: the cursor is {status.cursor}, {status.written} were written"
    behind = status.written - status.cursor
    assert status.backlog == behind, f"{name}: the log holds {status.backlog} uploads, and {behind} are not folded"
    assert status.sealed < status.day, f"{name}: {status.sealed} is sealed, and reports count on {status.day}"
    assert status.merged <= status.sealed, f"{name}: {status.merged} is merged, and only {status.sealed} is sealed"
    if before:
        for what in ("written", "cursor", "day", "sealed", "merged"):
            was, now = getattr(before, what), getattr(status, what)
            assert now >= was, f"{name}: its {what} went back from {was} to {now}"


def check_shard_ledger(status: ShardStatus, ledger: ShardLedger) -> None:
    for (plan, epoch), row in ledger.items():
        name = f"shard {status.shard}, plan {plan} on {epoch}"
        assert min(row.pending, *row.kept) >= 0, f"{name}: the ledger has a negative number: {row}"
        there = row.folded + row.pending + row.quarantined
        assert row.accepted == there, f"{name}: {row.accepted} reports were accepted, {there} are there: {row}"
        assert row.dropped <= row.quarantined, (
            f"{name}: {row.dropped} of {row.quarantined} quarantined reports were dropped"
        )
        assert epoch > status.sealed or not row.pending, f"{name}: {row.pending} reports are pending in a sealed epoch"


def check_since(status: ShardStatus, before: ShardLedger, now: ShardLedger) -> None:
    """Compare two ledgers of a shard: nothing that was folded is gone, and nothing entered what was sealed then."""
    for plan, epoch in before.keys() | now.keys():
        name = f"shard {status.shard}, plan {plan} on {epoch}"
        was, row = before.get((plan, epoch), Counted()), now.get((plan, epoch), Counted())
        assert row.folded >= was.folded, f"{name}: {was.folded} reports were folded, and now {row.folded} are"
        if epoch <= status.sealed:
            entered, folded = row.accepted - was.accepted, row.folded - was.folded
            assert entered <= 0, f"{name}: {entered} reports entered a sealed epoch"
            assert folded == 0, f"{name}: {folded} reports were folded in a sealed epoch"


def check_segments(name: str, segments: Sequence[Segment], cursor: int) -> None:
    last = 0
    for segment in segments:
        assert last <= segment.low < segment.high, (
            f"{name}: a segment goes from {segment.low} to {segment.high}, behind one that ends at {last}"
        )
        last = segment.high
    assert last <= cursor, f"{name}: a segment ends at {last}, and the cursor is {cursor}"
