"""The code of a text, of which each report tells a part: prefixes, and the groups that tell them."""

from __future__ import annotations

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.hashing import WORD_BITS, bucket_of, multiplier, number_of
from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.words.alphabets import codes_in

if TYPE_CHECKING:
    from dither_shared.words.alphabets import Alphabet

# The code of a text: short for what is common, and it checks itself. Prefixes of it have one length for all texts.
#
#     code(text) = the codes of its characters and of END, then the bits of SHA-256(text), first bit first
#
# alphabets.py has the codes of characters.
#
# A text is bytes, its UTF-8. Two more answers are a byte that no UTF-8 has, so no text is one of them:
#
#     "other"    FE            "none"    FF
#
# A prefix is an integer of so many bits, the first bit the most significant. One of the 2^14 ways to go on after the
# end of a text is right, and a prefix that ended wrongly is no text's: a search for texts drops it unseen.
#
# The text "to" in 18 bits: t after END is 10010, o after t 11000, END after o 11010, and SHA-256("to") begins with 011.


OTHER_BYTE, NONE_BYTE = b"\xfe", b"\xff"
PREFIX_MAX = 128
"""Bits of the longest prefix: what follows END is never longer than one SHA-256."""


def prefix_of(typed: bytes, length: int, alphabet: Alphabet | None = None) -> int:
    """Return the first `length` bits of a text's code, at most PREFIX_MAX. It stops there, however long the text."""
    bits = filled = 0
    for code, more in alphabet.codes_in(typed) if alphabet else codes_in(typed):
        if filled >= length:
            return bits >> filled - length
        bits = bits << more | code
        filled += more
    return (bits << PREFIX_MAX | checksum(typed, PREFIX_MAX)) >> filled + PREFIX_MAX - length


def checksum(typed: bytes, length: int) -> int:
    """Return the first `length` bits of SHA-256."""
    import hashlib  # as in frozen.py

    return int.from_bytes(hashlib.sha256(typed).digest()[: PREFIX_MAX // 8], "big") >> PREFIX_MAX - length


# Groups: which reports tell which prefix of a text's code, and the public hashes that they use.
#
# Each report draws a group, publicly and before the answer is looked at, and one of four rows in it. Groups are levels,
# whose reports tell the first bits of the code, and the verification group, the last, whose reports tell the whole
# text:
#
#     number    a level's prefix as an integer, folded to 64 bits;  for verification the first 64 bits of SHA-256(text)
#     bucket    (a number mod 2^64) >> 47, with the row's odd multiplier a: hashing.py
#
# The device sends the bucket, one of 2^17, through projective geometry response. A prefix P of more than 64 bits is
# folded to (P mod 2^64) + c (P >> 64) mod 2^64, with c odd: two prefixes then meet as rarely as any two numbers of 64
# bits, and the continuations of one prefix are still numbered in a row.

ROWS = 4
BUCKETS = 1 << 17
PROPOSED = 50
"""Texts that a search usually proposes: whether somebody has one is told with care for so many."""
KEPT_MAX = 200
"""Prefixes that a search takes on to the next level."""
STANDS_OUT = 3.0
"""Standard errors below which a search does not look at a prefix."""
STEP_MAX = 20
"""Bits from one level to the next: an aggregator tries all continuations of what it keeps."""
_MASK = (1 << WORD_BITS) - 1


@frozen
class Groups:
    """The levels of one metric, and its verification group."""

    salt: str
    """The metric's name: rev and plan would make every day's collisions others."""
    levels: tuple[int, ...]
    """Bits of each level's prefixes."""
    alphabet: Alphabet | None = None
    """The code of texts; that of English if none is named."""

    def __post_init__(self) -> None:
        steps = [more - less for less, more in zip((0, *self.levels), self.levels, strict=False)]
        if not (steps and all(1 <= step <= STEP_MAX for step in steps) and self.levels[-1] <= PREFIX_MAX):
            raise InvalidParameter(
                f"levels must rise by 1 to {STEP_MAX} bits up to at most {PREFIX_MAX}, got {self.levels}"
            )

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.levels) + 1

    def number(self, typed: bytes, group: int) -> int:
        """Return what a group's reports hash of a text."""
        if group == len(self.levels):
            return number_of(typed)
        return folded(prefix_of(typed, self.levels[group], self.alphabet))

    def multiplier(self, group: int, row: int) -> int:
        """Return what a row of a group multiplies numbers by."""
        return multiplier(f"dither words|{self.salt}|{group}|{row}")

    def bucket(self, typed: bytes, cell: int) -> int:
        """Return a text's bucket in a cell. Cells go through the rows of one group after the other."""
        group, row = divmod(cell, ROWS)
        return bucket_of(self.number(typed, group), self.multiplier(group, row), BUCKETS)


def folded(prefix: int) -> int:
    """Return the 64 bits that stand for a prefix."""
    return (prefix + (prefix >> WORD_BITS) * multiplier("dither words|fold") & _MASK) if prefix > _MASK else prefix


@frozen
class Layout:
    """Levels, and the share of the reports that each group has."""

    levels: tuple[int, ...]
    weights: tuple[int, ...]
    """One for each group; the verification group's is the last."""


LAYOUTS = {
    "short": Layout((18, 34, 50), (15, 14, 6, 15)),
    "long": Layout((16, 30, 44, 58, 72, 86), (7, 7, 7, 7, 7, 7, 18)),
}
"""For words and names, most of which end within 34 bits; and for phrases, of which a fifth as much is seen at most."""
