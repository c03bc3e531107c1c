"""Words: texts that nobody can list beforehand, and that the totals themselves name.

Each report draws a group and one of four rows, publicly and before the answer is looked at. A level's reports tell so
many first bits of the text's code, the verification group's the whole text; either is hashed into the row's buckets and
sent as a point for the bucket (PGR). A text whose code ends within a level's bits is told whole by all levels behind
that one, too: these and the verification group decide whether somebody has it. Groups have unequal shares of the
reports: words/code.py says which. Reports are fresh: a memo of a hundred thousand points would be a fingerprint.
"""

from __future__ import annotations

from decimal import Decimal

from dither_shared.domains import VALUE_CHARACTERS_MAX, Coded, TextDomain
from dither_shared.domains.hashed_texts import Read
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.kind import Asked, Offer, read_epsilon
from dither_shared.kinds.text import TextKind
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import Cells, Part, PureMechanism
from dither_shared.rng import Rng
from dither_shared.words.alphabets import ALPHABETS, load
from dither_shared.words.code import BUCKETS, LAYOUTS, PROPOSED, ROWS, Layout

if TYPE_CHECKING:
    from dither_shared.toml_tables import TomlTable

FRESH = "must be left out of words: what is kept of a hundred thousand points would tell devices apart"
EPSILON_WORDS_MAX = Decimal(6)
"""Above it reports have so many points for these buckets that a tally takes up to 268 MB, and half a minute to read."""
LISTED = "must be left out of words: they are found without a list"


class WordsKind(TextKind):
    """A text of at most 200 characters that can be seen; anything else is "other"."""

    name = "words"
    meaning = "for words that the totals are to name, without a list"
    aliases: tuple[str, ...] = ("word", "unlisted", "open")
    starter = 'question = "How do people call it?"'
    searched = True
    estimand = "words"

    def read_table(self, table: TomlTable, directory: str | None, *, metric: str, hidden: bool) -> Asked:
        """Read how long the words are, and what is done to them before they are coded."""
        for keys, reason in (
            (("memoize", "epsilon_permanent", "answers"), FRESH),
            (("candidates", "candidates_file", "candidates_expected"), LISTED),
        ):
            for key in keys:
                if table.has(key):
                    raise table.error(key, reason)
        length = table.one_of("length", tuple(LAYOUTS), default="short")
        layout = LAYOUTS[length]
        alphabet = ""
        if table.has("alphabet"):
            try:
                alphabet, *own = load(table.one_of("alphabet", ALPHABETS))
            except InvalidParameter as error:
                raise table.error("alphabet", f"cannot be used: {error}") from None
            layout = Layout(*own) if length == "short" else layout
        casefold = table.boolean("casefold", default=False)
        cells = self.fresh_cells(read_epsilon(table, EPSILON_WORDS_MAX), layout)
        return Asked(
            Coded(metric, layout.levels, casefold, hidden, alphabet=alphabet), cells, candidates_expected=PROPOSED
        )

    def fresh_cells(self, epsilon: Decimal, layout: Layout = LAYOUTS["short"]) -> Cells:
        """Return the rows of each group."""
        from dither_shared.mechanisms import choose  # not for a registry that is compiled

        mechanism = choose(BUCKETS, epsilon, name="pgr")
        return Cells(tuple(Part(mechanism, ROWS, weight) for weight in layout.weights))

    def class_of(self, read: Read, domain: TextDomain, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the bucket of the text, or of its prefix, in a cell."""
        mechanism = PureMechanism.of(cells.mechanism_of(cell))
        return mechanism.class_of([Coded.of(domain).bucket(read, cell)])

    def offer(self, asked: Asked) -> Offer:
        """Return any text, and what is told of it."""
        length = f"A text of at most {VALUE_CHARACTERS_MAX} characters."
        sentence = "One report tells a part of the text, drawn by lot."
        return Offer((length, "The totals name the texts that many have.", sentence))
