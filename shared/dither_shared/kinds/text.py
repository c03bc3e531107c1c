"""A text: words that nobody can list beforehand, sent as noisy Bloom bits."""

from fractions import Fraction
from pathlib import Path

from dither_shared.bloom import BITS_MAX, HASHES_MAX
from dither_shared.domains import NONE, OTHER, VALUE_CHARACTERS_MAX, Values
from dither_shared.errors import InvalidParameter
from dither_shared.exact import from_micro, to_micro
from dither_shared.kinds.kind import Answer, Asked, Kind, Offer
from dither_shared.kinds.listed import read_list
from dither_shared.kinds.noise import FRESH_ONLY, read_epsilon, read_memoize, read_permanent
from dither_shared.mechanisms import RAPPOR, Mechanism
from dither_shared.mechanisms.rappor import COHORTS_MAX
from dither_shared.tables import Table

CANDIDATES_MAX = 100_000


class Text(Kind):
    """A text of at most 200 characters; what is none, or longer, is the text "other"."""

    name = "text"
    meaning = "for words that nobody can list beforehand"

    def read_table(self, table: Table, folder: Path | None, *, hidden: bool) -> Asked:
        """Read the candidates, and RAPPOR's parameters or what chooses them."""
        unlisted = (NONE,) if hidden else ()
        candidates: tuple[str, ...] = ()
        if table.has("candidates") or table.has("candidates_file"):
            candidates = (*read_list(table, "candidates", folder, unlisted, CANDIDATES_MAX), *unlisted)
        expected, mechanism = _read_rappor(table)
        return Asked(Values(()), mechanism, candidates, expected)

    def takes(self, answer: object, domain: Values) -> bool:
        """Tell whether it is a text, and short enough."""
        return isinstance(answer, str) and str.__len__(answer) <= VALUE_CHARACTERS_MAX

    def read(self, answer: object, domain: Values) -> str:
        """Return a text as it is, or "other". A lone surrogate becomes a question mark."""
        if not isinstance(answer, str) or not self.takes(answer, domain):
            return OTHER
        return str.encode(answer, "utf-8", "replace").decode("utf-8")

    def unreadable(self, domain: Values) -> str:
        """Return "other"."""
        return OTHER

    def nothing(self, domain: Values) -> str:
        """Return "none"."""
        return NONE

    def names(self, read: Answer, domain: Values) -> tuple[str, ...]:
        """Return the text."""
        assert isinstance(read, str)
        return (read,)

    def class_of(self, read: Answer, mechanism: Mechanism, cohort: int) -> int:
        """Return the text's Bloom bits in a cohort."""
        assert isinstance(mechanism, RAPPOR)
        assert isinstance(read, str)
        return mechanism.class_of(read, cohort)

    def offer(self, asked: Asked) -> Offer:
        """Return any text, and what the totals are searched for."""
        start = f"A text of at most {VALUE_CHARACTERS_MAX} characters."
        listed = tuple(value for value in asked.candidates if value not in (OTHER, NONE))
        if not listed:
            return Offer(start, noun="text", end="The totals can be searched for any.")
        return Offer(f"{start} The totals are searched for", listed, "text", "They can be searched for any other.")


def _read_rappor(table: Table) -> tuple[int, RAPPOR]:
    """Return the expected candidates and the sizes and noise of least error for them.

    Or 1 and the given parameters, whose epsilons must be stated.
    """
    epsilon = read_epsilon(table)
    if not read_memoize(table):
        raise table.error("memoize", "must be true for a text: its noise is drawn once and repeated")
    if table.has("reports"):
        raise table.error("reports", FRESH_ONLY["reports"])
    permanent = read_permanent(table, epsilon)
    if not (table.has("parameter_set") or table.has("parameters")):
        from dither_shared.mechanisms.parameter_sets import choose_rappor  # only for texts

        expected = table.integer("candidates_expected", 1, CANDIDATES_MAX, default=1_000)
        return expected, choose_rappor(epsilon, permanent, expected)
    if table.has("candidates_expected"):
        raise table.error("candidates_expected", "must be left out where the parameters are given: it chooses them")
    mechanism = _read_parameters(table)
    for key, stated, charge in (
        ("epsilon", epsilon, mechanism.charge),
        ("epsilon_permanent", permanent, mechanism.permanent.charge),
    ):
        if to_micro(stated) != charge:
            raise table.error(key, f"must be that of the parameters, {from_micro(charge)}, got {stated}")
    return 1, mechanism


def _read_parameters(table: Table) -> RAPPOR:
    """Return RAPPOR with a published parameter set, or with sizes and probabilities of one's own."""
    if table.has("parameter_set") and table.has("parameters"):
        raise table.error("parameters", "or parameter_set is needed, and not both")
    if table.has("parameter_set"):
        from dither_shared.mechanisms.parameter_sets import PARAMETER_SETS

        return PARAMETER_SETS[table.one_of("parameter_set", tuple(PARAMETER_SETS))].mechanism
    given = table.table("parameters")
    k, h, m = (given.integer(name, 1, most) for name, most in (("k", BITS_MAX), ("h", HASHES_MAX), ("m", COHORTS_MAX)))
    f, p, q = (Fraction(given.probability(name)) for name in ("f", "p", "q"))
    given.done()
    try:
        return RAPPOR.of_probabilities(k, h, m, f, p, q)
    except InvalidParameter as error:
        raise table.error("parameters", f"are not those of a RAPPOR that may be repeated: {error}") from None
