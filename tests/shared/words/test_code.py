import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither_shared.words.alphabets import END, ESC, row, symbols_of
from dither_shared.words.code import NONE_BYTE, OTHER_BYTE, PREFIX_MAX, prefix_of
from dither_shared.words.prefixes import read_prefix

LENGTHS = st.integers(0, PREFIX_MAX)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def written_out(typed: bytes) -> str:
    """Return a text's code and 256 bits of its checksum, in the way of the documentation, bit by bit."""
    bits, raw = "", iter(typed)
    for context, symbol in symbols_of(typed):
        code, length = row(context).codes[symbol]
        bits += f"{code:0{length}b}"
        if symbol != END:
            byte = next(raw)
            bits += f"{byte:08b}" if symbol == ESC else ""
    return bits + "".join(f"{byte:08b}" for byte in hashlib.sha256(typed).digest())


@given(TEXTS, LENGTHS)
def test_a_prefix_is_the_first_bits_of_the_code_that_is_documented(text: str, length: int) -> None:
    typed = text.encode("utf-8")
    assert f"{prefix_of(typed, length):0{length}b}" == written_out(typed)[:length] or length == 0


@given(TEXTS, LENGTHS)
def test_what_is_read_is_the_text_or_its_start(text: str, length: int) -> None:
    typed = text.encode("utf-8")
    start = read_prefix(prefix_of(typed, length), length)
    assert start.possible
    assert typed.startswith(start.typed)
    assert start.ended == (len(written_out(typed)) - 256 <= length)
    assert start.typed == typed or not start.ended


@pytest.mark.parametrize("text", ["", "\0", "a\0b", "Москва", "日本語", "🦉", "👩‍🚀", "\x7f", "naïve", " ", "e\u0301"])
def test_every_character_can_be_coded(text: str) -> None:
    typed = text.encode("utf-8")
    assert read_prefix(prefix_of(typed, PREFIX_MAX), PREFIX_MAX).typed == typed[: len(typed)]


@given(LENGTHS, st.integers(0, (1 << PREFIX_MAX) - 1))
def test_any_bits_are_a_start_or_refused(length: int, drawn: int) -> None:
    bits = drawn >> PREFIX_MAX - length
    start = read_prefix(bits, length)
    if start.ended and start.possible:
        assert prefix_of(start.typed, length) == bits
    elif start.possible:
        assert length == 0 or f"{bits:0{length}b}".startswith(_codes_of(start.typed))


def _codes_of(typed: bytes) -> str:
    """Return the codes of characters without END."""
    length = len(written_out(typed)) - 256
    last = list(symbols_of(typed))[-1][0]
    return written_out(typed)[: length - row(last).codes[END][1]]


def test_a_text_that_ended_goes_on_in_one_way() -> None:
    right = prefix_of(b"to", 30)
    possible = [more for more in range(1 << 12) if read_prefix(right >> 12 << 12 | more, 30).possible]
    assert possible == [right & 0xFFF]


def test_other_answers_are_no_text() -> None:
    for typed in (OTHER_BYTE, NONE_BYTE):
        start = read_prefix(prefix_of(typed, PREFIX_MAX), PREFIX_MAX)
        assert (start.typed, start.ended, start.possible) == (typed, True, True)
        with pytest.raises(UnicodeDecodeError):
            typed.decode("utf-8")


def test_a_printable_character_is_never_escaped() -> None:
    code, length = row(END).codes[ESC]
    assert not read_prefix(code << 8 | ord("a"), length + 8).possible
    assert read_prefix(code << 8 | 0xC3, length + 8).possible


def test_bytes_that_are_no_text_are_refused() -> None:
    assert not read_prefix(prefix_of(b"\xc3(", PREFIX_MAX), PREFIX_MAX).possible


def test_the_example_of_the_documentation_holds() -> None:
    coded = [
        f"{code:0{length}b}" for context, symbol in symbols_of(b"to") for code, length in [row(context).codes[symbol]]
    ]
    assert coded == ["10010", "11000", "11010"]
    assert f"{prefix_of(b'to', 18):018b}" == "".join(coded) + "011"
    assert f"{hashlib.sha256(b'to').digest()[0]:08b}".startswith("011")


def test_common_words_are_shorter_than_with_six_bits_a_character() -> None:
    words = ["the", "Germany", "firefox", "Exec-managerial", "Visual Studio Code", "bash", "United States"]
    coded = sum(len(written_out(word.encode())) - 256 for word in words)
    assert coded < 0.85 * sum(6 * (len(word) + 1) for word in words)


@given(st.integers(0, (1 << PREFIX_MAX) - 1), st.integers(1, PREFIX_MAX), st.integers(1, PREFIX_MAX))
def test_a_prefix_that_is_read_on_from_its_start_says_the_same(bits: int, one: int, other: int) -> None:
    cut, length = sorted((one, other))
    bits >>= PREFIX_MAX - length
    start = read_prefix(bits >> length - cut, cut)
    if start.possible and not start.ended:
        assert read_prefix(bits, length - cut, start) == read_prefix(bits, length)
