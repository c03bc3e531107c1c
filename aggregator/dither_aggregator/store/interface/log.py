"""The log: uploads are appended, known again by their ids, read behind the cursor, and folded."""

import hmac
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from dither_aggregator.store.folding import fold_read
from dither_aggregator.store.interface.opened import Opened
from dither_aggregator.store.packing import pack_answer, pack_head, unpack_answer
from dither_aggregator.store.records import LogRead, Poison, Receipt, RefusedCount, Segment, sum_refused
from dither_shared.wire.problems import Problem
from dither_shared.wire.reading import Refusal, Upload, all_refused

DEDUPE = timedelta(days=7)
"""How long an upload's id is remembered. A device gives an upload up a day earlier."""
DEDUPE_DAYS_MIN = 8
"""Always remember ids of the last 8 days that had uploads, even if the clock jumps."""
READ_UPLOADS_MAX = 5_000
READ_BYTES_MAX = 32 * 1024 * 1024
"""The most that a counter takes at once: it bounds the memory."""


class Prepared(NamedTuple):
    """An upload as a store takes it."""

    digest: bytes
    """The digest of its id, by which a copy is known."""
    answer: bytes
    groups: bytes
    """Its entry of the log but for the day; empty when no group was accepted."""
    counts: list[tuple[int, int]]
    """(plan, n) of each group."""
    result: Receipt | Problem
    """The answer when it is new."""
    refused: Mapping[tuple[str, str], RefusedCount]
    """The refused groups to count when it is new, by metric and reason."""


class Log(Opened):
    """Accepted uploads that are not yet folded, and the ids of all that were accepted lately."""

    @abstractmethod
    def append(self, uploads: Sequence[tuple[Upload, bytes]]) -> list[Receipt | Problem]:
        """Store uploads, given with the body each was read from, and return the answer to each, in order.

        When this returns they are durable. A Problem is the answer to an upload that is not taken: its id came before
        with another body, or no group of it was accepted (then it is not remembered). Groups that are refused are
        counted (`refused`), unless the id came before. If it raises, nothing is known to be stored.
        """

    def _prepare(self, upload: Upload, body: bytes) -> Prepared:
        ids = self._plans.ids
        packed: list[bytes] = []
        counts: list[tuple[int, int]] = []
        accepted = 0
        for plan, cell, reports, n in upload.groups:
            id_ = ids[plan.metric, plan.digest]
            packed += (pack_head(id_, cell, n, len(reports)), reports)
            counts.append((id_, n))
            accepted += n
        rejected = [refusal.to_document() for refusal in upload.refused]
        return Prepared(
            self.digest(upload.id.encode("ascii")),
            pack_answer(self.digest(body), accepted, rejected),
            b"".join(packed),
            counts,
            Receipt(upload.id, accepted, False, rejected) if counts else all_refused(upload.refused),
            self._count_refused(upload.refused),
        )

    def _count_refused(self, refused: Sequence[Refusal]) -> dict[tuple[str, str], RefusedCount]:
        plans = self._plans
        return sum_refused({(plans.known(one.metric), one.reason): RefusedCount(1, one.count)} for one in refused)

    def _repeated(self, upload: Upload, prepared: Prepared, answer: bytes) -> Receipt | Problem:
        """Return the answer to an upload whose id was answered before."""
        body, accepted, rejected = unpack_answer(answer)
        if not hmac.compare_digest(body, unpack_answer(prepared.answer)[0]):
            return Problem("upload-conflict", "this upload's id was used before with another body")
        return Receipt(upload.id, accepted, duplicate=True, rejected=rejected)

    def fold(self, shard: int) -> bool:
        """Fold the oldest of what waits in a shard's log; return whether there was anything: then call it again.

        The count happens outside the store; the commit does nothing if another counter was faster. Reports that cannot
        be counted are quarantined, and their neighbours are folded. Raises StoreError for reports of a plan that this
        process cannot read, and for a damaged log.
        """
        read = self.read_log(shard)
        if read.high == read.low:
            return False
        if any(group.plan not in self._plans.by_id for group in read.groups):
            self.refresh()
        segments, poisons = fold_read(read, {id_: item.plan.cells for id_, item in self._plans.by_id.items()})
        self.commit_fold(shard, read, segments, poisons)
        return True

    @abstractmethod
    def read_log(self, shard: int) -> LogRead:
        """Return the oldest uploads of a shard's log, READ_UPLOADS_MAX and about READ_BYTES_MAX at most."""

    @abstractmethod
    def commit_fold(self, shard: int, read: LogRead, segments: Sequence[Segment], poisons: Sequence[Poison]) -> bool:
        """Store what became of a read, and trim the log, *if the cursor is still where it was*; return whether."""
