"""Columns: several short questions that are answered together, and which of them a report tells.

Each column has a domain of its own: listed values, a number told by ranges, or a number that coins round to one of two
ends. Its symbols are places 0, 1, 2 and so on, and the last is "other". A question is what the reports of one cell
tell: the symbols of some columns, as one symbol of their product, the last column fastest. With hidden presence each
question has one symbol more, the last: "none".

An answer that was read has one integer a column: a symbol or, of a number that is rounded, its part of the range out of
2^64 and SCALE + 1 for "other". The answer of a device with nothing to report is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from dither_shared.domains.domain import NONE, OTHER, Domain, Values
from dither_shared.domains.number_ranges import Buckets, Range
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.rng import SCALE, Rng

COLUMNS_MIN, COLUMNS_MAX = 2, 16
CELLS_MAX = 1_000_000
"""The most cells in the product of all columns, of tables with more cells in all pairs than PAIR_CELLS_MAX."""
PAIR_CELLS_MAX = 20_000
"""The most cells in all pairs of columns together, of tables with a larger product: an aggregator reads these in some
three seconds. They are those of 16 columns with 11 listed values each."""
LOW, HIGH, UNREAD = 0, 1, 2
"""The symbols of a number that is rounded to an end."""
_UNREAD_PART = SCALE + 1


@frozen
class Columns(Domain):
    """Named columns, in order, and which of them each question asks."""

    name = "columns"

    names: tuple[str, ...]
    domains: tuple[Domain, ...]
    """One for each column: Values, whose last one is "other", Buckets, or a Range."""
    questions: tuple[tuple[int, ...], ...]
    """For each cell the places of the columns that its reports tell: of all, or of a pair."""
    hidden: bool
    public: tuple[str, ...] = ()
    """Name and values of the public column that reports say in the clear; none without one."""

    def __post_init__(self) -> None:
        k = len(self.names)
        if not (COLUMNS_MIN <= k <= COLUMNS_MAX and len(set(self.names)) == k == len(self.domains)):
            raise InvalidParameter(
                f"there must be {COLUMNS_MIN} to {COLUMNS_MAX} columns with different names, got {k}"
            )
        for domain in self.domains:
            listed = isinstance(domain, Values) and domain.values[-1] == OTHER
            if not (listed or isinstance(domain, Buckets | Range)):
                raise InvalidParameter(f"a column must have values or a number's ranges, got {domain.name}")
        if fault := too_many_cells(self.domains):
            raise InvalidParameter(f"columns {fault}")
        asked = {column for question in self.questions for column in question}
        ordered = all(list(question) == sorted(set(question)) for question in self.questions)
        if not (ordered and asked == set(range(k)) and len(set(self.questions)) == len(self.questions)):
            raise InvalidParameter("questions must be different, hold columns in order, and all of them together")
        if self.public and (self.hidden or self.public[0] in self.names or len(set(self.public[1:])) < 2):
            raise InvalidParameter("a public column needs a name of its own, two values, and presence that is public")

    def to_document(self) -> dict[str, object]:
        """Return the columns, each with its domain, and the questions."""
        return {
            "domain": self.name,
            "names": list(self.names),
            "domains": [domain.to_document() for domain in self.domains],
            "questions": [list(question) for question in self.questions],
            "hidden": self.hidden,
            **({"public": list(self.public)} if self.public else {}),
        }

    def agreed(self, *, hidden: bool) -> dict[str, object]:
        """Return what each column tells, in no order, and the public one.

        Which columns one report tells is no matter of consent.
        """
        agreed = {name: domain.agreed(hidden=False) for name, domain in self.columns.items()}
        return {"columns": agreed, "public": [*self.public[:1], *sorted(self.public[1:])]} if self.public else agreed

    @property
    def columns(self) -> Mapping[str, Domain]:
        """The domain of each column, by its name, in order."""
        return dict(zip(self.names, self.domains, strict=True))

    @property
    def size(self) -> int:
        """How many cells all columns have together."""
        return prod(map(symbols_of, self.domains))

    @property
    def summary(self) -> str:
        """The columns and how they are asked."""
        how = "at once" if len(self.questions) == 1 else "in pairs"
        beside = f", beside {self.public[0]}" if self.public else ""
        return f"{len(self.names)} columns of {self.size:,} cells asked {how}{beside}"

    # Symbols.

    def labels(self, column: int) -> tuple[str, ...]:
        """Return the names of a column's symbols."""
        domain = self.domains[column]
        if isinstance(domain, Buckets):
            return (*map(domain.name_of, range(domain.size)), OTHER)
        if isinstance(domain, Range):
            return (*(domain.with_unit(domain.in_unit(edge)) for edge in domain.edges), OTHER)
        return domain.values

    def shape(self, question: int) -> tuple[int, ...]:
        """Return how many symbols each column of a question has."""
        return tuple(symbols_of(self.domains[column]) for column in self.questions[question])

    def symbols(self, question: int) -> int:
        """Return how many symbols a question has, "none" included."""
        return prod(self.shape(question)) + self.hidden

    # Answers.

    def unread(self, column: int) -> int:
        """Return the place of "other"."""
        domain = self.domains[column]
        return _UNREAD_PART if isinstance(domain, Range) else symbols_of(domain) - 1

    def symbol_of(self, question: int, placed: Sequence[int], rng: Rng) -> int:
        """Return the symbol of an answer that was read; "none" of an empty one. Numbers are rounded by coins."""
        shape = self.shape(question)
        if not placed:
            return prod(shape)
        cell = 0
        for column, size in zip(self.questions[question], shape, strict=True):
            place = placed[column]
            if isinstance(self.domains[column], Range):
                high = rng.coin(min(place, SCALE))
                place = UNREAD if place == _UNREAD_PART else HIGH if high else LOW
            cell = cell * size + place
        return cell

    def in_words(self, placed: Sequence[int]) -> tuple[str, ...]:
        """Return an answer that was read in words, a text a column."""
        if not placed:
            return (NONE,)
        return tuple(f"{name} = {self._word(column, placed[column])}" for column, name in enumerate(self.names))

    def _word(self, column: int, place: int) -> str:
        domain = self.domains[column]
        if isinstance(domain, Range):
            return OTHER if place == _UNREAD_PART else domain.in_words((place,))
        return self.labels(column)[place]


def too_many_cells(domains: Sequence[Domain]) -> str:
    """Return why columns of these domains have too many cells, in words; "" of most."""
    sizes = list(map(symbols_of, domains))
    product, pairs = prod(sizes), (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    if product <= CELLS_MAX or pairs <= PAIR_CELLS_MAX:
        return ""
    return (
        f"must have at most {CELLS_MAX:,} cells together, or {PAIR_CELLS_MAX:,} in all pairs of them, "
        f"got {product:,} and {pairs:,}"
    )


def symbols_of(domain: Domain) -> int:
    """Return how many symbols a column of this domain has, "other" included."""
    if isinstance(domain, Values):
        return domain.size
    return UNREAD + 1 if isinstance(domain, Range) else domain.size + 1
