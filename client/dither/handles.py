"""A handle for each metric: what a host app records with."""

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from time import perf_counter_ns
from typing import NoReturn, ParamSpec, TypeVar, cast

from dither_shared.errors import ConfigurationError
from dither_shared.installed import Installed
from dither_shared.registry import Metric

P = ParamSpec("P")
T = TypeVar("T")


class Handle:
    """One metric of the telemetry object."""

    def __init__(self, metric: Metric, record: Callable[[Metric, object], None]) -> None:
        self.metric = metric
        self._record = record


class OwnUse(Handle):
    """A metric that the device answers by itself, of its own use: there is nothing to record.

    `telemetry.active()`, any call that records an answer, and `telemetry.session()` are what it measures.
    """

    def record(self, answer: NoReturn) -> None:
        """Say that there is nothing to record; strict telemetry raises InvalidAnswer."""
        self._record(self.metric, answer)


class Flag(Handle):
    """A yes-or-no question, answered with True or False; anything else, None included, is read as False.

    Use for a setting that is on or off. Do not use for events: a device answers once in a period. A metric that must
    tell "no answer" apart is a choice.

        telemetry.dark_mode.record(True)
    """

    def record(self, answer: bool) -> None:
        """Randomize True or False, numpy's too, and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choice(Handle):
    """One of the listed values; whatever is not listed is "other".

    Use for a question with known answers. Do not use for free text: everything would be "other".

        telemetry.browser.record("Firefox 158")
    """

    def record(self, answer: str) -> None:
        """Randomize the answer and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Choices(Handle):
    """Several of the listed values; whatever is not listed is "other".

    Use for a question with several answers at once. Do not use for more ticks than `ticks_max`: of those the first
    listed count.

        telemetry.languages.record(["Python", "Rust"])
    """

    def record(self, answer: Collection[str]) -> None:
        """Randomize the list, tuple or set of answers, and keep the report to send. Never raises."""
        self._record(self.metric, answer)


class Text(Handle):
    """A word that nobody can list beforehand, up to 200 characters.

    Use for short texts that many devices share. Do not use for names or sentences: what is rare is not found.

        telemetry.homepage.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize the text and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Words(Handle):
    """A word that nobody knows beforehand, up to 200 characters: the totals name those that many devices have.

    Use for short texts of which nobody has a list. Do not use where there is a list: as a text the same reports tell
    more.

        telemetry.search_engine.record("example.org")
    """

    def record(self, answer: str) -> None:
        """Randomize a part of the text's code and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


class Number(Handle):
    """A number in the metric's unit: how long, how large, how many. Anything but a number is "other", or the lowest.

    Use for times, sizes and counts. Do not use for numbers that stand for something: a number that says who is a name.

        telemetry.load_time.record(0.25)
    """

    def record(self, answer: float | Decimal | Fraction) -> None:
        """Randomize the number and keep the report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)

    def timing(self) -> "Timing":
        """Return a context manager, which also decorates functions, `async` ones too: it records how long they take.

            with telemetry.load_time.timing():
                load()

        By a clock that only goes forward, also when they raise; of a generator, how long it takes to make it. Raises
        ConfigurationError where the unit is no time.
        """
        unit = self.metric.unit
        if unit not in NANOSECONDS:
            raise ConfigurationError(
                f"timing() is for metrics in one of {', '.join(NANOSECONDS)}: {self.metric.name} is in {unit!r}"
            )
        per_unit = NANOSECONDS[unit]
        return Timing(perf_counter_ns, lambda begun: self.record(Fraction(perf_counter_ns() - begun, per_unit)))


class Table(Handle):
    """Several short questions answered together: a dict of columns, each with a listed value or a number.

    Use to ask what goes with what, such as which version crashes. Do not use for questions of their own: asked
    together they share one epsilon, and each is told less precisely. An answer that is missing or not listed is that
    column's "other".

        telemetry.stability.record({"crashed": "yes", "version": "157"})
    """

    def record(self, answer: Mapping[str, object]) -> None:
        """Randomize the answers together and keep the one report to send. Returns quickly and never raises."""
        self._record(self.metric, answer)


NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9
}  # fmt: skip
"""The nanoseconds of each unit of time, by its name in a registry."""


class Timing:
    """Times a `with` block, or a call of a decorated function, `async` or not. One may be used several times.

    `begin` returns what `end` is given, such as a moment.

    Blocks may lie within each other. Those of other threads and tasks need a `timing()` of their own, calls do not.
    """

    def __init__(self, begin: Callable[[], int], end: Callable[[int], None]) -> None:
        self._begin = begin
        self._end = end
        self._begun: list[int] = []

    def __enter__(self) -> None:
        self._begun.append(self._begin())

    def __exit__(self, *raised: object) -> None:
        self._end(self._begun.pop())

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return a function that does the same; each call is timed, of an `async` one until it has been awaited."""
        import inspect  # only where something is decorated

        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def timed_until_awaited(*args: P.args, **kwargs: P.kwargs) -> object:
                begun = self._begin()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self._end(begun)

            return cast("Callable[P, T]", timed_until_awaited)

        @wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            begun = self._begin()
            try:
                return function(*args, **kwargs)
            finally:
                self._end(begun)

        return timed


HANDLES = Installed[type[Handle]](
    "dither.handles",
    {handle.__name__.lower(): handle for handle in (Flag, Choice, Choices, Number, Table, Text, Words)},
)
"""The handle of each kind of metric."""
