"""Two devices that live through the same years with different answers and different noise, and what must hold.

Only what decides when a device answers, the draw of its periods, has the same bits: then all that an observer sees but
the reports themselves must be the same. Beside each device a witness keeps its own account, in other words than the
device's: which reports a slot or an upload holds, which of them left, what an aggregator that forgets ids after a week
has counted, and what the person agreed to. After every step it is compared with what the device says of itself, and the
two devices with each other: what an observer of uploads sees, and what whoever reads their files does (`kept.py`).
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from unittest import mock

import dither.device.slots
from dither.device import DAY_S, FILE_NAME, Device
from dither.device.withdrawal import FORGET_DAYS
from dither.schedule import EPOCH
from dither.sending.sender import Sender
from dither.sending.transport import Answer, Outcome
from dither_shared.domains import NONE
from dither_shared.exact import MICRO, from_micro
from dither_shared.mechanisms import RAPPOR
from dither_shared.registry import Metric, Registry
from dither_shared.rng import Rng, keyed_rng
from tests.faults.kept import kept, told
from tests.support.clocks import Clock

T = TypeVar("T")

DEDUPE_DAYS = 7
"""For so long the aggregator knows an upload's id."""
HOUR_S = 3_600.0
SECOND = 1 / DAY_S
NAMES = ("font", "hue", "icon", "mode", "size", "theme", "tone", "word", "zoom")
TEXTS = {"word"}
VALUES = {"abc": ("a", "b", "c"), "abz": ("a", "b", "z")}
FATES = (
    "accepted", "unheard", "heard-late", "unreached", "dropped", "too-large",
    "killed-before", "killed-standing", "killed-after",
)  # fmt: skip
"""The fates of an attempt: the answer is lost, the first connection breaks before a byte has left and another one
stands, the aggregator is out of reach, the process is killed before a connection stands, when one does, or after."""
_TEXT = RAPPOR.of_probabilities(8, 1, *(Decimal(one) for one in ("0.5", "0.5", "0.75")))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Question:
    """A metric as one registry has it: `charges` fresh reports, or, with `permanent`, so many permanent answers.

    The metric "word" is a text, and always memoized.
    """

    charges: int = 3
    epsilon: str = "1"
    permanent: str = ""
    presence: str = "public"
    period: int = 1
    schedule: str = "early"
    values: str = "abc"
    rev: int = 1

    def to_toml(self, name: str, expires: date) -> str:
        """Return the metric's table."""
        kind = f'kind = "choice"\nmechanism = "grr"\nvalues = {json.dumps(VALUES[self.values])}'
        life = f'epsilon = {self.epsilon}\nreports = {self.charges}\nschedule = "{self.schedule}"'
        if name in TEXTS:
            kind = 'kind = "text"\nparameters = {k = 8, h = 1, m = 2, f = 0.5, p = 0.5, q = 0.75}'
            permanent, one = from_micro(_TEXT.permanent.charge), from_micro(_TEXT.charge)
            life = f"memoize = true\nanswers = {self.charges}\nepsilon = {one}\nepsilon_permanent = {permanent}"
        elif self.permanent:
            life = f"memoize = true\nanswers = {self.charges}\nepsilon = 0.05\nepsilon_permanent = {self.permanent}"
        return f"""
[metric.{name}]
rev = {self.rev}
{kind}
{life}
question = "What?"
presence = "{self.presence}"
period = "{self.period}d"
owners = ["team@example.org"]
sensitivity = "low"
expires = {expires}
"""


Questions = tuple[tuple[str, Question], ...]


@lru_cache(maxsize=4096)
def registry_of(device_epsilon: int, questions: Questions, expires: date) -> Registry:
    """Return a registry of these questions, whose device_epsilon is raised to what they reserve."""
    head = "[registry]\napp = 'life'\nquiet_days = 1\ndevice_epsilon = {}\n"
    tables = "".join(question.to_toml(name, expires) for name, question in questions)
    free = Registry.parse(head.format(1000) + tables)
    reserved = sum(metric.reservation for metric in free.metrics.values())
    return Registry.parse(head.format(max(device_epsilon, -(-reserved // MICRO))) + tables)


@dataclass(frozen=True)
class Report:
    """One report, and what it tells of the device: fresh noise, or a permanent answer that others may tell too."""

    number: int
    metric: str
    cost: int
    """Micro-epsilon of the report, or of the permanent answer."""
    memo: tuple[bytes, bytes] | None
    """The bytes that the permanent answer was drawn from."""


@dataclass
class Account:
    """A witness's knowledge that a kill or a power cut undoes together with the device's file."""

    slots: dict[str, Report] = field(default_factory=dict)
    uploads: dict[str, dict[str, Report]] = field(default_factory=dict)


class Killed(BaseException):
    """The process was killed in the middle of an attempt."""


Groups = list[tuple[str, str]]
"""The groups of an upload, as an observer sees them: each metric with its plan."""

_memos_drawn: list[tuple[bytes, bytes]] = []


@contextmanager
def watched() -> Iterator[None]:
    """Note what permanent answers are drawn from."""

    def keyed(secret: bytes, context: bytes) -> Rng:
        _memos_drawn.append((secret, context))
        return keyed_rng(secret, context)

    with mock.patch.object(dither.device.slots, "keyed_rng", keyed):
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
        self.answered_until: dict[str, int] = {}
        """The day before which a metric whose presence is public has answered, as far as no power cut undid it."""
        self.spent_for_good: dict[str, int] = {}
        """Micro-epsilon of each metric that has no memo: what one is charged may tell how many answers it has."""
        self.syncs = 0
        """How often the disk got what was written."""
        self._known_ids: dict[str, tuple[float, bytes]] = {}
        self._durable: tuple[dict[str, bytes], Account, dict[str, int]] = ({}, self.account, {})
        self._spent: dict[str, int] = {}
        self._fills: list[Report] = []
        self._fate = ""
        self._groups: Groups | None = None
        self.last_day = 0
        """The latest day that the device has seen."""
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
        inner = self.device._slots._fill

        def fill(metric: Metric, answer: Any, ends: int, *, replaceable: bool) -> None:
            inner(metric, answer, ends, replaceable=replaceable)
            self._made += 1
            memo = _memos_drawn[-1] if metric.memoized else None
            self.memoized |= {metric.name} if metric.memoized else set()
            self._fills.append(Report(self._made, metric.name, metric.charge, memo))

        self.device._slots._fill = fill  # type: ignore[method-assign]  # to see what becomes of each answer
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
        if statement.startswith("PRAGMA synchronous"):
            self._full_sync = statement.endswith("FULL")
        elif statement.startswith("BEGIN"):
            self._wrote = False
        elif statement.startswith(("INSERT", "UPDATE", "DELETE")):
            self._wrote = True
        elif statement == "COMMIT" and self._wrote:
            self._synced = self._synced or self._full_sync

    def close(self) -> None:
        """Close the file, which syncs it."""
        self.device.close()
        self.keep()

    def _image(self) -> dict[str, bytes]:
        names = (FILE_NAME, f"{FILE_NAME}-wal")
        return {name: (self._directory / name).read_bytes() for name in names if (self._directory / name).exists()}

    def keep(self) -> None:
        """Let the disk have what was written: it was synced, or some time has passed since."""
        self._synced = False
        self.syncs += 1
        self._durable = (self._image(), deepcopy(self.account), dict(self._spent))

    def crash(self, registry: Registry) -> None:
        """Go on from the files as they are, without closing the device."""
        self._go_on_from(self._image(), registry)

    def lose_power(self, registry: Registry) -> None:
        """Go on from what the disk has for certain."""
        image, account, self._spent = self._durable
        self.account = deepcopy(account)
        self.answered_until.clear()
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
        result = action(self.device)
        self._follow(split)
        return result

    def _follow(self, split: bool = False) -> None:
        file, account = self.device._file, self.account
        with file.peek():
            ids = {key for (key,) in file.execute("SELECT id FROM upload")}
            new = {key: file.one("SELECT body FROM upload WHERE id = ?", key) for key in ids - account.uploads.keys()}
            full = {metric for (metric,) in file.execute("SELECT metric FROM slot")}
            spent = dict(file.execute("SELECT name, spent FROM metric").fetchall())
            memos = {metric for (metric,) in file.execute("SELECT metric FROM class")}
            self.last_day = int(file.get("last_day"))
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
        if self._synced:
            self.keep()

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
        self._count(upload_id, body, held)
        if self._fate == "killed-after":
            raise Killed
        return Answer(Outcome.KEPT if self._fate in ("unheard", "heard-late") else Outcome.ACCEPTED, "")

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

    # Checks.

    def check(self, agreed_epsilon: int, agreed_lives: dict[str, int]) -> None:
        """Compare what the device says that it was charged with what left it and with what was agreed to."""
        spent = self._spent
        for metric in {report.metric for report in self.sent}:
            told, charged = self._told(metric), spent.get(metric, 0)
            assert told <= charged, f"{metric} told what costs {told}, and was charged {charged}"
        for metric, charged in spent.items():
            stood = sum(report.cost for report in self.stood if report.metric == metric)
            assert metric in self.memoized or charged == stood, f"{metric} was charged {charged} for {stood}"
            most = agreed_lives.get(metric, 0)
            assert charged <= most, f"{metric} was charged {charged}, and {most} was agreed to"
        assert sum(spent.values()) <= agreed_epsilon, f"{spent} was charged, and {agreed_epsilon} was agreed to"
        again = [number for number, times in self.counted.items() if times > 1]
        assert not again, f"reports {again} were counted twice"

    def _told(self, metric: str) -> int:
        """Return the micro-epsilon of all that left: each fresh report, and each permanent answer once."""
        sent = [report for report in self.sent if report.metric == metric]
        memos = {report.memo: report.cost for report in sent if report.memo}
        return sum(memos.values()) + sum(report.cost for report in sent if not report.memo)


@dataclass(frozen=True)
class Person:
    """The choices so far of the person of both devices."""

    chosen: bool | None = None
    refused: frozenset[str] = frozenset()
    agreed: tuple[Metric, ...] = ()
    """The metrics, as they were when their terms were agreed to."""
    silent_until: int = 0
    """The day before which nothing is said, after `forget`."""


P = ParamSpec("P")


def step(method: Callable[Concatenate["Pair", P], T], /) -> Callable[Concatenate["Pair", P], T]:
    """Make a method a step of a life, which an assertion that fails shows."""

    @wraps(method)
    def taken(pair: "Pair", /, *args: P.args, **kwargs: P.kwargs) -> T:
        pair.steps.append(f"{pair.clock.now / DAY_S:.2f}: {method.__name__}{args}")
        try:
            return method(pair, *args, **kwargs)
        except AssertionError as error:
            if not hasattr(error, "__notes__"):
                error.add_note("the life:\n  " + "\n  ".join(pair.steps[-40:]))
            raise

    return taken


class Pair:
    """Two devices side by side, and the person of both. Every step checks everything."""

    def __init__(self, home: Path) -> None:
        self.clock = Clock()
        self.steps: list[str] = []
        self._ahead_s = 0.0  # of the devices' clock before the true one
        self.questions: Questions = tuple((name, Question(charges=5)) for name in ("hue", "mode", "size"))
        self.device_epsilon = 16
        self.expires = self._day_after(100)
        self.registry = registry_of(self.device_epsilon, self.questions, self.expires)
        self.person = self._durable_person = Person()
        self._syncs = 0
        self._agreed_epsilon = 0
        self._agreed_lives: dict[str, int] = {}
        self._apart_until: dict[str, int] = {}
        self.said: Counter[str] = Counter()
        """How often a device said why it was silent, or "" where it was not."""
        self.left: Counter[str] = Counter()
        """How many groups left, by metric."""
        self._unlike: set[str] = set()  # the memoized metrics that have more classes on one device than on the other
        self.both = [Witness(home, name, self.clock, self.true_now) for name in "ab"]
        for witness in self.both:
            witness.open(self.registry)
        self._begin()

    def close(self) -> None:
        """Close both files."""
        for witness in self.both:
            witness.device.close()

    def _day_after(self, days: int) -> date:
        return EPOCH + timedelta(days=int(self.clock.now // DAY_S) + days)

    # The end of every step.

    def _each(self, action: Callable[[Witness], T]) -> T:
        """Let both do the same, and return what both answered."""
        one, other = [action(witness) for witness in self.both]
        assert one == other, f"what a device does depends on its answers: {one} here, {other} there"
        return one

    def _settle_down(self) -> None:
        """Do what the thread does after everything that happens, and check everything."""
        self._each(lambda witness: witness.do(lambda device: device.look(lambda: HOUR_S)))
        self._each(lambda witness: witness.spent_for_good)
        self._compare_files()
        syncs = self._each(lambda witness: witness.syncs)
        if syncs > self._syncs:
            self._syncs, self._durable_person = syncs, self.person
        for witness in self.both:
            witness.check(self._agreed_epsilon, self._agreed_lives)

    def _compare_files(self) -> None:
        """Compare all that the two files tell."""
        rows = [kept(witness.device._file) for witness in self.both]
        memos = {row["metric"] for one in rows for table in ("class", "report") for row in one[table]}
        self._unlike &= memos
        one, other = (told(each, self._today(), self._unlike, TEXTS) for each in rows)
        for table, seen in one.items():
            assert seen == other[table], f"the files tell answers apart, by {table}: {seen} here, {other[table]} there"

    def _begin(self) -> None:
        """Do what a start does with a file that is open."""
        if self.person.chosen is not False:
            self._each(lambda witness: witness.do(Device.agree_once))
            if not self.person.agreed:
                self._take_terms()
            self._each(Witness.begin)
        self._settle_down()

    def _take_terms(self) -> None:
        others = [metric for metric in self.person.agreed if metric.name not in self.registry.metrics]
        self.person = replace(self.person, agreed=(*others, *self.registry.metrics.values()))
        self._agreed_epsilon = max(self._agreed_epsilon, int(self.registry.device_epsilon * MICRO))
        for name, metric in self.registry.metrics.items():
            self._agreed_lives[name] = max(self._agreed_lives.get(name, 0), metric.reservation)

    # Time.

    @step
    def travel(self, days: float) -> None:
        """Let time pass."""
        self._each(Witness.keep)
        self.clock.travel(days)
        self._settle_down()

    def true_now(self) -> float:
        """Return the time of everybody else, in seconds since 1970."""
        return self.clock.now - self._ahead_s

    def days_left(self) -> int:
        """Return the days until the metrics expire."""
        return (self.expires - self._day_after(0)).days

    @step
    def jump(self, days: float) -> None:
        """Set the devices' clocks, in no time."""
        self._ahead_s += days * DAY_S
        self.clock.travel(days)
        self._settle_down()

    def _today(self) -> int:
        """Return the latest day that the devices have seen."""
        return max(int(self.clock.now // DAY_S), self._each(lambda witness: witness.last_day))

    # Recording.

    @step
    def record(self, name: str, answers: tuple[object, object]) -> None:
        """Record an answer on each device. One of them may be `...` if presence is hidden: nothing to say."""
        self._record_both(name, answers)
        self._settle_down()

    @step
    def wake(self, days: float, name: str, answers: tuple[object, object]) -> None:
        """Let time pass while the machine sleeps: the app records before the thread has looked, which it does later."""
        self._each(Witness.keep)
        self.clock.travel(days)
        self._record_both(name, answers, looks=False)
        self.clock.travel(HOUR_S / 2 / DAY_S)
        self._settle_down()

    def _record_both(self, name: str, answers: tuple[object, object], *, looks: bool = True) -> None:
        metric = self.registry.metrics[name]
        today = self._today()
        if metric.memoized and (answers[0] != answers[1] or name in TEXTS):
            self._unlike.add(name)
        reasons = [
            self._record(witness, metric, today, answer, looks=looks)
            for witness, answer in zip(self.both, answers, strict=True)
            if answer is not ...
        ]
        if len(reasons) < 2:
            assert metric.hidden
            # Until a period begins, one says that it has answered, which the other has not.
            self._apart_until[name] = max(self._apart_until.get(name, 0), today + metric.period_days)
        elif today >= self._apart_until.get(name, 0):
            assert reasons[0] == reasons[1], f"whether {name} is silent depends on its answers: {reasons}"
        elif not metric.hidden:
            assert bool(reasons[0]) == bool(reasons[1]), f"whether {name} is silent depends on its answers: {reasons}"
        if "" in reasons:
            self._check_permission(metric, today)

    def _record(self, witness: Witness, metric: Metric, today: int, answer: object, *, looks: bool) -> str:
        reason = witness.do(lambda device: device.record(metric, answer, lambda: HOUR_S))
        self.said[reason] += 1
        if not reason:
            if not metric.hidden:
                again = today < witness.answered_until.get(metric.name, 0)
                assert not again, f"{metric.name} was answered twice in a period"
                witness.answered_until[metric.name] = today - today % metric.period_days + metric.period_days
            if looks:
                witness.do(lambda device: device.look(lambda: HOUR_S))
        return reason

    def _check_permission(self, metric: Metric, today: int) -> None:
        person = self.person
        (agreed,) = [one for one in person.agreed if one.name == metric.name] or (None,)
        within = agreed is not None and (
            metric.reservation <= agreed.reservation
            and metric.mechanism.charge <= agreed.mechanism.charge
            and metric.charge <= agreed.charge
            and metric.charges <= agreed.charges
            and metric.memoized == agreed.memoized
            and set(metric.values) - {NONE} == set(agreed.values) - {NONE}
            and metric.expires <= agreed.expires
            and metric.period_days >= agreed.period_days
            and (metric.hidden or not agreed.hidden)
        )
        assert within, f"{metric.name} was recorded, and its terms were not agreed to"
        assert person.chosen is not False, "all was refused, and was recorded"
        assert metric.name not in person.refused, f"{metric.name} was refused, and was recorded"
        assert person.silent_until <= today, "all was forgotten, and was recorded"
        assert today < (metric.expires - EPOCH).days, f"{metric.name} has expired, and was recorded"

    @step
    def live(self, days: int, answers: Sequence[tuple[object, object]], sends: bool = True) -> None:
        """Let days pass, and record an answer to every metric on each."""
        for day in range(days):
            self.travel(1)
            for place, (name, question) in enumerate(self.questions):
                one, other = answers[(day + place) % len(answers)]
                if question.presence == "public" and ... in (one, other):
                    one, other = "a", "b"
                if (one, other) != (..., ...):
                    self.record(name, (one, other))
            while sends and self.attempt("accepted"):
                pass

    # Sending.

    @step
    def attempt(self, fate: str) -> Groups | None:
        """Let both make an attempt that ends alike, and go on after a kill; return the groups that were to leave."""
        self.clock.travel(SECOND)
        groups, killed = self._each(lambda witness: witness.attempt(fate))
        if groups is not None:
            names = [name for name, _ in groups]
            assert self.person.chosen is not False, f"all was refused, and {names} left"
            assert not self.person.refused.intersection(names), f"one was refused, and {names} left"
            self.left.update(names)
        if killed:
            self.crash()
        self._settle_down()
        return groups

    # Deaths.

    @step
    def crash(self) -> None:
        """Kill the process and start it again."""
        self._each(lambda witness: witness.crash(self.registry))
        self._begin()

    @step
    def lose_power(self) -> None:
        """Lose what the disk has not got, and start again."""
        self.person = self._durable_person
        self._each(lambda witness: witness.lose_power(self.registry))
        self._begin()

    # Releases.

    @step
    def upgrade(self, questions: Questions, device_epsilon: int, days: int, killed: bool = False) -> None:
        """Start a release of the app that asks these questions for so many days."""
        self.questions, self.device_epsilon, self.expires = questions, device_epsilon, self._day_after(days)
        self.registry = registry_of(device_epsilon, questions, self.expires)
        if not killed:
            self._each(Witness.close)
        self._each(lambda witness: (witness.crash if killed else witness.open)(self.registry))
        self._begin()

    @step
    def renew(self, days: int) -> None:
        """Start a release with later expiry dates and nothing else new, to which the person agrees."""
        self.upgrade(self.questions, self.device_epsilon, days)
        self.agree()

    # The person's choices.

    @step
    def agree(self) -> None:
        """Let the person agree to the registry's terms."""
        self._each(lambda witness: witness.do(lambda device: device.agree(chosen=True)))
        self._each(Witness.begin)
        self.person = replace(self.person, chosen=True)
        self._take_terms()
        self._settle_down()

    @step
    def refuse(self) -> None:
        """Let the person opt out."""
        self._each(lambda witness: witness.do(Device.refuse))
        self.person = replace(self.person, chosen=False)
        self._settle_down()

    @step
    def refuse_metric(self, name: str, refused: bool) -> None:
        """Let the person opt out of one metric, or in again."""
        self._each(lambda witness: witness.do(lambda device: device.refuse_metric(name, refused)))
        named = self.person.refused - {name}
        self.person = replace(self.person, refused=named | {name} if refused else named)
        self._settle_down()

    @step
    def forget(self) -> None:
        """Let the person have everything forgotten."""
        self._each(lambda witness: witness.do(Device.forget))
        self.person = replace(self.person, silent_until=self._today() + FORGET_DAYS)
        self._settle_down()
