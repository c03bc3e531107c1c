"""The outbox: what the slots hold is built into an upload, which is sent until it is answered for. In a transaction.

An upload's bytes and id never change. It is charged when a connection stands, before its first byte leaves; until then
what it costs is reserved, and it may be dropped, or built anew without what the budget no longer bears.
"""

import json

from dither.device.budget import Budget
from dither.device.file import DAY_S, DeviceFile
from dither.device.reached import reach, today
from dither.device.withdrawal import drop_slots, drop_upload, forget_unused_classes
from dither_shared.frozen import frozen
from dither_shared.rng import Rng
from dither_shared.wire import GROUPS_MAX
from dither_shared.wire.writing import WireGroup, encode_upload, new_upload_id

GIVE_UP_S = 6 * DAY_S
"""A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice."""
RETIRED_DAYS = 30
"""For so long a plan is silent that the aggregator refused as retired."""
SEE_EVERY_S = 3_600.0


@frozen
class BuiltUpload:
    """An upload whose bytes and id are frozen."""

    id: str
    body: bytes
    reports: int
    failures: int
    """How many attempts have failed so far."""


class Outbox:
    """The uploads in a device's file."""

    def __init__(self, file: DeviceFile, budget: Budget, rng: Rng) -> None:
        self._file = file
        self._budget = budget
        self._rng = rng

    # Building.

    def build(self) -> bool:
        """Move what the slots hold into a new upload, unless one is still to be sent; tell if so. Charges nothing.

        An upload takes at most GROUPS_MAX groups; what is left goes into the next.
        """
        sql = (
            "SELECT metric, plan, charge, class, cell, report FROM slot "
            "WHERE leaves <= ? AND NOT EXISTS (SELECT 1 FROM upload) LIMIT ?"
        )
        slots = self._file.execute(sql, today(self._file), GROUPS_MAX).fetchall()
        if not slots:
            return False
        upload_id, commitments = new_upload_id(self._rng.randbits), self._budget.commitments()
        groups: list[WireGroup] = []
        for metric, plan, charge, key, cell, report in slots:
            self._file.execute("DELETE FROM slot WHERE metric = ?", metric)
            price = self._budget.price(metric, charge, key)
            if self._budget.affords(commitments, metric, price, key):
                self._hold(upload_id, metric, price, key if price else None)
                groups.append((metric, plan, [json.loads(report)], cell))
                if key is None:
                    commitments.add(metric, price)
            else:
                self._file.count("spent")
        self._add(upload_id, groups)
        return bool(groups)

    def _hold(self, upload_id: str, metric: str, charge: int, key: str | None) -> None:
        self._file.execute("INSERT INTO report VALUES (?, ?, ?, ?)", upload_id, metric, charge, key)

    def _add(self, upload_id: str, groups: list[WireGroup], *, charged: bool = False) -> None:
        if groups:
            body = encode_upload(upload_id, groups)
            sql = "INSERT INTO upload (id, body, charged) VALUES (?, ?, ?)"
            self._file.execute(sql, upload_id, body, int(charged))

    def _groups(self, upload_id: str) -> list[WireGroup]:
        (body,) = self._file.one("SELECT body FROM upload WHERE id = ?", upload_id) or (b'{"groups": []}',)
        groups = json.loads(body)["groups"]
        return [(group["metric"], group["plan"], group["reports"], group.get("cell")) for group in groups]

    # Sending.

    def next(self) -> BuiltUpload | None:
        """Return the upload to send now, building one if there is none; None if nothing is due.

        Gives up uploads whose first attempt is six days old, or may be.
        """
        self._give_up()
        built = self.build()  # of what the budget bears
        first, charged = self._first()
        if first and not (built or charged or self._budget.affords_upload(first.id)):
            self._refit(first.id)
            first, _ = self._first()
        return first

    def _first(self) -> tuple[BuiltUpload | None, bool]:
        """Return the first upload, and whether it was charged."""
        sql = (
            "SELECT charged, id, body, (SELECT COUNT(*) FROM report WHERE upload = id), failures "
            "FROM upload ORDER BY place LIMIT 1"
        )
        row = self._file.one(sql)
        return (BuiltUpload(*row[1:]), bool(row[0])) if row else (None, False)

    def _give_up(self) -> None:
        self.notice_clock()
        sql = "SELECT id FROM upload WHERE first_attempt < ? OR first_attempt = 0"  # in 1970, too
        for (upload_id,) in self._file.execute(sql, self._file.clock() - GIVE_UP_S).fetchall():
            self.forget(upload_id, "given-up")

    def _refit(self, upload_id: str) -> None:
        """Build an upload anew, without what another registry's budget no longer bears. It never had a connection."""
        held = {
            metric: (charge, key)
            for metric, charge, key in self._file.execute(
                "SELECT metric, charge, class FROM report WHERE upload = ?", upload_id
            ).fetchall()
        }
        groups = self._groups(upload_id)
        drop_upload(self._file, upload_id)
        new_id = new_upload_id(self._rng.randbits)
        commitments = self._budget.commitments()
        kept = []
        for group in groups:
            charge, key = held[group[0]]
            if self._budget.affords(commitments, group[0], charge, key):
                self._hold(new_id, group[0], charge, key)
                kept.append(group)
                if key is None:
                    commitments.add(group[0], charge)
            else:
                self._file.count("spent")
        self._add(new_id, kept)

    def charge(self, upload_id: str) -> bool:
        """Charge an upload, and note that it may arrive from now on; False if it must not leave.

        That is one that was dropped meanwhile, or that another registry's budget no longer bears.
        """
        row = self._file.one("SELECT charged FROM upload WHERE id = ?", upload_id)
        if row is None:
            return False
        if not row[0]:
            if not self._budget.affords_upload(upload_id):
                return False
            self._budget.charge_upload(upload_id)
            reach(self._file)
        now = self._file.clock()
        sql = (
            "UPDATE upload SET charged = 1, sent = sent + 1, first_attempt = COALESCE(first_attempt, ?), seen = ? "
            "WHERE id = ?"
        )
        self._file.execute(sql, now, now, upload_id)
        return True

    def notice_clock(self) -> None:
        """Let the time of what was sent be over where the clock reads earlier than it was seen to since.

        How long it is since it was sent is then unknown, and later the clock may have caught up.
        """
        sql = "UPDATE upload SET first_attempt = 0 WHERE seen > ? AND first_attempt <> 0"
        self._file.execute(sql, self._file.clock())

    def see_clock(self) -> None:
        """Keep what the clock reads while an upload that was sent waits: for `notice_clock`, about once an hour."""
        now = self._file.clock()
        self._file.execute("UPDATE upload SET seen = ? WHERE seen < ?", now, now - SEE_EVERY_S)

    # Answers.

    def forget(self, upload_id: str, outcome: str, refused: int = 0) -> int:
        """Forget an upload, count its reports under `outcome`, those that were `refused` as dropped.

        Return how many came under `outcome`: none if the upload was forgotten before.
        """
        reports = drop_upload(self._file, upload_id)
        forget_unused_classes(self._file)
        refused = min(refused, reports)
        for name, count in ((outcome, reports - refused), ("dropped", refused)):
            if count:
                self._file.count(name, count)
        return reports - refused

    def retire(self, upload_id: str, places: tuple[int, ...]) -> None:
        """Silence the plans of some groups of an upload for a while, and drop what waits under them."""
        groups = self._groups(upload_id) if places else []
        for metric, plan, *_ in (groups[place] for place in places if place < len(groups)):
            until = today(self._file) + RETIRED_DAYS
            self._file.execute("INSERT OR REPLACE INTO retired VALUES (?, ?, ?)", metric, plan, until)
            if dropped := drop_slots(self._file, metric, plan):
                self._file.count("dropped", dropped)

    def split(self, upload_id: str) -> bool:
        """Put two uploads of half the groups in the place of one that is too large; False if it cannot be halved.

        They have ids of their own, so this is only for one that cannot have been stored: refused when first sent.
        """
        row = self._file.one("SELECT sent FROM upload WHERE id = ?", upload_id)
        groups = self._groups(upload_id)
        if row is None or row[0] > 1 or len(groups) < 2:
            return False
        self._file.execute("DELETE FROM upload WHERE id = ?", upload_id)
        middle = len(groups) // 2
        for half in (groups[:middle], groups[middle:]):
            new_id = new_upload_id(self._rng.randbits)
            for metric, *_ in half:
                sql = "UPDATE report SET upload = ? WHERE upload = ? AND metric = ?"
                self._file.execute(sql, new_id, upload_id, metric)
            self._add(new_id, half, charged=True)
        return True

    # Looking.

    def preview(self) -> tuple[bytes, dict[str, int]]:
        """Return what would be sent now, and its cost by metric. Builds it, so the transaction must be undone."""
        first = self.next()
        if first is None:
            return b"", {}
        sql = "SELECT metric, charge FROM report WHERE upload = ? ORDER BY metric"
        return first.body, dict(self._file.execute(sql, first.id).fetchall())

    def due(self) -> bool:
        """Tell whether anything may be sent."""
        sql = "SELECT EXISTS (SELECT 1 FROM upload) OR EXISTS (SELECT 1 FROM slot WHERE leaves <= ?)"
        row = self._file.one(sql, today(self._file))
        return bool(row and row[0])

    def waiting(self) -> int:
        """Return how many reports wait in slots and in built uploads."""
        row = self._file.one("SELECT (SELECT COUNT(*) FROM slot) + (SELECT COUNT(*) FROM report)")
        return int(row[0]) if row else 0
