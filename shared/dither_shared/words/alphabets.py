"""The codes of characters: English after each other character, other scripts and names in programs by an alphabet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import chain

from dither_shared.errors import InvalidParameter
from dither_shared.frozen import frozen
from dither_shared.light_typing import Any

# Letters: how many bits each character takes after each other one.
#
# A text is a string of bytes here, its UTF-8. Its symbols are the 95 printable characters of ASCII, END, and ESC, which
# is followed by the eight bits of any other byte. Each symbol has a code of 1 to 16 bits that depends on the symbol
# before it (END before the first, ESC after an escaped byte): a canonical Huffman code of order 1.
#
# letters.bin has the lengths, a byte each: a row of 97 for each context, in the order of the symbols. README.md says
# what they were made of. In a row, codes count upwards from zero, shorter ones first, those of one length in the order
# of their symbols. They fill the row exactly, so every string of bits is the start of some text's code.

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


# Alphabets: the code of texts in other scripts than English, and of names in programs.
#
# An alphabet has one script, or several. Each symbol of a script stands for a group of 2^k characters, of which k more
# bits tell one, for a piece of several characters, which goes before its characters, or for 2^k such pieces: words. Two
# more symbols are END and ESC. The code of a symbol is as above: a canonical Huffman code that depends on the class of
# the symbol before it, class 0 at the beginning and after a change of script, class 1 after a character that no script
# has. A text is
#
#     the choice of a script, where there are several;  its symbols;  END
#
# A character that the script does not have is ESC and a choice: of the first script that has it, from which the text
# goes on, or of none, and then its number in Unicode, in 16 bits, or in 20 what it is above 0xFFFF. A text that begins
# so has the choice without ESC. The bytes FE and FF, which no text has, are the characters DCFE and DCFF.
#
# `tables/` has them, by name; README.md says what they were made of. A plan names SHA-256 of a table, by which it is
# known. A compiled registry carries those that its plans name, so no device needs the files: dither-aggregator brings
# them.


START, ESCAPED = 0, 1
"""Classes, as above."""
SHORT_BITS, LONG_BITS = 16, 20
"""Bits of a character that no script has, up to 0xFFFF and above."""
ALPHABETS = (
    "latin", "cyrillic", "greek", "arabic", "hebrew", "devanagari", "cjk", "kana", "hangul",
    "identifier", "domain", "package", "site", "any",
)  # fmt: skip
_known: dict[str, Alphabet] = {}
"""By digest, what was read: a digest says all of it."""


@frozen
class ScriptTable:
    """The table of one script."""

    groups: tuple[str, ...]
    """Characters, 2^k each."""
    pieces: tuple[str, ...]
    after: bytes
    """The class after each symbol."""
    lengths: tuple[bytes, ...]
    """A row for each class: the lengths of the codes of groups, pieces, words, END and ESC."""
    words: tuple[tuple[str, ...], ...] = ()
    """More pieces, in groups of 2^k."""

    def __post_init__(self) -> None:
        sizes = all(len(texts).bit_count() == 1 for texts in self.texts)
        once = len(self.symbols) == sum(map(len, self.texts))
        after = len(self.after) == self.end and max(self.after, default=0) < len(self.lengths) > ESCAPED
        if not (sizes and once and after and all(len(piece) > 1 for piece in chain(self.pieces, *self.words))):
            raise InvalidParameter(
                "a script must have groups of 2^k characters or words, each once, and a class after each symbol"
            )
        for row in self.lengths:
            _check_code(row, self.end + 2)

    @cached_property
    def texts(self) -> tuple[Sequence[str], ...]:
        """The characters, the piece or the words that each symbol stands for."""
        return (*self.groups, *((piece,) for piece in self.pieces), *self.words)

    @cached_property
    def symbols(self) -> dict[str, tuple[int, int, int]]:
        """The symbol of each character and piece, with the bits that tell it in its group, and how many these are."""
        return {
            text: (symbol, place, len(texts).bit_length() - 1)
            for symbol, texts in enumerate(self.texts)
            for place, text in enumerate(texts)
        }

    @cached_property
    def rows(self) -> tuple[Codes, ...]:
        """The codes of each class."""
        return tuple(map(codes_of, self.lengths))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many characters pieces have, the most first."""
        return tuple(sorted({len(text) for text in self.symbols} - {1}, reverse=True))

    @property
    def end(self) -> int:
        """The symbol END; ESC is the next."""
        return len(self.texts)

    def at(self, text: str, place: int) -> str:
        """Return the piece or else the character at a place of a text."""
        longest = (text[place : place + size] for size in self.sizes)
        return next((piece for piece in longest if piece in self.symbols), text[place])

    @cached_property
    def ends(self) -> Mapping[int, frozenset[bytes]]:
        """The bytes of the pieces, by how many they are."""
        pieces = {text.encode() for text in self.symbols if len(text) > 1}
        sizes = {len(piece) for piece in pieces}
        return {size: frozenset(piece for piece in pieces if len(piece) == size) for size in sizes}

    def ends_a_piece(self, typed: bytes) -> bool:
        """Tell whether bytes end in those of a piece."""
        return any(typed[-size:] in pieces for size, pieces in self.ends.items())


@frozen
class Alphabet:
    """The code of texts."""

    scripts: tuple[ScriptTable, ...]
    choice: bytes
    """The lengths of the codes of the scripts, if there are several, and of the two kinds of other characters."""
    document: Mapping[str, Any]
    """All that it was made of."""

    def __post_init__(self) -> None:
        if not self.scripts or any(script.sizes for script in self.others):
            raise InvalidParameter("an alphabet must have a script, and pieces only where it has one alone")
        _check_code(self.choice, len(self.others) + 2)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Alphabet:
        """Return the alphabet of a table."""
        _check_types(document)
        scripts = tuple(
            ScriptTable(
                tuple(each["groups"]),
                tuple(each["pieces"]),
                _numbers(each["after"], 0),
                _rows(each["lengths"]),
                tuple(tuple(words.split(" ")) for words in each.get("words", ())),
            )
            for each in document["scripts"]
        )
        return cls(scripts, _numbers(document["choice"]), document)

    @cached_property
    def choices(self) -> Codes:
        """The codes of the choice."""
        return codes_of(self.choice)

    @cached_property
    def others(self) -> tuple[ScriptTable, ...]:
        """The scripts of which one can be chosen."""
        return self.scripts if len(self.scripts) > 1 else ()

    def chosen(self, character: str) -> int:
        """Return the choice for a character."""
        scripts = (place for place, script in enumerate(self.others) if character in script.symbols)
        return next(scripts, len(self.others) + (character > "\uffff"))

    def codes_in(self, typed: bytes) -> Iterator[tuple[int, int]]:
        """Yield the code of a text, END last, in parts of so many bits."""
        text = typed.decode("utf-8", "surrogateescape")
        script, state, place = self.scripts[0], START, 0
        choosing = bool(self.others)
        while place < len(text):
            piece = script.at(text, place)
            if choosing or piece not in script.symbols:
                if not choosing:
                    yield script.rows[state].codes[script.end + 1]
                choosing = False
                choice = self.chosen(text[place])
                yield self.choices.codes[choice]
                if choice >= len(self.others):
                    more = choice - len(self.others)
                    yield ord(text[place]) - (more << SHORT_BITS), (SHORT_BITS, LONG_BITS)[more]
                    state, place = ESCAPED, place + 1
                    continue
                script, state = self.others[choice], START
                piece = script.at(text, place)
            symbol, bits, more = script.symbols[piece]
            yield script.rows[state].codes[symbol]
            if more:
                yield bits, more
            state, place = script.after[symbol], place + len(piece)
        if choosing:
            yield self.choices.codes[0]
        yield script.rows[state].codes[script.end]


def alphabet_of(digest: str) -> Alphabet:
    """Return the alphabet of this digest; raise InvalidParameter for one that this dither does not have."""
    for name in ALPHABETS:
        if digest in _known:
            break
        load(name)
    if digest not in _known:
        raise InvalidParameter(f"alphabet {digest[:12]!r} is not one of this dither's: install the one that has it")
    return _known[digest]


def is_own(digest: str) -> bool:
    """Tell whether an alphabet is one of this dither's, and not one that a compiled registry has brought."""
    return any(load(name)[0] == digest for name in ALPHABETS)


def load(name: str) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the digest of an alphabet of ours, and the levels of words in it with their shares of the reports."""
    held = _file(name)
    scripts = [_file(each)["script"] for each in held["scripts"]] if "scripts" in held else [held["script"]]
    digest = know({"scripts": scripts, "choice": held["choice"]})
    return digest, tuple(held["levels"]), tuple(held["weights"])


def know(document: Mapping[str, Any]) -> str:
    """Know an alphabet by its digest, and return that; raise InvalidParameter for a table by which no text is coded."""
    from dither_shared.frozen import sha256

    digest = sha256(document)
    if digest not in _known:
        _known[digest] = Alphabet.from_document(document)
    return digest


def _file(name: str) -> Any:
    import json
    from importlib.resources import files

    try:
        return json.loads(files("dither_shared.words").joinpath("tables", f"{name}.json").read_text("utf-8"))
    except FileNotFoundError:
        brings = "install dither-aggregator, which brings the tables, or start from the compiled registry"
        raise InvalidParameter(f"{name} has no table here: {brings}") from None


def _check_types(document: Mapping[str, Any]) -> None:
    """Refuse what is no text or no list of texts: a list of letters would do here, and not in other languages."""
    lists = [each.get(key, []) for each in document["scripts"] for key in ("groups", "pieces", "words", "lengths")]
    texts = [document["choice"], *(each["after"] for each in document["scripts"])]
    if not all(type(each) is list for each in lists) or not all(type(text) is str for text in chain(texts, *lists)):
        raise InvalidParameter("groups, pieces, words and lengths of an alphabet must be lists of texts, others texts")


def _check_code(lengths: bytes, symbols: int) -> None:
    """Refuse lengths that no code has, or one in which some bits are no text's: they must fill the row exactly."""
    filled = len(lengths) == symbols and 0 < min(lengths) <= max(lengths) <= LENGTH_MAX
    if not filled or sum(1 << LENGTH_MAX - length for length in lengths) != 1 << LENGTH_MAX:
        raise InvalidParameter(
            f"a row of an alphabet must be a full code of {symbols} symbols, of 1 to {LENGTH_MAX} bits"
        )


def _rows(rows: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(_numbers, rows))


def _numbers(letters: str, first: int = 1) -> bytes:
    """Return the numbers that letters stand for, from `first` for an a."""
    return bytes(ord(letter) - ord("a") + first for letter in letters)
