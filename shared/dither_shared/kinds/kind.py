"""A kind of metric: the keys of its table, how an answer is read, and the words that people are told of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal

from dither_shared.domains import Domain
from dither_shared.exact import EPSILON_MAX
from dither_shared.frozen import frozen
from dither_shared.light_typing import TYPE_CHECKING, Generic, TypeVar
from dither_shared.mechanisms import Cells
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

D = TypeVar("D", bound=Domain)

Answer = tuple[int, ...] | str
"""An answer as it was read: the listed values that it holds, its text, where a number or each column's answer lies."""
A = TypeVar("A", bound=Answer)
CANDIDATES_MAX = 100_000
"""The most texts that are looked for at once."""
EXAMPLES = 64
"""Texts to try where nobody lists any."""


@frozen
class Asked:
    """The part of a metric's table that its kind reads."""

    domain: Domain
    cells: Cells
    candidates: tuple[str, ...] = ()
    """The texts to look for by default. They are no part of the plan: any list can be looked for."""
    candidates_expected: int = 1
    """How long such a list may become, or how many texts a search proposes."""
    passed_over: Cells | None = None
    """The cells of another mechanism, which can be asked for by name; None without such a choice."""
    answers: int | None = None
    """How many different answers a memoized metric charges at most; None where its table says it."""


@frozen
class PublicColumn:
    """A fact of a device that the app sets and all may know, such as the arm of an experiment."""

    name: str
    values: tuple[str, ...]


@frozen
class Offer:
    """The answers that people can give, in sentences. `lead` and the listed values make one; `noun` names a value."""

    before: tuple[str, ...] = ()
    lead: str = ""
    """The words before the listed values; "" where none are listed."""
    listed: tuple[str, ...] = ()
    noun: str = "value"
    after: tuple[str, ...] = ()


class Kind(ABC, Generic[D, A]):
    """One kind of metric: of a domain D, whose answers are read as an A. It has no state, and there is one of each."""

    starter = ""
    """The lines of a registry that are its own, to begin with: `dither metrics new` writes them."""
    aliases: tuple[str, ...] = ()
    """Names that others use for it: a registry with one of them is told the right name."""
    types_values = False
    """Whether a program's type checker should know the listed values."""
    web_type = "string"
    """The type in TypeScript of an answer without listed values."""
    several = False
    """Whether one answer may hold several values."""
    rounds = False
    """Whether a class needs coins of its own."""
    takes_public = False
    """Whether its reports say the public column of their device."""
    published = False
    """Whether its totals may be published (`releases`): all that is shown of them is computed from noisy counts."""
    searched = False
    """Whether a release of it names texts that nobody listed: those that a search of noisy counts proposes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in a registry."""

    @property
    @abstractmethod
    def meaning(self) -> str:
        """Its purpose, in a phrase that follows its name."""

    @property
    @abstractmethod
    def estimand(self) -> str:
        """The reading of its tallies: "shares" of listed values, "texts" among candidates, "words", and so on."""

    @abstractmethod
    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read the kind's own keys of a table; files that they name are looked for in `directory`.

        `metric` is the metric's name, and `hidden` whether a device may have nothing to say.
        Raises RegistryError with the key, what was needed and what came.
        """

    def beside(self, asked: Asked, public: PublicColumn) -> Asked:
        """Return what is asked where reports say a public column, too."""
        return asked

    @abstractmethod
    def takes(self, answer: object, domain: D) -> bool:
        """Tell whether an answer is one that is asked for. May raise whatever the answer's own methods do."""

    def misplaced(self, answer: object, domain: D) -> str:
        """Return which part of an answer is not taken, in words that quote none of it; "" where there are no parts.

        May raise whatever the answer's own methods do.
        """
        return ""

    @abstractmethod
    def read(self, answer: object, domain: D) -> A:
        """Read an answer of the host app, whatever it is. May raise whatever the answer's own methods do."""

    @abstractmethod
    def unreadable(self, domain: D) -> A:
        """Return what an answer is read as whose own methods raise: silence would be an answer."""

    def misread(self, domain: D) -> str:
        """Return how an answer that is not taken is sent, in a phrase to warn with; "" if it is only counted."""
        return ""

    @abstractmethod
    def nothing(self, domain: D) -> A:
        """Return what a device says that has nothing to say, where presence is hidden."""

    @abstractmethod
    def class_of(self, read: A, domain: D, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the class of an answer that was read: all that the mechanism of its cell sees of it.

        A class may need coins of its own, to be rounded. The class of a memoized answer is always the same.
        """

    @abstractmethod
    def names(self, read: A, domain: D) -> tuple[str, ...]:
        """Return what an answer that was read holds, in words: values, or its text."""

    @abstractmethod
    def offer(self, asked: Asked) -> Offer:
        """Return what people can say, in words."""

    def examples(self, asked: Asked) -> list[object]:
        """Return answers to try, those first that lie farthest apart: what is listed, or texts."""
        listed: list[object] = [*self.offer(asked).listed] or [
            f"{chr(ord('a') + number % 26)}{number}" for number in range(EXAMPLES)
        ]
        return [listed[0], listed[-1], *listed[1:-1]] if len(listed) > 1 else listed


# The keys of a metric's table that say how much noise its answers get, whatever its kind.


def read_epsilon(table: TomlTable, most: Decimal = EPSILON_MAX) -> Decimal:
    """Return the epsilon of a report, at most so much."""
    return table.epsilon("epsilon", most)


def read_memoize(table: TomlTable) -> bool:
    """Tell whether answers are memoized."""
    return table.boolean("memoize", default=False)


def read_permanent(table: TomlTable, epsilon: Decimal) -> Decimal:
    """Return epsilon_permanent, which is above the epsilon of a report."""
    permanent = table.epsilon("epsilon_permanent")
    if permanent <= epsilon:
        raise table.error("epsilon_permanent", f"must be above epsilon, {epsilon}, got {permanent}")
    return permanent


FRESH_ONLY = {"reports": "must be left out where answers are memoized: repeating one costs nothing more"}
MEMOIZED_ONLY = dict.fromkeys(
    ("epsilon_permanent", "answers"), "is for memoized answers: add memoize = true and leave reports out"
)
