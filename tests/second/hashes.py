"""Public hashes: buckets of texts, Bloom bits, and the code of words (shared/reports.md, "The value")."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.second.plans import sha256

MASK = 2**64 - 1
ROOT = Path(__file__).parents[2]
WIRE = (ROOT / "shared" / "wire.md").read_text(encoding="utf-8")


def _code_points(heading: str) -> frozenset[int]:
    """Return the code points that a paragraph of the page lists."""
    listed = WIRE.partition(heading)[2].partition("\n\n")[0]
    ranges = re.findall(r"\b([0-9A-F]{4,6})(?:-([0-9A-F]{4,6}))?\b", listed)
    return frozenset(point for first, last in ranges for point in range(int(first, 16), int(last or first, 16) + 1))


UNSEEN = _code_points("**Characters that nobody sees:**")
VARIANTS = _code_points("**Variation selectors:**")
NEWER = frozenset[int]().union(
    *(
        range(first, last + 1)
        for first, last in json.loads((ROOT / "tests" / "vectors" / "texts.json").read_text(encoding="utf-8"))["newer"]
    )
)
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


def normal(text: str) -> str:
    """Return a text in NFC of Unicode 14: what it does not have parts the text, and stays."""
    return _apart(text, lambda part: unicodedata.normalize("NFC", part))


def _apart(text: str, form: Callable[[str], str]) -> str:
    parts = groupby(text, key=lambda one: ord(one) in NEWER)
    return "".join("".join(part) if newer else form("".join(part)) for newer, part in parts)


def word(text: str, casefold: bool) -> str:
    """Return a word in the form in which it is told apart."""
    text = normal(text)
    first = next((place for place, one in enumerate(text) if not _is_white(one)), len(text))
    last = next((place for place, one in enumerate(reversed(text)) if not _is_white(one)), 0)
    text = text[first : len(text) - last]
    return normal(_apart(text, str.casefold)) if casefold else text


def is_seen(text: str) -> bool:
    """Tell whether a text has no character that nobody sees (shared/wire.md, "Texts")."""
    return not any(ord(one) in UNSEEN and not _is_held(text, place) for place, one in enumerate(text))


def _is_held(text: str, place: int) -> bool:
    """Tell whether a joiner or a variation selector stands where it may."""
    before, one, after = text[place - 1] if place else " ", text[place], text[place + 1 : place + 2] or " "
    wide = ord(before) > 0x7F and not _is_white(before)
    if one in "\u200c\u200d":
        seen_after = ord(after) > 0x7F and not _is_white(after) and ord(after) not in UNSEEN
        return seen_after and wide and (ord(before) not in UNSEEN or ord(before) in VARIANTS)
    if ord(one) not in VARIANTS:
        return False
    return (wide and ord(before) not in UNSEEN) or (before in "0123456789#*" and one in "\ufe0e\ufe0f")


def _is_white(character: str) -> bool:
    return unicodedata.category(character) == "Zs" or unicodedata.bidirectional(character) in ("WS", "B", "S")


def word_bucket(typed: bytes, cell: int, salt: str, levels: list[int], alphabet: str) -> int:
    """Return the bucket of a word, or of a prefix of its code, in a cell."""
    group, row = divmod(cell, 4)
    if group == len(levels):
        number = first_word(typed)
    else:
        prefix = int(_code(typed, alphabet)[: levels[group]], 2)
        number = prefix + multiplier("dither words|fold") * (prefix >> 64) & MASK
    return (number * multiplier(f"dither words|{salt}|{group}|{row}") & MASK) >> 47


def _code(typed: bytes, alphabet: str) -> str:
    """Return the whole code of a word as a text of 0 and 1."""
    bits = _in_alphabet(typed, _alphabet(alphabet)) if alphabet else _in_english(typed)
    return bits + "".join(f"{byte:08b}" for byte in hashlib.sha256(typed).digest())


def _in_english(typed: bytes) -> str:
    bits, before = "", END
    for byte in typed:
        symbol = byte - 0x20 if 0x20 <= byte < 0x7F else ESC
        bits += _codes_after(before)[symbol] + (f"{byte:08b}" if symbol == ESC else "")
        before = symbol
    return bits + _codes_after(before)[END]


def _in_alphabet(typed: bytes, alphabet: dict[str, Any]) -> str:
    """Return the code of a word in an alphabet (shared/reports.md, "Alphabets")."""
    scripts, choices = alphabet["scripts"], _codes_of(alphabet["choice"])
    several = scripts if len(scripts) > 1 else []
    text = chr(0xDC00 + typed[0]) if typed in (b"\xfe", b"\xff") else typed.decode()
    bits, script, state, choosing = "", scripts[0], 0, bool(several)
    while text:
        if choosing or text[0] not in "".join(script["groups"]):
            bits += "" if choosing else _codes_of(script["lengths"][state])[-1]
            choosing = False
            chosen = next((place for place, one in enumerate(several) if text[0] in "".join(one["groups"])), None)
            if chosen is None:
                point = ord(text[0])
                bits += choices[-1] + f"{point - 65536:020b}" if point > 65535 else choices[-2] + f"{point:016b}"
                text, state = text[1:], 1
                continue
            bits, script, state = bits + choices[chosen], several[chosen], 0
        bits, text, state = _written(bits, text, script, state)
    return bits + (choices[0] if choosing else "") + _codes_of(script["lengths"][state])[-2]


def _written(bits: str, text: str, script: dict[str, Any], state: int) -> tuple[str, str, int]:
    """Write the piece or character at the beginning of a text."""
    row, words = _codes_of(script["lengths"][state]), [words.split(" ") for words in script.get("words", ())]
    symbols = [*script["groups"], *([piece] for piece in script["pieces"]), *words]
    found = [(one, symbol, texts) for symbol, texts in enumerate(symbols) for one in texts if text.startswith(one)]
    piece, symbol, texts = max(found, key=lambda each: len(each[0]))
    bits += row[symbol] + (f"{texts.index(piece):0{len(texts).bit_length() - 1}b}" if len(texts) > 1 else "")
    return bits, text[len(piece) :], ord(script["after"][symbol]) - ord("a")


@cache
def _alphabet(digest: str) -> dict[str, Any]:
    """Return the table of a digest."""
    files = {path.stem: json.loads(path.read_text("utf-8")) for path in LETTERS.with_name("tables").glob("*.json")}
    for held in files.values():
        scripts = [files[name]["script"] for name in held["scripts"]] if "scripts" in held else [held["script"]]
        table = {"scripts": scripts, "choice": held["choice"]}
        if sha256(table) == digest:
            return table
    raise AssertionError(digest)


@cache
def _codes_of(letters: str) -> list[str]:
    """Return the canonical Huffman code of lengths: a is 1."""
    lengths = [ord(letter) - 0x60 for letter in letters]
    codes = [""] * len(lengths)
    code = length = 0
    for one in sorted(range(len(lengths)), key=lambda one: (lengths[one], one)):
        code <<= lengths[one] - length
        length = lengths[one]
        codes[one] = f"{code:0{length}b}"
        code += 1
    return codes


@cache
def _codes_after(symbol: int) -> list[str]:
    lengths = LETTERS.read_bytes()[symbol * SYMBOLS : (symbol + 1) * SYMBOLS]
    return _codes_of("".join(chr(0x60 + length) for length in lengths))
