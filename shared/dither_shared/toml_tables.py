"""Reading a TOML table key by key, so that every mistake names its place, what was needed and what came."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial, wraps
from types import MappingProxyType

from dither_shared.errors import InvalidParameter, RegistryError, refusal_of
from dither_shared.exact import EPSILON_MAX, EPSILON_MIN
from dither_shared.files import BYTE_ORDER_MARK, line_of_item, read_text
from dither_shared.frozen import frozen
from dither_shared.installed import load
from dither_shared.light_typing import Any, TypeVar, cast
from dither_shared.text_normalization import ends_or_controls, normal, unseen

METRIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

_SHOWN_MAX = 10**60
_MISSPELT = 0.8
"""How alike two keys are if one may be meant as the other: `report` and `reports`, but not `answers` and `owners`."""
_COMPARED_MAX = 100
_MISSING = {
    "rev": "the metric's version, 1 for a new one: it tells one meaning of the numbers from the next",
    "ticks_max": "the most values that one answer may hold: each one costs accuracy",
    "question": "what people are asked, in a sentence they can read",
    "epsilon": "the privacy loss of one report: 1 or 2 suit most questions",
    "reports": "how many reports one device may send in its life: times epsilon, this is its whole privacy loss; or "
    "memoize = true, with epsilon_permanent and answers, to repeat one answer for a fixed loss",
    "epsilon_permanent": "the privacy loss of one memoized answer, however often it is repeated: above epsilon",
    "answers": "how many different answers one device may give in its life: times epsilon_permanent, this is its whole "
    "privacy loss; after the last one it repeats that one",
    "presence": '"public" when it tells nothing about a person that a device answers, "hidden" to let devices with '
    'nothing to say answer "none"',
    "period": 'the time in which a device answers at most once, in whole days: "1d", "7d"',
    "owners": "who answers for the question: a list of addresses",
    "sensitivity": '"low", "medium" or "high": how much the true answer would tell about a person',
    "expires": "the day, at most a year away, on which devices fall silent: 2027-06-30, without quotes",
    "unit": 'what the number counts or is measured in: "s", "MB", "tabs"',
    "low": "the least number that is told apart from smaller ones, in the unit; or edges, a list",
    "high": "the largest number that is told apart from larger ones, in the unit",
    "buckets": "how many ranges there are from low to high: 32 to 128 suit most numbers; or edges, a list",
    "columns": 'the questions of a table: { crashed = ["no", "yes"], version = ["157", "158"] }',
    "registry": "a table [registry] with the app's name and budget; `dither metrics new` writes a file with one",
    "metric": "a table [metric.NAME] for each question",
    "app": "the app's name: a device's file belongs to it",
    "device_epsilon": "the most that all metrics together may ever charge one device",
}


@frozen
class ValueList:
    """A list of values, which several keys may name."""

    values: tuple[str, ...]
    place: Callable[[int], str]
    """Says in which line a value is, by its number from 0 on."""


_UNREAD = ValueList(("?", "??"), str)
_NONE: Mapping[str, Any] = MappingProxyType({})
Reader = TypeVar("Reader", bound=Callable[..., Any])
MISTAKES_MAX = 20
"""The most mistakes of a file that are said at once."""


class Mistakes:
    """The mistakes of a file, which are said at once: a key that is wrong is noted, and reading goes on without it."""

    def __init__(self) -> None:
        self._found: dict[str, RegistryError] = {}

    def __len__(self) -> int:
        return len(self._found)

    def note(self, error: RegistryError) -> None:
        """Note a mistake; one that was noted before is still one."""
        self._found.setdefault(str(error), error)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note a mistake that ends a part of the file, unless it may come of one that was noted in the same part."""
        before = len(self._found)
        try:
            yield
        except RegistryError as error:
            if len(self._found) == before:
                self.note(error)
        except Exception:  # the kinds were given what stands in for a wrong key
            if len(self._found) == before:
                raise

    def check(self) -> None:
        """Raise the one mistake, or one error for all."""
        errors = [*self._found.values()]
        if len(errors) > 1:
            more = [f"and {len(errors) - MISTAKES_MAX:,} more mistakes"] if len(errors) > MISTAKES_MAX else []
            raise RegistryError("\n".join([*map(str, errors[:MISTAKES_MAX]), *more]))
        if errors:
            raise errors[0]


def _or_else(stand_in: Callable[..., object]) -> Callable[[Reader], Reader]:
    """Have a reader of a key note its mistake, where the table notes them, and return what stands in for the key."""

    def decorate(read: Reader) -> Reader:
        @wraps(read)
        def noting(table: TomlTable, key: str, *args: Any, **kwargs: Any) -> object:
            try:
                return read(table, key, *args, **kwargs)
            except RegistryError as error:
                if table.mistakes is None:
                    raise
                table.mistakes.note(error)
                return stand_in(table, key, *args, **kwargs)

        return cast("Reader", noting)

    return decorate


_OF_THE_APP = {"app", "device_epsilon", "quiet_days", "linkable", "nearly_certain", "evicted"} | {
    "publish_epsilon_year",
    "publish_delta",
}
"""Keys of [registry], which somebody may write into a metric's table, such as the last one of the file."""


class TomlTable:
    """One table of the file. A key that is read is ticked off; `done` refuses those that nobody asked for.

    `text` is the file's own, for the lines of mistakes, and `lists` are those that keys of this table may name. With
    `mistakes` a key that is wrong is noted there, and reads as something that is right; else it raises RegistryError.
    """

    def __init__(
        self,
        source: str,
        where: str,
        data: dict[str, Any],
        text: str = "",
        lists: Mapping[str, ValueList] = _NONE,
        mistakes: Mistakes | None = None,
    ) -> None:
        self.mistakes = mistakes
        self._source = source
        self._where = where
        self._data = data
        self._text = text
        self.lists = lists
        self.named: set[str] = set()
        """The lists that were named, in this table and in those within it."""
        self._known: set[str] = set()
        self._meant: set[str] = set()
        """The keys that a hint has named: each may be meant as one that is missing."""

    def error(self, key: str, problem: str) -> RegistryError:
        """Return the error for one key."""
        where = f"{self._where}: " if self._where else ""
        return refusal_of(self._source, f"{where}{key} {problem}")

    def _needs(self, key: str, needed: str, got: object, place: str = "") -> RegistryError:
        match got:
            case str():
                shown = f'"{got}"'
            case dict():
                shown = "a table"
            case list():
                shown = f"a list of {len(got)}"
            case int() if abs(got) > _SHOWN_MAX:
                shown = "a number of too many digits"
            case _:
                shown = str(got)
        return self.error(key, f"must be {needed}, got {shown if len(shown) <= 60 else shown[:57] + '...'}{place}")

    def has(self, key: str) -> bool:
        """Tell whether the key is there."""
        self._known.add(key)
        return key in self._data

    def _get(self, key: str, default: object = None) -> Any:
        if self.has(key):
            return self._data[key]
        if default is None:
            meaning = f": {_MISSING[key]}" if key in _MISSING else ""
            raise self.error(key, f"is missing{meaning}{self._misspelt(key)}")
        return default

    def _misspelt(self, key: str) -> str:
        """Return a hint where a key that nothing has read looks like the one that is missing."""
        import difflib  # only for a mistake

        unread = [name for name in self._data if name not in self._known]
        close = difflib.get_close_matches(key, unread[:_COMPARED_MAX], n=1, cutoff=_MISSPELT)
        self._meant.update(close)
        return f"; {close[0]} is there: did you mean {key}?" if close else ""

    def done(self) -> None:
        """Refuse keys that nothing read."""
        for key in [key for key in self._data if key not in self._known | self._meant][:MISTAKES_MAX]:
            self._refuse(key)

    @_or_else(lambda table, key: None)
    def _refuse(self, key: str) -> None:
        import difflib  # only for a mistake

        close = difflib.get_close_matches(key, self._known, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(self._known))}"
        if key in _OF_THE_APP and self._where != "registry":
            hint = "; it belongs to [registry]"
        raise self.error(key, f"is not a key of this table{hint}")

    def table(self, key: str) -> TomlTable:
        """Return a table within this one."""
        value, where = self._get(key), f"{self._where}.{key}" if self._where else key
        if not isinstance(value, dict):
            raise self._needs(key, f"a table, [{where}]", value)
        inner = TomlTable(self._source, where, value, self._text, self.lists, self.mistakes)
        inner.named = self.named
        return inner

    def tables(self, key: str, most: int) -> dict[str, TomlTable]:
        """Return the tables [key.NAME], of which there is at least one."""
        inner = self.table(key)
        if not 1 <= len(inner._data) <= most:
            raise self.error(key, f"must hold 1 to {most} tables, got {len(inner._data)}")
        return {name: inner.table(name) for name in inner._data}

    def is_table(self, key: str) -> bool:
        """Tell whether a key is one of a table."""
        return isinstance(self._get(key), dict)

    def names(self) -> tuple[str, ...]:
        """Return the keys of a table whose keys are the author's own: each has the form of a metric's name."""
        for key in self._data:
            if not METRIC_NAME.fullmatch(key):
                raise self.error("a name", f"must match [a-z][a-z0-9_]{{0,62}}, got {key!r}")
        return tuple(self._data)

    @_or_else(lambda table, key, least, most, default=None, needed="": least)
    def integer(self, key: str, least: int, most: int, default: int | None = None, needed: str = "") -> int:
        """Return an integer in [least, most]."""
        value = self._get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self._needs(key, needed or f"an integer from {least} to {most}", value)
        return value

    @_or_else(lambda table, key, fewest, most, size_max: tuple(range(fewest)))
    def integers(self, key: str, fewest: int, most: int, size_max: int) -> tuple[int, ...]:
        """Return a list of so many integers, from -size_max to size_max."""
        value = self._get(key)
        needed = f"a list of {fewest} to {most} integers of at most {len(str(size_max)) - 1} digits"
        if not isinstance(value, list) or not fewest <= len(value) <= most:
            raise self._needs(key, needed, value)
        for each in value:
            if type(each) is not int or abs(each) > size_max:
                raise self._needs(key, needed, each, _steps_meant(key, value))
        return tuple(value)

    @_or_else(lambda table, key, size_max, decimals_max: Decimal(1))
    def decimal(self, key: str, size_max: int, decimals_max: int) -> Decimal:
        """Return a number from -size_max to size_max with at most so many decimals."""
        needed = f"a number with at most {decimals_max} decimals"
        return self._number(key, needed, Decimal(-size_max), Decimal(size_max), decimals_max)

    def _number(self, key: str, needed: str, least: Decimal, most: Decimal, decimals_max: int) -> Decimal:
        value = self._get(key)
        if type(value) in (int, Decimal):
            number = Decimal(value)
            # Size and exponent first: a fraction of some would take all memory.
            sized = number.is_finite() and least <= number <= most and (not number or -19 <= number.adjusted() <= 19)
            if sized and (Fraction(number) * 10**decimals_max).denominator == 1:
                return number
        raise self._needs(key, needed, value)

    @_or_else(lambda table, key, default: default)
    def boolean(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._data[key] if self.has(key) else default
        if type(value) is not bool:
            raise self._needs(key, "true or false", value)
        return value

    @_or_else(lambda table, key, most=EPSILON_MAX: Decimal(1))
    def epsilon(self, key: str, most: Decimal = EPSILON_MAX) -> Decimal:
        """Return an epsilon, in steps of a micro-epsilon."""
        needed = f"a number from {EPSILON_MIN} to {most} with at most six decimals"
        return self._number(key, needed, EPSILON_MIN, most, 6)

    @_or_else(lambda table, key: Decimal("0.5"))
    def probability(self, key: str) -> Decimal:
        """Return a number from 0 to 1, of at most 18 decimals."""
        return self._number(key, "a number from 0 to 1 with at most 18 decimals", Decimal(0), Decimal(1), 18)

    @_or_else(
        lambda table, key, choices, default=None, meant=_NONE: meant.get(
            str(table._data.get(key)), default or next(iter(choices))
        )
    )
    def one_of(
        self, key: str, choices: Collection[str], default: str | None = None, meant: Mapping[str, str] = _NONE
    ) -> str:
        """Return one of a few words; `meant` has those that others use for some of them."""
        value = self._get(key, default)
        if not isinstance(value, str) or value not in choices:
            hint = f'; did you mean "{meant[value]}"?' if isinstance(value, str) and value in meant else ""
            raise self._needs(key, " or ".join(f'"{choice}"' for choice in choices), value, hint)
        return value

    def is_one_of(self, key: str, choices: Collection[str]) -> bool:
        """Tell whether a key is one of a few words."""
        value = self._data.get(key)
        return isinstance(value, str) and value in choices

    @_or_else(lambda table, key: "app")
    def name(self, key: str) -> str:
        """Return a name of the form that metrics have."""
        value = self._get(key)
        if not isinstance(value, str) or not METRIC_NAME.fullmatch(value):
            raise self._needs(key, "a lower-case name such as my_app, at most 63 characters", value)
        return value

    @_or_else(lambda table, key, characters_max: "?")
    def text(self, key: str, characters_max: int) -> str:
        """Return a text in one line, in the form of all texts."""
        value = self._get(key)
        return self._check_text(key, normal(value) if isinstance(value, str) else value, characters_max)

    @_or_else(lambda table, key, most, characters_max: ("?",))
    def texts(self, key: str, most: int, characters_max: int) -> tuple[str, ...]:
        """Return a list of 1 to `most` different texts."""
        value = self._get(key)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self._needs(key, f"a list of 1 to {most} texts", value)
        return self._check_texts(key, value, characters_max, partial(self._line_of, key)).values

    def _line_of(self, key: str, number: int) -> str:
        line = line_of_item(self._text, self._where, key, number)
        return f"in line {line}" if line else f"as item {number + 1}"

    @_or_else(lambda table, key, most, characters_max, reserved=_NONE: _UNREAD)
    def list_or_name(self, key: str, most: int, characters_max: int, reserved: Mapping[str, str] = _NONE) -> ValueList:
        """Return a list of 1 to `most` different texts, or the shared one that is named.

        Those that are `reserved` come to the list by themselves, each for a reason.
        """
        name = self._get(key)
        if isinstance(name, str) and "@" in name and name not in self.lists:
            listed = ValueList(self._published(key, name, most), lambda place: f"as value {place + 1} of {name}")
        elif isinstance(name, str):
            if name not in self.lists:
                with suppress(ImportError):
                    if name in load("dither_shared.published:LISTS"):
                        self._published(key, name, most)  # which says which edition there is
                known = f" or the name of a shared one ({', '.join(self.lists)})" if self.lists else ""
                raise self._needs(key, f"a list of 1 to {most} texts{known}", name)
            self.named.add(name)
            listed = self.lists[name]
            if len(listed.values) > most:
                raise self._needs(key, f"a list of 1 to {most} texts", [*listed.values], f" in [values.{name}]")
        else:
            listed = ValueList(self.texts(key, most, characters_max), partial(self._line_of, key))
        return self._without(key, listed, reserved)

    def _published(self, key: str, name: str, most: int) -> tuple[str, ...]:
        """Return a list of dither's own."""
        try:
            values: tuple[str, ...] = load("dither_shared.published:published")(name)
        except ImportError:
            raise self.error(key, "names a published list: install dither-aggregator, which brings them") from None
        except InvalidParameter as error:
            raise self.error(key, f"must be a list, or the name of one: {error}") from None
        if len(values) > most:
            raise self._needs(key, f"a list of 1 to {most} texts", name)
        return values

    @_or_else(lambda table, key, directory, most, characters_max, reserved=_NONE: _UNREAD)
    def list_or_file(
        self, key: str, directory: str | None, most: int, characters_max: int, reserved: Mapping[str, str] = _NONE
    ) -> ValueList:
        """Return the same of a key, or the lines of the UTF-8 file that `key`_file names, looked for in `directory`."""
        file_key = f"{key}_file"
        if self.has(key) == self.has(file_key):
            raise self.error(key, f"or {file_key} is needed, and not both")
        if self.has(key):
            return self.list_or_name(key, most, characters_max, reserved)
        return self._without(file_key, self._lines_of_file(file_key, directory, most, characters_max), reserved)

    def _without(self, key: str, listed: ValueList, reserved: Mapping[str, str]) -> ValueList:
        for value, reason in reserved.items():
            if value in listed.values:
                place = listed.place(listed.values.index(value))
                raise self.error(key, f'must leave out "{value}", got it {place}: {reason}')
        return listed

    def _lines_of_file(self, key: str, directory: str | None, most: int, characters_max: int) -> ValueList:
        """Return the lines of a file.

        Without a directory the registry came from elsewhere: it may read no file of this machine.
        """
        named = self._check_text(key, self._get(key), 1000)  # as it is: two forms of a name are two files
        if directory is None:
            raise self.error(key, "names a file, and only the registry's own text is here: list the lines in it")
        path = os.path.join(directory, named)
        bytes_max = most * (4 * characters_max + 2)  # four bytes a character, and up to two that end a line
        try:
            text = read_text(path, bytes_max).removeprefix(BYTE_ORDER_MARK)
        except (OSError, ValueError) as error:
            line = error.object.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 0
            where = f"{path}, line {line}," if line else f"{path}"
            raise self.error(
                key, f"must name a UTF-8 file with a value a line; {where} cannot be read: {error}"
            ) from None
        text = text.removesuffix("\n")
        ended = text.count("\n") + bool(text)  # counted before there is a list of them
        if not 1 <= ended <= most:
            raise self.error(key, f"must name a file of 1 to {most} lines, got {path} with {ended}")
        lines = text.split("\n")
        return self._check_texts(key, lines, characters_max, lambda number: f"in line {number + 1} of {path}")

    def _check_texts(
        self, key: str, values: Sequence[object], characters_max: int, place: Callable[[int], str]
    ) -> ValueList:
        """Return the values in their form as texts; refuse those that are none, that nobody sees, or that are equal."""
        seen: dict[str, int] = {}
        for number, value in enumerate(values):
            composed = normal(value) if isinstance(value, str) else value
            text = self._check_text(key, composed, characters_max, partial(place, number))
            if hidden := unseen(text):
                raise self.error(key, f"must be texts that can be seen, got {hidden} {place(number)}")
            if text in seen:
                twice = f"{place(seen[text])} and {place(number)}"
                raise self.error(key, f'must be different texts, got "{text}" twice, {twice}')
            seen[text] = number
        return ValueList(tuple(seen), place)

    def _check_text(self, key: str, value: object, characters_max: int, place: Callable[[], str] | None = None) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= characters_max or value != value.strip():
            needed, got = f"text of 1 to {characters_max} characters with no space around it", value
        elif not value.isprintable() and ends_or_controls().search(value):
            needed, got = "text in one line, without control characters", ascii(value)
        else:
            return value
        raise self._needs(key, needed, got, f" {place()}" if place else "")

    @_or_else(lambda table, key: 1)
    def days(self, key: str) -> int:
        """Return a number of whole days written as "7d"."""
        value = self._get(key)
        if not isinstance(value, str) or not re.fullmatch(r"[1-9][0-9]{0,2}d", value) or int(value[:-1]) > 366:
            meant = _days_meant(value)
            raise self._needs(key, 'whole days from "1d" to "366d"', value, f'; did you mean "{meant}"?' * bool(meant))
        return int(value[:-1])

    @_or_else(lambda table, key: date.max)
    def day(self, key: str) -> date:
        """Return a date written without quotes."""
        value = self._get(key)
        if isinstance(value, datetime) or not isinstance(value, date):
            raise self._needs(key, "a date such as 2027-06-30, without quotes", value)
        return value

    def check_metric_name(self, name: str, reserved: Collection[str]) -> None:
        """Refuse a metric's name that is malformed, or that the telemetry object needs for a method."""
        if not METRIC_NAME.fullmatch(name):
            raise self.error("name", f"must match [a-z][a-z0-9_]{{0,62}}, got {name!r}")
        if keyword.iskeyword(name):
            reason = "or no code could ask for the metric"
            raise self.error("name", f"must not be a word of Python's, {reason}, got {name!r}")
        if name in reserved:
            raise self.error("name", f"must not be that of a method of the telemetry object, got {name!r}")


_UNITS = {"h": 1 / 24, "d": 1, "w": 7, "m": 30, "y": 365}
_WORDS = {"hourly": "1d", "daily": "1d", "weekly": "7d", "monthly": "30d", "yearly": "365d"}


def _days_meant(value: object) -> str:
    """Return the period that somebody may mean who wrote it in another way, or ""."""
    written = re.fullmatch(r"([0-9]{1,4}) ?(h|d|w|m|y|)[a-z]*", str(value).strip().lower())
    if written is None or isinstance(value, bool):
        return _WORDS.get(str(value).strip().lower(), "")
    days = max(1, round(int(written[1]) * _UNITS[written[2] or "d"]))
    return f"{days}d" if days <= 366 else ""


def _steps_meant(key: str, value: list[object]) -> str:
    """Return how to write a list of numbers with decimals in steps, or ""."""
    if not all(type(each) is int or (isinstance(each, Decimal) and each.is_finite()) for each in value):
        return ""
    numbers = [Decimal(str(each)).normalize() for each in value]
    decimals = max(0, *(-int(number.as_tuple().exponent) for number in numbers))
    if not (1 <= decimals <= 9 and all(number.adjusted() < 18 for number in numbers)):
        return ""
    shown = [f"{int(number.scaleb(decimals))}" for number in numbers[:8]] + ["..."][: len(numbers) > 8]
    return f"; these are whole steps: did you mean {key} = [{', '.join(shown)}] and decimals = {decimals}?"
