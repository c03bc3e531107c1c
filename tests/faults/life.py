"""Two devices that live through the same years with different answers and different noise, and what must hold.

Only what decides when a device answers, the draw of its periods, has the same bits: then all that an observer sees but
the reports themselves must be the same. Beside each device a witness keeps its own account (`witness.py`), and here is
what the person agreed to. After every step the accounts are compared with what the devices say of themselves, and the
two devices with each other: what an observer of uploads sees, and what whoever reads their files does (`kept.py`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from dither.device import DAY_S, Device
from dither.device.recording import EPOCH, SILENT_DAYS
from dither_shared.domains import NONE
from dither_shared.exact import MICRO
from dither_shared.registry import Metric
from tests.faults.kept import told
from tests.faults.questions import TEXTS, Question, Questions, registry_of
from tests.faults.witness import HOUR_S, Groups, Witness
from tests.support.clocks import Clock

T = TypeVar("T")
P = ParamSpec("P")

SECOND = 1 / DAY_S


@dataclass(frozen=True)
class Person:
    """The choices so far of the person of both devices."""

    chosen: bool | None = None
    refused: frozenset[str] = frozenset()
    agreed: tuple[Metric, ...] = ()
    """The metrics, as they were when their terms were agreed to."""
    silent_until: int = 0
    """The day before which nothing is said, after `forget`."""
    forgot_behind: int | None = None
    """The first day by a clock that reads earlier than when that was said, which begins the silence again."""


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
        self._compared: tuple[object, int, set[str]] | None = None  # what was alike in both files
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
        self._end_forgetting()
        self._compare_files()
        syncs = self._each(lambda witness: witness.syncs)
        if syncs > self._syncs:
            self._syncs, self._durable_person = syncs, self.person
        for witness in self.both:
            witness.check(self._agreed_epsilon, self._agreed_lives)

    def _end_forgetting(self) -> None:
        day, since = int(self.clock.now // DAY_S), self.person.forgot_behind
        if self.person.silent_until - SILENT_DAYS <= day + 1:
            self.person = replace(self.person, forgot_behind=None)
        elif day >= (since := min(day, day if since is None else since)) + SILENT_DAYS:
            self.person = replace(self.person, forgot_behind=None, silent_until=0)
        else:
            self.person = replace(self.person, forgot_behind=since)

    def _compare_files(self) -> None:
        """Compare all that the two files tell, unless they tell what they told at the last step."""
        rows = [witness.kept() for witness in self.both]
        today = self._today()
        if (rows, today, self._unlike) == self._compared:
            return
        memos = {row["metric"] for one in rows for table in ("class", "report") for row in one[table]}
        self._unlike &= memos
        one, other = (told(each, today, self._unlike, TEXTS) for each in rows)
        for table, seen in one.items():
            assert seen == other[table], f"the files tell answers apart, by {table}: {seen} here, {other[table]} there"
        self._compared = rows, today, {*self._unlike}

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

    def ahead_days(self) -> float:
        """Return by how many days the devices' clock is ahead of the true one."""
        return self._ahead_s / DAY_S

    @step
    def put_right(self) -> None:
        """Set the devices' clocks right, and see that they speak again within the silent days."""
        self.jump(-self._ahead_s / DAY_S)
        for _ in range(SILENT_DAYS):
            self.travel(1)
        self._each(self._check_silences)

    def _check_silences(self, witness: Witness) -> None:
        today = self._today()
        for name, skip_reason in witness.device.skip_reasons().items():
            # Forgetting is silence until that day of the clock comes that it was said on, if that is near.
            ended = {"clock-behind", "quiet", "retired", *(["forgotten"] if self.person.silent_until <= today else [])}
            in_time = skip_reason.reason not in ended
            assert in_time, f"{name} is silent after {SILENT_DAYS} days of the right clock: {skip_reason}"
            used = any(metric == name and first <= today < end for metric, (first, end) in witness.used)
            assert used or skip_reason.reason != "answered", f"{name} was not answered on day {today}: {skip_reason}"

    def _today(self) -> int:
        """Return the latest day that the devices have reached."""
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
        self._record_both(name, answers)
        self.clock.travel(HOUR_S / 2 / DAY_S)
        self._settle_down()

    @step
    def end_unlooked(self, days: float, name: str, answers: tuple[object, object]) -> None:
        """Let time pass while the machine sleeps, and a kill end the app after an answer, with no look; start later."""
        self._each(Witness.keep)
        self.clock.travel(days)
        self._record_both(name, answers)
        self._each(lambda witness: witness.crash(self.registry))
        self.clock.travel(days)
        self._begin()

    def _record_both(self, name: str, answers: tuple[object, object]) -> None:
        metric = self.registry.metrics[name]
        today = self._today()
        if metric.memoized and (answers[0] != answers[1] or name in TEXTS):
            self._unlike.add(name)
        reasons = [
            self._record(witness, metric, answer)
            for witness, answer in zip(self.both, answers, strict=True)
            if answer is not ...
        ]
        if len(reasons) < 2:
            assert metric.hidden
            # Until a period begins, one says that it has answered, which the other has not: the clock may be behind it.
            leaves = [row["leaves"] for row in self.both[0].kept()["slot"] if row["metric"] == name]
            self._apart_until[name] = max(self._apart_until.get(name, 0), today + metric.period_days, *leaves)
        elif today >= self._apart_until.get(name, 0):
            assert reasons[0] == reasons[1], f"whether {name} is silent depends on its answers: {reasons}"
        elif not metric.hidden:
            assert bool(reasons[0]) == bool(reasons[1]), f"whether {name} is silent depends on its answers: {reasons}"
        if "" in reasons:
            self._end_forgetting()  # what ended a silent month was the answer
            self._check_permission(metric, self._today())

    def _record(self, witness: Witness, metric: Metric, answer: object) -> str:
        reason = witness.do(lambda device: device.record(metric, answer, lambda: HOUR_S))
        day = max(int(self.clock.now // DAY_S), witness.last_day)  # the day that it took, which may have fallen back
        self.said[reason] += 1
        if not reason and not metric.hidden:
            again = any(name == metric.name and first <= day < end for name, (first, end) in witness.answered)
            assert not again, f"{metric.name} was answered twice in a period"
            first = day - day % metric.period_days
            witness.answered.add((metric.name, (first, first + metric.period_days)))
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
        self.person = replace(self.person, silent_until=self._today() + SILENT_DAYS, forgot_behind=None)
        self._settle_down()
