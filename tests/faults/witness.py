"""A witness of one device keeps its own account of it, in other words than the device's.

Which reports a slot or an upload holds, which of them left, and what an aggregator that forgets ids after a week has
counted: after every step that is compared with what the device says of itself.
"""

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import dither.device.recording
from dither.device import DAY_S, FILE_NAME, Device, Silence
from dither.device.recording import SILENT_DAYS, period_start
from dither.sending.transport import Answer, Outcome, read_answer
from dither.sending.upload_thread import Sender
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from tests.faults.kept import Row, kept
from tests.support.clocks import Clock

T = TypeVar("T")

DEDUPE_DAYS = 7
"""For so long the aggregator knows an upload's id."""
HOUR_S = 3_600.0
FATES = (
    "accepted", "unheard", "heard-late", "unreached", "dropped", "too-large",
    "killed-before", "killed-standing", "killed-after",
)  # fmt: skip
"""The fates of an attempt: the answer is lost, the first connection breaks before a byte has left and another one
stands, the aggregator is out of reach, the process is killed before a connection stands, when one does, or after."""


Period = tuple[int, int]
"""The first day of a period, and the first one after it."""


@dataclass(frozen=True)
class Report:
    """One report, and what it tells of the device: fresh noise, or a permanent answer that others may tell too."""

    number: int
    metric: str
    cost: int
    """Micro-epsilon of the report, or of the permanent answer."""
    memo: tuple[bytes, bytes] | None
    """The bytes that the permanent answer was drawn from."""
    period: Period


@dataclass
class Account:
    """A witness's knowledge that a kill or a power cut undoes together with the device's file."""

    slots: dict[str, Report] = field(default_factory=dict)
    uploads: dict[str, dict[str, Report]] = field(default_factory=dict)

    def copy(self) -> "Account":
        """Return an account of the same reports that goes on by itself."""
        return Account(dict(self.slots), {id_: dict(held) for id_, held in self.uploads.items()})


class Killed(BaseException):
    """The process was killed in the middle of an attempt."""


Groups = list[tuple[str, str]]
"""The groups of an upload, as an observer sees them: each metric with its plan."""

Version = tuple[sqlite3.Connection, int]
"""A connection to a device's file, and how many rows it has ever written: another one whenever the file changes."""

_memos_drawn: list[tuple[bytes, bytes]] = []


@contextmanager
def watched() -> Iterator[None]:
    """Note what permanent answers are drawn from."""

    def keyed(secret: bytes, context: bytes) -> Rng:
        _memos_drawn.append((secret, context))
        return keyed_rng(secret, context)

    with mock.patch.object(dither.device.recording, "keyed_rng", keyed):
        yield
    _memos_drawn.clear()


class Witness:
    """A device and the account of it. Is its own transport."""

    def __init__(self, home: Path, name: str, clock: Clock, true_now: Callable[[], float]) -> None:
        self._home, self._name, self._clock, self._true_now = home, name, clock, true_now
        self._lives = self._starts = self._made = 0
        self.account = Account()
        self.sent: set[Report] = set()
        """Reports that may have arrived."""
        self.stood: set[Report] = set()
        """Reports that a connection stood for, whether they left or not."""
        self.memoized: set[str] = set()
        """The metrics that ever had a memo: what they are charged is no sum of reports."""
        self.counted: Counter[int] = Counter()
        """How often the aggregator has counted each report."""
        self.days: Counter[tuple[str, int]] = Counter()
        """How many reports of a metric it has counted on each day of its own."""
        self._strayed = False  # whether the device's clock and the aggregator's were ever apart
        self.answered: set[tuple[str, Period]] = set()
        """The periods in which a metric whose presence is public has answered, as far as no power cut undid it."""
        self.used: set[tuple[str, Period]] = set()
        """The periods of which a report was ever made."""
        self.spent_for_good: dict[str, int] = {}
        """Micro-epsilon of each metric that has no memo: what one is charged may tell how many answers it has."""
        self.syncs = 0
        """How often the disk got what was written."""
        self._known_ids: dict[str, tuple[float, bytes]] = {}
        self._durable: tuple[dict[str, bytes], Account, dict[str, int], int | None] = ({}, self.account, {}, None)
        self._spent: dict[str, int] = {}
        self._fills: list[Report] = []
        self._fate = ""
        self._groups: Groups | None = None
        self._followed: Version | None = None
        self._kept: dict[str, list[Row]] = {}
        self._kept_at: Version | None = None
        self._weighed = (-1, -1)
        self._told: dict[str, int] = {}
        self._twice: list[tuple[str, Period]] = []  # periods that were charged more than once
        self._stood_for: dict[str, int] = {}
        self.last_day = 0
        """The latest day that the device has reached."""
        self._reached: int | None = None  # the same, while no death has undone it
        self._behind_since: int | None = None
        self._moves = ""  # what may move that day in the present step
        self._full_sync = self._wrote = self._synced = False

    # The device's lives.

    @property
    def _directory(self) -> Path:
        return self._home / f"{self._name}{self._lives}"

    def open(self, registry: Registry) -> None:
        """Open the file as a start of the app does."""
        self._starts += 1
        # Two streams: how many bits an answer took must not decide which periods are drawn.
        draws = Rng(random.Random(f"periods {self._starts}").getrandbits)
        self.device = Device(registry, self._directory, draws, self._clock)
        self.device.open()
        self.begun = False
        self.device._slots._rng = Rng(random.Random(f"answers {self._name} {self._starts}").getrandbits)
        inner = self.device._slots._randomize

        def randomize(metric: Metric, answer: Any, cell: int) -> tuple[int, str | None, str]:
            report = inner(metric, answer, cell)
            self._made += 1
            memo = _memos_drawn[-1] if metric.memoized else None
            self.memoized |= {metric.name} if metric.memoized else set()
            if self._replaces:
                period = self.account.slots[metric.name].period
            else:
                first = period_start(self.device._days.today(), metric.period_days)
                period = first, first + metric.period_days
            self.used.add((metric.name, period))
            self._moves += "" if metric.hidden else "use "
            self._fills.append(Report(self._made, metric.name, metric.charge, memo, period))
            return report

        self.device._slots._randomize = randomize  # type: ignore[method-assign]  # to see what becomes of each answer
        self._replaces = False
        takes_place = self.device._slots.replace

        def replace(metric: Metric, answer: Any) -> Silence | None:
            self._replaces = True
            try:
                return takes_place(metric, answer)
            finally:
                self._replaces = False

        self.device._slots.replace = replace  # type: ignore[method-assign]
        self._reached = None
        self.device.put_off = self._put_off  # type: ignore[method-assign]
        assert self.device._file._db
        self.device._file._db.set_trace_callback(self._trace)

    def _put_off(self, upload_id: str, detail: str, when: float, held_until: float | None = None) -> bool:
        """Plan the next attempt, which is by chance, at the same moment on both devices."""
        planned = self._clock() + HOUR_S
        return Device.put_off(self.device, upload_id, detail, planned, None if held_until is None else planned)

    def begin(self) -> None:
        """Take note of the registry, once in a life of the process."""
        if not self.begun:
            self.begun = True
            self.do(Device.begin)

    def _trace(self, statement: str) -> None:
        """See which transactions are synced: only they outlast a power cut for certain."""
        kind = statement[:6]
        if kind == "SELECT":  # most are
            return
        if kind in ("INSERT", "UPDATE", "DELETE"):
            self._wrote = True
        elif kind in ("BEGIN", "BEGIN "):
            self._wrote = False
        elif kind == "COMMIT":
            self._synced = self._synced or (self._wrote and self._full_sync)
        elif statement.startswith("PRAGMA synchronous"):
            self._full_sync = statement.endswith("FULL")

    def close(self) -> None:
        """Close the file, which syncs it."""
        self.device.close()
        self.keep()

    def _image(self) -> dict[str, bytes]:
        directory, image = self._directory, {}
        for name in (FILE_NAME, f"{FILE_NAME}-wal"):
            with suppress(FileNotFoundError):
                image[name] = (directory / name).read_bytes()
        return image

    def keep(self) -> None:
        """Let the disk have what was written: it was synced, or some time has passed since."""
        self._synced = False
        self.syncs += 1
        self._durable = (self._image(), self.account.copy(), dict(self._spent), self._behind_since)

    def crash(self, registry: Registry) -> None:
        """Go on from the files as they are, without closing the device."""
        self._go_on_from(self._image(), registry)

    def lose_power(self, registry: Registry) -> None:
        """Go on from what the disk has for certain."""
        image, account, self._spent, self._behind_since = self._durable
        self.account = account.copy()
        self.answered.clear()
        self._go_on_from(image, registry)

    def _go_on_from(self, image: dict[str, bytes], registry: Registry) -> None:
        self.device.close()
        self._lives += 1
        self._directory.mkdir()
        for name, content in image.items():
            (self._directory / name).write_bytes(content)
        self.open(registry)

    # Following what the device does.

    def do(self, action: Callable[[Device], T], split: bool = False) -> T:
        """Let the device do something, and account for it."""
        self._fills.clear()
        self._moves = ""
        result = action(self.device)
        self._follow(split)
        self._follow_day()
        return result

    def _follow_day(self) -> None:
        """See that the day reached goes on by a use or a charge, and back by a receipt that agrees or a silent month.

        Both to the clock's day.
        """
        day, before = int(self._clock() // DAY_S), self._reached
        self._reached = self.last_day
        if before is not None and self.last_day != before:
            assert self.last_day == day, f"the day reached went from {before} to {self.last_day}, and it is {day}"
            if self.last_day > before:
                assert "use" in self._moves or "charge" in self._moves, f"day {day} was reached by nothing"
            else:
                silent = day - (day if self._behind_since is None else self._behind_since)
                allowed = "receipt" in self._moves or silent >= SILENT_DAYS
                assert allowed, f"it fell back from {before} to {day} after {silent} silent days"
        behind = day + 1 < self.last_day
        self._behind_since = min(day, self._behind_since or day) if behind else None

    def version(self) -> Version | None:
        """Return the version of the file; None while the connection is closed."""
        db = self.device._file._db
        return None if db is None else (db, db.total_changes)

    def kept(self) -> dict[str, list[Row]]:
        """Return all rows of the file, which is read when it has changed."""
        version = self.version()
        if version is None or version != self._kept_at:
            self._kept, self._kept_at = kept(self.device._file), version or self.version()
        return self._kept

    def _follow(self, split: bool = False) -> None:
        """Bring the account up to date: what has not changed needs no other look."""
        version = self.version()
        if version is None or version != self._followed or self._fills:
            self._read(split)
            self._followed = version
        if self._synced:
            self.keep()

    def _read(self, split: bool) -> None:
        file, account = self.device._file, self.account
        with file.peek():
            ids = {key for (key,) in file.execute("SELECT id FROM upload")}
            new = {
                key: file.execute("SELECT body FROM upload WHERE id = ?", (key,)).fetchone()
                for key in ids - account.uploads.keys()
            }
            full = {metric for (metric,) in file.execute("SELECT metric FROM slot")}
            spent = dict(file.execute("SELECT name, spent FROM metric").fetchall())
            memos = {metric for (metric,) in file.execute("SELECT metric FROM class")}
            self.last_day = int(file.get("last_day") or 0)
        gone = {name: one for key, held in account.uploads.items() if key not in ids for name, one in held.items()}
        account.uploads = {key: held for key, held in account.uploads.items() if key in ids}
        filled = {report.metric for report in self._fills}
        emptied = {metric for metric in account.slots if metric not in full or metric in filled}
        for key, row in new.items():
            held = [group["metric"] for group in json.loads(row[0])["groups"]] if row else []
            taken = gone if split or not emptied >= set(held) else account.slots
            assert taken.keys() >= set(held), f"{held} are in an upload, and came from nowhere"
            account.uploads[key] = {metric: taken.pop(metric) for metric in held}
        account.slots.update({report.metric: report for report in self._fills})
        self._fills.clear()
        account.slots = {metric: report for metric, report in account.slots.items() if metric in full}
        assert account.slots.keys() == full, f"{sorted(full)} wait, and {sorted(account.slots)} should"
        for metric in spent.keys() | self._spent.keys():
            was, now = self._spent.get(metric, 0), spent.get(metric, 0)
            assert now >= was, f"the budget of {metric} was refreshed: from {was} to {now}"
        self._spent = spent
        self.spent_for_good = {metric: micro for metric, micro in spent.items() if micro and metric not in memos}

    def attempt(self, fate: str) -> tuple[Groups | None, bool]:
        """Let the device's sender make one attempt that ends as `fate` says.

        Return the groups that were to leave, None if there were none, and whether the process was killed.
        """
        self._fate, self._groups = fate, None
        sender = Sender(self.device, self, self._clock)
        try:
            self.do(lambda device: sender.attempt(), split=fate == "too-large")
        except Killed:
            return self._groups, True
        return self._groups, False

    def post(self, upload_id: str, body: bytes, stands: Callable[[], None]) -> Answer:
        """Take an upload as the network and an aggregator would."""
        self._follow()
        document = json.loads(body)
        assert document["upload"] == upload_id
        self._groups = [(group["metric"], group["plan"]) for group in document["groups"]]
        if self._fate == "killed-before":
            raise Killed
        if self._fate == "unreached":
            return Answer(Outcome.KEPT, "", connected=False)
        for _ in range(2 if self._fate == "heard-late" else 1):
            stands()
        self._moves += "charge "
        self._follow()  # to see what that has synced before anything leaves
        held = self.account.uploads[upload_id]
        self.stood.update(held.values())
        if self._fate == "killed-standing":
            raise Killed
        self.sent.update(held.values())
        if self._fate == "dropped":
            return Answer(Outcome.DROPPED, "")
        if self._fate == "too-large":
            return Answer(Outcome.TOO_LARGE, "")
        if self._fate.startswith("portal"):
            return self._dated(upload_id, 302 if self._fate == "portal away" else 200, b"<html>Welcome</html>", 0.0)
        self._count(upload_id, body, held)
        if self._fate.startswith("receipt"):
            days = float(self._fate.split()[1])
            self._moves += "receipt " if abs(days) <= 1 else ""
            return self._dated(upload_id, 202, json.dumps({"upload": upload_id, "accepted": len(held)}).encode(), days)
        if self._fate == "killed-after":
            raise Killed
        return Answer(Outcome.KEPT if self._fate in ("unheard", "heard-late") else Outcome.ACCEPTED, "")

    def _dated(self, upload_id: str, status: int, content: bytes, days: float) -> Answer:
        """Return an answer whose Date is so many days after what the device's clock reads."""
        self._strayed |= days != 0
        date = format_datetime(datetime.fromtimestamp(self._clock() + days * DAY_S, UTC), usegmt=True)
        return read_answer(status, {"Date": date, "Retry-After": "86400"}, content, upload_id)

    def idle(self) -> None:
        """Be a transport."""

    def _count(self, upload_id: str, body: bytes, held: dict[str, Report]) -> None:
        now = self._true_now()
        when, known = self._known_ids.get(upload_id, (0.0, b""))
        if known and now < when + DEDUPE_DAYS * DAY_S:
            assert known == body, "an upload's bytes have changed"
            return
        self._known_ids[upload_id] = (now, body)
        self.counted.update(report.number for report in held.values())
        self.days.update((report.metric, int(now // DAY_S)) for report in held.values())

    # Checks.

    def check(self, agreed_epsilon: int, agreed_lives: dict[str, int]) -> None:
        """Compare what the device says that it was charged with what left it and with what was agreed to."""
        spent = self._spent
        self._weigh()
        for metric, told in self._told.items():
            charged = spent.get(metric, 0)
            assert told <= charged, f"{metric} told what costs {told}, and was charged {charged}"
        for metric, charged in spent.items():
            stood = self._stood_for.get(metric, 0)
            assert metric in self.memoized or charged == stood, f"{metric} was charged {charged} for {stood}"
            most = agreed_lives.get(metric, 0)
            assert charged <= most, f"{metric} was charged {charged}, and {most} was agreed to"
        assert sum(spent.values()) <= agreed_epsilon, f"{spent} was charged, and {agreed_epsilon} was agreed to"
        again = [number for number, times in self.counted.items() if times > 1]
        assert not again, f"reports {again} were counted twice"
        assert not self._twice, f"{self._twice} had two reports charged"
        self._strayed |= self._true_now() != self._clock()
        crowded = [of_day for of_day, count in self.days.items() if count > 1]
        assert self._strayed or not crowded, f"{crowded} had two reports on one day"

    def _weigh(self) -> None:
        """Sum up the micro-epsilon of all that left and of all that a connection stood for, if there is more of it.

        A permanent answer that left counts once.
        """
        if self._weighed == (weighed := (len(self.sent), len(self.stood))):
            return
        self._weighed = weighed
        periods = Counter((report.metric, report.period) for report in self.stood)
        self._twice = [period for period, times in periods.items() if times > 1]
        by_metric: dict[str, dict[object, int]] = {}
        for report in self.sent:
            by_metric.setdefault(report.metric, {})[report.memo or report.number] = report.cost
        self._told = {metric: sum(costs.values()) for metric, costs in by_metric.items()}
        stood_for: Counter[str] = Counter()
        for report in self.stood:
            stood_for[report.metric] += report.cost
        self._stood_for = dict(stood_for)
