"""The outbox: what the slots hold is built into an upload, which is sent until it is answered for. In a transaction.

An upload's bytes and id never change. It is charged when a connection stands, before its first byte leaves; until then
what it costs is reserved, and it may be dropped, or built anew without what the budget no longer bears.

At most one report of a metric leaves on a day of the aggregator's. One may have come on any day until it is forgotten;
from then on the next waits for another day.

`Outbox` owns the tables `upload`, `report`, `retired` and `left_on`, and takes what the slots hold into an upload.
`SendSchedule` has when the device sends next, and what became of the last attempt: its moments are kept across
restarts, and none depends on an answer to a metric whose presence is hidden.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from dither.device.file import DAY_S, DeviceFile
from dither.device.recording import RETIRED_DAYS, Budget, Days, drop_slots
from dither_shared.frozen import frozen
from dither_shared.registry import Metric
from dither_shared.rng import Rng
from dither_shared.wire import GROUPS_MAX, WireGroup, encode_upload, new_upload_id

GIVE_UP_S = 6 * DAY_S
"""A sent upload is given up a day before the aggregator forgets its id: a later copy could be counted twice."""
SEE_EVERY_S = 3_600.0
_FREE_SLOT = "leaves <= ? AND metric NOT IN (SELECT metric FROM left_on WHERE day >= ?)"
_FREE_UPLOAD = "NOT EXISTS (SELECT 1 FROM report JOIN left_on USING (metric) WHERE upload = id AND day >= ?)"
"""A slot, or an upload, whose metrics have had no other report leave: on the day that it is built for, or today."""


@frozen
class BuiltUpload:
    """An upload whose bytes and id are frozen."""

    id: str
    body: bytes
    reports: int
    failures: int
    """How many attempts have failed so far."""


class Outbox:
    """The reports that wait in a device's file, and how they leave."""

    def __init__(self, file: DeviceFile, days: Days, budget: Budget, rng: Rng) -> None:
        self._file = file
        self._days = days
        self._budget = budget
        self._rng = rng

    # Building.

    def build(self) -> bool:
        """Move what the slots hold into a new upload, unless one is still to be sent; tell if so. Charges nothing.

        A slot stays if a report of its metric has left today. An upload takes at most GROUPS_MAX groups; what is left
        goes into the next.
        """
        columns = "metric, plan, charge, class, cell, report"
        sql = f"SELECT {columns} FROM slot WHERE {_FREE_SLOT} AND NOT EXISTS (SELECT 1 FROM upload) LIMIT ?"  # noqa: S608
        slots = self._file.execute(sql, (self._days.today(), self._days.builds_on(), GROUPS_MAX)).fetchall()
        if not slots:
            return False
        self._file.end_era()
        upload_id, commitments = new_upload_id(self._rng.randbits), self._budget.commitments()
        groups: list[WireGroup] = []
        for metric, plan, charge, key, cell, report in slots:
            self._file.execute("DELETE FROM slot WHERE metric = ?", (metric,))
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
        self._file.execute("INSERT INTO report VALUES (?, ?, ?, ?)", (upload_id, metric, charge, key))

    def _add(self, upload_id: str, groups: list[WireGroup], *, charged: bool = False) -> None:
        if groups:
            body = encode_upload(upload_id, groups)
            sql = "INSERT INTO upload (id, body, charged) VALUES (?, ?, ?)"
            self._file.execute(sql, (upload_id, body, int(charged)))

    def _groups(self, upload_id: str) -> list[WireGroup]:
        (body,) = self._file.execute("SELECT body FROM upload WHERE id = ?", (upload_id,)).fetchone() or (
            b'{"groups": []}',
        )
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
        columns = "charged, id, body, (SELECT COUNT(*) FROM report WHERE upload = id), failures"
        sql = f"SELECT {columns} FROM upload WHERE {_FREE_UPLOAD} ORDER BY place LIMIT 1"  # noqa: S608 - our own words
        row = self._file.execute(sql, (self._days.of_aggregator()[0],)).fetchone()
        return (BuiltUpload(*row[1:]), bool(row[0])) if row else (None, False)

    def _give_up(self) -> None:
        self.notice_clock()
        sql = "SELECT id FROM upload WHERE first_attempt < ? OR first_attempt = 0"  # in 1970, too
        for (upload_id,) in self._file.execute(sql, (self._file.clock() - GIVE_UP_S,)).fetchall():
            self.forget(upload_id, "given-up")

    def _refit(self, upload_id: str) -> None:
        """Build an upload anew, without what another registry's budget no longer bears. It never had a connection."""
        held = {
            metric: (charge, key)
            for metric, charge, key in self._file.execute(
                "SELECT metric, charge, class FROM report WHERE upload = ?", (upload_id,)
            ).fetchall()
        }
        groups = self._groups(upload_id)
        self._drop_upload(upload_id)
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
        row = self._file.execute("SELECT charged FROM upload WHERE id = ?", (upload_id,)).fetchone()
        if row is None:
            return False
        if not row[0]:
            if not self._budget.affords_upload(upload_id):
                return False
            self._budget.charge_upload(upload_id)
            self._days.reach()
        now = self._file.clock()
        sql = (
            "UPDATE upload SET charged = 1, sent = sent + 1, first_attempt = COALESCE(first_attempt, ?), seen = ? "
            "WHERE id = ?"
        )
        self._file.execute(sql, (now, now, upload_id))
        return True

    def notice_clock(self) -> None:
        """Let the time of what was sent be over where the clock reads earlier than it was seen to since.

        How long it is since it was sent is then unknown, and later the clock may have caught up. A metric whose report
        left on a day that is far ahead waits for the next day alone.
        """
        sql = "UPDATE upload SET first_attempt = 0 WHERE seen > ? AND first_attempt <> 0"
        self._file.execute(sql, (self._file.clock(),))
        first, last = self._days.of_aggregator()
        self._file.execute("UPDATE left_on SET day = ? WHERE day > ?", (first, last + 1))

    def see_clock(self) -> None:
        """Keep what the clock reads while an upload that was sent waits: for `notice_clock`, about once an hour."""
        now = self._file.clock()
        self._file.execute("UPDATE upload SET seen = ? WHERE seen < ?", (now, now - SEE_EVERY_S))

    # Answers.

    def forget(self, upload_id: str, outcome: str, refused: int = 0) -> int:
        """Forget an upload, count its reports under `outcome`, those that were `refused` as dropped.

        Return how many came under `outcome`: none if the upload was forgotten before.
        """
        reports = self._drop_upload(upload_id)
        self._budget.forget_unused()
        refused = min(refused, reports)
        for name, count in ((outcome, reports - refused), ("dropped", refused)):
            if count:
                self._file.count(name, count)
        return reports - refused

    def retire(self, upload_id: str, places: tuple[int, ...]) -> None:
        """Silence the plans of some groups of an upload for a while, and drop what waits under them."""
        groups = self._groups(upload_id) if places else []
        for metric, plan, *_ in (groups[place] for place in places if place < len(groups)):
            until = self._days.today() + RETIRED_DAYS
            self._file.execute("INSERT OR REPLACE INTO retired VALUES (?, ?, ?)", (metric, plan, until))
            if dropped := drop_slots(self._file, metric, plan):
                self._file.count("dropped", dropped)

    def split(self, upload_id: str) -> bool:
        """Put two uploads of half the groups in the place of one that is too large; False if it cannot be halved.

        They have ids of their own, so this is only for one that cannot have been stored: refused when first sent.
        """
        row = self._file.execute("SELECT sent FROM upload WHERE id = ?", (upload_id,)).fetchone()
        groups = self._groups(upload_id)
        if row is None or row[0] > 1 or len(groups) < 2:
            return False
        self._file.execute("DELETE FROM upload WHERE id = ?", (upload_id,))
        middle = len(groups) // 2
        for half in (groups[:middle], groups[middle:]):
            new_id = new_upload_id(self._rng.randbits)
            for metric, *_ in half:
                sql = "UPDATE report SET upload = ? WHERE upload = ? AND metric = ?"
                self._file.execute(sql, (new_id, upload_id, metric))
            self._add(new_id, half, charged=True)
        return True

    def failed(self, upload_id: str) -> None:
        """Count an attempt that has failed."""
        self._file.execute("UPDATE upload SET failures = failures + 1 WHERE id = ?", (upload_id,))

    def take_up(self, metrics: Mapping[str, Metric]) -> None:
        """Let metrics speak again whose plan has replaced one that was retired."""
        for name, plan in self._file.execute("SELECT metric, plan FROM retired").fetchall():
            if name in metrics and metrics[name].plan.digest != plan:
                self._file.execute("DELETE FROM retired WHERE metric = ?", (name,))

    # Taking back. Charges stay.

    def drop(self, reason: str, metric: str | None = None) -> None:
        """Drop what waits of a metric, or everything, and count it.

        A built upload that holds the metric goes with all that is in it: its bytes are frozen. Its reservations are
        free again. A hidden metric's period stays over: opening it again would tell that it was not answered yet.
        """
        dropped = drop_slots(self._file, metric)
        sql = "SELECT DISTINCT upload FROM report WHERE metric = COALESCE(?, metric)"
        for (upload_id,) in self._file.execute(sql, (metric,)).fetchall():
            dropped += self._drop_upload(upload_id)
        self._budget.forget_unused()
        if dropped:
            self._file.count(reason, dropped)

    def _drop_upload(self, upload_id: str) -> int:
        """Forget an upload; return how many reports it held. If it was sent, they may have come until now."""
        sql = (
            "INSERT OR REPLACE INTO left_on SELECT metric, ? FROM report JOIN upload ON id = upload "
            "WHERE id = ? AND sent > 0"
        )
        self._file.execute(sql, (self._days.of_aggregator()[1], upload_id))
        self._file.execute("DELETE FROM upload WHERE id = ?", (upload_id,))
        return self._file.execute("DELETE FROM report WHERE upload = ?", (upload_id,)).rowcount

    def forget_everything(self) -> None:
        """Erase the secret, memos, cohort, days of use and what waits, keep what was spent, begin 30 days of silence.

        The log still has all of it, until `erase`.
        """
        from dither.device.uses import DaysOfUse  # hardly ever

        self._budget.forget()
        self.drop("forgotten")
        self._file.set("secret", None)
        self._file.set("cohort", None)
        DaysOfUse(self._file, self._days).forget()
        self._days.begin_silence()
        self._file.set("erasing", 1)

    # Looking.

    def preview(self) -> tuple[bytes, dict[str, int]]:
        """Return what would be sent now, and its cost by metric. Builds it, so the transaction must be undone."""
        first = self.next()
        if first is None:
            return b"", {}
        sql = "SELECT metric, charge FROM report WHERE upload = ? ORDER BY metric"
        return first.body, dict(self._file.execute(sql, (first.id,)).fetchall())

    def due(self) -> bool:
        """Tell whether anything may be sent."""
        sql = (
            f"SELECT CASE WHEN EXISTS (SELECT 1 FROM upload) THEN EXISTS (SELECT 1 FROM upload WHERE {_FREE_UPLOAD}) "  # noqa: S608
            f"ELSE EXISTS (SELECT 1 FROM slot WHERE {_FREE_SLOT}) END"
        )
        row = self._file.execute(
            sql, (self._days.of_aggregator()[0], self._days.today(), self._days.builds_on())
        ).fetchone()
        return bool(row and row[0])

    def due_another_day(self) -> bool:
        """Tell whether something waits, and all of it for another day: reports of its metrics have left today."""
        sql = "SELECT EXISTS (SELECT 1 FROM upload) OR EXISTS (SELECT 1 FROM slot WHERE leaves <= ?)"
        row = self._file.execute(sql, (self._days.today(),)).fetchone()
        return bool(row and row[0]) and not self.due()

    def waiting(self) -> int:
        """Return how many reports wait in slots and in built uploads."""
        row = self._file.execute("SELECT (SELECT COUNT(*) FROM slot) + (SELECT COUNT(*) FROM report)").fetchone()
        return int(row[0]) if row else 0


# When the device sends.

LEASE_S = 120.0
"""Longer than an attempt takes; should one take longer, two processes send the same bytes under the same id."""
WARN_AFTER_S = 3_600.0
NO_ANSWER_YET = "no answer yet"


@frozen
class Sending:
    """The outcome of the last attempt to send, and the moment of the next one."""

    outcome: str = ""
    """The outcome of the last attempt, in a few words; "" if there was none."""
    last: datetime | None = None
    """When that was, in UTC."""
    next: datetime | None = None
    """When the next attempt is planned, in UTC; None while nothing waits, or nothing is planned yet."""
    held_until: datetime | None = None
    """Until when not even a flush sends, in UTC: the aggregator asked to wait, or could not be reached; else None."""


class SendSchedule:
    """The moments at which a device sends, in its file."""

    def __init__(self, file: DeviceFile) -> None:
        self._file = file
        self._token = os.urandom(8).hex()

    # The plan.

    def planned(self, delay: Callable[[], float]) -> float:
        """Return when the next attempt is planned; plan one after a `delay`, in seconds, if none is."""
        now, state = self._file.clock(), self._file.state
        when: float | None = state.get("planned")
        if when is None:
            when = now + delay()
        elif now < (made := state["planned_at"]):  # the clock was set back: nothing waits longer than it would
            when = now + min(delay(), when - made)
        else:
            return when
        self._file.set("planned", when)
        self._file.set("planned_at", now)
        return when

    def _plan(self, when: float | None) -> None:
        self._file.set("planned", when)
        self._file.set("planned_at", None if when is None else self._file.clock())

    def plan_nothing(self) -> None:
        """Take the plan back: nothing waits. Until when the aggregator is left alone stays."""
        self._plan(None)

    def notice_clock(self) -> None:
        """Let a wait be over for good where the clock reads earlier than at the attempt that it comes from."""
        state = self._file.state
        if state.get("held_until") and self._file.clock() < state["outcome_at"]:
            self._file.set("held_until", None)

    def held_until(self) -> float:
        """Return until when not even a flush sends: the aggregator asked to wait, or could not be reached; or 0."""
        until: float = self._file.get("held_until") or 0.0
        return until if until and self._file.get("outcome_at") <= self._file.clock() < until else 0.0

    # The outcome of an attempt.

    def failed(self, outcome: str, when: float, held_until: float | None) -> bool:
        """Note that an attempt failed and when the next one is; tell whether it is time for a warning.

        A warning is due once, after an hour of attempts that failed the same way, and again after one was accepted.
        """
        now = self._file.clock()
        if self._file.get("failing") != outcome or now < self._file.get("failing_since"):  # the clock was set back
            self._file.set("failing", outcome)
            self._file.set("failing_since", now)
        self._note(outcome)
        self._plan(when)
        self._file.set("held_until", held_until)
        warn = now - self._file.get("failing_since") >= WARN_AFTER_S and not self._file.get("warned")
        if warn:
            self._file.set("warned", 1)
        return warn

    def hold(self, until: float) -> None:
        """Block sending (flush too) until then: an earlier attempt timed out but may still arrive."""
        self._note(NO_ANSWER_YET)
        self._plan(until)
        self._file.set("held_until", until)

    def ended(self, outcome: str, *, accepted: bool) -> None:
        """Note that an attempt was answered for good."""
        self._note(outcome)
        self._file.set("held_until", None)
        self._file.set("failing", None)
        if accepted:
            self._file.set("warned", None)

    def key_refused(self, *, refused: bool) -> None:
        """Keep whether the aggregator refused the key."""
        self._file.set("key_refused", int(refused) or None)

    def _note(self, outcome: str) -> None:
        self._file.set("outcome", outcome)
        self._file.set("outcome_at", self._file.clock())

    def sending(self) -> Sending:
        """Return what became of the last attempt, and when the next one is."""
        get = self._file.get
        held_until = self.held_until()
        planned = max(get("planned"), held_until) if get("planned") and not get("key_refused") else 0.0
        return Sending(
            get("outcome") or "", moment(get("outcome_at")), moment(planned or None), moment(held_until or None)
        )

    # The sender, where the file system has no locks.

    def lease(self) -> bool:
        """Take or renew the lease to send; False if another process has it."""
        now = self._file.clock()
        until: float = self._file.get("lease_until") or 0.0
        # One that would last much longer was taken by another clock.
        if now < until <= now + 2 * LEASE_S and self._file.get("lease_holder") != self._holder():
            return False
        self._file.set("lease_until", now + LEASE_S)
        self._file.set("lease_holder", self._holder())
        return True

    def release(self) -> None:
        """End the lease, unless another process has it by now."""
        if self._file.get("lease_holder") == self._holder():
            self._file.set("lease_until", None)

    def _holder(self) -> str:
        return f"{os.getpid()} {self._token}"


def notice_clock(schedule: SendSchedule, outbox: Outbox, days: Days) -> None:
    """Let all that depends on the clock take note of where it reads earlier than before."""
    schedule.notice_clock()
    outbox.notice_clock()
    days.notice()


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since 1970 as a moment in UTC, without its fraction."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)
