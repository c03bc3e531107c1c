"""A table: several short questions answered together, so that what goes with what can be told.

A report tells all columns as one symbol of their product, or one pair of them, which it draws publicly and uniformly:
one cell a pair. Either way it spends the whole epsilon once, over all columns together. With D cells in the product, m
pairs and s_v cells in the pair v, the product is asked where that has less error summed over all cells of all pairs:

    sqrt(D) sum of sqrt(s_v)  <  sqrt(m) sum of s_v

since a margin of s_v cells adds up D / s_v cells of the product, and a pair gets one of m reports. Both sides are
compared before any report. Reports are fresh: a memo for each pair would be as many memos.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import combinations, islice
from math import prod

from dither_shared.domains import (
    OTHER,
    VALUE_CHARACTERS_MAX,
    Buckets,
    Columns,
    Domain,
    NumberDomain,
    Range,
    Values,
)
from dither_shared.domains.columns import COLUMNS_MAX, COLUMNS_MIN, symbols_of, too_many_cells
from dither_shared.errors import InvalidParameter
from dither_shared.exact import digits
from dither_shared.frozen import replaced
from dither_shared.kinds.kind import Asked, Kind, Offer, PublicColumn, read_epsilon
from dither_shared.kinds.number import ALL, MEAN, number_examples, ratio_of, read_edges, read_ends
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import Cells, Part, PureMechanism
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

COLUMN_VALUES_MAX = 1_000
SYMBOLS_MAX = 65_535
"""The most cells of one question: more take an aggregator minutes to read."""
OFFERED_MAX = 50
"""People are shown so many of a column's values, the first."""
_CONTEXT = digits(40)
FRESH = "must be left out of a table: each pair of columns would have a memo of its own"


class TableKind(Kind[Columns, tuple[int, ...]]):
    """One answer for each of several columns; what is missing or not listed is that column's "other"."""

    name = "table"
    meaning = "for several short questions whose answers go together"
    aliases = ("event", "object", "record", "struct", "crosstab")
    starter = 'question = "Which versions crash?"\ncolumns = { crashed = ["no", "yes"], version = ["1.0", "1.1"] }'
    published = True
    estimand = "tables"
    rounds = True
    takes_public = True

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read the columns, and choose what each report tells."""
        for key in ("memoize", "epsilon_permanent", "answers"):
            if table.has(key):
                raise table.error(key, FRESH)
        columns = _read_columns(table)
        epsilon = read_epsilon(table)
        try:
            return self.asked_of(columns, epsilon, hidden=hidden)
        except InvalidParameter as error:
            raise table.error("columns", f"{error}") from None

    @staticmethod
    def asked_of(columns: Mapping[str, Domain], epsilon: Decimal, *, hidden: bool = False) -> Asked:
        """Return columns and the cells of what a report tells; raise InvalidParameter with what columns must be."""
        domains = tuple(columns.values())
        if fault := too_many_cells(domains):
            raise InvalidParameter(fault)
        domain = Columns(tuple(columns), domains, _questions(domains), hidden)
        return Asked(domain, Cells(tuple(_parts(domain, epsilon))))

    def beside(self, asked: Asked, public: PublicColumn) -> Asked:
        """Return the same columns and cells, once for each value of the public column."""
        domain = replaced(Columns.of(asked.domain), public=(public.name, *public.values))
        return replaced(asked, domain=domain, cells=replaced(asked.cells, public=len(public.values)))

    def takes(self, answer: object, domain: Columns) -> bool:
        """Tell whether it is a mapping of columns, each to an answer that its column asks for; columns may miss."""
        return isinstance(answer, Mapping) and not self.misplaced(answer, domain)

    def misplaced(self, answer: object, domain: Columns) -> str:
        """Return the first column whose answer it does not ask for, or that there is one which it does not have."""
        if not isinstance(answer, Mapping):
            return ""
        for name, column in domain.columns.items():
            if name in answer and not _takes(column, answer[name]):
                return name
        # No more of its keys than there are columns: a mapping may have any number, or never end.
        names = set(islice(answer, len(domain.names) + 1))
        return "" if names <= set(domain.names) else "a column that it does not have"

    def read(self, answer: object, domain: Columns) -> tuple[int, ...]:
        """Return what each column's answer is read as: "other" where there is none."""
        given = answer if isinstance(answer, Mapping) else {}
        return tuple(_read(domain, column, given) for column in range(len(domain.names)))

    def misread(self, domain: Columns) -> str:
        """Say what becomes of the columns."""
        return f"takes a dict of {', '.join(domain.names)}: columns that are missing or not as listed are “{OTHER}”"

    def unreadable(self, domain: Columns) -> tuple[int, ...]:
        """Return "other" in each column."""
        return tuple(map(domain.unread, range(len(domain.names))))

    def nothing(self, domain: Columns) -> tuple[int, ...]:
        """Return the answer "none", which has no columns."""
        return ()

    def class_of(self, read: tuple[int, ...], domain: Columns, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the symbol of the columns that the cell tells."""
        symbol = domain.symbol_of(cell % cells.each, read, rng)
        return PureMechanism.of(cells.mechanism_of(cell)).class_of([symbol])

    def names(self, read: tuple[int, ...], domain: Columns) -> tuple[str, ...]:
        """Return each column's answer."""
        return domain.in_words(read)

    def offer(self, asked: Asked) -> Offer:
        """Return the columns, and how many of them one report tells."""
        domain = Columns.of(asked.domain)
        columns_told = "all of them" if len(domain.questions) == 1 else "two of them, drawn by lot"
        after = [
            f"A missing answer, or anything else, is sent as “{OTHER}”.",
            f"One report tells {columns_told}.",
            "Its odds are those of a whole answer, all columns together.",
        ]
        if domain.public:
            after.append(f"Reports say {domain.public[0]} in the clear: {', '.join(domain.public[1:])}.")
        listed = tuple(f"{name}: {_offered(column)}" for name, column in domain.columns.items())
        return Offer(lead="One answer in each of", listed=listed, noun="column", after=tuple(after))

    def examples(self, asked: Asked) -> list[object]:
        """Return the first answers of all columns, their last ones, none, and each answer beside others' first ones."""
        domain = Columns.of(asked.domain)
        columns = {name: _examples(column) for name, column in domain.columns.items()}
        first, last = ({name: answers[place] for name, answers in columns.items()} for place in (0, -1))
        ones = [{**first, name: answer} for name, answers in columns.items() for answer in answers[1:]]
        return [first, last, {}, *ones]


def _examples(column: Domain) -> list[object]:
    return number_examples(column) if isinstance(column, NumberDomain) else list(column.values[:-1])


def _offered(column: Domain) -> str:
    """Return what a column takes, in words; of a long list how many more there are."""
    if isinstance(column, NumberDomain):
        low, high = (column.with_unit(column.in_unit(edge)) for edge in (column.edges[0], column.edges[-1]))
        if isinstance(column, Range):
            return f"a number, cut to {low} at least and {high} at most, which coins round to one of these two"
        return f"a number, sent as one of {column.size} ranges, from below {low} to {high} or more"
    *listed, _ = column.values
    more = len(listed) - OFFERED_MAX
    return ", ".join(listed) if more <= 0 else f"{', '.join(listed[:OFFERED_MAX])} and {more:,} more"


# Reading answers.


def _takes(column: Domain, answer: object) -> bool:
    try:
        return column.holds(answer) if isinstance(column, Values) else ratio_of(answer) is not None
    except Exception:  # of the answer's own methods
        return False


def _read(domain: Columns, column: int, given: Mapping[str, object]) -> int:
    """Return what a column is read as. Its answer's own methods may raise: then it is "other", and the others stay."""
    try:
        answer = given[domain.names[column]]
        if isinstance(own := domain.domains[column], Values):
            return own.index(answer)
        ratio = ratio_of(answer)
        return domain.unread(column) if ratio is None else NumberDomain.of(own).place(*ratio)[0]
    except Exception:
        return domain.unread(column)


# Reading the registry.


def _read_columns(table: TomlTable) -> dict[str, Domain]:
    inner = table.table("columns")
    names = inner.names()
    if not COLUMNS_MIN <= len(names) <= COLUMNS_MAX:
        raise table.error("columns", f"must be {COLUMNS_MIN} to {COLUMNS_MAX}, got {len(names)}")
    columns = {name: _read_column(inner, name) for name in names}
    inner.done()
    return columns


def _read_column(inner: TomlTable, name: str) -> Domain:
    """Read a list of values or the name of one, or a table with the edges or the ends of a number."""
    if not inner.is_table(name):
        reserved = {OTHER: "it is always there, for what is missing or not listed"}
        listed = inner.list_or_name(name, COLUMN_VALUES_MAX, VALUE_CHARACTERS_MAX, reserved)
        return Values((*listed.values, OTHER))
    number = inner.table(name)
    unit = number.text("unit", 20) if number.has("unit") else ""
    domain: Domain
    if number.has("asks"):
        asks = number.texts("asks", len(ALL), max(map(len, ALL)))
        if asks != MEAN:
            raise number.error("asks", f'must be ["mean"], or left out for ranges, got {list(asks)}')
        domain = Range(*read_ends(number), unit)
    else:
        domain = Buckets(*read_edges(number), unit)
    number.done()
    return domain


# Choosing what a report tells.


def _questions(domains: tuple[Domain, ...]) -> tuple[tuple[int, ...], ...]:
    """Return all columns, or all pairs of them, by the rule of this module."""
    places = tuple(range(len(domains)))
    pairs = tuple(combinations(places, 2))
    sizes = [_size(domains[column] for column in pair) for pair in pairs]
    of_all = _root(_size(domains)) * sum(map(_root, sizes))
    of_pairs = _root(len(pairs)) * sum(sizes)
    return (places,) if len(places) == COLUMNS_MIN or of_all < of_pairs else pairs


def _root(number: int) -> Decimal:
    return Decimal(number).sqrt(_CONTEXT)


def _size(domains: Iterable[Domain]) -> int:
    return prod(map(symbols_of, domains))


def _parts(domain: Columns, epsilon: Decimal) -> Iterator[Part]:
    from dither_shared.mechanisms import choose  # not for a registry that is compiled

    for symbols in map(domain.symbols, range(len(domain.questions))):
        if symbols > SYMBOLS_MAX:
            raise InvalidParameter(f"that are told together must have at most {SYMBOLS_MAX:,} cells, got {symbols:,}")
        try:
            yield Part(choose(symbols, epsilon))
        except InvalidParameter as error:
            raise InvalidParameter(f"have too many values: {error}; list fewer of them") from None
