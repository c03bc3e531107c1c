"""Texts that nobody lists: told apart as they are, or by buckets of a public hash."""

from __future__ import annotations

from abc import abstractmethod

from dither_shared.domains.domain import NONE, OTHER, VALUE_CHARACTERS_MAX, Domain
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import as_dict, frozen
from dither_shared.hashing import bucket_of, multiplier, number_of
from dither_shared.text_normalization import COMPOSED_MAX, normal, unseen

Read = str | tuple[int, ...]
"""A text, or the place of what is none in UNTEXTS."""
UNTEXTS = (OTHER, NONE)


class TextDomain(Domain):
    """Texts of at most `characters_max` characters."""

    characters_max: int
    summary = "texts"

    def agreed(self, *, hidden: bool) -> None:
        """Return nothing: whoever is asked for a text sees that it may be any."""

    @property
    def untexts(self) -> tuple[str, ...]:
        """The names of answers that say nothing. They are shown apart from texts."""
        return (NONE,)

    def normal(self, text: str) -> str:
        """Return the form in which a text is told apart from others."""
        return normal(text)

    def form(self, answer: str) -> str:
        """Return the form in which an answer is told apart. A lone surrogate becomes a question mark."""
        return self.normal(str.encode(answer, "utf-8", "replace").decode("utf-8"))

    def holds(self, answer: object) -> bool:
        """Tell whether an answer is a text, short enough, of which each character can be seen."""
        if not isinstance(answer, str) or str.__len__(answer) > COMPOSED_MAX * self.characters_max:
            return False
        text = self.form(answer)
        return len(text) <= self.characters_max and not unseen(text)

    def unread(self) -> Read:
        """Return what an answer is read as that is no text of this domain."""
        return OTHER

    def nothing(self) -> Read:
        """Return the answer of a device with nothing to say."""
        return NONE

    def name_of(self, read: Read) -> str:
        """Return an answer in words."""
        return str(read)


@frozen
class Verbatim(TextDomain):
    """Texts by themselves: "other" and "none" are texts like any other."""

    name = "words"

    characters_max: int = VALUE_CHARACTERS_MAX

    def to_document(self) -> dict[str, object]:
        """Return the length."""
        return {"domain": self.name, "characters_max": self.characters_max}


class TypedTexts(TextDomain):
    """Texts beside answers that are none, which no text equals."""

    hidden: bool
    """Whether a device may have nothing to say, and says so."""

    @property
    def untexts(self) -> tuple[str, ...]:
        """The names of answers that are no text."""
        return UNTEXTS if self.hidden else UNTEXTS[:1]

    def name_of(self, read: Read) -> str:
        """Return the text, or the name of what is none."""
        return read if isinstance(read, str) else UNTEXTS[read[0]]

    def unread(self) -> Read:
        """Return "other", which is no text."""
        return (UNTEXTS.index(OTHER),)

    def nothing(self) -> Read:
        """Return "none", which is no text."""
        return (UNTEXTS.index(NONE),)

    def named(self, name: str) -> Read:
        """Return what a name in a list of candidates stands for: a text, or what is none where that may be said."""
        return (UNTEXTS.index(name),) if name in self.untexts else name

    @abstractmethod
    def named_bucket(self, name: str, row: int) -> int:
        """Return the bucket of what a name stands for, in a row of the reports that tell whole texts."""


@frozen
class Hashed(TypedTexts):
    """Texts by the bucket that a public hash gives each, in every row another one.

    A text is hashed as "text:" and its UTF-8; what is none as "other" or "none". So no text equals these, whatever it
    says.
    """

    name = "hashed"

    salt: str
    """The metric's name: rev and plan would make every day's collisions others."""
    buckets: int
    hidden: bool = False
    characters_max: int = VALUE_CHARACTERS_MAX

    def __post_init__(self) -> None:
        if not (type(self.buckets) is int and 2 <= self.buckets <= 1 << 32):
            raise InvalidParameter(f"there must be 2 to 2^32 buckets, got {self.buckets}")

    def to_document(self) -> dict[str, object]:
        """Return all that it is made of."""
        return {"domain": self.name, **as_dict(self)}

    def number(self, read: Read) -> int:
        """Return the 64 bits that stand for an answer in every row."""
        if isinstance(read, str):
            return number_of(b"text:" + read.encode("utf-8"))
        return number_of(UNTEXTS[read[0]].encode("ascii"))

    def multiplier(self, row: int) -> int:
        """Return what a row multiplies numbers by."""
        return multiplier(f"dither text|{self.salt}|{row}")

    def bucket(self, read: Read, row: int) -> int:
        """Return an answer's bucket in a row, from 0 on."""
        return bucket_of(self.number(read), self.multiplier(row), self.buckets)

    def named_bucket(self, name: str, row: int) -> int:
        """Return the bucket of what a name stands for: every row tells whole texts."""
        return self.bucket(self.named(name), row)
