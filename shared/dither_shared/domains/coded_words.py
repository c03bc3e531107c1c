"""Texts by their code, of which each report tells a part: for words that the totals name by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from dither_shared.domains.domain import VALUE_CHARACTERS_MAX
from dither_shared.domains.hashed_texts import UNTEXTS, Read, TypedTexts
from dither_shared.errors import InvalidParameter
from dither_shared.frozen import as_dict, frozen
from dither_shared.text_normalization import JOINERS, folded, normal, unseen
from dither_shared.words.alphabets import alphabet_of
from dither_shared.words.code import NONE_BYTE, OTHER_BYTE, ROWS, Groups

UNTYPED = (OTHER_BYTE, NONE_BYTE)
"""Codes have this in the place of UNTEXTS."""


@frozen
class Coded(TypedTexts):
    """Texts by their code, of which each report tells a prefix or the whole, hashed: words/code.py.

    Texts are told apart without white space around them.
    """

    name = "coded"

    salt: str
    """The metric's name, as above."""
    levels: tuple[int, ...]
    """How many bits of the code each level tells."""
    casefold: bool = False
    """Whether capitals do not matter."""
    hidden: bool = False
    characters_max: int = VALUE_CHARACTERS_MAX
    alphabet: str = ""
    """The digest of the table by which texts are coded; of none for that of English."""

    def __post_init__(self) -> None:
        if type(self.casefold) is not bool or type(self.hidden) is not bool:
            raise InvalidParameter("casefold and hidden must be true or false")
        _ = self.groups

    def to_document(self) -> dict[str, object]:
        """Return all that it is made of."""
        fields = as_dict(self)
        if not self.alphabet:  # plans of before it came have their digests
            del fields["alphabet"]
        return {"domain": self.name, **fields, "levels": list(self.levels)}

    @cached_property
    def groups(self) -> Groups:
        """The groups of reports, each of which tells a prefix of its length or the whole text."""
        return Groups(self.salt, self.levels, alphabet_of(self.alphabet) if self.alphabet else None)

    @cached_property
    def table(self) -> Mapping[str, object] | None:  # type: ignore[override]
        """The table of the alphabet."""
        alphabet = self.groups.alphabet
        return None if alphabet is None else alphabet.document

    def normal(self, text: str) -> str:
        """Return the form in which a text is told apart from others."""
        text = normal(text).strip()
        return folded(text) if self.casefold else text

    def is_reportable(self, typed: bytes) -> bool:
        """Tell whether a device may say the text that these bytes are, or one of the answers that are none.

        Texts with characters that nobody sees, that control a terminal or turn others round are not said.
        """
        if typed in UNTYPED:
            return typed in UNTYPED[: len(self.untexts)]
        text = typed.decode("utf-8")
        return self.holds(text) and self.normal(text) == text

    def may_begin(self, typed: bytes) -> bool:
        """Tell whether a text that may be said begins with these bytes, of which the last character may be cut."""
        return not unseen(typed.decode("utf-8", "ignore").rstrip(JOINERS))

    def typed(self, read: Read) -> bytes:
        """Return the bytes whose code is told."""
        return read.encode("utf-8") if isinstance(read, str) else UNTYPED[read[0]]

    def shown(self, typed: bytes) -> str:
        """Return bytes in words. A text that says "other" or "none" has quotes, so that it is not taken for these."""
        if typed in UNTYPED:
            return UNTEXTS[UNTYPED.index(typed)]
        text = typed.decode("utf-8", "ignore")  # of a start the last character may be cut
        return f"“{text}”" if text in self.untexts else text

    def typed_of(self, name: str) -> bytes:
        """Return the bytes that are shown so, as devices would normalise them: also for texts that nobody found."""
        if name in self.untexts:
            return UNTYPED[UNTEXTS.index(name)]
        text = self.normal(name)
        bare = text[1:-1]
        return (bare if text == f"“{bare}”" and bare in self.untexts else text).encode("utf-8", "replace")

    def bucket(self, read: Read, cell: int) -> int:
        """Return an answer's bucket in a cell."""
        return self.groups.bucket(self.typed(read), cell)

    def named_bucket(self, name: str, row: int) -> int:
        """Return the bucket of what is shown by a name, in a row of the verification group."""
        return self.groups.bucket(self.typed_of(name), ROWS * len(self.levels) + row)
