"""The tables of the web SDK, made of the Python one's: `python -m tests.web.tables` writes them again.

runs.ts has the code points that Unicode 14 may compose, reorder or fold, and those that it does not have, in as few
runs as tell the two apart: all others may be in either, since nothing happens to them. letters.ts has the lengths of
the code of words, a row for each symbol before and the usual symbols first, which compresses best.
"""

import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mode

from dither_shared.words.alphabets import CONTEXTS, row

ROOT = Path(__file__).parents[2]
DOMAINS = ROOT / "client" / "web" / "src" / "domains"
HANGUL = (range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3), range(0xAC00, 0xD7A4))
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LINE = 112


@cache
def newer() -> frozenset[int]:
    """Return the code points that Unicode 14 does not have."""
    listed = json.loads((ROOT / "tests" / "vectors" / "texts.json").read_text(encoding="utf-8"))["newer"]
    return frozenset(point for first, last in listed for point in range(first, last + 1))


@cache
def formed() -> frozenset[int]:
    """Return the code points that something may happen to in Unicode 14: marks, parts of a composed one, capitals."""
    points = {point for each in HANGUL for point in each}
    for point in range(0x110000):
        character = chr(point)
        if point in newer() or 0xD800 <= point < 0xE000:
            continue
        decomposed = unicodedata.decomposition(character)
        if decomposed and not decomposed.startswith("<"):
            points.update((point, *(int(part, 16) for part in decomposed.split())))
        if unicodedata.combining(character) or character.casefold() != character:
            points.add(point)
    return frozenset(points)


def runs() -> list[int]:
    """Return the lengths of runs from 0 on, in turns of those to form and those that part."""
    marked = sorted([(point, True) for point in formed()] + [(point, False) for point in newer()])
    lengths, at = [], 0
    for (last, one), (first, other) in pairwise(marked):
        if one != other:  # the end may be anywhere between the two: at the roundest length
            end = max(range(last + 1, first + 1), key=lambda end: ((end - at) & (at - end), -end))
            lengths.append(end - at)
            at = end
    return lengths


def runs_module() -> str:
    """Return runs.ts."""
    words = [_base_36(length) for length in runs()]
    return _module(
        "The lengths, to base 36, of runs of code points: to be formed, then to part a text, and so on.",
        f"export const RUNS =\n{_lines(' '.join(words))};\n",
    )


def letters_module() -> str:
    """Return letters.ts."""
    lengths = [[length for _, length in row(context).codes] for context in range(CONTEXTS)]
    order = sorted(range(CONTEXTS), key=lambda symbol: sum(each[symbol] for each in lengths))
    usual = mode(length for each in lengths for length in each)
    rows = ("".join(chr(0x60 + each[symbol]) for symbol in order).rstrip(chr(0x60 + usual)) for each in lengths)
    return _module(
        "The code of words: the symbols in the order of columns, and a row of lengths, `a` for 1, after each symbol.\n"
        " * What a row lacks at its end has the usual length.",
        f"export const USUAL = {usual};\n"
        f"export const ORDER =\n{_lines(''.join(chr(0x20 + symbol) for symbol in order))};\n"
        + "export const LENGTHS = `\n{}`;\n".format("".join(f"{each}\n" for each in rows)),
    )


def _module(says: str, code: str) -> str:
    return f"/**\n * {says}\n *\n * Made by `python -m tests.web.tables`.\n */\n\n{code}"


def _lines(text: str) -> str:
    lines: Iterable[str] = (text[at : at + LINE] for at in range(0, len(text), LINE))
    return " +\n".join(f"  {json.dumps(line)}" for line in lines)


def _base_36(number: int) -> str:
    return (_base_36(number // 36) if number >= 36 else "") + DIGITS[number % 36]


MODULES = {"runs.ts": runs_module, "letters.ts": letters_module}

if __name__ == "__main__":
    for name, made in MODULES.items():
        (DOMAINS / name).write_text(made(), encoding="utf-8")
