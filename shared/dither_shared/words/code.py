"""The code of a text: short for what is common, and it checks itself. Prefixes of it have one length for all texts.

    code(text) = the codes of its characters and of END (letters.py), then the bits of SHA-256(text), first bit first

A text is bytes, its UTF-8. Two more answers are a byte that no UTF-8 has, so no text is one of them:

    "other"    FE            "none"    FF

A prefix is an integer of so many bits, the first bit the most significant. One of the 2^14 ways to go on after the end
of a text is right, and a prefix that ended wrongly is no text's: a search for texts drops it unseen.

The text "to" in 18 bits: t after END is 10010, o after t 11000, END after o 11010, and SHA-256("to") begins with 011.
"""

from bisect import bisect_right

from dither_shared.frozen import frozen
from dither_shared.words.letters import END, ESC, LENGTH_MAX, PRINTABLE, row, symbol_of

OTHER_BYTE, NONE_BYTE = b"\xfe", b"\xff"
PREFIX_MAX = 128
"""Bits of the longest prefix: what follows END is never longer than one SHA-256."""
BYTE_BITS = 8


def prefix_of(typed: bytes, length: int) -> int:
    """Return the first `length` bits of a text's code, at most PREFIX_MAX. It stops there, however long the text."""
    bits = filled = 0
    context = END
    for byte in typed:
        if filled >= length:
            return bits >> filled - length
        symbol = symbol_of(byte)
        code, more = row(context).codes[symbol]
        bits = bits << more | code
        filled += more
        if symbol == ESC:
            bits = bits << BYTE_BITS | byte
            filled += BYTE_BITS
        context = symbol
    code, more = row(context).codes[END]
    bits = (bits << more | code) << PREFIX_MAX | checksum(typed, PREFIX_MAX)
    return bits >> filled + more + PREFIX_MAX - length


def checksum(typed: bytes, length: int) -> int:
    """Return the first `length` bits of SHA-256."""
    import hashlib  # as in canonical_json.py

    return int.from_bytes(hashlib.sha256(typed).digest()[: PREFIX_MAX // 8], "big") >> PREFIX_MAX - length


@frozen
class Start:
    """The knowledge that a prefix gives of the texts that have it."""

    typed: bytes
    """The characters whose codes are whole."""
    ended: bool
    """Whether that is the whole text."""
    possible: bool
    """Whether any text has this prefix: a text that ended has only one checksum."""
    unread: int
    """How many of its last bits belong to a character that is cut, or to the checksum."""


NOTHING = Start(b"", ended=False, possible=True, unread=0)
"""The knowledge that a prefix of no bits gives."""


def read_prefix(bits: int, length: int, first: Start = NOTHING) -> Start:
    """Read a prefix of `length` bits.

    `first` is what was read of its first bits, and `length` then says how many more there are: none is read twice.
    """
    typed = bytearray(first.typed)
    context = symbol_of(typed[-1]) if typed else END
    left = first.unread + length
    while (taken := _symbol(context, bits, left)) is not None:
        symbol, after = taken
        if symbol == END:
            own = bits & (1 << after) - 1 == checksum(bytes(typed), after)
            return Start(typed=bytes(typed), ended=True, possible=own and is_answer(bytes(typed)), unread=after)
        if symbol == ESC:
            if after < BYTE_BITS:
                break
            after -= BYTE_BITS
            byte = bits >> after & 0xFF
            if byte in PRINTABLE:
                return Start(typed=bytes(typed), ended=False, possible=False, unread=after)
            typed.append(byte)
        else:
            typed.append(PRINTABLE.start + symbol)
        context, left = symbol, after
    return Start(typed=bytes(typed), ended=False, possible=True, unread=left)


def is_answer(typed: bytes) -> bool:
    """Tell whether bytes are a text, or one of the two other answers."""
    try:
        typed.decode("utf-8")
    except UnicodeDecodeError:
        return typed in (OTHER_BYTE, NONE_BYTE)
    return True


def _symbol(context: int, bits: int, left: int) -> tuple[int, int] | None:
    """Return the next symbol, and how many of the last `left` bits are left after it; None where its code is cut."""
    codes = row(context)
    ahead = (bits >> left - LENGTH_MAX if left > LENGTH_MAX else bits << LENGTH_MAX - left) & (1 << LENGTH_MAX) - 1
    symbol = codes.symbols[bisect_right(codes.firsts, ahead) - 1]
    _, length = codes.codes[symbol]
    return (symbol, left - length) if length <= left else None
