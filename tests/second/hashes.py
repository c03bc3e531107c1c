"""Public hashes: buckets of texts, Bloom bits, and the code of words (shared/reports.md, "The value")."""

import hashlib
import unicodedata
from pathlib import Path

MASK = 2**64 - 1
LETTERS = Path(__file__).parents[2] / "shared" / "dither_shared" / "words" / "letters.bin"
END, ESC, SYMBOLS = 95, 96, 97


def first_word(hashed: bytes) -> int:
    """Return the first 8 bytes, big-endian, of SHA-256."""
    return int.from_bytes(hashlib.sha256(hashed).digest()[:8], "big")


def multiplier(salt: str) -> int:
    """Return a row's odd multiplier."""
    return first_word(salt.encode()) | 1


def bucket(typed: bytes, salt: str, row: int, buckets: int) -> int:
    """Return the bucket of a text, typed as it is hashed, in a row."""
    return (first_word(typed) * multiplier(f"dither text|{salt}|{row}") & MASK) * buckets >> 64


def bloom_bits(text: str, cohort: int, k: int, h: int) -> frozenset[int]:
    """Return the bits of google/rappor's filter."""
    digest = hashlib.md5(cohort.to_bytes(4, "big") + text.encode(), usedforsecurity=False).digest()
    return frozenset(byte % k for byte in digest[:h])


def normal(text: str, casefold: bool) -> str:
    """Return a word in the form in which it is told apart."""
    text = unicodedata.normalize("NFC", text)
    first = next((place for place, one in enumerate(text) if not _is_white(one)), len(text))
    last = next((place for place, one in enumerate(reversed(text)) if not _is_white(one)), 0)
    text = text[first : len(text) - last]
    return unicodedata.normalize("NFC", text.casefold()) if casefold else text


def _is_white(character: str) -> bool:
    return unicodedata.category(character) == "Zs" or unicodedata.bidirectional(character) in ("WS", "B", "S")


def word_bucket(typed: bytes, cell: int, salt: str, levels: list[int]) -> int:
    """Return the bucket of a word, or of a prefix of its code, in a cell."""
    group, row = divmod(cell, 4)
    if group == len(levels):
        number = first_word(typed)
    else:
        prefix = int(_code(typed)[: levels[group]], 2)
        number = prefix + multiplier("dither words|fold") * (prefix >> 64) & MASK
    return (number * multiplier(f"dither words|{salt}|{group}|{row}") & MASK) >> 47


def _code(typed: bytes) -> str:
    """Return the whole code of a word as a text of 0 and 1."""
    bits, before = "", END
    for byte in typed:
        symbol = byte - 0x20 if 0x20 <= byte < 0x7F else ESC
        bits += _codes_after(before)[symbol] + (f"{byte:08b}" if symbol == ESC else "")
        before = symbol
    bits += _codes_after(before)[END]
    return bits + "".join(f"{byte:08b}" for byte in hashlib.sha256(typed).digest())


def _codes_after(symbol: int) -> dict[int, str]:
    lengths = LETTERS.read_bytes()[symbol * SYMBOLS : (symbol + 1) * SYMBOLS]
    codes: dict[int, str] = {}
    code, length = 0, 0
    for one in sorted(range(SYMBOLS), key=lambda one: (lengths[one], one)):
        code <<= lengths[one] - length
        length = lengths[one]
        codes[one] = f"{code:0{length}b}"
        code += 1
    return codes
