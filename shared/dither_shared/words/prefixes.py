"""Prefixes of texts' codes (code.py), read: what they tell of the texts that have them. No device reads any."""

from bisect import bisect_right

from dither_shared.frozen import frozen, replaced
from dither_shared.words.alphabets import (
    BYTE_BITS,
    END,
    ESC,
    ESCAPED,
    LENGTH_MAX,
    LONG_BITS,
    PRINTABLE,
    SHORT_BITS,
    START,
    Alphabet,
    Codes,
    row,
    symbol_of,
)
from dither_shared.words.code import NONE_BYTE, OTHER_BYTE, checksum


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
    script: int = -1
    """In an alphabet, the script of the last character; -1 where one is to be chosen."""
    state: int = START
    """In an alphabet, the class of the last character."""
    read: int = 0
    """In an alphabet, how many of its first bits belong to the characters."""


NOTHING = Start(b"", ended=False, possible=True, unread=0)
"""The knowledge that a prefix of no bits gives."""


def read_prefix(bits: int, length: int, first: Start = NOTHING, alphabet: Alphabet | None = None) -> Start:
    """Read a prefix of `length` bits, in the code of an alphabet, or of English.

    `first` is what was read of its first bits, and `length` then says how many more there are: none is read twice.
    """
    if alphabet:
        return _read_in(alphabet, bits, length, first)
    typed = bytearray(first.typed)
    context = symbol_of(typed[-1]) if typed else END
    left = first.unread + length
    while (taken := _taken(row(context), bits, left)) is not None:
        symbol, after = taken
        if symbol == END:
            return _ended(Start(typed=bytes(typed), ended=True, possible=True, unread=after), bits)
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


def _ended(start: Start, bits: int) -> Start:
    """Return the knowledge of a whole text, of which the bits that are left must be the checksum."""
    own = bits & (1 << start.unread) - 1 == checksum(start.typed, start.unread)
    return start if own and is_answer(start.typed) else replaced(start, possible=False)


def _taken(codes: Codes, bits: int, left: int) -> tuple[int, int] | None:
    """Return the next symbol, and how many of the last `left` bits are left after it; None where its code is cut."""
    ahead = (bits >> left - LENGTH_MAX if left > LENGTH_MAX else bits << LENGTH_MAX - left) & (1 << LENGTH_MAX) - 1
    symbol = codes.symbols[bisect_right(codes.firsts, ahead) - 1]
    _, length = codes.codes[symbol]
    return (symbol, left - length) if length <= left else None


def _read_in(alphabet: Alphabet, bits: int, length: int, first: Start) -> Start:
    """Read a prefix in the code of an alphabet."""
    typed, left = first.typed, first.unread + length
    script, state = (first.script, first.state) if first.typed or alphabet.others else (0, START)
    total, first_script = first.read + left, alphabet.scripts[0]
    ended = doubtful = False
    while not ended and (step := _step(alphabet, bits, left, script, state)) is not None:
        symbol, chosen, script, state, left = step
        typed += symbol
        # Any other choice is another code; and so is a piece that was written as less, which ends where a symbol does,
        # or in a later piece.
        ended, doubtful = not symbol, doubtful or chosen or first_script.ends_a_piece(typed)
    start = Start(typed, ended, True, left, script, state, total - left)
    if doubtful and (typed or ended) and not _is_written(alphabet, bits >> left, start):
        return replaced(start, possible=False)
    return _ended(start, bits) if ended else start


def _is_written(alphabet: Alphabet, bits: int, start: Start) -> bool:
    """Tell whether a device writes these bits for what was read of them: a longer piece, or another choice, may do."""
    if _LOST in start.typed:
        return False
    code = filled = 0
    parts = list(alphabet.codes_in(start.typed))
    for part, more in parts if start.ended else parts[:-1]:
        code, filled = code << more | part, filled + more
    return (code, filled) == (bits, start.read)


_LOST = b"\xfe\xfe"
"""In the place of a character that there is not: two bytes that stand in no text, and not together."""


def _step(
    alphabet: Alphabet, bits: int, left: int, script: int, state: int
) -> tuple[bytes, bool, int, int, int] | None:
    """Read one symbol; None where its code is cut.

    Returns its bytes, none of END; whether there was a choice before it; script, class, and how many bits are left.
    """
    chosen = script < 0
    if not chosen:
        taken = _taken(alphabet.scripts[script].rows[state], bits, left)
        if taken is None:
            return None
        left, chosen = (taken[1], True) if taken[0] > alphabet.scripts[script].end else (left, False)
    if chosen:
        taken = _taken(alphabet.choices, bits, left)
        if taken is None:
            return None
        choice, left = taken
        more = choice - len(alphabet.others)
        if more >= 0:
            left -= (SHORT_BITS, LONG_BITS)[more]
            if left < 0:
                return None
            number = (bits >> left & (1 << (SHORT_BITS, LONG_BITS)[more]) - 1) + (more << SHORT_BITS)
            return _bytes_of(number), True, max(script, 0), ESCAPED, left
        script, state = choice, START
    table = alphabet.scripts[script]
    taken = _taken(table.rows[state], bits, left)
    if taken is None:
        return None
    symbol, left = taken
    if symbol >= table.end:
        return b"" if symbol == table.end else _LOST, chosen, script, state, left
    texts = table.texts[symbol]
    left -= len(texts).bit_length() - 1
    if left < 0:
        return None
    return texts[bits >> left & len(texts) - 1].encode(), chosen, script, table.after[symbol], left


def _bytes_of(number: int) -> bytes:
    """Return the bytes of a character that no script has."""
    try:
        return chr(number).encode("utf-8", "surrogateescape")
    except ValueError:  # no such character, or half of one
        return _LOST
