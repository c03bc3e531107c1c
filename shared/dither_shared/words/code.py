"""The code of a text: short for what is common, and it checks itself. Prefixes of it have one length for all texts.

    code(text) = the codes of its characters and of END, then the bits of SHA-256(text), first bit first

letters.py has the codes for English, alphabets.py those for other scripts.

A text is bytes, its UTF-8. Two more answers are a byte that no UTF-8 has, so no text is one of them:

    "other"    FE            "none"    FF

A prefix is an integer of so many bits, the first bit the most significant. One of the 2^14 ways to go on after the end
of a text is right, and a prefix that ended wrongly is no text's: a search for texts drops it unseen.

The text "to" in 18 bits: t after END is 10010, o after t 11000, END after o 11010, and SHA-256("to") begins with 011.
"""

from __future__ import annotations

from dither_shared.light_typing import TYPE_CHECKING
from dither_shared.words.letters import codes_in

if TYPE_CHECKING:
    from dither_shared.words.alphabets import Alphabet

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
