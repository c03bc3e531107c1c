"""The outbox: what the slots hold is built into an upload, charged and frozen, and sent until it is answered for.

Within a transaction. An upload's bytes and id never change. One process sends at a time: it holds a lease, which ends
by itself if the process does.
"""

import json
import os

from dither.device.budget import Budget
from dither.device.file import DAY_S, DeviceFile
from dither_shared.frozen import frozen
from dither_shared.rng import Rng
from dither_shared.wire import GROUPS_MAX, encode_upload, new_upload_id

GIVE_UP_S = 6 * DAY_S
"""A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice."""
LEASE_S = 120.0
"""Longer than an attempt takes; should one take longer, two processes send the same bytes under the same id."""
PLAN_MAX_S = 36 * 3_600.0
"""No attempt is planned further ahead than this: a plan that lies there was made by another clock."""


@frozen
class BuiltUpload:
    """An upload whose bytes and id are frozen and whose reports are charged."""

    id: str
    body: bytes
    reports: int
    attempts: int
    """How often it was sent, this time included."""


class Outbox:
    """The uploads in a device's file."""

    def __init__(self, file: DeviceFile, budget: Budget, rng: Rng) -> None:
        self._file = file
        self._budget = budget
        self._rng = rng
        self._token = os.urandom(8).hex()

    def build(self) -> None:
        """Move what the slots hold into a new upload and charge it, unless one is still to be sent.

        An upload takes at most GROUPS_MAX groups; what is left goes into the next.
        """
        if self._file.one("SELECT 1 FROM upload"):
            return
        sql = "SELECT metric, plan, charge, class, cohort, report FROM slot WHERE leaves <= ? LIMIT ?"
        groups = []
        cost: dict[str, int] = {}
        for metric, plan, charge, key, cohort, report in self._file.execute(
            sql, self._file.today(), GROUPS_MAX
        ).fetchall():
            self._file.execute("DELETE FROM slot WHERE metric = ?", metric)
            if self._budget.charge(metric, charge, key):
                cost[metric] = charge
                groups.append((metric, plan, [json.loads(report)], cohort))
            else:
                self._file.count("spent")
        if groups:
            upload_id = new_upload_id(self._rng.randbits)
            self._add(upload_id, encode_upload(upload_id, groups), cost)

    def _add(self, upload_id: str, body: bytes, cost: dict[str, int]) -> None:
        self._file.execute(
            "INSERT INTO upload (id, body, reports, cost) VALUES (?, ?, ?, ?)",
            upload_id, body, len(cost), json.dumps(cost),
        )  # fmt: skip

    def next(self) -> BuiltUpload | None:
        """Return the upload to send now, marked as sent, building one if there is none; None if nothing is due.

        Gives up uploads whose first attempt is six days old, or lies in the future.
        """
        now = self._file.clock()
        today = self._file.today()
        # A clock that was set back does not tell how long it is since; the latest day that was ever used does.
        latest_day = today - GIVE_UP_S // DAY_S if today > self._file.clock_day() else -1
        sql = "SELECT id FROM upload WHERE first_attempt < ? OR last_attempt > ? OR first_day <= ?"
        for (upload_id,) in self._file.execute(sql, now - GIVE_UP_S, now, latest_day).fetchall():
            self.forget(upload_id, "given-up")
        self.build()
        first = self._file.one("SELECT place FROM upload ORDER BY place LIMIT 1")
        if not first:
            return None
        self._file.execute(
            "UPDATE upload SET attempts = attempts + 1, sent = sent + 1, last_attempt = ?, "
            "first_attempt = COALESCE(first_attempt, ?), first_day = COALESCE(first_day, ?) WHERE place = ?",
            now, now, today, first[0],
        )  # fmt: skip
        sql = "SELECT id, body, reports, attempts FROM upload WHERE place = ?"
        return BuiltUpload(*self._file.one(sql, first[0]) or ())

    def notice_clock(self) -> None:
        """Let the time of what was sent be over where the clock now reads earlier: later it may have caught up."""
        if self._file.today() > self._file.clock_day():
            self._file.execute("UPDATE upload SET first_attempt = 0 WHERE last_attempt > ?", self._file.clock())

    def not_sent(self, upload_id: str) -> None:
        """Take back that an upload was sent: the attempt got no connection."""
        self._file.execute("UPDATE upload SET sent = sent - 1 WHERE id = ? AND sent > 0", upload_id)
        self._file.execute(
            "UPDATE upload SET first_attempt = NULL, last_attempt = NULL, first_day = NULL WHERE NOT sent"
        )

    def forget(self, upload_id: str, outcome: str, refused: int = 0) -> int:
        """Forget an upload, count its reports under `outcome`, those that were `refused` as dropped.

        Return how many came under `outcome`: none if the upload was forgotten before.
        """
        row = self._file.one("SELECT reports FROM upload WHERE id = ?", upload_id)
        if row is None:
            return 0
        self._file.execute("DELETE FROM upload WHERE id = ?", upload_id)
        refused = min(refused, row[0])
        for name, count in ((outcome, row[0] - refused), ("dropped", refused)):
            if count:
                self._file.count(name, count)
        return int(row[0]) - refused

    def split(self, upload_id: str) -> bool:
        """Put two uploads of half the groups in the place of one that is too large; False if it cannot be halved.

        They have ids of their own, so this is only for one that cannot have been stored: refused when first sent.
        """
        row = self._file.one("SELECT body, cost, sent FROM upload WHERE id = ?", upload_id)
        if row is None or row[2] > 1:
            return False
        groups = json.loads(row[0])["groups"]
        if len(groups) < 2:
            return False
        cost = json.loads(row[1])
        self._file.execute("DELETE FROM upload WHERE id = ?", upload_id)
        middle = len(groups) // 2
        for half in (groups[:middle], groups[middle:]):
            new_id = new_upload_id(self._rng.randbits)
            as_groups = [(group["metric"], group["plan"], group["reports"], group.get("cohort")) for group in half]
            self._add(
                new_id, encode_upload(new_id, as_groups), {group["metric"]: cost[group["metric"]] for group in half}
            )
        return True

    def preview(self) -> tuple[bytes, dict[str, int]]:
        """Return what would be sent now, and its cost by metric. Builds it, so the transaction must be undone."""
        self.build()
        row = self._file.one("SELECT body, cost FROM upload ORDER BY place LIMIT 1")
        return (row[0], json.loads(row[1])) if row else (b"", {})

    # When.

    def lease(self) -> float:
        """Take or renew the lease and return 0, or return until when another process has it."""
        now = self._file.clock()
        until: float = self._file.get("lease_until") or 0.0
        # One that would last much longer was taken by another clock.
        if now < until <= now + 2 * LEASE_S and self._file.get("lease_holder") != self._holder():
            return until
        self._file.set("lease_until", now + LEASE_S)
        self._file.set("lease_holder", self._holder())
        return 0.0

    def release(self) -> None:
        """End the lease, unless another process has it by now."""
        if self._file.get("lease_holder") == self._holder():
            self._file.set("lease_until", None)

    def _holder(self) -> str:
        return f"{os.getpid()} {self._token}"

    def due(self) -> bool:
        """Tell whether anything may be sent."""
        sql = "SELECT EXISTS (SELECT 1 FROM upload) OR EXISTS (SELECT 1 FROM slot WHERE leaves <= ?)"
        row = self._file.one(sql, self._file.today())
        return bool(row and row[0])

    def waiting(self) -> int:
        """Return how many reports wait in slots and in built uploads."""
        both = "SELECT (SELECT COUNT(*) FROM slot) + (SELECT COALESCE(SUM(reports), 0) FROM upload)"
        row = self._file.one(both)
        return int(row[0]) if row else 0

    def planned(self, delay_s: float) -> float:
        """Return when the next attempt is planned; plan one in `delay_s` if none is."""
        now = self._file.clock()
        when: float | None = self._file.get("planned")
        if when is None or when > now + PLAN_MAX_S:
            when = now + delay_s
            self._file.set("planned", when)
        return when

    def plan(self, when: float | None, not_before: float | None = None) -> None:
        """Plan the next attempt, in seconds since 1970, or none; `not_before` is the aggregator's wish."""
        for key, value in (("planned", when), ("not_before", not_before)):
            if value != self._file.get(key):
                self._file.set(key, value)

    def told_to_wait(self) -> bool:
        """Tell whether the aggregator has asked to be left alone for now."""
        until: float = self._file.get("not_before") or 0.0
        return self._file.clock() < until <= self._file.clock() + PLAN_MAX_S
