"""Words: texts that nobody can list beforehand, and that the totals themselves name.

Each report draws a group and one of four rows, publicly and before the answer is looked at. A level's reports tell so
many first bits of the text's code, the verification group's the whole text; either is hashed into the row's buckets and
sent as a point for the bucket (PGR). Groups have unequal shares of the reports: words/groups.py says which. Reports are
fresh: a memo of a hundred thousand points would be a fingerprint.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from dither_shared.cells import Cells, Part
from dither_shared.domains import VALUE_CHARACTERS_MAX, Coded, TextDomain
from dither_shared.domains.hashed_texts import Read
from dither_shared.errors import InvalidParameter
from dither_shared.kinds.kind import Asked, CountNoise, Offer, read_epsilon
from dither_shared.kinds.text import TextKind
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.mechanisms import PureMechanism
from dither_shared.rng import Rng
from dither_shared.words.alphabets import ALPHABETS, load
from dither_shared.words.groups import BUCKETS, LAYOUTS, PROPOSED, ROWS, Layout

if TYPE_CHECKING:
    from dither_shared.accounting.poisoning import Worth
    from dither_shared.precision import Told
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

    def unpublished(self, asked: Asked) -> str:
        """Return "": which words are looked up in a release is found in noisy counts."""
        return ""

    def released_names(self, asked: Asked) -> tuple[str, ...]:
        """Return nothing: each release has names of its own."""
        return ()

    def widened(self, cells: Cells, noise: CountNoise, n: int) -> tuple[float, float]:
        """Return that of a text that is looked up, among as many as usual, and of the level with the fewest reports."""
        from dither_shared.kinds.words_precision import widened  # only for planning

        return widened(cells, noise, n)

    def class_of(self, read: Read, domain: TextDomain, cells: Cells, cell: int, rng: Rng) -> int:
        """Return the bucket of the text, or of its prefix, in a cell."""
        mechanism = PureMechanism.of(cells.mechanism_of(cell))
        return mechanism.class_of([Coded.of(domain).bucket(read, cell)])

    def noise_variance(self, cells: Cells) -> Fraction:
        """Return that of the verification group, of a text that nobody has."""
        total = sum(part.cells * part.weight for part in cells.parts)
        last = cells.parts[-1]
        noise = PureMechanism.of(last.mechanism).noise_variance
        return noise * Fraction(total, last.cells * last.weight)

    def tells(self, asked: Asked, n: int) -> Told:
        """Return the share of a word of usual length that is named: its levels must propose it first."""
        from dither_shared.kinds.words_precision import told_named  # only for planning

        weights = tuple(part.weight for part in asked.cells.parts)
        return told_named(Layout(Coded.of(asked.domain).levels, weights), asked.cells, n)

    def poisoning(self, domain: TextDomain, cells: Cells) -> tuple[Worth, ...]:
        """Return that of the share of a text that is looked up: in the verification group, from all of its rows.

        With B buckets it is the mean of w = (B (S - q) / (p - q) - 1) / (B - 1). To be named the text must be proposed
        as well, by reports of the levels.
        """
        from dither_shared.accounting.poisoning import Worth  # only for people and the aggregator

        last = cells.parts[-1]
        share = Fraction(last.cells * last.weight, sum(part.cells * part.weight for part in cells.parts))
        points = PureMechanism.of(last.mechanism)
        p, q, others = points.p, points.q, points.d - 1
        up, down = ((points.d * weight / (p - q) - sign) / others for weight, sign in ((1 - q, 1), (q, -1)))
        return (Worth("a text", up, down, share, stands_out=True),)

    def offer(self, asked: Asked) -> Offer:
        """Return any text, and what is told of it."""
        length = f"A text of at most {VALUE_CHARACTERS_MAX} characters."
        sentence = "One report tells a part of the text, drawn by lot."
        return Offer((length, "The totals name the texts that many have.", sentence))
