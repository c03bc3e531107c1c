"""A text: words that nobody can list beforehand.

fresh       each report draws one of four rows, publicly, hashes the text into that row's buckets, and sends a point
            for the bucket (PGR). No cohort, no memo: nothing of a device lasts
memoized    the text's Bloom bits in the device's cohort, by RAPPOR; or one bucket of a hash of that cohort, by PGR
            in two stages, where fewer devices can be joined by it (`text_memo`)
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dither_shared.domains import NONE, OTHER, VALUE_CHARACTERS_MAX, Hashed, TextDomain, Verbatim
from dither_shared.domains.hashed_texts import Read
from dither_shared.errors import InvalidParameter
from dither_shared.exact import from_micro, to_micro
from dither_shared.hashing import BITS_MAX, HASHES_MAX
from dither_shared.kinds.kind import (
    CANDIDATES_MAX,
    FRESH_ONLY,
    MEMOIZED_ONLY,
    Asked,
    Kind,
    Offer,
    read_epsilon,
    read_memoize,
    read_permanent,
)
from dither_shared.kinds.listed import read_list
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import DEVICE, DEVICE_CELLS_MAX, RAPPOR, Cells, Part, PureMechanism
from dither_shared.rng import Rng

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

ROWS = 4
"""Rows of hashes: two texts that share a bucket in one of them hardly ever do in another."""
BUCKETS = 1 << 17
"""Buckets of a row. A text's error by all others is about the square root of the sum of their squared shares over
`ROWS` times these: of shares whose squares add up to .01 that is .00014."""


class TextKind(Kind[TextDomain, Read]):
    """A text of at most 200 characters that can be seen; anything else is "other"."""

    name = "text"
    meaning = "for words that nobody can list beforehand"
    aliases: tuple[str, ...] = ("str", "free_text", "freetext")
    starter = 'question = "Which page do people open first?"'
    published = True
    estimand = "texts"

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read the candidates, and what the noise is made of."""
        expected, cells, other = _read_memo(table) if read_memoize(table) else self._read_rows(table)
        verbatim = isinstance(cells.mechanism, RAPPOR)
        unlisted = (NONE,) if hidden else ()
        candidates: tuple[str, ...] = ()
        if table.has("candidates") or table.has("candidates_file"):
            reserved = unlisted if verbatim else (OTHER, *unlisted)
            candidates = read_list(table, "candidates", directory, reserved, CANDIDATES_MAX)
            candidates += unlisted if verbatim else ()
        if verbatim:
            return Asked(Verbatim(), cells, candidates, expected, other)
        domain = Hashed(metric, PureMechanism.of(cells.mechanism).d, hidden)
        return Asked(domain, cells, candidates, expected, other)

    def _read_rows(self, table: TomlTable) -> tuple[int, Cells, None]:
        """Return the expected candidates, and rows of fresh points."""
        for key in MEMOIZED_ONLY.keys() | {"parameter_set", "parameters"}:
            if table.has(key):
                raise table.error(key, MEMOIZED_ONLY["answers"])
        cells = self.fresh_cells(read_epsilon(table))
        return _read_expected(table), cells, None

    def fresh_cells(self, epsilon: Decimal) -> Cells:
        """Return rows of fresh points."""
        from dither_shared.mechanisms import choose  # not for a registry that is compiled

        return Cells((Part(choose(BUCKETS, epsilon, name="pgr"), ROWS),))

    def takes(self, answer: object, domain: TextDomain) -> bool:
        """Tell whether it is a text, short enough, of which each character can be seen."""
        return domain.holds(answer)

    def read(self, answer: object, domain: TextDomain) -> Read:
        """Return a text in the form in which it is told apart, or "other"."""
        return domain.form(answer) if isinstance(answer, str) and self.takes(answer, domain) else domain.unread()

    def unreadable(self, domain: TextDomain) -> Read:
        """Return "other"."""
        return domain.unread()

    def nothing(self, domain: TextDomain) -> Read:
        """Return "none"."""
        return domain.nothing()

    def names(self, read: Read, domain: TextDomain) -> tuple[str, ...]:
        """Return the text, or the name of what is none."""
        return (domain.name_of(read),)

    def class_of(self, read: Read, domain: TextDomain, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the text's bucket in a row, or its Bloom bits in a cohort."""
        mechanism = cells.mechanism_of(cell)
        if isinstance(domain, Hashed):
            return PureMechanism.of(mechanism).class_of([domain.bucket(read, cell)])
        return RAPPOR.of(mechanism).class_of(domain.name_of(read), cell)

    def offer(self, asked: Asked) -> Offer:
        """Return any text, and what the totals are searched for."""
        length = f"A text of at most {VALUE_CHARACTERS_MAX} characters."
        untexts = TextDomain.of(asked.domain).untexts
        listed = tuple(value for value in asked.candidates if value not in untexts)
        if not listed:
            return Offer((length, "The totals can be searched for any."))
        return Offer(
            (length,), "The totals are searched for", listed, "text", ("They can be searched for any other text.",)
        )


def _read_expected(table: TomlTable) -> int:
    return table.integer("candidates_expected", 1, CANDIDATES_MAX, default=1_000)


def _read_memo(table: TomlTable) -> tuple[int, Cells, Cells | None]:
    """Return the expected candidates, cohorts with a mechanism for them, and the other choice.

    Or 1 and RAPPOR with given parameters, for which there is no choice.

    Their epsilons must be stated.
    """
    epsilon = read_epsilon(table)
    if table.has("reports"):
        raise table.error("reports", FRESH_ONLY["reports"])
    permanent = read_permanent(table, epsilon)
    if not (table.has("parameter_set") or table.has("parameters")):
        from dither_shared.kinds.text_memo import choose_memo  # only for texts

        expected = _read_expected(table)
        name = table.one_of("mechanism", (RAPPOR.name, "pgr")) if table.has("mechanism") else None
        try:
            return expected, *choose_memo(epsilon, permanent, expected, name)
        except InvalidParameter as error:
            raise table.error("mechanism", f"cannot be {name}: {error}") from None
    for key in ("candidates_expected", "mechanism"):
        if table.has(key):
            raise table.error(key, "must be left out where the parameters are given: it chooses them")
    mechanism, cells = _read_parameters(table)
    for key, stated, charge in (
        ("epsilon", epsilon, mechanism.charge),
        ("epsilon_permanent", permanent, mechanism.permanent.charge),
    ):
        if to_micro(stated) != charge:
            raise table.error(key, f"must be that of the parameters, {from_micro(charge)}, got {stated}")
    return 1, cells, None


def _read_parameters(table: TomlTable) -> tuple[RAPPOR, Cells]:
    """Return RAPPOR with a published parameter set, or with sizes and probabilities of one's own; and its cohorts."""
    if table.has("parameter_set") and table.has("parameters"):
        raise table.error("parameters", "or parameter_set is needed, and not both")
    if table.has("parameter_set"):
        from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS

        published = PARAMETER_SETS[table.one_of("parameter_set", tuple(PARAMETER_SETS))]
        return published.mechanism, _cohorts(published.mechanism, published.m)
    given = table.table("parameters")
    sizes = (("k", BITS_MAX), ("h", HASHES_MAX), ("m", DEVICE_CELLS_MAX))
    k, h, m = (given.integer(name, 1, most) for name, most in sizes)
    f, p, q = (Fraction(given.probability(name)) for name in ("f", "p", "q"))
    given.done()
    try:
        mechanism = RAPPOR.of_probabilities(k, h, f, p, q)
        return mechanism, _cohorts(mechanism, m)
    except InvalidParameter as error:
        raise table.error("parameters", f"are not those of a RAPPOR that may be repeated: {error}") from None


def _cohorts(mechanism: RAPPOR, m: int) -> Cells:
    if m.bit_count() > 1:
        raise InvalidParameter(f"m must be a power of two up to {DEVICE_CELLS_MAX}, got {m}")
    return Cells((Part(mechanism, m),), DEVICE)
