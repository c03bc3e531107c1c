"""Prefixes of texts' codes (code.py), read: what they tell of the texts that have them. No device reads any."""

from bisect import bisect_right

from dither_shared.frozen import frozen
from dither_shared.words.code import BYTE_BITS, NONE_BYTE, OTHER_BYTE, checksum
from dither_shared.words.letters import END, ESC, LENGTH_MAX, PRINTABLE, row, symbol_of


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
