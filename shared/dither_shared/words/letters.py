"""Letters: how many bits each character takes after each other one.

A text is a string of bytes here, its UTF-8. Its symbols are the 95 printable characters of ASCII, END, and ESC, which
is followed by the eight bits of any other byte. Each symbol has a code of 1 to 16 bits that depends on the symbol
before it (END before the first, ESC after an escaped byte): a canonical Huffman code of order 1.

letters.bin has the lengths, a byte each: a row of 97 for each context, in the order of the symbols. README.md says what
they were made of. In a row, codes count upwards from zero, shorter ones first, those of one length in the order of
their symbols. They fill the row exactly, so every string of bits is the start of some text's code.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

from dither_shared.frozen import frozen

PRINTABLE = range(0x20, 0x7F)
END, ESC = 95, 96
CONTEXTS = 97
LENGTH_MAX = 16
BYTE_BITS = 8


@frozen
class Codes:
    """The codes after one symbol."""

    codes: tuple[tuple[int, int], ...]
    """The code of each symbol, and the code's length."""
    symbols: tuple[int, ...]
    """The other way round: all symbols in the order of their codes."""
    firsts: tuple[int, ...]
    """The code of each of these, with zeros after it to LENGTH_MAX bits: they ascend."""


def symbol_of(byte: int) -> int:
    """Return the symbol that begins a byte's code."""
    return byte - PRINTABLE.start if byte in PRINTABLE else ESC


def symbols_of(typed: bytes) -> Iterator[tuple[int, int]]:
    """Yield each symbol of a text with the one before it, END last."""
    before = END
    for symbol in (*map(symbol_of, typed), END):
        yield before, symbol
        before = symbol


def codes_in(typed: bytes) -> Iterator[tuple[int, int]]:
    """Yield the code of a text, END last, in parts of so many bits."""
    context = END
    for byte in typed:
        symbol = symbol_of(byte)
        yield row(context).codes[symbol]
        if symbol == ESC:
            yield byte, BYTE_BITS
        context = symbol
    yield row(context).codes[END]


@lru_cache(maxsize=CONTEXTS)
def row(context: int) -> Codes:
    """Return the codes after a symbol: made when they are first needed, since a device meets few contexts."""
    return codes_of(_lengths()[context * CONTEXTS : (context + 1) * CONTEXTS])


def codes_of(lengths: bytes) -> Codes:
    """Return the codes of these lengths, one for each symbol."""
    codes = [(0, 0)] * len(lengths)
    code = length = 0
    symbols = tuple(sorted(range(len(lengths)), key=lengths.__getitem__))  # stable: one length in the order of symbols
    for symbol in symbols:
        code <<= lengths[symbol] - length
        length = lengths[symbol]
        codes[symbol] = code, length
        code += 1
    aligned = (code << LENGTH_MAX - length for code, length in map(codes.__getitem__, symbols))
    return Codes(codes=tuple(codes), symbols=symbols, firsts=tuple(aligned))


@cache
def _lengths() -> bytes:
    from importlib.resources import files  # only where words are coded: it takes longer than all of this

    return files("dither_shared.words").joinpath("letters.bin").read_bytes()
