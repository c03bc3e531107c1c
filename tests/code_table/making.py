"""From texts to the counts of an alphabet, and from counts to its table.

A script's common letters are symbols of their own; the others, and characters of other scripts, stand in groups of 2^k
of about the same frequency, and so do the words of which names are made. Symbols that are followed alike are one class:
the two whose union costs the fewest bits are united until CLASSES are left.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np

from dither_shared.words.alphabets import ALPHABETS, ESCAPED, START, Alphabet, ScriptTable
from tests.code_table.lengths import Floats, lengths, shares
from tests.code_table.sources import texts_of, words_of

Texts = Sequence[tuple[str, float]]
"""Texts with their weights."""
COUNTS = Path(__file__).with_name("counts")
CLASSES, CLASSES_NAMES = 16, 26
"""Classes of a script's symbols, and of those of names of sites and apps, which letters can still number."""
OWN_SYMBOL = 0.001
"""The least part of all characters with which one has a symbol of its own."""
SEEN = 2.0
"""Characters of less weight are not in the alphabet."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ASCII = (
    "0123456789²³½°№%",
    f"{LETTERS}éàèüöä",
    f"{LETTERS.upper()}ÉÀÈÜÖÄ",
    "!\"#$&'()*+,./:;<=>?@[\\]^_`{|}~«»",
    " ",
    "-",
)
"""The groups of ASCII in the alphabets of other scripts."""
SIZES: Mapping[str, tuple[int, ...]] = {
    "cjk": (16,) * 4 + (64,) * 6 + (256,) * 8,
    "kana": (16,) * 4 + (64,) * 3 + (256,),
    "hangul": (1,) * 16 + (8,) * 8 + (16,) * 8 + (64,) * 8,
}
"""The groups of Han characters and of syllables, the most frequent first."""
RANGES: Mapping[str, tuple[str, str]] = {
    "cyrillic": ("\u0400", "\u052f"), "greek": ("\u0370", "\u03ff"), "arabic": ("\u0600", "\u06ff"),
    "hebrew": ("\u0590", "\u05ff"), "devanagari": ("\u0900", "\u097f"), "kana": ("\u3040", "\u30ff"),
    "latin": ("\u00c0", "\u1eff"), "cjk": ("\u3400", "\u9fff"), "hangul": ("\uac00", "\ud7a3"),
}  # fmt: skip
PIECES: Mapping[str, tuple[str, ...]] = {
    "domain": (
        "https://", "http://", "www.", ".com", ".org", ".net", ".io", ".dev", ".app", ".de", ".fr", ".ru", ".co.uk",
        ".co", ".edu", ".gov", ".github.io", ".info", ".ac.",
    ),
    "identifier": (
        "com.google.android.", "com.google.", "com.android.", "com.", "org.", "net.", "io.", "de.", ".android",
        "android", "google", "mobile", ".app", "apps.", "lib", "python", "golang-", "-dev", "node-", "ruby-", "-perl",
        "plugin", "github.",
    ),
    "site": (
        ".com", ".org", ".net", ".co.uk", "www.", ".de", ".fr", ".io", ".dev", ".app", ".co", ".edu", ".gov", ".info",
        ".ru", "https://", "http://", ".ac.", ".github.io",
    ),
    "package": (
        "com.google.android.apps.", "com.google.android.", "com.google.", "com.android.", "com.", ".android", "android",
        ".app", ".mobile", "org.", "net.", "de.", "io.",
    ),
}  # fmt: skip
GROWN: Mapping[str, int] = {"site": 100, "package": 120}
"""So many pieces, with those that the texts themselves show."""
PIECE_MAX, PIECE_TEXTS, PIECE_SEEN = 14, 4, 3.0
"""Characters of a grown piece at most, and at least the texts that have it and their weight."""
WORDS: Mapping[str, tuple[int, ...]] = {
    "site": (16,) * 8 + (64,) * 6 + (256,) * 2 + (1024,),
    "package": (16,) * 8 + (64,) * 6 + (256,) * 6 + (1024,) * 2,
}
"""The groups of words, the most frequent first."""
LETTER_BITS, WORD_BITS = 4.3, 12.0
"""The bits of a letter of a name, and of a word, roughly: the words that save the most bits are taken."""
GIVEN: Mapping[str, tuple[list[int], list[int]]] = {
    "site": ([18, 34, 50], [14, 12, 9, 10]),
    "package": ([18, 34, 50, 66, 82], [12, 10, 8, 7, 5, 8]),
}
"""Levels and shares of long names, in which the reports of a level must carry one name as far as those of the next.

Others that were tried found no more, by Zipf's law at epsilon 2 and 4, of apps that the table tried with was not made
of. Levels behind the end of a name tell it whole, so that the verification group may have less; but it alone tells what
is looked up.
"""
LEVEL_FIRST, LEVEL_STEP = 18, 16
"""The first level, all of whose prefixes are looked at, and the step to each later one."""
COVERED = 0.9
"""This part of the texts ends within the last level, if six levels do."""
LEVELS_MAX = 6
REPORTS, VERIFICATION = 50, 15
"""Levels divide what the verification group leaves, by how many texts go on behind the level before."""


def groups_of(alphabet: str, texts: Texts) -> list[str]:
    """Return the groups of an alphabet."""
    weights: dict[str, float] = defaultdict(float)
    for text, weight in texts:
        for character in text:
            weights[character] += weight
    total = sum(weights.values())
    ordered = sorted(weights, key=lambda one: (-weights[one], one))
    if alphabet in PIECES:
        plain = [chr(point) for point in range(0x20, 0x7F)]
        own = [one for one in ordered if one in plain and weights[one] >= OWN_SYMBOL / 4 * total]
        return [*own, *_cut([one for one in plain if one not in own], 8)]
    first, last = RANGES[alphabet]
    held = [one for one in ordered if first <= one <= last and weights[one] >= SEEN]
    if alphabet == "latin":
        plain = [chr(point) for point in range(0x20, 0x7F)]
        own = [one for one in ordered if one in plain or one in held if weights[one] >= OWN_SYMBOL * total]
        rest = [one for one in (*plain, *held) if one not in own]
        rest.sort(key=lambda one: (-weights[one], one))
        return [*own, *_cut(rest, 16)]
    if alphabet == "kana":
        wide = [one for one in ordered if RANGES["cjk"][0] <= one <= RANGES["cjk"][1] and weights[one] >= SEEN]
        own = [one for one in held if weights[one] >= OWN_SYMBOL * total]
        return [*own, *_cut([one for one in held if one not in own], 16), *_sized(wide, SIZES[alphabet]), *ASCII]
    if alphabet in SIZES:
        marks = "・、。〜" if alphabet == "cjk" else "·、。~"
        return [*_sized(held, SIZES[alphabet]), *ASCII[:-2], f" -{marks[:2]}"]
    own = [one for one in held if weights[one] >= OWN_SYMBOL * total]
    return [*own, *_cut([one for one in held if one not in own], 16), *ASCII]


def _cut(characters: Sequence[str], size: int) -> list[str]:
    """Return groups of so many characters, and of what is left over smaller ones."""
    groups = []
    while characters:
        while size > len(characters):
            size //= 2
        groups.append("".join(sorted(characters[:size])))
        characters = characters[size:]
    return groups


def _sized(characters: Sequence[str], sizes: Sequence[int]) -> list[str]:
    groups = []
    for size in sizes:
        if size > len(characters):
            break
        groups.append("".join(sorted(characters[:size])))
        characters = characters[size:]
    return groups


def count(alphabet: str, texts: Texts, known: Mapping[str, float]) -> dict[str, Any]:
    """Return the counts of an alphabet: groups, pieces, words, classes, and what follows each class how often.

    `known` has the words of which names are made, with their weights.
    """
    groups = groups_of(alphabet, texts)
    words = grouped_words(alphabet, texts, known)
    pieces = sorted(pieces_of(alphabet, texts, [*chain(*words)]), key=lambda piece: (-len(piece), piece))
    symbols = len(groups) + len(pieces) + len(words)
    # A table needs codes, also one that only parts texts into its symbols.
    any_code = bytes(lengths(np.full(symbols + 2, 1 / (symbols + 2))))
    table = ScriptTable(tuple(groups), tuple(pieces), bytes(symbols), (any_code, any_code), tuple(map(tuple, words)))
    seen = _followed(table, texts)
    classes = _classes(seen, CLASSES_NAMES if alphabet in GROWN else CLASSES)
    merged = np.zeros((max(classes) + 1, seen.shape[1]))
    np.add.at(merged, classes, seen)
    counts = {
        "groups": groups,
        "pieces": pieces,
        **({"words": [" ".join(group) for group in words]} if words else {}),
        "after": classes[2:],
        "counts": np.rint(merged).astype(int).tolist(),
    }
    coded = Alphabet.from_document({"scripts": [script(counts)], "choice": "aa"})
    bits: dict[int, float] = defaultdict(float)
    for text, weight in texts:
        bits[sum(more for _, more in coded.codes_in(text.encode()))] += weight
    return {**counts, "bits": {str(length): round(bits[length]) for length in sorted(bits) if round(bits[length])}}


def grouped_words(alphabet: str, texts: Texts, known: Mapping[str, float]) -> list[list[str]]:
    """Return the groups of words: those that save the most bits, by their weights and how often texts have them."""
    sizes = WORDS.get(alphabet, ())
    named = PIECES.get(alphabet, ())

    def seen(words: Collection[str]) -> dict[str, float]:
        weights, parted = {word: known[word] for word in words}, Parting([*named, *words])
        for text, weight in texts if words else ():
            for symbol in parted(text):
                if symbol in weights:
                    weights[symbol] += weight
        return weights

    def saved(word: str) -> float:
        return usual[word] * max(LETTER_BITS * len(word) - WORD_BITS, 0.1)

    usual = seen([word for word in known if word not in named] if sizes else ())
    kept = seen(sorted(usual, key=lambda word: (-saved(word), word))[: sum(sizes)])
    words = sorted(kept, key=lambda word: (-kept[word], word))
    ends = [*accumulate(sizes, initial=0)]
    return [sorted(words[first:end]) for first, end in pairwise(ends)]


def pieces_of(alphabet: str, texts: Texts, words: Collection[str] = ()) -> list[str]:
    """Return the pieces of an alphabet: those that are named, and what comes together in its texts beside the words.

    Grown by byte pair encoding: two symbols that follow each other are one where that saves the most bits, by how
    often they would meet by chance. Pieces whose place longer ones have taken are dropped, and others grow.
    """
    named = list(PIECES.get(alphabet, ()))
    pieces = named.copy()
    for last in (False, True):
        while len(pieces) < GROWN.get(alphabet, 0):
            parted = Parting([*pieces, *words])
            new = [piece for piece in _together(parted, texts) if piece not in parted.pieces]
            if not new:
                break
            pieces += new[: min(4, GROWN[alphabet] - len(pieces))]
        if not last:
            seen: dict[str, float] = defaultdict(float)
            parted = Parting([*pieces, *words])
            for text, weight in texts:
                for symbol in parted(text):
                    seen[symbol] += weight
            pieces = [piece for piece in pieces if piece in named or seen[piece] >= 5 * PIECE_SEEN]
    return pieces


def _together(parted: "Parting", texts: Texts) -> list[str]:
    """Return what could be a piece, by how many bits it saves."""
    alone: dict[str, float] = defaultdict(float)
    pairs: dict[tuple[str, str], float] = defaultdict(float)
    having: Counter[tuple[str, str]] = Counter()
    for text, weight in texts:
        symbols = parted(text)
        for symbol in (*symbols, ""):
            alone[symbol] += weight
        for pair in pairwise(symbols):
            pairs[pair] += weight
        having.update(set(pairwise(symbols)))
    total = sum(alone.values())
    saved = {
        one + other: weight * log2(weight * total / (alone[one] * alone[other]))
        for (one, other), weight in pairs.items()
        if len(one + other) <= PIECE_MAX and having[one, other] >= PIECE_TEXTS and weight >= PIECE_SEEN
    }
    return sorted(saved, key=lambda piece: (-saved[piece], piece))


class Parting:
    """Parts texts into pieces and characters, the longest piece first at each place."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self.pieces = frozenset(pieces)
        self.sizes = sorted({1, *map(len, self.pieces)}, reverse=True)

    def __call__(self, text: str) -> list[str]:
        """Return its pieces and characters."""
        parts: list[str] = []
        place = 0
        while place < len(text):
            longest = (text[place : place + size] for size in self.sizes)
            parts.append(next(part for part in longest if part in self.pieces or len(part) == 1))
            place += len(parts[-1])
        return parts


def _followed(table: ScriptTable, texts: Texts) -> Floats:
    """Return how often each symbol comes at the beginning, after ESC and after each other one."""
    counts = np.zeros((table.end + 2, table.end + 2))
    for text, weight in texts:
        context, place = START, 0
        while place < len(text):
            piece = table.at(text, place)
            symbol = table.symbols[piece][0] if piece in table.symbols else table.end + 1
            counts[context, symbol] += weight
            context = ESCAPED if symbol > table.end else symbol + 2
            place += len(piece)
        counts[context, table.end] += weight
    return counts


def _classes(counts: Floats, most: int) -> list[int]:
    """Return the class of each context, `most` at most: the first two have their own, as has the beginning."""

    def bits(row: Floats) -> float:
        seen = row[row > 0]
        return float(seen.sum() * np.log2(seen.sum()) - (seen * np.log2(seen)).sum()) if len(seen) else 0.0

    united = [([context], counts[context].copy()) for context in range(2, len(counts)) if counts[context].any()]
    while len(united) > most - 2:
        own = [bits(row) for _, row in united]
        _, one, other = min(
            (bits(united[one][1] + united[other][1]) - own[one] - own[other], one, other)
            for other in range(len(united))
            for one in range(other)
        )
        contexts, row = united.pop(other)
        united[one] = (united[one][0] + contexts, united[one][1] + row)
    found = [START, ESCAPED] + [ESCAPED] * (len(counts) - 2)
    for place, (contexts, _) in enumerate(united):
        for context in contexts:
            found[context] = place + 2
    return found


def script(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a script of its counts."""
    rows = shares(np.array(counts["counts"], dtype=float), escaped=ESCAPED, again=0.5, anything=0.02)
    return {
        "groups": counts["groups"],
        "pieces": counts["pieces"],
        **({"words": counts["words"]} if "words" in counts else {}),
        "after": "".join(chr(ord("a") + each) for each in counts["after"]),
        "lengths": ["".join(chr(ord("a") + each - 1) for each in lengths(row)) for row in rows],
    }


def layout(bits: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Return the levels for codes of these lengths, each length with its weight, and the shares of the reports."""
    total = sum(bits.values())

    def longer(than: int) -> float:
        return sum(weight for length, weight in bits.items() if int(length) > than) / total

    levels = [LEVEL_FIRST]
    while longer(levels[-1]) > 1 - COVERED and len(levels) < LEVELS_MAX:
        levels.append(levels[-1] + LEVEL_STEP)
    needed = [1.0, *map(longer, levels[:-1])]
    weights = [max(round(each / sum(needed) * (REPORTS - VERIFICATION)), 1) for each in needed]
    return levels, [*weights, ceil(sum(weights) * VERIFICATION / (REPORTS - VERIFICATION))]


def tables() -> dict[str, dict[str, Any]]:
    """Return the files of all alphabets, of their counts."""
    counts = {name: json.loads((COUNTS / f"{name}.json").read_text(encoding="utf-8")) for name in ALPHABETS[:-1]}
    files: dict[str, dict[str, Any]] = {
        name: {"script": script(each), "choice": "aa"} | _laid(each["bits"], name) for name, each in counts.items()
    }
    scripts = [name for name in ALPHABETS[:-1] if name not in PIECES]
    choice = "".join(chr(ord("a") + each - 1) for each in lengths(np.array([*CHOSEN.values()])))
    bits: Counter[int] = Counter()
    for name, code in zip(scripts, choice, strict=False):
        for length, weight in counts[name]["bits"].items():
            bits[int(length) + ord(code) - ord("a") + 1] += weight
    files["any"] = {"scripts": scripts, "choice": choice} | _laid({str(length): bits[length] for length in bits})
    return files


CHOSEN = {
    "latin": 8, "cyrillic": 2, "greek": 1, "arabic": 2, "hebrew": 1, "devanagari": 2, "cjk": 3, "kana": 2, "hangul": 2,
    "other": 1, "beyond": 1,
}  # fmt: skip
"""How often each script is taken to be chosen. "other" characters are those that no script has."""


def main() -> None:
    """Count the texts of a folder, for the alphabets that are named, or for all."""
    folder, *names = sys.argv[1:]
    for name in names or ALPHABETS[:-1]:
        known = words_of(Path(folder)) if name in WORDS else {}
        counts = count(name, list(texts_of(name, Path(folder))), known)
        rows = ",\n".join(map(json.dumps, counts.pop("counts")))
        rest = ",\n".join(f"{json.dumps(key)}: {json.dumps(each, ensure_ascii=False)}" for key, each in counts.items())
        (COUNTS / f"{name}.json").write_text(f'{{{rest},\n"counts": [\n{rows}\n]}}\n', encoding="utf-8")


def _laid(bits: Mapping[str, int], name: str = "") -> dict[str, list[int]]:
    levels, weights = GIVEN.get(name) or layout(bits)
    return {"levels": levels, "weights": weights}


if __name__ == "__main__":
    main()
