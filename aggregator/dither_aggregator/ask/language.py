"""The language of questions: a line of text, read into shares, means and quantiles with numbers before them.

    share(browser in "Chrome *") / share(browser in "Firefox *")
    share(dark = "yes", in 2026-10) - share(dark = "yes", in 2026-09)
    mean(load_time) by week since 2026-09-01

A question is a sum of terms: a number times what was asked, or times one sum over another. All else that arithmetic has
is refused with its place, for its error has no stated bound. Or it is one analysis, which has several rows:

    top(browser group by family, 5)
    regress(crashed = "yes" on version, memory in ("4 GB", "8 GB"))
    clusters(usage, k = 3)
    count(devices active in a week)
    count(devices active in a day) / count(devices active in a month)
"""

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal
from fnmatch import translate
from fractions import Fraction
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import lark
from lark.visitors import Transformer_NonRecursive

from dither_aggregator.analysis.reading import Window
from dither_aggregator.store.document_kinds import ValueGroup
from dither_shared.errors import DitherError
from dither_shared.safe_output import visible

GRAMMAR = r"""
question: sum [period] [step] | sum step period | analysis [period]
?sum: product | sum "+" product -> plus | sum "-" product -> minus
?product: factor | product "*" factor -> times | product "/" factor -> over
?factor: number | asked | "-" factor -> negative | "(" sum ")"

asked: "share" "(" conditions ["|" conditions] ["," period] ")" -> share
     | "mean" "(" NAME ["|" conditions] ["," period] ")" -> mean
     | "quantile" "(" NAME "," number ["|" conditions] ["," period] ")" -> quantile

analysis: "top" "(" NAME [grouping] "," COUNT ")" -> top
        | "regress" "(" part "on" part ("," part)* ")" -> regress
        | "logistic" "(" part "on" part ("," part)* ")" -> logistic
        | "clusters" "(" NAME "," "k" "=" COUNT ")" -> clusters
        | _active -> devices
        | _active "/" _active -> stickiness
_active: _COUNTING "(" "devices" "active" "in" "a" span ")"
span: "day" -> daily | "week" -> weekly | "month" -> monthly
grouping: "group" "by" "family" -> by_family | "group" "by" "saved" -> by_saved
?part: NAME -> whole | condition

conditions: condition ("and" condition)*
condition: NAME "=" text -> equals
         | NAME "in" texts -> among
         | NAME "in" "group" text -> in_group
         | NAME (ABOVE | BELOW) edge [UNIT] -> beyond
?edge: number | "-" number -> negative
?texts: text -> one | "(" text ("," text)* ")" -> several

period: "last" COUNT "days" -> last
      | "in" (DAY | MONTH | YEAR) -> within
      | "between" DAY "and" DAY -> between
      | "since" DAY -> since
step: "by" "day" -> daily | "by" "week" -> weekly | "by" "month" -> monthly

text: STRING
number: NUMBER | COUNT | YEAR

_COUNTING: "count"
NAME: /[a-z][a-z0-9_.]*/
UNIT: /(?!(in|last|since|between|by|and)\b)[^\s\d(),|".<>=+*\/-][^\s(),|"]*/
STRING: /"(?:[^"\\]|\\["\\])*"/
ABOVE: ">=" | ">"
BELOW: "<"
DAY.3: /[0-9]{4}-[0-9]{2}-[0-9]{2}/
MONTH.2: /[0-9]{4}-[0-9]{2}(?![0-9-])/
YEAR.1: /(19|20)[0-9]{2}(?![0-9.])/
NUMBER: /[0-9]*\.[0-9]+/
COUNT: /[0-9]+(?![0-9.])/
%ignore /\s+/
"""
CHARACTERS_MAX = 2_000
"""The longest question."""
TERMS_MAX = 50
TOP_MAX, CLUSTERS_MAX = 100, 12
"""The most values of a top, and the most clusters."""
MATCHES_MAX = 1_000_000
"""The most patterns times values: about half a second."""
NUMBER_MAX = 10**12
"""The largest number before a part, and the inverse of the smallest."""
AROUND = 60
"""So many characters are shown to each side of a place."""

Step = Literal["day", "week", "month"]
T = TypeVar("T")


class BadQuestion(DitherError):
    """A question that cannot be asked; `why` says what could be in its place, and the message shows the place, too."""

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.why, self.at, self.text = why, at, ""

    def beside(self, at: int) -> "BadQuestion":
        """Return it with the place of what cannot be asked, where that is not known."""
        self.at = at if self.at is None else self.at
        return self

    def placed(self, text: str, at: int) -> "BadQuestion":
        """Return it with the question that was read, and the place of what cannot be asked, where that is not known."""
        self.text, self.at = text, min(at if self.at is None else self.at, len(text))
        return self

    @property
    def around(self) -> tuple[str, str]:
        """The text before the place, and the text from there on: the nearest of both, made visible."""
        at = self.at or 0
        before, after = self.text[max(at - AROUND, 0) : at], self.text[at : at + AROUND]
        cut = "…" * (at > AROUND), "…" * (len(self.text) > at + AROUND)
        return cut[0] + visible(before), visible(after) + cut[1]

    def __str__(self) -> str:
        if self.at is None:
            return self.why
        before, after = self.around
        return f"at character {self.at + 1}: {self.why}\n  {before}{after}\n  {''.join(map(_blank, before))}^"


def _blank(character: str) -> str:
    """Return as much space as a character takes on a terminal."""
    if unicodedata.combining(character):
        return ""
    return "\N{IDEOGRAPHIC SPACE}" if unicodedata.east_asian_width(character) in "WF" else " "


class Untold(DitherError):
    """A question that too few reports answer, or too noisy ones; the message says why."""

    def __init__(self, why: str, of: object = None) -> None:
        super().__init__(why)
        self.of = of
        """The reports that were counted nevertheless."""


@dataclass(frozen=True)
class Period:
    """Days, or so many that end with the last sealed one."""

    first: date | None
    last: date | None
    """None: until the last sealed day."""
    days: int | None = None
    at: int = field(default=0, compare=False)
    """Its place in the question."""

    def window(self, sealed: date) -> Window:
        """Return the days; raise BadQuestion where there is none, or none that is sealed."""
        if self.first and self.last and self.last < self.first:
            raise BadQuestion(f"the period ends before it begins: {self.last} is before {self.first}", self.at)
        last = min(self.last or sealed, sealed)
        window = Window.ending(last, self.days) if self.days else Window(self.first or last, last)
        if window.first > window.last:
            raise BadQuestion(f"{window.first} is not over: the last sealed day is {sealed}", self.at)
        return window


@dataclass(frozen=True)
class Condition:
    """A condition of an answer: its value is among some (patterns with `*` and `?`), or on one side of a number."""

    name: str
    patterns: tuple[str, ...] = ()
    above: bool | None = None
    number: Decimal | None = None
    unit: str = ""
    group: ValueGroup | None = None
    """The saved group whose values it means, which decides of each value itself."""
    at: int = field(default=0, compare=False)
    """Its place in the question."""
    value_at: int = field(default=0, compare=False)
    """The place of the value or number behind the name."""
    unit_at: int = field(default=0, compare=False)

    def among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of some names it means; raise BadQuestion where that would take long."""
        if names not in self._found:
            wild = sum(any(each in pattern.replace("[*]", "") for each in "*?") for pattern in self.patterns)
            if wild * len(names) > MATCHES_MAX:
                raise BadQuestion(f"{wild:,} patterns are too many for {len(names):,} values")
            means = self.group.has if self.group else re.compile("|".join(map(translate, self.patterns))).fullmatch
            self._found[names] = tuple(filter(means, names))
        return self._found[names]

    @cached_property
    def _found(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """By the names that were asked for before: all windows of a question ask for the same."""
        return {}

    @property
    def is_single(self) -> bool:
        """Whether it names one thing: a number's edge, or a value without a pattern."""
        if self.number is not None:
            return True
        return len(self.patterns) == 1 and not set("*?[") & set(re.sub(r"\[[*?[]\]", "", self.patterns[0]))

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.name} {'>' if self.above else '<'} {self.number}{f' {self.unit}' * bool(self.unit)}"
        listed = ", ".join(quoted(re.sub(r"\[(.)\]", r"\1", each)) for each in self.patterns)
        return f"{self.name} in {f'({listed})' if len(self.patterns) > 1 else listed}"


@dataclass(frozen=True)
class Figure:
    """One thing that is asked: a share, a mean or a quantile of a metric."""

    statistic: Literal["share", "mean", "quantile"]
    metric: str
    """Or a column of a table."""
    condition: Condition | None = None
    """A share's own."""
    given: Condition | None = None
    """Devices of which this is not true do not count."""
    also: tuple[Condition, ...] = ()
    """Further conditions of a share in a table, all of which hold."""
    given_also: tuple[Condition, ...] = ()
    probability: Fraction | None = None
    """A quantile's own."""
    probability_at: int = field(default=0, compare=False)
    period: Period | None = None
    at: int = field(default=0, compare=False)
    """Its place in the question."""


@dataclass(frozen=True)
class WeightedSum:
    """Numbers times what is asked, and a number alone."""

    terms: tuple[tuple[Fraction, Figure], ...] = ()
    constant: Fraction = Fraction(0)

    def times(self, factor: Fraction) -> "WeightedSum":
        """Return it times a number."""
        return WeightedSum(tuple((factor * each, asked) for each, asked in self.terms), factor * self.constant)

    def factors(self, asked: Sequence[Figure]) -> list[float]:
        """Return the number before each of some things, and the number alone."""
        found = {each: factor for factor, each in self.terms}
        return [*(float(found.get(each, 0)) for each in asked), float(self.constant)]

    def __add__(self, other: "WeightedSum") -> "WeightedSum":
        terms: dict[Figure, Fraction] = {}
        for factor, asked in (*self.terms, *other.terms):
            terms[asked] = terms.get(asked, Fraction(0)) + factor
        return WeightedSum(tuple((factor, asked) for asked, factor in terms.items()), self.constant + other.constant)


@dataclass(frozen=True)
class Expression:
    """A sum, and numbers times one sum over another."""

    sum: WeightedSum = WeightedSum()
    ratios: tuple[tuple[Fraction, WeightedSum, WeightedSum], ...] = ()
    at: int = field(default=0, compare=False)
    """Its place in the question."""

    @property
    def asked(self) -> list[Figure]:
        """Each thing that is asked, once."""
        sums = [self.sum, *(each for _, *both in self.ratios for each in both)]
        return list(dict.fromkeys(asked for each in sums for _, asked in each.terms))

    def within(self, period: Period) -> "Expression":
        """Return the same of the days of a period."""

        def at(of: WeightedSum) -> WeightedSum:
            return replace(of, terms=tuple((factor, replace(asked, period=period)) for factor, asked in of.terms))

        return Expression(at(self.sum), tuple((factor, at(part), at(whole)) for factor, part, whole in self.ratios))

    def less(self, other: "Expression") -> "Expression":
        """Return it less another one."""
        away = _times(other, Fraction(-1))
        return Expression(self.sum + away.sum, (*self.ratios, *away.ratios))

    @property
    def numbers(self) -> list[Fraction]:
        """Each number in it."""
        sums = [self.sum, *(each for _, *both in self.ratios for each in both)]
        parts = [factor for each in sums for factor, _ in each.terms]
        return [*parts, *(each.constant for each in sums), *(factor for factor, _, _ in self.ratios)]


@dataclass(frozen=True)
class Analysis:
    """A question with several rows: the largest values, clusters of numbers, coefficients, or devices by period."""

    kind: Literal["top", "clusters", "regress", "logistic", "devices", "stickiness"]
    metric: str = ""
    """Or a column of a table; of a regression the outcome's. "" of devices: the registry says which metrics count."""
    count: int = 0
    """How many of the largest values, or clusters."""
    grouping: Literal["", "family", "saved"] = ""
    groups: Mapping[str, ValueGroup] = field(default_factory=dict)
    """Saved groups of the metric's values, by name."""
    parts: tuple[Condition, ...] = ()
    """The outcome of a regression, then its groups. One without a pattern means all values of its column."""
    span: Step = "week"
    """The period of which devices are counted."""
    part: Step = "day"
    """The shorter period of stickiness."""
    at: int = field(default=0, compare=False)
    """The place of the metric's name in the question."""

    @property
    def by_period(self) -> bool:
        """Whether it has a row a period."""
        return self.kind in ("devices", "stickiness")


@dataclass(frozen=True)
class Query:
    """A question as it was written, and as it was read."""

    text: str
    expression: Expression
    """Empty of an analysis."""
    period: Period | None = None
    """The period of each part that names none."""
    step: Step | None = None
    """One answer for each of these in the period."""
    analysis: Analysis | None = None


Groups = Mapping[str, Mapping[str, ValueGroup]]
"""By metric, the groups of the dashboard, by name."""


def parse(text: str, groups: Groups = MappingProxyType({})) -> Query:
    """Read a question; raise BadQuestion, which shows the place, for what is none."""
    if len(text) > CHARACTERS_MAX:
        most = f"a question has at most {CHARACTERS_MAX:,} characters, this one has {len(text):,}"
        raise BadQuestion(most).placed(text, CHARACTERS_MAX)
    try:
        question: Query = _Reader(groups).transform(parser().parse(text))
    except lark.exceptions.VisitError as error:
        if isinstance(error.orig_exc, BadQuestion):
            raise error.orig_exc.placed(text, getattr(getattr(error.obj, "meta", None), "start_pos", 0)) from None
        raise
    except lark.exceptions.UnexpectedInput as error:
        raise _unexpected(text, error) from None
    if len(question.expression.asked) > TERMS_MAX:
        too_many = question.expression.asked[TERMS_MAX]
        raise BadQuestion(f"a question asks for at most {TERMS_MAX} things at once").placed(text, too_many.at)
    return replace(question, text=text)


@cache
def parser() -> lark.Lark:
    """Return the parser of questions, made once in a process."""
    return lark.Lark(GRAMMAR, start="question", parser="lalr", propagate_positions=True)


_WORDS = {
    "NAME": "a metric's name",
    "STRING": 'a value in double quotes, such as "yes"',
    "NUMBER": "a number",
    "COUNT": "a number",
    "YEAR": "a year",
    "DAY": "a day such as 2026-09-01",
    "MONTH": "a month such as 2026-09",
    "UNIT": "a unit",
    "LPAR": '"("',
    "RPAR": '")"',
    "COMMA": '","',
    "VBAR": '"|"',
    "EQUAL": '"="',
    "ABOVE": '">"',
    "BELOW": '"<"',
    **dict.fromkeys(("PLUS", "MINUS", "STAR", "SLASH"), '"+", "-", "*", "/"'),
    "BY": 'a step such as "by week"',
    "$END": "the end",
}
_BEGINNING = (
    *("SHARE", "MEAN", "QUANTILE", "TOP", "REGRESS", "LOGISTIC", "CLUSTERS", "_COUNTING"),
    *("LPAR", "MINUS", "NUMBER", "COUNT", "YEAR"),
)
"""The terminals with which a question or a part of one may begin."""
_QUESTION = 'a question such as share(metric = "value")'
_PERIODS = ("LAST", "IN", "BETWEEN", "SINCE")
_PERIOD = "a period such as last 7 days"
_PART = 'a number or a part such as share(metric = "value")'


def _unexpected(text: str, error: lark.exceptions.UnexpectedInput) -> BadQuestion:
    """Say at which place a question cannot be read, and what may stand there."""
    names = getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    literal = {each.name: f'"{each.pattern.value}"' for each in parser().terminals}
    wanted = list[str]()
    for first, of_it, words in (("TOP", (), _QUESTION), ("SHARE", _BEGINNING, _PART), ("LAST", _PERIODS, _PERIOD)):
        if first in names:
            names, wanted = {*names} - {*_BEGINNING, *of_it}, [*wanted, words]
    wanted += sorted({_WORDS.get(name) or literal.get(name, f'"{name.lower()}"') for name in names})
    token, found = getattr(error, "token", None), error.pos_in_stream
    at = len(text) if token is not None and token.type == "$END" else max(found or 0, 0)
    got = f"{text[at : at + 20]!r}" if at < len(text) else "the end"
    expected = f"expected {' or '.join(wanted[:6])}" if wanted else "this cannot be read"
    return BadQuestion(f"{expected}, got {got}").placed(text, at)


def quoted(text: str) -> str:
    """Return a text as a question has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(token: str) -> str:
    return token[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _day(text: str, at: int) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadQuestion(f"there is no day {text}", at) from None


def _calendar(text: str, at: int) -> Period:
    """Return the days of a day, a month or a year."""
    year, month, day = (text + "-01-01")[:10].split("-")
    first = _day(f"{year}-{month}-{day}", at)
    lasts: Mapping[int, Callable[[], date]] = {
        4: lambda: date(first.year, 12, 31),
        7: lambda: first.replace(day=monthrange(first.year, first.month)[1]),
        10: lambda: first,
    }
    return Period(first, lasts[len(text)](), at=at)


_Given = tuple[Condition, ...] | None
_with_place = lark.v_args(inline=True, meta=True)


@lark.v_args(inline=True)
class _Reader(Transformer_NonRecursive[Any, Any]):
    """Makes a question of a parsed tree, from the leaves up."""

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self.groups = groups

    def text(self, token: lark.Token) -> lark.Token:
        return token.update(value=_text(token))

    def number(self, token: lark.Token) -> Expression:
        return _bounded(Expression(WeightedSum(constant=Fraction(str(token))), at=_place(token)), _place(token))

    def one(self, text: lark.Token) -> tuple[lark.Token, ...]:
        return (text,)

    def several(self, *texts: lark.Token) -> tuple[lark.Token, ...]:
        return texts

    def equals(self, name: lark.Token, text: lark.Token) -> Condition:
        escaped = "".join(f"[{each}]" if each in "*?[" else each for each in text)
        return Condition(str(name), (escaped,), at=_place(name), value_at=_place(text))

    def among(self, name: lark.Token, texts: tuple[lark.Token, ...]) -> Condition:
        patterns = tuple(text.replace("[", "[[]") for text in texts)
        return Condition(str(name), patterns, at=_place(name), value_at=_place(texts[0]))

    def in_group(self, name: lark.Token, token: lark.Token) -> Condition:
        text = str(token)
        saved = self.groups.get(name, {})
        if text not in saved:
            raise BadQuestion(
                f"{name} has no saved group {text!r}; it has {', '.join(sorted(saved)) or 'none'}", _place(token)
            )
        group = saved[text]
        if group.patterns:
            return Condition(str(name), group.patterns, group=group, at=_place(name), value_at=_place(token))
        if group.lower is not None and group.below is not None:
            both = f"share({name} > {group.lower}) - share({name} > {group.below})"
            raise BadQuestion(f"the group {text!r} has two edges: ask {both}", _place(token))
        edge = group.below if group.lower is None else group.lower
        return Condition(str(name), above=group.lower is not None, number=edge, at=_place(name), value_at=_place(token))

    def whole(self, name: lark.Token) -> Condition:
        return Condition(str(name), at=_place(name))

    def conditions(self, *each: Condition) -> tuple[Condition, ...]:
        return each

    def by_family(self) -> str:
        return "family"

    def by_saved(self) -> str:
        return "saved"

    def top(self, name: lark.Token, grouping: Literal["family", "saved"] | None, count: lark.Token) -> Analysis:
        saved = self.groups.get(name, {}) if grouping == "saved" else {}
        groups = {name: each for name, each in saved.items() if each.patterns}
        return Analysis("top", str(name), _counted(count, 1, TOP_MAX), grouping or "", groups, at=_place(name))

    def clusters(self, name: lark.Token, count: lark.Token) -> Analysis:
        return Analysis("clusters", str(name), _counted(count, 2, CLUSTERS_MAX), at=_place(name))

    @_with_place
    def devices(self, meta: Any, span: Step) -> Analysis:
        return Analysis("devices", span=span, at=meta.start_pos)

    @_with_place
    def stickiness(self, meta: Any, part: Step, span: Step) -> Analysis:
        return Analysis("stickiness", span=span, part=part, at=meta.start_pos)

    def regress(self, *parts: Condition) -> Analysis:
        return Analysis("regress", parts[0].name, parts=parts, at=parts[0].at)

    def logistic(self, *parts: Condition) -> Analysis:
        return Analysis("logistic", parts[0].name, parts=parts, at=parts[0].at)

    def beyond(self, name: lark.Token, side: str, number: Expression, unit: lark.Token | None) -> Condition:
        value = number.sum.constant
        decimal = Decimal(value.numerator) / Decimal(value.denominator)
        condition = Condition(str(name), above=side[0] == ">", number=decimal, at=_place(name), value_at=number.at)
        return replace(condition, unit=str(unit), unit_at=_place(unit)) if unit else condition

    def last(self, days: lark.Token) -> Period:
        if not 1 <= int(days) <= 366:
            raise BadQuestion(f"a period has 1 to 366 days, got {days}", _place(days))
        return Period(None, None, int(days), _place(days))

    def within(self, text: lark.Token) -> Period:
        return _calendar(str(text), _place(text))

    def between(self, first: lark.Token, last: lark.Token) -> Period:
        return Period(_day(first, _place(first)), _day(last, _place(last)), at=_place(first))

    def since(self, first: lark.Token) -> Period:
        return Period(_day(first, _place(first)), None, at=_place(first))

    def daily(self) -> Step:
        return "day"

    def weekly(self) -> Step:
        return "week"

    def monthly(self) -> Step:
        return "month"

    @_with_place
    def share(self, meta: Any, all_: tuple[Condition, ...], given: _Given, period: Period | None) -> Expression:
        asked = Figure("share", all_[0].name, all_[0], *_given(given, all_[1:]), period=period, at=all_[0].at)
        return _one(asked, meta.start_pos)

    @_with_place
    def mean(self, meta: Any, name: lark.Token, given: _Given, period: Period | None) -> Expression:
        asked = Figure("mean", str(name), None, *_given(given), period=period, at=_place(name))
        return _one(asked, meta.start_pos)

    @_with_place
    def quantile(
        self, meta: Any, name: lark.Token, number: Expression, given: _Given, period: Period | None
    ) -> Expression:
        probability = number.sum.constant
        if not 0 < probability < 1:
            raise BadQuestion(f"a quantile is of a number between 0 and 1, such as .5, got {probability}", number.at)
        asked = Figure(
            *("quantile", str(name), None, *_given(given)),
            probability=probability,
            probability_at=number.at,
            period=period,
            at=_place(name),
        )
        return _one(asked, meta.start_pos)

    def plus(self, one: Expression, other: Expression) -> Expression:
        return _bounded(Expression(one.sum + other.sum, (*one.ratios, *other.ratios), one.at), other.at)

    def minus(self, one: Expression, other: Expression) -> Expression:
        return _bounded(replace(one.less(other), at=one.at), other.at)

    @_with_place
    def negative(self, meta: Any, one: Expression) -> Expression:
        return replace(_times(one, Fraction(-1)), at=meta.start_pos)

    def times(self, one: Expression, other: Expression) -> Expression:
        for factor, rest in ((one, other), (other, one)):
            if not factor.asked:
                return _bounded(replace(_times(rest, factor.sum.constant), at=one.at), other.at)
        product = "one of two factors must be a number: a product of two answers is not asked for here"
        raise BadQuestion(product, other.at)

    def over(self, one: Expression, other: Expression) -> Expression:
        if other.ratios or (one.ratios and other.asked):
            raise BadQuestion("a ratio is of sums: neither side of / may be a ratio itself", other.at)
        if other.asked:
            return Expression(ratios=((Fraction(1), one.sum, other.sum),), at=one.at)
        if not other.sum.constant:
            raise BadQuestion("this divides by zero", other.at)
        return _bounded(replace(_times(one, 1 / other.sum.constant), at=one.at), other.at)

    def question(self, expression: Expression | Analysis, *rest: Period | Step | None) -> Query:
        period = next((each for each in rest if isinstance(each, Period)), None)
        step = next((each for each in rest if isinstance(each, str)), None)
        if isinstance(expression, Analysis):
            return Query("", Expression(), period, None, expression)
        if not expression.asked:
            raise BadQuestion('nothing is asked: try share(metric = "value") or mean(metric)')
        own = [asked.period for asked in expression.asked if asked.period]
        if step and own:
            few = f"by {step} goes with one period for all: leave those within the parentheses out"
            raise BadQuestion(few, own[0].at)
        return Query("", expression, period, step)


def _given(
    given: _Given, also: tuple[Condition, ...] = ()
) -> tuple[Condition | None, tuple[Condition, ...], tuple[Condition, ...]]:
    """Return the first condition that is given, further ones that are asked, and further ones that are given."""
    return (given[0], also, given[1:]) if given else (None, also, ())


def _counted(text: lark.Token, least: int, most: int) -> int:
    if not least <= int(text) <= most:
        raise BadQuestion(f"a number from {least} to {most} is asked for here, got {text}", _place(text))
    return int(text)


def _bounded(expression: Expression, at: int) -> Expression:
    """Return it; raise BadQuestion, with the place of what was read last, where a number is too large or too small."""
    if all(1 <= NUMBER_MAX * abs(each) <= NUMBER_MAX**2 for each in expression.numbers if each):
        return expression
    raise BadQuestion(f"a number is at most {NUMBER_MAX:,}, and at least one part in as many", at)


def _place(token: lark.Token) -> int:
    return token.start_pos or 0


def _one(asked: Figure, at: int) -> Expression:
    return Expression(WeightedSum(((Fraction(1), asked),)), at=at)


def _times(expression: Expression, factor: Fraction) -> Expression:
    ratios = tuple((factor * each, part, whole) for each, part, whole in expression.ratios)
    return replace(expression, sum=expression.sum.times(factor), ratios=ratios)


def steps(window: Window, step: Step) -> Iterable[Window]:
    """Yield the days, the weeks (from Monday) or the calendar's months of a window, as far as they are in it."""
    first = window.first
    while first <= window.last:
        ends = {
            "day": first,
            "week": first + timedelta(days=6 - first.weekday()),
            "month": first.replace(day=monthrange(first.year, first.month)[1]),
        }
        last = min(ends[step], window.last)
        yield Window(first, last)
        first = last + timedelta(days=1)
